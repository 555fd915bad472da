"""Shows the answer of `placer place` to people: the fleet and its streams, or a summary."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from placement.wording import format_count
from streaming.cli.render.console import Paragraph, Table
from streaming.cli.render.utilisation import usage_of

if TYPE_CHECKING:
    from streaming.offline import Document, PlaceResult

STYLES = {
    "placed": "green",
    "degraded": "yellow",
    "partial": "yellow",
    "waiting": "magenta",
    "rejected": "red",
}
# A person looks at the first shards; programs take --output json.
_SHARDS_SHOWN_MAX = 40
# Of all streams together: then only those are shown that are not placed as they asked.
_ROWS_SHOWN_MAX = 200
# In a summary the tree is folded to so many lines, and so many streams lack something by name.
_TREE_LINES_MAX = 40
_LACKING_SHOWN_MAX = 20


def show_placement(console: Any, answer: "PlaceResult", streams: frozenset[str]) -> None:
    """The fleet with its loads, and every stream; of some only, where they are named."""
    from streaming.cli.render.topology import topology_tree

    cluster = answer.cluster
    if not streams:
        used = usage_of([answer.utilisation() or {}])
        console.print(topology_tree(cluster.nodes, loads(answer), cluster.levels, used))
    left, hidden, first = _ROWS_SHOWN_MAX, 0, bool(streams)
    for index, decision in enumerate(answer.decisions):
        if streams and decision.stream not in streams:
            continue
        body = answer.answer(decision)
        if left <= 0 and body["outcome"] == "placed" and not streams:
            hidden += 1
            continue
        if not first:
            console.print()
        first = False
        left -= show_decision(console, body, line_of(answer.document, index, body))
    if hidden:
        more = format_count(hidden, "more placed stream")
        console.print(
            f"\n… and {more}: --summary, --stream NAME, --output json, --output cluster",
            style="dim",
        )


def show_summary(console: Any, answer: "PlaceResult") -> None:
    """Totals, the fleet folded to its levels, and the streams that lack something."""
    from streaming.cli.render.topology import TopologyTree

    cluster, totals = answer.cluster, summary(answer)
    outcomes = [f"{count} {outcome}" for outcome, count in totals["outcomes"].items()]
    streams = f"{format_count(totals['streams'], 'stream')}: {', '.join(outcomes) or 'none'}"
    console.print(
        f"{streams}; {format_count(totals['replicas'], 'replica')} of {totals['shards']} shards"
    )
    console.print(
        f"{format_count(totals['nodes'], 'node')}: {totals['replicas_min']} to "
        f"{totals['replicas_max']} replicas on those that are up, "
        f"{totals['leaders_min']} to {totals['leaders_max']} leaders"
    )
    hint = "folded; every node: placer place without --summary"
    console.print(
        TopologyTree(
            cluster.nodes,
            (loads(answer),),
            cluster.levels,
            usage=usage_of([answer.utilisation() or {}]),
            lines_max=_TREE_LINES_MAX,
            hint=hint,
        )
    )
    lacking = [each for each in totals["decisions"] if each["outcome"] != "placed"]
    for each in lacking[:_LACKING_SHOWN_MAX]:
        show_decision(console, each | {"replicas": []}, None)
    if len(lacking) > _LACKING_SHOWN_MAX:
        left = len(lacking) - _LACKING_SHOWN_MAX
        console.print(f"… and {format_count(left, 'more stream', 'more streams')}", style="dim")


def summary(answer: "PlaceResult") -> dict[str, Any]:
    """Totals over all streams, and each decision without its replicas."""
    topology, table = answer.state.topology, answer.state.table
    loads = table.load(topology.size)[topology.eligible].tolist() or [0]
    led = table.leaders(topology.size)[topology.eligible].tolist() or [0]
    decisions = [answer.answer(decision) for decision in answer.decisions]
    lists = [nodes for each in decisions for nodes in each["replicas"]]
    used = answer.utilisation()
    body = {
        "streams": len(decisions),
        "outcomes": dict(Counter(str(each["outcome"]) for each in decisions)),
        "shards": sum(bool(nodes) for nodes in lists),
        "replicas": sum(map(len, lists)),
        "nodes": len(topology.index),
        "replicas_min": min(loads),
        "replicas_max": max(loads),
        "leaders_min": min(led),
        "leaders_max": max(led),
        "decisions": [{k: v for k, v in each.items() if k != "replicas"} for each in decisions],
    }
    return body if used is None else body | {"utilisation": used}


def line_of(document: "Document", index: int, decision: dict[str, Any]) -> int | None:
    """Where a stream stands in the file, if it was refused."""
    return document.line(f"streams[{index}]") if decision["outcome"] == "rejected" else None


def loads(answer: "PlaceResult") -> dict[str, int]:
    """Replicas on each node."""
    ids, load = answer.state.topology.ids, answer.state.table.load(answer.state.topology.size)
    return {node_id: int(load[node]) for node, node_id in enumerate(ids)}


def heading(decision: dict[str, Any], line: int | None) -> Any:
    """A stream's name and outcome; where it stands in the file, if it was refused."""
    from rich.text import Text

    outcome = decision["outcome"]
    where = f" (line {line})" if line else ""
    name = decision["stream"] or "(a stream without a name)"
    return Text.assemble((f"{name} ", "bold"), (outcome, STYLES[outcome]), (where, "dim"))


def show_decision(console: Any, decision: dict[str, Any], line: int | None) -> int:
    """A decision with its reasons and replicas; how many rows these took."""
    from rich.text import Text

    console.print(heading(decision, line))
    for kind in ("reasons", "warnings"):
        for reason in decision[kind]:
            code = (reason["code"], STYLES[decision["outcome"]])
            console.print(Paragraph(Text.assemble("  ", code, " ", reason["message"])))
    if not decision["replicas"]:
        return 0
    rows = _rows(decision["replicas"])
    shown = [
        (shards, nodes[0] if nodes else "-", " ".join(nodes[1:]))
        for shards, nodes in rows[:_SHARDS_SHOWN_MAX]
    ]
    columns = ("shards", "leader", "followers")
    console.print(Table(columns, shown, right=("shards",), first_left_out=()))
    if len(rows) > _SHARDS_SHOWN_MAX:
        console.print(f"  … and {len(rows) - _SHARDS_SHOWN_MAX} more rows", style="dim")
    return len(shown)


def show_advice(console: Any, messages: Sequence[str]) -> None:
    """What would let a stream be placed, a line each."""
    if messages:
        console.print("  What would let it be placed (each has been tried):")
    for message in messages:
        console.print(Paragraph(f"    - {message}"))


def _rows(replicas: list[list[str]]) -> list[tuple[str, list[str]]]:
    """Shards with their nodes; neighbours with equal lists share a row."""
    rows: list[tuple[str, list[str]]] = []
    begin = 0
    for shard, nodes in enumerate(replicas):
        if shard + 1 == len(replicas) or replicas[shard + 1] != nodes:
            rows.append((str(shard) if shard == begin else f"{begin}-{shard}", nodes))
            begin = shard + 1
    return rows
