"""Finds the actions that a shard needs: for each its cause, its slot and the reason.

Actions come in the order of causes (`priority`); the planner tries each until one can be issued.
They are derived from the state alone: an action that could not be issued is derived again.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from placement.allocator import View
from placement.assignments import EMPTY
from placement.diagnosis import kept_slots, live_slots, shared_nodes, why_dead, why_needy
from placement.model import AdministrativeState, Cause, Code, Liveness, MoveKind, Reason, RepairMode
from placement.repair.targets import ShardCase, best_improving_move, score
from placement.rules import Rule, RuleSet, Strength
from placement.state import ClusterState, Stream
from placement.topology import LEAF, Topology
from placement.wording import are, counted

# Nodes beyond the unit's size among which the unit is sought by its rules; more come up only when
# many nodes of a stream fail within one repair, and then the most used ones are taken.
_COLOCATED_SPARES_MAX = 3
# How a replica's node fares, the worst first: who goes first where there are too many.
_DEAD, _LEAVING, _DOUBTFUL, _WELL = range(4)


# Why a shard got no move, by cause, or, under None, for whatever it wants.
NoMoveReasons = dict[Cause | None, Reason]


class RepairAction(NamedTuple):
    """One move of one shard. `target` is set where finding the move has found it already; `unit`
    is the node of a colocated stream that leaves for all of its shards."""

    cause: Cause
    kind: MoveKind
    slot: int
    reason: Reason
    target: int | None = None
    unit: int | None = None


class ActionFinder:
    """The wants of one run: what it has found out about streams is kept until `forget`."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        # Replicas that somebody wants to be replaced; known to plans only.
        self.marked: set[tuple[int, str]] = set()
        self._colocated_nodes: dict[int, dict[int, int]] = {}
        self._target_nodes: dict[int, dict[int, int]] = {}
        self._improving_moves: dict[object, tuple[int, int] | Reason] = {}
        self._judging: Topology | None = None
        self._cases: dict[int, ShardCase] = {}
        self._broken_rules: dict[int, list[Rule]] = {}
        self._rules: dict[int, tuple[Rule, ...]] = {}
        self._spans_stream: dict[int, bool] = {}
        self._dead: dict[int, Reason] = {}
        self._colocated: dict[int, bool] = {}

    def forget(self) -> None:
        """A run begins or ends: the state has changed, or will."""
        self._colocated_nodes.clear()
        self._target_nodes.clear()
        self._improving_moves.clear()
        self._cases.clear()
        self._broken_rules.clear()
        self._rules.clear()
        self._spans_stream.clear()
        self._dead.clear()
        self._colocated.clear()
        self._judging = None

    def changed(self, shard: int) -> None:
        """A replica of the shard has been placed elsewhere."""
        if not (self._cases or self._broken_rules):
            return
        if self.spans_stream(self._state.streams.of_shard(shard)):
            self._cases.clear()
            self._broken_rules.clear()
        self._cases.pop(shard, None)
        self._broken_rules.pop(shard, None)

    def rules(self, stream: Stream) -> tuple[Rule, ...]:
        """The rules of a stream."""
        policy = id(stream.policy)
        if policy not in self._rules:
            self._rules[policy] = self._state.streams.rules(stream)
        return self._rules[policy]

    def is_colocated(self, stream: Stream) -> bool:
        """Whether replica r of all the stream's shards moves as one unit."""
        policy = id(stream.policy)
        if policy not in self._colocated:
            slots = RuleSet(self.rules(stream)).is_colocated
            self._colocated[policy] = slots
        return self._colocated[policy]

    @property
    def judging(self) -> Topology:
        """The topology as diagnosis sees it."""
        if self._judging is None:
            self._judging = self._state.topology.for_diagnosis()
        return self._judging

    def repairs_dead_only(self, stream: Stream) -> bool:
        """Whether the stream allows nothing but giving back what is dead or missing."""
        return stream.spec.repair == RepairMode.DEAD_ONLY

    def colocated_nodes(self, stream: Stream) -> dict[int, int]:
        """The nodes of a colocated stream, each with its slot; what this run moves to is added.

        Nodes that are to leave come last; then those that keep the rules best, so that what has
        been begun is finished; then those that most shards are on.
        """
        if stream.index not in self._colocated_nodes:
            self._colocated_nodes[stream.index] = self._find_colocated_nodes(stream)
        return self._colocated_nodes[stream.index]

    def target_nodes(self, stream: Stream) -> dict[int, int]:
        """What the unit is to be, as far as this run has chosen; limits may keep it from being so
        much as begun."""
        return self._target_nodes.setdefault(stream.index, {**self.colocated_nodes(stream)})

    def join_target(self, stream: Stream, node: int) -> None:
        """A replica goes to a node; where it was chosen for the whole unit the others follow."""
        aim = self._target_nodes.get(stream.index, {})
        if node in aim and node not in self.colocated_nodes(stream):
            self._colocated_nodes[stream.index] = {**aim}

    def _find_colocated_nodes(self, stream: Stream) -> dict[int, int]:
        topology, table = self._state.topology, self._state.table
        shards = [table.nodes(shard) for shard in stream.shards]
        ranked = shared_nodes(shards, topology)
        stays = [node for node in ranked if not self._leaves(stream, node)]
        first = [*stays, *(node for node in ranked if node not in stays)]
        copies = stream.copies
        if len(stays) > copies:
            few = stays[: copies + _COLOCATED_SPARES_MAX]
            sets = combinations(few, copies)
            first = [*min(sets, key=lambda nodes: self._colocated_score(stream, nodes))]
        return {node: ranked[node] for node in first[:copies]}

    def _colocated_score(
        self, stream: Stream, nodes: tuple[int, ...]
    ) -> tuple[int, tuple[int, ...]]:
        return score(self._case_of(stream, nodes), self.judging).key

    def _leaves(self, stream: Stream, node: int) -> bool:
        topology = self._state.topology
        draining = topology.administrative[node] is AdministrativeState.DRAINING
        return draining or not self._admits(stream, node)

    def _admits(self, stream: Stream, node: int) -> bool:
        assert stream.policy is not None
        return stream.policy.nodes.passes(self._state.topology, node)

    def _case_of(self, stream: Stream, nodes: tuple[int, ...] | list[int]) -> ShardCase:
        """The nodes of a colocated stream as one shard."""
        assert stream.policy is not None
        rules, room = self.rules(stream), len(stream.shards)
        return ShardCase(stream.spec, stream.policy, rules, 0, nodes, (), room)

    def case(self, shard: int) -> ShardCase:
        """The shard as its rules see it."""
        if shard not in self._cases:
            state = self._state
            stream = state.streams.of_shard(shard)
            assert stream.policy is not None
            rules, number = self.rules(stream), state.table.number_of(shard)
            nodes, others = state.table.nodes(shard), self.other_nodes(stream, shard)
            parts = (stream.spec, stream.policy, rules, number, nodes, others)
            self._cases[shard] = ShardCase(
                *parts, backed_off_targets=state.backed_off_targets(shard)
            )
        return self._cases[shard]

    def colocated_case(self, stream: Stream, shard: int) -> ShardCase:
        """The nodes of a colocated stream in the order of their slots, looked at for a shard."""
        unit, rank = self.target_nodes(stream), self._state.topology.order()
        case = self._case_of(stream, sorted(unit, key=lambda n: (unit[n], int(rank[n]))))
        held = Counter(n for each in stream.shards for n in self._state.table.replicas(each))
        return case._replace(backed_off_targets=self._state.backed_off_targets(shard), held=held)

    def other_nodes(self, stream: Stream, shard: int) -> list[int]:
        """Nodes of the stream's other shards, where a rule asks for them: those that are to stay,
        so that what is lost or leaves too is not in the way."""
        if not self.spans_stream(stream):
            return []
        replicas, stays = self._state.table.replicas, self._state.topology.counts_for_rules
        shards = stream.shards
        return [n for other in shards if other != shard for n in replicas(other) if stays[n]]

    def spans_stream(self, stream: Stream) -> bool:
        """Whether a rule looks at all shards of the stream."""
        policy = id(stream.policy)
        if policy not in self._spans_stream:
            wide = RuleSet(self.rules(stream)).spans_stream
            self._spans_stream[policy] = wide
        return self._spans_stream[policy]

    def missing_slots(self, shard: int) -> list[int]:
        """Slots to fill until as many replicas are there as are asked for: lost ones first. What
        is held counts as there."""
        return self._missing_slots(
            self._state.streams.of_shard(shard), self._state.table.nodes(shard)
        )

    def _missing_slots(self, stream: Stream, nodes: list[int]) -> list[int]:
        is_lost = self._state.topology.is_lost
        lost = [s for s, node in enumerate(nodes) if node != EMPTY and is_lost(node)]
        empty = [s for s, node in enumerate(nodes) if node == EMPTY]
        lacking = stream.copies - (len(nodes) - len(lost) - len(empty))
        return (lost + empty)[: max(lacking, 0)]

    def stray_slots(self, shard: int) -> list[int]:
        """Live slots of a colocated shard that stand apart while it lacks a common node."""
        nodes, is_dead = self._state.table.nodes(shard), self._state.topology.is_dead
        return [slot for slot in self.kept_stray_slots(shard) if not is_dead(nodes[slot])]

    def kept_stray_slots(self, shard: int) -> list[int]:
        """The same with those on dead nodes that are meant to stay."""
        stream = self._state.streams.of_shard(shard)
        if not self.is_colocated(stream):
            return []
        nodes, unit = self._state.table.nodes(shard), self.colocated_nodes(stream)
        if all(node in nodes for node in unit):
            return []
        return [s for s in kept_slots(nodes, self._state.topology) if nodes[s] not in unit]

    def surplus_count(self, shard: int) -> int:
        """Replicas beyond those that are asked for; none while one is held, which may return."""
        held = 0 if self.may_restore(shard) else len(self._state.table.replicas(shard))
        return max(held - self._state.streams.of_shard(shard).copies, 0)

    def may_restore(self, shard: int) -> bool:
        """Whether a replica is on a dead node and meant to stay there."""
        nodes, topology = self._state.table.nodes(shard), self._state.topology
        return any(topology.is_dead(nodes[slot]) for slot in kept_slots(nodes, topology))

    def inadmissible_slots(self, shard: int) -> list[int]:
        """Slots on live nodes that the policy does not admit."""
        state = self._state
        stream, nodes = state.streams.of_shard(shard), state.table.nodes(shard)
        return [s for s in live_slots(nodes, state.topology) if not self._admits(stream, nodes[s])]

    def draining_slots(self, shard: int) -> list[int]:
        """Slots on live nodes that are being emptied, or marked, followers first."""
        topology, nodes = self._state.topology, self._state.table.nodes(shard)
        ordered, drains = topology.administrative, AdministrativeState.DRAINING
        live = live_slots(nodes, topology)
        marked = {topology.index[name] for at, name in self.marked if at == shard}
        found = [s for s in live if ordered[nodes[s]] is drains or nodes[s] in marked]
        return sorted(found, key=lambda slot: slot == 0)

    def breaks(self, shard: int, strength: Strength) -> bool:
        """Whether a rule of this strength that repair sees to is broken."""
        return any(rule.strength is strength for rule in self.broken_rules(shard))

    def broken_rules(self, shard: int) -> list[Rule]:
        """The rules that repair sees to and that the shard breaks."""
        if shard not in self._broken_rules:
            case = self.case(shard)
            standing = case.standing(self.judging, case.live(self._state.topology), None)
            seen_to = RuleSet(case.rules).repairable
            self._broken_rules[shard] = [rule for rule in seen_to if rule.violations(standing)]
        return self._broken_rules[shard]

    def top_cause(self, shard: int) -> Cause | None:
        """The most urgent cause, without looking for a move."""
        if self.missing_slots(shard):
            return Cause.UNDER_REPLICATED
        if self.repairs_dead_only(self._state.streams.of_shard(shard)):
            return None
        if (
            self.inadmissible_slots(shard)
            or self.stray_slots(shard)
            or self.breaks(shard, Strength.REQUIRED)
        ):
            return Cause.REQUIRED_RULE
        if self.draining_slots(shard):
            return Cause.DRAIN
        if self.breaks(shard, Strength.PREFERRED):
            return Cause.PREFERRED_RULE
        return Cause.SURPLUS if self.surplus_count(shard) else None

    def actions_of(self, shard: int, view: View, failed: NoMoveReasons) -> Iterator[RepairAction]:
        """The shard's wants, the most urgent first. `failed` is told of causes for which there is
        no move."""
        state = self._state
        stream, nodes = state.streams.of_shard(shard), state.table.nodes(shard)
        for slot in self._missing_slots(stream, nodes)[:1]:
            kind = MoveKind.ADD if nodes[slot] == EMPTY else MoveKind.REPLACE
            yield RepairAction(Cause.UNDER_REPLICATED, kind, slot, self._why_missing(nodes, slot))
        if self.repairs_dead_only(stream):
            return
        # What goes needs no other node, and no rule minds it any more.
        if self.surplus_count(shard):
            count, copies = len(state.table.replicas(shard)), stream.copies
            message = (
                f"{counted(count, 'replica')} {are(count)} there, {copies} {are(copies)} asked for"
            )
            reason = Reason(Code.REPLICA_SURPLUS, message, copies, count)
            slot = self._surplus_slot(shard, view)
            yield RepairAction(Cause.SURPLUS, MoveKind.REMOVE, slot, reason)
        colocated = self.is_colocated(stream)
        for slot in self.inadmissible_slots(shard):
            message = f"the policy does not admit node {state.topology.ids[nodes[slot]]}"
            reason = Reason(Code.RULE_NOT_MET, message)
            yield self._leaving(Cause.REQUIRED_RULE, nodes, slot, reason, colocated)
        for slot in self.stray_slots(shard):
            draining = slot in self.draining_slots(shard)
            cause = Cause.DRAIN if draining else Cause.REQUIRED_RULE
            apart = why_needy(nodes, slot, state.topology)
            reason = self.why_leaving(nodes[slot]) if draining else apart
            yield RepairAction(cause, MoveKind.REPLACE, slot, reason)
        yield from self._improving_action(shard, Strength.REQUIRED, view, failed)
        for slot in self.draining_slots(shard):
            yield self._leaving(Cause.DRAIN, nodes, slot, self.why_leaving(nodes[slot]), colocated)
        yield from self._improving_action(shard, Strength.PREFERRED, view, failed)

    def _why_missing(self, nodes: list[int], slot: int) -> Reason:
        """The cause of a repair; what a dead node has held shares one."""
        node, topology = nodes[slot], self._state.topology
        if node == EMPTY or not topology.is_dead(node):
            return why_needy(nodes, slot, topology)
        if node not in self._dead:
            self._dead[node] = why_dead(node, topology)
        return self._dead[node]

    def _leaving(
        self, cause: Cause, nodes: list[int], slot: int, reason: Reason, colocated: bool
    ) -> RepairAction:
        unit = nodes[slot] if colocated else None
        return RepairAction(cause, MoveKind.REPLACE, slot, reason, unit=unit)

    def why_leaving(self, node: int) -> Reason:
        """Why a replica is to leave its node."""
        topology = self._state.topology
        if topology.administrative[node] is AdministrativeState.DRAINING:
            return Reason(Code.NODE_DRAINING, f"node {topology.ids[node]} is draining")
        message = f"the replica on {topology.ids[node]} is to be replaced"
        return Reason(Code.REPLACEMENT_WANTED, message)

    def _improving_action(
        self, shard: int, strength: Strength, view: View, failed: NoMoveReasons
    ) -> Iterator[RepairAction]:
        """The move that keeps rules of this strength better, if any is broken."""
        if not self.breaks(shard, strength):
            return
        state = self._state
        stream, nodes = state.streams.of_shard(shard), state.table.nodes(shard)
        required = strength is Strength.REQUIRED
        cause = Cause.REQUIRED_RULE if required else Cause.PREFERRED_RULE
        colocated = self.is_colocated(stream)
        case = self.colocated_case(stream, shard) if colocated else self.case(shard)
        found = self._improving_move(stream, case, strength, view)
        if isinstance(found, Reason):
            failed.setdefault(cause, found)
            return
        slot, target = found
        node = case.nodes[slot]
        if node not in nodes:
            return
        told = state.topology.ids[node], case.spec.stream, strength
        message = f"the replica on {told[0]} keeps {told[1]} from a {told[2]} rule"
        reason = Reason(Code.RULE_NOT_MET, message)
        unit = node if colocated else None
        yield RepairAction(cause, MoveKind.REPLACE, nodes.index(node), reason, target, unit)

    def _improving_move(
        self, stream: Stream, case: ShardCase, strength: Strength, view: View
    ) -> tuple[int, int] | Reason:
        """The best move; that there is none for an arrangement is found out once."""
        alone = bool(case.others or case.backed_off_targets)
        key = (stream.index, strength, tuple(case.nodes), case.shard if alone else None)
        if (
            case.room > 1
            or key not in self._improving_moves
            or not isinstance(self._improving_moves[key], Reason)
        ):
            known = self._improving_moves.get(key)
            if isinstance(known, Reason):
                return known
            self._improving_moves[key] = best_improving_move(case, strength, view, self.judging)
        return self._improving_moves[key]

    def _surplus_slot(self, shard: int, view: View) -> int:
        """The slot to give up: on a dead node, then on one that is to leave, then on a doubtful
        one, then what the rules miss least; the leader last; then from the fullest domain."""
        state = self._state
        topology, stream = state.topology, state.streams.of_shard(shard)
        case, rank = self.case(shard), topology.order()
        unit = self.colocated_nodes(stream) if self.is_colocated(stream) else None
        pressure = view.domain_pressure(LEAF)

        def key(slot: int) -> tuple[object, ...]:
            node = case.nodes[slot]
            apart = unit is not None and node not in unit
            left = score(case.moved(slot, EMPTY), self.judging).key
            full = (-float(pressure[node]), -float(view.load[node] / topology.weight[node]))
            return (self._health(stream, node), not apart, left, slot == 0, full, int(rank[node]))

        return min((s for s, node in enumerate(case.nodes) if node != EMPTY), key=key)

    def _health(self, stream: Stream, node: int) -> int:
        topology = self._state.topology
        if topology.is_dead(node):
            return _DEAD
        if self._leaves(stream, node):
            return _LEAVING
        return _WELL if topology.liveness[node] is Liveness.UP else _DOUBTFUL
