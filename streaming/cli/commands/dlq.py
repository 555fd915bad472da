"""`placer dlq show|redrive`: what was refused and why, and sending it again."""

from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli.options import Output, OutputOption, connection_options, with_options
from streaming.cli.render.console import escape_control, tell
from streaming.cli.times import time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.requests import DeadLetter
    from streaming.settings import Settings

# How soon the command notices Ctrl-C.
POLL_SECONDS = 0.2
EXIT_NOT_ALL = 1

ReasonOption = Annotated[
    str | None,
    typer.Option("--reason", help="Only letters with this reason code.", show_default=False),
]

app = typer.Typer(
    name="dlq",
    help="Dead letters: records that could not be applied.",
    epilog="[bold]Examples[/bold]\n\n"
    "  placer dlq show --reason KEY_MISMATCH\n\n"
    "  placer dlq show --follow --output json\n\n"
    "  placer dlq redrive --id 0/17 --id 0/21\n\n"
    "  placer dlq redrive --reason UNKNOWN_TYPE --dry-run",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.command()
@with_options(settings=connection_options)
def show(
    settings: "Settings",
    reason: ReasonOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Follow new letters until Ctrl-C.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show dead letters: id, time, reason, where the record lay, its key, and the sentence."""
    from streaming.cli.signals import stop_on_signals

    show_letter = _show_json if output is Output.JSON else _show_text
    with stop_on_signals() as stop:
        for letter in _letters(settings, follow):
            if stop.is_set():
                return
            if letter is not None and reason in (None, letter.header("reason")):
                show_letter(letter)


@app.command()
@with_options(settings=connection_options)
def redrive(
    settings: "Settings",
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id",
            help="Id of a letter, as placer dlq show prints it; repeatable.",
            show_default=False,
        ),
    ] = None,
    reason: ReasonOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent, and send nothing.")
    ] = False,
) -> None:
    """Send refused records again to their topics, as they were.

    Letters whose record was sent again already are left out with --reason. Exit code 1: a record
    could not be sent.
    """
    from streaming.brokers import make_producer
    from streaming.requests import RedriveRefused, redrive

    if not ids and reason is None:
        raise typer.BadParameter("name letters with --id, or all of a kind with --reason")
    options = settings.resolved_kafka_options()
    address, begin = settings.kafka.bootstrap_servers, settings.topics.prefix
    chosen, missing = _choose_letters(settings, ids or [], reason)
    failed = len(missing)
    for name in missing:
        typer.secho(
            f"{name}: there is no such letter; see: placer dlq show", fg=typer.colors.RED, err=True
        )
    producer = None if dry_run else make_producer(address, options)
    for letter in chosen:
        try:
            original = letter.original(address, begin, options)
            if producer is not None:
                redrive(producer, begin, letter, original)
        except RedriveRefused as error:
            failed += 1
            typer.secho(str(error), fg=typer.colors.RED, err=True)
        else:
            done = "would be sent" if dry_run else "sent"
            typer.echo(f"{letter.id} {letter.place} {_key(letter)}: {done}")
    if failed:
        raise typer.Exit(EXIT_NOT_ALL)


def _choose_letters(
    settings: "Settings", ids: list[str], reason: str | None
) -> "tuple[list[DeadLetter], list[str]]":
    """The letters that are meant, and the ids that name none."""
    letters = [letter for letter in _letters(settings, follow=False) if letter is not None]
    done = {letter.redriven_from for letter in letters}
    by_id = {letter.id: letter for letter in letters}
    chosen = [by_id[name] for name in ids if name in by_id]
    if reason is not None:
        chosen += [
            letter
            for letter in letters
            if letter.header("reason") == reason and letter.id not in done and letter not in chosen
        ]
    return chosen, [name for name in ids if name not in by_id]


def _letters(settings: "Settings", follow: bool) -> "Iterator[DeadLetter | None]":
    """All letters there are, then, if asked for, those that come; None when none has come."""
    from schemas.topics import DEAD_LETTERS
    from streaming.brokers import CommittedReader, Reachability
    from streaming.requests import DeadLetter

    address = settings.kafka.bootstrap_servers
    with CommittedReader(
        address,
        settings.topics.prefix,
        [DEAD_LETTERS],
        options=settings.resolved_kafka_options(),
        reachability=Reachability(address, tell) if follow else None,
    ) as reader:
        yield from map(DeadLetter, reader.read_to_end())
        while follow:
            yield from map(DeadLetter, reader.poll(POLL_SECONDS))
            yield None


def _show_text(letter: "DeadLetter") -> None:
    at = letter.header("timestamp")
    typer.echo(
        f"{letter.id}  {time_text(int(at)) if at.isdecimal() else '-'}  "
        f"{letter.header('reason')}  {letter.place}  {_key(letter)}"
    )
    again = f" (sent again from {letter.redriven_from})" if letter.redriven_from else ""
    typer.echo(f"    {escape_control(letter.header('message'))}{again}")


def _show_json(letter: "DeadLetter") -> None:
    import base64

    import orjson

    value = letter.record.raw
    line = {
        "id": letter.id,
        "topic": letter.header("topic"),
        **{
            name: _parse_number(letter.header(name))
            for name in ("partition", "offset", "timestamp")
        },
        **{name: letter.header(name) for name in ("stage", "reason", "message")},
        "count": letter.count,
        "offset_last": _parse_number(letter.header("offset.last")),
        "key": letter.record.key,
        "bytes": _parse_number(letter.header("value.bytes")),
        "sha256": letter.header("value.sha256"),
        "whole": letter.is_whole,
        "value": None if value is None else _as_text(value),
        "value_base64": None if value is None else base64.b64encode(value).decode(),
        "redriven_from": letter.redriven_from or None,
    }
    typer.echo(orjson.dumps(line))


def _parse_number(said: str) -> int | None:
    """A header's number; None where a letter of an older version does not have it."""
    return int(said) if said.isdecimal() else None


def _as_text(value: bytes) -> str | None:
    """The value as text, None where it is none; what a letter cut may end within a character."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character has four bytes at most, so that a cut leaves three of one.
        cut = len(value) - error.start < 4 and error.reason == "unexpected end of data"
        return value[: error.start].decode("utf-8") if cut else None


def _key(letter: "DeadLetter") -> str:
    key = letter.record.key
    return "-" if key is None else escape_control(key)
