"""How long many small partitions take to heal, beside Kafka's own tool with the same copies.

Six real brokers in three racks, one of which dies. Reconciler and bridge heal the cluster that
carries them; then everything is put back, the broker dies again, and `kafka-reassign-partitions`
gets the lists that the first way has ended at, all at once. Every partition has been copied before,
since the first copies of a broker are slow.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import orjson
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from streaming.administration import apply_topics
from streaming.kafka_bridge import KafkaAdmin, Snapshot
from tests.benchmarks.processes import BenchmarkFailed
from tests.benchmarks.report import show_table
from tests.systems.bridged import PREFIX, Bridge, BridgedKafka
from tests.systems.cluster import Cluster
from tests.systems.kafka_tools import REASSIGN, run_tool
from tests.systems.waiting import until

RACKS = ("a", "a", "b", "b", "c", "c")
DIES = 4
TOPIC = "small"
PATIENCE_SECONDS = 2.0
OPTIONS = ("--patience-seconds", str(PATIENCE_SECONDS), "--in-flight", "100")
# The limits that ship are for large partitions; all copies go to the one node left in the rack.
LIMITS = {
    f"PLACER_MOVES__MAX_{limit}": "200"
    for limit in ("IN_PER_NODE", "OUT_PER_NODE", "COPIES_FROM_NODE")
}
HEAL_TIMEOUT_SECONDS = 300.0
RECORD_BYTES = 100_000

Lists = Mapping[tuple[str, int], tuple[int, ...]]


@dataclass(frozen=True)
class Extent:
    """Partitions of the topic, of three replicas each, and the size of one."""

    partitions: int
    partition_bytes: int


FULL, QUICK = Extent(100, 4_000_000), Extent(12, 400_000)


@dataclass(frozen=True)
class Healed:
    """Seconds from the word that the broker is down; `copies` are those of all topics."""

    copies: int
    first_alter_seconds: float
    seconds: float
    tool_seconds: float

    @property
    def ratio(self) -> float:
        """Our time by the tool's."""
        return self.seconds / self.tool_seconds


def measure(extent: Extent, scratch: Path, tell: Callable[[str], None]) -> Healed:
    """Heal in both ways. Raises BenchmarkFailed."""
    tell("six brokers and the reconciler start")
    with Cluster(scratch / "cluster", RACKS) as cluster:
        apply_topics(cluster.bootstrap, PREFIX, 3)
        kafka = BridgedKafka(cluster, scratch, OPTIONS, LIMITS)
        try:
            kafka.application.wait_ready()
            kafka.create(TOPIC, extent.partitions)
            tell("the partitions are filled, and copied once, so that the brokers are warm")
            _fill(cluster.bootstrap, extent)
            _copy_once(kafka)
            bridge = kafka.start()
            kafka.come_to_rest()
            before = _lists(_look(kafka))
            tell("a broker dies, and the bridge heals")
            times = _heal(kafka, bridge)
            after = _lists(_look(kafka))
        finally:
            kafka.close()
        changed = {key: after[key] for key, held in before.items() if {*held} != {*after[key]}}
        tell("everything is put back")
        _launch(kafka)
        _state(kafka, {key: before[key] for key in changed})
        tell("the broker dies again, and Kafka's tool is run")
        seconds = _run_tool(kafka, changed, scratch)
    copies = sum(len({*held} - {*before[key]}) for key, held in changed.items())
    return Healed(copies, times.altered - times.down, times.healed - times.down, seconds)


class _Times(NamedTuple):
    """When the broker was told to be down, the first list stated, the cluster whole."""

    down: float
    altered: float
    healed: float


def _fill(bootstrap: str, extent: Extent) -> None:
    """Write as much into each partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20})
    for _ in range(extent.partition_bytes // RECORD_BYTES):
        for partition in range(extent.partitions):
            producer.produce(TOPIC, b"x" * RECORD_BYTES, partition=partition)
        if producer.flush(HEAL_TIMEOUT_SECONDS):
            raise BenchmarkFailed("the partitions could not be filled")


def _heal(kafka: BridgedKafka, bridge: Bridge) -> _Times:
    """Kill the broker, and wait until the cluster is whole."""
    begun = time.monotonic()
    kafka.cluster.nodes[DIES - 1].kill()
    until(lambda: _is_whole(kafka), "the bridge heals", HEAL_TIMEOUT_SECONDS)
    healed = time.monotonic()
    down, altered = bridge.at(f"broker {DIES} is down", begun), bridge.at(" reassign ", begun)
    if down is None or altered is None:
        raise BenchmarkFailed(f"the bridge did not say so: {bridge.printed[-500:]}")
    return _Times(down, altered, healed)


def _copy_once(kafka: BridgedKafka) -> None:
    """Give every partition other brokers, and put it back."""
    lists = _lists(_look(kafka))
    brokers = len(RACKS)
    _state(kafka, {key: tuple(each % brokers + 1 for each in held) for key, held in lists.items()})
    _state(kafka, lists)


def _launch(kafka: BridgedKafka) -> None:
    node = kafka.cluster.nodes[DIES - 1]
    node.launch()
    node.wait_answering()


def _state(kafka: BridgedKafka, lists: Lists) -> None:
    """Ask for these lists, and wait until they hold."""
    with KafkaAdmin(kafka.bootstrap) as admin:
        failed = {k: v for k, v in admin.alter_reassignments({**lists}).items() if v is not None}
    if failed:
        raise BenchmarkFailed(f"not reassigned: {failed}")
    until(
        lambda: _is_whole(kafka, alive=True) and _has(kafka, lists),
        "all lists are as asked for",
        HEAL_TIMEOUT_SECONDS,
    )


def _run_tool(kafka: BridgedKafka, lists: Lists, scratch: Path) -> float:
    """Kill the broker again; the seconds from the tool's start to the last copy."""
    kafka.cluster.nodes[DIES - 1].kill()
    until(lambda: DIES not in _live(kafka), "the broker is fenced", HEAL_TIMEOUT_SECONDS)
    file = scratch / "reassignment.json"
    rows = [
        {"topic": topic, "partition": number, "replicas": [*held]}
        for (topic, number), held in sorted(lists.items())
    ]
    file.write_bytes(orjson.dumps({"version": 1, "partitions": rows}))
    begun = time.monotonic()
    run_tool(REASSIGN, kafka.bootstrap, "--reassignment-json-file", str(file), "--execute")
    until(lambda: _is_whole(kafka), "the tool's copies are done", HEAL_TIMEOUT_SECONDS)
    return time.monotonic() - begun


def _look(kafka: BridgedKafka) -> Snapshot:
    seen = kafka.look()
    if seen is None:
        raise BenchmarkFailed("no broker answers")
    return seen


def _live(kafka: BridgedKafka) -> set[int]:
    seen = kafka.look()
    return {DIES} if seen is None else {n for n, b in seen.brokers.items() if not b.fenced}


def _lists(seen: Snapshot) -> Lists:
    return {(topic.name, each.number): each.listed for topic, each in seen.partitions()}


def _has(kafka: BridgedKafka, lists: Lists) -> bool:
    found = _lists(_look(kafka))
    return all({*found[key]} == {*held} for key, held in lists.items())


def _is_whole(kafka: BridgedKafka, *, alive: bool = False) -> bool:
    """Whether all replicas are in sync, none on the broker unless it is `alive`."""
    seen = kafka.look()
    return seen is not None and not any(
        each.is_reassigned or each.is_under_replicated or (not alive and DIES in each.listed)
        for _, each in seen.partitions()
    )


def show(console: Console, extent: Extent, found: Healed) -> None:
    """Print the table."""
    size = f"{extent.partitions} partitions of {extent.partition_bytes / 1e6:g} MB"
    table = Table(title=f"{size} heal, {found.copies} copies in all")
    for column in ("by", "first list stated", "whole again", "by the tool's time"):
        table.add_column(column, justify="left" if column == "by" else "right")
    first = f"{found.first_alter_seconds:.1f} s"
    table.add_row("placer kafka bridge", first, f"{found.seconds:.1f} s", f"{found.ratio:.2f}")
    table.add_row("kafka-reassign-partitions", "-", f"{found.tool_seconds:.1f} s", "1")
    show_table(console, table)
    console.print("from the moment at which the broker is told to be down, or the tool is started")


def body(found: Healed) -> dict[str, float]:
    """The figures for programs."""
    return dataclasses.asdict(found) | {"ratio": found.ratio}
