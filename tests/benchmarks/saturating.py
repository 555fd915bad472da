"""How much one reconciler takes: each kind of input as a backlog, written faster than it is read.

Heartbeats saturate the query on nodes: they are counted where Spark reports its batches. All other
inputs saturate the driver: their answers are counted as they can be read. Broker, writer and
reconciler share the machine, so each figure is what is left for the reconciler.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import orjson
from rich.console import Console
from rich.table import Table

from schemas.envelope import encode_headers
from schemas.topics import MOVES, NODES, full_name
from streaming.administration import apply_topics
from streaming.brokers import CommittedReader, Record, make_producer
from streaming.runtime import EmbeddedBroker
from streaming.simulator import Executor
from tests.benchmarks.load import nodes
from tests.benchmarks.measure import PLACER, SETTINGS, read_trace
from tests.benchmarks.processes import BenchmarkFailed, cpu_seconds, running
from tests.benchmarks.report import show_table

if TYPE_CHECKING:
    import psutil
    from confluent_kafka import Producer

ANSWERS_TIMEOUT_SECONDS = 600.0
# Batches of a backlog are full; those at its ends are not.
FULL_BATCH = 0.5
OFFSETS_PER_TRIGGER = 50_000
# The nodes that moves are between, and of them those that leave.
MOVING_NODES, LEAVING_NODES = 200, 10
REPLICATION_FACTOR = 3
SHARDS_PER_STREAM = 10_000


@dataclass(frozen=True)
class Layout:
    """How the work on nodes is divided: partitions of the topic and topology shards, with as many
    tasks at once as there are cores."""

    partitions: int
    topology_shards: int


@dataclass(frozen=True)
class Extent:
    """Records of each kind, and the fleets that they are about."""

    heartbeats: int
    layouts: tuple[Layout, ...]
    nodes: int
    creations: int
    creation_nodes: int
    moves: int


FULL = Extent(1_000_000, (Layout(1, 1), Layout(2, 1), Layout(2, 2), Layout(4, 2)), 10_000,
              20_000, 100, 3_000)  # fmt: skip
QUICK = Extent(100_000, (Layout(1, 1), Layout(2, 2)), 1_000, 500, 20, 200)


@dataclass(frozen=True)
class Taken:
    """A kind of input: how many records were taken in which time, and the CPU time of it."""

    kind: str
    records: int
    seconds: float
    cpu_seconds: float
    saturates: str

    @property
    def per_second(self) -> float:
        """Records a second."""
        return self.records / self.seconds


def measure(extent: Extent, scratch: Path, tell: Callable[[str], None]) -> list[Taken]:
    """All kinds, each on a broker of its own. Raises BenchmarkFailed."""
    taken = []
    for number, layout in enumerate(extent.layouts):
        name = f"heartbeats, {layout.partitions} partitions, {layout.topology_shards} shards"
        tell(name)
        taken.append(_heartbeats(extent, layout, name, scratch / f"heartbeats-{number}"))
    for kind, count in (
        ("registrations", _registrations),
        ("stream creations", _creations),
        ("moves with two acknowledgements each", _moves),
    ):
        tell(kind)
        taken.append(count(extent, kind, scratch / kind.split()[0]))
    return taken


class _System:
    """A broker, the reconciler and a producer, as long as the block lasts."""

    def __init__(self, scratch: Path, layout: Layout, settings: Mapping[str, str]) -> None:
        scratch.mkdir(parents=True)
        self._owned, self._scratch = ExitStack(), scratch
        self._layout, self._settings = layout, settings
        self.prefix, self.trace = PLACER.prefix, PLACER.trace(scratch)

    def __enter__(self) -> Self:
        with ExitStack() as failed:
            failed.callback(self._owned.close)
            self.bootstrap = self._owned.enter_context(EmbeddedBroker()).bootstrap_servers
            apply_topics(
                self.bootstrap, self.prefix, 1, partitions={NODES: self._layout.partitions}
            )
            environment = {
                **SETTINGS,
                "PLACER_TRACE__FILE": str(self.trace),
                "PLACER_SPARK__TOPOLOGY_SHARDS": str(self._layout.topology_shards),
                "PLACER_SPARK__MAX_OFFSETS_PER_TRIGGER": str(OFFSETS_PER_TRIGGER),
                **self._settings,
            }
            command = PLACER.command(self.bootstrap, self._scratch)
            self.application: psutil.Process = self._owned.enter_context(
                running(command, environment)
            )
            self.producer: Producer = make_producer(self.bootstrap)
            failed.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._owned.close()

    def register(self, count: int, life: str) -> None:
        """Let so many nodes register, each on a host that is new with its life."""
        for node in nodes(count, "n"):
            body = {"node_id": node.node_id, "incarnation": life, "sequence": 1}
            body |= {"location": node.location, "host": f"{life}-{node.node_id}"}
            self.write(NODES, "NodeRegistered", node.node_id, body)
        self.producer.flush()

    def start_with(self, count: int) -> None:
        """Let so many nodes register, and wait until they are known."""
        self.await_answers("topology.v1", count, lambda _: True, lambda: self.register(count, "a"))

    def write(self, topic: str, message: str, key: str, body: Mapping[str, Any]) -> None:
        """Put a record into the producer's queue."""
        headers = encode_headers(message, cell="benchmark", id=key, subject=key, time_ms=0)
        name, value = full_name(topic, self.prefix), orjson.dumps(body)
        while True:
            try:
                self.producer.produce(name, value, key, headers=[*headers])
            except BufferError:
                self.producer.poll(0.1)
            else:
                return

    def await_answers(
        self, topic: str, count: int, is_answer: Callable[[Record], bool], begin: Callable[[], None]
    ) -> tuple[float, float]:
        """Wait for answers with so many keys to what `begin` writes; seconds and CPU seconds from
        the first record on."""
        seen: set[str] = set()
        with CommittedReader(self.bootstrap, self.prefix, [topic], from_beginning=False) as reader:
            spent, began = cpu_seconds(self.application), time.monotonic()
            begin()
            while len(seen) < count:
                seen.update(each.key or "" for each in reader.poll(0.2) if is_answer(each))
                if time.monotonic() - began > ANSWERS_TIMEOUT_SECONDS:
                    raise BenchmarkFailed(f"{topic}: {len(seen)} of {count} answers came")
        return time.monotonic() - began, cpu_seconds(self.application) - spent


def _heartbeats(extent: Extent, layout: Layout, kind: str, scratch: Path) -> Taken:
    """Heartbeats of all nodes; time is that of full batches."""
    with _System(scratch, layout, {}) as system:
        system.start_with(extent.nodes)
        begun = system.trace.stat().st_size
        sequences = range(2, extent.heartbeats // extent.nodes + 2)

        def begin() -> None:
            for sequence in sequences:
                for number in range(extent.nodes):
                    node_id = f"n{number}"
                    body = {"node_id": node_id, "incarnation": "a", "sequence": sequence}
                    system.write(NODES, "NodeHeartbeat", node_id, body)
            system.producer.flush()

        def has_read_all(marker: Record) -> bool:
            reached = (marker.value or {})["positions"][NODES]
            return sum(reached.values()) >= extent.nodes * (len(sequences) + 1)

        _, cpu_seconds_all = system.await_answers("commits.v1", 1, has_read_all, begin)
        lines = [line for line in read_trace(system.trace, begun) if line["query"] == "nodes"]
    most = max(line["records"] for line in lines)
    full = [line for line in lines if line["records"] >= most * FULL_BATCH]
    records = sum(line["records"] for line in full)
    seconds = sum(line["parts"]["triggerExecution"] for line in full) / 1000
    spent = cpu_seconds_all * records / (extent.nodes * len(sequences))
    return Taken(kind, records, seconds, spent, "the cores" if layout.partitions > 1 else "a core")


def _registrations(extent: Extent, kind: str, scratch: Path) -> Taken:
    """All nodes come back as new processes on other hosts."""

    def is_answer(record: Record) -> bool:
        return (record.value or {}).get("incarnation") == "b"

    with _System(scratch, Layout(1, 1), {}) as system:
        system.start_with(extent.nodes)
        took = system.await_answers(
            "topology.v1", extent.nodes, is_answer, lambda: system.register(extent.nodes, "b")
        )
    return Taken(kind, extent.nodes, *took, "the driver")


def _create(system: _System, sizes: list[int]) -> None:
    """Let streams of so many shards be created."""
    for number, shards in enumerate(sizes):
        name = f"s{number}"
        body = {"stream": name, "sequence": 1, "shards": shards}
        body |= {"replication_factor": REPLICATION_FACTOR}
        system.write("streams.v1", "StreamCreated", name, body)
    system.producer.flush()


def _creations(extent: Extent, kind: str, scratch: Path) -> Taken:
    """Streams of one shard are created at once."""
    with _System(scratch, Layout(1, 1), {}) as system:
        system.start_with(extent.creation_nodes)
        took = system.await_answers(
            "decisions.v1",
            extent.creations,
            lambda _: True,
            lambda: _create(system, [1] * extent.creations),
        )
    return Taken(kind, extent.creations, *took, "the driver")


def _moves(extent: Extent, kind: str, scratch: Path) -> Taken:
    """Nodes leave that hold so many replicas; an executor answers at once."""
    shards = extent.moves * MOVING_NODES // LEAVING_NODES // REPLICATION_FACTOR
    rest = [shards % SHARDS_PER_STREAM] if shards % SHARDS_PER_STREAM else []
    settings = {
        f"PLACER_MOVES__{name}": str(extent.moves)
        for name in ("MAX_IN_PER_NODE", "MAX_OUT_PER_NODE", "MAX_OPEN", "MAX_PER_DOMAIN_PAIR")
    }

    def leave(system: _System) -> None:
        for number in range(LEAVING_NODES):
            body = {"node_id": f"n{number}", "incarnation": "a", "sequence": 2}
            system.write(NODES, "NodeUnregistered", f"n{number}", body)
        system.producer.flush()

    def is_completed(record: Record) -> bool:
        return (record.value or {}).get("state") == "completed"

    with _System(scratch, Layout(1, 1), settings) as system:
        system.start_with(MOVING_NODES)
        sizes = [SHARDS_PER_STREAM] * (shards // SHARDS_PER_STREAM) + rest
        system.await_answers(
            "assignments.v1", shards, lambda _: True, lambda: _create(system, sizes)
        )
        with Executor(system.bootstrap, system.prefix, 0.0) as executor:
            assert executor.wait_ready(ANSWERS_TIMEOUT_SECONDS), (
                "the executor has not read the topics"
            )
            # A node may hold a few less than the mean.
            counted = extent.moves * 9 // 10
            took = system.await_answers(MOVES, counted, is_completed, lambda: leave(system))
    return Taken(kind, counted, *took, "the driver")


def show(console: Console, taken: list[Taken]) -> None:
    """Print the table."""
    table = Table(title="The most that one reconciler takes, everything on one machine")
    for heading in ("input", "records", "seconds", "a second", "CPU µs each", "saturated"):
        table.add_column(heading, justify="left" if heading in ("input", "saturated") else "right")
    for each in taken:
        table.add_row(
            each.kind,
            f"{each.records:,}",
            f"{each.seconds:.1f}",
            f"{each.per_second:,.0f}",
            f"{each.cpu_seconds / each.records * 1e6:,.0f}",
            each.saturates,
        )
    show_table(console, table)
