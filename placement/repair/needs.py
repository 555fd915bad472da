"""Says what one shard needs: missing, misplaced and surplus replicas, and broken rules.

The planner asks once for each shard that it looks at, and passes the answer on: to the order of
repair, the actions, and the violations that are published. `row` puts other nodes into the slots of
the shard, so that a plan without its open move is judged like any other.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from placement.assignments import EMPTY
from placement.diagnosis import kept_slots, live_slots
from placement.model import Cause, MoveKind, RepairMode
from placement.moves import OpenMove
from placement.repair.colocation import Colocation, is_admitted
from placement.repair.shard_case import ShardCase
from placement.rules import Rule, RuleContext, RuleFinding, RuleSet, Strength
from placement.state import ClusterState, Stream
from placement.topology import Topology

# Replicas that somebody wants to be replaced, by shard and node id.
Marks = frozenset[tuple[int, str]]
# A rule that is broken, and where.
Breach = tuple[Rule, Sequence[RuleFinding]]


class StreamTraits(NamedTuple):
    """Answers of a stream's rules that are asked for with each move.

    - `is_colocated`: all shards of the stream move as one unit.
    - `spans_stream`: a rule looks at all of them.
    - `names_leaders`: a rule has a say in which replica leads.
    """

    is_colocated: bool
    spans_stream: bool
    names_leaders: bool


class RepairScope:
    """Knowledge of one repair run about streams: their rules, and the nodes of colocated ones.

    Topology and policies do not change during a run. Only plans have `marks`.
    """

    def __init__(self, state: ClusterState, marks: Marks = frozenset()) -> None:
        self.state, self.marks = state, marks
        # The topology as diagnosis sees it.
        self.judging: Topology = state.topology.for_diagnosis()
        self.colocation = Colocation(state, self.rule_set, self.judging)
        self._rule_sets: dict[int, RuleSet] = {}
        self._traits: dict[int, StreamTraits] = {}
        self._breaches: dict[tuple[int, tuple[int, ...]], tuple[Breach, ...]] = {}

    def rule_set(self, stream: Stream) -> RuleSet:
        """Return the rules of a placed stream: the user's, then its strategy's."""
        policy = id(stream.policy)
        if policy not in self._rule_sets:
            self._rule_sets[policy] = RuleSet(tuple(self.state.streams.rules(stream)))
        return self._rule_sets[policy]

    def traits(self, stream: Stream) -> StreamTraits:
        """Return the traits of a stream's rules, found once for each policy."""
        found = self._traits.get(id(stream.policy))
        if found is None:
            rules = self.rule_set(stream)
            found = StreamTraits(rules.is_colocated, rules.spans_stream, rules.names_leaders)
            self._traits[id(stream.policy)] = found
        return found

    def needs(self, shard: int) -> "ShardNeeds":
        """Return what a shard needs as it is planned to stand now."""
        return ShardNeeds(self, shard, self.state.table.nodes(shard))

    def needs_of_all(self, shards: Sequence[int]) -> list["ShardNeeds"]:
        """Return what each of the shards needs as they are planned to stand now."""
        lists = self.state.table.lists(shards)
        return [ShardNeeds(self, *each) for each in zip(shards, lists, strict=True)]

    def breaches(self, stream: Stream, case: ShardCase) -> tuple[Breach, ...]:
        """Return the rules that repair sees to and that a shard breaks, in their order.

        The answer is kept by content, which no write makes untrue; not where other shards count.
        """
        key = (stream.index, tuple(case.nodes))
        found = None if case.others else self._breaches.get(key)
        if found is None:
            context = self.rule_context(case)
            judged = ((rule, rule.violations(context)) for rule in self.rule_set(stream).repairable)
            found = tuple(breach for breach in judged if breach[1])
            if not case.others:
                self._breaches[key] = found
        return found

    def rule_context(self, case: ShardCase) -> RuleContext:
        """Make the context in which the rules judge a shard as it stands."""
        return case.rule_context(self.judging, case.live(self.state.topology), None)


class ShardNeeds:
    """Needs of a shard whose slots hold `nodes`; each answer is found once.

    A value of one moment: who changes the shard, or asks later in the run, makes another.
    """

    def __init__(self, scope: RepairScope, shard: int, nodes: list[int]) -> None:
        self.scope, self.shard, self.nodes = scope, shard, nodes
        self.stream = scope.state.streams.of_shard(shard)

    def without_move(self, opened: OpenMove) -> "ShardNeeds":
        """Return what the shard would need, had its open move never been issued."""
        nodes = [*self.nodes]
        if opened.move.kind is not MoveKind.LEADER:
            nodes[opened.move.slot] = opened.removed
        return ShardNeeds(self.scope, self.shard, nodes)

    @cached_property
    def case(self) -> ShardCase:
        """The shard as its rules see it."""
        stream, state = self.stream, self.scope.state
        assert stream.policy is not None
        rules = tuple(self.scope.rule_set(stream).rules)
        others = self._other_nodes() if self.scope.traits(stream).spans_stream else ()
        number, backed_off = state.table.number_of(self.shard), state.backed_off_targets(self.shard)
        parts = (stream.spec, stream.policy, rules, number, self.nodes, others)
        return ShardCase(*parts, backed_off_targets=backed_off)

    @property
    def is_colocated(self) -> bool:
        """True if replica r of all shards of the stream moves as one unit."""
        return self.scope.traits(self.stream).is_colocated

    @property
    def repairs_dead_only(self) -> bool:
        """True if the stream only allows dead or missing replicas to be replaced."""
        return self.stream.spec.repair == RepairMode.DEAD_ONLY

    @cached_property
    def missing_slots(self) -> list[int]:
        """Slots to fill until there are as many replicas as are asked for, lost ones first. A held
        replica counts as there."""
        nodes, is_lost = self.nodes, self._topology.lost.item
        lost = [s for s, node in enumerate(nodes) if node != EMPTY and is_lost(node)]
        empty = [s for s, node in enumerate(nodes) if node == EMPTY] if EMPTY in nodes else []
        lacking = self.stream.copies - (len(nodes) - len(lost) - len(empty))
        return (lost + empty)[: max(lacking, 0)]

    @property
    def kept_stray_slots(self) -> list[int]:
        """Find slots of a colocated shard that stand apart while it lacks a common node.

        On live nodes, and on dead ones that are meant to stay. They follow what the run has chosen
        so far.
        """
        if not self.is_colocated:
            return []
        unit = self.scope.colocation.nodes(self.stream)
        if all(node in self.nodes for node in unit):
            return []
        return [s for s in kept_slots(self.nodes, self._topology) if self.nodes[s] not in unit]

    @property
    def stray_slots(self) -> list[int]:
        """Stray replicas on live nodes, by slot."""
        is_dead = self._topology.is_dead
        return [slot for slot in self.kept_stray_slots if not is_dead(self.nodes[slot])]

    @cached_property
    def surplus_count(self) -> int:
        """Number of surplus replicas; 0 while one is on a node under a hold, which may return."""
        if self.may_restore:
            return 0
        return max(len(self.nodes) - self.nodes.count(EMPTY) - self.stream.copies, 0)

    @property
    def may_restore(self) -> bool:
        """True if a replica is kept on a dead node, for instance under a hold."""
        nodes, topology = self.nodes, self._topology
        return any(topology.is_dead(nodes[slot]) for slot in kept_slots(nodes, topology))

    @cached_property
    def inadmissible_slots(self) -> list[int]:
        """Slots on live nodes that the policy does not admit."""
        nodes, topology = self.nodes, self._topology
        live = live_slots(nodes, topology)
        return [s for s in live if not is_admitted(self.stream, nodes[s], topology)]

    @cached_property
    def draining_slots(self) -> list[int]:
        """Slots on live nodes that are being emptied, or marked, followers first."""
        topology, nodes = self._topology, self.nodes
        marked = {topology.index[name] for at, name in self.scope.marks if at == self.shard}
        live = live_slots(nodes, topology)
        found = [s for s in live if topology.is_draining(nodes[s]) or nodes[s] in marked]
        return sorted(found, key=lambda slot: slot == 0)

    @cached_property
    def _breaches(self) -> tuple[Breach, ...]:
        """The rules that repair sees to and that the shard breaks.

        Not with replicas of a shard that has too many: one of them goes without a copy.
        """
        case = self.case
        if case.others:
            case = case._replace(others=self._other_nodes(with_surplus=False))
        return self.scope.breaches(self.stream, case)

    def findings(self, rule: Rule) -> Sequence[RuleFinding]:
        """Return where the shard breaks one of its rules that repair sees to; empty if it keeps it.

        Replicas of other shards that go without a copy break no rule, but count in one that is
        broken.
        """
        found = next((found for broken, found in self._breaches if broken is rule), ())
        if found and self.case.others:
            return rule.violations(self.scope.rule_context(self.case))
        return found

    def breaks(self, strength: Strength) -> bool:
        """Return whether a rule of this strength that repair enforces is broken."""
        return any(rule.strength is strength for rule, _ in self._breaches)

    @property
    def top_cause(self) -> Cause | None:
        """The most urgent cause to repair the shard, found without looking for a move."""
        return next((cause for cause in Cause if self._has(cause)), None)

    def _has(self, cause: Cause) -> bool:
        """Tell whether the shard has the cause; leaders and balance are not repair's to look for.

        A stream that repairs dead replicas only has no other cause.
        """
        if cause is Cause.UNDER_REPLICATED:
            return bool(self.missing_slots)
        if self.repairs_dead_only:
            return False
        match cause:
            case Cause.REQUIRED_RULE:
                misplaced = self.inadmissible_slots or self.stray_slots
                return bool(misplaced or self.breaks(Strength.REQUIRED))
            case Cause.DRAIN:
                return bool(self.draining_slots)
            case Cause.PREFERRED_RULE:
                return self.breaks(Strength.PREFERRED)
            case Cause.SURPLUS:
                return self.surplus_count > 0
        return False

    def _other_nodes(self, with_surplus: bool = True) -> list[int]:
        """List the nodes of the stream's other shards that are to stay.

        Nodes that are lost or leave too are not in the way; nor, if not `with_surplus`, are those
        of shards that have more replicas than asked for, unless a hold keeps these.
        """
        table, stays = self.scope.state.table, self._topology.counts_for_rules
        shards = np.asarray(self.stream.shards, np.int64)
        rows = table.rows(shards[shards != self.shard])
        if not with_surplus:
            waits = np.append(self._topology.held, False)[rows].any(axis=1)
            rows = rows[waits | ((rows != EMPTY).sum(axis=1) <= self.stream.copies)]
        there = np.append(stays, False)[rows]
        found: list[int] = rows[there].tolist()
        return found

    @property
    def _topology(self) -> Topology:
        return self.scope.state.topology
