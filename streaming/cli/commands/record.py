"""`placer snapshot` and `placer record`: what is there, and what happens, into a file."""

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placement.wording import format_count
from streaming.cli.options import connection_options, with_options
from streaming.cli.times import time_text

if TYPE_CHECKING:
    from streaming.settings import Settings


class Start(StrEnum):
    """Where a recording begins."""

    BEGINNING = "beginning"
    NOW = "now"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "snapshot",
        epilog="[bold]Example[/bold]\n\n  placer snapshot state.ndjson --bootstrap kafka:9092",
    )(snapshot)
    app.command(
        "record",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer record incident.ndjson --bootstrap kafka:9092    [dim]# until Ctrl-C[/dim]\n\n"
        "  placer record all.ndjson --from beginning --for-seconds 0",
    )(record)


@with_options(settings=connection_options)
def snapshot(
    settings: "Settings",
    file: Annotated[Path, typer.Argument(help="File to write, one JSON object a line.")],
) -> None:
    """Write the state of record, as it is at one commit, into a file."""
    from streaming.recovery import take_snapshot
    from streaming.replay import make_head, snapshot_lines, write_lines
    from streaming.settings import core_configuration

    options = settings.resolved_kafka_options()
    address, begin = settings.kafka.bootstrap_servers, settings.topics.prefix
    taken = take_snapshot(address, begin, core_configuration(settings), options)
    head = make_head(address, begin, settings.cell, _settings_to_keep(settings), options)
    write_lines(file, snapshot_lines(head, taken))
    typer.echo(
        f"{file}: {format_count(len(taken.records), 'record')} at sequence {taken.sequence}, "
        f"{time_text(taken.now)}, digest {taken.digest}"
    )


@with_options(settings=connection_options)
def record(
    settings: "Settings",
    file: Annotated[Path, typer.Argument(help="File to write, one JSON object a line.")],
    start: Annotated[
        Start,
        typer.Option(
            "--from",
            help="now: begin with a snapshot of the state; beginning: with the first records of "
            "all topics.",
        ),
    ] = Start.NOW,
    for_seconds: Annotated[
        float | None, typer.Option("--for-seconds", min=0, help="End after this time.")
    ] = None,
) -> None:
    """Write inputs, journal and outputs of a running system into a file, until Ctrl-C.

    The file stands under its name when it is complete. It can be replayed by itself.
    """
    from streaming.replay import Recorder, make_head
    from streaming.settings import core_configuration
    from streaming.signals import stop_on_signals

    options = settings.resolved_kafka_options()
    address, begin = settings.kafka.bootstrap_servers, settings.topics.prefix
    head = make_head(address, begin, settings.cell, _settings_to_keep(settings), options)
    with stop_on_signals() as stop:
        recorder = Recorder(
            address,
            head,
            core_configuration(settings),
            options,
            from_beginning=start is Start.BEGINNING,
        )
        typer.echo(f"recording {begin}* to {file}", err=True)
        ends_at = None if for_seconds is None else time.monotonic() + for_seconds
        recorder.run(
            file, lambda: stop.is_set() or (ends_at is not None and time.monotonic() >= ends_at)
        )
    typer.echo(f"{file}: {recorder.records} records")


def _settings_to_keep(settings: "Settings") -> dict[str, Any]:
    """The settings that decide what the same inputs lead to, beside the core's configuration."""
    return settings.model_dump(mode="json", include={"levels", "liveness", "moves", "policy"})
