"""`placer apply -f FILE`: the streams of a file, as they are to be."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from placement.wording import format_count
from streaming.cli.commands.stream import EXIT_UNANSWERED, read_known_streams, send_and_show
from streaming.cli.documents import check_unknown_fields, read_text
from streaming.cli.options import Output, connection_options, with_options
from streaming.cli.requests import AnswerOptions, confirm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.cluster import ClusterStream
    from streaming.requests import StreamChange
    from streaming.settings import Settings

_COLOURS = {
    "create": typer.colors.GREEN,
    "alter": typer.colors.YELLOW,
    "drop": typer.colors.RED,
    "keep": None,
}
_DONE = {
    "create": "is new",
    "alter": "is to change",
    "drop": "is to be dropped",
    "keep": "is unchanged",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "apply",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer apply -f streams.yaml --dry-run\n\n"
        "  placer apply -f streams.yaml\n\n"
        "  placer export > streams.yaml    [dim]# a file to start from[/dim]\n\n"
        "Exit code 1: a stream was refused, waits or lacks replicas; 2: the file is wrong, nothing "
        "was sent; 3: no decision in time.",
    )(apply)


@with_options(waiting=AnswerOptions, settings=connection_options)
def apply(
    file: Annotated[
        str,
        typer.Option(
            "-f", "--file", metavar="FILE", help="Streams as in a cluster file; - reads stdin."
        ),
    ],
    waiting: AnswerOptions,
    settings: "Settings",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change, field by field.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Drop the streams that are not in the file.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Confirm the drops of --prune without a question.")
    ] = False,
) -> None:
    """Make the streams those of a file. New streams are created, different ones are altered, equal
    ones stay as they are. The file's nodes and moves are not read."""
    from streaming.requests import diff_streams, is_satisfied

    if yes and not prune:
        raise typer.BadParameter("--yes confirms what --prune drops: give --prune too")
    wanted = _streams(file)
    found = diff_streams(read_known_streams(settings), wanted, prune)
    quiet = waiting.output is Output.JSON and not dry_run
    if not quiet:
        for change in found:
            _print_change(change, waiting.output)
    if dry_run:
        return
    dropped = [change for change in found if change.action == "drop"]
    if dropped:
        names = ", ".join(change.stream for change in dropped)
        confirm(f"Drop {format_count(len(dropped), 'stream')} ({names})?", yes, "--yes")
    kept = [change.decision for change in found if change.action == "keep"]
    messages = [change.message for change in found if change.message is not None]
    if messages:
        send_and_show(settings, messages, waiting)
    if not all(decision is None or is_satisfied(decision) for decision in kept):
        raise typer.Exit(EXIT_UNANSWERED)


def _streams(file: str) -> "Sequence[ClusterStream]":
    """The streams of all documents of a file; a usage error names what is wrong with one."""
    from schemas.cluster import RefusedStream, parse_streams
    from streaming.offline import DocumentFault, parse_documents

    found: dict[str, ClusterStream] = {}
    for each in parse_documents(read_text(file), parse_streams):
        document = check_unknown_fields(each, file, strict=False)
        if isinstance(document, DocumentFault):
            where = f"{file}:{document.line}" if document.line else file
            raise typer.BadParameter(f"{where}: {document.message}")
        for index, stream in enumerate(document.cluster.streams):
            line = document.line(f"streams[{index}]")
            if isinstance(stream, RefusedStream):
                raise typer.BadParameter(f"{file}:{line}: {stream.message}")
            if stream.stream in found:
                raise typer.BadParameter(f"{file}:{line}: '{stream.stream}' is given twice")
            found[stream.stream] = stream
    return list(found.values())


def _print_change(change: "StreamChange", output: Output) -> None:
    if output is Output.JSON:
        import orjson

        typer.echo(orjson.dumps(change.to_json()))
        return
    typer.secho(f"{change.stream} ", bold=True, nl=False)
    typer.secho(_DONE[change.action], fg=_COLOURS[change.action], nl=False)
    waits = change.action == "keep" and change.decision is not None
    outcome = str(change.decision.outcome) if change.decision is not None else ""
    typer.echo(f": {outcome}" if waits and outcome != "placed" else "")
    for each in change.differences:
        now = "" if change.action == "create" else f"{_change_text(each.now)} -> "
        typer.echo(f"  {each.field}: {now}{_change_text(each.wanted)}")


def _change_text(value: Any) -> str:
    import orjson

    return "(not set)" if value is None else orjson.dumps(value).decode()
