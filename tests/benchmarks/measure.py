"""One subject from its start to its end: both cases, with the batches' parts and the memory."""

import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil

from schemas.topics import full_name
from streaming.admin import apply_topics
from streaming.broker import EmbeddedBroker
from streaming.fleet import Fleet
from tests.benchmarks.load import nodes
from tests.benchmarks.probe import Appended, Probe
from tests.benchmarks.processes import BenchmarkFailed, cpu_seconds, module, resident_bytes, running

# Nodes that the streams of the quiet case are placed on; they are never judged.
FEW_NODES = 12
QUIET_SECONDS = 3_600.0
ALONE, BESIDE = "alone", "beside heartbeats"


@dataclass(frozen=True)
class Plan:
    """How much is measured. Warm-up events are sent before each case and not counted."""

    events: int
    warm_up: int
    heartbeats_per_second: int
    nodes: int


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


def measure(
    subject: Subject,
    plan: Plan,
    broker: EmbeddedBroker,
    scratch: Path,
    tell: Callable[[str, int, int], Any],
) -> dict[str, Case]:
    """Both cases of one subject. Raises BenchmarkFailed."""
    bootstrap, trace = broker.bootstrap_servers, subject.trace(scratch)
    apply_topics(bootstrap, subject.prefix, 1)
    cases: dict[str, Case] = {}
    with ExitStack() as owned:
        command = subject.command(bootstrap, scratch)
        application = owned.enter_context(running(command, {"PLACER_TRACE__FILE": str(trace)}))
        probe = owned.enter_context(closing(Probe(bootstrap, subject.prefix)))
        arrivals = Appended(bootstrap, full_name("nodes.v1", subject.prefix))
        owned.enter_context(closing(arrivals))
        with Fleet(bootstrap, subject.prefix, nodes(FEW_NODES, "n"), QUIET_SECONDS):
            probe.run(1)
        for name in (ALONE, BESIDE) if plan.heartbeats_per_second else (ALONE,):
            weighed = {"broker": broker.pid or 0}
            if name == BESIDE:
                load = owned.enter_context(running(_load(bootstrap, subject.prefix, plan)))
                weighed["fleet"] = load.pid
            label = f"{subject.name} {name}"
            probe.run(
                plan.warm_up, lambda n, label=label: tell(f"{label}: warm-up", n, plan.warm_up)
            )
            arrivals.per_second()
            spent, started = cpu_seconds(application), time.monotonic()
            read_from = trace.stat().st_size if trace.exists() else 0
            latencies = probe.run(plan.events, lambda n, label=label: tell(label, n, plan.events))
            rate = arrivals.per_second()
            cores = (cpu_seconds(application) - spent) / (time.monotonic() - started)
            memory = resident_bytes(application)
            memory |= {role: psutil.Process(pid).memory_info().rss for role, pid in weighed.items()}
            batches, parts = _parts(trace, read_from)
            cases[name] = Case(latencies, batches, parts, rate, memory, cores, os.getloadavg()[0])
    return cases


def _load(bootstrap: str, prefix: str, plan: Plan) -> list[str]:
    options = {
        "--bootstrap": bootstrap,
        "--prefix": prefix,
        "--count": str(plan.nodes),
        "--beats-per-second": str(plan.heartbeats_per_second),
    }
    return [*module("load"), *(text for option in options.items() for text in option)]


def _parts(trace: Path, read_from: int) -> tuple[int, dict[str, float]]:
    """Number of traced batches that committed, and the median of each of their parts."""
    with trace.open("rb") as file:
        file.seek(read_from)
        lines = [orjson.loads(line) for line in file]
    committed = [line["parts"] for line in lines if "commit" in line["parts"]]
    if not committed:
        raise BenchmarkFailed(f"no batch that committed stands in {trace}")
    names = {name for parts in committed for name in parts}
    medians = {
        name: statistics.median(parts.get(name, 0.0) for parts in committed) for name in names
    }
    return len(committed), {name: round(ms, 1) for name, ms in sorted(medians.items())}
