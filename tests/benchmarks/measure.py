"""One subject from its start to its end: its cases, with the batches' parts and the memory."""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil

from schemas.topics import full_name
from streaming.administration import apply_topics
from streaming.runtime import EmbeddedBroker
from streaming.simulator import Fleet
from tests.benchmarks.load import nodes
from tests.benchmarks.probe import Appended, Creations, Probe, Registrations
from tests.benchmarks.processes import BenchmarkFailed, cpu_seconds, module, resident_bytes, running

# Nodes that the streams of the quiet case are placed on; they are never judged.
FEW_NODES = 12
QUIET_SECONDS = 3_600.0
SETTINGS = {
    # Nobody carries moves out here.
    "PLACER_REBALANCE__MODE": "off",
    # The nodes of all loads, and those that register again and again.
    "PLACER_QUOTAS__NODES": "16000",
    "PLACER_QUOTAS__NEW_NODES_PER_MINUTE": "16000",
}
ALONE = "alone"
REGISTRATIONS = "registrations"
# Between two looks at the memory of a subject under its highest load.
WEIGHED_EVERY_EVENTS = 100


@dataclass(frozen=True)
class Load:
    """Nodes that beat beside a case."""

    nodes: int
    heartbeats_per_second: int

    @property
    def name(self) -> str:
        """What the case is called."""
        return f"beside {self.heartbeats_per_second:,}/s"


@dataclass(frozen=True)
class Plan:
    """How much is measured. Warm-up events are sent before each case and not counted. Under the
    last of the loads nodes register too, and go on with it for `minutes`, for the memory's sake."""

    events: int
    warm_up: int
    loads: tuple[Load, ...]
    minutes: float


@dataclass
class Case:
    """The figures of one subject in one case. `parts_ms`: median over `batches` that committed;
    `cores`: CPU time of the application's processes per second."""

    latencies_ms: list[float]
    batches: int
    parts_ms: dict[str, float]
    heartbeats_per_second: float
    memory_bytes: dict[str, int]
    cores: float
    load: float
    percentiles_ms: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        ranks = {"p50": 50, "p95": 95, "p99": 99, "max": 100}
        self.percentiles_ms = {
            name: round(float(np.percentile(self.latencies_ms, rank)), 1)
            for name, rank in ranks.items()
        }


@dataclass(frozen=True)
class Subject:
    """What is measured: its command, and how it is told where things are."""

    name: str
    prefix: str

    def command(self, bootstrap: str, scratch: Path) -> list[str]:
        """The process to start; it says ready when events can be sent."""
        common = ["--bootstrap", bootstrap, "--prefix", self.prefix]
        common += ["--checkpoint", str(scratch / self.name)]
        if self.name == "floor":
            return [*module("floor"), *common, "--trace", str(self.trace(scratch))]
        placer = str(Path(sys.executable).with_name("placer"))
        silence = ["--suspect-after-seconds", f"{QUIET_SECONDS:g}"]
        silence += ["--dead-after-seconds", f"{2 * QUIET_SECONDS:g}"]
        return [placer, "run", *common, *silence]

    def trace(self, scratch: Path) -> Path:
        """Where its batches' parts are written."""
        return scratch / f"{self.name}.trace"


PLACER = Subject("placer", "placement.")
FLOOR = Subject("floor", "floor.")


@dataclass
class Measured:
    """The cases of one subject by name, and the driver's resident set as the last load lasted:
    pairs of minutes and bytes."""

    cases: dict[str, Case] = field(default_factory=dict)
    driver_bytes: list[tuple[float, int]] = field(default_factory=list)


def measure(
    subject: Subject,
    plan: Plan,
    broker: EmbeddedBroker,
    scratch: Path,
    tell: Callable[[str, int, int], Any],
) -> Measured:
    """All cases of one subject. Raises BenchmarkFailed."""
    bootstrap = broker.bootstrap_servers
    apply_topics(bootstrap, subject.prefix, 1)
    environment = {"PLACER_TRACE__FILE": str(subject.trace(scratch)), **SETTINGS}
    with ExitStack() as owned:
        command = subject.command(bootstrap, scratch)
        process = owned.enter_context(running(command, environment))
        run = _Run(subject, process, plan, broker, scratch, tell)
        creations = owned.enter_context(closing(Probe(bootstrap, subject.prefix, Creations())))
        with Fleet(bootstrap, subject.prefix, nodes(FEW_NODES, "n"), QUIET_SECONDS):
            creations.run(1)
        run.case(ALONE, creations)
        for load in plan.loads:
            with run.under(load):
                run.case(load.name, creations)
                if load == plan.loads[-1] and subject == PLACER:
                    question = Registrations(WEIGHED_EVERY_EVENTS * 2)
                    with closing(Probe(bootstrap, subject.prefix, question)) as registrations:
                        run.case(f"{REGISTRATIONS} {load.name}", registrations)
                        run.last(registrations)
        return run.measured


class _Run:
    """One subject while it is measured."""

    def __init__(
        self,
        subject: Subject,
        application: psutil.Process,
        plan: Plan,
        broker: EmbeddedBroker,
        scratch: Path,
        tell: Callable[[str, int, int], Any],
    ) -> None:
        self.measured = Measured()
        self._subject, self._application, self._plan = subject, application, plan
        self._bootstrap, self._trace, self._tell = (
            broker.bootstrap_servers,
            subject.trace(scratch),
            tell,
        )
        self._weighed = {"broker": broker.pid or 0}

    @contextmanager
    def under(self, load: Load) -> Iterator[None]:
        """Nodes beat as long as the block lasts."""
        with running(_load(self._bootstrap, self._subject.prefix, load)) as fleet:
            self._weighed["fleet"] = fleet.pid
            yield
        del self._weighed["fleet"]

    def case(self, name: str, probe: Probe) -> None:
        """Measure one case."""
        label, plan, trace = f"{self._subject.name} {name}", self._plan, self._trace
        probe.run(plan.warm_up, lambda n: self._tell(f"{label}: warm-up", n, plan.warm_up))
        topic = full_name("nodes.v1", self._subject.prefix)
        with closing(Appended(self._bootstrap, topic)) as arrivals:
            spent, started = cpu_seconds(self._application), time.monotonic()
            read_from = trace.stat().st_size if trace.exists() else 0
            latencies = probe.run(plan.events, lambda n: self._tell(label, n, plan.events))
            rate = arrivals.per_second()
        cores = (cpu_seconds(self._application) - spent) / (time.monotonic() - started)
        memory = resident_bytes(self._application)
        for role, pid in self._weighed.items():
            memory[role] = psutil.Process(pid).memory_info().rss
        batches, parts = _parts(trace, read_from, probe.query)
        load = os.getloadavg()[0]
        self.measured.cases[name] = Case(latencies, batches, parts, rate, memory, cores, load)

    def last(self, probe: Probe) -> None:
        """Go on until the plan's minutes are over, and weigh the driver now and then."""
        label, started = f"{self._subject.name}: memory, minutes", time.monotonic()
        minutes = 0.0
        while True:
            weight = self._application.memory_info().rss
            self.measured.driver_bytes.append((round(minutes, 1), weight))
            if minutes >= self._plan.minutes:
                return
            self._tell(label, round(minutes), round(self._plan.minutes))
            probe.run(WEIGHED_EVERY_EVENTS)
            minutes = (time.monotonic() - started) / 60


def _load(bootstrap: str, prefix: str, load: Load) -> list[str]:
    options = {
        "--bootstrap": bootstrap,
        "--prefix": prefix,
        "--count": str(load.nodes),
        "--beats-per-second": str(load.heartbeats_per_second),
    }
    return [*module("load"), *(text for option in options.items() for text in option)]


def read_trace(trace: Path, read_from: int) -> list[dict[str, Any]]:
    """The lines of a trace of batches from a byte on."""
    with trace.open("rb") as file:
        file.seek(read_from)
        return [orjson.loads(line) for line in file]


def _parts(trace: Path, read_from: int, query: str) -> tuple[int, dict[str, float]]:
    """Number of a query's traced batches that committed, and the median of each of their parts."""
    committed = [
        line["parts"]
        for line in read_trace(trace, read_from)
        if "commit" in line["parts"] and line["query"] == query
    ]
    if not committed:
        raise BenchmarkFailed(f"no batch that committed stands in {trace}")
    names = {name for parts in committed for name in parts}
    medians = {
        name: statistics.median(parts.get(name, 0.0) for parts in committed) for name in names
    }
    return len(committed), {name: round(ms, 1) for name, ms in sorted(medians.items())}
