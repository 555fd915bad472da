"""Places many shards of `spread` at once, over arrays.

Serves streams whose own rules, if any, only limit the replicas of a shard in a domain or name tags
that a node must carry. The number of replicas of each domain and node is computed first
(`placement.allocator.apportion`), then dealt out shard by shard down the tree of domains
(`placement.allocator.kernels`).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from placement.allocator import (
    DomainTree,
    Integers,
    View,
    apportion,
    candidates,
    domain_tree,
    kernels,
)
from placement.hashing import digest64, scores
from placement.model import StreamSpec
from placement.policy import Policy
from placement.rules import (
    AtMost,
    Even,
    Rule,
    RuleContext,
    Strength,
)
from placement.topology import Scope, Topology

# Shards from which one walk over the tree costs less than asking for every replica.
BULK_FROM = 128


def can_spread_in_bulk(rules: Sequence[Rule], topology: Topology) -> bool:
    """Return whether the bulk walk can keep all of these rules.

    That is so for required rules on the levels of the tree, or on what a node carries. The result
    is checked nevertheless.
    """
    return all(
        rule.strength is Strength.REQUIRED
        and (
            rule.filters_nodes
            or (isinstance(rule, AtMost | Even) and _tier(rule.per, topology) is not None)
        )
        for rule in rules
    )


def _tier(scope: Scope, topology: Topology) -> int | None:
    """Find the level of the tree whose domains are those of the scope."""
    domains = topology.domain_of(scope)
    same = (np.array_equal(domains, topology.domain_of(tier)) for tier in topology.tiers())
    return next((tier for tier, equal in enumerate(same) if equal), None)


def spread_in_bulk(
    spec: StreamSpec, policy: Policy, rules: Sequence[Rule], view: View
) -> list[list[int]] | None:
    """Place all shards at once; returns the nodes of every slot, leader first, counted in `view`.

    None if some slot finds no node. `rules` are those of `spread`: nodes without a location that
    come last get the replicas for which the others are too few.
    """
    topology, shards, factor = view.topology, spec.shards, spec.replication_factor
    everywhere = RuleContext(topology, policy.copies(factor), (), nodes=policy.nodes)
    left = np.where(candidates(policy, view), view.room(), 0)
    for rule in rules:
        if rule.strength is Strength.REQUIRED:
            left[rule.penalty(everywhere) > 0] = 0
    used, nodes = np.zeros(topology.size, bool), np.zeros((shards, 0), np.int64)
    for part in _split_by_preference(rules, everywhere):
        walk = _Walk(domain_tree(topology, part), spec, policy, rules, everywhere, left)
        copies = min(walk.copies_max, factor - nodes.shape[1])
        found = walk.deal(copies, view) if copies else nodes[:, :0]
        if found is None:
            return None
        used |= part if copies else False
        nodes = np.concatenate([nodes, found], axis=1)
        if nodes.shape[1] == factor:
            break
    if nodes.shape[1] < factor:
        return None
    view.add_all(nodes.ravel())
    tree = domain_tree(topology, used)
    place_of = np.zeros(topology.size, np.int64)
    place_of[tree.leaves] = np.arange(len(tree.leaves))
    weights = _weights(tree, policy, topology.can_lead, topology)
    places, looked_at = place_of[nodes.ravel()], shards * factor * tree.looked_at
    rows = _put_leaders_first(tree, weights, places, spec, view, looked_at)
    listed: list[list[int]] = tree.leaves[rows].tolist()
    return listed


def _split_by_preference(rules: Sequence[Rule], everywhere: RuleContext) -> list[NDArray[np.bool_]]:
    """Split the usable nodes into located ones and those that come last."""
    eligible = everywhere.topology.eligible
    for rule in rules:
        if rule.prefers_located:
            last = rule.penalty(everywhere) > 0
            return [eligible & ~last, eligible & last]
    return [eligible]


class _Walk:
    """The walk over a tree of nodes, of which `left` says how many replicas each may take."""

    def __init__(
        self,
        tree: DomainTree,
        spec: StreamSpec,
        policy: Policy,
        rules: Sequence[Rule],
        everywhere: RuleContext,
        left: Integers,
    ) -> None:
        self._tree, self._spec = tree, spec
        self._caps = _caps(tree, rules, everywhere)
        # As rebalancing shares: by the weight of all that the policy admits, full or not.
        topology = everywhere.topology
        self._weights = _weights(tree, policy, np.ones(topology.size, bool), topology)
        self._room = _sum_whole(tree, left)
        self._size = _copies_max(tree, left > 0, self._caps)

    @property
    def copies_max(self) -> int:
        """Count the copies of one shard that these nodes can hold."""
        return int(self._size[0])

    def deal(self, copies: int, view: View) -> Integers | None:
        """Deal nodes to every shard, a row each; None if some replica finds no node."""
        tree, spec, room, size = self._tree, self._spec, self._room, self._size
        amount = spec.shards * copies
        # All kernels run in the form that suits the largest work, which is dealing out.
        looked_at = amount * tree.looked_at
        load, bounds = _sum_whole(tree, view.load), (np.zeros_like(room), room)
        need = _apportion(
            tree, self._weights, load, size, bounds, spec.shards, copies, amount, looked_at
        )
        hashes = scores(digest64(spec.stream, "bulk"), np.arange(spec.shards, dtype=np.uint64))
        *_, out = kernels.run(
            kernels.spread_shards,
            looked_at,
            tree.elements,
            need,
            room,
            np.where(size > 0, 0, kernels.NEVER),
            self._caps,
            (hashes >> np.uint64(33)).astype(np.int64),
            copies,
            np.full(amount, -1, np.int64),
        )
        if (out < 0).any():
            return None
        nodes: Integers = tree.leaves[out - tree.domains].reshape(spec.shards, copies)
        return nodes


def _weights(
    tree: DomainTree, policy: Policy, able: NDArray[np.bool_], topology: Topology
) -> tuple[Integers, Integers]:
    """Sum weights by element, in whole millionths.

    Of all nodes that are able, and of those of them that the policy admits.
    """
    parts = np.rint(topology.weight * 1e6) * able
    return _sum_whole(tree, parts), _sum_whole(tree, parts * policy.nodes.mask(topology))


def _caps(tree: DomainTree, rules: Sequence[Rule], everywhere: RuleContext) -> Integers:
    """Compute by element the copies of one shard that the rules allow."""
    topology, factor = everywhere.topology, everywhere.replication_factor
    caps = np.full(tree.elements.shape[1], factor, np.int64)
    for rule in rules:
        cap = rule.domain_cap(everywhere)
        tier = _tier(rule.scope, topology) if cap is not None and rule.scope else None
        if cap is not None and tier is not None:
            elements = tree.above[tier]
            caps[elements] = np.minimum(caps[elements], cap)
    return caps


def _copies_max(tree: DomainTree, is_open: NDArray[np.bool_], caps: Integers) -> Integers:
    """Compute by element the copies of one shard that it can hold: one for an open node."""
    most = np.zeros(tree.elements.shape[1], np.int64)
    most[tree.domains :] = is_open[tree.leaves]
    parent, levels = tree.elements[2], tree.levels
    for elements in reversed(levels):
        below = np.unique(elements)
        most[below] = np.minimum(most[below], caps[below])
        np.add.at(most, parent[below], most[below])
    return most


def _sum_whole(tree: DomainTree, values: NDArray[np.generic]) -> Integers:
    """Add up values by node index over the elements, as whole numbers."""
    return tree.sums(values).astype(np.int64)


def _apportion(
    tree: DomainTree,
    weights: tuple[Integers, Integers],
    load: Integers,
    size: Integers,
    bounds: tuple[Integers, Integers],
    shards: int,
    factor: int,
    amount: int,
    looked_at: int,
) -> Integers:
    """Divide an amount over the elements of the tree."""
    need = np.zeros(tree.elements.shape[1], np.int64)
    need[0] = amount
    arguments = np.stack(weights), load, size, np.stack(bounds), shards, factor, need
    found: Integers = kernels.run(apportion.apportion, looked_at, tree.elements, *arguments)[-1]
    return found


def _put_leaders_first(
    tree: DomainTree,
    weights: tuple[Integers, Integers],
    places: Integers,
    spec: StreamSpec,
    view: View,
    looked_at: int,
) -> Integers:
    """Choose the leader of each shard and put it in front of the row; counted in `view`."""
    shards, factor, leaves = spec.shards, spec.replication_factor, len(tree.leaves)
    counts = np.bincount(places, minlength=leaves)
    most = np.zeros(tree.elements.shape[1])
    most[tree.domains :] = counts
    most[0] = shards
    for elements in tree.above:
        most += np.bincount(elements, counts, len(most))
    bounds = np.zeros(len(most), np.int64), np.minimum(most, shards).astype(np.int64)
    leads = _sum_whole(tree, view.leaders)
    quota = _apportion(tree, weights, leads, bounds[1], bounds, shards, 0, shards, looked_at)
    begin = np.concatenate([[0], np.cumsum(counts)])
    order = np.argsort(places, kind="stable") // factor
    leader = np.zeros(shards, np.int64)
    *_, leader = kernels.run(
        apportion.match_leaders,
        looked_at,
        places,
        factor,
        begin,
        order,
        quota[tree.domains :],
        leader,
    )
    rows, every = places.reshape(shards, factor).copy(), np.arange(shards)
    first = rows[every, leader]
    rows[every, leader] = rows[:, 0]
    rows[:, 0] = first
    view.leaders = view.leaders + np.bincount(tree.leaves[first], minlength=len(view.leaders))
    return rows
