"""Messages the reconciler writes; their consumers ignore unknown fields.

The application builds these records as plain dicts and writes them in bulk; the models are the
contract its tests hold every record to, and the source of the published JSON Schemas.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, JsonValue

from schemas.acks import MoveKind
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
from schemas.loads import Amounts, ShardLoad
from schemas.node_view import NodeView
from schemas.reason import LAX, Domain, Reason


class Outcome(StrEnum):
    """Outcome of a stream's last event.

    `placed`: all replicas are placed and every rule holds. `degraded`: all are placed, a preferred
    rule does not hold. `partial`: some replicas wait for nodes. `waiting`: none is placed yet, and
    placement is tried again whenever nodes come. `rejected`: the request makes no sense, and waits
    for another one. `dropped`: the stream is gone.
    """

    PLACED = "placed"
    DEGRADED = "degraded"
    PARTIAL = "partial"
    WAITING = "waiting"
    REJECTED = "rejected"
    DROPPED = "dropped"


class MoveState(StrEnum):
    """Life of a move; `issued` and `accepted` are open, the others final.

    `issued`: to be taken on. `accepted`: an executor has. `completed`: it has said that it is done.
    `failed`: it has given up. `cancelled`: not wanted any more. `superseded`: another move, which
    names this one, takes its place. `expired`: not completed by its deadline.
    """

    ISSUED = "issued"
    ACCEPTED = "accepted"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"


class MoveCause(StrEnum):
    """Cause of a move: see the table of causes in this package's README."""

    UNDER_REPLICATED = "under_replicated"
    LEADER = "leader"
    REQUIRED_RULE = "required_rule"
    DRAIN = "drain"
    PREFERRED_RULE = "preferred_rule"
    SURPLUS = "surplus"
    BALANCE = "balance"


class Completion(StrEnum):
    """End of a move: when its executor acknowledges it, or when it is issued."""

    ACKED = "acked"
    IMMEDIATE = "immediate"


class Strength(StrEnum):
    """Strength of a rule: never broken (`required`), or kept as well as possible (`preferred`)."""

    REQUIRED = "required"
    PREFERRED = "preferred"


class ViolationClass(StrEnum):
    """Says if a violation can be repaired, and when.

    `fixable`: repair is at it, or will be. `deferred`: it waits for a hold, a limit or a pause;
    with NO_CANDIDATE for a change of the fleet: the nodes admit an arrangement, the search found no
    move. `unfixable`: no arrangement of the nodes keeps the rule and all required ones; the reason
    says what is missing.
    """

    FIXABLE = "fixable"
    UNFIXABLE = "unfixable"
    DEFERRED = "deferred"


class StreamSpec(WireModel):
    """Spec of a stream with defaults filled in; a rejected one is echoed as given."""

    stream: Id = Field(description="The stream's name.")
    shards: Count = Field(description="How many shards the stream has.")
    replication_factor: Count = Field(description="Replicas of each shard, the leader included.")
    policy: dict[str, JsonValue] = Field(
        description="The structured policy with defaults filled in, also where "
        "`placement_policies` was given."
    )
    placement_policies: Text | None = Field(
        default=None, description="Timeplus' policy string, where it was given."
    )
    quorum: Count | Text | None = Field(
        default=None,
        description="Living replicas that a shard needs to be available: `majority`, `one` or a "
        "number; in a rejected request, what was given.",
    )
    shard_tokens: Tokens | None = Field(
        default=None, description="Where each shard begins on the ring, where it was given."
    )
    dimension: Text | None = Field(
        default=None,
        description="The scope in which the stream's load is counted, where it was given.",
    )
    ranges: Items[Text] | None = Field(
        default=None, description="A label for each shard, where they were given."
    )
    repair: Text | None = Field(
        default=None,
        description="What repair may do: `all` or `dead_only`; absent: `all`. In a rejected "
        "request, what was given.",
    )
    uid: Id | None = Field(
        default=None,
        description="Tells apart streams that have one name after each other, as the creation "
        "gave it; absent: it gave none.",
    )
    expected_load: Amounts | None = Field(
        default=None,
        description="What each shard is expected to use of a node until it is reported, where it "
        "was given.",
    )
    adopt: Text | None = Field(
        default=None,
        description="`observed`: the lists of replicas came, or are to come, as "
        "`ReplicasObserved`; absent: they came with the creation, or there were none.",
    )


class Decision(Message):
    """The answer to a stream's last event. Key: `stream`. The state of record of streams.

    `spec` is in force. An alteration that was refused stands in `requested`, with its `reasons`;
    `outcome`, counts and `warnings` are those of what is in force. A dropped stream's decision
    keeps its last spec, and is followed by a tombstone.
    """

    stream: Id = Field(description="The stream's name. It is the record's key.")
    sequence: Ordinal = Field(description="The `sequence` of the stream's last event.")
    revision: Ordinal = Field(
        description="Rises by one with every published decision on the stream, from 1."
    )
    outcome: Annotated[Outcome, LAX] = Field(
        description="How the stream stands: what is in force, as of this decision."
    )
    spec: StreamSpec = Field(description="What is in force.")
    body_hash: Digest = Field(
        description="Hash of the last event's body, in hexadecimal, by which a repeat is told "
        "from a conflict."
    )
    strategy: Text = Field(
        description="Name of the strategy that placed it: one of placement's, or a plugin's; "
        "empty where it is rejected."
    )
    shards_placed: Index = Field(description="Shards that have all their replicas.")
    replicas_missing: Index = Field(description="Replicas of all shards that have not been placed.")
    reasons: Items[Reason] = Field(
        description="Why it is not `placed`: every reason for a rejection, for waiting, or for a "
        "rule that is not met."
    )
    warnings: Items[Reason] = Field(
        description="What does not hinder the placement, and should be known."
    )
    decided_at: TimeMs = Field(description="Time of the decision, in ms since the epoch, UTC.")
    requested: StreamSpec | None = Field(
        default=None,
        description="The spec that was asked for last and refused; absent where the last one is "
        "in force.",
    )

    def record_key(self) -> str:
        """Return the stream's name."""
        return self.stream


class Assignment(Message):
    """The nodes of one shard's replicas, leader first.

    Key: `stream/shard`.

    `epoch` rises by one with every published change; a lower one than seen is old news. While a
    move runs, `adding` and `removing` name its nodes and `move_id` the move. `roles`, where the
    policy keeps copies aside, says what each of `replicas` is for: `replica`, or the role's name;
    it is absent otherwise.
    """

    stream: Id = Field(description="The stream's name.")
    shard: Index = Field(description="Number of the shard, from 0.")
    epoch: Ordinal = Field(
        description="Rises by one with every published change of the shard; a lower one than "
        "seen is old news."
    )
    replicas: Items[Id] = Field(
        description="Ids of the nodes that hold a replica, leader first. While a move is open "
        "the node that gives up its replica still stands here, and the one that "
        "receives it does not."
    )
    adding: Items[Id] = Field(
        description="While a move is open, the node that is to receive a replica; otherwise empty."
    )
    removing: Items[Id] = Field(
        description="While a move is open, the node that is to give up its replica; otherwise "
        "empty."
    )
    move_id: Id | None = Field(default=None, description="The open move; absent where none is.")
    decided_at: TimeMs = Field(description="Time of the decision, in ms since the epoch, UTC.")
    roles: Items[Id] | None = Field(
        default=None,
        description="What each of `replicas` is for, in their order: `replica`, or the name of a "
        "role of the policy. Absent where the policy has no roles.",
    )
    uid: Id | None = Field(
        default=None, description="The `uid` that the stream was created with; absent: none."
    )

    def record_key(self) -> str:
        """Return the shard."""
        return f"{self.stream}/{self.shard}"


class Move(Message):
    """A command to the executor, in its current state. Key: `move_id`.

    Valid only while the shard's assignment has `expected_epoch`, and until `deadline`. `slot` is
    the position in the assignment, `remove` the node that gives up its replica, `add` the one
    that receives it, `source` a live one to copy from, `rate_bytes_per_second` a bound on the copy
    that ends with it. `ended_at` is set in a final state. A move that expired, was cancelled or
    superseded is published again as a reminder, with `reminded` counting up, until its executor
    answers MoveStopped.
    """

    move_id: Id = Field(description="The move's id, never used again. It is the record's key.")
    kind: Annotated[MoveKind, LAX] = Field(description="What the executor has to do.")
    stream: Id = Field(description="The stream of the shard.")
    shard: Index = Field(description="Number of the shard, from 0.")
    slot: Index = Field(
        description="Position of the replica among the shard's replicas, from 0, which is the "
        "leader's; empty places count."
    )
    remove: Id | None = Field(
        default=None, description="The node that gives up its replica; absent for `add`."
    )
    add: Id | None = Field(
        default=None, description="The node that receives a replica; absent for `remove`."
    )
    expected_epoch: Ordinal = Field(
        description="The move is valid only while the shard's assignment has this epoch: the one "
        "that its issue published."
    )
    state: Annotated[MoveState, LAX] = Field(description="How far the move is.")
    cause: Annotated[MoveCause, LAX] = Field(description="Why the shard gets a move.")
    reason: Reason = Field(description="Why this move; in a final state, why it ended.")
    source: Id | None = Field(
        default=None,
        description="A node with a living replica to copy from, near the target; absent where "
        "none lives.",
    )
    deadline: TimeMs = Field(
        description="The move expires when it is not completed by then, in ms since the epoch, "
        "UTC. Reports of progress extend it."
    )
    supersedes: Id | None = Field(default=None, description="The move that this one replaces.")
    issued_at: TimeMs = Field(description="When it was issued, in ms since the epoch, UTC.")
    ended_at: TimeMs | None = Field(
        default=None,
        description="When it reached a final state, in ms since the epoch, UTC; absent while it "
        "is open.",
    )
    rate_bytes_per_second: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="The most that the copy may take, in bytes a second; absent: no bound.",
    )
    reminded: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="How often the executor was reminded that the move was called off; absent: "
        "not yet.",
    )
    renewed_at: TimeMs | None = Field(
        default=None,
        description="When a report of progress extended `deadline` last, in ms since the epoch, "
        "UTC; absent: never.",
    )
    bytes_done: Ordinal | None = Field(
        default=None,
        description="Bytes that were copied at `renewed_at`, as the executor reported; absent: not "
        "known.",
    )
    bytes_total: Ordinal | None = Field(
        default=None,
        description="Bytes of the whole copy, as the executor reported; absent: not known.",
    )
    uid: Id | None = Field(
        default=None, description="The `uid` that the stream was created with; absent: none."
    )
    bytes: Ordinal | None = Field(
        default=None,
        description="Bytes that the copy is expected to transfer, by the load of the shard; "
        "absent: not known.",
    )
    leader: Id | None = Field(
        default=None,
        description="The node whose replica is to lead, of a move of kind `leader`, which adds and "
        "removes none; absent for others.",
    )

    def record_key(self) -> str:
        """Return the move's id."""
        return self.move_id


class Violation(WireModel):
    """One rule that a shard does not meet: `count` where `limit` was asked for, in `domain`."""

    stream: Id = Field(description="The stream of the shard.")
    shard: Index = Field(description="Number of the shard, from 0.")
    rule: Text = Field(
        description="The rule as it was written; it begins with a name of the table of rules in "
        "this package's README."
    )
    strength: Annotated[Strength, LAX] = Field(
        description="Whether the rule is never broken by placement, or kept as well as possible."
    )
    level: Text | None = Field(
        default=None,
        description="The level of the topology that the rule counts by, `node` where `domain` is a "
        "node; absent for rules that count by none.",
    )
    domain: Domain | None = Field(
        default=None,
        description="The domain or node where it is broken; absent where it is the shard as a "
        "whole.",
    )
    count: int = Field(description="How many there are, in what the rule counts.")
    limit: int = Field(
        description="How many there should be at most, or of rules that ask for a minimum at least."
    )
    violation_class: Annotated[ViolationClass, Field(strict=False, alias="class")] = Field(
        description="Whether anything can be done about it."
    )
    reason: Reason = Field(description="Why it is broken, or why it is not mended now.")
    since: TimeMs = Field(description="When it was found first, in ms since the epoch, UTC.")


class Violations(Message):
    """All open violations of one shard. Key: `stream/shard`; a tombstone means none is left."""

    stream: Id = Field(description="The stream's name.")
    shard: Index = Field(description="Number of the shard, from 0.")
    violations: Annotated[Items[Violation], Field(min_length=1)] = Field(
        description="All rules that the shard does not meet."
    )

    def record_key(self) -> str:
        """Return the shard."""
        return f"{self.stream}/{self.shard}"


OUTPUTS: dict[str, type[Message]] = {
    model.__name__: model
    for model in (
        Decision,
        Assignment,
        Move,
        ShardLoad,
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
