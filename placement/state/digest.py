"""Digest of the state of record: an order-independent sum of one hash per record.

It is kept up to date record by record, written into every commit marker and recomputed after every
rebuild; equality proves that the topics held exactly the state that the marker speaks of. What is
recorded of shards, of which there are millions, is hashed as columns, the rest record by record.
"""

import json
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from placement.hashing import digest64, hash64, mix
from placement.model import Assignment, Decision, Lives, Memory, Move, NodeView, Violation

_MODULUS = 1 << 64

# What tells hashes of assignments from those of other records of shards.
_ASSIGNMENT = np.uint64(hash64("assignment"))


class Digest:
    """A sum of hashes modulo 2^64."""

    def __init__(self) -> None:
        self._sum = 0

    def change(self, before: int, after: int) -> None:
        """Replace a record's hash by another; 0 stands for no record."""
        self._sum = (self._sum - before + after) % _MODULUS

    def exchange(self, before: NDArray[np.uint64], after: NDArray[np.uint64]) -> None:
        """`change` of many records."""
        self.change(int(before.sum(dtype=np.uint64)), int(after.sum(dtype=np.uint64)))

    def __str__(self) -> str:
        return f"{self._sum:016x}"


def keyed(
    content: NDArray[np.uint64] | np.uint64,
    streams: NDArray[np.uint64],
    numbers: NDArray[np.integer],
) -> NDArray[np.uint64]:
    """Hashes of what is recorded of shards, by the hashes of their streams' names and by their
    numbers. `content`: a hash of each record, or of all, into which its kind has gone."""
    return mix(mix(mix(streams) ^ numbers.astype(np.uint64)) ^ content)


def of_node(view: NodeView) -> int:
    """Hash of a node record."""
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
    """Hash the fields that distinguish the other lives of a node."""
    if lives.earlier:
        yield from ("earlier", *lives.earlier)
    if lives.refused is not None:
        yield from ("refused", lives.refused.incarnation, lives.refused.since)
    if lives.pending is not None:
        life = lives.pending
        yield from ("life", life.incarnation, life.sequence, life.body_hash, life.since)
        yield from (life.grace_ms, life.attributes.location, str(life.external))


def of_decision(decision: Decision) -> int:
    """Hash of a decision record."""
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


def of_assignments(
    streams: NDArray[np.uint64],
    numbers: NDArray[np.integer],
    epochs: NDArray[np.int64],
    counts: NDArray[np.int64],
    nodes: NDArray[np.uint64],
    told: NDArray[np.uint64] | np.uint64,
) -> NDArray[np.uint64]:
    """Hash assignment records: their keys (see `keyed`), epochs, and replicas in order.

    A record has `counts` hashes of node ids (`Topology.digests`) in `nodes`; `told` is `of_told`.
    """
    content = mix(mix(epochs.astype(np.uint64) ^ _ASSIGNMENT) ^ told)
    firsts = np.cumsum(counts) - counts
    for slot in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > slot)
        content[rows] = mix(content[rows] ^ nodes[firsts[rows] + slot])
    return keyed(content, streams, numbers)


def of_told(record: Assignment) -> int:
    """Hash of what an assignment tells beside its replicas; 0 for one at rest."""
    _, _, _, _, adding, removing, move_id, _, roles = record
    if not (adding or removing or move_id or roles):
        return 0
    return digest64(",".join(adding), ",".join(removing), move_id or "", *(roles or ()))


def of_move(move: Move) -> int:
    """Hash of a move record."""
    text = f"move\x1f{move.move_id}\x1f{move.state}\x1f{move.expected_epoch}\x1f{move.deadline}"
    return hash64(text if move.reminded is None else f"{text}\x1f{move.reminded}")


def of_violations(violations: tuple[Violation, ...]) -> int:
    """Hash of what a shard's open violations say, for `keyed`."""
    text = "violations"
    for v in violations:
        told = f"{v.violation_class}|{v.reason.code}|{v.domain}|{v.count}|{v.limit}|{v.since}"
        text = f"{text}\x1f{v.rule}|{told}"
    return hash64(text)


def of_memory(memory: Memory) -> int:
    """Hash of something remembered."""
    body = json.dumps(memory.body, sort_keys=True, separators=(",", ":"))
    return digest64("memory", memory.kind, memory.name, body, memory.at)
