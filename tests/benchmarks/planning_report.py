"""The report of the planning part: what a death costs, and how few replicas move beside others."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks.planning import DEAD_REPLICAS, Amount, Death, Moved
from tests.benchmarks.report import show_table

OURS, KAFKA, CEPH = "spread", "Kafka, anew", "CRUSH, upmap"
# Cruise Control's published time for 2.8 million replicas in its fast mode.
CRUISE_CONTROL_SECONDS = 18.2 * 60
TARGETS = {"death_seconds": 0.020, "large_seconds": 5.0, "memory_bytes": 4 << 30}


@dataclass
class Results:
    """All that was measured; a text instead of a change says why a peer was left out."""

    deaths: list[Death] = field(default_factory=list)
    large: tuple[Moved, float] | None = None
    changes: dict[str, list[Moved | str]] = field(default_factory=dict)


def as_json(amount: Amount, found: Results) -> dict[str, Any]:
    """Everything that was measured."""
    changed = {
        name: [{"skipped": each} if isinstance(each, str) else asdict(each) for each in moved]
        for name, moved in found.changes.items()
    }
    large = None
    if found.large is not None:
        large = asdict(found.large[0]) | {"diagnosing_seconds": found.large[1]}
    return {
        "amount": asdict(amount),
        "targets": TARGETS,
        "published": {"cruise_control_seconds": CRUISE_CONTROL_SECONDS},
        "deaths": [asdict(each) for each in found.deaths],
        "large": large,
        "changes": changed,
    }


def show(console: Console, amount: Amount, found: Results) -> None:
    """Print the tables, and what was left out."""
    show_table(console, _deaths(amount, found.deaths))
    if found.large is not None:
        show_table(console, _large(*found.large))
    show_table(console, _changes(found.changes))
    for name, moved in found.changes.items():
        for why in (each for each in moved if isinstance(each, str)):
            console.print(f"skipped - {name}: {why}")


def _deaths(amount: Amount, deaths: list[Death]) -> Table:
    held = DEAD_REPLICAS // amount.divisor
    table = Table(title=f"A node with {held:,} replicas dies (CPU time of a batch, medians)")
    table.add_column("")
    for death in deaths:
        heading = f"{death.nodes:,} nodes,\n{death.replicas:,} replicas"
        table.add_column(heading, justify="right")
    for name, cells in _death_rows(deaths):
        table.add_row(name, *cells)
    return table


def _death_rows(deaths: list[Death]) -> Iterator[tuple[str, Iterator[str]]]:
    limited, unlimited = (f"{each:,}" for each in deaths[0].moves)
    yield f"limits as shipped, {limited} moves", (_ms(median(d.limited)) for d in deaths)
    yield "  its records alone, as tuples", (_ms(d.records[0]) for d in deaths)
    yield "  a batch after it, nothing new", (_ms(d.idle) for d in deaths)
    yield "  a batch that completes ten moves", (_ms(d.acks) for d in deaths)
    yield f"no limits, {unlimited} moves", (_ms(median(d.unlimited)) for d in deaths)
    yield "  their records alone", (_ms(d.records[1]) for d in deaths)
    yield "  the same, shard by shard", (_ms(d.one_by_one) for d in deaths)
    yield (
        "  times as long",
        (f"{d.one_by_one / median(d.unlimited):.1f}" for d in deaths),
    )
    yield "resident set of the process", (f"{d.memory_bytes / 2**20:,.0f} MiB" for d in deaths)


def _large(moved: Moved, diagnosing: float) -> Table:
    title = f"Diagnose and plan {moved.replicas:,} replicas on {moved.nodes} nodes, one dead"
    table = Table(title=f"{title} (CPU time)")
    for heading in ("", "seconds", "moves"):
        table.add_column(heading, justify="left" if heading == "" else "right")
    table.add_row("diagnose", f"{diagnosing:.2f}", "")
    table.add_row("plan", f"{moved.seconds - diagnosing:.2f}", f"{moved.moves:,}")
    table.add_row("both", f"{moved.seconds:.2f}", "")
    published = f"{CRUISE_CONTROL_SECONDS:,.0f}"
    table.add_row("Cruise Control's published figure, 2.8 million replicas", published, "")
    return table


def _changes(changes: dict[str, list[Moved | str]]) -> Table:
    title = (
        "Replicas moved when the fleet changes (CPU time of the plan). Kafka's placer (JVM) places"
    )
    title += (
        " each topic anew, as --generate does; osdmaptool --upmap balances what CRUSH has moved."
    )
    table = Table(title=title)
    table.add_column("")
    table.add_column("")
    for heading in ("nodes", "replicas", "moved", "fewest", "/ fewest", "time"):
        table.add_column(heading, justify="right")
    for name, moved in changes.items():
        for each in moved:
            if isinstance(each, Moved):
                table.add_row(
                    name,
                    each.what,
                    f"{each.nodes:,}",
                    f"{each.replicas:,}",
                    f"{each.moves:,}",
                    f"{each.lower_bound:,}",
                    f"{each.moves / each.lower_bound:.2f}",
                    _ms(each.seconds),
                )
        table.add_section()
    return table


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms" if seconds < 10 else f"{seconds:,.0f} s"
