"""`placer replay` takes the journal through the core again; `placer repair` mends topics by it, and
`placer restore` fills new ones."""

from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placement.wording import format_count
from streaming.cli.options import (
    Bootstrap,
    Config,
    Prefix,
    connection_options,
    load_connection,
    with_options,
)
from streaming.cli.times import TIME_MS_MIN, parse_time, time_text

if TYPE_CHECKING:
    from placement.model import Configuration
    from streaming.codec import OutRecord
    from streaming.replay import History, JournalEntry, Recording, ReplayEnd, ReplayReport
    from streaming.settings import Settings

EXIT_DIFFERENT = 1


class ReplayOutput(StrEnum):
    """text: a summary for people; json: the same for programs; ndjson: also every record."""

    TEXT = "text"
    JSON = "json"
    NDJSON = "ndjson"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "replay",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer replay --from-topic --verify --bootstrap kafka:9092\n\n"
        "  placer replay incident.ndjson --verify\n\n"
        "  placer replay incident.ndjson --until 2026-11-21T17:00:00Z --output ndjson\n\n"
        "Exit code 1: a record differs (the first one is shown), or --verify had nothing to "
        "compare; 2: wrong usage, or the file is no recording.",
    )(replay)
    app.command(
        "repair",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer repair --dry-run --bootstrap kafka:9092\n\n"
        "  placer repair --snapshot monday.ndjson    [dim]# the journal's beginning is "
        "gone[/dim]\n\n"
        "Stop the application first: the repair becomes the only writer and would end it.",
    )(repair)

    app.command(
        "restore",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer topics apply --bootstrap new:9092\n\n"
        "  placer restore monday.ndjson --bootstrap new:9092\n\n"
        "Then start the application. Exit code 2: the file is no recording; 3: the topics hold "
        "state, or the file's state is not proven.",
    )(restore)


RecordingFile = Annotated[
    Path | None, typer.Argument(help="A recording. [dim]or --from-topic[/dim]")
]
FromTopic = Annotated[bool, typer.Option("--from-topic", help="Read the journal from its topic.")]
SnapshotFile = Annotated[
    Path | None,
    typer.Option(
        "--snapshot",
        help="With --from-topic: start here, not at the journal's beginning.",
        show_default=False,
    ),
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Compare with the records that were written.")
]
UntilOption = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="SEQUENCE|TIME",
        help="End after this commit, or before this time (ISO 8601 or ms since 1970).",
        show_default=False,
    ),
]
Inputs = Annotated[
    bool,
    typer.Option(
        "--inputs",
        help="Run the recorded inputs through the whole application, on a broker of its own, "
        "and audit the result.",
    ),
]
Speed = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        help="With --inputs: how many times as fast to run, timers included. [dim]default: 1[/dim]",
        show_default=False,
    ),
]
ReplayOutputOption = Annotated[
    ReplayOutput,
    typer.Option("--output", help="text: a summary; json: the same; ndjson: also every record."),
]


def replay(
    file: RecordingFile = None,
    from_topic: FromTopic = False,
    snapshot_file: SnapshotFile = None,
    verify: Verify = False,
    until: UntilOption = None,
    inputs: Inputs = False,
    speed: Speed = None,
    output: ReplayOutputOption = ReplayOutput.TEXT,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
) -> None:
    """Run the journal through the core again, at full speed, and compare every record.

    With --verify ids, headers and bodies are compared with what was written, byte for byte.
    """
    from streaming.replay import read_recording, replay_history
    from streaming.settings import core_configuration

    _check_sources(file, from_topic, snapshot_file, bootstrap or prefix)
    reads_journal = verify or until is not None or output is ReplayOutput.NDJSON
    _check_inputs(file, inputs, speed, reads_journal)
    end = _parse_until(until)
    settings = load_connection(config, bootstrap, prefix)
    recording = read_recording(file) if file else None
    if inputs and recording is not None:
        _rerun(recording, core_configuration(settings), speed or 1.0, output)
        return
    report = replay_history(
        _history(settings, recording, snapshot_file, verify),
        recording.head.cell if recording else settings.cell,
        core_configuration(settings),
        end,
        verify=verify,
        on_record=_print_record if output is ReplayOutput.NDJSON else None,
    )
    _show(report, verify, output)
    if report.differences or (verify and not report.entries):
        raise typer.Exit(EXIT_DIFFERENT)


def _check_sources(
    file: Path | None, from_topic: bool, snapshot: Path | None, address: str | None
) -> None:
    """Refuse options that say nothing of where the journal comes from."""
    if (file is None) != from_topic:
        raise typer.BadParameter("name a recording, or --from-topic")
    if snapshot is not None and not from_topic:
        raise typer.BadParameter("--snapshot needs --from-topic; a recording has its own snapshot")
    if file is not None and address is not None:
        raise typer.BadParameter(
            "--bootstrap and --prefix need --from-topic; a recording is read without a broker"
        )


def _check_inputs(
    file: Path | None, inputs: bool, speed: float | None, reads_journal: bool
) -> None:
    if inputs and (file is None or reads_journal):
        raise typer.BadParameter(
            "--inputs takes a recording, and the audit checks the result: leave out "
            "--verify, --until and --output ndjson"
        )
    if speed is not None and not inputs:
        raise typer.BadParameter("--speed needs --inputs; a journal is replayed at full speed")


def _rerun(
    recording: "Recording", fallback: "Configuration", speed: float, output: ReplayOutput
) -> None:
    from tempfile import TemporaryDirectory

    from streaming.rerun import rerun
    from streaming.signals import stop_on_signals

    start = recording.snapshot
    core = start.configuration(fallback) if start else fallback
    settings = recording.head.settings
    core = replace(core, cell=recording.head.cell, levels=tuple(settings["levels"]))
    with (
        stop_on_signals() as stop,
        TemporaryDirectory(prefix="placer-rerun-", ignore_cleanup_errors=True) as scratch,
    ):
        found = rerun(recording, settings, core, Path(scratch), stop, speed)
    if output is not ReplayOutput.TEXT:
        import orjson

        typer.echo(orjson.dumps(asdict(found)))
    else:
        typer.echo(f"{found.inputs} inputs gave {found.records} records, digest {found.digest}")
        for finding in found.findings:
            typer.secho(f"  {finding}", fg=typer.colors.RED)
        if not found.findings:
            typer.secho("the audit found nothing", fg=typer.colors.GREEN)
    if found.findings:
        raise typer.Exit(EXIT_DIFFERENT)


def _history(
    settings: "Settings", recording: "Recording | None", start: Path | None, verify: bool
) -> "History":
    from streaming.replay import history_of_recording, read_history, read_recording

    if recording is not None:
        return history_of_recording(recording)
    return read_history(
        settings.kafka.bootstrap_servers,
        settings.topics.prefix,
        settings.cell,
        read_recording(start).snapshot if start else None,
        settings.resolved_kafka_options(),
        written=verify,
    )


def _parse_until(text: str | None) -> "ReplayEnd | None":
    from streaming.replay import ReplayEnd

    if text is None:
        return None
    if text.isdecimal() and int(text) < TIME_MS_MIN:
        return ReplayEnd(sequence=int(text))
    try:
        return ReplayEnd(time_ms=parse_time(text))
    except ValueError:
        raise typer.BadParameter(
            f"--until: expected a sequence or a time such as 2026-11-21T17:00:00Z, got {text!r}"
        ) from None


def _print_record(entry: "JournalEntry", record: "OutRecord") -> None:
    import orjson

    headers = dict(record.headers)
    line = {
        "sequence": entry.sequence,
        "topic": record.topic,
        "key": (record.key or b"").decode(),
        "id": (headers.get("ce_id") or b"").decode(),
        "value": None if record.value is None else orjson.loads(record.value),
    }
    typer.echo(orjson.dumps(line))


def _show(report: "ReplayReport", verify: bool, output: ReplayOutput) -> None:
    if output is not ReplayOutput.TEXT:
        import orjson

        typer.echo(orjson.dumps(asdict(report)))
        return
    rate = report.events / report.seconds if report.seconds else 0.0
    typer.echo(
        f"{report.entries} journal entries, {report.events} events, {report.records} records in "
        f"{report.seconds:.2f} s ({rate:,.0f} events/s)"
    )
    typer.echo(f"through sequence {report.sequence}, {time_text(report.now)}, {report.digest}")
    if not report.entries and not report.differences:
        done = "compared" if verify else "replayed"
        why = "there is no journal entry after the start and before --until"
        typer.secho(f"nothing was {done}: {why}", fg=typer.colors.YELLOW)
        return
    if not verify:
        return
    if report.uncompared is not None:
        typer.secho(report.uncompared, fg=typer.colors.YELLOW)
    if not report.differences:
        typer.secho(
            f"equal: {format_count(report.compared, 'record')}, byte for byte",
            fg=typer.colors.GREEN,
        )
        return
    typer.secho(
        f"{format_count(len(report.differences), 'difference')}, the first:", fg=typer.colors.RED
    )
    typer.echo(f"  {report.differences[0]}")


@with_options(settings=connection_options)
def repair(
    settings: "Settings",
    snapshot_file: Annotated[
        Path | None,
        typer.Option("--snapshot", help="Start here, not at the journal's beginning."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be written, and write nothing.")
    ] = False,
) -> None:
    """Restore damaged records of the state topics from the journal.

    Nothing is written unless the result has the digest of the commit marker.
    """
    from streaming.replay import find_damage, read_recording, write_repair
    from streaming.settings import core_configuration

    options = settings.resolved_kafka_options()
    address, begin = settings.kafka.bootstrap_servers, settings.topics.prefix
    start = read_recording(snapshot_file).snapshot if snapshot_file else None
    mended = find_damage(address, begin, core_configuration(settings), start, options)
    for each in mended:
        key = (each.record.key or b"").decode("utf-8", "backslashreplace")
        typer.echo(f"{each.record.topic} {key}: {each.was}")
    if mended and not dry_run:
        write_repair(address, begin, settings.cell, mended, options)
    count = format_count(len(mended), "record")
    was = "was" if len(mended) == 1 else "were"
    done = "would be written" if dry_run else f"{was} written again"
    typer.echo(f"{count} {done}" if mended else "nothing is damaged")


@with_options(settings=connection_options)
def restore(
    file: Annotated[Path, typer.Argument(help="A snapshot, or a recording: its end.")],
    settings: "Settings",
    same_inputs: Annotated[
        bool,
        typer.Option(
            "--same-inputs",
            help="The input topics are the recorded ones: go on behind the last commit. Otherwise "
            "reading begins with what they hold.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Prove the file's state, and write nothing.")
    ] = False,
) -> None:
    """Write the state of a snapshot or recording into topics that hold none, as after the loss of
    a cluster."""
    from streaming.replay import make_state, read_recording, write_state
    from streaming.settings import core_configuration

    recording = read_recording(file)
    state = make_state(recording, core_configuration(settings), same_inputs=same_inputs)
    if not dry_run:
        options = settings.resolved_kafka_options()
        write_state(state, settings.kafka.bootstrap_servers, settings.topics.prefix, options)
    done = "would be written" if dry_run else "written"
    typer.echo(
        f"{format_count(len(state.records), 'record')} {done}: cell {state.cell}, commit "
        f"{state.sequence}, digest {state.digest}"
    )
