"""Publishes the assignments that a batch has changed, many at a time."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY
from placement.model import Assignment
from placement.state import digest
from placement.state.facts import Facts, role_names


def publish(state: Facts, changed: Collection[int]) -> None:
    """Publish shards, each at an epoch one higher; while a move runs its source still stands in
    the list of replicas."""
    if not changed:
        return
    keys, shards = state.keys_and_shards(changed)
    table, opened = state.table, state.ledger.by_shard
    table.epoch[shards] += 1
    nodes, busy = table.padded(shards), _busy(state, keys, shards.tolist())
    for row, shard in busy:
        if shard in opened:
            opened[shard].put_source_back(nodes[row])
    epochs, lists = table.epoch[shards].tolist(), nodes.tolist()
    ids, now = state.topology.ids, state.now
    replicas = [tuple([ids[node] for node in each if node != EMPTY]) for each in lists]
    made = [
        Assignment(name, number, epoch, held, (), (), None, now)
        for (name, number), epoch, held in zip(keys, epochs, replicas, strict=True)
    ]
    told = np.zeros(len(made), np.uint64)
    for row, shard in busy:
        made[row] = _told(state, shard, lists[row], made[row])
        told[row] = digest.of_told(made[row])
    there = nodes != EMPTY
    hash_shards(state, shards, there.sum(axis=1), nodes[there], told)
    state.ready.assignments.update(zip(keys, made, strict=True))


def hash_shards(
    state: Facts,
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


def _busy(
    state: Facts, keys: Sequence[tuple[str, int]], shards: Sequence[int]
) -> list[tuple[int, int]]:
    """Which of the shards have a move under way or roles, and where they stand."""
    opened, kept = state.ledger.by_shard, set()
    for name in {name for name, _ in keys}:
        policy = state.streams[name].policy
        if policy is not None and state.role_copies(policy):
            kept.add(name)
    return [
        (row, shard)
        for row, shard in enumerate(shards)
        if shard in opened or (kept and keys[row][0] in kept)
    ]


def _told(state: Facts, shard: int, nodes: Sequence[int], plain: Assignment) -> Assignment:
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
