"""`placer place FILE`: place the streams of a cluster file, without Kafka, Spark or Java."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placement.wording import counted
from streaming.cli.answers import File, answer_documents
from streaming.cli.console import Table
from streaming.cli.options import (
    FailOn,
    FailOnOption,
    Output,
    PluginOption,
    StrictOption,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming.offline import Document, Placed


class PlaceOutput(StrEnum):
    """Who reads the placement: people, programs, or `placer check` and `plan`."""

    TEXT = "text"
    JSON = "json"
    CLUSTER = "cluster"


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


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "place",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer place cluster.yaml\n\n"
        "  placer place cluster.yaml --output json | jq '.decisions[].outcome'\n\n"
        "  placer place cluster.yaml --output cluster | placer check -    "
        "[dim]# the file with its replicas[/dim]\n\n"
        "  cat clusters.ndjson | placer place - --output json    "
        "[dim]# one line for each document[/dim]\n\n"
        "Exit code 1: a stream was rejected, waits or lacks replicas; 2: a document is malformed. "
        "deploy/examples has cluster files to start from.",
    )(place)


def place(
    file: File,
    output: Annotated[
        PlaceOutput,
        typer.Option(
            "--output",
            help="text for people, json for programs, cluster for the file with its replicas "
            "filled in, which check, plan and explain take.",
        ),
    ] = PlaceOutput.TEXT,
    fail_on: FailOnOption = None,
    strict: StrictOption = False,
    _plugin: PluginOption = None,
) -> None:
    """Place the streams of a cluster file as the running reconciler would."""
    from streaming import offline

    def found(answer: "Placed") -> bool:
        if fail_on is FailOn.NEVER:
            return False
        return answer.unanswered or (fail_on is FailOn.DEGRADED and answer.degraded)

    form = Output.JSON if output is PlaceOutput.JSON else Output.TEXT
    lines = _cluster_files() if output is PlaceOutput.CLUSTER else None
    body = offline.Placed.body
    answer_documents(file, form, offline.placed, body, _show, found, lines, strict=strict)


def _cluster_files() -> "Callable[[Placed], Iterator[str]]":
    """Writes each answer as a document of a cluster file."""
    from streaming.cluster_file import cluster_text

    written = 0

    def text(answer: "Placed") -> "Iterator[str]":
        nonlocal written
        if written:
            yield "---"
        written += 1
        yield cluster_text(answer.filled()).rstrip("\n")

    return text


def _show(console: Any, answer: "Placed") -> None:
    from streaming.cli.topology_text import topology_tree

    cluster = answer.cluster
    console.print(topology_tree(cluster.nodes, loads(answer), cluster.levels))
    left, hidden = _ROWS_SHOWN_MAX, 0
    for index, decision in enumerate(answer.body()["decisions"]):
        if left <= 0 and decision["outcome"] == "placed":
            hidden += 1
            continue
        console.print()
        rows = show_decision(console, decision, line_of(answer.document, index, decision))
        left -= rows
    if hidden:
        more = counted(hidden, "more placed stream")
        console.print(f"\n… and {more}: --output json, --output cluster", style="dim")


def line_of(document: "Document", index: int, decision: dict[str, Any]) -> int | None:
    """Where a stream stands in the file, if it was refused."""
    return document.line(f"streams[{index}]") if decision["outcome"] == "rejected" else None


def loads(answer: "Placed") -> dict[str, int]:
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
            console.print(Text.assemble("  ", code, " ", reason["message"]))
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


def _rows(replicas: list[list[str]]) -> list[tuple[str, list[str]]]:
    """Shards with their nodes; neighbours with equal lists share a row."""
    rows: list[tuple[str, list[str]]] = []
    begin = 0
    for shard, nodes in enumerate(replicas):
        if shard + 1 == len(replicas) or replicas[shard + 1] != nodes:
            rows.append((str(shard) if shard == begin else f"{begin}-{shard}", nodes))
            begin = shard + 1
    return rows
