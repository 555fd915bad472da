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
        "write_seconds": round(_written(found), 3),
        "state_mib": found.state_bytes // _MIB,
        "peak_mib": found.peak_bytes // _MIB,
    }


def show(console: Console, found: Recovered) -> None:
    """Print the table."""
    table = Table(title=f"Recovery: {found.shards:,} shards, three replicas each")
    for name in ("what", "seconds", "of the client alone"):
        table.add_column(name, justify="left" if name == "what" else "right")
    client = found.seconds["client: write"], found.seconds["client: read and parse"]
    rows = (
        ("write them in transactions", _written(found), client[0]),
        ("rebuild from the topics, digest proved", found.seconds["rebuild"], client[1]),
    )
    for what, spent, alone in rows:
        table.add_row(what, f"{spent:.1f}", f"{spent / alone:.1f} x {alone:.1f}")
    table.add_row("decide (place, diff, digest)", f"{found.seconds['decide']:.1f}", "")
    table.add_row("memory of the rebuilt state", f"{found.state_bytes / _MIB:.0f} MiB", "")
    table.add_row("the same at its peak", f"{found.peak_bytes / _MIB:.0f} MiB", "")
    show_table(console, table)


def _written(found: Recovered) -> float:
    return found.seconds["encode"] + found.seconds["commit"]
