"""Shards as they are published: the assignments that a batch has changed, many at a time."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placement import digest
from placement.assignments import EMPTY
from placement.model import Assignment
from placement.roles import role_names

if TYPE_CHECKING:
    from placement.state import State


def publish(state: "State", changed: Collection[int]) -> None:
    """Publish shards, each at an epoch one higher; while a move runs its source still stands in
    the list of replicas."""
    if not changed:
        return
    keyed, table = state.keyed(changed), state.table
    shards = np.fromiter((shard for _, shard in keyed), np.int64, len(keyed))
    table.epoch[shards] += 1
    nodes, busy = table.padded(shards), _busy(state, keyed)
    for row in busy:
        if opened := state.ledger.by_shard.get(keyed[row][1]):
            opened.complete(nodes[row])
    ids, now = state.topology.ids, state.now
    epochs, lists = table.epoch[shards].tolist(), nodes.tolist()
    made = [
        Assignment(
            name, number, epoch, tuple([ids[n] for n in each if n != EMPTY]), (), (), None, now
        )
        for ((name, number), _), epoch, each in zip(keyed, epochs, lists, strict=True)
    ]
    told = np.zeros(len(made), np.uint64)
    for row in busy:
        made[row] = _told(state, keyed[row][1], lists[row], made[row])
        told[row] = digest.of_told(made[row])
    there = nodes != EMPTY
    hash_shards(state, shards, there.sum(axis=1), nodes[there], told)
    state.ready.assignments.update(zip([key for key, _ in keyed], made, strict=True))


def hash_shards(
    state: "State",
    shards: NDArray[np.int64],
    counts: NDArray[np.int64],
    nodes: NDArray[np.int64],
    told: NDArray[np.uint64] | np.uint64,
) -> None:
    """Take shards' records at their epochs into the digest: `counts` replicas for each, on all the
    `nodes`, and what `digest.of_told` hashes."""
    table = state.table
    hashes = digest.of_assignments(
        state.stream_hashes(shards),
        table.numbers_of(shards),
        table.epoch[shards],
        counts,
        state.topology.digests[nodes],
        told,
    )
    state.digest.exchange(table.digest[shards], hashes)
    table.digest[shards] = hashes


def _busy(state: "State", keyed: Sequence[tuple[tuple[str, int], int]]) -> list[int]:
    """Which of the shards have a move under way or roles."""
    opened, kept = state.ledger.by_shard, set()
    for name in {name for (name, _), _ in keyed}:
        policy = state.streams[name].policy
        if policy is not None and state.aside(policy):
            kept.add(name)
    return [
        row
        for row, ((name, _), shard) in enumerate(keyed)
        if shard in opened or (kept and name in kept)
    ]


def _told(state: "State", shard: int, nodes: Sequence[int], plain: Assignment) -> Assignment:
    """A shard's assignment with what is to be told beside its replicas."""
    name, number, epoch, replicas, adding, removing, move_id, now, _ = plain
    if opened := state.ledger.by_shard.get(shard):
        move = opened.move
        adding = (move.add,) if move.add else ()
        removing = (move.remove,) if move.remove else ()
        move_id = move.move_id
    stream = state.streams[name]
    roles = role_names(stream.policy, stream.copies, nodes, state.topology)
    return Assignment(name, number, epoch, replicas, adding, removing, move_id, now, roles)
