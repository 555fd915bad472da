"""Answers `choose` for a large fleet: rules are asked once for each class of nodes.

A class holds the nodes in one place with equal tags, which rules that count domains cannot tell
apart. A fleet of ten thousand nodes has a few hundred classes, so that the time of an answer does
not depend on the number of nodes; the answer is that of `choose`. Between two answers only the set
of open nodes is kept; loads are the view's.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.allocator.choose import break_tie, distance, keep_fewest_leaders, keep_least
from placement.allocator.domain_loads import HALF, DomainLoads
from placement.allocator.strategy import ByRules, Strategy
from placement.allocator.view import ReplicaRequest, View
from placement.assignments import EMPTY
from placement.policy import Policy
from placement.rules import Mask, Rule, RuleContext, RuleSet, Strength
from placement.topology import LEAF, NO_DOMAIN, Scope, Topology, classify_nodes


@dataclass(frozen=True, slots=True, eq=False)
class NodeClasses:
    """Classes of equal nodes.

    `of` is the class of each node, `of_node` the same as a list; `sample` is one node of each
    class, `sampled` the fleet of these; the nodes of class c are `members[begin[c] : begin[c +
    1]]`.
    """

    of: NDArray[np.int64]
    sample: NDArray[np.int64]
    members: NDArray[np.int64]
    begin: NDArray[np.int64]
    of_node: list[int]
    sampled: Topology

    @property
    def count(self) -> int:
        """Number of classes."""
        return len(self.sample)

    def nodes(self, its_class: int) -> NDArray[np.int64]:
        """List the nodes of a class."""
        return self.members[self.begin[its_class] : self.begin[its_class + 1]]

    def count_kinds(self, kinds: NDArray[np.int64], most: int) -> NDArray[np.int64]:
        """Count the nodes of each kind up to `most` in each class, one row per class."""
        size = most + 1
        found = np.bincount(self.of * size + kinds, minlength=self.count * size)
        return found.reshape(self.count, size)

    def topology(self, usable: NDArray[np.bool_]) -> Topology:
        """Build the fleet of one node per class, eligible if one of the class is `usable`."""
        return self.sampled.with_eligible(np.bincount(self.of[usable], minlength=self.count) > 0)


def node_classes(topology: Topology, tags: frozenset[str]) -> NodeClasses:
    """Group the nodes by whole path and by the values of `tags`.

    Cached in the topology while no node's attributes change.
    """
    return topology.derive(("classes", tags), lambda: _find_classes(topology, tags))


def _find_classes(topology: Topology, tags: frozenset[str]) -> NodeClasses:
    scopes = [LEAF, *(Scope(tag=tag) for tag in sorted(tags))]
    of = classify_nodes(topology, scopes)
    sample = np.unique(of, return_index=True)[1]
    begin = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=len(sample)))])
    members, sampled = np.argsort(of, kind="stable"), topology.sample(sample)
    return NodeClasses(of, sample, members, begin, of.tolist(), sampled)


# Nodes from which asking about classes costs less than asking about all.
CLASSED_FROM = 64

Nodes = NDArray[np.int64]

# So many classes numpy compares in less time than Python does one by one, which takes its own kind
# of number.
_MANY, _HALF = 16, float(HALF)
# Fewer nodes a list loses one of in less time than an array.
_LISTED = 64

# What a node may be: with room for a replica, not kept from it by limits either, and near the mean.
_OPEN, _IDLE, _NEAR = 1, 2, 4
_ALL = _OPEN | _IDLE | _NEAR
_KINDS = (_OPEN, _OPEN | _NEAR, _IDLE, _IDLE | _NEAR)


def can_choose_by_class(strategy: Strategy, need: ReplicaRequest) -> bool:
    """Return whether `choose_by_class` may replace the strategy's own `extend` for this request."""
    by_rules = type(strategy).extend is ByRules.extend
    last = len(need.kept) + 1 >= need.replication_factor
    return by_rules or (last and strategy.places_by_choice)


def choose_by_class(
    rules: Sequence[Rule], policy: Policy, need: ReplicaRequest, view: View
) -> int | None:
    """Choose the node that `choose` would take out of `candidates`, asking rules once per class.

    None if there is no such node (`choose` has the reasons), if the fleet is small, if a rule
    depends on more than domains, or if resources are counted: shards are not alike then.
    """
    if view.topology.size < CLASSED_FROM or view.loads is not None:
        return None
    if view.class_indexes is None:
        view.class_indexes = ClassIndexes(view)
    index, class_rules = view.class_indexes.rules_for(rules, policy)
    return None if index is None else index.choose(class_rules, need)


@dataclass(frozen=True, slots=True, eq=False)
class AllowedClasses:
    """Classes that keep the rules equally well, the best there are, as indexes and as a mask.

    What follows from them is kept with them: by rule the domains that they stand in, by rule and
    the domains of the other replicas those that it leaves of them, and by class of a node that is
    replaced and the levels to climb from there those that are so far away.
    """

    classes: Nodes
    mask: Mask
    domains: dict["ClassRule", frozenset[int]] = field(default_factory=dict)
    left: dict[Hashable, "AllowedClasses"] = field(default_factory=dict)
    away: dict[tuple[int, int], list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class ClassRule:
    """A rule and the domain of every class.

    `interchangeable`: the rule treats domains alike that hold equally many replicas.
    """

    rule: Any
    domains: list[int]
    interchangeable: bool

    def may_matter(self, found: AllowedClasses, used: Sequence[int]) -> bool:
        """Return whether the rule may prefer some classes, if replicas already lie in the domains
        `used`.

        It cannot if it treats empty domains alike and all domains of the classes are empty.
        """
        if not self.interchangeable:
            return True
        theirs = found.domains.get(self)
        if theirs is None:
            theirs = frozenset(map(self.domains.__getitem__, found.classes.tolist()))
            found.domains[self] = theirs
        return NO_DOMAIN in theirs or not theirs.isdisjoint(used)


class LevelLoads:
    """The domain of each class at one level, and the loads of these domains."""

    def __init__(self, view: View, scope: Scope, domains: NDArray[np.int32]) -> None:
        self._view, self._scope, self._domains = view, scope, domains
        self._domain_of = domains.tolist()

    @cached_property
    def _level(self) -> DomainLoads:
        return self._view.level(self._scope)

    def keep_least(self, classes: Sequence[int]) -> Sequence[int]:
        """Keep the classes whose domains have the least load per weight."""
        if len(classes) >= _MANY:
            found = np.asarray(classes)
            loads = self._level.pressure(self._domains[found], HALF)
            least: list[int] = keep_least(found, loads).tolist()
            return least
        pressure = self._level.pressures(map(self._domain_of.__getitem__, classes), _HALF)
        lowest = min(pressure)
        return [each for each, its in zip(classes, pressure, strict=True) if its == lowest]


@dataclass(slots=True)
class LeastLoaded:
    """The least loaded nodes of a class that may take a replica, and their load per weight."""

    pressure: float
    nodes: list[int] | Nodes

    @classmethod
    def of(cls, nodes: Nodes, pressure: NDArray[np.float64]) -> "LeastLoaded":
        """Find the least loaded of some nodes, given the load per weight of each."""
        least = pressure[pressure.argmin()]
        found = nodes[pressure == least]
        return cls(float(least), found.tolist() if len(found) < _LISTED else found)

    def update(self, node: int, pressure: float) -> bool:
        """Take account of a node's new load per weight; False if the group has to be found anew."""
        return pressure > self.pressure and self.remove(node)

    def remove(self, node: int) -> bool:
        """Take a node out; False if the group has to be found anew."""
        if isinstance(self.nodes, list):
            if node in self.nodes:
                self.nodes.remove(node)
        else:
            self.nodes = self.nodes[self.nodes != node]
        return len(self.nodes) > 0


# Classes out of which the least loaded is taken, the levels that tell them apart, and what a node
# of theirs has to be.
_Nearest = tuple[Sequence[int], Sequence[LevelLoads], int]


class ClassIndexes:
    """Indexes of one view's nodes by class.

    Policies that admit the same nodes share it, if their rules count by the same tags.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._indexes: dict[Hashable, ClassIndex] = {}
        # With rules and policy themselves, so that no other ones get their identity.
        self._known: dict[
            tuple[int, int], tuple[object, ClassIndex | None, Sequence[ClassRule]]
        ] = {}

    def update(self, node: int) -> None:
        """Take account of a node whose load, or whose limits on receiving, have changed."""
        for each in self._indexes.values():
            each.update(node)

    def rules_for(
        self, rules: Sequence[Rule], policy: Policy
    ) -> tuple["ClassIndex | None", Sequence[ClassRule]]:
        """Find the index of the nodes that a policy admits, and its rules, required ones first.

        None where a rule depends on more than domains.
        """
        key = (id(rules), id(policy))
        if key not in self._known:
            found = self._index(rules, policy)
            class_rules = () if found is None else found.rules_of(rules)
            self._known[key] = ((rules, policy), found, class_rules)
        return self._known[key][1:]

    def _index(self, rules: Sequence[Rule], policy: Policy) -> "ClassIndex | None":
        if not RuleSet(rules).counts_domains:
            return None
        tags = frozenset(rule.scope.tag for rule in rules if rule.scope and rule.scope.tag)
        key = (policy.nodes, tags)
        if key not in self._indexes:
            self._indexes[key] = ClassIndex(self._view, policy, tags)
        return self._indexes[key]


class ClassIndex:
    """The nodes that a policy admits, by class, with their present loads in one view."""

    def __init__(self, view: View, policy: Policy, tags: frozenset[str]) -> None:
        topology = view.topology
        self._view = view
        admits = True if policy.nodes.everything else policy.nodes.mask(topology)
        self._admitted = topology.eligible & admits
        self._capacity = topology.capacity
        self._classes = classes = node_classes(topology, tags)
        self._class_of = classes.of_node
        self._shared = classes.topology(self._admitted)
        is_open = self._admitted & view.has_room()
        self._kinds = _OPEN * is_open | _IDLE * (is_open & ~view.busy)
        # Which nodes are near the mean only a replica asks that replaces another.
        self._tells_near = False
        # The same once more, for one node at a time.
        self._kind_of = self._kinds.data
        self._counts = self._count_kinds()
        scopes = topology.tiers()
        self._tiers: Sequence[LevelLoads] = [
            LevelLoads(view, scope, self._shared.domain_of(scope)) for scope in scopes
        ]
        # All classes with open nodes, from where rule after rule leads on.
        self._all: AllowedClasses | None = None
        self._idlest: dict[AllowedClasses, tuple[AllowedClasses, int]] = {}
        # Where a replica of one class goes, while no node becomes another kind.
        self._nearest: dict[tuple[AllowedClasses, int], _Nearest] = {}
        self._levels: dict[int, list[Nodes]] = {}
        # By class and by what its nodes have to be.
        self._least_loaded_of: dict[int, dict[int, LeastLoaded]] = {}

    def _count_kinds(self) -> dict[int, list[int]]:
        """Count the nodes of each class that have all the properties of each kind."""
        counts, kinds = self._classes.count_kinds(self._kinds, _ALL), np.arange(_ALL + 1)
        return {kind: counts[:, self._match(kind, kinds)].sum(axis=1).tolist() for kind in _KINDS}

    def _tell_near(self) -> None:
        """Tell from now on which nodes are near the mean."""
        self._tells_near = True
        self._kinds |= _NEAR * ~self._view.is_crowded(np.arange(len(self._kinds)))
        self._counts = self._count_kinds()

    def rules_of(self, rules: Sequence[Rule]) -> Sequence[ClassRule]:
        """List the rules that count domains, required ones first."""
        required, domain_of = Strength.REQUIRED, self._shared.domain_of
        ordered = sorted(rules, key=lambda rule: rule.strength is not required)
        return [
            ClassRule(
                rule,
                domain_of(rule.scope).tolist(),
                rule.domains_interchangeable and rule.strength is not required,
            )
            for rule in ordered
            if rule.scope is not None
        ]

    def update(self, node: int) -> None:
        """Take account of a node whose load, or whose limits on receiving, have changed."""
        if self._admitted.item(node):
            capacity = self._capacity.item(node)
            self._set_open(node, capacity < 0 or self._view.load.item(node) < capacity)

    def _set_open(self, node: int, is_open: bool) -> None:
        view, its_class, before = self._view, self._class_of[node], self._kind_of[node]
        kind = _NEAR if self._tells_near and not view.is_crowded(node) else 0
        if is_open:
            kind |= _OPEN if view.busy[node] else _OPEN | _IDLE
        if kind != before:
            self._kind_of[node] = kind
            self._recount(its_class, before, kind)
        groups = self._least_loaded_of.get(its_class)
        if groups:
            self._regroup(groups, node, before, kind)

    def _recount(self, its_class: int, before: int, now: int) -> None:
        """Count a node of the class that has become another kind."""
        for kind, counts in self._counts.items():
            had = counts[its_class]
            has = counts[its_class] = had + self._match(kind, now) - self._match(kind, before)
            if bool(had) != bool(has):
                self._nearest.clear()
                if kind in (_OPEN, _IDLE):
                    self._all = None if kind == _OPEN else self._all
                    self._idlest.clear()

    def _regroup(self, groups: dict[int, LeastLoaded], node: int, before: int, now: int) -> None:
        """Take account of a node whose load or kind has changed in the groups of its class."""
        pressure = float(self._view.pressure(node))
        for kind, group in [*groups.items()]:
            was, may = self._match(kind, before), self._match(kind, now)
            if was and may:
                left = group.update(node, pressure)
            else:
                left = not may and (not was or group.remove(node))
            if not left:
                del groups[kind]

    @staticmethod
    def _match(kind: int, kinds: Any) -> Any:
        """Return whether `kinds` (one or an array) have all the properties of `kind`."""
        return (kinds & kind) == kind

    def choose(self, class_rules: Sequence[ClassRule], need: ReplicaRequest) -> int | None:
        """Choose the best node by the rules, nearness and load; None if there is none."""
        if need.replaces != EMPTY and not self._tells_near:
            self._tell_near()
        found = self._find_best(class_rules, need)
        of, kind_of = self._class_of, self._kind_of
        taken = [node for node in {*need.kept, *need.excluded} if kind_of[node] & _OPEN]
        if not any(found.mask[of[node]] for node in taken):
            return self._choose_from(found, need)
        for node in taken:
            self._set_open(node, False)
        chosen = self._choose_from(self._find_best(class_rules, need), need)
        for node in taken:
            self._set_open(node, True)
        return chosen

    def _choose_from(self, found: AllowedClasses, need: ReplicaRequest) -> int | None:
        if not len(found.classes):
            return None
        if need.replaces == EMPTY:
            classes, tiers, kind = found.classes.tolist(), self._tiers, _OPEN
        else:
            classes, tiers, kind = self._find_near(found, self._class_of[need.replaces])
        for tier in tiers:
            if len(classes) == 1:
                break
            classes = tier.keep_least(classes)
        groups = [self._find_least_loaded(each, kind) for each in classes]
        pressure = min([group.pressure for group in groups])
        least = [group.nodes for group in groups if group.pressure == pressure]
        nodes = least[0] if len(least) == 1 else np.concatenate(least)
        if need.leads and len(nodes) > 1:
            nodes = keep_fewest_leaders(np.asarray(nodes), self._view)
        at = 0 if len(nodes) == 1 else break_tie(nodes, need, self._view.topology)
        return int(nodes[at])

    def _find_near(self, found: AllowedClasses, old: int) -> _Nearest:
        """Find the classes for a replica that replaces one in class `old`, see `_Nearest`."""
        known = self._nearest.get((found, old))
        if known is None:
            left, kind = self._keep_idle(found)
            near = self._find_nearest(left, old, kind | _NEAR)
            known = (left.classes.tolist(), self._tiers, kind) if near is None else near
            self._nearest[found, old] = known
        return known

    def _keep_idle(self, found: AllowedClasses) -> tuple[AllowedClasses, int]:
        """Keep the classes with an idle node; all, with their open nodes, if none has one."""
        if found not in self._idlest:
            idle = found.classes[np.asarray(self._counts[_IDLE])[found.classes] > 0]
            known = found, _IDLE if len(idle) else _OPEN
            if 0 < len(idle) < len(found.classes):
                known = self._allowed_of(idle), _IDLE
            self._idlest[found] = known
        return self._idlest[found]

    def _find_least_loaded(self, its_class: int, kind: int) -> LeastLoaded:
        """Find the least loaded nodes of this kind in a class that has some."""
        groups = self._least_loaded_of.setdefault(its_class, {})
        if kind not in groups:
            nodes = self._classes.nodes(its_class)
            nodes = nodes[self._match(kind, self._kinds[nodes])]
            groups[kind] = LeastLoaded.of(nodes, self._view.pressure(nodes))
        return groups[kind]

    def _find_best(self, class_rules: Sequence[ClassRule], need: ReplicaRequest) -> AllowedClasses:
        """Find the classes with open nodes that keep the required rules and meet the others best.

        Rules apply one after the other, in their order. A rule depends on the domains of the
        other replicas only, so that an answer is kept for equal domains.
        """
        if self._all is None:
            self._all = self._allowed_of(np.flatnonzero(self._counts[_OPEN]))
        found, of = self._all, self._class_of
        kept = [of[node] for node in need.kept]
        for each in class_rules:
            used = [each.domains[its_class] for its_class in kept]
            if each.may_matter(found, used):
                key = (each, need.replication_factor, *sorted(used))
                left = found.left.get(key)
                if left is None:
                    left = found.left[key] = self._apply_rule(each.rule, found, kept, need)
                found = left
        return found

    def _apply_rule(
        self, rule: Any, found: AllowedClasses, kept: list[int], need: ReplicaRequest
    ) -> AllowedClasses:
        """Keep the classes that obey a required rule, or that meet a preferred one best."""
        standing = RuleContext(self._shared, need.replication_factor, kept, shards=need.shards)
        penalties = rule.penalty(standing)[found.classes]
        required = rule.strength is Strength.REQUIRED or not len(penalties)
        best = 0 if required else penalties.min()
        return self._allowed_of(found.classes[penalties == best])

    def _allowed_of(self, classes: Nodes) -> AllowedClasses:
        mask = np.zeros(self._classes.count, bool)
        mask[classes] = True
        return AllowedClasses(classes, mask)

    def _find_nearest(self, found: AllowedClasses, old: int, kind: int) -> _Nearest | None:
        """Find the nearest of some classes that have a node of this kind; None if only the
        farthest are left."""
        if old not in self._levels:
            climbs = distance(self._shared, old)
            levels = range(int(climbs.max()))
            self._levels[old] = [np.flatnonzero(climbs == level) for level in levels]
        farther, counts = len(found.classes), self._counts[kind]
        for level, members in enumerate(self._levels[old]):
            away = found.away.get((old, level))
            if away is None:
                away = found.away[old, level] = members[found.mask[members]].tolist()
            farther -= len(away)
            if not farther:
                break
            classes = [each for each in away if counts[each]]
            if classes:
                # Their domains at all the levels that lie as far up are the same.
                above = max(self._shared.locations[old].depth - level, 0)
                return classes, self._tiers[above:] if level else (), kind
        return None
