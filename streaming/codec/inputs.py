"""Translates input messages to the core's events, and cluster files to what made them.

Input messages become core events; core records become keys, headers and JSON values, and back
again when the state is rebuilt. Ids are hashes of content, so that a retry writes the same bytes.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from placement.liveness import (
    LastHeartbeat,
    LivenessReport,
    LocalityChange,
    Registration,
    ReportedStatus,
    Statement,
    StatementBody,
    Unregistration,
    Verdict,
)
from placement.load_reports import LoadReport
from placement.model import (
    AckKind,
    Action,
    AdministrativeState,
    Event,
    Guard,
    Liveness,
    LocationResolved,
    MoveAcked,
    NodeAttributes,
    NodeChanged,
    OperatorAsked,
    ReplicaLost,
    ReplicasObserved,
    Resource,
    ShardLoad,
    StreamAltered,
    StreamCreated,
    StreamDropped,
)
from schemas import acks, inputs, limits
from schemas.body_hashes import hash_body, hash_request
from schemas.cluster import Cluster, ClusterNode, ClusterNodeStatus, ClusterStream
from schemas.inputs import InputMessage, StreamRequest
from schemas.requests import OperatorRequest, TimedRequest
from streaming.codec.packets import RawRecord
from streaming.codec.values import amounts_of, tags_of

# A node that is only registered has given no sign of life yet: it takes no replicas.
_CLUSTER_LIVENESS = {
    ClusterNodeStatus.REGISTERED: Liveness.SUSPECT,
    ClusterNodeStatus.SUSPECT: Liveness.SUSPECT,
    ClusterNodeStatus.FENCED: Liveness.SUSPECT,
    ClusterNodeStatus.DEAD: Liveness.DEAD,
    ClusterNodeStatus.DOWN: Liveness.DEAD,
    ClusterNodeStatus.UNREGISTERED: Liveness.UNREGISTERED,
}
_CLUSTER_ADMINISTRATIVE = {
    ClusterNodeStatus.DRAINING: AdministrativeState.DRAINING,
    ClusterNodeStatus.MAINTENANCE: AdministrativeState.MAINTENANCE,
    ClusterNodeStatus.CORDONED: AdministrativeState.CORDONED,
}
_CLUSTER_GUARD = {
    ClusterNodeStatus.HELD_DOWN: Guard.HELD_DOWN,
    ClusterNodeStatus.QUARANTINED: Guard.QUARANTINED,
}

_REPORTED = {"up": ReportedStatus.UP, "down": ReportedStatus.DOWN}
_ACKS: Mapping[type[InputMessage], AckKind] = {
    acks.MoveAccepted: AckKind.ACCEPTED,
    acks.MoveProgressed: AckKind.PROGRESSED,
    acks.MoveCompleted: AckKind.COMPLETED,
    acks.MoveFailed: AckKind.FAILED,
    acks.MoveStopped: AckKind.STOPPED,
}

_R = TypeVar("_R", StreamCreated, StreamAltered)


# Wire to core


def statement(message: inputs.NodeMessage, raw: RawRecord, elapsed: int) -> Statement:
    """Make a statement of a node's or detector's message, which keeps its type. `elapsed`: ms on
    the partition's clock since the batch's first record; the raw record goes along."""
    fields = message.model_dump()
    for name in ("replaces", "capacities"):
        if fields.get(name, "") is None:
            # As it was hashed before the field was there.
            del fields[name]
    where = (raw.offset, elapsed, raw.at)
    life = (message.node_id, message.incarnation, message.sequence)
    return Statement(*where, *life, _statement_body(message), hash_body(fields), raw)


def _statement_body(message: inputs.NodeMessage) -> StatementBody:
    match message:
        case inputs.NodeRegistered():
            external = message.liveness == "external"
            return Registration(_attributes(message), external, message.replaces)
        case inputs.NodeLocalityChanged():
            tags = None if message.tags is None else tags_of(message.tags)
            return LocalityChange(message.location, tags)
        case inputs.NodeUnregistered():
            return Unregistration()
        case inputs.NodeHeartbeat():
            return LastHeartbeat()
    assert isinstance(message, inputs.NodeLivenessReported)
    return LivenessReport(_REPORTED[message.status])


def _attributes(node: inputs.NodeRegistered | ClusterNode) -> NodeAttributes:
    return NodeAttributes(
        node.location or "",
        tags_of(node.tags or {}),
        node.host,
        node.weight,
        node.capacity,
        node.leader,
        node.tokens,
        amounts_of(getattr(node, "capacities", None)),
    )


def event_of_verdict(verdict: Verdict) -> NodeChanged:
    """Make an event of the core of a verdict of the liveness table."""
    said = verdict.statement
    attributes, location, tags = None, None, None
    match body := None if said is None else said.body:
        case Registration():
            attributes = body.attributes
        case LocalityChange():
            location, tags = body.location, body.tags
    return NodeChanged(
        at=verdict.at,
        node_id=verdict.node_id,
        incarnation=verdict.incarnation,
        sequence=verdict.sequence,
        liveness=verdict.liveness,
        attributes=attributes,
        location=location,
        tags=tags,
        body_hash="" if said is None else said.body_hash,
        flaps=verdict.flaps,
        reporting=verdict.reporting,
        lives=verdict.lives,
    )


def event_of_tombstone(key: bytes | None, at: int) -> LocationResolved | None:
    """A tombstone of the inventory; None if its key is no node id."""
    name = (key or b"").decode("ascii", "replace")
    if not limits.ID.match(name):
        return None
    return LocationResolved(at, name, None, "inventory", "it was removed from the inventory")


def report_of_message(message: inputs.NodeLoadReported, at: int) -> LoadReport:
    """A report of loads, in columns."""
    life = (message.node_id, message.incarnation, message.sequence)
    shards = ((each.stream, each.shard, each.uid, each.amounts) for each in message.shards)
    return LoadReport.of(at, life, shards, amounts_of(message.capacities) or ())


def event_of_message(message: InputMessage, at: int) -> Event:
    """A message of the inventory, streams, acks or operator topic as an event; those of nodes
    come as verdicts."""
    if isinstance(message, OperatorRequest):
        return event_of_order(message, at)
    match message:
        case inputs.NodeInventory():
            return LocationResolved(at, message.node_id, message.location, "inventory")
        case inputs.StreamCreated():
            return _stream_event(
                StreamCreated, message, at, message.sequence, hash_request(message)
            )
        case inputs.StreamAltered():
            return _stream_event(
                StreamAltered, message, at, message.sequence, hash_request(message)
            )
        case inputs.StreamDropped():
            hashed = hash_request(message)
            return StreamDropped(at, message.stream, message.sequence, hashed, message.uid)
        case acks.ReplicaLost():
            place = (message.stream, message.shard, message.node_id)
            return ReplicaLost(at, *place, message.reason, message.uid)
        case acks.ReplicasObserved():
            return ReplicasObserved(
                at,
                message.stream,
                message.shard,
                message.epoch,
                message.replicas,
                message.leader,
                message.in_sync,
                message.uid,
                message.following,
            )
    kind = _ACKS[type(message)]
    assert isinstance(message, acks.MoveMessage)
    said = MoveAcked(at, kind, message.move_id, message.stream, message.shard, message.reason)
    said = replace(said, uid=message.uid)
    if isinstance(message, acks.MoveProgressed):
        said = replace(said, bytes_done=message.bytes_done, bytes_total=message.bytes_total)
    return said


def event_of_order(request: OperatorRequest, at: int) -> OperatorAsked:
    """An operator's message as an event."""
    ttl_seconds = request.ttl_seconds if isinstance(request, TimedRequest) else None
    return OperatorAsked(
        at,
        request.request_id,
        Action(request.action),
        request.target,
        request.expected_impact_hash,
        None if ttl_seconds is None else ttl_seconds * 1000,
    )


def events_of_cluster(cluster: Cluster) -> tuple[list[Event], list[Event]]:
    """Make the events that lead to a cluster file. Nodes come first, then streams; those with
    replicas precede the others, so that their load counts for what is placed."""
    nodes: list[Event] = [
        NodeChanged(
            at=0,
            node_id=node.id,
            incarnation="file",
            sequence=0,
            liveness=_CLUSTER_LIVENESS.get(node.status, Liveness.UP),
            administrative=_CLUSTER_ADMINISTRATIVE.get(node.status, AdministrativeState.NONE),
            guard=_CLUSTER_GUARD.get(node.status, Guard.NONE),
            attributes=_attributes(node),
        )
        for node in cluster.nodes
    ]
    asked = [stream for stream in cluster.streams if isinstance(stream, ClusterStream)]
    asked.sort(key=lambda stream: stream.replicas is None)
    return nodes, [_stream_event(StreamCreated, stream, 0, 0, "") for stream in asked]


def resources_of_cluster(cluster: Cluster) -> tuple[Resource, ...]:
    """Return the resources of a cluster file, by name."""
    return tuple(
        Resource(name, each.capacity, each.balance, each.led)
        for name, each in sorted(cluster.resources.items())
    )


def loads_of_stream(stream: ClusterStream) -> list[ShardLoad]:
    """Make the records of what a cluster file knows of a stream's shards; no node has said it."""
    known = sorted(stream.known_loads.items())
    found = []
    for shard in range(stream.shards):
        listed = ((name, loads[shard]) for name, loads in known if shard < len(loads))
        amounts = tuple((name, amount) for name, amount in listed if amount is not None)
        if amounts:
            found.append(ShardLoad(stream.stream, shard, amounts, "", 0))
    return found


def _stream_event(
    kind: type[_R], request: StreamRequest, at: int, sequence: int, hashed: str
) -> _R:
    given = request.replicas
    return kind(
        at=at,
        stream=request.stream,
        sequence=sequence,
        shards=request.shards,
        replication_factor=request.replication_factor,
        placement_policies=request.placement_policies,
        policy=request.policy,
        quorum=request.quorum,
        replicas=None if given is None else tuple(tuple(nodes) for nodes in given),
        body_hash=hashed,
        shard_tokens=request.shard_tokens,
        dimension=request.dimension,
        ranges=request.ranges,
        repair=request.repair,
        uid=getattr(request, "uid", None),
        adopt=getattr(request, "adopt", None),
        expected_load=amounts_of(request.expected_load),
    )
