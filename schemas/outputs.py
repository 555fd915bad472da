"""Messages the reconciler writes (design section 5.1); their consumers ignore unknown fields.

The application builds these records as plain dicts and writes them in bulk; the models are the
contract its tests hold every record to, and the source of the published JSON Schemas.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, JsonValue

from schemas.alerts import Alert, RequestAnswered
from schemas.base import (
    Count,
    Id,
    Index,
    Items,
    Message,
    Ordinal,
    Text,
    TimeMs,
    Tokens,
    WireModel,
)
from schemas.bookkeeping import CommitMarker, Digest, JournalEntry, Memory
from schemas.node_view import NodeView
from schemas.reason import LAX, Domain, Reason


class Outcome(StrEnum):
    """The answer to a stream event."""

    PLACED = "placed"
    DEGRADED = "degraded"
    PARTIAL = "partial"
    WAITING = "waiting"
    REJECTED = "rejected"
    DROPPED = "dropped"


class MoveKind(StrEnum):
    """What the executor of a move has to do."""

    REPLACE = "replace"
    ADD = "add"
    REMOVE = "remove"
    LEADER = "leader"


class MoveState(StrEnum):
    """Life of a move; the states after `accepted` are final."""

    ISSUED = "issued"
    ACCEPTED = "accepted"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"


class Completion(StrEnum):
    """When a move counts as done: when its executor says so, or when it is issued."""

    ACKED = "acked"
    IMMEDIATE = "immediate"


class Strength(StrEnum):
    """Whether a rule is never broken, or kept as well as the topology allows."""

    REQUIRED = "required"
    PREFERRED = "preferred"


class ViolationClass(StrEnum):
    """Whether anything can be done about a violation, and when."""

    FIXABLE = "fixable"
    UNFIXABLE = "unfixable"
    DEFERRED = "deferred"


class StreamSpec(WireModel):
    """What a stream asks for, with defaults filled in; a rejected one is echoed as given."""

    stream: Id
    shards: Count
    replication_factor: Count
    policy: dict[str, JsonValue]
    placement_policies: Text | None = None
    quorum: Count | Text | None = None
    shard_tokens: Tokens | None = None
    dimension: Text | None = None
    ranges: Items[Text] | None = None
    repair: Text | None = None


class Decision(Message):
    """The answer to a stream's last event. Key: `stream`. The state of record of streams.

    `spec` is in force. An alteration that was refused stands in `requested`, with its `reasons`;
    `outcome`, counts and `warnings` are those of what is in force. A dropped stream's decision
    keeps its last spec, and is followed by a tombstone.
    """

    stream: Id
    sequence: Ordinal
    revision: Ordinal
    outcome: Annotated[Outcome, LAX]
    spec: StreamSpec
    body_hash: Digest
    strategy: Text
    shards_placed: Index
    replicas_missing: Index
    reasons: Items[Reason]
    warnings: Items[Reason]
    decided_at: TimeMs
    requested: StreamSpec | None = None

    def record_key(self) -> str:
        """The stream's name."""
        return self.stream


class Assignment(Message):
    """Where the replicas of one shard belong, leader first. Key: `stream/shard`.

    `epoch` rises by one with every published change; a lower one than seen is old news. While a
    move runs, `adding` and `removing` name its nodes and `move_id` the move. `roles`, where the
    policy keeps copies aside, says what each of `replicas` is for: `replica`, or the role's name;
    it is absent otherwise.
    """

    stream: Id
    shard: Index
    epoch: Ordinal
    replicas: Items[Id]
    adding: Items[Id]
    removing: Items[Id]
    move_id: Id | None = None
    decided_at: TimeMs
    roles: Items[Id] | None = None

    def record_key(self) -> str:
        """The shard."""
        return f"{self.stream}/{self.shard}"


class Move(Message):
    """A command to the executor, in its current state. Key: `move_id`.

    Valid only while the shard's assignment has `expected_epoch`, and until `deadline`. `slot` is
    the position in the assignment, `remove` the node that gives up its replica, `add` the one
    that receives it, `source` a live one to copy from, `rate_bytes_per_second` a bound on the copy
    that ends with it. `ended_at` is set in a final state. A move that expired, was cancelled or
    superseded is told again, with `reminded` counting up, until its executor says that it has
    stopped it.
    """

    move_id: Id
    kind: Annotated[MoveKind, LAX]
    stream: Id
    shard: Index
    slot: Index
    remove: Id | None = None
    add: Id | None = None
    expected_epoch: Ordinal
    state: Annotated[MoveState, LAX]
    cause: Text
    reason: Reason
    source: Id | None = None
    deadline: TimeMs
    supersedes: Id | None = None
    issued_at: TimeMs
    ended_at: TimeMs | None = None
    rate_bytes_per_second: Annotated[int, Field(ge=1)] | None = None
    reminded: Annotated[int, Field(ge=1)] | None = None

    def record_key(self) -> str:
        """The move's id."""
        return self.move_id


class Violation(WireModel):
    """One rule that a shard does not meet: `count` where `limit` was asked for, in `domain`."""

    stream: Id
    shard: Index
    rule: Text
    strength: Annotated[Strength, LAX]
    level: Text | None = None
    domain: Domain | None = None
    count: int
    limit: int
    violation_class: Annotated[ViolationClass, Field(strict=False, alias="class")]
    reason: Reason
    since: TimeMs


class Violations(Message):
    """All open violations of one shard. Key: `stream/shard`; a tombstone means none is left."""

    stream: Id
    shard: Index
    violations: Annotated[Items[Violation], Field(min_length=1)]

    def record_key(self) -> str:
        """The shard."""
        return f"{self.stream}/{self.shard}"


OUTPUTS: dict[str, type[Message]] = {
    model.__name__: model
    for model in (
        Decision,
        Assignment,
        Move,
        NodeView,
        Violations,
        Memory,
        Alert,
        RequestAnswered,
        JournalEntry,
        CommitMarker,
    )
}
"""Every message that may be written, by the name its type carries."""
