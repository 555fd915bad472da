"""`placer topics apply|diff|acls`: holds a cluster's topics against the catalogue."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli.acls import acls
from streaming.cli.console import Table, text_console
from streaming.cli.options import Bootstrap, Config, Output, OutputOption, Prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.admin import Change

ReplicationFactor = Annotated[
    int | None,
    typer.Option(
        "--replication-factor",
        min=1,
        help="Copies of each topic. [dim]default: topics.replication_factor of the settings, else "
        "the broker's[/dim]",
        show_default=False,
    ),
]

STYLES = {
    "create": "green",
    "configure": "cyan",
    "partitions": "cyan",
    "refused": "red",
    "ok": "dim",
}

app = typer.Typer(
    name="topics",
    help="Compare the topics of a cluster with the catalogue, or make them so.",
    epilog="[bold]Examples[/bold]\n\n"
    "  placer topics diff --bootstrap 127.0.0.1:9092    [dim]# exit code 1: they differ[/dim]\n\n"
    "  placer topics apply --bootstrap 127.0.0.1:9092 --prefix staging.\n\n"
    "  placer topics acls --principal nodes=User:agents > acls.sh",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.command()
def apply(
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    replication_factor: ReplicationFactor = None,
    output: OutputOption = Output.TEXT,
    config: Config = None,
) -> None:
    """Create missing topics and mend settings; nothing is ever deleted.

    Exit code 1 when a difference is left that cannot be mended.
    """
    changes = _changes("apply", bootstrap, prefix, replication_factor, config)
    _show(changes, output)
    if any(change.action == "refused" for change in changes):
        raise typer.Exit(1)


@app.command()
def diff(
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    replication_factor: ReplicationFactor = None,
    output: OutputOption = Output.TEXT,
    config: Config = None,
) -> None:
    """Show what apply would do, and change nothing. Exit code 1 when something differs."""
    changes = _changes("diff", bootstrap, prefix, replication_factor, config)
    _show(changes, output)
    if any(change.action != "ok" for change in changes):
        raise typer.Exit(1)


app.command()(acls)


def _changes(
    what: str,
    bootstrap: str | None,
    prefix: str | None,
    replication_factor: int | None,
    config: Path | None,
) -> "list[Change]":
    from streaming.admin import apply_topics, diff_topics
    from streaming.settings_sources import load_settings

    settings = load_settings(
        config,
        {
            "kafka.bootstrap_servers": bootstrap,
            "topics.prefix": prefix,
            "topics.replication_factor": replication_factor,
        },
    )
    carry_out = apply_topics if what == "apply" else diff_topics
    return carry_out(
        settings.kafka.bootstrap_servers,
        settings.topics.prefix,
        settings.topics.replication_factor,
        options=settings.resolved_kafka_options(),
    )


def _show(changes: "Sequence[Change]", output: Output) -> None:
    if output is Output.JSON:
        import json
        from dataclasses import asdict

        typer.echo(json.dumps({"changes": [asdict(change) for change in changes]}))
        return
    from rich.text import Text

    rows = [
        (change.topic, Text(change.action, STYLES[change.action]), change.detail)
        for change in changes
    ]
    text_console().print(Table(("topic", "action", "detail"), rows))
