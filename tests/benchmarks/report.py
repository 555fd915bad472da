"""The report: tables for people, one JSON document for programs."""

from itertools import zip_longest
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks.measure import Case, Measured

Results = dict[str, Measured]

# Spark's own benchmark of its JVM operator, Kafka -> transformWithState -> Kafka in micro-batches,
# 3 x 5 cores, 1,000 records a second: connector/kafka-0-10-sql/benchmarks/
# RTMKafkaTransformWithStateBenchmark-results.txt in Spark's repository.
PUBLISHED = {"p50": 319.0, "p99": 463.0, "max": 652.0}
PUBLISHED_NAME = "Spark's published figure, JVM operator, 15 cores"
TARGET = {"p50": 150.0, "p99": 250.0}
COLUMNS = ("p50", "p95", "p99", "max")

# Spark's parts in their order; ours stand inside of addBatch.
PARTS = {
    "triggerExecution": "whole batch",
    "latestOffset": "  latestOffset",
    "queryPlanning": "  queryPlanning",
    "walCommit": "  walCommit",
    "addBatch": "  addBatch",
    "toArrow": "    toArrow: read, operators, to the driver",
    "plan": "    decode, order, plan",
    "commit": "    transaction",
    "rest": "    callback and rest",
    "commitOffsets": "  commitOffsets",
}


def as_json(machine: dict[str, str], plan: dict[str, Any], results: Results) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        "machine": machine,
        "plan": plan,
        "results": {
            subject: {
                name: {
                    "events": len(case.latencies_ms),
                    "latency_ms": case.percentiles_ms,
                    "batches": case.batches,
                    "parts_ms": case.parts_ms,
                    "nodes_records_per_second": round(case.heartbeats_per_second, 1),
                    "memory_bytes": case.memory_bytes,
                    "cores": round(case.cores, 2),
                    "load_average": round(case.load, 1),
                }
                for name, case in measured.cases.items()
            }
            for subject, measured in results.items()
        },
        "driver_bytes_by_minute": {
            subject: measured.driver_bytes for subject, measured in results.items()
        },
        "published_ms": PUBLISHED,
        "target_ms": TARGET,
    }


def show(console: Console, machine: dict[str, str], results: Results) -> None:
    """Print the tables."""
    show_machine(console, machine)
    for table in (_latencies(results), _parts(results), _memory(results), _driver(results)):
        if table.row_count:
            show_table(console, table)


def show_machine(console: Console, machine: dict[str, str]) -> None:
    """Print what it was measured on."""
    about = Table(title="Machine", show_header=False)
    for name, value in machine.items():
        about.add_row(name, value)
    show_table(console, about)


def show_table(console: Console, table: Table) -> None:
    """Print a table with its title on the left and a line below."""
    table.title_justify = "left"
    console.print(table)
    console.print()


def _latencies(results: Results) -> Table:
    table = Table(title="Event appended -> answer readable (read_committed), ms")
    for heading in ("", *COLUMNS, "events", "records/s beside"):
        table.add_column(heading, justify="left" if heading == "" else "right")
    for name in _case_names(results):
        for subject, measured in results.items():
            if name in measured.cases:
                case = measured.cases[name]
                figures = (f"{case.percentiles_ms[column]:.0f}" for column in COLUMNS)
                beside = f"{case.heartbeats_per_second:.0f}"
                events = str(len(case.latencies_ms))
                table.add_row(f"{subject} {name}", *figures, events, beside)
        found = [results[each].cases for each in ("placer", "floor") if each in results]
        if len(found) > 1 and all(name in cases for cases in found):
            ours, floor = (cases[name].percentiles_ms for cases in found)
            ratios = (f"{ours[column] / floor[column]:.2f}" for column in COLUMNS)
            table.add_row(f"[bold]placer / floor {name}[/bold]", *ratios, end_section=True)
    table.add_row(PUBLISHED_NAME, *_known(PUBLISHED))
    table.add_row("target, alone", *_known(TARGET))
    return table


def _known(figures: dict[str, float]) -> list[str]:
    return [f"{figures[column]:.0f}" if column in figures else "" for column in COLUMNS]


def _parts(results: Results) -> Table:
    table = Table(title="Where a batch with a commit spends its time, ms (medians)")
    cases = _columns(table, results)
    parts = [_with_rest(case.parts_ms) for case in cases]
    for part, label in PARTS.items():
        table.add_row(label, *(f"{each[part]:.1f}" if part in each else "" for each in parts))
    table.add_row("batches", *(str(case.batches) for case in cases))
    return table


def _with_rest(parts: dict[str, float]) -> dict[str, float]:
    """The parts with what is not measured by itself: planning is applying less the commit."""
    known = dict(parts)
    if "apply" in known:
        known["plan"] = known["apply"] - known["commit"]
    ours = known.get("apply", known["commit"])
    known["rest"] = known["addBatch"] - known["toArrow"] - ours
    return known


def _memory(results: Results) -> Table:
    table = Table(title="Memory: resident set at the end of each case, MB")
    cases = _columns(table, results)
    roles = dict.fromkeys(role for case in cases for role in case.memory_bytes)
    for role in roles:
        sizes = (case.memory_bytes.get(role) for case in cases)
        table.add_row(role, *(f"{size / 1e6:.0f}" if size else "" for size in sizes))
    return table


def _driver(results: Results) -> Table:
    table = Table(title="Driver: resident set, MB")
    for heading in ("minutes", *results):
        table.add_column(heading, justify="right")
    for rows in zip_longest(*(measured.driver_bytes for measured in results.values())):
        minutes = next(row[0] for row in rows if row)
        sizes = (f"{row[1] / 1e6:.1f}" if row else "" for row in rows)
        table.add_row(f"{minutes:.1f}", *sizes)
    return table


def _columns(table: Table, results: Results) -> list[Case]:
    table.add_column("")
    cases = []
    for subject, measured in results.items():
        for name, case in measured.cases.items():
            table.add_column(f"{subject}\n{name}", justify="right")
            cases.append(case)
    return cases


def _case_names(results: Results) -> list[str]:
    return list(dict.fromkeys(name for measured in results.values() for name in measured.cases))
