"""The topic catalogue: names, keys, partitions and settings of every topic, declared once.

Used to create and check topics (`streaming.administration`), to route input messages
(`schemas.envelope`) and for the documents; the README's table is written from it.

All topics are in one of two forms. `delete` topics are logs, kept for a time; `compact` topics
hold the last value of each key and are the state of record, read in full at every start: their
settings keep that reading short.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from schemas import limits
from schemas.requests import Request

DEFAULT_PREFIX = "placement."

# Every topic by its short name. What the application reads ...
NODES = "nodes.v1"
DETECTOR = "detector.v1"
INVENTORY = "inventory.v1"
STREAMS = "streams.v1"
ACKS = "acks.v1"
OPERATOR = "operator.v1"
NODE_LOADS = "loads.v1"
# ... what is said of nodes, what is asked for and acknowledged: a query each ...
NODE_TOPICS = (NODES, DETECTOR, INVENTORY)
REQUEST_TOPICS = (STREAMS, ACKS, OPERATOR)
DECIDING_TOPICS = (*NODE_TOPICS, *REQUEST_TOPICS)
# ... loads only where resources are configured, beside the others ...
INPUT_TOPICS = (*DECIDING_TOPICS, NODE_LOADS)
# ... the state of record, from which a start goes on ...
TOPOLOGY = "topology.v1"
DECISIONS = "decisions.v1"
ASSIGNMENTS = "assignments.v1"
MOVES = "moves.v1"
VIOLATIONS = "violations.v1"
MEMORY = "state.v1"
SHARD_LOADS = "load.v1"
STATE_TOPICS = (TOPOLOGY, DECISIONS, ASSIGNMENTS, MOVES, VIOLATIONS, MEMORY, SHARD_LOADS)
# ... and what else it writes.
ALERTS = "alerts.v1"
ANSWERS = "answers.v1"
JOURNAL = "journal.v1"
COMMITS = "commits.v1"
DEAD_LETTERS = "dlq.v1"

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS

# The broker's own default, fixed here because the outbox cuts chunks and client batches below it.
# It is not the 64 KiB of one record: it bounds a producer's batch of many.
_BATCH_BYTES_MAX = 1_048_588

_LOG = {
    "cleanup.policy": "delete",
    # A segment is deleted as a whole, so an idle topic keeps a record one segment longer.
    "segment.ms": str(_DAY_MS),
    "max.message.bytes": str(_BATCH_BYTES_MAX),
}
_INPUT = {
    **_LOG,
    # The silence clock and the core's time are the broker's append times: a producer's clock
    # must not be able to move them.
    "message.timestamp.type": "LogAppendTime",
}
_STATE = {
    "cleanup.policy": "compact",
    # The active segment is never compacted: rolling it every 10 minutes or 64 MiB bounds what a
    # restart reads beyond the live keys.
    "segment.ms": str(600_000),
    "segment.bytes": str(64 * 1024 * 1024),
    # A tenth of stale records starts the cleaner (default: half), for twice the reading speed ...
    "min.cleanable.dirty.ratio": "0.1",
    # ... and a quiet topic is cleaned within the hour all the same.
    "max.compaction.lag.ms": str(_HOUR_MS),
    # A reader that started before a tombstone was written has a day to reach it, as by
    # Kafka's default.
    "delete.retention.ms": str(_DAY_MS),
    "max.message.bytes": str(_BATCH_BYTES_MAX),
}


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic by its short name (`nodes.v1`); `configs` holds the cleanup policy too.

    `direction` is seen from the reconciler. `key` says in words what a record's key is.
    """

    name: str
    direction: Literal["in", "out"]
    cleanup: Literal["delete", "compact"]
    key: str
    messages: tuple[str, ...]
    partitions: int
    configs: Mapping[str, str]
    description: str


def _input_topic(
    name: str, key: str, messages: tuple[str, ...], days: int, partitions: int, description: str
) -> Topic:
    configs = {**_INPUT, "retention.ms": str(days * _DAY_MS)}
    return Topic(name, "in", "delete", key, messages, partitions, configs, description)


def _log_topic(
    name: str, key: str, messages: tuple[str, ...], days: int, description: str
) -> Topic:
    configs = {**_LOG, "retention.ms": str(days * _DAY_MS)}
    return Topic(name, "out", "delete", key, messages, 1, configs, description)


def _state_topic(name: str, key: str, message: str, description: str) -> Topic:
    return Topic(name, "out", "compact", key, (message,), 1, _STATE, description)


# One partition is one task of every micro-batch and the planner is a single writer, so more
# partitions only cost latency (about 35 ms each on two cores); one takes 20,000 heartbeats a
# second. Those of `nodes.v1` can be raised for a larger fleet, but never lowered.
CATALOGUE: tuple[Topic, ...] = (
    _input_topic(
        NODES,
        "node_id",
        ("NodeRegistered", "NodeHeartbeat", "NodeLocalityChanged", "NodeUnregistered", "Tick"),
        # A long weekend's stop loses nothing; heartbeats make a longer time expensive.
        4,
        1,
        "Registrations and heartbeats of nodes, and the reconciler's ticks (key `tick`)",
    ),
    _input_topic(
        DETECTOR,
        "node_id",
        ("NodeLivenessReported",),
        4,
        1,
        "Reports of external failure detectors; give them alone the right to write",
    ),
    Topic(
        INVENTORY,
        "in",
        "compact",
        "node_id",
        ("NodeInventory",),
        1,
        {**_STATE, "message.timestamp.type": "LogAppendTime"},
        "Locations of nodes by an inventory; give it alone the right to write",
    ),
    _input_topic(
        STREAMS,
        "stream",
        ("StreamCreated", "StreamAltered", "StreamDropped"),
        30,
        1,
        "Requests for streams",
    ),
    _input_topic(
        ACKS,
        "stream/shard",
        (
            "MoveAccepted",
            "MoveProgressed",
            "MoveCompleted",
            "MoveFailed",
            "MoveStopped",
            "ReplicaLost",
            "ReplicasObserved",
        ),
        30,
        1,
        "Acknowledgements of executors, losses of replicas, and what executors find of replicas",
    ),
    _input_topic(
        OPERATOR,
        "target",
        tuple(request.__name__ for request in get_args(Request)),
        30,
        1,
        "Requests of operators; it has an ACL of its own",
    ),
    Topic(
        NODE_LOADS,
        "in",
        "delete",
        "node_id",
        ("NodeLoadReported",),
        1,
        # What is old has been said anew since, and a thousand nodes write megabytes a second.
        {**_INPUT, "retention.ms": str(_HOUR_MS), "segment.ms": str(600_000)},
        "Reports of nodes on what their replicas use; read where resources are configured",
    ),
    _state_topic(
        DECISIONS,
        "stream",
        "Decision",
        "State of record of streams, with full specs; a tombstone follows a while after a stream "
        "was dropped",
    ),
    _state_topic(
        ASSIGNMENTS,
        "stream/shard",
        "Assignment",
        "State of record of placement; a tombstone when the stream is dropped",
    ),
    _state_topic(
        MOVES,
        "move_id",
        "Move",
        "Commands in their current state; partitioned by `stream/shard`, so that the moves of one "
        "shard are in order; a tombstone follows a while after a move ended",
    ),
    _state_topic(TOPOLOGY, "node_id", "NodeView", "The reconciler's view of each node"),
    _state_topic(
        VIOLATIONS, "stream/shard", "Violations", "Open violations; a tombstone when healed"
    ),
    _state_topic(
        MEMORY,
        "kind/name",
        "Memory",
        "The rest of the reconciler's memory: holds, operators' orders and the like",
    ),
    _state_topic(
        SHARD_LOADS,
        "stream/shard",
        "ShardLoad",
        "State of record of loads: what is known of each shard; a tombstone when nothing is",
    ),
    _log_topic(
        ALERTS, "kind", ("Alert",), 30, "Conditions that a person should know of, with a severity"
    ),
    _log_topic(ANSWERS, "target", ("RequestAnswered",), 30, "Answers to operators' requests"),
    _log_topic(
        JOURNAL,
        "cell",
        ("JournalEntry",),
        30,
        "The ordered events of each batch as applied: makes every decision replayable",
    ),
    _state_topic(
        COMMITS, "cell", "CommitMarker", "Where a restart goes on, and the state's digest"
    ),
    _log_topic(
        DEAD_LETTERS,
        "the record's own",
        (),
        30,
        "Refused records: SHA-256 and first KiB, with reason and provenance in headers; in a flood "
        "the rest in summaries",
    ),
)

BY_NAME: Mapping[str, Topic] = {topic.name: topic for topic in CATALOGUE}


def full_name(topic: Topic | str, prefix: str = DEFAULT_PREFIX) -> str:
    """Return the topic's name on the broker: prefix and short name; dead letters: `dlq.` + prefix +
    `v1`.

    The `dlq.` comes first because share groups only accept dead letter topics called so
    (KIP-1191). Raises ValueError for a prefix of other characters than letters, digits, `-`, `.`.
    """
    name = topic if isinstance(topic, str) else topic.name
    if not re.fullmatch(limits.TOPIC_PREFIX_PATTERN, prefix):
        raise ValueError(
            f"topic prefix {prefix!r} must be words of letters, digits and '-', each "
            "followed by '.'"
        )
    full = f"dlq.{prefix}v1" if name == DEAD_LETTERS else f"{prefix}{name}"
    if len(full) > limits.TOPIC_NAME_LENGTH_MAX:
        raise ValueError(f"topic name {full!r} exceeds {limits.TOPIC_NAME_LENGTH_MAX} characters")
    return full


def configs_for(topic: Topic, replication_factor: int | None) -> dict[str, str]:
    """Return the topic's settings on a cluster that keeps `replication_factor` copies.

    With three copies or more, two must have a record before it counts as written: what was
    committed survives the loss of a broker, and writing goes on while one is down. None leaves
    that to the broker, as it does the number of copies.
    """
    if replication_factor is None:
        return dict(topic.configs)
    return {**topic.configs, "min.insync.replicas": "2" if replication_factor >= 3 else "1"}
