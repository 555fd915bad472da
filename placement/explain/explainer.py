"""Explains why a node holds a replica, why another holds none, and what comes next.

The funnel of a replica: candidates, alive, each required rule, capacity, chosen by. Every step asks
the function that placed (`Rule.penalty`, `View.has_room`, `choose`). For a strategy with an order
of its own the funnel has its required rules, and the last step names that order. The outlook of a
shard holds its violations and the move that repair would make next.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from placement.allocator import (
    ReplicaRequest,
    Trace,
    View,
    candidates,
    choose,
    count_with_room,
)
from placement.assignments import EMPTY
from placement.explain.room import describe_fill, describe_lack, describe_overload
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
    distinct_node_step,
    location_step,
    rule_step,
    supply,
    why_not_admitted,
)
from placement.state import ClusterState
from placement.strategies import STRATEGIES
from placement.topology import NO_DOMAIN


@dataclass(frozen=True, slots=True)
class Outlook:
    """Holds a shard's violations with class and reason, and the move that repair makes of them.

    `move` is None where repair makes none.
    """

    violations: tuple[Violation, ...] = ()
    move: Move | None = None


def find_outlooks(state: ClusterState, shards: Iterable[int]) -> Mapping[int, Outlook]:
    """Run repair on some shards and return the outlook of each, by shard index.

    `shards`: indexes in the assignment table. Changes `state`: the moves are begun in it.
    """
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
    """Counts the nodes that a step of the funnel leaves."""

    step: str
    left: int


@dataclass(frozen=True, slots=True)
class Presence:
    """Explains why a node holds a replica.

    - `funnel`: how many nodes each step left.
    - `chosen_by`: the last step that decided; None for a replica that the stream came with.
    - `status`: the status of the node.
    - `lawful`: for a replica that the stream came with, whether it may stay. It may not on a node
      that is lost, has to be emptied or is not admitted by the policy, nor where it breaks a
      required rule.
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
    """Explains why a node holds no replica of a shard; `step` is where the funnel dropped it."""

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
    "cordoned": "the replica stays, the node receives no new ones",
    "held_down": "the replica stays, the node receives no new ones",
}
# The step of `choose` that compares the load of nodes.
LEAST_LOADED = "the least loaded node"
# What was decided while its node could still be chosen.
EARLIER = "an earlier decision: the node receives no new replicas now"


class Explainer:
    """Explains the placement of one stream.

    `shards`: node indexes by shard and slot, EMPTY where a slot has none. `view`: replicas and
    leaders by node before the stream was placed; the explainer adds to it as it goes on. `given`:
    by shard, how many of its first replicas the stream came with. `amounts`: the load of its shards
    by resource and shard, where resources are counted.
    """

    def __init__(
        self,
        spec: StreamSpec,
        policy: Policy,
        shards: Sequence[Sequence[int]],
        view: View,
        given: Sequence[int] = (),
        amounts: NDArray[np.int64] | None = None,
    ) -> None:
        self._spec, self._policy, self._view = spec, policy, view
        self._shards = shards
        self._given, self._amounts = given, amounts
        self._strategy = STRATEGIES[policy.strategy]
        self._rules = self._strategy.rules(policy, view.topology)
        self._counted = 0
        for shard, (nodes, count) in enumerate(zip(shards, given, strict=False)):
            self._bear(shard)
            for slot, node in enumerate(nodes[:count]):
                view.add(node, leader=slot == 0)
        self._load = view.load.copy()
        for shard, nodes in enumerate(shards):
            placed = [node for node in nodes[self._count_given(shard) :] if node != EMPTY]
            np.add.at(self._load, np.asarray(placed, np.int64), 1)

    def explain_replicas(self, shard: int) -> Iterator[Presence]:
        """Explain why each replica of the shard is where it is.

        Ask for shards in ascending order: earlier shards count as load.
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
            decided = by if by == ONLY_NODE else f"chosen by {by}{self._describe_choice(by, node)}"
            yield Presence(
                shard, slot, name, funnel, by, f"{what}: {self._describe_funnel(steps)}; {decided}"
            )

    def _explain_given(
        self, presence: Presence, node: int, steps: Sequence[tuple[str, Mask]]
    ) -> Presence:
        """Explain a replica that the stream came with.

        Says what is against it, or how many nodes could hold it.
        """
        topology = self._view.topology
        wrong, broken = [], False
        if not topology.eligible[node]:
            wrong.append(_CONDITIONS.get(topology.status(node), "it receives no new replicas"))
        outside = why_not_admitted(self._policy.nodes, topology, node)
        wrong += [outside] if outside else []
        if topology.is_lost(node):
            wrong = wrong[:1]
        else:
            for rule, sentence in self._find_broken_rules(presence.shard, node):
                broken = broken or rule.strength is Strength.REQUIRED
                wrong.append(sentence)
        wrong += describe_overload(self._view.loads, node)
        status = topology.status(node)
        lawful = not (broken or outside) and bool(topology.counts_for_rules[node])
        if wrong:
            says = f", on a node that is {status}: " if not topology.eligible[node] else ", but "
            reason = f"{presence.reason}{says}{'; '.join(wrong)}"
        else:
            reason = (
                f"{presence.reason}: it is up and breaks no rule; {self._describe_funnel(steps)}"
            )
        return replace(presence, reason=reason, status=status, lawful=lawful)

    def _find_broken_rules(self, shard: int, node: int) -> Iterator[tuple[Rule, str]]:
        """Yield the rules that the shard breaks on the node or in its domain, with a sentence."""
        topology, nodes = self._view.topology, self._shards[shard]
        kept = [n for n in nodes if n != EMPTY and not topology.is_lost(n)]
        need = self._request_for(shard, 0, kept)
        standing = replace(need.rule_context(topology.for_diagnosis()), load=self._load)
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
        """Explain why the node holds no replica of the shard; None if it holds one.

        `node`: its index. `why`: the reason why the stream as a whole was not placed, if it was
        not. Ask for shards in ascending order.
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
        """Explain why a node that every step left was not chosen."""
        ids = self._view.topology.ids
        what = f"{ids[node]} could hold replica {slot} of {self._spec.stream}/{shard}"
        if holder == EMPTY:
            reason = f", but {why.message}" if why else ", and the slot is still empty"
            return Absence(shard, ids[node], "the stream as a whole", what + reason)
        if slot < self._count_given(shard):
            reason = f", but {ids[holder]} holds it already"
            return Absence(shard, ids[node], "given", what + reason)
        by = self._losing_step(shard, slot, node, holder)
        chosen = f"{ids[holder]} was chosen by {by}{self._describe_choice(by, holder, node)}"
        return Absence(shard, ids[node], by, f"{what}, but {chosen}")

    def _describe_choice(self, by: str, node: int, other: int = EMPTY) -> str:
        """Say how far the node is filled, and another one, where load decided."""
        filled = describe_fill(self._view, node) if by == LEAST_LOADED else ""
        if not filled:
            return ""
        beside = describe_fill(self._view, other) if other != EMPTY else ""
        rest = f", {self._view.topology.ids[other]} to {beside}" if beside else ""
        return f" (it is filled to {filled}{rest})"

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
        """Describe the funnel in one clause; steps that dropped no node are left out."""
        parts = {
            "distinct nodes": distinct_node_step,
            LocatedFirst.name: location_step,
        }
        rules = {str(rule): rule for rule in self._rules}
        found = supply(self._view.topology, self._policy.nodes)
        more, before = [], found.mask
        for step, mask in steps:
            left = int(mask.sum())
            if step == "capacity":
                more.append(count_with_room(before, self._view))
            elif step in parts:
                more.append(parts[step](left))
            elif step in rules:
                more.append(rule_step(rules[step], left))
            before = mask
        if found.excludes_nodes(*more):
            return found.describe(*more)
        return f"all {found.known} nodes could take it"

    def _why_lost(self, step: str, node: int, need: ReplicaRequest) -> str:
        """Say why the step dropped the node."""
        topology, view = self._view.topology, self._view
        match step:
            case "candidates":
                return "it is not registered"
            case "alive":
                return f"it is {topology.status(node)} and receives no replicas"
            case "filters":
                return why_not_admitted(self._policy.nodes, topology, node) or ""
            case "capacity":
                return describe_lack(view, node)
            case LocatedFirst.name:
                return "it has no location, and nodes that have one come first"
        rule = next(rule for rule in self._rules if str(rule) == step)
        return f"the required rule '{rule}' forbids it{self._describe_breach(rule, node, need)}"

    def _describe_breach(self, rule: Rule, node: int, need: ReplicaRequest) -> str:
        """Describe what the rule would report if the node took the replica."""
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
        """Name the last step of `choose` that dropped a node, or the strategy's own order."""
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
        """Name the step at which `choose` preferred the holder to the node."""
        if not self._view.topology.eligible[holder]:
            return EARLIER
        trace = self._replay(shard, slot, holder)
        if trace is not None:
            for step, left in trace:
                if node not in left:
                    return step
        return self._name_own_order()

    def _name_own_order(self) -> str:
        """Name the order of a strategy that does not place by `choose`."""
        return f"the order of strategy '{self._strategy.name}'"

    def _replay(self, shard: int, slot: int, node: int) -> Trace | None:
        """Replay `choose` for a slot; returns its trace if it gives the node.

        Tried with the replicas before the slot placed, then with all others placed. None if neither
        gives the node, or if the strategy has an order of its own: agreeing with `choose` would be
        chance.
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
            trace: Trace = [("the nodes that may hold it", np.flatnonzero(mask))]
            found = choose(self._rules, mask, need, self._view, trace)
            for other in kept:
                self._view.remove(other)
            if found == node:
                return trace
        return None

    def _request_for(
        self, shard: int, slot: int, kept: Sequence[int], shards: int | None = None
    ) -> ReplicaRequest:
        """Make the request for a replica beside the kept ones and the stream's first `shards`
        shards."""
        spec, others = self._spec, []
        if RuleSet(self._rules).spans_stream:
            rest = (nodes for s, nodes in enumerate(self._shards[:shards]) if s != shard)
            others = [node for nodes in rest for node in nodes if node != EMPTY]
        factor, nodes = self._policy.copies(spec.replication_factor), self._policy.nodes
        slots = [list(self._shards[shard]).index(node) for node in kept]
        need = ReplicaRequest(spec.stream, shard, slot, factor, kept, others, nodes, slots=slots)
        return need._replace(shards=spec.shards, leads=not kept)

    def _rule_context(self, need: ReplicaRequest) -> RuleContext:
        """Make the context in which rules are asked: the load of the finished stream without the
        replica."""
        load = self._load.copy()
        holder = self._shards[need.shard][need.slot] if self._shards else EMPTY
        if holder != EMPTY:
            load[holder] -= 1
        return replace(need.rule_context(self._view.topology), load=load)

    def _count_given(self, shard: int) -> int:
        """Count the replicas that the stream brought for the shard."""
        return self._given[shard] if shard < len(self._given) else 0

    def _count_before(self, shard: int) -> None:
        """Add the replicas of the shards before this one to the load, and bear its own."""
        self._bear(self._counted)
        while self._counted < min(shard, len(self._shards)):
            given = self._count_given(self._counted)
            for slot, node in enumerate(self._shards[self._counted]):
                if node != EMPTY and slot >= given:
                    self._view.add(node, leader=slot == 0)
            self._counted += 1
            self._bear(self._counted)

    def _bear(self, shard: int) -> None:
        """Set the load of a shard as that of the replicas that are counted and asked about."""
        if self._amounts is not None:
            self._view.bear(self._amounts[:, min(shard, self._amounts.shape[1] - 1)])


def _other_nodes(nodes: Sequence[int], slot: int) -> list[int]:
    """List the nodes of a shard's other slots."""
    return [node for at, node in enumerate(nodes) if at != slot and node != EMPTY]
