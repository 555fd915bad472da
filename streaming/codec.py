"""Translation between the wire and the core: the only module that knows both.

Input messages become core events; core records become keys, headers and JSON values, and back
again when the state is rebuilt; events become journal lines. Ids are hashes of content, so that a
retry writes the same bytes (guarantee G2).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import orjson

from placement.choice import stable_id
from placement.model import (
    AckKind,
    AdministrativeState,
    Assignment,
    Decision,
    Event,
    Guard,
    Liveness,
    Move,
    MoveAcked,
    MoveKind,
    MoveState,
    NodeAttributes,
    NodeChanged,
    NodeView,
    Outcome,
    StreamCreated,
    StreamSpec,
    Violation,
    ViolationClass,
)
from placement.reasons import Code, Reason
from schemas.cluster import Cluster, ClusterNodeStatus, ClusterStream
from schemas.envelope import encode_headers
from schemas.inputs import InputMessage, MoveAccepted, MoveCompleted, MoveFailed, StreamRequest
from schemas.inputs import StreamCreated as StreamCreatedMessage

if TYPE_CHECKING:
    from placement.liveness import Verdict

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

# A reason names the domains that were seen, so that a person can tell what is missing; more than
# this nobody reads, and every record has to stay below the broker's size limit.
SEEN_MAX = 50


@dataclass(frozen=True, slots=True)
class OutRecord:
    """A record ready to be produced. `value` None is a tombstone; `route` decides the partition
    where it is not the key that does."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    route: str | None = None


def body_hash(body: Mapping[str, Any]) -> str:
    """Hash of a message's fields, whatever their order: tells a repeat from a conflict."""
    canonical = orjson.dumps(dict(body), option=orjson.OPT_SORT_KEYS)
    return blake2b(canonical, digest_size=16).hexdigest()


# Wire to core


def node_changed(verdict: "Verdict") -> NodeChanged:
    """A verdict of the liveness table as an event of the core."""
    body = verdict.statement.body.get("fields") if verdict.statement else None
    attributes, location, tags = None, None, None
    if body is not None and "weight" in body:
        attributes = _attributes(body)
    elif body is not None and "location" in body:
        location = body["location"]
        tags = _tags(body["tags"]) if body.get("tags") is not None else None
    return NodeChanged(
        at=verdict.at,
        node_id=verdict.node_id,
        incarnation=verdict.incarnation,
        sequence=verdict.sequence,
        liveness=verdict.liveness,
        attributes=attributes,
        location=location,
        tags=tags,
        body_hash=verdict.statement.body_hash if verdict.statement else "",
    )


def event(message: InputMessage, at: int) -> Event:
    """A message of the streams or acks topic as an event; node messages come as verdicts."""
    if isinstance(message, StreamCreatedMessage):
        hashed = body_hash(message.model_dump())
        return _stream_created(message, at, message.sequence, hashed)
    kinds = {
        MoveAccepted: AckKind.ACCEPTED,
        MoveCompleted: AckKind.COMPLETED,
        MoveFailed: AckKind.FAILED,
    }
    assert isinstance(message, MoveAccepted | MoveCompleted | MoveFailed)
    kind = kinds[type(message)]
    return MoveAcked(at, kind, message.move_id, message.stream, message.shard, message.reason)


def cluster_events(cluster: Cluster) -> tuple[list[Event], list[Event]]:
    """A cluster file as the events that lead to it: its nodes, then its streams, those with
    replicas first, because their load is there before anything is placed."""
    nodes: list[Event] = [
        NodeChanged(
            at=0,
            node_id=node.id,
            incarnation="file",
            sequence=0,
            liveness=_CLUSTER_LIVENESS.get(node.status, Liveness.UP),
            administrative=_CLUSTER_ADMINISTRATIVE.get(node.status, AdministrativeState.NONE),
            guard=_CLUSTER_GUARD.get(node.status, Guard.NONE),
            attributes=NodeAttributes(
                node.location or "",
                _tags(node.tags),
                node.host,
                node.weight,
                node.capacity,
                node.leader,
                node.tokens,
            ),
        )
        for node in cluster.nodes
    ]
    asked = [stream for stream in cluster.streams if isinstance(stream, ClusterStream)]
    asked.sort(key=lambda stream: stream.replicas is None)
    return nodes, [_stream_created(stream, 0, 0, "") for stream in asked]


def _stream_created(request: StreamRequest, at: int, sequence: int, hashed: str) -> StreamCreated:
    given = request.replicas
    return StreamCreated(
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
    )


# Core to wire


# `commit` is the sequence of the commit that publishes a record which has no revision of its own.


def decision_record(decision: Decision, cell: str) -> OutRecord:
    """Key: stream."""
    body = _fields(decision) | {
        "spec": _fields(decision.spec),
        "reasons": [reason_body(reason) for reason in decision.reasons],
        "warnings": [reason_body(warning) for warning in decision.warnings],
    }
    version = (decision.sequence, decision.revision)
    at = decision.decided_at
    return _record("decisions.v1", "Decision", decision.stream, body, cell, version, at)


def assignment_record(assignment: Assignment, cell: str) -> OutRecord:
    """Key: stream/shard."""
    key = f"{assignment.stream}/{assignment.shard}"
    version, at = (assignment.epoch,), assignment.decided_at
    return _record("assignments.v1", "Assignment", key, _fields(assignment), cell, version, at)


def move_record(move: Move, tombstone: bool, cell: str) -> OutRecord:
    """Key: move id; routed by stream/shard, so that one shard's moves are in order."""
    body = None if tombstone else _fields(move) | {"reason": reason_body(move.reason)}
    version = ("forgotten" if tombstone else move.state,)
    at = move.ended_at or move.issued_at
    route = f"{move.stream}/{move.shard}"
    return _record("moves.v1", "Move", move.move_id, body, cell, version, at, route)


def node_record(node_id: str, view: NodeView | None, cell: str, at: int, commit: int) -> OutRecord:
    """Key: node id; None is a tombstone."""
    if view is None:
        return _record("topology.v1", "NodeView", node_id, None, cell, ("forgotten", commit), at)
    body = _fields(view) | _fields(view.attributes)
    del body["attributes"]
    body |= {"tags": dict(view.attributes.tags), "status": view.status}
    # A node that was forgotten begins with revision 1 again, maybe in the same incarnation.
    version = (view.revision, view.incarnation, view.sequence, view.since)
    return _record("topology.v1", "NodeView", node_id, body, cell, version, at)


def violations_record(
    stream: str, shard: int, violations: tuple[Violation, ...], cell: str, at: int, commit: int
) -> OutRecord:
    """Key: stream/shard; no violations are a tombstone."""
    key, listed = f"{stream}/{shard}", [_violation(each) for each in violations]
    body = {"stream": stream, "shard": shard, "violations": listed} if listed else None
    version = ("open" if listed else "healed", commit)
    return _record("violations.v1", "Violations", key, body, cell, version, at)


def _violation(violation: Violation) -> dict[str, Any]:
    body = _fields(violation) | {"reason": reason_body(violation.reason)}
    body["class"] = body.pop("violation_class")
    return body


def log_record(message: str, topic: str, cell: str, body: dict[str, Any], at: int) -> OutRecord:
    """A record of the journal or the commit marker. Key: cell."""
    version = (body["writer_epoch"], body["sequence"], body.get("chunk", 0))
    return _record(topic, message, cell, body, cell, version, at)


def journal_event(each: Event) -> list[Any]:
    """An event as the journal keeps it: its kind and its fields."""
    body = _fields(each)
    if isinstance(each, NodeChanged) and each.attributes is not None:
        body["attributes"] = _fields(each.attributes)
    return [type(each).__name__, body]


def _record(
    topic: str,
    message: str,
    key: str,
    body: dict[str, Any] | None,
    cell: str,
    version: tuple[Any, ...],
    at: int,
    route: str | None = None,
) -> OutRecord:
    identity = stable_id(cell, topic, key, *map(str, version))
    headers = encode_headers(message, cell=cell, id=identity, subject=key, time_ms=at)
    value = None if body is None else orjson.dumps(body)
    return OutRecord(topic, key.encode(), value, [*headers], route)


def reason_body(reason: Reason) -> dict[str, Any]:
    """A reason as it stands in records and in the offline tool's answers."""
    body = _fields(reason) | {"band": reason.band}
    body["seen"] = reason.seen[:SEEN_MAX]
    if not reason.seen:
        del body["seen"]
    return body


def _fields(value: Any) -> dict[str, Any]:
    """The fields of a slotted dataclass that are set."""
    fields = ((name, getattr(value, name)) for name in value.__slots__)
    return {name: each for name, each in fields if each is not None}


# Records of our own topics, back to the core


def parse_decision(body: Mapping[str, Any]) -> Decision:
    """Read what `decision_record` wrote."""
    return Decision(
        **{
            **body,
            "outcome": Outcome(body["outcome"]),
            "spec": _parse_spec(body["spec"]),
            "reasons": tuple(map(_parse_reason, body["reasons"])),
            "warnings": tuple(map(_parse_reason, body["warnings"])),
        }
    )


def _parse_spec(body: Mapping[str, Any]) -> StreamSpec:
    lists = {name: tuple(body[name]) for name in ("shard_tokens", "ranges") if name in body}
    return StreamSpec(**{**body, **lists})


def parse_assignment(body: Mapping[str, Any]) -> Assignment:
    """Read what `assignment_record` wrote."""
    lists = {name: tuple(body[name]) for name in ("replicas", "adding", "removing")}
    if "roles" in body:
        lists["roles"] = tuple(body["roles"])
    return Assignment(**{"move_id": None, **body, **lists})


def parse_move(body: Mapping[str, Any]) -> Move:
    """Read what `move_record` wrote."""
    return Move(
        **{
            "remove": None,
            "add": None,
            **body,
            "kind": MoveKind(body["kind"]),
            "state": MoveState(body["state"]),
            "reason": _parse_reason(body["reason"]),
        }
    )


def parse_node(body: Mapping[str, Any]) -> NodeView:
    """Read what `node_record` wrote."""
    return NodeView(
        node_id=body["node_id"],
        incarnation=body["incarnation"],
        sequence=body["sequence"],
        body_hash=body["body_hash"],
        revision=body["revision"],
        attributes=_attributes(body),
        liveness=Liveness(body["liveness"]),
        since=body["since"],
        administrative=AdministrativeState(body.get("administrative", AdministrativeState.NONE)),
        guard=Guard(body.get("guard", Guard.NONE)),
    )


def parse_violations(body: Mapping[str, Any]) -> tuple[Violation, ...]:
    """Read what `violations_record` wrote."""
    return tuple(map(_parse_violation, body["violations"]))


def _parse_violation(body: Mapping[str, Any]) -> Violation:
    fields = dict(body)
    fields["violation_class"] = ViolationClass(fields.pop("class"))
    return Violation(**fields | {"reason": _parse_reason(body["reason"])})


def _parse_reason(body: Mapping[str, Any]) -> Reason:
    fields = {name: value for name, value in body.items() if name != "band"}
    return Reason(**fields | {"code": Code(body["code"]), "seen": tuple(body.get("seen", ()))})


def _attributes(body: Mapping[str, Any]) -> NodeAttributes:
    return NodeAttributes(
        location=body.get("location") or "",
        tags=_tags(body.get("tags") or {}),
        host=body.get("host"),
        weight=float(body["weight"]),
        capacity=body.get("capacity"),
        leader=body["leader"],
        tokens=None if body.get("tokens") is None else tuple(body["tokens"]),
    )


def _tags(tags: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(tags.items()))
