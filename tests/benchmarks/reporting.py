"""How much slower decisions are while nodes report loads: the same reconciler with and without.

A fleet with everything placed reports all its replicas until every load is known. Then streams are
created, in turns while nobody reports and while all nodes do, each with the loads that are known
already, off by some noise: nothing of that concerns the planner, so it shall cost no decision.
Broker and reporter share the cores with the reconciler here, which they do nowhere else; a case in
which the same records go to a topic that nobody reads shows how much of it is theirs.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import orjson
import psutil
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from schemas.envelope import encode_headers
from schemas.topics import NODE_LOADS, full_name
from streaming.administration import apply_topics
from streaming.brokers import CommittedReader, make_producer
from streaming.runtime import EmbeddedBroker
from streaming.simulator import Fleet
from streaming.simulator.loads import SHARDS_PER_REPORT
from tests.benchmarks.load import nodes
from tests.benchmarks.measure import PLACER, QUIET_SECONDS, SETTINGS
from tests.benchmarks.probe import Appended, Creations, Probe
from tests.benchmarks.processes import BenchmarkFailed, cpu_seconds, module, running
from tests.benchmarks.report import COLUMNS, show_table
from tests.benchmarks.reporter import RESOURCE

REPLICATION_FACTOR = 3
SHARDS_PER_STREAM = 10_000
# What reports may cost a decision beyond what they cost the machine.
RATIO_MAX = 1.10
UNREAD_TOPIC = "unread.v1"
KNOWN_TIMEOUT_SECONDS = 900.0
ALONE, UNREAD, BESIDE = "nobody reports", "reports nobody reads", "reports"


@dataclass(frozen=True)
class Extent:
    """Nodes, shards, how often a node reports, and events counted in each of the rounds."""

    nodes: int
    shards: int
    every_seconds: float
    events: int
    rounds: int


FULL = Extent(1_000, 330_000, 30.0, 60, 4)
QUICK = Extent(100, 10_000, 30.0, 10, 1)


@dataclass
class Found:
    """Latencies in ms by case; seconds until all loads were known; rates while nodes reported.

    - `reports_per_second`: figures of replicas.
    - `changes_per_second`: records of loads that were published.
    - `cores`: CPU time of the application a second, by case.
    """

    known_seconds: float = 0.0
    reports_per_second: float = 0.0
    changes_per_second: float = 0.0
    latencies_ms: dict[str, list[float]] = field(default_factory=dict)
    cores: dict[str, list[float]] = field(default_factory=dict)


def measure(
    extent: Extent, broker: EmbeddedBroker, scratch: Path, tell: Callable[[str], None]
) -> Found:
    """Measure both cases. Raises BenchmarkFailed."""
    bootstrap, prefix, found = broker.bootstrap_servers, PLACER.prefix, Found()
    apply_topics(bootstrap, prefix, 1)
    environment = {**SETTINGS, "PLACER_RESOURCES": f'{{"{RESOURCE}": {{"capacity": 0.9}}}}'}
    with ExitStack() as owned:
        application = owned.enter_context(running(PLACER.command(bootstrap, scratch), environment))
        fleet = nodes(extent.nodes, "n")
        owned.enter_context(Fleet(bootstrap, prefix, fleet, QUIET_SECONDS))
        tell("streams are placed")
        _place(extent, bootstrap, prefix)
        creations = owned.enter_context(closing(Probe(bootstrap, prefix, Creations())))
        reporters = {BESIDE: owned.enter_context(_reporting(extent, bootstrap, prefix, NODE_LOADS))}
        tell("loads become known")
        found.known_seconds = _wait_known(extent, bootstrap, prefix)
        with _only(None, reporters):
            name = full_name(UNREAD_TOPIC, prefix)
            admin = AdminClient({"bootstrap.servers": bootstrap})
            admin.create_topics([NewTopic(name, 1, 1)])[name].result(KNOWN_TIMEOUT_SECONDS)
            reporters[UNREAD] = owned.enter_context(
                _reporting(extent, bootstrap, prefix, UNREAD_TOPIC)
            )
        reports = owned.enter_context(closing(Appended(bootstrap, full_name(NODE_LOADS, prefix))))
        changes = owned.enter_context(closing(Appended(bootstrap, full_name("load.v1", prefix))))
        rates: list[tuple[float, float]] = []
        for number in range(extent.rounds):
            for case in (ALONE, UNREAD, BESIDE):
                tell(f"round {number + 1} of {extent.rounds}: {case}")
                with _only(case, reporters):
                    creations.run(extent.events // 4 + 1)
                    reports.per_second(), changes.per_second()
                    _count(found, case, application, creations, extent.events)
                    if case == BESIDE:
                        rates.append((reports.per_second(), changes.per_second()))
    records, published = (median(each) for each in zip(*rates, strict=True))
    per_record = extent.shards * REPLICATION_FACTOR / _records(extent)
    found.reports_per_second, found.changes_per_second = records * per_record, published
    return found


def _records(extent: Extent) -> int:
    """Count the records in which all nodes report once, as the reporter cuts them."""
    each = -(-extent.shards * REPLICATION_FACTOR // extent.nodes)
    return extent.nodes * -(-each // SHARDS_PER_REPORT)


def _place(extent: Extent, bootstrap: str, prefix: str) -> None:
    """Create the streams, and wait until all their shards are placed."""
    producer, topic = make_producer(bootstrap), full_name("streams.v1", prefix)
    for number, first in enumerate(range(0, extent.shards, SHARDS_PER_STREAM)):
        shards = min(SHARDS_PER_STREAM, extent.shards - first)
        name = f"big{number}"
        sizes = {"shards": shards, "replication_factor": REPLICATION_FACTOR}
        body = {"stream": name, "sequence": 1, **sizes}
        headers = encode_headers(
            "StreamCreated", cell="benchmark", id=name, subject=name, time_ms=0
        )
        producer.produce(topic, orjson.dumps(body), name, headers=[*headers])
    producer.flush()
    _wait_for(extent.shards, "assignments.v1", bootstrap, prefix)


def _wait_known(extent: Extent, bootstrap: str, prefix: str) -> float:
    """Wait until the loads of all shards are known; the seconds that it took."""
    began = time.monotonic()
    _wait_for(extent.shards, "load.v1", bootstrap, prefix)
    return time.monotonic() - began


def _wait_for(shards: int, topic: str, bootstrap: str, prefix: str) -> None:
    """Wait until the topic has a record of as many shards."""
    deadline, keys = time.monotonic() + KNOWN_TIMEOUT_SECONDS, set[str]()
    with CommittedReader(bootstrap, prefix, [topic]) as reader:
        while len(keys) < shards:
            keys.update(record.key or "" for record in reader.poll(1.0))
            if time.monotonic() > deadline:
                raise BenchmarkFailed(f"{topic} has records of {len(keys)} of {shards} shards")


@contextmanager
def _reporting(extent: Extent, bootstrap: str, prefix: str, topic: str) -> Iterator[psutil.Process]:
    """Have all nodes report to a topic as long as the block lasts."""
    options = ["--bootstrap", bootstrap, "--prefix", prefix, "--topic", topic]
    options += ["--every-seconds", f"{extent.every_seconds:g}"]
    with running([*module("reporter"), *options]) as process:
        yield process


@contextmanager
def _only(case: str | None, reporters: Mapping[str, psutil.Process]) -> Iterator[None]:
    """Suspend all reporters but that of a case as long as the block lasts."""
    others = [reporter for name, reporter in reporters.items() if name != case]
    for each in others:
        each.suspend()
    try:
        yield
    finally:
        for each in others:
            each.resume()


def _count(
    found: Found, case: str, application: psutil.Process, creations: Probe, events: int
) -> None:
    """Take the latencies of so many creations."""
    spent, began = cpu_seconds(application), time.monotonic()
    found.latencies_ms.setdefault(case, []).extend(creations.run(events))
    cores = (cpu_seconds(application) - spent) / (time.monotonic() - began)
    found.cores.setdefault(case, []).append(cores)


def _percentiles(latencies_ms: list[float]) -> dict[str, float]:
    ranks = {"p50": 50, "p95": 95, "p99": 99, "max": 100}
    return {name: float(np.percentile(latencies_ms, rank)) for name, rank in ranks.items()}


def show(console: Console, extent: Extent, found: Found) -> None:
    """Print the table."""
    replicas = extent.shards * REPLICATION_FACTOR
    title = f"Stream created -> decision, ms; {extent.nodes:,} nodes, {replicas:,} replicas"
    table = Table(title=title)
    for heading in ("", *COLUMNS, "cores"):
        table.add_column(heading, justify="left" if heading == "" else "right")
    taken = {name: _percentiles(each) for name, each in found.latencies_ms.items()}
    for name, figures in taken.items():
        cores = f"{median(found.cores[name]):.2f}"
        table.add_row(name, *(f"{figures[column]:.0f}" for column in COLUMNS), cores)
    for base in (ALONE, UNREAD):
        ratios = (f"{taken[BESIDE][column] / taken[base][column]:.2f}" for column in COLUMNS)
        table.add_row(f"{BESIDE} / {base}", *ratios, "")
    show_table(console, table)
    console.print(
        f"The last row is what the reconciler can do about it; target {RATIO_MAX}."
        f" {found.reports_per_second:,.0f} reports of replicas a second,"
        f" {found.changes_per_second:.1f} records of changed loads; all loads were known"
        f" {found.known_seconds:.0f} s after the first report"
    )


def body(found: Found) -> dict[str, Any]:
    """The figures for programs."""
    latencies = {name: _percentiles(each) for name, each in found.latencies_ms.items()}
    return {
        "latency_ms": latencies,
        "cores": found.cores,
        "known_seconds": found.known_seconds,
        "reports_per_second": found.reports_per_second,
        "changes_per_second": found.changes_per_second,
    }
