"""The live bridge on real brokers: reconciler and agent heal the cluster that carries them.

The reconciler's topics lie on the cluster itself and are adopted with the others. A broker is
killed with kill -9 while a producer writes with acks=all; afterwards every partition has its
replicas again, no reassignment and no throttle is left, and every record that was confirmed is
there. Three brokers show that in a minute; four have room for the internal topics, too, and two
agents.
"""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from streaming.administration import apply_topics
from tests.systems.bridged import PREFIX, BridgedKafka, Writer
from tests.systems.cluster import Cluster
from tests.systems.waiting import until

pytestmark = pytest.mark.timeout(900)

TOPIC, PARTITIONS = "orders", 12
# Three brokers in two racks.
FEW_RACKS = ("r1", "r2", "r2")
# Four brokers in three racks: the rack of the one that is killed has another.
RACKS = ("r1", "r2", "r3", "r1")
KILLED = 4
# Copies go through throttles, so that some are there to be taken back.
OPTIONS = ("--patience-seconds", "2", "--throttle", "20MB")


@contextmanager
def bridged(scratch: Path, racks: Sequence[str]) -> Iterator[BridgedKafka]:
    """Brokers in these racks with a reconciler that is ready, its topics among them."""
    with Cluster(scratch / "cluster", racks) as cluster:
        apply_topics(cluster.bootstrap, PREFIX, 3)
        kafka = BridgedKafka(cluster, scratch, OPTIONS)
        try:
            kafka.application.wait_ready()
            yield kafka
        finally:
            kafka.close()


def test_three_brokers_are_spread_over_racks_and_healed(tmp_path: Path) -> None:
    with bridged(tmp_path, FEW_RACKS) as kafka:
        kafka.create(TOPIC, [(2, 3), (3, 2), (2, 3), (3, 2)], in_sync_min=1)
        writer = Writer(kafka.bootstrap, TOPIC, 4)
        bridge = kafka.start()
        kafka.until(lambda: in_both_racks(lists(kafka, TOPIC)), "in both racks", 120)
        kafka.come_to_rest()
        used = {broker for each in lists(kafka, TOPIC) for broker in each}
        dies = next(broker for broker in (3, 2) if broker in used)

        kafka.cluster.nodes[dies - 1].kill()
        kafka.until(lambda: healed(kafka, TOPIC, dies), "no replica on the dead broker", 120)
        node = kafka.cluster.nodes[dies - 1]
        node.launch()
        node.wait_answering()
        # Internal topics have three replicas, so that they were whole with all brokers only.
        kafka.come_to_rest()
        assert bridge.end(signal.SIGINT) == 0
        writer.close()
        assert not writer.refused
        assert writer.confirmed
        assert not {*writer.confirmed} - writer.stored()


def lists(kafka: BridgedKafka, topic: str) -> list[tuple[int, ...]]:
    """The replicas of a topic's partitions; none where no broker answers."""
    seen = kafka.look()
    assert seen is None or topic in seen.topics
    return [] if seen is None else [each.listed for each in seen.topics[topic].partitions]


def in_both_racks(found: list[tuple[int, ...]]) -> bool:
    """Whether each list names the only broker of the first rack."""
    return bool(found) and all(1 in each for each in found)


def healed(kafka: BridgedKafka, topic: str, without: int) -> bool:
    """Whether all replicas of a topic are in sync and none is on this broker."""
    seen = kafka.look()
    return seen is not None and all(
        not each.is_under_replicated and not each.is_reassigned and without not in each.listed
        for each in seen.topics[topic].partitions
    )


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[BridgedKafka]:
    with bridged(tmp_path, RACKS) as kafka:
        kafka.create(TOPIC, PARTITIONS)
        yield kafka


@pytest.mark.long
def test_a_broker_that_is_killed_is_replaced_and_no_record_is_lost(kafka: BridgedKafka) -> None:
    writer = Writer(kafka.bootstrap, TOPIC, PARTITIONS)
    bridge, waiting = kafka.start(), kafka.start()
    kafka.come_to_rest()
    until(lambda: len(writer.confirmed) > 500, "records are written")
    until(lambda: any("holds the lock" in b.printed for b in (bridge, waiting)), "one waits")
    works, waits = (bridge, waiting) if "holds" in waiting.printed else (waiting, bridge)
    assert f"(process {works.process.pid}) holds the lock" in waits.printed
    files = works.files()

    killed_at = time.monotonic()
    kafka.cluster.nodes[KILLED - 1].kill()
    kafka.come_to_rest(gone=(KILLED,))
    healed = time.monotonic() - killed_at
    down = works.at(f"broker {KILLED} is down", killed_at)
    assert down is not None, works.printed
    altered = works.at(" reassign ", down)
    assert altered is not None, works.printed
    print(
        f"after kill -9: told down {down - killed_at:.1f} s, first alter "
        f"{altered - killed_at:.1f} s, healed {healed:.1f} s; files {files} to {works.files()}"
    )
    assert works.files() < files + 20

    # The one that works is killed, too; the other goes on where it was.
    assert works.end(signal.SIGKILL) == -signal.SIGKILL
    node = kafka.cluster.nodes[KILLED - 1]
    node.launch()
    node.wait_answering()
    until(lambda: "this agent takes over" in waits.printed, "the other takes over")
    until(lambda: waits.at(f"broker {KILLED} is up"), f"it is seen: {waits.printed[-2000:]}", 120)
    kafka.come_to_rest()
    assert waits.end(signal.SIGINT) == 0

    writer.close()
    assert not writer.refused
    assert not {*writer.confirmed} - writer.stored()
