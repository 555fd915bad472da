"""`placer check FILE`: judge the assignments of a cluster file by the rules of their policies."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.answers import File, answer_documents
from streaming.cli.options import FailOn, FailOnOption, Output, OutputOption, PluginOption

if TYPE_CHECKING:
    from streaming.offline_check import Checked

_STYLES = {
    "healthy": "green",
    "rebalancing": "cyan",
    "degraded": "yellow",
    "under_replicated": "yellow",
    "at_risk": "red",
    "unavailable": "bold red",
}
_CLASS_STYLES = {"fixable": "yellow", "deferred": "cyan", "unfixable": "red"}
# A person looks at the first rows; programs take --output json.
_ROWS_SHOWN_MAX = 40


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "check",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer check cluster.yaml\n\n"
        "  placer check cluster.yaml --lose /eu/az1 --lose power=b    "
        "[dim]# what would be below quorum[/dim]\n\n"
        "  placer check cluster.yaml --fail 1%    [dim]# probability that data is lost[/dim]\n\n"
        "  placer check cluster.yaml --report --output json | jq .report\n\n"
        "Exit code 1: a violation was found, or a stream is refused; 2: a document is malformed.",
    )(check)


def check(
    file: File,
    lose: Annotated[
        list[str] | None,
        typer.Option(
            "--lose",
            metavar="DOMAIN|TAG",
            help="Judge as if this domain (/eu/az1), tag (key=value) or node were dead; "
            "repeatable.",
            show_default=False,
        ),
    ] = None,
    fail: Annotated[
        str | None,
        typer.Option(
            "--fail",
            metavar="PERCENT|N",
            help="Add the probability that data is lost when so many nodes fail at once: 1% "
            "(rounded down) or a number.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        bool,
        typer.Option("--report", help="Add replicas by node, skew by stream and range, locations."),
    ] = False,
    output: OutputOption = Output.TEXT,
    fail_on: FailOnOption = None,
    _plugin: PluginOption = None,
) -> None:
    """Say what breaks the rules, what can be mended, how healthy every stream is."""
    from placement.risk import failures
    from streaming.offline_check import Asked, Checked, NothingThere, checked

    if fail is not None and failures(fail, 1) is None:
        raise typer.BadParameter(
            f"'{fail}' is neither a number nor a percentage", param_hint="--fail"
        )

    def found(answer: "Checked") -> bool:
        if fail_on is FailOn.NEVER:
            return False
        wrong = answer.fixable if fail_on is FailOn.FIXABLE else answer.diagnosis.violations
        return bool(wrong or answer.refused)

    asked = Asked(tuple(lose or ()), fail, report)
    try:
        answer_documents(
            file, output, lambda each: checked(each, asked), Checked.body, _show, found
        )
    except NothingThere as error:
        raise typer.BadParameter(str(error), param_hint="--lose") from error


def _show(console: Any, answer: "Checked") -> None:
    from rich.text import Text

    from streaming.cli.topology_text import topology_tree

    cluster, body = answer.document.cluster, answer.body()
    console.print(topology_tree(cluster.nodes, answer.loads, cluster.levels))
    console.print()
    for name, health in body["health"]["streams"].items():
        console.print(Text.assemble((f"{name} ", "bold"), (str(health), _STYLES[health])))
    for decision in body.get("decisions", ()):
        name = decision["stream"] or "(a stream without a name)"
        said = decision["reasons"][0]["message"]
        console.print(Text.assemble((f"{name} ", "bold"), ("rejected", "red"), f" {said}"))
    _show_violations(console, body["violations"])
    _show_critical(console, body["health"])
    _show_lost(console, body.get("lost"))
    _show_risk(console, body.get("risk"))
    _show_report(console, body.get("report"))


def _show_violations(console: Any, violations: list[dict[str, Any]]) -> None:
    from rich.text import Text

    if not violations:
        console.print("no violations", style="green")
        return
    rows = []
    for each in violations:
        name = each["stream"] or "-"
        shard = name if each["shard"] is None else f"{name}/{each['shard']}"
        count = f"{each['count']} ({each['limit']})"
        kind = Text(each["class"], _CLASS_STYLES[each["class"]])
        why = each["reason"]["message"]
        rows.append((shard, each["rule"], each["domain"] or "-", count, kind, why))
    _table(console, ("shard", "rule", "domain", "count (limit)", "class", "why"), rows)


def _show_critical(console: Any, health: dict[str, Any]) -> None:
    rows = [
        (each["level"], each["domain"], str(each["shards"]), " ".join(each["streams"]))
        for each in health["critical"]
    ]
    if rows:
        console.print("\nMust not be lost:", style="bold")
        _table(console, ("level", "domain", "shards", "streams"), rows)
    for each in health["under_diversified"]:
        console.print(
            f"{each['stream']}: {len(each['shards'])} shards stand in fewer domains of level "
            f"{each['level']} than they could ({each['domains']} of {each['possible']})"
        )


def _show_lost(console: Any, lost: dict[str, Any] | None) -> None:
    if lost is None:
        return
    said = f"Without {', '.join(lost['domains'])} ({len(lost['nodes'])} nodes)"
    if not lost["below_quorum"]:
        console.print(f"\n{said} every shard keeps its quorum.", style="green")
        return
    console.print(f"\n{said} these are below quorum:", style="bold")
    rows = [
        (f"{each['stream']}/{each['shard']}", str(each["live"]), str(each["quorum"]))
        for each in lost["below_quorum"]
    ]
    _table(console, ("shard", "live", "quorum"), rows)


def _show_risk(console: Any, risk: dict[str, Any] | None) -> None:
    if risk is None:
        return
    width = risk["scatter_width"]
    console.print(
        f"\nIf {risk['failed']} nodes failed at once, data would be lost with probability "
        f"{100 * risk['loss_probability']:.3g} %: {risk['copysets']} copysets, scatter width "
        f"{width['min']} to {width['max']}, mean {width['mean']:.1f}."
    )


def _show_report(console: Any, report: dict[str, Any] | None) -> None:
    if report is None:
        return
    console.print()
    rows = [
        (each["stream"], each["range"] or "-", str(each["skew"]), str(each["replicas"]))
        for each in report["streams"]
    ]
    _table(console, ("stream", "range", "skew", "replicas"), rows)
    places = [
        (
            each["location"],
            f"{each['load']:.6f}",
            str(each["min"]),
            str(each["max"]),
            f"{each['average']:.6f}",
            str(each["violations"]),
        )
        for each in report["locations"]
    ]
    console.print()
    _table(console, ("location", "load", "min", "max", "average", "violations"), places)


def _table(console: Any, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for column in columns:
        table.add_column(column)
    for row in rows[:_ROWS_SHOWN_MAX]:
        table.add_row(*row)
    width = console.width
    # A person wants whole sentences, a pipe wants lines.
    console.width = width if console.is_terminal else 1000
    console.print(table)
    console.width = width
    if len(rows) > _ROWS_SHOWN_MAX:
        console.print(f"  … and {len(rows) - _ROWS_SHOWN_MAX} more rows", style="dim")
