"""Shows the answer of `placer check` to people: totals, broken rules, the worst first, the rest.

Lists are bounded; `--output json` has all of them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from placement.model import Code, natural_key
from placement.wording import format_amount, format_count
from streaming.cli.render.console import Paragraph, Table, shorten
from streaming.cli.render.report import print_table, show_report
from streaming.cli.render.utilisation import usage_of

if TYPE_CHECKING:
    from placement.diagnosis import Copies
    from streaming.offline import CheckResult

HEALTH_STYLES = {
    "healthy": "green",
    "rebalancing": "cyan",
    "degraded": "yellow",
    "under_replicated": "yellow",
    "at_risk": "red",
    "unavailable": "bold red",
}
_CLASS_STYLES = {"fixable": "yellow", "deferred": "cyan", "unfixable": "red"}
# Nothing is wrong with these.
_FINE = ("healthy", "rebalancing")
# The first of the streams, and of the rows of one stream: the worst is seen, and so are the others.
_STREAMS_SHOWN_MAX = 20
_ROWS_OF_STREAM_MAX = 5
_ROWS_SHOWN_MAX = 40
# Of the shards that break a rule alike, and of the streams that a domain is critical for.
_SHARDS_NAMED_MAX = 6
_STREAMS_NAMED_MAX = 4
_CRITICAL_SHOWN_MAX = 10
# A fleet of which more is to be seen than fits a screen is folded to its levels and what is wrong.
_TREE_LINES_MAX = 40


def show_check(console: Any, answer: "CheckResult") -> None:
    """Print what is wrong with a cluster."""
    from rich.text import Text

    from schemas.cluster import ClusterNodeStatus
    from streaming.cli.render.topology import TopologyTree
    from streaming.offline import check_body

    cluster, body = answer.document.cluster, check_body(answer)
    _show_totals(console, body)
    _show_lost(console, body.get("lost"))
    refused = body.get("decisions", ())
    for decision in refused[:_STREAMS_SHOWN_MAX]:
        name = decision["stream"] or "(a stream without a name)"
        said = decision["reasons"][0]["message"]
        text = Text.assemble((f"{name} ", "bold"), ("rejected", "red"), f" {said}")
        console.print(Paragraph(text))
    _show_rest(console, len(refused) - _STREAMS_SHOWN_MAX, "rejected stream")
    _show_streams(console, body)
    _show_violations(console, body)
    _show_critical(console, body["health"]["critical"], answer.diagnosis.copies)
    _show_narrow(console, body["health"]["under_diversified"])
    _show_risk(console, body.get("risk"))
    if "report" in body:
        show_report(console, body["report"])
    console.print()
    lost = {"status": ClusterNodeStatus.DEAD}
    nodes = [n.model_copy(update=lost) if n.id in answer.lost else n for n in cluster.nodes]
    hint = "folded; every node: --report --output json"
    loads, used = (answer.loads,), usage_of([body.get("utilisation", {})])
    levels, lines_max = cluster.levels, _TREE_LINES_MAX
    console.print(TopologyTree(nodes, loads, levels, usage=used, lines_max=lines_max, hint=hint))


def _show_totals(console: Any, body: Mapping[str, Any]) -> None:
    """Print the totals of all violations on one line."""
    summary = body["summary"]
    streams, nodes = summary["streams"], summary["nodes"]
    total = sum(streams.values())
    sick = sum(count for word, count in streams.items() if word not in _FINE)
    parts = [_violations(summary["violations"])]
    if not total:
        parts.append("no streams")
    elif sick:
        parts.append(f"{sick} of {format_count(total, 'stream')} not healthy")
    else:
        fine = [f"{streams[word]} {word}" for word in _FINE if word in streams]
        parts.append(f"{format_count(total, 'stream')}: {', '.join(fine)}")
    if summary["refused"]:
        parts.append(f"{summary['refused']} rejected")
    away = [f"{count} {word.replace('_', ' ')}" for word, count in nodes.items() if word != "up"]
    everything = format_count(sum(nodes.values()), "node")
    parts.append(f"{', '.join(away)} of {everything}" if away else f"{everything} up")
    wrong = sick or summary["refused"] or summary["violations"]["total"]
    console.print(Paragraph("; ".join(parts)), style="bold" if wrong else "green")


def _violations(counts: Mapping[str, int]) -> str:
    if not counts["total"]:
        return "no violations"
    classes = (f"{count} {word}" for word, count in counts.items() if word != "total")
    return f"{format_count(counts['total'], 'violation')}: {', '.join(classes)}"


def _show_streams(console: Any, body: Mapping[str, Any]) -> None:
    """The streams that are not healthy, the worst first; how many are."""
    from rich.text import Text

    health, shards = body["health"]["streams"], body["health"]["shards"]
    classes = Counter((each["stream"], each["class"]) for each in body["violations"])
    rows = []
    for name in _worst_first(health):
        if health[name] in _FINE:
            continue
        sick = sum(word not in _FINE for word in shards[name])
        counts = ((classes[name, word], word) for word in _CLASS_STYLES)
        said = ", ".join(f"{count} {word}" for count, word in counts if count)
        of = f"{sick} of {len(shards[name])}"
        rows.append((name, Text(health[name], HEALTH_STYLES[health[name]]), of, said or "-"))
    if rows:
        shown = rows[:_STREAMS_SHOWN_MAX]
        console.print(Table(("stream", "health", "shards", "violations"), shown))
        _show_rest(console, len(rows) - len(shown), "stream")
        for word in _FINE:
            count = sum(each == word for each in health.values())
            if count:
                console.print(
                    Text.assemble(f"{format_count(count, 'stream')} ", (word, HEALTH_STYLES[word]))
                )


def _worst_first(health: Mapping[str, str]) -> list[str]:
    ladder = list(HEALTH_STYLES)
    return sorted(health, key=lambda name: (-ladder.index(health[name]), natural_key(name)))


def _show_violations(console: Any, body: Mapping[str, Any]) -> None:
    """Print the violations by stream, the worst stream first. Shards that break one rule alike
    share a row."""
    violations, order = body["violations"], _worst_first(body["health"]["streams"])
    if not violations:
        return
    place = {name: number for number, name in enumerate(order)}
    ordered = sorted(violations, key=lambda each: place.get(each["stream"] or "", -1))
    rows: list[tuple[Any, ...]] = []
    left = len(violations)
    for name, found in groupby(ordered, lambda each: each["stream"]):
        if len(rows) >= _ROWS_SHOWN_MAX:
            break
        alike = _group_alike(found)
        left -= sum(map(len, alike))
        rows += [_row(name or "-", each) for each in alike[:_ROWS_OF_STREAM_MAX]]
        others = sum(map(len, alike[_ROWS_OF_STREAM_MAX:]))
        if others:
            rows.append(
                (name or "-", "", "", "", "", f"… and {format_count(others, 'more violation')}")
            )
    console.print()
    console.print(Table(("shard", "rule", "domain", "count (limit)", "class", "why"), rows))
    _show_rest(console, left, "violation")


def _group_alike(violations: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Violations that differ in nothing but the shard, those of required rules first."""
    alike: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for each in sorted(violations, key=lambda each: each["strength"] != "required"):
        words = (each["rule"], each["domain"], each["count"], each["limit"], each["class"])
        alike.setdefault((*words, each["reason"]["message"]), []).append(each)
    return list(alike.values())


def _row(name: str, alike: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    from rich.text import Text

    first = alike[0]
    numbers = [str(each["shard"]) for each in alike if each["shard"] is not None]
    return (
        f"{name}/{shorten(numbers, _SHARDS_NAMED_MAX, ',')}" if numbers else name,
        first["rule"],
        first["domain"] or "-",
        f"{_figure(first, 'count')} ({_figure(first, 'limit')})",
        Text(first["class"], _CLASS_STYLES[first["class"]]),
        first["reason"]["message"],
    )


def _figure(violation: Mapping[str, Any], name: str) -> str:
    """A count, or the amount of the resource that the rule names."""
    if violation["reason"]["code"] not in (Code.OVER_CAPACITY, Code.UNBALANCED):
        return str(violation[name])
    return format_amount(violation[name], violation["rule"].rpartition(" ")[2])


def _show_critical(
    console: Any, critical: Sequence[Mapping[str, Any]], copies: Sequence["Copies"]
) -> None:
    """Domains that shards cannot do without. Streams that cannot do without any of their copies are
    told once, not once for each node."""
    if not critical:
        return
    console.print(
        "\nCritical domains: the loss of one alone takes the quorum of shards", style="bold"
    )
    spare_none = {each.stream for each in copies if len(each.live) and _has_no_spare(each)}
    if spare_none:
        names = sorted(spare_none, key=natural_key)
        need = "needs" if len(names) == 1 else "need"
        text = shorten(names, _STREAMS_NAMED_MAX)
        every = f"every node with a replica of {text}, which {need} all copies for the quorum"
        console.print(Paragraph(every))
    rows = [each for each in critical if not spare_none.issuperset(each["streams"])]
    rows.sort(key=lambda each: -each["shards"])
    if rows:
        shown = [
            (
                each["level"],
                each["domain"],
                each["shards"],
                shorten(each["streams"], _STREAMS_NAMED_MAX),
            )
            for each in rows[:_CRITICAL_SHOWN_MAX]
        ]
        console.print(Table(("level", "domain", "shards", "streams"), shown, right=("shards",)))
        _show_rest(console, len(rows) - len(shown), "domain")


def _has_no_spare(copies: "Copies") -> bool:
    """Return whether the quorum of the stream takes as many copies as its shards have at most."""
    return bool(copies.nodes.shape[1] <= copies.quorum)


def _show_narrow(console: Any, narrow: Sequence[Mapping[str, Any]]) -> None:
    for each in narrow[:_CRITICAL_SHOWN_MAX]:
        count = len(each["shards"])
        stand = f"{format_count(count, 'shard')} {'stands' if count == 1 else 'stand'}"
        could = f"than they could ({each['domains']} of {each['possible']})"
        fewer = f"in fewer domains of level {each['level']} {could}"
        console.print(Paragraph(f"{each['stream']}: {stand} {fewer}"))
    _show_rest(console, len(narrow) - _CRITICAL_SHOWN_MAX, "stream and level", "streams and levels")


def _show_lost(console: Any, lost: Mapping[str, Any] | None) -> None:
    if lost is None:
        return
    said = f"Without {', '.join(lost['domains'])} ({format_count(len(lost['nodes']), 'node')})"
    below = lost["below_quorum"]
    if not below:
        console.print(f"{said} every shard keeps its quorum.\n", style="green")
        return
    streams = format_count(len({each["stream"] for each in below}), "stream")
    many = f"{format_count(len(below), 'shard')} of {streams} {'is' if len(below) == 1 else 'are'}"
    console.print(f"{said} {many} below quorum:", style="bold")
    rows = [(f"{each['stream']}/{each['shard']}", each["live"], each["quorum"]) for each in below]
    print_table(console, ("shard", "live", "quorum"), rows)
    console.print()


def _show_risk(console: Any, risk: Mapping[str, Any] | None) -> None:
    if risk is None:
        return
    width = risk["scatter_width"]
    lost = f"data would be lost with probability {100 * risk['loss_probability']:.3g} %"
    scatter = f"scatter width {width['min']} to {width['max']}, mean {width['mean']:.1f}"
    sets = f"{risk['copysets']} copysets, {scatter}."
    console.print()
    console.print(Paragraph(f"If {risk['failed']} nodes failed at once, {lost}: {sets}"))


def _show_rest(console: Any, count: int, one: str, more: str = "") -> None:
    if count > 0:
        text = f"… and {format_count(count, f'more {one}', f'more {more}' if more else '')}"
        console.print(f"{text}: --output json", style="dim")
