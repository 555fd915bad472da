"""The report of `placer check --report` for people, in the order in which Kudu prints it."""

from typing import Any

from placement.wording import format_count
from streaming.cli.render.console import Table

# A person looks at the first rows; programs take --output json.
_ROWS_SHOWN_MAX = 40


def show_report(console: Any, report: dict[str, Any]) -> None:
    """Print the report."""
    console.print("\nNodes", style="bold")
    names = ("node", "location", "status", "replicas", "leaders")
    rows = [tuple(str(each[name] or "-") for name in names[:3]) for each in report["servers"]]
    counts = [(str(each["replicas"]), str(each["leaders"])) for each in report["servers"]]
    shares = [each.get("utilisation", {}) for each in report["servers"]]
    used = [
        tuple("-" if share is None else f"{share:.1%}" for share in each.values())
        for each in shares
    ]
    cells = zip(rows, counts, used, strict=True)
    rows = [(*row, *count, *share) for row, count, share in cells]
    print_table(console, (*names, *(shares[0] if shares else ())), rows)
    console.print("\nStreams over all nodes", style="bold")
    rows = [
        (each["stream"], each["range"] or "-", str(each["skew"]), str(each["replicas"]))
        for each in report["streams"]
    ]
    replicas = sum(each["replicas"] for each in report["streams"])
    rows.append(("all", "-", str(report["total"]["skew"]), str(replicas)))
    print_table(console, ("stream", "range", "skew", "replicas"), rows)
    _show_locations(console, report)
    _show_violations(console, report["violations"])
    _show_plan(console, report["plan"])


def _show_locations(console: Any, report: dict[str, Any]) -> None:
    console.print("\nLocations", style="bold")
    rows = [
        (
            each["location"],
            str(skew["nodes"]),
            f"{each['load']:.6f}",
            str(each["min"]),
            str(each["max"]),
            *(_figure(skew[name]) for name in ("min", "max", "average")),
            str(each["violations"]),
        )
        for each, skew in zip(report["locations"], report["skews"], strict=True)
    ]
    columns = ("location", "nodes", "load", "min", "max")
    skews = ("skew min", "skew max", "skew average", "violations")
    print_table(console, (*columns, *skews), rows)


def _figure(value: float | None) -> str:
    if value is None:
        return "N/A"
    return str(value) if isinstance(value, int) else f"{value:.6f}"


def _show_violations(console: Any, violations: dict[str, Any]) -> None:
    console.print("\nPlacement policy violations", style="bold")
    if not violations["domains"]:
        console.print("none", style="green")
        return
    rows = [
        (each["domain"], str(each["streams"]), str(each["shards"]))
        for each in violations["domains"]
    ]
    columns = ("domain", "non-complying streams", "non-complying shards")
    print_table(console, columns, rows)
    console.print()
    shards = [
        (
            each["domain"],
            f"{each['stream']}/{each['shard']}",
            str(each["replication_factor"]),
            str(each["replicas"]),
            each["rule"],
            str(each["class"]),
        )
        for each in violations["details"]
    ]
    names = ("domain", "shard", "replication factor", "replicas there", "rule", "class")
    print_table(console, names, shards)


def _show_plan(console: Any, plan: dict[str, Any]) -> None:
    console.print("\nPlan", style="bold")
    if not plan["waves"]:
        console.print("nothing to move", style="green")
    for name in ("repair", "rebalance"):
        figures = plan[name]
        if figures["moves"]:
            moves = format_count(figures["moves"], "move")
            console.print(f"{name}: {moves}, {figures['copies']} of them copies")
    if plan["waves"]:
        console.print(f"at least {plan['lower_bound']} copies are needed", style="dim")
    if plan["unfixable"]:
        console.print(f"{plan['unfixable']} violations that no plan repairs", style="red")


def print_table(console: Any, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """Print rows, as many as a person looks at."""
    console.print(Table(columns, rows[:_ROWS_SHOWN_MAX]))
    if len(rows) > _ROWS_SHOWN_MAX:
        console.print(f"  … and {len(rows) - _ROWS_SHOWN_MAX} more rows", style="dim")
