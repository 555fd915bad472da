"""The live bridge on four real brokers: reconciler and agent heal the cluster that carries them.

The reconciler's topics lie on the cluster itself and are adopted with the others. One broker is
killed with kill -9 while a producer writes with acks=all; afterwards every partition has its
replicas again, no reassignment and no throttle is left, and every record that was confirmed is
there.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streaming.administration import apply_topics
from streaming.errors import BrokerUnreachable
from streaming.kafka_bridge import KafkaAdmin, Observer, Snapshot
from tests.systems.application import PLACER, Application
from tests.systems.cluster import Cluster
from tests.systems.topics import Outputs
from tests.systems.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PREFIX, TOPIC, PARTITIONS = "placement.", "orders", 12
# Four brokers in three racks: the rack of the one that is killed has another.
RACKS = ("r1", "r2", "r3", "r1")
PATIENCE_SECONDS = 2
HEAL_TIMEOUT_SECONDS = 240.0
KILLED = 4
# Copies go through throttles, so that some are there to be taken back.
RATE = "20MB"


class Writer:
    """Writes numbers with acks=all until it is closed; `confirmed` are those that Kafka has."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20})
        self._closing = threading.Event()
        self.confirmed: list[int] = []
        self.refused: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and wait for what is on its way."""
        self._closing.set()
        self._thread.join()
        assert self._producer.flush(120) == 0

    def _run(self) -> None:
        number = 0
        while not self._closing.wait(0.01):
            sent = number

            def note(error: object, _: object, sent: int = sent) -> None:
                if error is None:
                    self.confirmed.append(sent)
                else:
                    self.refused.append(str(error))

            value = str(number).encode().ljust(2_000, b".")
            self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=note)
            self._producer.poll(0)
            number += 1


class Bridge:
    """`placer kafka bridge` as a process; `lines` are what it has printed, with the time."""

    def __init__(self, bootstrap: str, mode: str) -> None:
        self.process = subprocess.Popen(
            [str(PLACER), "kafka", "bridge", "--bootstrap", bootstrap, "--prefix", PREFIX,
             "--mode", mode, "--patience-seconds", str(PATIENCE_SECONDS), "--throttle", RATE],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        self.lines: list[tuple[float, str]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def printed(self) -> str:
        """All of it."""
        return "".join(line for _, line in self.lines)

    def at(self, words: str, after: float = 0.0) -> float | None:
        """When it first said this, by the monotonic clock."""
        return next((t for t, line in self.lines if t >= after and words in line), None)

    def files(self) -> int:
        """How many file descriptors it has open."""
        return int(psutil.Process(self.process.pid).num_fds())

    def end(self, number: int) -> int:
        """Send a signal; the exit status."""
        self.process.send_signal(number)
        status = self.process.wait(60)
        self._thread.join(10)
        return status

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line))


class Bench:
    """The cluster, what runs on it, and looks at it."""

    def __init__(self, cluster: Cluster, outputs: Outputs) -> None:
        self.cluster, self.bootstrap, self.outputs = cluster, cluster.bootstrap, outputs
        self.bridges: list[Bridge] = []

    def start(self, mode: str = "act") -> Bridge:
        """Start a bridge."""
        bridge = Bridge(self.bootstrap, mode)
        self.bridges.append(bridge)
        return bridge

    def close(self) -> None:
        """End what runs on the cluster."""
        for bridge in self.bridges:
            bridge.process.kill()

    def look(self) -> Snapshot | None:
        """Look at the cluster with a client of its own; None while it does not answer.

        A client that lives on would try dead brokers, and leave the sockets to the collector.
        """
        try:
            with KafkaAdmin(self.bootstrap) as admin:
                return Observer(admin).look(0)
        except BrokerUnreachable:
            return None

    def is_at_rest(self, gone: frozenset[int] = frozenset()) -> bool:
        """Every partition is whole, in three racks, and as the reconciler has it; nothing runs."""
        seen = self.look()
        if seen is None:
            return False
        assigned = {
            key: tuple(map(int, each["replicas"]))
            for key, each in self.outputs.latest("assignments.v1").items()
        }
        found = {f"{topic.name}/{each.number}": each for topic, each in seen.partitions()}
        throttles = seen.throttles
        return (
            found.keys() == assigned.keys()
            and all(each.listed == assigned[key] for key, each in found.items())
            and not any(each.is_reassigned or each.is_under_replicated for each in found.values())
            and not any(gone & {*each.listed} for each in found.values())
            and not (throttles.leader_entries or throttles.follower_entries)
            and not (throttles.leader_rates or throttles.follower_rates)
            and not self.outputs.open_moves
        )


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Cluster(tmp_path_factory.mktemp("cluster"), RACKS) as cluster:
        apply_topics(cluster.bootstrap, PREFIX, 3)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        for future in admin.create_topics([topic]).values():
            future.result(30)
        outputs = Outputs(cluster.bootstrap, PREFIX)
        application = _start_application(cluster, tmp_path_factory.mktemp("scratch"))
        bench = Bench(cluster, outputs)
        try:
            application.wait_ready()
            yield bench
        finally:
            bench.close()
            application.kill()
            outputs.close()


def _start_application(cluster: Cluster, scratch: Path) -> Application:
    settings = {"PLACER_LEVELS": "rack"}
    return Application(cluster.bootstrap, PREFIX, scratch, settings)


def test_a_broker_that_is_killed_is_replaced_and_no_record_is_lost(bench: Bench) -> None:
    writer = Writer(bench.bootstrap)
    bridge, waiting = bench.start(), bench.start()
    until(bench.is_at_rest, "adopted", HEAL_TIMEOUT_SECONDS)
    until(lambda: len(writer.confirmed) > 500, "records are written")
    until(lambda: any("holds the lock" in b.printed for b in (bridge, waiting)), "one waits")
    works, waits = (bridge, waiting) if "holds" in waiting.printed else (waiting, bridge)
    assert f"(process {works.process.pid}) holds the lock" in waits.printed
    files = works.files()

    killed_at = time.monotonic()
    bench.cluster.nodes[KILLED - 1].kill()
    until(
        lambda: bench.is_at_rest(frozenset({KILLED})),
        f"healed: {works.printed[-3000:]}",
        HEAL_TIMEOUT_SECONDS,
    )
    healed = time.monotonic() - killed_at
    down = works.at(f"broker {KILLED} is down", killed_at)
    assert down is not None, works.printed
    altered = works.at(" reassign ", down)
    assert altered is not None, works.printed
    print(
        f"after kill -9: told down {down - killed_at:.1f} s, first alter "
        f"{altered - killed_at:.1f} s, healed {healed:.1f} s; files {files} to {works.files()}"
    )
    if os.environ.get("SHOW"):
        print("".join(f"{t - killed_at:8.2f} {line}" for t, line in works.lines))
    assert works.files() < files + 20

    # The one that works is killed, too; the other goes on where it was.
    assert works.end(signal.SIGKILL) == -signal.SIGKILL
    node = bench.cluster.nodes[KILLED - 1]
    node.launch()
    node.wait_answering()
    until(lambda: "this agent takes over" in waits.printed, "the other takes over")
    until(lambda: waits.at(f"broker {KILLED} is up"), f"it is seen: {waits.printed[-2000:]}", 120)
    until(bench.is_at_rest, f"at rest again: {waits.printed[-3000:]}", HEAL_TIMEOUT_SECONDS)
    assert waits.end(signal.SIGINT) == 0

    writer.close()
    assert not writer.refused
    stored = _read_all(bench.bootstrap)
    assert not {*writer.confirmed} - stored


def _read_all(bootstrap: str) -> set[int]:
    """The numbers in the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "auto.offset.reset": "earliest",
        }
    )
    places = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
    left = sum(consumer.get_watermark_offsets(each, 30)[1] for each in places)
    consumer.assign(places)
    found: set[int] = set()
    deadline = time.monotonic() + 60
    while left > 0:
        assert time.monotonic() < deadline
        for message in consumer.consume(1_000, 1.0):
            assert message.error() is None
            found.add(int((message.value() or b"").rstrip(b".")))
            left -= 1
    consumer.close()
    return found
