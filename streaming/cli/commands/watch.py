"""`placer watch`: committed records as they come, a line each."""

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli.options import Output, OutputOption, connection_options, with_options
from streaming.cli.render.console import tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.brokers import CommittedReader
    from streaming.cli.render.record import JsonPrinter, TextPrinter
    from streaming.settings import Settings

# How soon the command notices Ctrl-C or that its time is over.
POLL_SECONDS = 0.2

DEFAULT_TOPICS = "decisions,moves,assignments,topology,violations,alerts,answers,dead-letters"


class Start(StrEnum):
    """Where watching begins."""

    BEGINNING = "beginning"
    NOW = "now"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "watch",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer watch --bootstrap 127.0.0.1:9092\n\n"
        "  placer watch --topic moves,assignments --from beginning\n\n"
        "  placer watch --topic decisions --count 1 --output json | jq .value.outcome",
    )(watch)


@with_options(settings=connection_options)
def watch(
    settings: "Settings",
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            help="What to watch, separated by commas; also nodes, streams, acks, journal, commits. "
            f"[dim]default: {DEFAULT_TOPICS.replace(',', ', ')}[/dim]",
            show_default=False,
        ),
    ] = DEFAULT_TOPICS,
    start: Annotated[Start, typer.Option("--from", help="Where to begin.")] = Start.NOW,
    output: OutputOption = Output.TEXT,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="End after this number of records.")
    ] = None,
    for_seconds: Annotated[
        float | None, typer.Option("--for-seconds", min=0, help="End after this time.")
    ] = None,
) -> None:
    """Show decisions, moves, alerts and what the reconciler believes, as they are committed.

    Ends with Ctrl-C. Reminders of moves that were called off are summed up once a minute. With
    --output json each record is an object on a line of its own.
    """
    from streaming.brokers import CommittedReader, Reachability
    from streaming.cli.render.record import JsonPrinter, TextPrinter
    from streaming.signals import stop_on_signals

    topics = topics_of(topic)
    printer = JsonPrinter() if output is Output.JSON else TextPrinter()
    with (
        stop_on_signals() as stop,
        CommittedReader(
            settings.kafka.bootstrap_servers,
            settings.topics.prefix,
            topics,
            from_beginning=start is Start.BEGINNING,
            options=settings.resolved_kafka_options(),
            reachability=Reachability(settings.kafka.bootstrap_servers, tell),
        ) as reader,
    ):
        _follow(reader, printer, stop.is_set, count, for_seconds)
        printer.close()


def _follow(
    reader: "CommittedReader",
    printer: "JsonPrinter | TextPrinter",
    stopped: "Callable[[], bool]",
    count: int | None,
    for_seconds: float | None,
) -> None:
    deadline = None if for_seconds is None else time.monotonic() + for_seconds
    shown = 0
    while not stopped() and (count is None or shown < count):
        left = POLL_SECONDS if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return
        records = reader.poll(min(left, POLL_SECONDS))
        records = records[: None if count is None else count - shown]
        printer.show(records)
        shown += len(records)


def topics_of(names: str) -> list[str]:
    """Topics by the names people use: `moves` for `moves.v1`, `dead-letters` for `dlq.v1`."""
    from schemas.topics import CATALOGUE, DEAD_LETTERS

    known = {
        "dead-letters" if topic.name == DEAD_LETTERS else topic.name.removesuffix(".v1"): topic.name
        for topic in CATALOGUE
    }
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in known:
            raise typer.BadParameter(f"--topic: expected {', '.join(known)}, got {name!r}")
    if not wanted:
        raise typer.BadParameter(f"--topic: expected {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(wanted)]
