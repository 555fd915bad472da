"""`placer nearest FILE`: which replica each client of a cluster file should read from."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.answers import File, answer_documents
from streaming.cli.options import FailOn, FailOnOption, Output, OutputOption, PluginOption

if TYPE_CHECKING:
    from streaming.offline_nearest import Served


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "nearest",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer nearest deploy/examples/nearest.yaml\n\n"
        "  placer nearest cluster.yaml --exact-rack    [dim]# as Kafka's own selector[/dim]\n\n"
        "  placer nearest cluster.yaml --output json | jq -r '.nearest[].replica'\n\n"
        "The file lists `clients: [{id: c1, location: /eu/az1/r2}]` and, if known, "
        "`replica_state: {n1: {offset: 100, lag_ms: 5}}`. Dead replicas are never chosen, suspect "
        "ones only where no other lives. Exit code 1: a client finds no replica.",
    )(nearest)


def nearest(
    file: File,
    exact_rack: Annotated[
        bool,
        typer.Option(
            "--exact-rack",
            help="Only an equal location counts; else the leader serves (KIP-392).",
        ),
    ] = False,
    output: OutputOption = Output.TEXT,
    fail_on: FailOnOption = None,
    _plugin: PluginOption = None,
) -> None:
    """Choose the replica to read from: the client's node, else the longest common location.

    Among equals the freshest, then the leader, then the highest id.
    """
    from streaming.offline_nearest import Served, served

    answer_documents(
        file,
        output,
        lambda document: served(document, exact_rack),
        Served.body,
        _show,
        lambda answer: answer.unanswered and fail_on is not FailOn.NEVER,
    )


def _show(console: Any, answer: "Served") -> None:
    from rich.table import Table

    if not answer.placed.cluster.clients:
        console.print("the file lists no clients", style="yellow")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for column in ("client", "shard", "replica", "why"):
        table.add_column(column)
    for row in answer.choices:
        shard = row["stream"] if row["shard"] is None else f"{row['stream']}/{row['shard']}"
        chosen = row["replica"] or "-"
        table.add_row(row["client"], shard, chosen, row["reason"])
    # Whole sentences, whatever the width: a person wants to read them, a pipe wants lines.
    console.print(table, width=None if console.is_terminal else 1000)
