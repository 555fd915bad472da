"""Events: the recorded facts that a batch applies, in their order.

All are immutable; `at` is the broker's append time in milliseconds since the epoch (UTC). The
shell makes them from input messages and from the verdicts of the liveness table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from placement.model.flaps import FlapHistory
from placement.model.node import Amounts, Lives, NodeAttributes, Tokens
from placement.model.records import AdministrativeState, Guard, Liveness, Reporting


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node's condition changed. `attributes` is set by a registration; a locality change sets
    `location` (and `tags`, if it carries any) instead. `administrative`, `guard`, `flaps`,
    `reporting` and `lives` stay as they were where they are None."""

    at: int
    node_id: str
    incarnation: str
    sequence: int
    liveness: Liveness
    attributes: NodeAttributes | None = None
    location: str | None = None
    tags: tuple[tuple[str, str], ...] | None = None
    body_hash: str = ""
    administrative: AdministrativeState | None = None
    guard: Guard | None = None
    flaps: FlapHistory | None = None
    reporting: Reporting | None = None
    lives: Lives | None = None


@dataclass(frozen=True, slots=True)
class StreamRequested:
    """Request of a stream, in full.

    `policy` is the structured form, as given. `uid` tells apart streams that have one name after
    each other. `adopt`: an `Adoption`, of a creation that brings no lists. `expected_load`: of each
    shard, until it is reported.
    """

    at: int
    stream: str
    sequence: int
    shards: int
    replication_factor: int
    placement_policies: str | None = None
    policy: Mapping[str, Any] | None = None
    quorum: str | int | None = None
    body_hash: str = ""
    replicas: tuple[tuple[str, ...], ...] | None = None
    shard_tokens: Tokens | None = None
    dimension: str | None = None
    ranges: tuple[str, ...] | None = None
    repair: str | None = None
    uid: str | None = None
    adopt: str | None = None
    expected_load: Amounts | None = None


@dataclass(frozen=True, slots=True)
class StreamCreated(StreamRequested):
    """A stream asks for placement."""


@dataclass(frozen=True, slots=True)
class StreamAltered(StreamRequested):
    """A stream asks for something else from now on. `replicas` counts for shards that have none."""


@dataclass(frozen=True, slots=True)
class StreamDropped:
    """A stream is gone, and its replicas with it."""

    at: int
    stream: str
    sequence: int
    body_hash: str = ""
    uid: str | None = None


class AckKind(StrEnum):
    """Kind of an executor's acknowledgement."""

    ACCEPTED = "accepted"
    PROGRESSED = "progressed"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class MoveAcked:
    """An executor acknowledged a move.

    Without `move_id` it means the open move of the shard, or, if the executor has stopped, all of
    the shard's moves that were called off. `bytes_done` and `bytes_total` are of progress.
    """

    at: int
    kind: AckKind
    move_id: str | None
    stream: str
    shard: int
    reason: str | None = None
    bytes_done: int | None = None
    bytes_total: int | None = None
    uid: str | None = None


class Action(StrEnum):
    """Kind of an operator's request."""

    DRAIN = "drain"
    UNDRAIN = "undrain"
    MAINTENANCE = "maintenance"
    CORDON = "cordon"
    UNCORDON = "uncordon"
    APPROVE_RELOCATION = "approve_relocation"
    OVERRIDE_HOLD = "override_hold"
    CANCEL_MOVE = "cancel_move"
    REBALANCE = "rebalance"
    FORGET = "forget"
    RELEASE = "release"
    CONFIRM_LOAD = "confirm_load"
    HANDOVER = "handover"


@dataclass(frozen=True, slots=True)
class LinksMeasured:
    """A node has measured round trips to other locations, in ms; None where nothing answered."""

    at: int
    node_id: str
    rtt_ms: tuple[tuple[str, float | None], ...]


@dataclass(frozen=True, slots=True)
class LocationResolved:
    """The authority `source` says where a node stands; None with the reason why it cannot."""

    at: int
    node_id: str
    location: str | None
    source: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class OperatorAsked:
    """An operator asks for something. `target` is a node, a domain (`/eu/az1`), what a hold is
    called, or a move; `expected_hash` the impact that the operator has seen; `ttl_ms` when it ends
    by itself."""

    at: int
    request_id: str
    action: Action
    target: str
    expected_hash: str | None = None
    ttl_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ReplicaLost:
    """An executor's word that a replica is gone although its node lives: a disk has failed."""

    at: int
    stream: str
    shard: int
    node_id: str
    reason: str | None = None
    uid: str | None = None


@dataclass(frozen=True, slots=True)
class ReplicasObserved:
    """An executor's word on the replicas that a shard has now, the one that is to lead first.

    `epoch` is that of the last assignment which the executor has carried out. `in_sync` are the
    nodes with a complete replica; None: all of them. `following`: the lists of the shards after
    this one, of a stream that waits for them.
    """

    at: int
    stream: str
    shard: int
    epoch: int
    replicas: tuple[str, ...]
    leader: str | None = None
    in_sync: tuple[str, ...] | None = None
    uid: str | None = None
    following: tuple[tuple[str, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class ReportedLoad:
    """A node's word on one of its shards: smoothed, and outside the band around its last word."""

    stream: str
    shard: int
    amounts: Amounts
    uid: str | None = None


@dataclass(frozen=True, slots=True)
class SuspectedLoad:
    """A report that is held back, because it is many times `before`."""

    stream: str
    shard: int
    resource: str
    amount: int
    before: int


@dataclass(frozen=True, slots=True)
class LoadsReported:
    """A node's loads have changed by more than the filter of reports lets pass."""

    at: int
    node_id: str
    loads: tuple[ReportedLoad, ...]
    suspected: tuple[SuspectedLoad, ...] = ()


Event = (
    NodeChanged
    | StreamCreated
    | StreamAltered
    | StreamDropped
    | MoveAcked
    | ReplicaLost
    | ReplicasObserved
    | OperatorAsked
    | LocationResolved
    | LinksMeasured
    | LoadsReported
)
