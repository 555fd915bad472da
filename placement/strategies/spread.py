"""The default strategy: even at every level, by weight, within the user's rules."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from placement.allocator import (
    ByRules,
    Placement,
    ReplicaRequest,
    View,
    arrange_stream,
    candidates,
    choose,
    choose_ahead,
    choose_by_class,
    elect_leaders,
    find_unmet,
    put_in_front,
)
from placement.assignments import EMPTY
from placement.model import UNLOCATED, Code, Reason, StreamSpec
from placement.policy import Balance, OnInfeasible, Policy
from placement.rules import (
    Even,
    LeaderPreference,
    LocatedFirst,
    Mask,
    Penalties,
    Rule,
    RuleContext,
    RuleSet,
    Strength,
    find_breaches,
)
from placement.strategies.spread_bulk import BULK_FROM, can_spread_in_bulk, spread_in_bulk
from placement.topology import NO_DOMAIN, Scope, Topology

# Slots of a stream up to which an arrangement of all of them is searched.
_SEARCHED = 64

_REQUIRED = Strength.REQUIRED
_MAY_LEAD = LeaderPreference((UNLOCATED,))


@dataclass(frozen=True, slots=True)
class SpreadStrategy(ByRules):
    """Spread replicas over all failure domains, and load over all nodes.

    Goals, in this order, when streams are placed and when they are rebalanced:
        1. A shard's replicas are even over the domains of every level, top level first.
        2. All replicas are within one of their shares by weight, over domains from the top level
           down, then over nodes; where 1 does not allow that, as near as it does.
        3. The stream's own replicas are, as far as 2 allows.
        4. Leaders are even over domains, then over nodes, by weight.

    Constraints:
        Distinct nodes; the user's required rules and node filters; capacity. They are never
        broken: a replica that finds no node under them stays unplaced and is retried. Evenness is
        its own rule: `on_infeasible` says what becomes of a stream that cannot be even. A shard
        has a replica that may lead. Where the stream may use a node that has a location, those that
        have none get a replica only if the others cannot take it (distinct nodes, required rules,
        capacity): they are no domain of its evenness and share no load with the others. A replica
        that stands on one stays. Rules of the user count them as the domain `(unlocated)`.

    Algorithm:
        One replica after the other is placed on the node that `choose` ranks first: one
        that has a location, preferred rules, evenness level by level, then the least loaded
        domain level by level, then the least loaded node, for the first replica the one
        that leads least, then a hash of the shard and the node. Where that ends without a
        candidate, the shard is placed again looking ahead, the stream again with the
        scarcest nodes in mind, and a small stream by search, so that a lawful arrangement
        is found where there is one. Of many shards whose own rules are required ones on
        levels or tags, the exact number of replicas of each domain and node is computed
        first, then dealt out. Smaller streams are gone over once more by the search of
        rebalancing (`placement.rebalance.evenness`), which then finds nothing to do later.
        Of each shard's members one is elected to lead, in the earliest domain of
        `leader_in`.

    Example:
        Three replicas over /eu/az1, /eu/az2 and /us/az1 with two nodes each: one replica in /eu
        and one in /us first, then the third in whichever region carries less load, in an
        availability zone not used yet. With rules `at_most: 1, per: az` this is Redis' layout: a
        shard's copies in different zones, the leaders spread over the zones.
    """

    name: str = "spread"
    aliases: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    on_infeasible: OnInfeasible = OnInfeasible.DEGRADE
    balance: ClassVar[Balance] = Balance.TOTALS_FIRST
    on_shortage: ClassVar[OnInfeasible] = OnInfeasible.PARTIAL
    # `explain` names the step of `choose` that decided, instead of an order of the strategy's own.
    places_by_choice: ClassVar[bool] = True
    # Strategies that follow a source count nodes without a location as theirs does.
    located_first: bool = True

    def compile(
        self, _policy: Mapping[str, Any], _topology: Topology
    ) -> Mapping[str, Any] | Reason:
        """Compile no parameters: the strategy has none."""
        return {}

    def rules(self, policy: Policy, topology: Topology) -> tuple[Rule, ...]:
        """List located nodes first, the user's rules, then evenness at every level."""
        has_user_rule = any(r.counts_places and r.strength is _REQUIRED for r in policy.rules)
        strength = Strength.PREFERRED if has_user_rule else policy.strength
        located = self.located_first and topology.mixes_located
        own = (Even(tier, strength, located) for tier in topology.tiers())
        return (*([LocatedFirst()] if located else ()), *policy.rules, *own)

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        """Place shard by shard; slots that find no node stay empty with a reason."""
        rules = self.rules(policy, view.topology)
        if not view.topology.can_lead[candidates(policy, view)].all():
            rules = (*rules, _MAY_LEAD)
        elif _is_for_bulk(spec, view) and can_spread_in_bulk(policy.rules, view.topology):
            after = view.fork()
            whole = spread_in_bulk(spec, policy, rules, after)
            everywhere = policy.rule_context(spec, view.topology)
            if whole and not any(find_breaches(rules, _REQUIRED, whole, everywhere)):
                view.adopt_from(after)
                warnings = find_unmet(rules, whole, spec, policy, view.topology)
                return Placement(whole, warnings=warnings)
        together = [rule.strength for rule in rules if rule.colocates_slots]
        unit = bool(together)
        tried = _Attempts(spec, policy, rules, unit).find_best(view.fork())
        if _REQUIRED not in together and unit and tried.replicas_placed < spec.replication_factor:
            unit = False
            tried = _Attempts(spec, policy, rules, unit).find_best(view.fork())
        leaders = view.leaders
        view.adopt_from(tried.view)
        view.leaders = leaders  # elected below, among all replicas of a shard
        shards = _elect_leaders(tried.shards, rules, spec, view)
        if unit:
            shards = _repeat(shards[0], spec, view)
        warnings = find_unmet(rules, shards, spec, policy, view.topology)
        return Placement(shards, tried.reasons, warnings)

    def extend(self, need: ReplicaRequest, policy: Policy, mask: Mask, view: View) -> int | Reason:
        """Choose the best candidate by the rules, load and nearness, avoiding dead ends."""
        return choose_ahead(self.rules(policy, view.topology), mask, need, view)


def _is_for_bulk(spec: StreamSpec, view: View) -> bool:
    """Return whether the stream is large; the bulk walk evens out replicas, and no resources."""
    return spec.shards >= BULK_FROM and view.loads is None


@dataclass(frozen=True, slots=True)
class _Arrangement:
    """One arrangement of the whole stream, short lists where nodes were not found."""

    shards: list[list[int]]
    reasons: tuple[Reason, ...]
    view: View

    @property
    def replicas_placed(self) -> int:
        """Count the replicas that have a node."""
        return sum(map(len, self.shards))


@dataclass(frozen=True, slots=True)
class _Attempts:
    """The ways to arrange a stream, cheap ones first; `unit` = all shards share their nodes."""

    spec: StreamSpec
    policy: Policy
    rules: tuple[Rule, ...]
    unit: bool

    @property
    def shards(self) -> int:
        """Count the shards that are arranged separately."""
        return 1 if self.unit else self.spec.shards

    def find_best(self, view: View) -> _Arrangement:
        """Find the first attempt that places everything, or the one that places most."""
        wanted = self.shards * self.spec.replication_factor
        best = self._place_in_turn(self.rules, view.fork())
        if best.replicas_placed < wanted:
            scarce = (_Scarce(self._scopes(), self._open_nodes(view)), *self.rules)
            again = self._place_in_turn(scarce, view.fork())
            best = again if again.replicas_placed > best.replicas_placed else best
        if best.replicas_placed < wanted and not view.shards_alike:
            after = view.fork()
            again = self._place_in_turn(self.rules, after, after.order_shards(self.shards))
            best = again if again.replicas_placed > best.replicas_placed else best
        if best.replicas_placed < wanted <= _SEARCHED:
            best = self._search(view) or best
        return best

    def _open_nodes(self, view: View) -> Mask:
        mask = candidates(self.policy, view)
        return mask & view.has_room(self.spec.shards) if self.unit else mask

    def _make_request(self, shard: int, kept: list[int], used: list[int]) -> ReplicaRequest:
        spec = self.spec
        return ReplicaRequest(
            spec.stream,
            shard,
            len(kept),
            spec.replication_factor,
            kept,
            used,
            self.policy.nodes,
            shards=spec.shards,
            leads=not kept,
        )

    def _place_in_turn(
        self, rules: Sequence[Rule], view: View, order: Sequence[int] = ()
    ) -> _Arrangement:
        """Place shard by shard, slot by slot; after a dead end the shard again, looking ahead."""
        wide = RuleSet(rules).spans_stream
        shards: list[list[int]] = [[] for _ in range(self.shards)]
        used: list[int] = []
        reasons: dict[Code, Reason] = {}
        for shard in order or range(self.shards):
            view.turn_to(shard)
            kept, reason = self._place_shard(rules, shard, used, view, self._choose)
            if reason:
                for slot, node in enumerate(kept):
                    view.remove(node)
                    view.leaders[node] -= slot == 0
                kept, reason = self._place_shard(rules, shard, used, view, self._choose_ahead)
            if reason:
                reasons.setdefault(reason.code, reason)
            if wide:
                used.extend(kept)
            shards[shard] = kept
        return _Arrangement(shards, tuple(reasons.values()), view)

    def _choose(self, rules: Sequence[Rule], need: ReplicaRequest, view: View) -> int | Reason:
        """Choose the best node by the shard's replicas so far."""
        node = None if self.unit else choose_by_class(rules, self.policy, need, view)
        return choose(rules, self._open_nodes(view), need, view) if node is None else node

    def _choose_ahead(
        self, rules: Sequence[Rule], need: ReplicaRequest, view: View
    ) -> int | Reason:
        """Choose the best node of those that leave one for every replica to come."""
        return choose_ahead(rules, self._open_nodes(view), need, view)

    def _place_shard(
        self,
        rules: Sequence[Rule],
        shard: int,
        used: list[int],
        view: View,
        choice: Callable[[Sequence[Rule], ReplicaRequest, View], int | Reason],
    ) -> tuple[list[int], Reason | None]:
        kept: list[int] = []
        while len(kept) < self.spec.replication_factor:
            node = choice(rules, self._make_request(shard, kept, used), view)
            if isinstance(node, Reason):
                return kept, node
            view.add(node, leader=not kept)
            kept.append(node)
        return kept, None

    def _search(self, view: View) -> _Arrangement | None:
        """Search for an arrangement of all shards; None if there is none within its bounds."""
        needs = [self._make_request(shard, [], []) for shard in range(self.shards)]
        after = view.fork()
        found = arrange_stream(self.rules, self._open_nodes, needs, after)
        if found is None:
            return None
        for shard, nodes in enumerate(found):
            after.turn_to(shard)
            for node in nodes:
                after.add(node)
        return _Arrangement(found, (), after)

    def _scopes(self) -> tuple[Scope, ...]:
        """List the levels and tags that required rules count by."""
        required = [rule for rule in self.rules if rule.strength is Strength.REQUIRED]
        scopes = (rule.scope for rule in required)
        return tuple(dict.fromkeys(scope for scope in scopes if scope is not None))


@dataclass(frozen=True, slots=True, eq=False)
class _Scarce(Rule):
    """Takes from where most is left, so that no domain is left with nodes that nobody can use.

    With one cap per domain this greedy finds an arrangement whenever there is one.
    """

    limited: tuple[Scope, ...]
    open: Mask
    strength: Strength = Strength.PREFERRED

    def __str__(self) -> str:
        return "scarce nodes last"

    def penalty(self, standing: RuleContext) -> Penalties:
        """Rank nodes lower whose domains have fewer free nodes."""
        topology = standing.topology
        free = self.open.copy()
        free[np.asarray(standing.stream_nodes, np.int64)] = False
        result = np.zeros(topology.size, np.int64)
        for scope in self.limited:
            domains = topology.domain_of(scope)
            known = free & (domains != NO_DOMAIN)
            left = np.bincount(domains[known], minlength=int(domains.max(initial=0)) + 2)
            result -= left[domains]
        return result

    def violations(self, _standing: RuleContext) -> list[Any]:
        """Return none: it guides the search, it is no rule of the stream."""
        return []


def _repeat(nodes: list[int], spec: StreamSpec, view: View) -> list[list[int]]:
    """Place replica r of every shard on the node of the first shard's."""
    for _ in range(spec.shards - 1):
        for slot, node in enumerate(nodes):
            if node != EMPTY:
                view.add(node, leader=slot == 0)
    return [list(nodes) for _ in range(spec.shards)]


def _elect_leaders(
    shards: Sequence[list[int]], rules: Sequence[Rule], spec: StreamSpec, view: View
) -> list[list[int]]:
    """Put an elected leader in front of every shard, and EMPTY where nodes are missing."""
    factor, topology = spec.replication_factor, view.topology
    able, rule_set = topology.can_lead, RuleSet(rules)
    members = (rule_set.possible_leaders(kept, factor, able, topology) for kept in shards if kept)
    leaders = iter(elect_leaders([*members], view))
    result: list[list[int]] = []
    for kept in shards:
        leader = next(leaders) if kept else EMPTY
        ordered = put_in_front(leader, kept) if kept else []
        result.append(ordered + [EMPTY] * (factor - len(ordered)))
    return result
