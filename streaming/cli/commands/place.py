"""`placer place FILE`: place the streams of a cluster file, without Kafka, Spark or Java."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.documents import File, answer_documents
from streaming.cli.options import FailOn, FailOnOption, Output, PluginOption, StrictOption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming.offline import Document, PlaceResult


class PlaceOutput(StrEnum):
    """Names the reader of a placement: people, programs, or `placer check` and `plan`."""

    TEXT = "text"
    JSON = "json"
    CLUSTER = "cluster"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "place",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer place cluster.yaml\n\n"
        "  placer place cluster.yaml --summary    [dim]# totals of a large file[/dim]\n\n"
        "  placer place cluster.yaml --stream orders\n\n"
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
    stream: Annotated[
        list[str] | None,
        typer.Option(
            "--stream",
            metavar="NAME",
            help="Show only this stream; all are placed. Repeatable.",
            show_default=False,
        ),
    ] = None,
    summary: Annotated[
        bool,
        typer.Option(
            "--summary", help="Totals, and the streams that lack replicas, instead of every shard."
        ),
    ] = False,
    fail_on: FailOnOption = None,
    strict: StrictOption = False,
    _plugin: PluginOption = None,
) -> None:
    """Place the streams of a cluster file as the running reconciler would."""
    from streaming import offline
    from streaming.cli.render.place import show_placement, show_summary
    from streaming.cli.render.place import summary as summarized

    def is_failure(answer: "PlaceResult") -> bool:
        if fail_on is FailOn.NEVER:
            return False
        return answer.has_unanswered or (fail_on is FailOn.DEGRADED and answer.has_degraded)

    named = frozenset(stream or ())
    if output is PlaceOutput.CLUSTER and (named or summary):
        raise typer.BadParameter(
            "--output cluster writes the whole file: leave out --stream and --summary"
        )
    if named and summary:
        raise typer.BadParameter("--summary covers all streams: leave out --stream")
    form = Output.JSON if output is PlaceOutput.JSON else Output.TEXT
    lines = _cluster_files() if output is PlaceOutput.CLUSTER else None
    body = _body(named) if named else summarized if summary else offline.PlaceResult.body

    def show(console: Any, answer: "PlaceResult") -> None:
        if summary:
            show_summary(console, answer)
        else:
            show_placement(console, answer, named)

    def solve(document: "Document") -> "PlaceResult":
        there = {each.stream for each in document.cluster.streams}
        if named - there:
            names = ", ".join(f"'{name}'" for name in sorted(named - there))
            raise typer.BadParameter(f"the file has no stream {names}", param_hint="--stream")
        return offline.place_streams(document)

    answer_documents(
        file, form, solve, body, show, is_failure, lines, strict=strict, doing="placing"
    )


def _body(named: frozenset[str]) -> "Callable[[PlaceResult], dict[str, Any]]":
    """The answer with the decisions of some streams only."""

    def body(answer: "PlaceResult") -> dict[str, Any]:
        name = {} if answer.cluster.name is None else {"name": answer.cluster.name}
        chosen = (each for each in answer.decisions if each.stream in named)
        return name | {"decisions": [answer.answer(each) for each in chosen]}

    return body


def _cluster_files() -> "Callable[[PlaceResult], Iterator[str]]":
    """Writes each answer as a document of a cluster file."""
    from streaming.offline import cluster_text

    written = 0

    def text(answer: "PlaceResult") -> "Iterator[str]":
        nonlocal written
        if written:
            yield "---"
        written += 1
        yield cluster_text(answer.fill_in()).rstrip("\n")

    return text
