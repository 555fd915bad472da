"""Digest of the state of record: an order-independent sum of one hash per record.

It is kept up to date record by record, written into every commit marker and recomputed after every
rebuild; equality proves that the topics held exactly the state that the marker speaks of.
"""

import json
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from placement.choice import digest64, hash64, mix
from placement.model import Assignment, Decision, Memory, Move, NodeView, Violation
from placement.published import Settled

_MODULUS = 1 << 64


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
    )


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


def of_assignment(assignment: Assignment) -> int:
    """Hash of an assignment record."""
    stream, shard, epoch, replicas, adding, removing, move_id, _, roles = assignment
    nodes = f"{','.join(replicas)}\x1f{','.join(adding)}\x1f{','.join(removing)}"
    text = f"assignment\x1f{stream}\x1f{shard}\x1f{epoch}\x1f{nodes}\x1f{move_id or ''}"
    return hash64(text if roles is None else "\x1f".join((text, *roles)))


def of_settled(chunk: Settled) -> NDArray[np.uint64]:
    """`of_assignment` of assignments at rest, which have nothing to add, remove or tell."""
    columns = zip(chunk.streams, chunk.shards, chunk.epochs, chunk.replicas, strict=True)
    made = (
        blake2b(
            f"assignment\x1f{stream}\x1f{shard}\x1f{epoch}\x1f{','.join(nodes)}\x1f\x1f\x1f".encode(),
            digest_size=8,
        ).digest()
        for stream, shard, epoch, nodes in columns
    )
    return np.frombuffer(b"".join(made), ">u8").astype(np.uint64)


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
