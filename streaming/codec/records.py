"""Writes the core's decisions as records and reads them back for a rebuild.

With the other codecs the only modules that know both the wire and the core. Ids are hashes of
content, so that a retry writes the same bytes.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import orjson

from placement.hashing import begin_stable_id, stable_id
from placement.model import (
    AdministrativeState,
    Alert,
    Answer,
    Assignment,
    Decision,
    FlapHistory,
    Guard,
    Liveness,
    Memory,
    Move,
    MoveKind,
    MoveState,
    NodeView,
    Outcome,
    Pending,
    Published,
    Ready,
    Reporting,
    Severity,
    ShardLoad,
    StreamSpec,
    Violation,
    ViolationClass,
)
from schemas.envelope import OUTCOME_HEADER, encode_headers, make_header_encoder
from schemas.topics import (
    ALERTS,
    ANSWERS,
    ASSIGNMENTS,
    DECISIONS,
    MEMORY,
    MOVES,
    SHARD_LOADS,
    TOPOLOGY,
    VIOLATIONS,
)
from streaming.codec.assignments import (
    assignment_value,
    make_value_encoder,
    parse_assignment,
)
from streaming.codec.values import (
    amounts_of,
    attributes_body,
    attributes_of,
    fields_of,
    flaps_body,
    lives_body,
    parse_flaps,
    parse_lives,
    parse_reason,
    reason_body,
    reporting_body,
    tags_of,
)


class OutRecord(NamedTuple):
    """A record ready to be produced. `value` None is a tombstone; `route` decides the partition
    where it is not the key that does."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    route: str | None = None


# `commit` is the sequence of the commit that publishes a record which has no revision of its own.


def ready_records(ready: Ready, cell: str, at: int, commit: int) -> Iterator[OutRecord]:
    """Yield everything that a batch decided, none where `ready.empty`; moves stand behind the
    assignments they refer to. Each is made when it is asked for: a million take a gigabyte."""
    gone = {name for name, each in ready.decisions.items() if each.outcome is Outcome.DROPPED}
    return chain(
        (node_record(name, view, cell, at, commit) for name, view in ready.topology.items()),
        (decision_record(decision, cell) for decision in ready.decisions.values()),
        (forgotten_record(stream, cell, at, commit) for stream in ready.forgotten),
        (dropped_record(*shard, cell, at, commit) for shard in ready.dropped),
        assignment_records(ready.assignments.values(), cell),
        (move_record(move, tombstone, cell) for move, tombstone in ready.moves.values()),
        (
            violations_record(stream, shard, found, cell, at, commit, dropped=stream in gone)
            for (stream, shard), found in ready.violations.items()
        ),
        (
            memory_record(kind, name, memory, cell, at, commit)
            for (kind, name), memory in ready.memory.items()
        ),
        (
            load_record(stream, shard, load, cell, at, commit)
            for (stream, shard), load in ready.loads.items()
        ),
        (alert_record(alert, number, cell, commit) for number, alert in enumerate(ready.alerts)),
        (answer_record(each, number, cell, commit) for number, each in enumerate(ready.answers)),
    )


def decision_record(decision: Decision, cell: str) -> OutRecord:
    """Key: stream."""
    body = fields_of(decision) | {
        "spec": spec_body(decision.spec),
        "reasons": [reason_body(reason) for reason in decision.reasons],
        "warnings": [reason_body(warning) for warning in decision.warnings],
    }
    if decision.requested is not None:
        body["requested"] = spec_body(decision.requested)
    at = decision.decided_at
    # A stream that was forgotten begins with revision 1 again, maybe with an old sequence.
    version = (decision.sequence, decision.revision, at)
    return _record(DECISIONS, "Decision", decision.stream, body, cell, version, at)


def spec_body(spec: StreamSpec) -> dict[str, Any]:
    """A spec as decisions have it."""
    body = fields_of(spec)
    if spec.expected_load is not None:
        body["expected_load"] = dict(spec.expected_load)
    return body


def forgotten_record(stream: str, cell: str, at: int, commit: int) -> OutRecord:
    """The tombstone of a dropped stream's decision. Key: stream."""
    return _record(DECISIONS, "Decision", stream, None, cell, ("forgotten", commit), at)


def dropped_record(stream: str, shard: int, cell: str, at: int, commit: int) -> OutRecord:
    """The tombstone of a dropped stream's assignment. Key: stream/shard."""
    key, version = f"{stream}/{shard}", ("dropped", commit)
    return _record(ASSIGNMENTS, "Assignment", key, None, cell, version, at)


def assignment_record(assignment: Assignment, cell: str) -> OutRecord:
    """Key: stream/shard."""
    return next(assignment_records((assignment,), cell))


def assignment_records(assignments: Iterable[Assignment], cell: str) -> Iterator[OutRecord]:
    """Yield `assignment_record` of each. What a stream's records share is made once for those that
    follow each other."""
    shared: tuple[str | int | None, ...] = ()
    for assignment in assignments:
        stream, shard, epoch, replicas, adding, removing, move_id, at, roles, uid = assignment
        if shared != (stream, at, uid):
            shared = (stream, at, uid)
            make_id = begin_stable_id(f"{cell}\x1f{ASSIGNMENTS}\x1f{stream}/")
            encode_value = make_value_encoder(stream, at, uid)
            encode_ours = make_header_encoder("Assignment", cell, at)
        if adding or removing or move_id is not None or roles is not None:
            value = assignment_value(assignment)
        else:
            value = encode_value(shard, epoch, replicas)
        key = f"{stream}/{shard}".encode()
        identity = make_id(f"{shard}\x1f{epoch}").encode()
        # A named tuple's own constructor is written in Python, and takes as long as the id.
        yield tuple.__new__(OutRecord, (ASSIGNMENTS, key, value, encode_ours(identity, key), None))


def move_record(move: Move, tombstone: bool, cell: str) -> OutRecord:
    """Key: move id; routed by stream/shard, so that one shard's moves are in order."""
    body = None if tombstone else fields_of(move) | {"reason": reason_body(move.reason)}
    version: tuple[Any, ...] = ("forgotten",)
    if not tombstone:
        version = (move.state, *filter(None, (move.reminded,)))
        if move.renewed_at is not None:
            version += (f"renewed {move.renewed_at}",)
    at = move.ended_at or move.issued_at
    route = f"{move.stream}/{move.shard}"
    return _record(MOVES, "Move", move.move_id, body, cell, version, at, route)


def node_record(node_id: str, view: NodeView | None, cell: str, at: int, commit: int) -> OutRecord:
    """Key: node id; None is a tombstone."""
    if view is None:
        return _record(TOPOLOGY, "NodeView", node_id, None, cell, ("forgotten", commit), at)
    body = fields_of(view) | attributes_body(view.attributes)
    for name in ("attributes", "transitions", "reporting", "claimed", "source", "lives"):
        body.pop(name, None)
    body["location_source"] = view.source
    if view.claimed is not None:
        body["claimed_location"] = view.claimed
    if view.pending is not None:
        body["pending"] = fields_of(view.pending) | {"tags": dict(view.pending.tags)}
    if view.quarantine is not None:
        body["quarantine"] = reason_body(view.quarantine)
    body |= flaps_body(FlapHistory(view.transitions, view.hold_down)) | reporting_body(
        view.reporting
    )
    body["status"] = view.status
    body |= lives_body(view.lives)
    # A node that was forgotten begins with revision 1 again, maybe in the same incarnation.
    version = (view.revision, view.incarnation, view.sequence, view.since)
    return _record(TOPOLOGY, "NodeView", node_id, body, cell, version, at)


def violations_record(
    stream: str,
    shard: int,
    violations: tuple[Violation, ...],
    cell: str,
    at: int,
    commit: int,
    *,
    dropped: bool = False,
) -> OutRecord:
    """Key: stream/shard. No violations make a tombstone, whose header says whether the stream was
    `dropped`."""
    key, listed = f"{stream}/{shard}", [_violation(each) for each in violations]
    body = {"stream": stream, "shard": shard, "violations": listed} if listed else None
    version = ("open" if listed else "healed", commit)
    record = _record(VIOLATIONS, "Violations", key, body, cell, version, at)
    if dropped and body is None:
        record.headers.append((OUTCOME_HEADER, Outcome.DROPPED.encode()))
    return record


def _violation(violation: Violation) -> dict[str, Any]:
    body = fields_of(violation) | {"reason": reason_body(violation.reason)}
    body["class"] = body.pop("violation_class")
    return body


def memory_record(
    kind: str, name: str, memory: Memory | None, cell: str, at: int, commit: int
) -> OutRecord:
    """Key: kind/name; None is a tombstone."""
    key = f"{kind}/{name}"
    body = None if memory is None else fields_of(memory)
    version = ("forgotten" if memory is None else "kept", commit)
    return _record(MEMORY, "Memory", key, body, cell, version, at)


def load_record(
    stream: str, shard: int, load: ShardLoad | None, cell: str, at: int, commit: int
) -> OutRecord:
    """Key: stream/shard; None is a tombstone."""
    key = f"{stream}/{shard}"
    body = None if load is None else fields_of(load) | {"amounts": dict(load.amounts)}
    version = ("forgotten" if load is None else "known", commit)
    return _record(SHARD_LOADS, "ShardLoad", key, body, cell, version, at)


def alert_record(alert: Alert, number: int, cell: str, commit: int) -> OutRecord:
    """Key: kind; `number` tells apart the alerts of one commit."""
    body = fields_of(alert) | {
        "reason": reason_body(alert.reason),
        "severity": alert.severity,
    }
    version = (commit, number)
    return _record(ALERTS, "Alert", alert.kind, body, cell, version, alert.at)


def answer_record(answer: Answer, number: int, cell: str, commit: int) -> OutRecord:
    """Key: target; `number` tells apart the answers of one commit."""
    body = fields_of(answer) | {
        "reason": reason_body(answer.reason),
        "severity": Severity.INFO,
    }
    version = (commit, number)
    return _record(ANSWERS, "RequestAnswered", answer.target, body, cell, version, answer.at)


def log_record(message: str, topic: str, cell: str, body: dict[str, Any], at: int) -> OutRecord:
    """A record of the journal or the commit marker. Key: cell."""
    version = (body["writer_epoch"], body["sequence"], body.get("chunk", 0))
    return _record(topic, message, cell, body, cell, version, at)


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
    value = None if body is None else orjson.dumps(body)
    identity = stable_id(cell, topic, key, *version)
    headers = encode_headers(message, cell=cell, id=identity, subject=key, time_ms=at)
    return OutRecord(topic, key.encode(), value, headers, route)


# Records of our own topics, back to the core


def parse_decision(body: Mapping[str, Any]) -> Decision:
    """Read what `decision_record` wrote."""
    return Decision(
        **{
            **body,
            "outcome": Outcome(body["outcome"]),
            "spec": _parse_spec(body["spec"]),
            "requested": _parse_spec(body["requested"]) if "requested" in body else None,
            "reasons": tuple(map(parse_reason, body["reasons"])),
            "warnings": tuple(map(parse_reason, body["warnings"])),
        }
    )


def _parse_spec(body: Mapping[str, Any]) -> StreamSpec:
    lists: dict[str, Any] = {
        name: tuple(body[name]) for name in ("shard_tokens", "ranges") if name in body
    }
    if "expected_load" in body:
        lists["expected_load"] = amounts_of(body["expected_load"])
    return StreamSpec(**{**body, **lists})


def parse_move(body: Mapping[str, Any]) -> Move:
    """Read what `move_record` wrote."""
    return Move(
        **{
            "remove": None,
            "add": None,
            **body,
            "kind": MoveKind(body["kind"]),
            "state": MoveState(body["state"]),
            "reason": parse_reason(body["reason"]),
        }
    )


def parse_node(body: Mapping[str, Any]) -> NodeView:
    """Read what `node_record` wrote."""
    flaps = parse_flaps(body)
    return NodeView(
        node_id=body["node_id"],
        incarnation=body["incarnation"],
        sequence=body["sequence"],
        body_hash=body["body_hash"],
        revision=body["revision"],
        attributes=attributes_of(body),
        liveness=Liveness(body["liveness"]),
        since=body["since"],
        administrative=AdministrativeState(body.get("administrative", AdministrativeState.NONE)),
        guard=Guard(body.get("guard", Guard.NONE)),
        transitions=flaps.transitions,
        hold_down=flaps.hold,
        reporting=Reporting(True, **body["reported"]) if "reported" in body else Reporting(),
        claimed=body.get("claimed_location"),
        pending=_parse_pending(body.get("pending")),
        quarantine=parse_reason(body["quarantine"]) if "quarantine" in body else None,
        source=body.get("location_source", "claim"),
        lives=parse_lives(body),
    )


def _parse_pending(body: Mapping[str, Any] | None) -> Pending | None:
    return None if body is None else Pending(**{**body, "tags": tags_of(body["tags"])})


def parse_violations(body: Mapping[str, Any]) -> tuple[Violation, ...]:
    """Read what `violations_record` wrote."""
    return tuple(map(_parse_violation, body["violations"]))


def _parse_violation(body: Mapping[str, Any]) -> Violation:
    fields = dict(body)
    fields["violation_class"] = ViolationClass(fields.pop("class"))
    return Violation(**fields | {"reason": parse_reason(body["reason"])})


def parse_memory(body: Mapping[str, Any]) -> Memory:
    """Read what `memory_record` wrote."""
    return Memory(**body)


def parse_load(body: Mapping[str, Any]) -> ShardLoad:
    """Read what `load_record` wrote."""
    amounts = tuple(sorted(body["amounts"].items()))
    return ShardLoad(body["stream"], body["shard"], amounts, body["node_id"], body["at"])


def parse_published(latest: Mapping[str, Mapping[str, dict[str, Any]]]) -> Published:
    """The last value of every key of the state topics, by topic, as what the core is rebuilt from.

    Reading it raises KeyError, ValueError or TypeError where a record is none of ours.
    """
    return Published(
        nodes=[parse_node(body) for body in latest[TOPOLOGY].values()],
        decisions=map(parse_decision, latest[DECISIONS].values()),
        assignments=map(parse_assignment, latest[ASSIGNMENTS].values()),
        moves=map(parse_move, latest[MOVES].values()),
        violations=map(parse_violations, latest[VIOLATIONS].values()),
        memory=map(parse_memory, latest[MEMORY].values()),
        loads=map(parse_load, latest[SHARD_LOADS].values()),
    )
