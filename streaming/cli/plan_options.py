"""The options of `placer plan`: what to plan, under which limits, what if, and where to."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Phase(StrEnum):
    """Names the moves to plan: repairs, balance, or both."""

    REPAIR = "repair"
    REBALANCE = "rebalance"
    ALL = "all"


class PlanOutput(StrEnum):
    """Names the reader of a plan: people, programs, or `kafka-reassign-partitions --execute`."""

    TEXT = "text"
    JSON = "json"
    KAFKA = "kafka"


PhaseOption = Annotated[
    Phase,
    typer.Option(
        "--phase", help="repair, rebalance, or all: repairs, then balance once none is left."
    ),
]

MaxMoves = Annotated[
    int | None,
    typer.Option("--max-moves", min=0, metavar="N", help="Limit on moves of replicas."),
]

MaxMovesPerNode = Annotated[
    int | None,
    typer.Option(
        "--max-moves-per-node",
        min=1,
        metavar="N",
        help="Limit on moves from and to each live node.",
    ),
]

Lose = Annotated[
    list[str] | None,
    typer.Option(
        "--lose",
        metavar="DOMAIN|TAG",
        help="Plan as if this domain (/eu/az1), tag (key=value) or node were dead; repeatable.",
        show_default=False,
    ),
]

Drain = Annotated[
    list[str] | None,
    typer.Option(
        "--drain",
        metavar="NODE|DOMAIN",
        help="Plan as if this node or domain were being drained; repeatable.",
        show_default=False,
    ),
]

Add = Annotated[
    str | None,
    typer.Option(
        "--add", metavar="FILE", help="Plan as if the nodes of this cluster file had joined."
    ),
]

Factors = Annotated[
    list[str] | None,
    typer.Option(
        "--rf",
        metavar="[STREAM=]N",
        help="Plan for another replication factor of a stream, or of all; repeatable.",
        show_default=False,
    ),
]

Assigned = Annotated[
    str | None,
    typer.Option(
        "--assignments",
        metavar="FILE",
        help="Present assignment, as kafka-reassign-partitions prints or takes it, instead of the "
        "replicas in the cluster file. A topic that the cluster file does not list "
        "becomes a stream.",
    ),
]

UntilBalanced = Annotated[
    bool,
    typer.Option(
        "--until-balanced",
        help="Plan wave after wave, each under the limits, until nothing is left.",
    ),
]

Rate = Annotated[
    str | None,
    typer.Option(
        "--rate",
        metavar="BYTES",
        help="Say how long the copies take where each node sends and receives so many bytes a "
        "second: 50MB, 10MiB.",
        show_default=False,
    ),
]

PlanOutputOption = Annotated[
    PlanOutput,
    typer.Option(
        "--output",
        help="text for people, json for programs, kafka for kafka-reassign-partitions "
        "(one wave; several go to --output-dir).",
    ),
]

OutputDir = Annotated[
    Path | None,
    typer.Option(
        "--output-dir",
        metavar="DIR",
        help="Write a file for kafka-reassign-partitions per wave, and one for "
        "kafka-leader-election; --output says how the plan is told besides.",
    ),
]

Squash = Annotated[
    bool,
    typer.Option(
        "--squash",
        help="State the net change of all waves as one reassignment for Kafka, which copies no "
        "replica twice. No limit holds for it.",
    ),
]

Rollback = Annotated[
    Path | None,
    typer.Option(
        "--rollback",
        metavar="FILE",
        help="Write the present assignment of the moved shards for kafka-reassign-partitions, "
        "to undo the plan.",
    ),
]

Save = Annotated[
    Path | None,
    typer.Option("--save", metavar="FILE", help="Save the plan with the hash of its impact."),
]

Verify = Annotated[
    str | None,
    typer.Option(
        "--verify",
        metavar="FILE",
        help="Compare a saved plan with the cluster file, and list what has changed of what it "
        "depends on; nothing is planned.",
    ),
]
Expect = Annotated[
    str | None,
    typer.Option(
        "--expect",
        metavar="HASH",
        help="Refuse the plan unless its impact has this hash, so that it does what was reviewed.",
        show_default=False,
    ),
]
