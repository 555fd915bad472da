"""`placer doctor`: what is not as the application needs it, and what to do."""

from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli.options import Output, OutputOption, connection_options, with_options
from streaming.cli.render.console import Table, text_console

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.doctor import DoctorResult
    from streaming.settings import Settings

EXIT_FAILED = 3
EXIT_WARNED = 1
_STYLES = {"ok": "green", "warn": "yellow", "fail": "red", "skipped": "dim"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "doctor",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer doctor --bootstrap kafka:9092\n\n"
        "  placer doctor --config placer.yaml --fix\n\n"
        "Exit code 0: all is well; 1: there are warnings; 3: something failed.",
    )(doctor)


@with_options(settings=connection_options)
def doctor(
    settings: "Settings",
    fix: Annotated[
        bool,
        typer.Option(
            "--fix", help="First fetch jars, create missing topics and correct their settings."
        ),
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Check the surroundings: Java, jars, brokers, topics, rights, transactions, the state.

    The application may be running; nothing is fenced and, without --fix, nothing is changed.
    """
    from streaming.doctor import apply_fixes, run_checks

    done = apply_fixes(settings) if fix else []
    if output is Output.TEXT:
        for line in done:
            typer.echo(line)
        findings = _table(run_checks(settings))
    else:
        import json
        from dataclasses import asdict

        findings = list(run_checks(settings))
        body = {"fixed": done, "findings": [asdict(each) for each in findings]}
        typer.echo(json.dumps(body))
    found = {each.health for each in findings}
    if "fail" in found:
        raise typer.Exit(EXIT_FAILED)
    if "warn" in found:
        raise typer.Exit(EXIT_WARNED)


def _table(findings: "Iterable[DoctorResult]") -> "list[DoctorResult]":
    from rich.text import Text

    shown = list(findings)
    rows = [
        (
            each.check,
            Text(each.health, _STYLES[each.health]),
            f"{each.said} → {each.action}" if each.action else each.said,
        )
        for each in shown
    ]
    # What was found says nothing without its end, which is what to do.
    text_console().print(Table(("check", "health", "found"), rows, first_left_out=()))
    return shown
