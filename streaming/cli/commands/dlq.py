"""`placer dlq show|redrive`: what was refused and why, and sending it again."""

from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli.options import Output, OutputOption, connection_options, with_options
from streaming.cli.render.console import escape_control, tell
from streaming.cli.times import time_text

if TYPE_CHECKING:
    from streaming.requests import DeadLetter
    from streaming.settings import Settings

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
    from streaming.brokers import Reachability
    from streaming.requests import read_letters
    from streaming.signals import stop_on_signals

    show_letter = _show_json if output is Output.JSON else _show_text
    reachability = Reachability(settings.kafka.bootstrap_servers, tell) if follow else None
    with stop_on_signals() as stop:
        for letter in read_letters(settings, follow, reachability):
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
    from streaming.requests import choose_letters, read_letters, redrive_letters

    if not ids and reason is None:
        raise typer.BadParameter("name letters with --id, or all of a kind with --reason")
    letters = [letter for letter in read_letters(settings) if letter is not None]
    chosen, missing = choose_letters(letters, ids or [], reason)
    failed = len(missing)
    for name in missing:
        typer.secho(
            f"{name}: there is no such letter; see: placer dlq show", fg=typer.colors.RED, err=True
        )
    for each in redrive_letters(settings, chosen, only_try=dry_run):
        letter = each.letter
        if each.refusal is not None:
            failed += 1
            typer.secho(str(each.refusal), fg=typer.colors.RED, err=True)
        else:
            done = "would be sent" if dry_run else "sent"
            typer.echo(f"{letter.id} {letter.place} {_key(letter)}: {done}")
    if failed:
        raise typer.Exit(EXIT_NOT_ALL)


def _show_text(letter: "DeadLetter") -> None:
    at = letter.header("timestamp")
    typer.echo(
        f"{letter.id}  {time_text(int(at)) if at.isdecimal() else '-'}  "
        f"{letter.header('reason')}  {letter.place}  {_key(letter)}"
    )
    again = f" (sent again from {letter.redriven_from})" if letter.redriven_from else ""
    typer.echo(f"    {escape_control(letter.header('message'))}{again}")


def _show_json(letter: "DeadLetter") -> None:
    import orjson

    typer.echo(orjson.dumps(letter.body()))


def _key(letter: "DeadLetter") -> str:
    key = letter.record.key
    return "-" if key is None else escape_control(key)
