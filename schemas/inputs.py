"""Messages the reconciler reads, from `nodes.v1`, `streams.v1`, `acks.v1` and others (design
section 5.1); what operators ask for is in `requests`.

A model says what a well-formed record is. Whether a request makes sense (a replication factor of
zero, an unknown strategy) is judged by the core, whose answer its author sees as a decision.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, JsonValue, model_validator

from schemas import limits
from schemas.base import (
    Capacity,
    Count,
    Host,
    Id,
    Index,
    Items,
    Location,
    Message,
    Ordinal,
    Tags,
    Text,
    Tokens,
    Weight,
    WireModel,
)
from schemas.requests import Request

# Ticks of all partitions share one key: they are told apart by the partition they are in.
TICK_KEY = "tick"

# Digits of the largest count there is (limits.COUNT_MAX).
_DIGITS_MAX = 10


RoundTrip = Annotated[float, Field(ge=0, le=limits.RTT_MS_MAX)]
RoundTrips = Annotated[dict[Location, RoundTrip | None], Field(max_length=limits.FIELDS_MAX)]


class NodeMessage(Message):
    """What every message about a node carries; key: `node_id`.

    `incarnation` names one life of the node's process (a UUID does), `sequence` rises with every
    message of a node. An equal sequence with an equal body is a repeat.
    """

    node_id: Id
    incarnation: Id
    sequence: Ordinal

    def record_key(self) -> str:
        """The node's id."""
        return self.node_id


class NodeRegistered(NodeMessage):
    """A node is there and may hold replicas.

    `weight` is its share of load relative to other nodes, `capacity` the most replicas it may
    hold, `leader: false` means it holds copies but never leads. `liveness` says who reports
    whether it lives: the node itself by its heartbeats, or an external detector alone. A node
    without `location` belongs to the unlocated domain.
    """

    host: Host | None = None
    location: Location | None = None
    tags: Tags | None = None
    weight: Weight = 1.0
    capacity: Capacity | None = None
    leader: bool = True
    tokens: Tokens | None = None
    liveness: Literal["heartbeat", "external"] = "heartbeat"


class NodeHeartbeat(NodeMessage):
    """The node lives.

    `rtt_ms` may say, now and then, how long round trips to other locations take, and null where
    nothing answers. Every heartbeat that carries it is journaled: once a minute is plenty.
    """

    rtt_ms: RoundTrips | None = None


class NodeUnregistered(NodeMessage):
    """The node leaves for good; its replicas are replaced at once."""


class NodeLocalityChanged(NodeMessage):
    """The node now stands elsewhere; `tags`, if given, replace all its tags."""

    location: Location
    tags: Tags | None = None


class NodeLivenessReported(NodeMessage):
    """An external failure detector says that a node lives or does not. It counts for nodes that
    registered with `liveness: external`, in the incarnation it names, and at once: how long to
    wait is the detector's affair. `sequence` is the detector's own, per node.
    """

    status: Literal["up", "down"]


class NodeInventory(Message):
    """Where a node stands by the inventory, which counts if it is the configured authority, and
    for nodes too that have not registered yet. Key: `node_id`; a tombstone removes the entry, and
    a node that is there keeps its place."""

    node_id: Id
    location: Location

    def record_key(self) -> str:
        """The node's id."""
        return self.node_id


class Tick(Message):
    """Written by the reconciler itself to every partition of `nodes.v1` about once a second, so
    that the silence of nodes can be measured in the log. Key: `tick`."""

    partition: Index
    partitions: Index
    writer_epoch: Ordinal
    number: Ordinal

    def record_key(self) -> str:
        """The same for all ticks."""
        return TICK_KEY


def _whole_number(value: object) -> int:
    """The number, or the digits of one; the core says what is wrong with anything else."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= _DIGITS_MAX:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


class StreamRequest(WireModel):
    """What a stream asks for, on the topic and in a cluster file alike.

    `policy` is free JSON here: the core compiles it and answers unknown names with a rejected
    decision. `replicas` is an existing placement to adopt, leader first, one list per shard.
    `placement_policies` and `policy` exclude each other; with neither the default policy holds.
    `replication_factor` may be left out where `policy.replication` gives the replicas of each
    datacenter: it is their sum.
    """

    stream: Id
    shards: Count
    replication_factor: Count
    placement_policies: Text | None = None
    policy: dict[str, JsonValue] | None = None
    quorum: Count | Text | None = None
    replicas: Items[Items[Id]] | None = None
    shard_tokens: Tokens | None = None
    dimension: Text | None = None
    ranges: Items[Text] | None = None
    repair: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _add_up_replication(cls, data: Any) -> Any:
        """A policy that counts replicas per datacenter says the replication factor with it."""
        policy = data.get("policy") if isinstance(data, Mapping) else None
        counts = policy.get("replication") if isinstance(policy, Mapping) else None
        if not isinstance(counts, Mapping) or data.get("replication_factor") is not None:
            return data
        return {**data, "replication_factor": sum(map(_whole_number, counts.values()))}


class StreamCreated(StreamRequest, Message):
    """A stream asks for placement. Key: `stream`."""

    sequence: Ordinal

    def record_key(self) -> str:
        """The stream's name."""
        return self.stream


class StreamAltered(StreamRequest, Message):
    """What a stream is to be from now on: its full spec, which takes the place of the one in force.
    Key: `stream`.

    Replicas stay where they are as far as the new spec allows; shards can become more, not fewer.
    `replicas` counts for shards that have none. What cannot be placed is refused: the decision
    then shows it as `requested` beside the spec that stays in force. A spec without
    `placement_policies` and `policy` asks for the default policy of the day.
    """

    sequence: Ordinal

    def record_key(self) -> str:
        """The stream's name."""
        return self.stream


class StreamDropped(Message):
    """A stream is gone, with its replicas. Key: `stream`.

    Another stream of this name may be created with a higher sequence.
    """

    stream: Id
    sequence: Ordinal

    def record_key(self) -> str:
        """The stream's name."""
        return self.stream


class MoveMessage(Message):
    """An executor's word on a move. Key: `stream/shard`.

    `move_id` names the move; it may be left out by executors that only know the shard.
    `reason` is free text for people.
    """

    stream: Id
    shard: Index
    move_id: Id | None = None
    node_id: Id | None = None
    reason: Text | None = None

    def record_key(self) -> str:
        """The shard the move belongs to."""
        return f"{self.stream}/{self.shard}"


class MoveAccepted(MoveMessage):
    """The executor has taken the move on."""


class MoveCompleted(MoveMessage):
    """The new replica is complete and the old one may go."""


class MoveFailed(MoveMessage):
    """The executor gave up; the need is derived again from what is true then."""


class MoveStopped(MoveMessage):
    """The executor has stopped a move that expired, was cancelled or superseded, and removed what
    it had copied. Without `move_id`, all such moves of the shard."""


class ReplicaLost(MoveMessage):
    """A replica is gone although its node lives: a disk has failed, a file is damaged. Another
    copy is made, maybe on the same node."""

    node_id: Id


InputMessage = (
    NodeRegistered
    | NodeHeartbeat
    | NodeUnregistered
    | NodeLocalityChanged
    | NodeLivenessReported
    | NodeInventory
    | Tick
    | StreamCreated
    | StreamAltered
    | StreamDropped
    | MoveAccepted
    | MoveCompleted
    | MoveFailed
    | MoveStopped
    | ReplicaLost
    | Request
)

INPUTS: dict[str, type[InputMessage]] = {
    model.__name__: model
    for model in (
        NodeRegistered,
        NodeHeartbeat,
        NodeUnregistered,
        NodeLocalityChanged,
        NodeLivenessReported,
        NodeInventory,
        Tick,
        StreamCreated,
        StreamAltered,
        StreamDropped,
        MoveAccepted,
        MoveCompleted,
        MoveFailed,
        MoveStopped,
        ReplicaLost,
        *get_args(Request),
    )
}
"""Every message that may be read, by the name its type carries."""
