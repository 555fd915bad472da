"""A Kafka cluster that is healed live: brokers, reconciler, `placer kafka bridge`, and a writer.

The reconciler's topics lie on the cluster itself and are adopted with the others. After each fault
the cluster has to come to rest: all partitions whole and where the reconciler has them, and no
reassignment, no throttle of the bridge and no open move left.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import orjson
import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streaming.errors import BrokerUnreachable
from streaming.kafka_bridge import KafkaAdmin, Observer, Snapshot
from tests.systems.application import PLACER, Application
from tests.systems.cluster import Cluster
from tests.systems.topics import Outputs
from tests.systems.waiting import until

PREFIX = "placement."
# Brokers are fenced in a third of the usual time here; Java's administration, which asks a dead one
# until its call times out, gives up as much sooner.
CLIENT_OPTIONS = '{"socket.timeout.ms": "4000"}'
HEAL_TIMEOUT_SECONDS = 300.0
READ_TIMEOUT_SECONDS = 60.0


class Writer:
    """Writes numbers with acks=all until it is closed; `confirmed` are those that Kafka has."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
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

    def stored(self) -> set[int]:
        """The numbers in the topic."""
        options = {"group.id": "check", "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, **options})
        places = [TopicPartition(self._topic, number, 0) for number in range(self._partitions)]
        left = sum(consumer.get_watermark_offsets(each, 30)[1] for each in places)
        consumer.assign(places)
        found: set[int] = set()
        deadline = time.monotonic() + READ_TIMEOUT_SECONDS
        while left > 0:
            assert time.monotonic() < deadline
            for message in consumer.consume(1_000, 1.0):
                assert message.error() is None
                found.add(int((message.value() or b"").rstrip(b".")))
                left -= 1
        consumer.close()
        return found

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
            partition = number % self._partitions
            self._producer.produce(self._topic, value, partition=partition, on_delivery=note)
            self._producer.poll(0)
            number += 1


class Bridge:
    """`placer kafka bridge` as a process; `lines` are what it has printed, with the time."""

    def __init__(
        self, bootstrap: str, mode: str, options: Sequence[str], settings: Mapping[str, str]
    ) -> None:
        self.process = subprocess.Popen(
            [str(PLACER), "kafka", "bridge", "--bootstrap", bootstrap, "--prefix", PREFIX,
             "--mode", mode, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | settings,
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
        with self.process.stdout as lines:
            for line in lines:
                self.lines.append((time.monotonic(), line))


class BridgedKafka:
    """The cluster, what runs on it, and looks at it."""

    def __init__(
        self,
        cluster: Cluster,
        scratch: Path,
        options: Sequence[str],
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.cluster, self.bootstrap = cluster, cluster.bootstrap
        self._scratch, self._options, self._starts = scratch, options, 0
        self.outputs = Outputs(cluster.bootstrap, PREFIX)
        self.bridges: list[Bridge] = []
        self.application = self.start_application(**settings or {})

    def start_application(self, **settings: str) -> Application:
        """Start the reconciler, which has to have ended before."""
        self._starts += 1
        checkpoint = self._scratch / str(self._starts)
        levels = {"PLACER_LEVELS": "rack", "PLACER_HOLD__LEVELS": "rack"}
        settings = {**levels, "PLACER_KAFKA__OPTIONS": CLIENT_OPTIONS, **settings}
        self.application = Application(self.bootstrap, PREFIX, checkpoint, settings)
        return self.application

    def start(self, mode: str = "act", **settings: str) -> Bridge:
        """Start a bridge."""
        bridge = Bridge(self.bootstrap, mode, self._options, settings)
        self.bridges.append(bridge)
        return bridge

    def close(self) -> None:
        """End what runs on the cluster."""
        for bridge in self.bridges:
            bridge.end(signal.SIGKILL)
        self.application.kill()
        self.outputs.close()

    def create(
        self, topic: str, lists: Sequence[Sequence[int]] | int, in_sync_min: int = 2
    ) -> None:
        """Create a topic with these replicas, or with so many partitions where Kafka puts them."""
        config = {"min.insync.replicas": str(in_sync_min)}
        if isinstance(lists, int):
            made = NewTopic(topic, lists, 3, config=config)
        else:
            given = [list(each) for each in lists]
            made = NewTopic(topic, len(given), replica_assignment=given, config=config)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([made])[topic].result(60)

    def placer(self, *words: str) -> str:
        """Run a command against the reconciler; its output."""
        place = ["--bootstrap", self.bootstrap, "--prefix", PREFIX]
        done = subprocess.run(
            [str(PLACER), *words, *place], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def agree(self, *words: str) -> None:
        """Ask for something by the hash that its dry run shows."""
        seen = orjson.loads(self.placer(*words, "--dry-run", "--output", "json"))
        self.placer(*words, "--hash", seen["impact_hash"])

    def look(self) -> Snapshot | None:
        """Look at the cluster with a client of its own; None while it does not answer.

        A client that lives on would try dead brokers, and leave the sockets to the collector.
        """
        try:
            with KafkaAdmin(self.bootstrap) as admin:
                return Observer(admin).look(0)
        except BrokerUnreachable:
            return None

    def why_not_at_rest(
        self, gone: Collection[int] = (), foreign: Mapping[int, int] | None = None
    ) -> str:
        """Say why the cluster is not at rest; empty where it is.

        `gone`: brokers that may hold nothing. `foreign`: leader rates that are somebody else's.
        """
        seen = self.look()
        if seen is None:
            return "no look"
        assigned = {
            key: tuple(map(int, each["replicas"]))
            for key, each in self.outputs.latest("assignments.v1").items()
        }
        found = {f"{topic.name}/{each.number}": each for topic, each in seen.partitions()}
        if found.keys() != assigned.keys():
            return f"known to one only: {sorted(found.keys() ^ assigned.keys())[:5]}"
        for key, each in found.items():
            if each.is_reassigned or each.is_under_replicated or {*gone} & {*each.listed}:
                return f"{key} is {each}"
            if each.listed != assigned[key]:
                return f"{key} is {each.listed}, assigned are {assigned[key]}"
        rates = {**seen.throttles.leader_rates}
        throttles = seen.throttles
        if rates != (foreign or {}) or throttles.follower_rates:
            return f"throttle rates: {throttles}"
        if throttles.leader_entries or throttles.follower_entries:
            return f"throttled replicas: {throttles}"
        return f"open moves: {self.outputs.open_moves}" if self.outputs.open_moves else ""

    def come_to_rest(
        self, gone: Collection[int] = (), foreign: Mapping[int, int] | None = None
    ) -> None:
        """Return when the cluster is at rest, and stays so for a look."""

        def is_at_rest() -> bool:
            return not self.why_not_at_rest(gone, foreign)

        self.until(is_at_rest, "at rest", HEAL_TIMEOUT_SECONDS)

    def until(self, condition: Callable[[], bool], what: str, timeout_seconds: float) -> None:
        """Wait for a condition; where it does not come true, say what the processes have said."""
        try:
            until(condition, what, timeout_seconds)
        except AssertionError as error:
            error.add_note(self.why_not_at_rest())
            error.add_note("\n".join(each.printed[-3_000:] for each in self.bridges[-2:]))
            error.add_note(self.application.output[-5_000:])
            raise
