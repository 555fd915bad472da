"""A broker that hangs, or dies and comes back: what was asked is answered once (F7, F8).

The application may end of a fault; it is started again then, as orchestrators do. Nodes beat all
the while, and none of them may be taken for dead.
"""

import threading
from collections.abc import Iterator

import pytest

from streaming.simulator import Fleet
from streaming.simulator.fleet import FleetNode
from tests.integration.conftest import System
from tests.systems.cluster import Cluster, Node
from tests.systems.supervised import Supervised

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

NODES = [FleetNode(f"n{zone}", f"/z{zone}") for zone in "abc"]
# Longer than nodes may be silent.
PAUSE_SECONDS = 6.0


@pytest.fixture(scope="module")
def broker_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A broker of its own, as others should not have to do with what happens to it."""
    with Cluster(tmp_path_factory.mktemp("cluster"), ("r1",)) as cluster:
        yield cluster.nodes[0]


@pytest.fixture(scope="module")
def supervised(broker_node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    system = System(broker_node.address, tmp_path_factory.mktemp("system"))
    try:
        with Fleet(system.bootstrap, system.prefix, NODES, 0.5):
            yield Supervised(system)
    finally:
        system.close()


def test_f8_a_broker_that_hangs_only_delays(supervised: Supervised, broker_node: Node) -> None:
    supervised.ask("before")
    process = broker_node.process
    process.suspend()
    threading.Event().wait(PAUSE_SECONDS)
    process.resume()
    supervised.ask("hung")


def test_f7_a_killed_broker_loses_nothing(supervised: Supervised, broker_node: Node) -> None:
    broker_node.kill()
    broker_node.launch()
    broker_node.wait_answering()
    supervised.ask("killed")
    assert supervised.system.outputs.replicas("before")
    supervised.rest()
