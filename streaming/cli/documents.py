"""Reads a file, prints an answer per document and sets the exit status, for offline commands."""

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from placement.wording import format_count
from streaming.cli.options import Output
from streaming.cli.render.console import text_console

if TYPE_CHECKING:
    from streaming.offline import Assignments, Document, DocumentFault

EXIT_FINDINGS = 1
EXIT_DOCUMENT = 2
# A file of 100,000 shards makes some two million; cycles of so many objects are no burden.
_OBJECTS_BEFORE_COLLECTING = 500_000
# From so many on a document takes seconds.
_SHARDS_LARGE = 20_000
# Of a long list of unknown fields the first say what is wrong.
_IGNORED_SHOWN_MAX = 10
# Of many topics the first, a line of a terminal.
_TOPICS_SHOWN_MAX = 5

_Answer = TypeVar("_Answer")

File = Annotated[
    str, typer.Argument(metavar="FILE", help="Cluster file in YAML or JSON; - reads stdin.")
]


def answer_documents(
    file: str,
    output: Output,
    solve: Callable[["Document"], _Answer],
    body: Callable[[_Answer], dict[str, Any]],
    show: Callable[[Any, _Answer], None],
    found: Callable[[_Answer], int],
    lines: Callable[[_Answer], Iterable[str]] | None = None,
    *,
    strict: bool = False,
    doing: str = "looking at",
) -> None:
    """Answer every document of a file, one JSON line each or as text, and end the command.

    `body` makes the line, `show` prints to a console, `found` says which exit status the answer
    calls for (true is 1). `lines`, where given, writes the answer in a form of its own. `doing`
    says on a terminal's standard error at what a large document is worked. A document that cannot
    be understood, or with `strict` has unknown fields, is answered with its error and status 2.
    """
    from streaming.offline import DocumentFault, parse_documents

    # Made only where text is wanted: importing rich takes a tenth of the time to answer.
    console: Any = None
    status = 0
    with _collect_seldom():
        for each in parse_documents(read_text(file)):
            document = check_unknown_fields(each, file, strict=strict)
            if isinstance(document, DocumentFault):
                status = EXIT_DOCUMENT
                _tell_fault(document, file, output)
                continue
            with _progress_clock(doing, document):
                answer = solve(document)
            status = max(status, int(found(answer)))
            if lines is not None:
                for line in lines(answer):
                    typer.echo(line)
                continue
            if output is Output.JSON:
                _print_line(body(answer))
                continue
            console = console or text_console()
            if document.cluster.name:
                console.print(f"── {document.cluster.name} ──", style="dim")
            show(console, answer)
            console.print()
    raise typer.Exit(status)


@contextmanager
def _progress_clock(doing: str, document: "Document") -> Iterator[None]:
    """Show the work on a large file and its duration on standard error, if it is a terminal."""
    streams = document.cluster.streams
    shards = sum(getattr(stream, "shards", 0) for stream in streams)
    if shards < _SHARDS_LARGE or not sys.stderr.isatty():
        yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    what = f"{doing} {format_count(shards, 'shard')} of {format_count(len(streams), 'stream')}"
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=text_console(stderr=True), transient=True) as progress:
        progress.add_task(
            f"{what} on {format_count(len(document.cluster.nodes), 'node')}", total=None
        )
        yield


@contextmanager
def _collect_seldom() -> Iterator[None]:
    """Collect cyclic garbage less often while a large file is read. By default Python looks for
    cycles after every 700 new objects, which takes most of the reading time and finds next to
    nothing."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTING, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def read_text(file: str) -> str:
    """The text of a file, or of standard input."""
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}") from error
    # Bytes that are no text are the fault of the document that they stand in.
    return raw.decode("utf-8", "surrogateescape").removeprefix("\ufeff")


def read_assignments(file: str | None) -> "Assignments":
    """The value of --assignments; a usage error where the file is no reassignment."""
    if file is None:
        return {}
    from streaming.offline import ReassignmentInvalid, read_reassignment

    try:
        return read_reassignment(file)
    except (OSError, ReassignmentInvalid) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise typer.BadParameter(f"{file}: {said}", param_hint="--assignments") from error


def assign(document: "Document", assignments: "Assignments") -> "Document":
    """The document with the replicas of --assignments; a usage error where they do not fit."""
    from streaming.offline import AssignmentsUnfit, assign_document

    note_unlisted(document, assignments)
    try:
        return assign_document(document, assignments)
    except AssignmentsUnfit as error:
        raise typer.BadParameter(str(error), param_hint="--assignments") from error


def note_unlisted(document: "Document", assignments: "Assignments") -> None:
    """Name on standard error the topics of --assignments that a cluster file with streams does not
    list: their policy and factor are not known."""
    if not assignments or not document.cluster.streams:
        return
    from streaming.offline import unlisted_topics

    topics = unlisted_topics(document.cluster, assignments)
    if topics:
        named = ", ".join(topics[:_TOPICS_SHOWN_MAX])
        left = len(topics) - _TOPICS_SHOWN_MAX
        more = f" and {left} more" if left > 0 else ""
        said = "is a stream of the default policy, with the factor of most of its partitions"
        typer.echo(
            f"note: each topic of --assignments that the cluster file does not list {said}: "
            f"{named}{more}",
            err=True,
        )


def _print_line(body: dict[str, Any]) -> None:
    import orjson

    typer.echo(orjson.dumps(body))


def _tell_fault(fault: "DocumentFault", file: str, output: Output) -> None:
    if output is Output.JSON:
        _print_line({"error": fault.body()})
        return
    typer.secho(f"{_place(file, fault.line)}: {fault.message}", fg=typer.colors.RED, err=True)


def check_unknown_fields(
    document: "Document | DocumentFault", file: str, *, strict: bool
) -> "Document | DocumentFault":
    """Name the document's unknown fields on standard error; with `strict` return a fault. A typing
    error must not look like an answer."""
    from streaming.offline import DocumentFault

    if isinstance(document, DocumentFault) or not document.ignored:
        return document
    if strict:
        return _unknown_fault(document)
    for name in document.ignored[:_IGNORED_SHOWN_MAX]:
        said = f"field '{name}' is not known, ignored{_suggest_field(name)}"
        typer.echo(f"{_place(file, document.line(name))}: {said}", err=True)
    left = len(document.ignored) - _IGNORED_SHOWN_MAX
    if left > 0:
        typer.echo(f"{file}: {left} more unknown fields are ignored", err=True)
    return document


def _unknown_fault(document: "Document") -> "DocumentFault":
    from streaming.offline import DocumentFault

    first, *others = document.ignored
    message = f"field '{first}' is not known{_suggest_field(first)}"
    if others:
        named = ", ".join(f"'{name}'" for name in others[: _IGNORED_SHOWN_MAX - 1])
        left = len(others) - (_IGNORED_SHOWN_MAX - 1)
        end = " " if message.endswith("?") else ". "
        message += f"{end}Also not known: {named}" + (f" and {left} more" if left > 0 else "")
    return DocumentFault(message, document.line(first), first)


def _suggest_field(name: str) -> str:
    from schemas.spelling import did_you_mean

    return did_you_mean(name.rpartition(".")[2], _known_fields(name))


def _known_fields(name: str) -> list[str]:
    """The fields that there are where the unknown one stands."""
    from schemas.cluster import ClusterClient, ClusterFile, ClusterNode, ClusterStream

    inside = {
        "nodes": ClusterNode.model_fields,
        "streams": ClusterStream.model_fields,
        "clients": ClusterClient.model_fields,
    }
    fields = inside.get(name.partition("[")[0]) if "." in name else None
    return list(fields or ClusterFile.model_fields)


def _place(file: str, line: int | None) -> str:
    name = "standard input" if file == "-" else file
    return f"{name}:{line}" if line else name
