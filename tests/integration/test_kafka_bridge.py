"""The live bridge on four real brokers: reconciler and agent heal the cluster that carries them.

The reconciler's topics lie on the cluster itself and are adopted with the others. One broker is
killed with kill -9 while a producer writes with acks=all; afterwards every partition has its
replicas again, no reassignment and no throttle is left, and every record that was confirmed is
there.
"""

import signal
import time
from collections.abc import Iterator

import pytest

from streaming.administration import apply_topics
from tests.systems.bridged import PREFIX, BridgedKafka, Writer
from tests.systems.cluster import Cluster
from tests.systems.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

TOPIC, PARTITIONS = "orders", 12
# Four brokers in three racks: the rack of the one that is killed has another.
RACKS = ("r1", "r2", "r3", "r1")
KILLED = 4
# Copies go through throttles, so that some are there to be taken back.
OPTIONS = ("--patience-seconds", "2", "--throttle", "20MB")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgedKafka]:
    with Cluster(tmp_path_factory.mktemp("cluster"), RACKS) as cluster:
        apply_topics(cluster.bootstrap, PREFIX, 3)
        kafka = BridgedKafka(cluster, tmp_path_factory.mktemp("scratch"), OPTIONS)
        try:
            kafka.create(TOPIC, PARTITIONS)
            kafka.application.wait_ready()
            yield kafka
        finally:
            kafka.close()


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
