"""The report of the recovery part: seconds beside those of the client alone, and memory."""

from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks.recovering import Recovered
from tests.benchmarks.report import show_table

_MIB = 2**20


def as_json(found: Recovered) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        "shards": found.shards,
        "seconds": {what: round(spent, 3) for what, spent in found.seconds.items()},
        "cpu_seconds": {what: round(spent, 3) for what, spent in found.cpu_seconds.items()},
        "state_mib": found.state_bytes // _MIB,
        "peak_mib": found.peak_bytes // _MIB,
    }


def show(console: Console, found: Recovered) -> None:
    """Print the table."""
    table = Table(title=f"Recovery: {found.shards:,} shards, three replicas each")
    for name in ("what", "seconds", "CPU seconds", "of the client alone"):
        table.add_column(name, justify="left" if name == "what" else "right")
    wall, cpu = found.seconds, found.cpu_seconds
    write, rebuild = "write them in transactions", "rebuild from the topics, digest proved"
    _add(table, write, wall["write"], cpu["write"], wall["client: write"])
    read = wall["client: read and parse"]
    _add(table, rebuild, wall["rebuild"], cpu["rebuild"], read)
    _add(table, "decide (place, diff, digest)", wall["decide"], cpu["decide"])
    table.add_row("memory of the rebuilt state", f"{found.state_bytes / _MIB:.0f} MiB", "", "")
    table.add_row("the same at its peak", f"{found.peak_bytes / _MIB:.0f} MiB", "", "")
    show_table(console, table)


def _add(table: Table, what: str, wall: float, cpu: float, alone: float | None = None) -> None:
    ratio = "" if alone is None else f"{wall / alone:.1f} x {alone:.1f}"
    table.add_row(what, f"{wall:.1f}", f"{cpu:.1f}", ratio)
