"""`placer nearest FILE`: which replica each client of a cluster file should read from."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.documents import File, answer_documents
from streaming.cli.options import (
    FailOn,
    FailOnOption,
    Output,
    OutputOption,
    PluginOption,
    StrictOption,
)
from streaming.cli.render.report import print_table

if TYPE_CHECKING:
    from streaming.offline import NearestResult


class CloudForm(StrEnum):
    """Names the form in which region and zone labels become a location; see
    `location.cloud_form`."""

    KUBERNETES = "kubernetes"
    EC2 = "ec2"
    EC2_LEGACY = "ec2_legacy"
    GCE = "gce"


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
    locations: Annotated[
        Path | None,
        typer.Option(
            "--locations",
            metavar="FILE",
            help="Where clients without a location stand, by id or host: a mapping as for nodes "
            "(location.file).",
        ),
    ] = None,
    cloud_form: Annotated[
        CloudForm,
        typer.Option("--cloud-form", help="How a client's region and zone tags are read."),
    ] = CloudForm.KUBERNETES,
    output: OutputOption = Output.TEXT,
    fail_on: FailOnOption = None,
    strict: StrictOption = False,
    _plugin: PluginOption = None,
) -> None:
    """Choose the replica to read from: the client's node, else the longest common location.

    Among equals the freshest, then the leader, then the highest id.
    """
    from streaming.locations import read_locations
    from streaming.offline import NearestResult, choose_nearest

    known = None if locations is None else read_locations(locations)

    answer_documents(
        file,
        output,
        lambda document: choose_nearest(document, exact_rack, known, cloud_form),
        NearestResult.body,
        _show,
        lambda answer: answer.has_unanswered and fail_on is not FailOn.NEVER,
        strict=strict,
    )


def _show(console: Any, answer: "NearestResult") -> None:
    if not answer.placed.cluster.clients:
        console.print("the file lists no clients", style="yellow")
        return
    rows = [
        (
            row["client"],
            row["stream"] if row["shard"] is None else f"{row['stream']}/{row['shard']}",
            row["replica"] or "-",
            row["reason"],
        )
        for row in answer.choices
    ]
    print_table(console, ("client", "shard", "replica", "why"), rows)
