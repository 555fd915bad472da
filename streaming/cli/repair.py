"""`placer repair`: the state topics as the journal says they should be."""

from pathlib import Path
from typing import Annotated

import typer

from placement.wording import counted
from streaming.cli.options import Bootstrap, Config, Prefix, connection


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "repair",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer repair --dry-run --bootstrap kafka:9092\n\n"
        "  placer repair --snapshot monday.ndjson    [dim]# the journal's beginning is gone[/dim]"
        "\n\nStop the application first: whoever repairs is the writer, and it would end.",
    )(repair)


def repair(
    snapshot_file: Annotated[
        Path | None,
        typer.Option("--snapshot", help="Start here, not at the journal's beginning."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be written, and write nothing.")
    ] = False,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
) -> None:
    """Restore damaged records of the state topics from the journal.

    Nothing is written unless the result has the digest of the commit marker.
    """
    from streaming.configuration import configuration
    from streaming.recording import read_recording
    from streaming.repairing import find_damage, write_repair

    settings = connection(config, bootstrap, prefix)
    options = settings.resolved_kafka_options()
    address, begin = settings.kafka.bootstrap_servers, settings.topics.prefix
    start = read_recording(snapshot_file).snapshot if snapshot_file else None
    mended = find_damage(address, begin, configuration(settings), start, options)
    for each in mended:
        key = (each.record.key or b"").decode("utf-8", "backslashreplace")
        typer.echo(f"{each.record.topic} {key}: {each.was}")
    if mended and not dry_run:
        write_repair(address, begin, settings.cell, mended, options)
    count = counted(len(mended), "record")
    was = "was" if len(mended) == 1 else "were"
    done = "would be written" if dry_run else f"{was} written again"
    typer.echo(f"{count} {done}" if mended else "nothing is damaged")
