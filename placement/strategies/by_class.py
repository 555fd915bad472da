"""`choose` where the fleet is large: rules are asked once for each class of nodes.

The answer is that of `choose`. What is kept between two answers is which nodes are open; the load
that counts is the view's.
"""

from collections.abc import Sequence

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
        view, of, sample = self._view, self._classes.of, self._classes.sample
        taken = np.array([*{*need.kept, *need.excluded}], np.int64)
        found = np.flatnonzero(self._left(self._open_in, self._open, taken))
        found = self._lawful(found, rules, need)
        usable = self._open
        if need.replaces != EMPTY and len(found):
            idle = found[self._left(self._idle_in, self._idle, taken)[found] > 0]
            if len(idle):
                found, usable = idle, self._idle
            climbs = distance(self._shared, int(of[need.replaces]))[found]
            for level in np.unique(climbs)[:-1].tolist():
                nodes = self._nodes(found[climbs == level], usable, taken)
                near = nodes[~view.crowded(nodes)]
                if len(near):
                    return settle(near, need, view, [])
        for scope in view.topology.tiers():
            if len(found) > 1:
                found = least(found, view.domain_pressure(scope, HALF, sample[found]))
        return settle(self._nodes(found, usable, taken), need, view, []) if len(found) else None

    def _lawful(self, found: Nodes, rules: Sequence[Rule], need: Need) -> Nodes:
        """The classes that keep the required rules and, of these, the preferred ones best."""
        kept = self._classes.of[np.asarray(need.kept, np.int64)].tolist()
        standing = Standing(
            self._shared,
            need.replication_factor,
            kept,
            shards=need.shards,
            slots=need.slots,
            slot=need.slot,
        )
        for rule in rules:
            if rule.strength is Strength.REQUIRED and len(found):
                found = found[rule.penalty(standing)[found] == 0]
        for rule in rules:
            if rule.strength is Strength.PREFERRED and len(found) > 1:
                found = least(found, rule.penalty(standing)[found])
        return found

    def _left(self, counts: Nodes, usable: Mask, taken: Nodes) -> Nodes:
        """How many usable nodes each class has beside those that are taken."""
        gone = taken[usable[taken]]
        if not len(gone):
            return counts
        left = counts.copy()
        np.subtract.at(left, self._classes.of[gone], 1)
        return left

    def _nodes(self, classes: Nodes, usable: Mask, taken: Nodes) -> Nodes:
        """The usable nodes of some classes that are not taken."""
        nodes = self._classes.nodes(classes.tolist())
        nodes = nodes[usable[nodes]]
        return nodes[~np.isin(nodes, taken)]
