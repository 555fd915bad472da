"""Computes the digest by its first formula, to prove states that older versions wrote.

It left out most fields of decisions, moves and violations. Assignments and memory hash as today.
"""

from collections.abc import Iterator

import numpy as np

from placement.hashing import digest64, hash64
from placement.model import Decision, Lives, Move, NodeView, Violation
from placement.state import digest
from placement.state.cluster_state import ReadModel


def of_state(state: ReadModel) -> str:
    """Compute the digest of a state by the first formula."""
    found = state.publisher.current_digest().copy()
    for view in state.nodes.values():
        found.change(digest.of_node(view), _of_node(view))
    for stream in state.streams.values():
        found.change(digest.of_decision(stream.decision), _of_decision(stream.decision))
    for move in state.ledger.known.values():
        found.change(digest.of_move(move), _of_move(move))
    shards = np.fromiter(state.publisher.violations, np.int64)
    names, numbers = state.streams.name_hashes(shards), state.table.numbers_of(shards)
    for sign, content in ((-1, digest.of_violations), (1, _of_violations)):
        contents = np.fromiter(map(content, state.publisher.violations.values()), np.uint64)
        hashed = int(digest.hash_with_keys(contents, names, numbers).sum(dtype=np.uint64))
        found.change(hashed if sign < 0 else 0, hashed if sign > 0 else 0)
    return str(found)


def _of_node(view: NodeView) -> int:
    """Hash a node record."""
    pending = view.pending
    a, hold, told = view.attributes, view.hold_down, view.reporting
    tags = (f"{key}={value}" for key, value in a.tags)
    # Only where there is one: the digests of fleets that know none stay what they were.
    conditions = (each for each in (view.administrative, view.guard) if each != "none")
    return digest64(
        "node",
        view.node_id,
        view.incarnation,
        view.sequence,
        view.revision,
        view.liveness,
        view.since,
        a.location,
        repr(a.weight),
        str(a.capacity),
        str(a.leader),
        *tags,
        *conditions,
        *(() if a.tokens is None else ("tokens", *a.tokens)),
        *(f"{turn.at} {turn.liveness}" for turn in view.transitions),
        *(() if hold is None else ("hold", hold.since, hold.until, str(hold.active))),
        *((told.sequence, told.said) if told.external else ()),
        *(() if view.claimed is None else ("claimed", view.claimed)),
        *(() if view.source == "claim" else ("source", view.source)),
        *(() if pending is None else ("pending", pending.location, pending.impact_hash)),
        *(() if view.quarantine is None else ("quarantine", view.quarantine.code)),
        *_of_lives(view.lives),
    )


def _of_lives(lives: Lives) -> Iterator[str | int]:
    """List the traits of the other lives of a node."""
    if lives.earlier:
        yield from ("earlier", *lives.earlier)
    if lives.refused is not None:
        yield from ("refused", lives.refused.incarnation, lives.refused.since)
    if lives.pending is not None:
        life = lives.pending
        yield from ("life", life.incarnation, life.sequence, life.body_hash, life.since)
        yield from (life.grace_ms, life.attributes.location, str(life.external))


def _of_decision(decision: Decision) -> int:
    """Hash a decision record."""
    return digest64(
        "decision",
        decision.stream,
        decision.sequence,
        decision.revision,
        decision.outcome,
        decision.body_hash,
        decision.shards_placed,
        decision.replicas_missing,
    )


def _of_move(move: Move) -> int:
    """Hash a move record."""
    text = f"move\x1f{move.move_id}\x1f{move.state}\x1f{move.expected_epoch}\x1f{move.deadline}"
    return hash64(text if move.reminded is None else f"{text}\x1f{move.reminded}")


def _of_violations(violations: tuple[Violation, ...]) -> int:
    """Hash a shard's open violations, for `digest.hash_with_keys`."""
    text = "violations"
    for v in violations:
        told = f"{v.violation_class}|{v.reason.code}|{v.domain}|{v.count}|{v.limit}|{v.since}"
        text = f"{text}\x1f{v.rule}|{told}"
    return hash64(text)
