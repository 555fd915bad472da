"""`choose` where the fleet is large: rules are asked once for each class of nodes.

The answer is that of `choose`. What is kept between two answers is which nodes are open; the load
that counts is the view's.
"""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY
from placement.node_classes import node_classes
from placement.policy import Policy
from placement.rules import CountsDomains, Mask, Rule, Standing, Strength
from placement.strategies.base import (
    HALF,
    ByRules,
    Need,
    Strategy,
    View,
    distance,
    least,
    settle,
)
from placement.topology import Scope

# Nodes from which asking about classes costs less than asking about all.
CLASSED_FROM = 64

# The rank of a class that breaks a required rule, and one from which ranks are made small again:
# one more penalty, of 21 bits at most, leaves them below the other.
_BROKEN = 1 << 62
_RANKS_MAX = 1 << 40

Nodes = NDArray[np.int64]


def chooses(strategy: Strategy, rules: Sequence[Rule], need: Need) -> bool:
    """Whether `extend` of this strategy is `choose` by these rules, and these count domains."""
    by_rules = type(strategy).extend is ByRules.extend
    alone = getattr(strategy, "places_by_choice", False)
    last = len(need.kept) + 1 >= need.replication_factor
    return (by_rules or (alone and last)) and all(isinstance(r, CountsDomains) for r in rules)


def choose_by_class(rules: Sequence[Rule], policy: Policy, need: Need, view: View) -> int | None:
    """The node that `choose` takes out of `candidates`; None where there is none, or where the
    fleet is small: `choose` has the reasons."""
    if view.topology.size < CLASSED_FROM:
        return None
    tags = frozenset(r.per.tag for r in rules if isinstance(r, CountsDomains) and r.per.tag)
    key = (policy.nodes, tags)
    if key not in view.fields:
        view.fields[key] = Field(view, policy, tags)
    field: Field = view.fields[key]
    return field.choose(rules, need)


class Field:
    """The nodes that a policy admits, by class, as they stand in one view."""

    def __init__(self, view: View, policy: Policy, tags: frozenset[str]) -> None:
        topology = view.topology
        self._view = view
        admits = True if policy.nodes.everything else policy.nodes.mask(topology)
        self._admitted = topology.eligible & admits
        self._classes = node_classes(topology, tags)
        self._shared = self._classes.topology(topology, self._admitted)
        self._open = self._admitted & view.has_room()
        self._idle = self._open & ~view.busy
        of, size = self._classes.of, self._classes.count
        self._open_in = np.bincount(of[self._open], minlength=size)
        self._idle_in = np.bincount(of[self._idle], minlength=size)
        self._tiers = topology.tiers()
        self._ranks: dict[Hashable, Nodes] = {}
        self._known: dict[Hashable, tuple[Nodes, int]] = {}
        self._rules: dict[int, Sequence[Rule]] = {}
        self._climbs: dict[int, Nodes] = {}

    def changed(self, node: int) -> None:
        """The node's load has changed, or what limits say of it."""
        view, its_class = self._view, self._classes.of[node]
        capacity = int(view.topology.capacity[node])
        room = capacity < 0 or int(view.load[node]) < capacity
        is_open = bool(self._admitted[node]) and room
        is_idle = is_open and not view.busy[node]
        self._open_in[its_class] += is_open - int(self._open[node])
        self._idle_in[its_class] += is_idle - int(self._idle[node])
        self._open[node], self._idle[node] = is_open, is_idle

    def choose(self, rules: Sequence[Rule], need: Need) -> int | None:
        """The best node by the rules, nearness and load."""
        taken = [*{*need.kept, *need.excluded}]
        found = np.flatnonzero(self._left(self._open_in, self._open, taken))
        ranks = self._ranked(rules, need)[found]
        least_rank = int(ranks.min(initial=_BROKEN))
        if least_rank >= _BROKEN:
            return None
        found = found[ranks == least_rank]
        usable = self._open
        if need.replaces != EMPTY:
            idle = found[self._left(self._idle_in, self._idle, taken)[found] > 0]
            if len(idle):
                found, usable = idle, self._idle
            near = self._near(found, int(self._classes.of[need.replaces]), usable, taken)
            if near is not None:
                nodes, tiers = near
                return settle(nodes, need, self._view, tiers)
        for scope in self._tiers:
            if len(found) > 1:
                sample = self._classes.sample[found]
                found = least(found, self._view.domain_pressure(scope, HALF, sample))
        return settle(self._nodes(found, usable, taken), need, self._view, ())

    def _ranked(self, rules: Sequence[Rule], need: Need) -> Nodes:
        """How well each class keeps the rules, the least is best. Rules that count domains ask for
        nothing but where the others stand, so that equals are asked about once."""
        kept = self._classes.of[need.kept]
        key = (id(rules), need.replication_factor, *sorted(kept.tolist()))
        if key not in self._ranks:
            standing = Standing(
                self._shared, need.replication_factor, kept.tolist(), shards=need.shards
            )
            ranks, worst = np.zeros(self._classes.count, np.int64), 1
            lawful = np.ones(self._classes.count, bool)
            for rule in rules:
                penalties, most = self._penalties(rule, standing)
                if rule.strength is Strength.REQUIRED:
                    lawful &= penalties == 0
                    continue
                # No wish outweighs one that comes before it.
                ranks, worst = ranks * most + penalties, worst * most
                if worst > _RANKS_MAX:
                    _, ranks = np.unique(ranks, return_inverse=True)
                    worst = len(ranks)
            self._ranks[key] = np.where(lawful, ranks, _BROKEN)
            self._rules[id(rules)] = rules  # so that no other rules get their identity
        return self._ranks[key]

    def _penalties(self, rule: Rule, standing: Standing) -> tuple[Nodes, int]:
        """What the rule says of each class, and one more than the most of it."""
        assert isinstance(rule, CountsDomains)
        held = self._shared.domain_of(rule.per)[standing.replicas]
        key = (rule, standing.replication_factor, *sorted(held.tolist()))
        if key not in self._known:
            penalties = rule.penalty(standing)
            self._known[key] = (penalties, int(penalties.max(initial=0)) + 1)
        return self._known[key]

    def _near(
        self, found: Nodes, old: int, usable: Mask, taken: list[int]
    ) -> tuple[Nodes, Sequence[Scope]] | None:
        """The nearest nodes of some classes among those near the mean, and the levels whose domains
        tell them apart; None where only the farthest are left."""
        if old not in self._climbs:
            self._climbs[old] = distance(self._shared, old)
        climbs = self._climbs[old][found]
        farthest = int(climbs.max())
        for level in range(int(climbs.min()), farthest):
            nodes = self._nodes(found[climbs == level], usable, taken)
            near: Nodes = nodes[~self._view.crowded(nodes)]
            if len(near):
                return near, self._tiers if level else ()
        return None

    def _left(self, counts: Nodes, usable: Mask, taken: list[int]) -> Nodes:
        """How many usable nodes each class has beside those that are taken."""
        left = counts.copy()
        for node in taken:
            left[self._classes.of[node]] -= usable[node]
        return left

    def _nodes(self, classes: Nodes, usable: Mask, taken: list[int]) -> Nodes:
        """The usable nodes of some classes that are not taken."""
        nodes = self._classes.nodes(classes.tolist())
        before = usable[taken]
        usable[taken] = False
        found: Nodes = nodes[usable[nodes]]
        usable[taken] = before
        return found
