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
        help="Plan as if this node or domain were to be emptied; repeatable.",
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
        help="What is assigned now, as kafka-reassign-partitions writes it, in place of the "
        "replicas that the cluster file lists. Topics it does not list become streams.",
    ),
]

UntilBalanced = Annotated[
    bool,
    typer.Option(
        "--until-balanced",
        help="Plan wave after wave, each under the limits, until nothing is left.",
    ),
]

PlanOutputOption = Annotated[
    PlanOutput,
    typer.Option(
        "--output",
        help="text for people, json for programs, kafka for kafka-reassign-partitions "
        "(a line per wave).",
    ),
]

Rollback = Annotated[
    Path | None,
    typer.Option(
        "--rollback",
        metavar="FILE",
        help="Write the present assignment of what is moved, as kafka-reassign-partitions "
        "reads it: the way back.",
    ),
]

Save = Annotated[
    Path | None,
    typer.Option("--save", metavar="FILE", help="Keep the plan with the hash of its impact."),
]

Verify = Annotated[
    str | None,
    typer.Option(
        "--verify",
        metavar="FILE",
        help="Plan nothing: hold a saved plan against the cluster file, and say what has "
        "changed of what it rests on.",
    ),
]
Expect = Annotated[
    str | None,
    typer.Option(
        "--expect",
        metavar="HASH",
        help="Refuse to answer where the plan's impact has not this hash: what was seen before is "
        "not what would be done now.",
        show_default=False,
    ),
]
