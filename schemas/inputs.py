"""Messages the reconciler reads, from `nodes.v1`, `streams.v1` and others.

The messages of executors are in `acks`, those of operators in `requests`.

A model says what a well-formed record is. Whether a request makes sense (a replication factor of
zero, an unknown strategy) is judged by the core, whose answer its author sees as a decision.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, JsonValue, field_validator, model_validator

from schemas import limits
from schemas.acks import (
    MoveAccepted,
    MoveCompleted,
    MoveFailed,
    MoveProgressed,
    MoveStopped,
    ReplicaLost,
    ReplicasObserved,
)
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
from schemas.loads import Amounts, Capacities, ReportedShard
from schemas.requests import Request

# Ticks of all partitions share one key: they are told apart by the partition they are in.
TICK_KEY = "tick"
# The roles of those who write them; a standby that takes over is a claimant for a moment.
ACTIVE, STANDBY, CLAIMANT = "active", "standby", "claimant"

# Digits of the largest count there is (limits.COUNT_MAX).
_DIGITS_MAX = 10


RoundTrip = Annotated[float, Field(ge=0, le=limits.RTT_MS_MAX)]
RoundTrips = Annotated[dict[Location, RoundTrip | None], Field(max_length=limits.FIELDS_MAX)]


# A word that the core does not know is answered with a rejected decision, which its author sees; a
# dead letter he would not. So the schema lists the words, and the model takes any.
Role = Literal["active", "standby", "claimant"]
Repair = Annotated[Text, Field(json_schema_extra={"enum": ["all", "dead_only"]})]
Quorum = Count | Annotated[Text, Field(json_schema_extra={"enum": ["majority", "one"]})]


class NodeMessage(Message):
    """Base of every message about a node; key: `node_id`.

    `incarnation` names one life of the node's process (a UUID does), `sequence` rises with every
    message of a node. An equal sequence with an equal body is a repeat.
    """

    node_id: Id = Field(
        description="The node's id, the same over all its lives. It is the record's key."
    )
    incarnation: Id = Field(
        description="One life of the node's process: a new one, for example a UUID, at each start."
    )
    sequence: Ordinal = Field(
        description="Number of the message, which rises with every message of the node. An equal "
        "one with an equal body is a repeat, with another body a conflict."
    )

    def record_key(self) -> str:
        """Return the node's id."""
        return self.node_id


class NodeRegistered(NodeMessage):
    """A node is there and may hold replicas.

    `weight` is its share of load relative to other nodes, `capacity` the most replicas it may
    hold, `leader: false` means it holds copies but never leads. `liveness` says who reports
    whether it lives: the node itself by its heartbeats, or an external detector alone. A node
    without `location` belongs to the unlocated domain.

    Another life of the process (a new `incarnation`) takes over at once where the earlier one is
    not up, has said that it stops, or is named by `replaces`; otherwise as soon as the earlier one
    has been silent for `liveness.incarnation_grace_seconds`, or three of its usual heartbeats if
    that is longer. Until then the registration is pending, which the node's `NodeView` shows. What
    the node holds stays where it is.
    """

    host: Host | None = Field(
        default=None,
        description="Where the node is reached, as host or host:port; shown to people and to "
        "`nearest`, never connected to.",
    )
    location: Location | None = Field(
        default=None,
        description="Where the node stands, top tier first: `/eu/az1/rack7`. Without it the node "
        "belongs to the unlocated domain.",
    )
    tags: Tags | None = Field(
        default=None, description="Labels that policies can ask for, key to value. Absent: none."
    )
    weight: Weight = Field(
        default=1.0,
        description="Share of load relative to other nodes: a node of weight 2 holds twice as "
        "many replicas as one of weight 1. No unit.",
    )
    capacity: Capacity | None = Field(
        default=None,
        description="The most replicas the node may hold. Absent: no limit of its own.",
    )
    capacities: Capacities | None = Field(
        default=None,
        description="What the node has of each configured resource, in the resource's unit, for "
        'example `{"disk_bytes": 4000000000000}`. Of one that is not named it takes any amount.',
    )
    leader: bool = Field(
        default=True,
        description="Whether replicas on the node may lead; false: it holds copies only.",
    )
    tokens: Tokens | None = Field(
        default=None,
        description="Positions of the node on the ring, for the strategies that place by tokens. "
        "Absent: derived from its id.",
    )
    liveness: Literal["heartbeat", "external"] = Field(
        default="heartbeat",
        description="Who reports whether the node lives: `heartbeat`, the node itself by its "
        "heartbeats, or `external`, a failure detector on `detector.v1` alone.",
    )
    replaces: Id | None = Field(
        default=None,
        description="The incarnation of the earlier life, where it is known to have ended: this "
        "one takes over at once. Absent: it waits until the earlier one is silent.",
    )


class NodeHeartbeat(NodeMessage):
    """The node lives.

    `rtt_ms` may say, now and then, how long round trips to other locations take, and null where
    nothing answers. Every heartbeat that carries it is journaled: once a minute is plenty.
    """

    rtt_ms: RoundTrips | None = Field(
        default=None,
        description="Round trips to other locations in milliseconds, by location; null where "
        "nothing answered. Absent: not measured.",
    )
    stopping: bool = Field(
        default=False,
        description="True: the process is about to end and will come back; its next life takes "
        "over as soon as it registers.",
    )


class NodeUnregistered(NodeMessage):
    """The node leaves for good; its replicas are replaced at once."""


class NodeLocalityChanged(NodeMessage):
    """The node now stands elsewhere; `tags`, if given, replace all its tags."""

    location: Location = Field(description="Where the node stands now, top tier first.")
    tags: Tags | None = Field(
        default=None, description="All tags of the node from now on. Absent: its tags stay."
    )


class NodeLivenessReported(NodeMessage):
    """An external failure detector says that a node lives or does not. It counts for nodes that
    registered with `liveness: external`, in the incarnation it names, and at once: how long to
    wait is the detector's affair. `sequence` is the detector's own, per node.
    """

    status: Literal["up", "down"] = Field(description="What the detector says: `up` or `down`.")


class NodeLoadReported(NodeMessage):
    """What replicas use of their node, for any of the shards that it holds or copies.

    Sent by the node or an agent beside it, every half a minute or so, in as many records as it
    takes: one has at most 256 KiB. Reports are smoothed, and the planner is told of changes only.
    `incarnation` and `sequence` are those of whoever sends: a new incarnation takes over, of one
    a report with a lower or equal sequence is ignored.
    """

    capacities: Capacities | None = Field(
        default=None,
        description="What the node has of each resource, as in its registration: the yardstick of "
        "changes that matter. Absent: as reported before.",
    )
    shards: Items[ReportedShard] = Field(
        description="The shards, each at most once. Those that are not named stay as they were."
    )

    @field_validator("shards")
    @classmethod
    def _refuse_repeated(cls, shards: tuple[ReportedShard, ...]) -> tuple[ReportedShard, ...]:
        """Refuse a report that has two words on one shard."""
        if len({(each.stream, each.shard) for each in shards}) < len(shards):
            raise ValueError("each shard once")
        return shards


class NodeInventory(Message):
    """The location of a node by the inventory.

    It counts if the inventory is the configured authority, also for nodes that have not registered
    yet. Key: `node_id`; a tombstone removes the entry, and a node that is there keeps its place.
    """

    node_id: Id = Field(description="The node's id. It is the record's key.")
    location: Location = Field(description="Where the node stands, top tier first.")

    def record_key(self) -> str:
        """Return the node's id."""
        return self.node_id


class Tick(Message):
    """A tick that the reconciler writes to every partition of `nodes.v1` about once a second.

    With it the silence of nodes can be measured in the log. Key: `tick`. A standby writes ticks to
    the first partition alone, by which others know that it is there.
    """

    partition: Index = Field(
        description="The partition of `nodes.v1` that the tick was written to, from 0."
    )
    partitions: Index = Field(
        description="How many partitions `nodes.v1` had when the tick was written."
    )
    writer_epoch: Ordinal = Field(
        description="The epoch of the writer that wrote it; 0 from a standby."
    )
    number: Ordinal = Field(description="Number of the tick, from 1 at each start of a writer.")
    role: Role = Field(
        default="active",
        description="active: it decides. standby: it follows the active one. claimant: a standby "
        "that takes over; of several the first in the log does.",
    )
    instance: Id | None = Field(
        default=None, description="The process that wrote it, by the id it has while it runs."
    )
    proven: Ordinal | None = Field(
        default=None,
        description="Sequence of the last commit of which a standby has proven the state.",
    )

    def record_key(self) -> str:
        """Return the key of all ticks."""
        return TICK_KEY


def _whole_number(value: object) -> int:
    """Read a whole number or its digits; return 0 for anything else, which the core refuses with a
    reason."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= _DIGITS_MAX:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


class StreamRequest(WireModel):
    """Request of a stream for placement, on the topic and in a cluster file alike.

    `policy` is free JSON here: the core compiles it and answers unknown names with a rejected
    decision. `replicas` is an existing placement to adopt, leader first, one list per shard.
    `placement_policies` and `policy` exclude each other; with neither the default policy holds.
    `replication_factor` may be left out where `policy.replication` gives the replicas of each
    datacenter: it is their sum.
    """

    stream: Id = Field(description="The stream's name. On the topic it is the record's key.")
    shards: Count = Field(
        description=f"How many shards the stream has: 1 to {limits.SHARDS_MAX:,}, and no more than "
        f"{limits.REPLICAS_MAX:,} replicas in all."
    )
    replication_factor: Count = Field(
        description="Replicas of each shard, the leader included: 1 to "
        f"{limits.REPLICATION_FACTOR_MAX}. May be left out where `policy.replication` counts them "
        "per datacenter."
    )
    placement_policies: Text | None = Field(
        default=None,
        description="Timeplus' policy string, for example `node=exclusive;shard=balanced`: for "
        "`node` and `shard` one of `colocated`, `balanced` and `exclusive`. Excludes `policy`.",
    )
    policy: dict[str, JsonValue] | None = Field(
        default=None,
        description="The structured policy, in the words of placement/README.md: `strategy`, "
        "`rules`, `within`, `avoid`, `nodes`, `with_tags`, `on_infeasible` and the strategy's own "
        "keys. Absent: the default policy of the settings.",
    )
    quorum: Quorum | None = Field(
        default=None,
        description="Living replicas that a shard needs to be available: `majority` (the "
        "default), `one`, or a number from 1 to the replication factor.",
    )
    replicas: Items[Items[Id]] | None = Field(
        default=None,
        description="An existing placement to adopt: for each shard the ids of its nodes, leader "
        "first.",
    )
    shard_tokens: Tokens | None = Field(
        default=None,
        description="Where each shard begins on the ring, one position per shard, for strategies "
        "that place by tokens.",
    )
    dimension: Text | None = Field(
        default=None,
        description="Name of the scope in which strategies that follow Kudu count the stream's "
        "load: streams that share it are evened out together.",
    )
    ranges: Items[Text] | None = Field(
        default=None,
        description="A label for each shard; strategies that know ranges keep the load of equal "
        "labels even.",
    )
    expected_load: Amounts | None = Field(
        default=None,
        description="What each shard is expected to use of a node, by resource, until it is "
        "reported. Absent: the mean of what is known counts.",
    )
    repair: Repair | None = Field(
        default=None,
        description="What repair may do to the stream: `all` (the default), or `dead_only`, "
        "which only gives back what is dead or missing.",
    )

    @model_validator(mode="before")
    @classmethod
    def _add_up_replication(cls, data: Any) -> Any:
        """Derive the replication factor from a policy that counts replicas per datacenter."""
        policy = data.get("policy") if isinstance(data, Mapping) else None
        counts = policy.get("replication") if isinstance(policy, Mapping) else None
        if not isinstance(counts, Mapping) or data.get("replication_factor") is not None:
            return data
        return {**data, "replication_factor": sum(map(_whole_number, counts.values()))}


class StreamCreated(StreamRequest, Message):
    """A stream asks for placement. Key: `stream`."""

    sequence: Ordinal = Field(
        description="Number of the message, which rises with every message about the stream. An "
        "equal one with an equal body is a repeat, with another body a conflict."
    )

    uid: Id | None = Field(
        default=None,
        description="Identity of the stream, which one that is deleted and created anew does not "
        "share, such as the id of a Kafka topic. Messages about another one are refused. A stream "
        "of this name with another `uid` is dropped first. Absent: the name is the identity.",
    )

    adopt: Literal["observed"] | None = Field(
        default=None,
        description="`observed`: the stream has replicas whose lists follow as `ReplicasObserved`, "
        "for streams whose lists do not fit into one record. Until a shard has been observed, "
        "nothing is placed, moved or reported for it. Excludes `replicas`.",
    )

    @model_validator(mode="after")
    def _refuse_two_sources(self) -> Self:
        """Refuse a creation that brings lists and says that they follow."""
        if self.adopt is not None and self.replicas is not None:
            raise ValueError("adopt and replicas exclude each other")
        return self

    def record_key(self) -> str:
        """Return the stream's name."""
        return self.stream


class StreamAltered(StreamRequest, Message):
    """The full new spec of a stream, which replaces the one in force.

    Key: `stream`.

    Replicas stay where they are as far as the new spec allows; shards can become more, not fewer.
    `replicas` counts for shards that have none. What cannot be placed is refused: the decision
    then shows it as `requested` beside the spec that stays in force. A spec without
    `placement_policies` and `policy` asks for the default policy of the day.
    """

    sequence: Ordinal = Field(
        description="Number of the message, which rises with every message about the stream. An "
        "equal one with an equal body is a repeat, with another body a conflict."
    )

    uid: Id | None = Field(
        default=None,
        description="The `uid` that the stream was created with. Where both have one and they "
        "differ, the message is about an earlier or later stream of this name, and refused: "
        "`STREAM_UID_DIFFERS`.",
    )

    def record_key(self) -> str:
        """Return the stream's name."""
        return self.stream


class StreamDropped(Message):
    """A stream is gone, with its replicas. Key: `stream`.

    Another stream of this name may be created with a higher sequence.
    """

    stream: Id = Field(description="The stream's name. It is the record's key.")
    sequence: Ordinal = Field(
        description="Number of the message, which rises with every message about the stream. An "
        "equal one with an equal body is a repeat, with another body a conflict."
    )

    uid: Id | None = Field(
        default=None,
        description="The `uid` that the stream was created with. Where both have one and they "
        "differ, the message is about an earlier or later stream of this name, and refused: "
        "`STREAM_UID_DIFFERS`.",
    )

    def record_key(self) -> str:
        """Return the stream's name."""
        return self.stream


InputMessage = (
    NodeRegistered
    | NodeHeartbeat
    | NodeUnregistered
    | NodeLocalityChanged
    | NodeLivenessReported
    | NodeInventory
    | NodeLoadReported
    | Tick
    | StreamCreated
    | StreamAltered
    | StreamDropped
    | MoveAccepted
    | MoveProgressed
    | MoveCompleted
    | MoveFailed
    | MoveStopped
    | ReplicaLost
    | ReplicasObserved
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
        NodeLoadReported,
        Tick,
        StreamCreated,
        StreamAltered,
        StreamDropped,
        MoveAccepted,
        MoveProgressed,
        MoveCompleted,
        MoveFailed,
        MoveStopped,
        ReplicaLost,
        ReplicasObserved,
        *get_args(Request),
    )
}
"""Every message that may be read, by the name its type carries."""
