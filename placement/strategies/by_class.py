"""`choose` where the fleet is large: rules are asked once for each class of nodes.

The answer is that of `choose`. What is kept between two answers is which nodes are open; the load
that counts is the view's.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY
from placement.node_classes import NodeClasses, node_classes
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


class Usable:
    """Nodes that may take a replica, by class: how many there are, and how many of them are near
    the mean."""

    def __init__(self, nodes: Mask, near: Mask, classes: NodeClasses) -> None:
        self.nodes, self._of = nodes, classes.of
        self.in_class = np.bincount(classes.of[nodes], minlength=classes.count)
        self.near_in_class = np.bincount(classes.of[nodes & near], minlength=classes.count)

    def put(self, node: int, usable: bool, near: bool, was_near: bool) -> bool:
        """The node may take a replica from now on, or may not; it is near the mean, or not. Says
        whether its class has become one with such nodes, or one without."""
        its_class, before = self._of[node], bool(self.nodes[node])
        had = self.in_class[its_class] > 0
        self.in_class[its_class] += usable - before
        self.near_in_class[its_class] += (usable and near) - (before and was_near)
        self.nodes[node] = usable
        return bool((self.in_class[its_class] > 0) != had)


@dataclass(frozen=True, slots=True, eq=False)
class Lawful:
    """Classes that keep the rules equally well, the best there are; by class of a node that is
    replaced those that are nearer than the farthest, with the levels between, nearest first."""

    classes: Nodes
    members: frozenset[int]
    nearer: dict[int, list[tuple[int, Nodes]]] = field(default_factory=dict)


class Field:
    """The nodes that a policy admits, by class, as they stand in one view."""

    def __init__(self, view: View, policy: Policy, tags: frozenset[str]) -> None:
        topology = view.topology
        self._view = view
        admits = True if policy.nodes.everything else policy.nodes.mask(topology)
        self._admitted = topology.eligible & admits
        self._classes = node_classes(topology, tags)
        self._shared = self._classes.topology(topology, self._admitted)
        self._near = ~view.crowded(np.arange(topology.size))
        room = self._admitted & view.has_room()
        self._open = Usable(room, self._near, self._classes)
        self._idle = Usable(room & ~view.busy, self._near, self._classes)
        self._tiers = topology.tiers()
        self._known: dict[Hashable, Nodes] = {}
        self._lawful: dict[Hashable, Lawful] = {}
        self._rules: dict[int, Sequence[Rule]] = {}
        self._climbs: dict[int, Nodes] = {}

    def changed(self, node: int) -> None:
        """The node's load has changed, or what limits say of it."""
        view = self._view
        capacity = int(view.topology.capacity[node])
        room = capacity < 0 or int(view.load[node]) < capacity
        self._put(node, bool(self._admitted[node]) and room)

    def _put(self, node: int, is_open: bool) -> None:
        view = self._view
        was_near, near = bool(self._near[node]), not view.crowded(node)
        if self._open.put(node, is_open, near, was_near):
            self._lawful.clear()
        self._idle.put(node, is_open and not view.busy[node], near, was_near)
        self._near[node] = near

    def choose(self, rules: Sequence[Rule], need: Need) -> int | None:
        """The best node by the rules, nearness and load."""
        taken = [node for node in {*need.kept, *need.excluded} if self._open.nodes[node]]
        found = self._best(rules, need)
        if not any(self._classes.of[node] in found.members for node in taken):
            return self._choose_from(found, need)
        for node in taken:
            self._put(node, False)
        chosen = self._choose_from(self._best(rules, need), need)
        for node in taken:
            self._put(node, True)
        return chosen

    def _choose_from(self, found: Lawful, need: Need) -> int | None:
        classes, usable = found.classes, self._open
        if not len(classes):
            return None
        if need.replaces != EMPTY:
            idle = classes[self._idle.in_class[classes] > 0]
            if len(idle):
                usable = self._idle
                found = found if len(idle) == len(classes) else Lawful(idle, frozenset())
            near = self._nearest(found, int(self._classes.of[need.replaces]), usable)
            if near is not None:
                nodes = self._least_loaded(*near)
                return settle(nodes[usable.nodes[nodes] & self._near[nodes]], need, self._view, ())
        nodes = self._least_loaded(found.classes, self._tiers)
        return settle(nodes[usable.nodes[nodes]], need, self._view, ())

    def _least_loaded(self, classes: Nodes, tiers: Sequence[Scope]) -> Nodes:
        """The nodes of the classes whose domains of these levels carry least."""
        for scope in tiers:
            if len(classes) == 1:
                break
            sample = self._classes.sample[classes]
            classes = least(classes, self._view.domain_pressure(scope, HALF, sample))
        return self._classes.nodes(classes.tolist())

    def _best(self, rules: Sequence[Rule], need: Need) -> Lawful:
        """The classes with open nodes that obey the required rules and keep the others best, none
        of which outweighs one before it."""
        kept = self._classes.of[need.kept]
        key = (id(rules), need.replication_factor, *sorted(kept.tolist()))
        if key not in self._lawful:
            self._rules[id(rules)] = rules  # so that no other rules get their identity
            found = self._narrowed(rules, kept, need)
            self._lawful[key] = Lawful(found, frozenset(found.tolist()))
        return self._lawful[key]

    def _narrowed(self, rules: Sequence[Rule], kept: Nodes, need: Need) -> Nodes:
        found = np.flatnonzero(self._open.in_class)
        for required in (True, False):
            for place, rule in enumerate(rules):
                if (rule.strength is Strength.REQUIRED) is required and len(found):
                    penalties = self._penalties(rules, place, kept, need)[found]
                    best = 0 if required else penalties.min()
                    found = found[penalties == best]
        return found

    def _penalties(self, rules: Sequence[Rule], place: int, kept: Nodes, need: Need) -> Nodes:
        """What one of the rules says of each class. It asks for nothing but where the others
        stand, so that equals are asked about once."""
        rule, factor = rules[place], need.replication_factor
        assert isinstance(rule, CountsDomains)
        held = self._shared.domain_of(rule.per)[kept].tolist()
        key = (id(rules), place, factor, *sorted(held))
        if key not in self._known:
            standing = Standing(self._shared, factor, kept.tolist(), shards=need.shards)
            self._known[key] = rule.penalty(standing)
        return self._known[key]

    def _nearest(
        self, found: Lawful, old: int, usable: Usable
    ) -> tuple[Nodes, Sequence[Scope]] | None:
        """The nearest of some classes that have a node near the mean, and the levels whose domains
        tell them apart; None where only the farthest are left."""
        if old not in found.nearer:
            found.nearer[old] = self._nearer(found.classes, old)
        for level, members in found.nearer[old]:
            classes: Nodes = members[usable.near_in_class[members] > 0]
            if len(classes):
                # Their domains at all the levels that lie as far up are the same.
                above = max(self._shared.locations[old].depth - level, 0)
                return classes, self._tiers[above:] if level else ()
        return None

    def _nearer(self, classes: Nodes, old: int) -> list[tuple[int, Nodes]]:
        if old not in self._climbs:
            self._climbs[old] = distance(self._shared, old)
        climbs = self._climbs[old][classes]
        levels = range(int(climbs.min()), int(climbs.max()))
        return [(level, classes[climbs == level]) for level in levels]
