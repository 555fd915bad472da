"""Fills an empty state from the records that an earlier one published.

A large state consists mostly of assignments at rest: no move under way, no roles. A million of them
as Python objects would take most of a rebuild, so they come in chunks of columns and enter the
table in one step.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY
from placement.model import (
    Assignment,
    AssignmentColumns,
    Decision,
    Move,
    MoveKind,
    Outcome,
    Published,
    Reason,
)
from placement.moves import OpenMove
from placement.state import digest
from placement.state.cluster_state import ClusterState
from placement.state.stream_catalog import PLAIN_ROLE

# So many enter the table together: each node's list grows once for it, and what is computed on the
# way takes a hundred bytes for each.
PART_RECORDS_MIN = 250_000


class ColumnLoader:
    """Gathers chunks as arrays, and puts them into a state whose nodes and streams are there."""

    def __init__(self, nodes: Mapping[str, int]) -> None:
        """Begin without chunks; `nodes`: the index of each node."""
        self._nodes = nodes
        self._streams: dict[str, int] = {}
        self._names: list[str] = []
        self._chunks: deque[tuple[NDArray[np.int64], ...]] = deque()

    def add(self, chunk: AssignmentColumns) -> None:
        """Add a chunk. Raises KeyError for a node that is not known."""
        for name in chunk.stream_names:
            if name not in self._streams:
                self._streams[name] = len(self._streams)
                self._names.append(name)
        streams = _as_column([self._streams[name] for name in chunk.stream_names])
        nodes = _as_column([self._nodes[name] for name in chunk.node_names])
        numbers = map(_as_column, (chunk.shards, chunk.epochs, chunk.counts))
        self._chunks.append(
            (streams[_as_column(chunk.streams)], *numbers, nodes[_as_column(chunk.nodes)])
        )

    def longest(self) -> dict[str, int]:
        """Find the length of each stream's longest list."""
        lengths = np.zeros(len(self._names), np.int64)
        for streams, _, _, counts, _ in self._chunks:
            np.maximum.at(lengths, streams, counts)
        return dict(zip(self._names, lengths.tolist(), strict=True))

    def fill(self, state: ClusterState) -> None:
        """Put all chunks into the state.

        Raises KeyError or IndexError when a stream or one of its shards does not exist.
        """
        while self._chunks:
            self._fill_part(state, self._take_part())

    def _take_part(self) -> list[NDArray[np.int64]]:
        """Take some of the chunks, together as columns."""
        taken: list[tuple[NDArray[np.int64], ...]] = []
        while self._chunks and sum(len(chunk[0]) for chunk in taken) < PART_RECORDS_MIN:
            taken.append(self._chunks.popleft())
        return [np.concatenate(parts) for parts in zip(*taken, strict=True)]

    def _fill_part(self, state: ClusterState, columns: list[NDArray[np.int64]]) -> None:
        streams, numbers, epochs, counts, nodes = columns
        shards = np.empty(len(streams), np.int64)
        order = np.argsort(streams, kind="stable")
        ends = np.cumsum(np.bincount(streams, minlength=len(self._names)))
        for index, mine in enumerate(np.split(order, ends[:-1])):
            if len(mine):
                own = np.asarray(state.streams[self._names[index]].shards, np.int64)
                shards[mine] = own[numbers[mine]]
        state.load_replicas(shards, counts, nodes)
        state.publisher.load_assignments(shards, epochs, counts, nodes, np.uint64(0))


def _as_column(numbers: Sequence[int] | NDArray[np.integer]) -> NDArray[np.int64]:
    if isinstance(numbers, np.ndarray):
        return numbers.astype(np.int64, copy=False)
    return np.fromiter(numbers, np.int64, len(numbers))


def rebuild(state: ClusterState, records: Published, now: int) -> None:
    """Fill an empty state from the records of the compacted topics, in any order.

    Raises KeyError or ValueError when the records contradict each other: the topics are then
    not what one reconciler published.
    """
    state.begin(now)
    for view in records.nodes:
        state.upsert_node(view)
    columns, assignments = _columns(state, records)
    longest = columns.longest()
    for assignment in assignments:
        known = longest.get(assignment.stream, 0)
        # A copy that replaces none comes on top, also where fewer are asked for by now.
        comes = len(assignment.adding) > len(assignment.removing)
        longest[assignment.stream] = max(known, len(assignment.replicas) + comes)
    for decision in records.decisions:
        _restore_stream(state, decision, longest.get(decision.stream, 0))
    columns.fill(state)
    _restore_moves(state, assignments, {move.move_id: move for move in records.moves})
    for stream in state.streams.values():
        if stream.spec.adopt is not None:
            state.await_replicas(state.publisher.unpublished(stream.shards))
    by_shard = ((*found[0].key, found) for found in records.violations)
    state.publisher.publish_violations(
        (state.streams[name].shards[number], (name, number), found)
        for name, number, found in by_shard
    )
    for memory in records.memory:
        state.memory.load(memory)
    state.loads.load(records.loads)
    state.moves.resume()
    state.sync.resume()
    state.loads.resume()
    # What was published again to get here is no part of the first batch.
    state.begin(now)


def _columns(state: ClusterState, records: Published) -> tuple[ColumnLoader, list[Assignment]]:
    """Split the assignments into those at rest, as columns, and the others."""
    columns = ColumnLoader(state.topology.index)
    for chunk in records.settled:
        columns.add(chunk)
    busy: list[Assignment] = []
    at_rest: list[Assignment] = []
    for each in records.assignments:
        (busy if each.move_id or each.roles is not None else at_rest).append(each)
    columns.add(
        AssignmentColumns.of_lists(
            [each.stream for each in at_rest],
            [each.shard for each in at_rest],
            [each.epoch for each in at_rest],
            [each.replicas for each in at_rest],
        )
    )
    return columns, busy


def _restore_stream(state: ClusterState, decision: Decision, longest: int) -> None:
    """Restore a stream, and its shards if it has any. `longest`: the most replicas of a shard."""
    policy = None
    if decision.outcome not in (Outcome.REJECTED, Outcome.DROPPED):
        text = decision.spec.placement_policies
        compiled = state.streams.compile(text, decision.spec.policy if text is None else None)
        if isinstance(compiled, Reason):
            raise ValueError(f"policy of {decision.stream}: {compiled.message}")
        policy = compiled
    stream = state.upsert_stream(decision, policy)
    if policy is not None and decision.outcome is not Outcome.WAITING:
        state.allocate_slots(stream, [range(longest)])


def _restore_moves(
    state: ClusterState, busy: Sequence[Assignment], moves: Mapping[str, Move]
) -> None:
    """Restore all moves, and the shards with an open move or with roles."""
    shards = np.fromiter((_restore_shard(state, each, moves) for each in busy), np.int64, len(busy))
    index, replicas = state.topology.index, [each.replicas for each in busy]
    counts = np.fromiter(map(len, replicas), np.int64)
    nodes = np.fromiter(map(index.__getitem__, chain.from_iterable(replicas)), np.int64)
    epochs = np.fromiter((each.epoch for each in busy), np.int64, len(busy))
    extras = np.fromiter(map(digest.of_extras, busy), np.uint64)
    state.publisher.load_assignments(shards, epochs, counts, nodes, extras)
    for move in sorted(moves.values(), key=lambda m: (m.ended_at or 0, m.move_id)):
        if not move.state.is_open:
            state.moves.load(move)
        elif move.move_id not in state.ledger.known:
            raise ValueError(f"open move {move.move_id} is named by no assignment")


def _restore_shard(state: ClusterState, assignment: Assignment, moves: Mapping[str, Move]) -> int:
    """Restore a shard's planned replicas and its open move; return its index."""
    shard = state.streams[assignment.stream].shards[assignment.shard]
    nodes = slots_of(state, assignment)
    if assignment.move_id:
        move = moves[assignment.move_id]
        added = state.topology.index[move.add] if move.add else EMPTY
        removed = state.topology.index[move.remove] if move.remove else EMPTY
        if move.kind is MoveKind.ADD:
            nodes.insert(move.slot, added)
            if EMPTY in nodes:
                nodes.remove(EMPTY)
        elif move.kind is not MoveKind.LEADER:
            nodes[move.slot] = added
        source = state.topology.index[move.source] if move.source else EMPTY
        leader = state.topology.index[move.leader] if move.leader else EMPTY
        state.moves.load_open(OpenMove(move, shard, removed, added, source, leader))
    state.load_shard(shard, nodes)
    return shard


def slots_of(state: ClusterState, assignment: Assignment) -> list[int]:
    """Lay out an assignment's nodes by slot: replicas with a role last, also while others are
    missing."""
    nodes = [state.topology.index[node_id] for node_id in assignment.replicas]
    if assignment.roles is None:
        return nodes
    roles = zip(assignment.roles, nodes, strict=True)
    kept = [node for role, node in roles if role != PLAIN_ROLE]
    plain = [node for node in nodes if node not in kept]
    stream = state.streams[assignment.stream]
    return state.streams.slot_layout(stream).lay_out(plain, kept)
