"""Makes a broker's registration and liveness known to the reconciler: snapshot and tables to words.

Brokers register with `liveness: external`, and a report is sent only where the reconciler believes
something else. With heartbeats on their behalf an agent that stops would let a whole fleet die.
A fenced broker is reported after a patience: a rolling upgrade fences each for seconds.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from schemas import limits
from schemas.inputs import (
    NodeLivenessReported,
    NodeMessage,
    NodeRegistered,
    NodeUnregistered,
)
from schemas.node_view import Liveness, LivenessMode, NodeView
from streaming.kafka_bridge.disk_loads import capacity_of
from streaming.kafka_bridge.importer import (
    RACK_TAG,
    ImportOptions,
    RackUnreadable,
    describe_unracked,
    host_of,
    location_of,
)
from streaming.kafka_bridge.memory import Memory
from streaming.kafka_bridge.snapshot import Broker, Snapshot
from streaming.kafka_bridge.tables import Tables

LIFE_PREFIX = "kafka-"
"""Begins the incarnation of every node that a bridge has registered; the cluster's id follows."""
# Cruise Control heals after 30 minutes and warns after 15; a broker that restarts with many
# segments to recover takes some of them.
PATIENCE_MS = 600_000
# A broker sends a heartbeat every 2 s, so that those of a rack that loses its power are fenced
# within that time and the pause between two looks.
TOGETHER_MS = 3_000
# How `word_of` names the report that a broker is down.
SAID_DOWN = "NodeLivenessReported down"
# Only an operator unregisters a broker; the time is for one that does so by mistake.
FORGET_AFTER_MS = 600_000


@dataclass(frozen=True, slots=True)
class MembershipOptions:
    """`patience_ms`: fenced for so long a broker is down; unregistered for `forget_after_ms`
    it has left for good. `capacity`: the most replicas of a broker, None for any. `counts_disks`:
    the reconciler counts what replicas use of disks."""

    patience_ms: int = PATIENCE_MS
    forget_after_ms: int = FORGET_AFTER_MS
    capacity: int | None = None
    counts_disks: bool = False


@dataclass(frozen=True, slots=True)
class Membership:
    """Messages about brokers for the reconciler, and notes for people."""

    messages: tuple[NodeMessage, ...] = ()
    notes: tuple[str, ...] = ()


def life_of(cluster_id: str) -> str:
    """Return the incarnation of a cluster's brokers: the same over restarts of a broker, because
    its replicas stay."""
    return f"{LIFE_PREFIX}{cluster_id}"


def find_silent_brokers(snapshot: Snapshot, tables: Tables) -> set[int]:
    """Find the brokers that are fenced, or are known to the reconciler and gone from Kafka."""
    fenced = {each.id for each in snapshot.brokers.values() if each.fenced}
    return fenced | (_known_brokers(snapshot, tables) - snapshot.brokers.keys())


def find_membership(
    snapshot: Snapshot,
    tables: Tables,
    memory: Memory,
    options: MembershipOptions,
    locations: ImportOptions,
) -> Membership:
    """Find what the reconciler has to be told of brokers, the least that makes its nodes true.

    `memory.silent_since` has to be that of this snapshot. While Kafka has no controller nobody is
    said to be down. A broker of another cluster is left alone and noted.
    """
    messages: list[NodeMessage] = []
    notes = [*describe_unracked(snapshot.brokers.values())]
    for broker_id in sorted(snapshot.brokers.keys() | _known_brokers(snapshot, tables)):
        view = tables.nodes.get(str(broker_id))
        foreign = _foreign_life(view, snapshot)
        if foreign is not None:
            notes.append(foreign)
            continue
        broker = snapshot.brokers.get(broker_id)
        registration: NodeMessage | str | None = None
        if broker is not None:
            registration = _registration(broker, view, snapshot, options, locations)
        if isinstance(registration, str):
            notes.append(registration)
        elif registration is not None:
            messages.append(registration)
        elif view is not None:
            messages += _liveness(broker, view, snapshot, memory, options)
    messages += _ghosts(snapshot, tables)
    waits = memory.awaits
    fresh = (each for each in messages if not waits(word_of(each), snapshot.at))
    return Membership(tuple(fresh), tuple(notes))


def word_of(message: NodeMessage) -> tuple[str, str]:
    """Name what a message says, by which it is known while its answer is awaited."""
    said = type(message).__name__
    if isinstance(message, NodeLivenessReported):
        said = f"{said} {message.status}"
    return said, message.node_id


def _known_brokers(snapshot: Snapshot, tables: Tables) -> set[int]:
    life = life_of(snapshot.cluster_id)
    return {
        int(node_id)
        for node_id, view in tables.nodes.items()
        if view.incarnation == life
        and view.liveness is not Liveness.UNREGISTERED
        and node_id.isdecimal()
    }


def _foreign_life(view: NodeView | None, snapshot: Snapshot) -> str | None:
    if view is None or view.incarnation == life_of(snapshot.cluster_id):
        return None
    if not view.incarnation.startswith(LIFE_PREFIX):
        return None
    other = view.incarnation.removeprefix(LIFE_PREFIX)
    return (
        f"node {view.node_id} is a broker of the Kafka cluster {other}, not of "
        f"{snapshot.cluster_id}: give each cluster a reconciler of its own (topic prefix)"
    )


def _registration(
    broker: Broker,
    view: NodeView | None,
    snapshot: Snapshot,
    options: MembershipOptions,
    locations: ImportOptions,
) -> NodeRegistered | str | None:
    """Make the registration that is missing or has changed; a sentence where none can be made."""
    try:
        location = location_of(broker, locations)
    except RackUnreadable as error:
        return f"{error}; the broker is not registered"
    tags = {}
    if broker.rack and re.fullmatch(limits.TAG_VALUE_PATTERN, broker.rack):
        tags[RACK_TAG] = broker.rack
    host = host_of(broker)
    disks = capacity_of(snapshot, broker.id) if options.counts_disks else None
    if disks is None and view is not None and options.counts_disks:
        disks = view.capacities  # its disks have not been read yet
    wanted = (host, location or "", tags, options.capacity, disks)
    if view is not None and _is_registered(view, snapshot) and _attributes(view) == wanted:
        return None
    life = life_of(snapshot.cluster_id)
    return NodeRegistered(
        node_id=str(broker.id),
        incarnation=life,
        sequence=_next_sequence(view, snapshot),
        host=host,
        location=location,
        tags=tags or None,
        capacity=options.capacity,
        capacities=disks,
        liveness="external",
        replaces=None if view is None or view.incarnation == life else view.incarnation,
    )


def _is_registered(view: NodeView, snapshot: Snapshot) -> bool:
    return (
        view.incarnation == life_of(snapshot.cluster_id)
        and view.liveness is not Liveness.UNREGISTERED
        and view.liveness_mode is LivenessMode.EXTERNAL
    )


def _attributes(view: NodeView) -> tuple[object, ...]:
    """Return what the node has said of itself, whether it is in force or not."""
    location, tags = view.location, view.tags
    if view.pending is not None:
        location, tags = view.pending.location, view.pending.tags
    elif view.claimed_location is not None:
        location = view.claimed_location
    return view.host, location, tags, view.capacity, view.capacities


def _next_sequence(view: NodeView | None, snapshot: Snapshot) -> int:
    """Return a sequence above all earlier ones, also of words that have no answer yet."""
    return max(snapshot.at, 0 if view is None else view.sequence + 1)


def _liveness(
    broker: Broker | None,
    view: NodeView,
    snapshot: Snapshot,
    memory: Memory,
    options: MembershipOptions,
) -> Iterator[NodeMessage]:
    if broker is not None and not broker.fenced:
        if view.liveness is Liveness.DEAD:
            yield _report(view, snapshot, up=True)
        return
    if snapshot.controller is None:
        return
    silent_ms = snapshot.at - memory.silent_since.get(int(view.node_id), snapshot.at)
    if broker is None and silent_ms >= options.forget_after_ms:
        yield NodeUnregistered(
            node_id=view.node_id,
            incarnation=view.incarnation,
            sequence=_next_sequence(view, snapshot),
        )
    elif (
        view.liveness is not Liveness.DEAD
        and silent_ms >= options.patience_ms
        and not _falls_with_others(int(view.node_id), snapshot, memory, options)
    ):
        yield _report(view, snapshot, up=False)


def _falls_with_others(
    broker_id: int, snapshot: Snapshot, memory: Memory, options: MembershipOptions
) -> bool:
    """Return whether another broker fell silent so shortly after this one that both are to be
    reported together: the first alone would have its replicas copied before the loss of the rack is
    seen, and held."""
    begun = memory.silent_since.get(broker_id, snapshot.at)
    return any(
        begun < since <= begun + TOGETHER_MS and snapshot.at - since < options.patience_ms
        for since in memory.silent_since.values()
    )


def _report(view: NodeView, snapshot: Snapshot, *, up: bool) -> NodeLivenessReported:
    last = -1 if view.reported is None else view.reported.sequence
    return NodeLivenessReported(
        node_id=view.node_id,
        incarnation=view.incarnation,
        sequence=max(snapshot.at, last + 1),
        status="up" if up else "down",
    )


def _ghosts(snapshot: Snapshot, tables: Tables) -> Iterator[NodeRegistered]:
    """Register the brokers that stand in lists alone, so that the lists can be adopted.

    They hold what cannot be read any more; a capacity of none keeps replicas away until they are
    reported down.
    """
    listed = {b for _, each in snapshot.partitions() for b in each.listed}
    for broker in sorted(listed - snapshot.brokers.keys()):
        if str(broker) not in tables.nodes:
            yield NodeRegistered(
                node_id=str(broker),
                incarnation=life_of(snapshot.cluster_id),
                sequence=_next_sequence(None, snapshot),
                capacity=0,
                liveness="external",
            )
