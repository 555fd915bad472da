"""Explains why a replica stands where it does, why a node holds none, and what comes next.

The funnel: candidates, alive, rules (each), capacity, chosen by. Every step
asks the functions that placed (`Rule.penalty`, `View.has_room`, `choose`), so that an explanation
cannot differ from the decision. A strategy that goes by an order of its own has its required rules
and its wishes explained alike, and its order named. The outlook of a shard has the rules that it
breaks and the first move that repair makes of each.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from placement.allocator import ReplicaRequest, Trace, View, candidates, choose
from placement.assignments import EMPTY
from placement.model import Move, MoveState, Reason, StreamSpec, Violation
from placement.policy import Policy
from placement.repair import RepairPlanner
from placement.rules import (
    LocatedFirst,
    Mask,
    Rule,
    RuleContext,
    RuleSet,
    Strength,
    apart,
    keeping,
    located,
    room,
    supply,
    why_not_admitted,
)
from placement.state import ClusterState
from placement.strategies import STRATEGIES
from placement.topology import NO_DOMAIN


@dataclass(frozen=True, slots=True)
class Outlook:
    """Outlook of a shard: its violations with class and reason, and the first move made of them, if
    any."""

    violations: tuple[Violation, ...] = ()
    move: Move | None = None


def find_outlooks(state: ClusterState, shards: Iterable[int]) -> Mapping[int, Outlook]:
    """Let the reconciler's own repair loose on some shards, by index. The state is changed: the
    moves are begun in it."""
    looked_at = list(shards)
    state.begin(state.now)
    repair = RepairPlanner(state)
    repair.enqueue(looked_at)
    repair.run(caught_up=True)
    moves = {
        state.streams[move.stream].shards[move.shard]: move
        for move, _ in state.publisher.ready.moves.values()
        if move.state is MoveState.ISSUED
    }
    return {
        shard: Outlook(tuple(state.publisher.violations.get(shard, ())), moves.get(shard))
        for shard in looked_at
    }


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """A step of the funnel and how many nodes it left."""

    step: str
    left: int


@dataclass(frozen=True, slots=True)
class Presence:
    """Reason why a node holds a replica.

    `chosen_by` is None for a replica that is given, of which is told whether it may stay: not
    `lawful` is one on a node that is lost or has to be emptied, that the policy does not admit, or
    with which a required rule is broken. `status` is the node's.
    """

    shard: int
    slot: int
    node: str
    funnel: tuple[FunnelStep, ...]
    chosen_by: str | None
    reason: str
    status: str = "up"
    lawful: bool = True


@dataclass(frozen=True, slots=True)
class Absence:
    """Reason why a node holds no replica of a shard; `step` is where the funnel lost it."""

    shard: int
    node: str
    step: str
    reason: str


# What decided where the rules left no choice.
ONLY_NODE = "no other node was left"
# What becomes of a replica on a node that is not simply up.
_CONDITIONS = {
    "dead": "this copy is lost",
    "unregistered": "this copy is lost",
    "suspect": "it has been silent for a while and may come back",
    "draining": "the replica has to leave",
    "quarantined": "the replica has to leave",
    "maintenance": "the replica stays and is expected back",
    "cordoned": "the replica stays, new ones do not come",
    "held_down": "the replica stays, new ones do not come",
}
# What was decided while its node could still be chosen.
EARLIER = "an earlier decision: the node receives no new replicas now"


class Explainer:
    """Explains one stream's placement. `view` is the load before the stream was placed; `given`
    counts the replicas of each shard that it came with."""

    def __init__(
        self,
        spec: StreamSpec,
        policy: Policy,
        shards: Sequence[Sequence[int]],
        view: View,
        given: Sequence[int] = (),
    ) -> None:
        self._spec, self._policy, self._view = spec, policy, view
        self._shards = shards
        self._given = given
        self._strategy = STRATEGIES[policy.strategy]
        self._rules = self._strategy.rules(policy, view.topology)
        self._counted = 0
        for nodes, came in zip(shards, given, strict=False):
            for slot, node in enumerate(nodes[:came]):
                view.add(node, leader=slot == 0)
        self._load = view.load.copy()
        for shard, nodes in enumerate(shards):
            placed = [node for node in nodes[self._count_given(shard) :] if node != EMPTY]
            np.add.at(self._load, np.asarray(placed, np.int64), 1)

    def explain_replicas(self, shard: int) -> Iterator[Presence]:
        """Explain why each replica of the shard is where it is.

        Ask for shards in ascending order.
        """
        self._count_before(shard)
        nodes = self._shards[shard]
        given = self._count_given(shard)
        for slot, node in enumerate(nodes):
            if node == EMPTY:
                continue
            need = self._request_for(shard, slot, _other_nodes(nodes, slot))
            name = self._view.topology.ids[node]
            what = f"{name} holds replica {slot} of {self._spec.stream}/{shard}"
            steps = self._funnel(need)
            funnel = tuple(FunnelStep(step, int(mask.sum())) for step, mask in steps)
            if slot < given:
                yield self._explain_given(
                    Presence(shard, slot, name, funnel, None, what), node, steps
                )
                continue
            by = self._deciding_step(shard, slot, node)
            decided = by if by == ONLY_NODE else f"chosen by {by}"
            yield Presence(
                shard, slot, name, funnel, by, f"{what}: {self._describe_funnel(steps)}; {decided}"
            )

    def _explain_given(
        self, held: Presence, node: int, steps: Sequence[tuple[str, Mask]]
    ) -> Presence:
        """A replica that is given: what speaks against it, or how many nodes could hold it."""
        topology = self._view.topology
        wrong, broken = [], False
        if not topology.eligible[node]:
            wrong.append(_CONDITIONS.get(topology.status(node), "it receives no new replicas"))
        outside = why_not_admitted(self._policy.nodes, topology, node)
        wrong += [outside] if outside else []
        if topology.is_lost(node):
            wrong = wrong[:1]
        else:
            for rule, told in self._find_broken_rules(held.shard, node):
                broken = broken or rule.strength is Strength.REQUIRED
                wrong.append(told)
        status = topology.status(node)
        lawful = not (broken or outside) and bool(topology.counts_for_rules[node])
        if wrong:
            says = f", on a node that is {status}: " if not topology.eligible[node] else ", but "
            reason = f"{held.reason}{says}{'; '.join(wrong)}"
        else:
            reason = f"{held.reason}: it is up and breaks no rule; {self._describe_funnel(steps)}"
        return replace(held, reason=reason, status=status, lawful=lawful)

    def _find_broken_rules(self, shard: int, node: int) -> Iterator[tuple[Rule, str]]:
        """The rules that the shard breaks in the node's domain, or on the node itself."""
        topology, nodes = self._view.topology, self._shards[shard]
        kept = [n for n in nodes if n != EMPTY and not topology.is_lost(n)]
        need = self._request_for(shard, 0, kept)
        standing = replace(need.standing(topology.for_diagnosis()), load=self._load)
        for rule in self._rules:
            scope = rule.scope
            places = {topology.ids[node]}
            if scope is not None and topology.domain_of(scope)[node] != NO_DOMAIN:
                places.add(topology.domain_name(scope, int(topology.domain_of(scope)[node])))
            for finding in rule.violations(standing):
                if finding.domain in places:
                    counts = f"{finding.count} in {finding.domain}, the limit is {finding.limit}"
                    yield rule, f"the {rule.strength} rule '{rule}' is broken: {counts}"

    def explain_absence(self, shard: int, node: int, why: Reason | None = None) -> Absence | None:
        """Explain why the node holds nothing of the shard, None if it does.

        `why` is what kept the whole stream from being placed.
        """
        self._count_before(shard)
        copies = self._policy.copies(self._spec.replication_factor)
        nodes = self._shards[shard] if self._shards else [EMPTY] * copies
        if node in nodes:
            return None
        lost: tuple[int, str, str] = (-1, "", "")
        for slot, holder in enumerate(nodes):
            need = self._request_for(shard, slot, _other_nodes(nodes, slot))
            steps = self._funnel(need)
            gone = next((at for at, (_, mask) in enumerate(steps) if not mask[node]), None)
            if gone is None:
                return self._explain_passed_over(shard, slot, node, holder, why)
            if gone > lost[0]:
                lost = (gone, steps[gone][0], self._why_lost(steps[gone][0], node, need))
        name = self._view.topology.ids[node]
        what = f"{name} holds no replica of {self._spec.stream}/{shard}"
        return Absence(shard, name, lost[1], f"{what}: {lost[2]}")

    def _explain_passed_over(
        self, shard: int, slot: int, node: int, holder: int, why: Reason | None
    ) -> Absence:
        """A node that nothing speaks against: what was preferred to it."""
        ids = self._view.topology.ids
        what = f"{ids[node]} could hold replica {slot} of {self._spec.stream}/{shard}"
        if holder == EMPTY:
            reason = f", but {why.message}" if why else ", and the slot is still empty"
            return Absence(shard, ids[node], "the stream as a whole", what + reason)
        if slot < self._count_given(shard):
            reason = f", but {ids[holder]} holds it already"
            return Absence(shard, ids[node], "given", what + reason)
        by = self._losing_step(shard, slot, node, holder)
        return Absence(shard, ids[node], by, f"{what}, but {ids[holder]} was chosen by {by}")

    def _funnel(self, need: ReplicaRequest) -> list[tuple[str, Mask]]:
        """Compute the nodes that each step leaves, as masks."""
        topology, view = self._view.topology, self._view
        known = np.zeros(topology.size, bool)
        known[list(topology.index.values())] = True
        mask = known & topology.eligible
        steps = [("candidates", known), ("alive", mask)]
        if not self._policy.nodes.everything:
            mask = mask & self._policy.nodes.mask(topology)
            steps.append(("filters", mask))
        others = np.ones(topology.size, bool)
        others[np.asarray(need.kept, np.int64)] = False
        mask = mask & others
        steps.append(("distinct nodes", mask))
        standing = self._rule_context(need)
        for rule in self._rules:
            if rule.strength is Strength.REQUIRED:
                mask = mask & (rule.penalty(standing) == 0)
                steps.append((str(rule), mask))
        mask = mask & view.has_room()
        steps.append(("capacity", mask))
        for rule in self._rules:
            if rule.prefers_located:
                first = mask & (rule.penalty(standing) == 0)
                steps.append((str(rule), first if first.any() else mask))
        return steps

    def _describe_funnel(self, steps: Sequence[tuple[str, Mask]]) -> str:
        """The funnel in one clause; steps that left nothing out are not worth a word."""
        parts = {"distinct nodes": apart, "capacity": room, LocatedFirst.name: located}
        rules = {str(rule): rule for rule in self._rules}
        found = supply(self._view.topology, self._policy.nodes)
        more = []
        for step, mask in steps:
            left = int(mask.sum())
            if step in parts:
                more.append(parts[step](left))
            elif step in rules:
                more.append(keeping(rules[step], left))
        if found.narrowed(*more):
            return found.told(*more)
        return f"all {found.known} nodes were possible"

    def _why_lost(self, step: str, node: int, need: ReplicaRequest) -> str:
        topology, view = self._view.topology, self._view
        match step:
            case "candidates":
                return "it is not registered"
            case "alive":
                return f"it is {topology.status(node)} and receives no replicas"
            case "filters":
                return why_not_admitted(self._policy.nodes, topology, node) or ""
            case "capacity":
                capacity, load = int(topology.capacity[node]), int(view.load[node])
                return f"its capacity of {capacity} is used up, it holds {load}"
            case LocatedFirst.name:
                return "it has no location, and nodes that have one come first"
        rule = next(rule for rule in self._rules if str(rule) == step)
        return f"the required rule '{rule}' forbids it{self._describe_breach(rule, node, need)}"

    def _describe_breach(self, rule: Rule, node: int, need: ReplicaRequest) -> str:
        """Describe what the rule would find if the node took the replica."""
        topology, scope = self._view.topology, rule.scope
        if scope is not None and topology.domain_of(scope)[node] == NO_DOMAIN:
            return f": it has no {scope}"
        if fault := rule.node_fault(topology, node):
            return f": {fault}"
        standing = self._rule_context(need)
        after = replace(
            standing,
            replicas=[*standing.replicas, node],
            slots=[*standing.held_slots, standing.next_slot],
        )
        for finding in rule.violations(after):
            where = f" in {finding.domain}" if finding.domain else ""
            return f": with it there would be {finding.count}{where}, the limit is {finding.limit}"
        return ""

    def _deciding_step(self, shard: int, slot: int, node: int) -> str:
        """The last step of `choose` that left anything out, or the strategy's own order."""
        if not self._view.topology.eligible[node]:
            return EARLIER
        need = self._request_for(shard, slot, _other_nodes(self._shards[shard], slot))
        if int(dict(self._funnel(need))["capacity"].sum()) == 1:
            return ONLY_NODE
        trace = self._replay(shard, slot, node)
        if trace is None:
            return self._name_own_order()
        by = ONLY_NODE
        for (_, before), (step, left) in pairwise(trace):
            by = step if len(left) < len(before) else by
        return by

    def _losing_step(self, shard: int, slot: int, node: int, holder: int) -> str:
        """The step at which `choose` left the node for the holder."""
        if not self._view.topology.eligible[holder]:
            return EARLIER
        trace = self._replay(shard, slot, holder)
        if trace is not None:
            for step, left in trace:
                if node not in left:
                    return step
        return self._name_own_order()

    def _name_own_order(self) -> str:
        return f"the order of strategy '{self._strategy.name}'"

    def _replay(self, shard: int, slot: int, node: int) -> Trace | None:
        """Replay the trace of `choose` that gives the node.

        With the replicas before it placed, or with all others placed. None if the strategy has an
        order of its own: agreeing with `choose` would be chance.
        """
        if not self._strategy.places_by_choice:
            return None
        nodes = self._shards[shard]
        placed = [other for other in nodes[:slot] if other != EMPTY]
        for kept, shards in ((placed, shard), (_other_nodes(nodes, slot), len(self._shards))):
            need = self._request_for(shard, slot, kept, shards)
            mask = candidates(self._policy, self._view)
            mask[np.asarray(kept, np.int64)] = False
            for other in kept:
                self._view.add(other)
            trace: Trace = [("what may hold it at all", np.flatnonzero(mask))]
            found = choose(self._rules, mask, need, self._view, trace)
            for other in kept:
                self._view.remove(other)
            if found == node:
                return trace
        return None

    def _request_for(
        self, shard: int, slot: int, kept: Sequence[int], shards: int | None = None
    ) -> ReplicaRequest:
        """The need for this replica beside the kept ones and the stream's first `shards` shards."""
        spec, others = self._spec, []
        if RuleSet(self._rules).spans_stream:
            rest = (nodes for s, nodes in enumerate(self._shards[:shards]) if s != shard)
            others = [node for nodes in rest for node in nodes if node != EMPTY]
        factor, nodes = self._policy.copies(spec.replication_factor), self._policy.nodes
        slots = [list(self._shards[shard]).index(node) for node in kept]
        need = ReplicaRequest(spec.stream, shard, slot, factor, kept, others, nodes, slots=slots)
        return need._replace(shards=spec.shards, leads=not kept)

    def _rule_context(self, need: ReplicaRequest) -> RuleContext:
        """The context of the rules; the load is the finished stream's without its replica."""
        load = self._load.copy()
        holder = self._shards[need.shard][need.slot] if self._shards else EMPTY
        if holder != EMPTY:
            load[holder] -= 1
        return replace(need.standing(self._view.topology), load=load)

    def _count_given(self, shard: int) -> int:
        """Count the replicas that the shard came with."""
        return self._given[shard] if shard < len(self._given) else 0

    def _count_before(self, shard: int) -> None:
        """Count the replicas of the shards before this one as load."""
        while self._counted < min(shard, len(self._shards)):
            came = self._count_given(self._counted)
            for slot, node in enumerate(self._shards[self._counted]):
                if node != EMPTY and slot >= came:
                    self._view.add(node, leader=slot == 0)
            self._counted += 1


def _other_nodes(nodes: Sequence[int], slot: int) -> list[int]:
    return [node for at, node in enumerate(nodes) if at != slot and node != EMPTY]
