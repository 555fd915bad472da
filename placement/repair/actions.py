"""Finds the actions of a shard: from what it needs to moves, each with cause, slot and reason.

The planner tries the actions in their order until one can be issued. They are derived from the
state alone: an action that could not be issued is derived again by a later run.
"""

from collections.abc import Iterator
from typing import NamedTuple

from placement.allocator import View
from placement.assignments import EMPTY
from placement.diagnosis import (
    live_slots,
    quorum_size,
    why_dead,
    why_draining,
    why_inadmissible,
    why_stray,
    why_surplus,
)
from placement.model import Cause, Code, Liveness, MoveKind, Reason
from placement.repair.colocation import is_leaving
from placement.repair.needs import RepairScope, ShardNeeds
from placement.repair.shard_case import ShardCase, score
from placement.repair.targets import best_improving_move
from placement.rules import Strength
from placement.topology import LEAF, Topology

# How the node of a replica fares, the worst first: who goes first where there are too many.
_DEAD, _LEAVING, _DOUBTFUL, _WELL = range(4)

# Why a shard got no move, by cause, or, under None, for whatever it wants.
NoMoveReasons = dict[Cause | None, Reason]


class RepairAction(NamedTuple):
    """A move that a shard needs.

    - `target`: set if the search for the move has found it already.
    - `unit`: the node of a colocated stream that leaves, for all of its shards.
    """

    cause: Cause
    kind: MoveKind
    slot: int
    reason: Reason
    target: int | None = None
    unit: int | None = None


class NoAction(NamedTuple):
    """A cause without a possible move, and the reason."""

    cause: Cause
    reason: Reason


def why_leaving(node: int, topology: Topology) -> Reason:
    """Explain why a replica should leave its node."""
    if topology.is_draining(node):
        return why_draining(node, topology)
    message = f"the replica on node {topology.ids[node]} is marked for replacement"
    return Reason(Code.REPLACEMENT_WANTED, message)


class ActionFinder:
    """Finds actions during one run; remembers arrangements that no move improves."""

    def __init__(self, scope: RepairScope) -> None:
        self._scope, self._state = scope, scope.state
        self._not_improvable: dict[object, Reason] = {}
        self._dead: dict[int, Reason] = {}

    def actions_of(self, needs: ShardNeeds, view: View) -> Iterator[RepairAction | NoAction]:
        """Yield the actions of a shard in the order in which they are tried, found when asked for.

        - What is missing comes first, then what is too many: its removal needs no other node.
        - After them rules and drains, by urgency.
        - A broken rule that no single move helps yields `NoAction`.
        """
        nodes, stream = needs.nodes, needs.stream
        if needs.missing_slots:
            yield self.fill_first(needs)
        if needs.repairs_dead_only:
            return
        if needs.surplus_count:
            reason = why_surplus(len(nodes) - nodes.count(EMPTY), stream.copies)
            slot = self._surplus_slot(needs, view)
            yield RepairAction(Cause.SURPLUS, MoveKind.REMOVE, slot, reason)
        topology = self._state.topology
        for slot in needs.inadmissible_slots:
            reason = why_inadmissible(nodes[slot], topology)
            yield _leaving_action(Cause.REQUIRED_RULE, needs, slot, reason)
        for slot in needs.stray_slots:
            draining = slot in needs.draining_slots
            cause = Cause.DRAIN if draining else Cause.REQUIRED_RULE
            why = why_leaving if draining else why_stray
            reason = why(nodes[slot], topology)
            yield RepairAction(cause, MoveKind.REPLACE, slot, reason)
        yield from self._improving_action(needs, Strength.REQUIRED, view)
        for slot in needs.draining_slots:
            yield _leaving_action(Cause.DRAIN, needs, slot, why_leaving(nodes[slot], topology))
        yield from self._improving_action(needs, Strength.PREFERRED, view)

    def fill_first(self, needs: ShardNeeds) -> RepairAction:
        """Return the action that gives an under-replicated shard the first replica it lacks."""
        nodes, slot = needs.nodes, needs.missing_slots[0]
        kind = MoveKind.ADD if nodes[slot] == EMPTY else MoveKind.REPLACE
        return RepairAction(Cause.UNDER_REPLICATED, kind, slot, self._why_missing(nodes, slot))

    def _why_missing(self, nodes: list[int], slot: int) -> Reason:
        """Return the reason of a missing replica; replicas of one dead node share theirs."""
        node = nodes[slot]
        if node == EMPTY:
            return Reason(Code.REPLICA_MISSING, f"replica {slot} has not been placed yet")
        if node not in self._dead:
            self._dead[node] = why_dead([node], self._state.topology)
        return self._dead[node]

    def _improving_action(
        self, needs: ShardNeeds, strength: Strength, view: View
    ) -> Iterator[RepairAction | NoAction]:
        """Yield the move that keeps rules of this strength better, if one is broken."""
        if not needs.breaks(strength):
            return
        required = strength is Strength.REQUIRED
        cause = Cause.REQUIRED_RULE if required else Cause.PREFERRED_RULE
        case = needs.case
        if needs.is_colocated:
            case = self._scope.colocation.case(needs.stream, needs.shard, view)
        found = self._improving_move(needs, case, strength, view)
        if isinstance(found, Reason):
            yield NoAction(cause, found)
            return
        slot, target = found
        node = case.nodes[slot]
        if node not in needs.nodes:
            return
        node_id = self._state.topology.ids[node]
        broken = f"a {strength} rule of {case.spec.stream} is broken"
        message = f"{broken}, and moving the replica off node {node_id} improves it"
        reason = Reason(Code.RULE_NOT_MET, message)
        unit = node if needs.is_colocated else None
        slot = needs.nodes.index(node)
        yield RepairAction(cause, MoveKind.REPLACE, slot, reason, target, unit)

    def _improving_move(
        self, needs: ShardNeeds, case: ShardCase, strength: Strength, view: View
    ) -> tuple[int, int] | Reason:
        """Find the best move as slot and target, or the reason why there is none."""
        alone = bool(case.others or case.backed_off_targets)
        key = (needs.stream.index, strength, tuple(case.nodes), case.shard if alone else None)
        if key in self._not_improvable:
            return self._not_improvable[key]
        found = best_improving_move(case, strength, view, self._scope.judging)
        if isinstance(found, Reason):
            self._not_improvable[key] = found
        return found

    def _surplus_slot(self, needs: ShardNeeds, view: View) -> int:
        """Choose the slot to give up, in this order:

        - a replica on a dead node
        - on a node that it should leave
        - on a node that is not up
        - one that is not among a colocated stream's shared nodes
        - the one without which the rules are kept best
        - a follower before the leader
        - from the fullest domain, then the fullest node

        None that is in sync, where too few others are for the quorum.
        """
        topology, stream, case = self._state.topology, needs.stream, needs.case
        rank = topology.order()
        unit = self._scope.colocation.nodes(stream) if needs.is_colocated else None
        pressure = view.domain_pressure(LEAF)

        def key(slot: int) -> tuple[object, ...]:
            node = case.nodes[slot]
            apart = unit is not None and node not in unit
            left = score(case.with_node(slot, EMPTY), self._scope.judging).key
            full = (-float(pressure[node]), -float(view.load[node] / topology.weight[node]))
            fares = _rank_condition(is_leaving(stream, node, topology), node, topology)
            return (fares, not apart, left, slot == 0, full, int(rank[node]))

        return min(self._spare_slots(needs), key=key)

    def _spare_slots(self, needs: ShardNeeds) -> list[int]:
        """List the slots whose replica can go without breaking a quorum of those in sync."""
        behind, topology = self._state.sync.nodes_of(needs.shard), self._state.topology
        held = [slot for slot, node in enumerate(needs.nodes) if node != EMPTY]
        complete = [
            slot for slot in live_slots(needs.nodes, topology) if needs.nodes[slot] not in behind
        ]
        spec = needs.stream.spec
        if not behind or len(complete) > quorum_size(spec.quorum, spec.replication_factor):
            return held
        return [slot for slot in held if slot not in complete] or held


def _leaving_action(cause: Cause, needs: ShardNeeds, slot: int, reason: Reason) -> RepairAction:
    unit = needs.nodes[slot] if needs.is_colocated else None
    return RepairAction(cause, MoveKind.REPLACE, slot, reason, unit=unit)


def _rank_condition(leaves: bool, node: int, topology: Topology) -> int:
    """Rank the condition of a replica's node, worst first."""
    if topology.is_dead(node):
        return _DEAD
    if leaves:
        return _LEAVING
    return _WELL if topology.liveness[node] is Liveness.UP else _DOUBTFUL
