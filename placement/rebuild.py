"""Rebuild: an empty state is filled from what an earlier one published (guarantee G5)."""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from placement import digest, violated
from placement.assigned import hash_shards
from placement.assignments import EMPTY
from placement.model import (
    Assignment,
    Decision,
    Move,
    MoveKind,
    Outcome,
    Published,
    Ready,
    Reason,
    Settled,
)
from placement.moves import OpenMove
from placement.roles import PLAIN_ROLE
from placement.settled import SettledColumns
from placement.state import State


def rebuild(state: State, records: Published, now: int) -> None:
    """Fill an empty state from the records of the compacted topics, in any order.

    Raises KeyError or ValueError when the records contradict each other: the topics are then
    not what one reconciler published.
    """
    state.now = now
    for view in records.nodes:
        state.topology.put(
            view.node_id, view.attributes, view.liveness, view.administrative, view.guard
        )
        state.publish_node(view)
    columns, assignments = _columns(state, records)
    longest = columns.longest()
    for assignment in assignments:
        held = longest.get(assignment.stream, 0)
        # A copy that replaces none comes on top, also where fewer are asked for by now.
        comes = len(assignment.adding) > len(assignment.removing)
        longest[assignment.stream] = max(held, len(assignment.replicas) + comes)
    for decision in records.decisions:
        _restore_stream(state, decision, longest.get(decision.stream, 0))
    columns.fill(state)
    known = {move.move_id: move for move in records.moves}
    _restore_busy(state, assignments, known)
    for move in sorted(known.values(), key=lambda m: (m.ended_at or 0, m.move_id)):
        state.hash_move(move.move_id, digest.of_move(move))
        if not move.state.is_open:
            state.ledger.keep(move)
        elif move.move_id not in state.ledger.known:
            raise ValueError(f"open move {move.move_id} is named by no assignment")
    told = ((found[0].stream, found[0].shard, found) for found in records.violations)
    violated.publish(state, [(state.streams[n].shards[i], (n, i), found) for n, i, found in told])
    for memory in records.memory:
        state.memory[memory.kind, memory.name] = memory
        state.digest.change(0, digest.of_memory(memory))
    state.ready = Ready()


def _columns(state: State, records: Published) -> tuple[SettledColumns, list[Assignment]]:
    """The assignments at rest as columns, and the others."""
    columns = SettledColumns(state.topology.index)
    for chunk in records.settled:
        columns.add(chunk)
    busy: list[Assignment] = []
    at_rest: list[Assignment] = []
    for each in records.assignments:
        (busy if each.move_id or each.roles is not None else at_rest).append(each)
    columns.add(
        Settled(
            [each.stream for each in at_rest],
            [each.shard for each in at_rest],
            [each.epoch for each in at_rest],
            [each.replicas for each in at_rest],
        )
    )
    return columns, busy


def _restore_stream(state: State, decision: Decision, longest: int) -> None:
    """`longest`: the most replicas that a shard of it has."""
    policy = None
    if decision.outcome not in (Outcome.REJECTED, Outcome.DROPPED):
        text = decision.spec.placement_policies
        compiled = state.compile(text, decision.spec.policy if text is None else None)
        if isinstance(compiled, Reason):
            raise ValueError(f"policy of {decision.stream}: {compiled.message}")
        policy = compiled
    stream = state.publish_decision(decision, policy)
    if policy is not None and decision.outcome is not Outcome.WAITING:
        state.allot(stream, [range(longest)])


def _restore_busy(state: State, busy: Sequence[Assignment], moves: Mapping[str, Move]) -> None:
    """Shards with a move under way or with roles."""
    shards = [_restore_shard(state, each, moves) for each in busy]
    index, replicas = state.topology.index, [each.replicas for each in busy]
    counts = np.fromiter(map(len, replicas), np.int64)
    nodes = np.fromiter(map(index.__getitem__, chain.from_iterable(replicas)), np.int64)
    told = np.fromiter(map(digest.of_told, busy), np.uint64)
    hash_shards(state, np.array(shards, np.int64), counts, nodes, told)


def _restore_shard(state: State, assignment: Assignment, moves: Mapping[str, Move]) -> int:
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
        else:
            nodes[move.slot] = added
        source = state.topology.index[move.source] if move.source else EMPTY
        state.ledger.open(OpenMove(move, shard, removed, added, source))
    for slot, node in enumerate(nodes):
        state.table.set(shard, slot, node)
    state.table.epoch[shard] = assignment.epoch
    return shard


def slots_of(state: State, assignment: Assignment) -> list[int]:
    """The nodes by slot: those with a role stand last, whatever is missing before them."""
    nodes = [state.topology.index[node_id] for node_id in assignment.replicas]
    if assignment.roles is None:
        return nodes
    roles = zip(assignment.roles, nodes, strict=True)
    kept = [node for role, node in roles if role != PLAIN_ROLE]
    plain = [node for node in nodes if node not in kept]
    stream = state.streams[assignment.stream]
    return state.parts(stream).lay_out(plain, kept)
