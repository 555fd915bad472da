"""A bad network between the application and its broker: late, broken off, cut, half-open (F8).

All connections of the application, Spark's and its own, go through a proxy; nodes and whoever asks
have a network of their own. Nodes beat all the while, and none of them may be taken for dead.
"""

import threading
from collections.abc import Iterator

import pytest

from streaming.simulator import Fleet
from streaming.simulator.fleet import FleetNode
from tests.integration.conftest import System
from tests.systems.cluster import Cluster
from tests.systems.proxy import Proxy
from tests.systems.supervised import Supervised

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

NODES = [FleetNode(f"n{zone}", f"/z{zone}") for zone in "abc"]
# Longer than nodes may be silent.
CUT_SECONDS = 6.0
DELAY_SECONDS = 0.5
RESET_SHARE = 0.01
RESETS = 3
# What the README of `streaming` promises: a source and an outbox wait one behind the other.
GIVEN_UP_WITHIN_SECONDS = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node behind a proxy."""
    with Cluster(tmp_path_factory.mktemp("cluster"), ("r1",), proxied=True) as made:
        yield made


@pytest.fixture(scope="module")
def supervised(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    system = System(cluster.bootstrap, tmp_path_factory.mktemp("system"), through=cluster.proxied)
    try:
        with Fleet(system.bootstrap, system.prefix, NODES, 0.5):
            yield Supervised(system)
    finally:
        system.close()


@pytest.fixture
def proxy(cluster: Cluster, supervised: Supervised) -> Iterator[Proxy]:
    """The network, whole before and after, with a running application behind it."""
    (made,) = cluster.proxies
    made.mend()
    yield made
    made.mend()


def test_f8_everything_goes_through_the_proxy(supervised: Supervised, proxy: Proxy) -> None:
    supervised.ask("whole")
    assert proxy.connections >= 3, "Spark's source, the outbox and the ticker at least"


def test_f8_a_slow_network_only_delays(supervised: Supervised, proxy: Proxy) -> None:
    application = supervised.application
    proxy.delay(DELAY_SECONDS)
    supervised.ask("late", shards=20)
    assert supervised.application is application, "no reason to end"


def test_f8_connections_that_break_off_lose_nothing(supervised: Supervised, proxy: Proxy) -> None:
    proxy.reset_some(RESET_SHARE)
    number = 0
    while proxy.resets < RESETS:
        supervised.ask(f"reset-{number}", shards=20)
        number += 1


def test_f8_cut_off_and_let_in_again(supervised: Supervised, proxy: Proxy) -> None:
    proxy.cut()
    supervised.system.inputs.stream("cut-off")
    threading.Event().wait(CUT_SECONDS)
    assert not supervised.system.outputs.replicas("cut-off")
    proxy.mend()
    supervised.answered("cut-off")


@pytest.mark.parametrize("answers_only", [False, True])
def test_f8_half_open_connections_are_given_up(
    supervised: Supervised, proxy: Proxy, answers_only: bool
) -> None:
    """Also where everything arrived and the answers alone are lost: then all is sent again."""
    supervised.ask(f"connected-{answers_only}")
    application = supervised.application
    proxy.forget(answers_only=answers_only)
    supervised.ask(f"half-open-{answers_only}", timeout_seconds=GIVEN_UP_WITHIN_SECONDS)
    assert supervised.application is application, "no reason to end"


def test_f8_nothing_was_lost_or_doubled(supervised: Supervised) -> None:
    supervised.rest()
