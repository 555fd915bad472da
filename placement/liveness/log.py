"""Holds the records of one partition of the nodes log, and the table's verdicts about them.

Heartbeats, which are nearly all records, are columns; statements and ticks are values. The shell
packs them from Kafka's records, in any cut.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placement.model import Code, FlapHistory, Liveness, Lives, NodeAttributes, Reason, Reporting


class Registration(NamedTuple):
    """Holds the attributes of a node that may hold replicas.

    `external`: only a detector decides whether it lives. `replaces`: the incarnation that this one
    takes over from at once.
    """

    attributes: NodeAttributes
    external: bool = False
    replaces: str | None = None


class LocalityChange(NamedTuple):
    """Holds a node's new location; `tags` None: they stay as they are."""

    location: str
    tags: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class Unregistration:
    """Ends a node's membership for good."""


@dataclass(frozen=True, slots=True)
class LastHeartbeat:
    """Announces the end of a process that comes back."""


class ReportedStatus(StrEnum):
    """Holds a node's status by an external detector, as the node's record has it."""

    UP = "reported up"
    DOWN = "reported down"


class LivenessReport(NamedTuple):
    """Holds an external detector's report on a node."""

    status: ReportedStatus


StatementBody = Registration | LocalityChange | Unregistration | LastHeartbeat | LivenessReport


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Holds a heartbeat; `elapsed`: ms on the partition's clock since the batch's first record."""

    offset: int
    elapsed: int
    at: int
    node_id: str
    incarnation: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Statement:
    """Holds one message about a node other than a plain heartbeat.

    The type of `body` says which. `body_hash` tells a repeat from a conflict. `record` belongs to
    the shell, which gets it back unread.
    """

    offset: int
    elapsed: int
    at: int
    node_id: str
    incarnation: str
    sequence: int
    body: StatementBody
    body_hash: str
    record: Any = None


@dataclass(frozen=True, slots=True)
class Tick:
    """Holds a tick of the application, the only moment at which silence is decided about.

    `partitions`: how many the application knows; 0 where it does not say.
    """

    offset: int
    elapsed: int
    at: int
    partitions: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Heartbeats:
    """Holds heartbeats as columns, one row each, in the order of their offsets.

    `nodes` and `lives` are positions in `node_ids` and `incarnations`. `elapsed` and `at`: ms.
    """

    offsets: NDArray[np.int64]
    elapsed: NDArray[np.int64]
    at: NDArray[np.int64]
    nodes: NDArray[np.int32]
    node_ids: Sequence[str]
    lives: NDArray[np.int32]
    incarnations: Sequence[str]
    sequences: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Iterable[Heartbeat]) -> "Heartbeats":
        """Make columns of these heartbeats, which come in the order of their offsets."""
        beats = list(rows)
        node_ids = {beat.node_id: 0 for beat in beats}
        incarnations = {beat.incarnation: 0 for beat in beats}
        for names in (node_ids, incarnations):
            names.update((name, code) for code, name in enumerate(names))
        return cls(
            np.array([beat.offset for beat in beats], np.int64),
            np.array([beat.elapsed for beat in beats], np.int64),
            np.array([beat.at for beat in beats], np.int64),
            np.array([node_ids[beat.node_id] for beat in beats], np.int32),
            tuple(node_ids),
            np.array([incarnations[beat.incarnation] for beat in beats], np.int32),
            tuple(incarnations),
            np.array([beat.sequence for beat in beats], np.int64),
        )

    def __len__(self) -> int:
        return len(self.offsets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Heartbeats) and self.rows() == other.rows()

    __hash__ = None  # type: ignore[assignment]  # columns can be written to

    def rows(self) -> list[Heartbeat]:
        """List the heartbeats, one value each."""
        columns = (self.offsets, self.elapsed, self.at, self.nodes, self.lives, self.sequences)
        return [
            Heartbeat(offset, elapsed, at, self.node_ids[node], self.incarnations[life], sequence)
            for offset, elapsed, at, node, life, sequence in zip(
                *(column.tolist() for column in columns), strict=True
            )
        ]

    def select(self, chosen: NDArray[np.generic]) -> "Heartbeats":
        """Pick rows by a mask or by positions."""
        return Heartbeats(
            self.offsets[chosen],
            self.elapsed[chosen],
            self.at[chosen],
            self.nodes[chosen],
            self.node_ids,
            self.lives[chosen],
            self.incarnations,
            self.sequences[chosen],
        )

    def merge(self, other: "Heartbeats") -> "Heartbeats":
        """Join the rows of both, in the order of their offsets."""
        if not len(other):
            return self
        joined = Heartbeats(
            np.concatenate([self.offsets, other.offsets]),
            np.concatenate([self.elapsed, other.elapsed]),
            np.concatenate([self.at, other.at]),
            np.concatenate([self.nodes, other.nodes + np.int32(len(self.node_ids))]),
            (*self.node_ids, *other.node_ids),
            np.concatenate([self.lives, other.lives + np.int32(len(self.incarnations))]),
            (*self.incarnations, *other.incarnations),
            np.concatenate([self.sequences, other.sequences]),
        )
        return joined.select(np.argsort(joined.offsets, kind="stable"))


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """Holds a stretch of one partition, however it was cut.

    `elapsed` counts from its first record.
    """

    partition: int
    first_at: int
    last_at: int
    elapsed: int
    beats: Heartbeats = field(default_factory=lambda: Heartbeats.of(()))
    statements: Sequence[Statement] = ()
    ticks: Sequence[Tick] = ()


_BODY_WORDS: Mapping[type[StatementBody], str] = {
    Registration: "registration",
    LocalityChange: "change of location",
    Unregistration: "unregistering",
}
_REPORT_WORDS = {ReportedStatus.UP: "report up", ReportedStatus.DOWN: "report down"}
_REFUSAL_REASONS = {
    Code.INCARNATION_CONFLICT: "a later incarnation has taken over",
    Code.INCARNATION_UNKNOWN: "this incarnation has not registered",
    Code.SEQUENCE_CONFLICT: "its sequence was already used with another body",
    Code.NODE_NOT_EXTERNAL: "the node is not registered with liveness 'external'",
    Code.QUOTA_EXCEEDED: "the node is new, and no further node is admitted",
    Code.NODE_UNKNOWN: "no node of this id has registered",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Holds a change of a node's condition at a record of the log, or the refusal of that record.

    `flaps`, `reporting` and `lives` are None where they are unchanged.
    """

    at: int
    offset: int
    node_id: str
    incarnation: str
    sequence: int
    liveness: Liveness
    statement: Statement | None = None
    refused: Reason | None = None
    flaps: FlapHistory | None = None
    reporting: Reporting | None = None
    lives: Lives | None = None


def refusal(statement: Statement, holder: str, code: Code) -> Verdict:
    """Refuse a statement; `holder` is the end of the sentence that says why."""
    body = statement.body
    report = body.status if isinstance(body, LivenessReport) else None
    what = _BODY_WORDS[type(body)] if report is None else _REPORT_WORDS[report]
    who = f"{statement.node_id}: {what} of incarnation {statement.incarnation}"
    reason = Reason(code, f"{who} refused: {_REFUSAL_REASONS[code]}{holder and '; '}{holder}")
    return Verdict(
        statement.at,
        statement.offset,
        statement.node_id,
        statement.incarnation,
        statement.sequence,
        Liveness.UP,
        statement,
        reason,
    )


def conflict_reason(node_id: str, holder: str, other: str) -> Reason:
    """Make the reason for two lives of a node that both go on speaking: its id is used twice."""
    message = (
        f"two processes use the node id {node_id}: incarnation {holder} holds it, incarnation "
        f"{other} goes on sending and is refused; stop one of them or give it an id of its own"
    )
    return Reason(Code.INCARNATION_CONFLICT, message)
