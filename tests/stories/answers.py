"""How a story puts records: one line for each, short enough to be read in a diff."""

from collections.abc import Iterator, Mapping
from typing import Any

from placement.model import (
    Alert,
    Answer,
    Assignment,
    Decision,
    Guard,
    Move,
    NodeView,
    Reason,
    Violation,
    natural_key,
)


def shard_line(assignment: Assignment) -> str:
    changes = [*(f"+{n}" for n in assignment.adding), *(f"-{n}" for n in assignment.removing)]
    where = " ".join([*assignment.replicas, *changes])
    return f"{assignment.stream}/{assignment.shard} e{assignment.epoch}: {where}"


def layout(assignments: list[Assignment], named: bool) -> Iterator[str]:
    """Nodes with their replicas, as the source's documentation prints them."""
    held: dict[str, list[str]] = {}
    for assignment in assignments:
        for slot, node_id in enumerate(assignment.replicas):
            stream = f"{assignment.stream} " if named else ""
            replica = f"({stream}shard-{assignment.shard}, replica-{slot})"
            held.setdefault(node_id, []).append(replica)
    for node_id, replicas in in_order(held):
        yield f"{node_id}: {', '.join(replicas)}"


def node_line(node_id: str, view: NodeView) -> str:
    """Its place, and what is doubtful about it."""
    line = f"{node_id}: {view.liveness} {view.attributes.location or '-'}"
    if view.guard is not Guard.NONE:
        line += f" {view.guard}"
    if view.pending is not None:
        line += f", pending {view.pending.location or '-'}"
    elif view.claimed is not None:
        line += f", claims {view.claimed or '-'}"
    if view.lives.pending is not None:
        line += f", {view.lives.pending.incarnation} waits"
    if view.lives.refused is not None:
        line += f", {view.lives.refused.incarnation} is refused"
    return line


def decision_lines(decision: Decision) -> Iterator[str]:
    counts = ""
    if decision.outcome.value not in ("rejected", "dropped"):
        counts = f", {decision.shards_placed} of {decision.spec.shards} shards whole"
    if decision.replicas_missing:
        counts += f", {decision.replicas_missing} replicas missing"
    by = f" by {decision.strategy}" if decision.strategy else ""
    yield f"{decision.stream} {decision.outcome}{by}{counts}"
    wanted = decision.requested
    if wanted is not None:
        shape = f"{wanted.shards} shards of {wanted.replication_factor} replicas"
        yield f"  refused: {shape}, {wanted.placement_policies or dict(wanted.policy)}"
    yield from (f"  {reason_text(reason)}" for reason in decision.reasons)
    yield from (f"  warning {reason_text(reason)}" for reason in decision.warnings)


def violation_line(violation: Violation) -> str:
    v = violation
    where = f" in {v.domain}" if v.domain else ""
    counted = f"{v.rule}{where}: {v.count}, limit {v.limit}"
    code = f"{v.violation_class} ({v.reason.code})"
    return f"{v.strength} {v.stream}/{v.shard} {counted}, {code}"


def alert_line(alert: Alert) -> str:
    """Something that people are told."""
    about = f"{alert.severity} {alert.kind} {alert.subject}"
    return f"alert {about}: {reason_text(alert.reason)}"


def answer_line(answer: Answer) -> str:
    """What became of an operator's request."""
    about = f"{answer.outcome} {answer.action} {answer.target}"
    return f"answer {about}: {reason_text(answer.reason)}"


def order_text(body: Mapping[str, Any]) -> str:
    """An order that stands, and how far a drain has come."""
    parts = [f"{body['action']}"]
    if body["until"] is not None:
        parts.append(f"until {body['until'] // 1000} s")
    if body["action"] == "drain":
        parts.append(f"{body['remaining']} remaining, {body['in_flight']} in flight")
        parts.append(
            f"{body['blocked_total']} blocked {[each['shard'] for each in body['blocked']]}"
        )
    return ", ".join(parts) + (", done" if body["done"] else "")


def reason_text(reason: Reason) -> str:
    return f"{reason.code}: {reason.message}"


def in_order(mapping: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(mapping.items(), key=lambda item: natural_key(item[0]))


def move_line(name: str, move: Move, superseded: str | None) -> str:
    ways = " -> ".join((move.remove or "", move.add or "")).strip()
    if move.leader is not None:
        ways = f"{move.leader} is to lead"
    parts = [f"{name} {move.stream}/{move.shard} slot {move.slot}: {ways}"]
    parts.append(f"{move.state} ({move.reason.code})")
    if move.reminded:
        parts.append(f"reminder {move.reminded}")
    if move.renewed_at is not None and move.state.is_open:
        copied = "" if move.bytes_done is None else f"{move.bytes_done} bytes done, "
        parts.append(f"{copied}until {move.deadline // 1000} s")
    if move.state.value == "issued":
        parts.append(f"copy from {move.source or 'none'}, valid at e{move.expected_epoch}")
        if superseded:
            parts.append(f"for {superseded}")
        if move.bytes is not None:
            parts.append(f"{move.bytes} bytes by {move.deadline // 1000} s")
        if move.rate_bytes_per_second is not None:
            parts.append(f"at {move.rate_bytes_per_second} bytes/s")
    return ", ".join(parts)
