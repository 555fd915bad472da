"""Three brokers in three racks, of which one dies, then two, with decisions on their way (F7).

While one is away everything goes on; while two are, nothing can be written. Nothing is lost and
nothing is doubled either way: the records are judged by the oracle and by replaying the journal.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from schemas.topics import full_name
from streaming.simulator import Fleet
from streaming.simulator.fleet import FleetNode
from tests.integration.conftest import System
from tests.systems.cluster import REPLICATION_FACTOR, Cluster
from tests.systems.supervised import Supervised
from tests.systems.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

NODES = [FleetNode(f"n{zone}", f"/z{zone}") for zone in "abc"]
# Enough that the brokers' death meets the transaction, or what leads to it.
LARGE = 2_000
IN_SYNC_TIMEOUT_SECONDS = 60.0


class Brokers:
    """The cluster as its clients see it."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self._cluster, self._prefix = cluster, prefix
        self._client = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def leader(self, topic: str) -> int:
        """Index of the node that leads the topic's first partition."""
        name = full_name(topic, self._prefix)
        found = self._client.list_topics(name, timeout=10).topics[name].partitions[0].leader
        return found - 1

    def wait_in_sync(self) -> None:
        """Return when every copy of every topic has all records."""
        until(self._in_sync, "all copies are in sync", IN_SYNC_TIMEOUT_SECONDS)

    def _in_sync(self) -> bool:
        topics = self._client.list_topics(timeout=10).topics.values()
        copies = [len(p.isrs) for topic in topics for p in topic.partitions.values()]
        return set(copies) == {REPLICATION_FACTOR}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def supervised(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    system = System(cluster.bootstrap, tmp_path_factory.mktemp("system"), REPLICATION_FACTOR)
    try:
        with Fleet(system.bootstrap, system.prefix, NODES, 0.5):
            yield Supervised(system)
    finally:
        system.close()


@pytest.fixture(scope="module")
def brokers(cluster: Cluster, supervised: Supervised) -> Brokers:
    return Brokers(cluster, supervised.system.prefix)


@pytest.mark.parametrize("topic", ["commits.v1", "nodes.v1", "assignments.v1"])
def test_f7_the_leader_of_a_topic_dies_and_the_others_go_on(
    cluster: Cluster, supervised: Supervised, brokers: Brokers, topic: str
) -> None:
    supervised.ask(f"before-{topic}")
    node = cluster.nodes[brokers.leader(topic)]
    supervised.system.inputs.stream(f"under-way-{topic}", shards=LARGE)
    node.kill()
    supervised.answered(f"under-way-{topic}", LARGE)
    supervised.ask(f"without-{topic}")
    node.launch()
    node.wait_answering()
    brokers.wait_in_sync()
    supervised.ask(f"after-{topic}")


def test_f7_with_two_dead_nothing_is_written_and_with_them_back_nothing_is_lost(
    cluster: Cluster, supervised: Supervised, brokers: Brokers
) -> None:
    dead = brokers.leader("commits.v1"), brokers.leader("streams.v1")
    others = [number for number in range(len(cluster.nodes)) if number not in dead]
    dead_nodes = [cluster.nodes[n] for n in {*dead, *others[: 3 - len({*dead}) - 1]}]
    assert len(dead_nodes) == len(cluster.nodes) - 1
    supervised.system.inputs.stream("too-few", shards=LARGE)
    for node in dead_nodes:
        node.kill()
    for node in dead_nodes:
        node.launch()
    for node in dead_nodes:
        node.wait_answering()
    supervised.answered("too-few", LARGE)
    brokers.wait_in_sync()
    supervised.ask("enough")
    supervised.rest()
