"""The report of the placement part: speed beside the peers', and the balance each reaches."""

from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks.placing import LEVELS, REPLICATION_FACTOR, SHARDS, Extent, Placed
from tests.benchmarks.report import show_table

# By the number of nodes, then by placer; a text says why a peer was left out.
Results = dict[int, dict[str, Placed | str]]

CRUSH, KAFKA = "CRUSH (crushtool, C)", "Kafka (StripedReplicaPlacer, JVM)"
# Ten times CRUSH.
TARGET = 10


def as_json(extent: Extent, results: Results) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        "replication_factor": REPLICATION_FACTOR,
        "shards": extent.shards,
        "repeats": extent.repeats,
        "target_ratio_to_crush": TARGET,
        "results": {
            str(nodes): {name: _as_json(placed) for name, placed in by_name.items()}
            for nodes, by_name in results.items()
        },
    }


def _as_json(placed: Placed | str) -> dict[str, Any]:
    if isinstance(placed, str):
        return {"skipped": placed}
    applied = placed.applied_per_second
    return {
        "shards_per_second": round(placed.per_second),
        "seconds": [round(spent, 6) for spent in placed.seconds],
        "first_call_more_seconds": placed.first_seconds,
        "apply_shards_per_second": None if applied is None else round(applied),
        "apply_seconds": [round(spent, 6) for spent in placed.apply_seconds],
        "balance": {
            level: {"max_by_mean": round(ratio, 4), "max_less_min": spread}
            for level, (ratio, spread) in placed.balance.items()
        },
    }


def show(console: Console, extent: Extent, results: Results) -> None:
    """Print both tables and what was left out."""
    for table in (_speed(extent, results), _balance(extent, results)):
        show_table(console, table)
    left_out = {
        f"{name}: {why}"
        for by_name in results.values()
        for name, why in by_name.items()
        if isinstance(why, str)
    }
    for line in sorted(left_out):
        console.print(f"skipped - {line}")


def _speed(extent: Extent, results: Results) -> Table:
    title = f"Shards placed a second, {REPLICATION_FACTOR} replicas each (CPU time, medians of "
    table = Table(title=f"{title}{extent.repeats} times {extent.shards:,})")
    table.add_column("nodes", justify="right")
    table.add_column("")
    for heading in ("place", "/ CRUSH", "first call", f"apply, a stream of {SHARDS:,}"):
        table.add_column(heading, justify="right")
    for nodes, by_name in results.items():
        floor = by_name.get(CRUSH)
        for name, placed in by_name.items():
            if isinstance(placed, str):
                continue
            ratio = "" if isinstance(floor, str | None) else placed.per_second / floor.per_second
            first, applied = placed.first_seconds, placed.applied_per_second
            table.add_row(
                f"{nodes:,}",
                name,
                f"{placed.per_second:,.0f}",
                f"{ratio:.2f}" if ratio else "",
                "" if first is None else f"+{first:.2f} s",
                "" if applied is None else f"{SHARDS / applied * 1e3:,.0f} ms = {applied:,.0f}/s",
            )
        table.add_section()
    return table


def _balance(extent: Extent, results: Results) -> Table:
    mean = " and ".join(
        f"{extent.shards * REPLICATION_FACTOR / nodes:g} on a node of {nodes:,}"
        for nodes in results
    )
    title = f"Replicas by domain: maximum / mean, maximum - minimum ({mean} on average)"
    table = Table(title=title)
    table.add_column("nodes", justify="right")
    table.add_column("")
    for level in (*LEVELS, "node"):
        table.add_column(level, justify="right")
    for nodes, by_name in results.items():
        for name, placed in by_name.items():
            if isinstance(placed, Placed):
                cells = (f"{r:.3f}, {s:,}" for r, s in placed.balance.values())
                table.add_row(f"{nodes:,}", name, *cells)
        table.add_section()
    return table
