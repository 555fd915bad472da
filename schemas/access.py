"""Declares the least rights of each role on each topic, once.

`placer topics acls` writes them out for brokers with an authorizer; a test runs every role with
them, and tries what they forbid.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from schemas.topics import (
    ACKS,
    ASSIGNMENTS,
    CATALOGUE,
    DEAD_LETTERS,
    DECISIONS,
    DEFAULT_PREFIX,
    DETECTOR,
    INVENTORY,
    MEMORY,
    MOVES,
    NODE_LOADS,
    NODES,
    OPERATOR,
    STREAMS,
    TOPOLOGY,
    Topic,
    full_name,
)

Operation = Literal[
    "Read", "Write", "Describe", "DescribeConfigs", "Create", "Alter", "AlterConfigs"
]

# Who writes each input. A role that may write one topic cannot speak on another: nodes cannot
# order maintenance, and only the inventory says where nodes stand.
WRITERS: Mapping[str, str] = {
    NODES: "nodes",
    NODE_LOADS: "nodes",
    DETECTOR: "detectors",
    STREAMS: "clients",
    ACKS: "executors",
    OPERATOR: "operators",
    INVENTORY: "inventory",
}
# The commands of `placer kafka`: what each does on the cluster whose replicas are placed. Reading
# brokers, reassignments and log directories is Describe; throttles of brokers are AlterConfigs.
KAFKA_CLUSTER: Mapping[str, tuple[Operation, ...]] = {
    "import": ("Describe",),
    "apply": ("Describe", "Alter", "DescribeConfigs", "AlterConfigs"),
    "bridge": ("Describe", "Alter", "DescribeConfigs", "AlterConfigs"),
}
KAFKA_TOPICS: Mapping[str, tuple[Operation, ...]] = {
    "import": ("Describe", "DescribeConfigs"),
    "apply": ("Describe", "DescribeConfigs", "AlterConfigs"),
    "bridge": ("Describe", "DescribeConfigs", "AlterConfigs"),
}
# Added to prefix and cell: the transactional id and the group of the agent that works.
BRIDGE_SUFFIX = ".kafka-bridge"
# Behind the prefix, before a node's id: the transactional id and the group of the executor that
# acts for the node. No cell has a slash in its name.
EXECUTOR_LOCKS = "executor/"
# In place of a node's id: the executor that acts for all nodes.
ALL_NODES = "*"

# The transactional id, after prefix and cell, under which the doctor and a standby try their
# rights. Its name is as old as the doctor: clusters have it in their ACLs.
PROBE_SUFFIX = ".doctor"
# What the bridge says to the reconciler: it speaks for the brokers and their topics.
BRIDGE_WRITES = (NODES, DETECTOR, NODE_LOADS, STREAMS, ACKS)
# What each role reads of what is decided; operators and readers see all outputs.
READS: Mapping[str, tuple[str, ...]] = {
    "nodes": (TOPOLOGY,),
    "executors": (MOVES, ASSIGNMENTS),
    "clients": (TOPOLOGY, DECISIONS, ASSIGNMENTS),
    "bridge": (TOPOLOGY, DECISIONS, ASSIGNMENTS, MOVES, MEMORY),
}
ROLES = (
    "reconciler",
    "administrator",
    "operators",
    *(role for role in dict.fromkeys(WRITERS.values()) if role != "operators"),
    "readers",
    *KAFKA_CLUSTER,
)

# As the setting `cell` ships.
DEFAULT_CELL = "main"
# The name by which authorizers know the cluster.
CLUSTER = "kafka-cluster"


@dataclass(frozen=True, slots=True)
class Grant:
    """Operations that a role may do on one resource, named in full, or on all whose names begin
    with `name` (`pattern`); `*` are all topics."""

    role: str
    resource: Literal["topic", "transactional-id", "group", "cluster"]
    name: str
    operations: tuple[Operation, ...]
    pattern: Literal["literal", "prefixed"] = "literal"


def bridge_lock_id(prefix: str, cell: str) -> str:
    """Name the lock of a cell's bridge: its transactional id and its group."""
    return f"{prefix}{cell}{BRIDGE_SUFFIX}"


def executor_lock_id(prefix: str, node_id: str) -> str:
    """Name the lock of the executor that acts for a node, or for ALL_NODES."""
    return f"{prefix}{EXECUTOR_LOCKS}{node_id}"


def grants(prefix: str = DEFAULT_PREFIX, cell: str = DEFAULT_CELL) -> list[Grant]:
    """List the least rights of every role, in the order of ROLES and of the catalogue.

    Readers that join a consumer group need Read on its name besides, which is theirs to choose;
    ours join none.
    """
    return [grant for role in ROLES for grant in _grants_of(role, prefix, cell)]


def _grants_of(role: str, prefix: str, cell: str) -> Iterator[Grant]:
    for topic in CATALOGUE:
        operations = _operations_on(role, topic)
        if operations:
            yield Grant(role, "topic", full_name(topic, prefix), operations)
    if role == "reconciler":
        for name in (f"{prefix}{cell}", f"{prefix}{cell}{PROBE_SUFFIX}"):
            yield Grant(role, "transactional-id", name, ("Write", "Describe"))
    if role in KAFKA_CLUSTER:
        yield Grant(role, "cluster", CLUSTER, KAFKA_CLUSTER[role])
        yield Grant(role, "topic", "*", KAFKA_TOPICS[role])
    if role == "bridge":
        yield from _lock_grants(role, bridge_lock_id(prefix, cell), "literal")
    if role == "executors":
        yield from _lock_grants(role, executor_lock_id(prefix, ""), "prefixed")


def _lock_grants(
    role: str, lock_id: str, pattern: Literal["literal", "prefixed"]
) -> Iterator[Grant]:
    yield Grant(role, "transactional-id", lock_id, ("Write", "Describe"), pattern)
    yield Grant(role, "group", lock_id, ("Read", "Describe"), pattern)


def _operations_on(role: str, topic: Topic) -> tuple[Operation, ...]:
    output = topic.direction == "out"
    if role == "administrator":
        return ("Create", "Describe", "DescribeConfigs", "Alter", "AlterConfigs")
    if role == "reconciler":
        # Its memory is what it wrote; ticks go to the nodes topic; dead letters it only writes.
        ticked = topic.name == NODES
        told: tuple[Operation, ...] = ("Write",) if output or ticked else ()
        heard: tuple[Operation, ...] = () if topic.name == DEAD_LETTERS else ("Read",)
        return (*heard, *told, "Describe", "DescribeConfigs")
    if WRITERS.get(topic.name) == role or (role == "bridge" and topic.name in BRIDGE_WRITES):
        return ("Write", "Describe")
    sees_all = role in ("operators", "readers") and output
    if sees_all or topic.name in READS.get(role, ()):
        return ("Read", "Describe")
    return ()
