"""`placer history shard|node NAME`: what happened to it, oldest first, as far back as topics go."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.commands.describe import Shard, shard_name
from streaming.cli.options import Output, OutputOption, connection_options, with_options
from streaming.cli.times import parse_since, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.replay import Timeline, TimelineItem
    from streaming.settings import Settings

EXIT_NOTHING = 1

app = typer.Typer(
    name="history",
    help="Show what happened to a shard or a node, oldest first.",
    epilog="[bold]Examples[/bold]\n\n"
    "  placer history shard orders/3\n\n"
    "  placer history node n7 --since 2h --limit 20\n\n"
    "  placer history shard orders/3 --replay    [dim]# also what compaction has "
    "taken[/dim]\n\n"
    "The journal keeps requests, verdicts and acknowledgements for its retention time. Of "
    "the records of assignments, moves and nodes that are older than about an hour, "
    "compaction keeps only the last of each key. The last line says from when on the "
    "history is complete. Exit code 1: there is no record of it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only later entries: an age (30m, 2h, 7d) or a time (ISO 8601 or ms since 1970).",
        show_default=False,
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", min=1, help="Limit on entries; the latest are shown.")
]
ReplayOption = Annotated[
    bool,
    typer.Option(
        "--replay",
        help="Replay the journal to show records that compaction has removed; takes longer, "
        "and needs a complete journal.",
    ),
]


@dataclass(frozen=True, slots=True)
class Look:
    """The options of both commands."""

    since: Since = None
    limit: Limit = 100
    replay: ReplayOption = False
    output: OutputOption = Output.TEXT


@app.command()
@with_options(look=Look, settings=connection_options)
def shard(
    name: Shard,
    look: Look,
    settings: "Settings",
) -> None:
    """Show what happened to a shard: requests, decisions, assignments, moves, acknowledgements."""
    from streaming.replay import ShardTimeline

    timeline = ShardTimeline(*shard_name(name))
    _show(timeline, look, settings)


@app.command()
@with_options(look=Look, settings=connection_options)
def node(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its id.")],
    look: Look,
    settings: "Settings",
) -> None:
    """Show what happened to a node: its lives, orders, moves, replicas that came and went."""
    from streaming.replay import NodeTimeline

    _show(NodeTimeline(name), look, settings)


def _show(timeline: "Timeline", look: Look, settings: "Settings") -> None:
    from streaming.replay import read_timeline

    after = _parse_since(look.since)
    read_timeline(settings, timeline, again=look.replay)
    found = timeline.items(after)
    shown = found[-look.limit :]
    if look.output is Output.JSON:
        import orjson

        typer.echo(orjson.dumps(history_body(timeline, shown, len(found) - len(shown))))
    else:
        from streaming.cli.render.console import text_console

        console = text_console()
        for line in history_lines(timeline, shown, len(found) - len(shown)):
            console.print(line)
    raise typer.Exit(0 if found or after is not None else EXIT_NOTHING)


def _parse_since(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_since(text, time.time_ns() // 1_000_000)
    except ValueError:
        message = f"expected 2h, 30m, 7d or a time such as 2026-11-21T17:00:00Z, got {text!r}"
        raise typer.BadParameter(message, param_hint="--since") from None


def history_body(
    timeline: "Timeline", shown: "Sequence[TimelineItem]", left_out: int
) -> dict[str, Any]:
    """The answer for programs. `left_out`: earlier ones that the limit keeps out."""
    return {
        "subject": timeline.name,
        "journal_from": timeline.began,
        "records_whole_from": timeline.whole_from,
        "whole": timeline.is_whole,
        "left_out": left_out,
        "entries": [each.body() for each in shown],
    }


def history_lines(
    timeline: "Timeline", shown: "Sequence[TimelineItem]", left_out: int
) -> list[Any]:
    """The lines for people: what happened, then how far back that is whole."""
    from rich.text import Text

    from streaming.cli.render.console import Paragraph, Table

    lines: list[Any] = []
    if left_out:
        lines.append(Text(f"… {left_out} earlier: --limit, --since or --output json", "dim"))
    if shown:
        rows = [(time_text(each.at), each.said) for each in shown]
        lines.append(Table(("time", "detail"), rows, first_left_out=(), header=False))
    else:
        lines.append(Text(f"there is no record of {timeline.name}"))
    lines.append(Paragraph(Text(_bounds(timeline), "dim")))
    return lines


def _bounds(timeline: "Timeline") -> str:
    """Say from when on the history is complete."""
    began, whole = timeline.began, timeline.whole_from
    if began is None:
        return "there is no journal"
    since = f"the journal begins at {time_text(began)}"
    if timeline.is_whole:
        return f"{since}; the history is complete from then on"
    if whole is None:
        gone = "compaction may have removed earlier records of nodes, assignments and moves"
    else:
        gone = f"compaction has removed records from before {time_text(whole)}"
    return f"{since}; {gone}, which are not shown: the same command with --replay shows them"
