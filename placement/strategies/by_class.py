"""`choose` where the fleet is large: rules are asked once for each class of nodes.

The answer is that of `choose`. What is kept between two answers is which nodes are open; the load
that counts is the view's.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

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
    by_lot,
    distance,
    least,
)
from placement.topology import NO_DOMAIN, Scope

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
        self.nodes = nodes
        self.in_class = np.bincount(classes.of[nodes], minlength=classes.count)
        self.near_in_class = np.bincount(classes.of[nodes & near], minlength=classes.count)

    def put(self, node: int, its_class: int, usable: bool, near: bool, was_near: bool) -> bool:
        """The node may take a replica from now on, or may not; it is near the mean, or not. Says
        whether its class has become one with such nodes, or one without."""
        before, had = bool(self.nodes[node]), self.in_class[its_class] > 0
        self.in_class[its_class] += usable - before
        self.near_in_class[its_class] += (usable and near) - (before and was_near)
        self.nodes[node] = usable
        return bool((self.in_class[its_class] > 0) != had)


@dataclass(frozen=True, slots=True, eq=False)
class Lawful:
    """Classes that keep the rules equally well, the best there are, as indexes and as a mask. By
    class of a node that is replaced how far the farthest of them is; by place of a rule the domains
    that they stand in."""

    classes: Nodes
    mask: Mask
    farthest: dict[int, int] = field(default_factory=dict)
    domains: dict[int, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A rule, its place among the rules, and its domain of every class."""

    rule: Any
    place: int
    domains: list[int]

    def matters(self, found: Lawful, kept: Sequence[int]) -> bool:
        """Whether the rule may tell some of the classes from the others, replicas standing in the
        classes `kept`. It does not where it holds domains alike and all of them are empty."""
        rule = self.rule
        if rule.strength is Strength.REQUIRED or not rule.alike:
            return True
        if self.place not in found.domains:
            held = map(self.domains.__getitem__, found.classes.tolist())
            found.domains[self.place] = frozenset(held)
        theirs = found.domains[self.place]
        return NO_DOMAIN in theirs or any(self.domains[each] in theirs for each in kept)


@dataclass(slots=True)
class Front:
    """The least loaded nodes of a class that may take a replica, and their load per weight."""

    pressure: float
    nodes: list[int]

    def stays(self, node: int, pressure: float) -> bool:
        """Whether this is still so, as far as can be told, with that load per weight of a node."""
        if pressure <= self.pressure:
            return False
        if node in self.nodes:
            self.nodes.remove(node)
        return bool(self.nodes)


class Field:
    """The nodes that a policy admits, by class, as they stand in one view."""

    def __init__(self, view: View, policy: Policy, tags: frozenset[str]) -> None:
        topology = view.topology
        self._view = view
        admits = True if policy.nodes.everything else policy.nodes.mask(topology)
        self._admitted = topology.eligible & admits
        self._classes = node_classes(topology, tags)
        self._class_of: list[int] = self._classes.of.tolist()
        self._shared = self._classes.topology(topology, self._admitted)
        self._near = ~view.crowded(np.arange(topology.size))
        room = self._admitted & view.has_room()
        self._open = Usable(room, self._near, self._classes)
        self._idle = Usable(room & ~view.busy, self._near, self._classes)
        self._tiers = topology.tiers()
        self._rules: dict[int, tuple[Sequence[Rule], list[Asked]]] = {}
        self._narrowed: dict[Hashable, Lawful] = {}
        self._lawful: dict[Hashable, Lawful] = {}
        self._idlest: dict[Lawful, tuple[Lawful, Usable]] = {}
        self._climbs: dict[int, tuple[Nodes, list[Nodes]]] = {}
        # By class, by whether they are idle, and by whether they are near the mean.
        self._fronts: dict[int, dict[tuple[bool, bool], Front]] = {}

    def changed(self, node: int) -> None:
        """The node's load has changed, or what limits say of it."""
        view = self._view
        if self._admitted[node]:
            capacity = int(view.topology.capacity[node])
            self._put(node, capacity < 0 or int(view.load[node]) < capacity)

    def _put(self, node: int, is_open: bool) -> None:
        view, its_class = self._view, self._class_of[node]
        was_near, near = bool(self._near[node]), not view.crowded(node)
        is_idle, open_nodes, idle_nodes = is_open and not view.busy[node], self._open, self._idle
        was = (open_nodes.nodes[node], idle_nodes.nodes[node], was_near)
        if was == (is_open, is_idle, near):
            self._load_changed(node, its_class)
            return
        self._fronts.pop(its_class, None)
        if open_nodes.put(node, its_class, is_open, near, was_near):
            self._narrowed.clear()
            self._lawful.clear()
            self._idlest.clear()
        if idle_nodes.put(node, its_class, is_idle, near, was_near):
            self._idlest.clear()
        self._near[node] = near

    def _load_changed(self, node: int, its_class: int) -> None:
        fronts = self._fronts.get(its_class)
        if fronts:
            pressure = float(self._view.pressure(node))
            for kind in [kind for kind, front in fronts.items() if not front.stays(node, pressure)]:
                del fronts[kind]

    def choose(self, rules: Sequence[Rule], need: Need) -> int | None:
        """The best node by the rules, nearness and load."""
        found = self._best(rules, need)
        mask, of, is_open = found.mask, self._class_of, self._open.nodes
        if not any(mask[of[node]] and is_open[node] for node in (*need.kept, *need.excluded)):
            return self._choose_from(found, need)
        taken = [node for node in {*need.kept, *need.excluded} if is_open[node]]
        for node in taken:
            self._put(node, False)
        chosen = self._choose_from(self._best(rules, need), need)
        for node in taken:
            self._put(node, True)
        return chosen

    def _choose_from(self, found: Lawful, need: Need) -> int | None:
        if not len(found.classes):
            return None
        usable, near = self._open, None
        if need.replaces != EMPTY:
            found, usable = self._idle_of(found)
            near = self._nearest(found, self._class_of[need.replaces], usable)
        classes, tiers = (found.classes, self._tiers) if near is None else near
        for scope in tiers:
            if len(classes) == 1:
                break
            sample = self._classes.sample[classes]
            classes = least(classes, self._view.domain_pressure(scope, HALF, sample))
        fronts = [self._front(each, usable, near is not None) for each in classes.tolist()]
        pressure = min(front.pressure for front in fronts)
        nodes = [node for front in fronts if front.pressure == pressure for node in front.nodes]
        return nodes[0 if len(nodes) == 1 else by_lot(nodes, need, self._view.topology)]

    def _idle_of(self, found: Lawful) -> tuple[Lawful, Usable]:
        """The classes that have an idle node; all of them with whatever is open, where none has."""
        if found not in self._idlest:
            idle = found.classes[self._idle.in_class[found.classes] > 0]
            known = found, self._idle if len(idle) else self._open
            if 0 < len(idle) < len(found.classes):
                known = self._lawful_of(idle), self._idle
            self._idlest[found] = known
        return self._idlest[found]

    def _front(self, its_class: int, usable: Usable, near: bool) -> Front:
        """The least loaded nodes of a class that has usable ones, near the mean if asked for."""
        kind, fronts = (usable is self._idle, near), self._fronts.setdefault(its_class, {})
        if kind not in fronts:
            nodes = self._classes.nodes(its_class)
            wanted = usable.nodes[nodes]
            nodes = nodes[wanted & self._near[nodes] if near else wanted]
            pressure = self._view.pressure(nodes)
            fronts[kind] = Front(float(pressure.min()), least(nodes, pressure).tolist())
        return fronts[kind]

    def _best(self, rules: Sequence[Rule], need: Need) -> Lawful:
        """The classes with open nodes that obey the required rules and keep the others best, none
        of which outweighs one before it."""
        kept = sorted([self._class_of[node] for node in need.kept])
        key = (id(rules), need.replication_factor, *kept)
        if key not in self._lawful:
            self._lawful[key] = self._narrow(rules, kept, need)
        return self._lawful[key]

    def _narrow(self, rules: Sequence[Rule], kept: list[int], need: Need) -> Lawful:
        """The classes that are left by rule after rule. A rule asks for nothing but where the
        others stand, so that equals are asked about once."""
        known: Hashable = (id(rules), need.replication_factor)
        found = self._narrowed.get(known)
        if found is None:
            found = self._lawful_of(np.flatnonzero(self._open.in_class))
            self._narrowed[known] = found
        for asked in self._asked(rules):
            if not asked.matters(found, kept):
                continue
            known = (known, asked.place, *sorted([asked.domains[each] for each in kept]))
            left = self._narrowed.get(known)
            if left is None:
                penalties = asked.rule.penalty(
                    Standing(self._shared, need.replication_factor, kept, shards=need.shards)
                )[found.classes]
                required = asked.rule.strength is Strength.REQUIRED or not len(penalties)
                best = 0 if required else penalties.min()
                left = self._lawful_of(found.classes[penalties == best])
                self._narrowed[known] = left
            found = left
        return found

    def _lawful_of(self, classes: Nodes) -> Lawful:
        mask = np.zeros(self._classes.count, bool)
        mask[classes] = True
        return Lawful(classes, mask)

    def _asked(self, rules: Sequence[Rule]) -> list[Asked]:
        """The rules in the order in which they are asked: required ones first."""
        if id(rules) not in self._rules:
            required = Strength.REQUIRED
            ordered = sorted(enumerate(rules), key=lambda each: each[1].strength is not required)
            asked = [
                Asked(rule, place, self._shared.domain_of(rule.per).tolist())
                for place, rule in ordered
                if isinstance(rule, CountsDomains)
            ]
            # With the rules, so that no other ones get their identity.
            self._rules[id(rules)] = (rules, asked)
        return self._rules[id(rules)][1]

    def _nearest(
        self, found: Lawful, old: int, usable: Usable
    ) -> tuple[Nodes, Sequence[Scope]] | None:
        """The nearest of some classes that have a node near the mean, and the levels whose domains
        tell them apart; None where only the farthest are left."""
        if old not in self._climbs:
            climbs = distance(self._shared, old)
            levels = [np.flatnonzero(climbs == level) for level in range(int(climbs.max()))]
            self._climbs[old] = climbs, levels
        climbs, levels = self._climbs[old]
        if old not in found.farthest:
            found.farthest[old] = int(climbs[found.classes].max())
        for level, members in enumerate(levels[: found.farthest[old]]):
            classes: Nodes = members[found.mask[members] & (usable.near_in_class[members] > 0)]
            if len(classes):
                # Their domains at all the levels that lie as far up are the same.
                above = max(self._shared.locations[old].depth - level, 0)
                return classes, self._tiers[above:] if level else ()
        return None
