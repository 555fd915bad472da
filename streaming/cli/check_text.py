"""What `placer check` shows to people: the fleet, the health of streams, what breaks rules."""

from typing import TYPE_CHECKING, Any

from streaming.cli.report_text import print_table, show_report

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


def show_check(console: Any, answer: "Checked") -> None:
    """Print what is wrong with a cluster."""
    from rich.text import Text

    from streaming.cli.topology_text import topology_tree
    from streaming.offline_report import checked_body

    cluster, body = answer.document.cluster, checked_body(answer)
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
    if "report" in body:
        show_report(console, body["report"])


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
    print_table(console, ("shard", "rule", "domain", "count (limit)", "class", "why"), rows)


def _show_critical(console: Any, health: dict[str, Any]) -> None:
    rows = [
        (each["level"], each["domain"], str(each["shards"]), " ".join(each["streams"]))
        for each in health["critical"]
    ]
    if rows:
        console.print("\nMust not be lost:", style="bold")
        print_table(console, ("level", "domain", "shards", "streams"), rows)
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
    print_table(console, ("shard", "live", "quorum"), rows)


def _show_risk(console: Any, risk: dict[str, Any] | None) -> None:
    if risk is None:
        return
    width = risk["scatter_width"]
    console.print(
        f"\nIf {risk['failed']} nodes failed at once, data would be lost with probability "
        f"{100 * risk['loss_probability']:.3g} %: {risk['copysets']} copysets, scatter width "
        f"{width['min']} to {width['max']}, mean {width['mean']:.1f}."
    )
