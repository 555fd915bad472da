"""Goal: the example store loses nothing that it has acknowledged, whatever happens to its nodes.

Method: the nodes are processes of `deploy/examples/store`, placed by the real application. A writer
and reader, which judges by itself, runs while nodes are killed, drained, restarted and replaced.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.examples.store.client import StoreClient
from streaming.client import Requester
from streaming.simulator import ProcessFleet
from streaming.simulator.scenario import FleetLayout
from tests.integration.conftest import System

NODE = ("python", "-m", "deploy.examples.store.node")
TIMEOUT_SECONDS = 90.0


def is_whole(system: System, stream: str, factor: int) -> bool:
    """Whether every shard has its replicas on nodes that live, and nothing is under way."""
    alive = {n for n, v in system.outputs.latest("topology.v1").items() if v["liveness"] == "up"}
    shards = system.outputs.replicas(stream)
    return (
        bool(shards)
        and not system.outputs.open_moves
        and all(len(alive & {*replicas}) == factor for replicas in shards)
    )


@pytest.fixture
def fleet(own_system: System, tmp_path: Path) -> Iterator[ProcessFleet]:
    layout = FleetLayout(zones=2, racks=2, nodes=1)
    at = (own_system.bootstrap, own_system.prefix)
    with ProcessFleet(*at, layout.fleet_nodes(), NODE, tmp_path / "nodes") as made:
        own_system.start()
        yield made


def test_what_was_written_is_read_after_a_node_is_replaced(
    own_system: System, fleet: ProcessFleet
) -> None:
    at, outputs = (own_system.bootstrap, own_system.prefix), own_system.outputs
    pairs = {f"key-{number}": f"value {number}" for number in range(60)}
    with ExitStack() as opened:
        outputs.wait(lambda: len(outputs.latest("topology.v1")) == 4, "all nodes have registered")
        requester = opened.enter_context(Requester(*at))
        requester.create("pairs", 2, 3)
        writer = opened.enter_context(StoreClient(*at, "pairs"))
        for key, value in pairs.items():
            writer.put(key, value)
        victim = outputs.replicas("pairs")[0][0]
        fleet.kill(victim)
        writer.put("key-0", "after the kill")
        outputs.wait(
            lambda: (
                is_whole(own_system, "pairs", 3)
                and not any(victim in replicas for replicas in outputs.replicas("pairs"))
            ),
            "the node is replaced",
            TIMEOUT_SECONDS,
        )
        fleet.revive(victim)
        for node in fleet.alive:
            reader = opened.enter_context(StoreClient(*at, "pairs", fleet.location(node)))
            assert dict(reader.scan()) == pairs | {"key-0": "after the kill"}
    copied = [re.findall(r"copied (pairs/\d)", fleet.log(n).read_text()) for n in fleet.node_ids]
    assert sum(map(len, copied)) == 2
