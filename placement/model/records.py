"""Records that the core hands out: decisions, assignments, moves, node views, violations.

All are immutable. Times are milliseconds since the epoch in UTC and are called `at` or `*_at`;
the core never asks a clock. The shell translates them from and to the wire in `streaming.codec`.

What was published, as a reconciler is rebuilt from it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from placement.model.alerts import Alert, Answer
from placement.model.node import Amounts, Lives, NodeAttributes, Tokens
from placement.model.reasons import Reason

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    IntColumn = Sequence[int] | NDArray[np.integer]


class Liveness(StrEnum):
    """Verdict of the failure detector on a node."""

    UP = "up"
    SUSPECT = "suspect"
    DEAD = "dead"
    UNREGISTERED = "unregistered"

    @property
    def is_gone(self) -> bool:
        """Return whether nothing lives on the node."""
        return self in (Liveness.DEAD, Liveness.UNREGISTERED)


class AdministrativeState(StrEnum):
    """Order of the operator for a node; every one but `none` keeps new replicas away.

    A draining node is to be emptied. One in maintenance or cordoned keeps what it has.
    """

    NONE = "none"
    CORDONED = "cordoned"
    MAINTENANCE = "maintenance"
    DRAINING = "draining"


class Guard(StrEnum):
    """Reason why a live node gets no new replicas.

    It has flapped (`held_down`), or its location is in doubt (`quarantined`).
    """

    NONE = "none"
    HELD_DOWN = "held_down"
    QUARANTINED = "quarantined"


class Outcome(StrEnum):
    """The answer to a stream event."""

    PLACED = "placed"
    DEGRADED = "degraded"
    PARTIAL = "partial"
    WAITING = "waiting"
    REJECTED = "rejected"
    DROPPED = "dropped"


class MoveKind(StrEnum):
    """Task of a move's executor.

    `leader` moves no data and is told by the order of the assignment's list alone.
    """

    REPLACE = "replace"
    ADD = "add"
    REMOVE = "remove"
    LEADER = "leader"


class Cause(StrEnum):
    """Cause of a move, the most urgent first."""

    UNDER_REPLICATED = "under_replicated"
    LEADER = "leader"
    REQUIRED_RULE = "required_rule"
    DRAIN = "drain"
    PREFERRED_RULE = "preferred_rule"
    SURPLUS = "surplus"
    BALANCE = "balance"


class RepairMode(StrEnum):
    """Scope of repair for a stream: everything, or only dead and missing replicas."""

    ALL = "all"
    DEAD_ONLY = "dead_only"


class Adoption(StrEnum):
    """How a stream that has replicas brings their lists, where its creation does not hold them."""

    OBSERVED = "observed"


class MoveState(StrEnum):
    """Life of a move; everything after `accepted` is final."""

    ISSUED = "issued"
    ACCEPTED = "accepted"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"

    @property
    def is_open(self) -> bool:
        """True if the move still occupies its shard."""
        return self in _OPEN

    @property
    def is_called_off(self) -> bool:
        """True if the placer ended the move, so that its executor must be informed."""
        return self in _CALLED_OFF


_OPEN = (MoveState.ISSUED, MoveState.ACCEPTED)
_CALLED_OFF = (MoveState.CANCELLED, MoveState.SUPERSEDED, MoveState.EXPIRED)


class ViolationClass(StrEnum):
    """Says if a violation can be repaired, and when."""

    FIXABLE = "fixable"
    UNFIXABLE = "unfixable"
    DEFERRED = "deferred"


# Records: the state of record, one per key. Those that a batch may bring thousands of are tuples,
# which are made in a fraction of the time.

_Record = TypeVar("_Record", bound=tuple[Any, ...])


def make_records(kind: type[_Record], fields: Iterable[tuple[Any, ...]]) -> list[_Record]:
    """Make many records that are tuples, each of all its fields in their order.

    It does what `_make` of their kind does, without a call for each.
    """
    return [*map(tuple.__new__, repeat(kind), fields)]


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A stream's request with defaults filled in, as the decision echoes it.

    `shard_tokens`: where each shard starts on a ring; `dimension`: the scope in which the stream's
    load is counted; `ranges`: a label per shard, whose load range-aware strategies keep even;
    `repair`: a `RepairMode`, all where it is not set; `uid`: tells apart streams that have one name
    after each other, as their creation gave it; `adopt`: an `Adoption`, as their creation gave it;
    `expected_load`: of each shard, until it is reported.
    """

    stream: str
    shards: int
    replication_factor: int
    policy: Mapping[str, Any]
    placement_policies: str | None = None
    quorum: str | int = "majority"
    shard_tokens: Tokens | None = None
    dimension: str | None = None
    ranges: tuple[str, ...] | None = None
    repair: str | None = None
    uid: str | None = None
    adopt: str | None = None
    expected_load: Amounts | None = None

    def token(self, shard: int) -> int | str | None:
        """Return the shard's explicit place on a ring, if it has one."""
        tokens = self.shard_tokens
        return tokens[shard] if tokens is not None and shard < len(tokens) else None


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a stream event; key: stream. `spec` is in force; `requested` is what was asked
    for last, where that was refused for the `reasons` and changes nothing."""

    stream: str
    sequence: int
    revision: int
    outcome: Outcome
    spec: StreamSpec
    body_hash: str
    strategy: str
    shards_placed: int
    replicas_missing: int
    reasons: tuple[Reason, ...]
    warnings: tuple[Reason, ...]
    decided_at: int
    requested: StreamSpec | None = None


class Assignment(NamedTuple):
    """The nodes of one shard's replicas, leader first; key: stream/shard.

    `roles` says what each of them is for, where the policy keeps copies aside: `replica`, or the
    name of the role. `uid` is that of the stream.
    """

    stream: str
    shard: int
    epoch: int
    replicas: tuple[str, ...]
    adding: tuple[str, ...]
    removing: tuple[str, ...]
    move_id: str | None
    decided_at: int
    roles: tuple[str, ...] | None = None
    uid: str | None = None


class Move(NamedTuple):
    """A command to the executor in its current state; key: move_id. `add` is None where a replica
    is only removed, `remove` where one is only added. `rate_bytes_per_second` bounds the copy and
    ends with it. `reminded`: how often the executor was reminded that the move was called off.
    `renewed_at`: when progress extended the deadline last, with the bytes that were copied by then.
    `leader`: the replica that is to lead, of a move of that kind, which adds and removes none.
    `bytes`: what the copy is expected to transfer, where that is known.
    """

    move_id: str
    kind: MoveKind
    stream: str
    shard: int
    slot: int
    remove: str | None
    add: str | None
    expected_epoch: int
    state: MoveState
    cause: str
    reason: Reason
    deadline: int
    issued_at: int
    source: str | None = None
    supersedes: str | None = None
    ended_at: int | None = None
    rate_bytes_per_second: int | None = None
    reminded: int | None = None
    renewed_at: int | None = None
    bytes_done: int | None = None
    bytes_total: int | None = None
    uid: str | None = None
    leader: str | None = None
    bytes: int | None = None


class ShardLoad(NamedTuple):
    """The load of a shard, as it is known from the word of `node_id`; key: stream/shard."""

    stream: str
    shard: int
    amounts: Amounts
    node_id: str
    at: int


@dataclass(frozen=True, slots=True)
class Transition:
    """A node's liveness changed."""

    at: int
    liveness: Liveness


@dataclass(frozen=True, slots=True)
class HoldDown:
    """The time for which a flapping node receives nothing; kept, as the next one is longer."""

    since: int
    until: int
    active: bool = True


@dataclass(frozen=True, slots=True)
class Reporting:
    """Liveness mode of a node: heartbeats, or an external detector with its last report.

    The report's sequence is -1 before the first one.
    """

    external: bool = False
    sequence: int = -1
    said: str = ""


@dataclass(frozen=True, slots=True)
class Pending:
    """Place and tags that are not in force yet; `meant`: the known place that a typo may mean."""

    location: str
    tags: tuple[tuple[str, str], ...]
    impact_hash: str
    meant: str | None = None


@dataclass(frozen=True, slots=True)
class NodeView:
    """The reconciler's view of a node; key: node_id.

    `transitions` are the latest ones, by which flapping is told; `claimed` is the location the node
    claims where that is not in force or not what counts, `source` who says where it stands,
    `quarantine` why its place is not trusted, `lives` the lives of its process besides
    `incarnation`.
    """

    node_id: str
    incarnation: str
    sequence: int
    body_hash: str
    revision: int
    attributes: NodeAttributes
    liveness: Liveness
    since: int
    administrative: AdministrativeState = AdministrativeState.NONE
    guard: Guard = Guard.NONE
    transitions: tuple[Transition, ...] = ()
    hold_down: HoldDown | None = None
    reporting: Reporting = Reporting()
    claimed: str | None = None
    pending: Pending | None = None
    quarantine: Reason | None = None
    source: str = "claim"
    lives: Lives = field(default_factory=Lives)

    @property
    def status(self) -> str:
        """The strongest of the three fields in one word."""
        return status_of(self.liveness, self.administrative, self.guard)


# What says most about a node comes first: whether it is there, whether it is to be emptied, whether
# it is meant to be away, whether it is trusted.
_STATUSES = (
    Liveness.UNREGISTERED,
    Liveness.DEAD,
    Guard.QUARANTINED,
    AdministrativeState.DRAINING,
    AdministrativeState.MAINTENANCE,
    Guard.HELD_DOWN,
    Liveness.SUSPECT,
    AdministrativeState.CORDONED,
)


@cache
def status_of(liveness: Liveness, administrative: AdministrativeState, guard: Guard) -> str:
    """Return the strongest of a node's three conditions in one word."""
    condition = (liveness, administrative, guard)
    return next((str(each) for each in _STATUSES if each in condition), str(Liveness.UP))


class Violation(NamedTuple):
    """A rule that a shard, a stream or a node breaks. `shard` is None for a whole stream; `stream`
    is None too for the node that `domain` names. Only those of shards are published."""

    stream: str | None
    shard: int | None
    rule: str
    strength: str
    count: int  # type: ignore[assignment]  # what a tuple counts is of no interest
    limit: int
    violation_class: ViolationClass
    reason: Reason
    since: int
    level: str | None = None
    domain: str | None = None

    @property
    def key(self) -> tuple[str, int]:
        """The stream and number of the shard; there is one in every violation of a shard."""
        assert self.stream is not None
        assert self.shard is not None
        return self.stream, self.shard


@dataclass(frozen=True, slots=True)
class Memory:
    """One thing that the reconciler remembers beside the records above; key: kind/name.

    `body` is plain JSON: what it means is its kind's affair. Whatever is decided from it is
    decided the same after a restart, because a restart reads it back.
    """

    kind: str
    name: str
    body: Mapping[str, Any]
    at: int


@dataclass(frozen=True, slots=True)
class Refused:
    """An event that was not applied; `index` is its position in the batch."""

    index: int
    reason: Reason


@dataclass(slots=True)
class Ready:
    """Everything one call of `Reconciler.apply` decided, in order; `None` is a tombstone.

    `dropped` are shards whose assignments are taken away, before those in `assignments` are
    written; `forgotten` are streams whose decisions are.
    """

    decisions: dict[str, Decision] = field(default_factory=dict)
    forgotten: list[str] = field(default_factory=list)
    dropped: list[tuple[str, int]] = field(default_factory=list)
    assignments: dict[tuple[str, int], Assignment] = field(default_factory=dict)
    moves: dict[str, tuple[Move, bool]] = field(default_factory=dict)
    topology: dict[str, NodeView | None] = field(default_factory=dict)
    violations: dict[tuple[str, int], tuple[Violation, ...]] = field(default_factory=dict)
    memory: dict[tuple[str, str], Memory | None] = field(default_factory=dict)
    loads: dict[tuple[str, int], ShardLoad | None] = field(default_factory=dict)
    alerts: list[Alert] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """True if there is nothing to publish."""
        records = (self.decisions, self.assignments, self.moves, self.topology, self.violations)
        gone = self.dropped or self.forgotten
        told = self.alerts or self.answers
        return not (any(records) or self.memory or self.loads or told or gone)


@dataclass(frozen=True, slots=True)
class AssignmentColumns:
    """Assignments at rest (no move under way, no roles) as columns: the n-th entries of `streams`,
    `shards`, `epochs` and `counts` are one of them, and so many of `nodes` as `counts` says.

    `streams` and `nodes` are places in the lists of names, in which each name stands once.
    """

    stream_names: Sequence[str]
    streams: "IntColumn"
    shards: "IntColumn"
    epochs: "IntColumn"
    counts: "IntColumn"
    node_names: Sequence[str]
    nodes: "IntColumn"

    @classmethod
    def of_lists(
        cls,
        streams: Sequence[str],
        shards: Sequence[int],
        epochs: Sequence[int],
        replicas: Sequence[Sequence[str]],
    ) -> Self:
        """Make columns of one entry for each assignment."""
        of_stream = {name: place for place, name in enumerate(dict.fromkeys(streams))}
        of_node = {name: place for place, name in enumerate(dict.fromkeys(chain(*replicas)))}
        return cls(
            [*of_stream],
            [of_stream[name] for name in streams],
            shards,
            epochs,
            [len(each) for each in replicas],
            [*of_node],
            [of_node[name] for name in chain(*replicas)],
        )


@dataclass(frozen=True, slots=True)
class Published:
    """The records that a reconciler is rebuilt from, in any order. Assignments may come one by one
    or, those at rest, in chunks of columns."""

    nodes: Iterable[NodeView] = ()
    decisions: Iterable[Decision] = ()
    assignments: Iterable[Assignment] = ()
    moves: Iterable[Move] = ()
    violations: Iterable[tuple[Violation, ...]] = ()
    memory: Iterable[Memory] = ()
    loads: Iterable[ShardLoad] = ()
    settled: Iterable[AssignmentColumns] = ()
