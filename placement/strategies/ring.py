"""Consistent hashing with failure domains: the walk of Dynamo's preference lists."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.allocator import (
    VNODES,
    VNODES_MAX,
    ByRules,
    Fits,
    OnRing,
    Placement,
    Positions,
    ReplicaRequest,
    TokenRing,
    View,
    admitted_mask,
    explain_no_node,
    fill_slots,
    find_first_fitting,
    find_token_fault,
    find_unmet,
    is_among,
    pick_by_preferences,
    ring_of,
    walk_in_bulk,
)
from placement.model import Code, Reason, StreamSpec
from placement.policy import Balance, OnInfeasible, Policy, name_list, unknown_value
from placement.rules import AtMost, Mask, Rule, SpanDomains, Strength, find_breaches
from placement.topology import NO_DOMAIN, Scope, Topology


@dataclass(frozen=True, slots=True)
class RingStrategy(ByRules):
    """Walk a ring of tokens clockwise from the shard's own, taking fresh failure domains first.

    Goals, in this order:
        1. Each replica stands in a domain not used yet, of the highest level that still has one:
           a fresh region before a fresh zone before a fresh rack.
        2. Among those, the first node of the walk: shards keep their nodes when others join.

    Constraints:
        Distinct nodes; the user's required rules and node filters; capacity. A replica for which
        no level has a fresh domain left is taken all the same, in the order of the walk, and the
        decision is `degraded` with the domains seen; with `strict` it is refused.

    Algorithm:
        Each node has `vnodes` tokens per unit of weight, hashed from its id, or its explicit ones;
        a shard starts at the first token at or after its own. For every replica the walk goes
        round once: the first node in a fresh domain of the first of `levels` (all the tiers,
        unless given) that has a fresh one is taken. The tutorial's `preference_list_full` prefers,
        as printed, the *lowest* level with a fresh domain, and its `RackAwareRing` the first node
        that is fresh at any; both miss regions and zones. The stated intent is implemented.

        Load is not looked at: that is the price of a ring. A node that joins or leaves changes no
        list that does not hold it. `extend` takes the node at which the walk arrives next.
        Rebalancing leaves replicas where the tokens put them.

    Example:
        Tokens A1=10, A2=20, B1=30, C1=40, racks A, B and C, and a shard at 15: the walk is A2,
        B1, C1, A1, and three replicas stand on A2, B1, C1; from 5 they stand on A1, B1, C1.
    """

    name: str = "ring"
    aliases: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ("levels", "vnodes", "strict")
    on_infeasible: OnInfeasible = OnInfeasible.DEGRADE
    balance: ClassVar[Balance] = Balance.NEVER
    on_shortage: ClassVar[OnInfeasible] = OnInfeasible.REJECT

    def compile(self, policy: Mapping[str, Any], topology: Topology) -> Mapping[str, Any] | Reason:
        """Check `levels` from the top (default: every tier; empty: no failure domains), `vnodes`
        (16) and `strict` (false)."""
        levels = _parse_levels(policy.get("levels"), topology)
        if isinstance(levels, Reason):
            return levels
        vnodes = policy.get("vnodes", VNODES)
        if type(vnodes) is not int or not 1 <= vnodes <= VNODES_MAX:
            return unknown_value("policy", "vnodes", vnodes, (f"a number from 1 to {VNODES_MAX}",))
        strict = policy.get("strict", False)
        if not isinstance(strict, bool):
            return unknown_value("policy", "strict", strict, ("true", "false"))
        compiled: dict[str, Any] = {"levels": levels, "vnodes": vnodes, "strict": strict}
        return compiled | ({"on_infeasible": OnInfeasible.REJECT} if strict else {})

    def rules(self, policy: Policy, topology: Topology) -> tuple[Rule, ...]:
        """List the user's rules, then one replica per domain of the lowest level.

        And as many domains of the other levels as there are.
        """
        scopes, vnodes = _scopes(policy, topology), policy.parameters["vnodes"]
        rules: list[Rule] = list(policy.rules)
        if ring_of(topology, vnodes).explicit:
            rules.append(OnRing(vnodes))
        if scopes:
            rules.append(AtMost(1, scopes[-1], policy.strength))
        return (*rules, *(SpanDomains(scope) for scope in scopes[:-1]))

    def find_fault(self, spec: StreamSpec, _policy: Policy, topology: Topology) -> Reason | None:
        """Find explicit tokens that form no ring."""
        return find_token_fault(spec, topology)

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        """Walk for each shard; a slot that finds no node stays empty with the reason."""
        topology = view.topology
        walk = _Walk(policy, view)
        whole = walk_in_bulk(spec, policy, view, walk.ring, partial(walk.pick_all, spec))
        shards, reasons = (
            (whole, ())
            if whole
            else fill_slots(spec, policy, view, walk.pick, self.rules(policy, view.topology))
        )
        scopes = _scopes(policy, topology)
        reuse = _warn_of_reuse(shards, scopes[-1], spec, policy, view) if scopes else ()
        own = AtMost(1, scopes[-1], policy.strength) if scopes else None
        rules = [rule for rule in self.rules(policy, topology) if rule != own]
        return Placement(
            shards, reasons, (*reuse, *find_unmet(rules, shards, spec, policy, topology))
        )

    def extend(self, need: ReplicaRequest, policy: Policy, mask: Mask, view: View) -> int | Reason:
        """Choose the node at which the walk arrives next, given those that stay."""
        return _Walk(policy, view).pick(need, mask)


def _make_fits(at: NDArray[np.integer[Any]], earlier: Positions) -> Fits:
    """Make the test whether positions stand in domains (`at`) new to their shard."""

    def can_take(shards: Positions, positions: Positions) -> Mask:
        domains = at[positions]
        fresh: Mask = (domains != NO_DOMAIN) & ~is_among(domains, at[earlier[shards]])
        return fresh

    return can_take


def _parse_levels(given: Any, topology: Topology) -> tuple[Scope, ...] | Reason | None:
    if given is None:
        return None
    names = name_list("levels", given)
    if isinstance(names, Reason):
        return names
    scopes: list[Scope] = []
    for name in names:
        scope = topology.scope(name)
        if isinstance(scope, Reason):
            return scope
        scopes.append(scope)
    return tuple(scopes)


def _scopes(policy: Policy, topology: Topology) -> tuple[Scope, ...]:
    levels: tuple[Scope, ...] | None = policy.parameters["levels"]
    if levels is not None:
        return levels
    tiers = topology.tiers()
    depth = len(tiers)
    if depth > len(topology.levels):
        return tiers
    # The whole path by the name that its tier has.
    return (*tiers[:-1], Scope(depth=depth, name=topology.levels[depth - 1]))


def _warn_of_reuse(
    shards: Sequence[Sequence[int]], scope: Scope, spec: StreamSpec, policy: Policy, view: View
) -> tuple[Reason, ...]:
    """Warn, with the domains seen, where a shard had too few domains for its replicas."""
    topology, factor = view.topology, spec.replication_factor
    rules = (AtMost(1, scope, Strength.PREFERRED),)
    everywhere = policy.rule_context(spec, topology)
    broken = [found for _, found, _ in find_breaches(rules, rules[0].strength, shards, everywhere)]
    live = everywhere.live_domains(scope)
    if not broken or len(live) >= factor:
        return find_unmet(rules, shards, spec, policy, topology)
    names = topology.domain_names(scope, live.tolist())
    seen = topology.names_for_reason(scope, live.tolist())
    message = (
        f"{len(broken[0])} of {spec.shards} shards use a domain of {scope} more than once: "
        f"{factor} replicas, {len(seen)} domains seen: {', '.join(names)}"
    )
    return (Reason(Code.DOMAINS_TOO_FEW, message, factor, len(seen), scope.level, seen),)


@dataclass(frozen=True, slots=True)
class _Reach:
    """The nodes that may be taken, those of them on the ring, and the domains these offer."""

    mask: Mask
    open: Mask
    offered: Sequence[set[int]]


@dataclass(slots=True)
class _Walk:
    """One plan's walks over the ring."""

    policy: Policy
    view: View
    ring: TokenRing = field(init=False)
    scopes: tuple[Scope, ...] = field(init=False)
    domains: list[NDArray[np.int32]] = field(init=False)
    reach: _Reach | None = None

    def __post_init__(self) -> None:
        topology = self.view.topology
        self.ring = ring_of(topology, self.policy.parameters["vnodes"])
        self.scopes = _scopes(self.policy, topology)
        self.domains = [topology.domain_of(scope) for scope in self.scopes]

    def pick(self, need: ReplicaRequest, mask: Mask) -> int | Reason:
        """Pick the first node of the walk in a fresh domain of the highest level with one."""
        return pick_by_preferences(lambda policy: self._pick(policy, need, mask), self.policy)

    def _pick(self, policy: Policy, need: ReplicaRequest, mask: Mask) -> int | Reason:
        left = admitted_mask(policy, mask, need, self.view)
        if isinstance(left, Reason):
            return left
        reach = self._find_reach(left)
        start = self.ring.start(need)
        taken = {*need.kept, *need.excluded}
        for domains, offered in zip(self.domains, reach.offered, strict=True):
            fresh = offered.difference(int(domains[node]) for node in need.kept)
            if fresh:
                for node in self.ring.clockwise(start):
                    if reach.open[node] and node not in taken and int(domains[node]) in fresh:
                        return node
        walk = self.ring.clockwise(start)
        first = next((n for n in walk if reach.open[n] and n not in taken), None)
        if first is None:
            return explain_no_node(need, reach.open, self.view)
        if self.policy.strength is Strength.REQUIRED and self.scopes:
            return self._explain_too_few(need, reach)
        return first

    def pick_all(self, spec: StreamSpec, starts: Positions, open_at: Mask) -> Positions | None:
        """Pick the node of every slot of every shard as `pick` does; None if a slot finds none."""
        owners, every = self.ring.owners, np.arange(spec.shards)
        places = [np.where(open_at, of[owners], NO_DOMAIN) for of in self.domains]
        offered = [len(np.unique(at[at != NO_DOMAIN])) for at in places]
        used = np.zeros((len(places), spec.shards), np.int64)
        # A walk goes on behind the last position it took at the same level: what it passed by was
        # not fresh then and is not now.
        behind = np.repeat(starts[None, :], len(places), axis=0)
        taken = np.full((spec.shards, spec.replication_factor), -1, np.int64)
        for slot in range(spec.replication_factor):
            earlier = taken[:, :slot]
            for level, at in enumerate(places):
                walking = every[(taken[:, slot] < 0) & (used[level] < offered[level])]
                taken[walking, slot] = behind[level, walking] = find_first_fitting(
                    walking, behind[level, walking], len(owners), _make_fits(at, earlier)
                )
            walking = every[taken[:, slot] < 0]
            if len(walking):
                if self.policy.strength is Strength.REQUIRED and self.scopes:
                    return None
                at = np.where(open_at, owners, NO_DOMAIN)
                taken[walking, slot] = find_first_fitting(
                    walking, starts[walking], len(owners), _make_fits(at, earlier)
                )
            if (taken[:, slot] < 0).any():
                return None
            for level, at in enumerate(places):
                new = at[taken[:, slot], None]
                used[level] += ((new != NO_DOMAIN) & ~is_among(new, at[earlier]))[:, 0]
        return taken

    def _find_reach(self, mask: Mask) -> _Reach:
        if self.reach is None or self.reach.mask is not mask:
            on_ring = mask & self.ring.members(self.view.topology) if self.ring.explicit else mask
            offered = [set(np.unique(of[on_ring]).tolist()) - {NO_DOMAIN} for of in self.domains]
            self.reach = _Reach(mask, on_ring, offered)
        return self.reach

    def _explain_too_few(self, need: ReplicaRequest, reach: _Reach) -> Reason:
        topology, scope = self.view.topology, self.scopes[-1]
        used = {int(self.domains[-1][node]) for node in need.kept} - {NO_DOMAIN}
        seen = topology.names_for_reason(scope, used | reach.offered[-1])
        message = (
            f"no unused domain of {scope} can take replica {need.slot} of "
            f"{need.stream}/{need.shard}: "
            f"{need.replication_factor} replicas, {len(seen)} domains seen"
        )
        factor = need.replication_factor
        return Reason(Code.DOMAINS_TOO_FEW, message, factor, len(seen), scope.level, seen)
