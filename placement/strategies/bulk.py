"""`spread` for many shards at once, over arrays: for streams whose own rules, if they have any, the
walk keeps: how many replicas of a shard a domain may hold, and which tags a node must carry.

What each domain and node is to get is settled first (`placement.apportion`), then dealt out shard
by shard down the tree of domains (`placement.kernels`).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from placement import apportion, kernels
from placement.choice import digest64, scores
from placement.domain_tree import DomainTree, Integers, domain_tree
from placement.model import StreamSpec
from placement.policy import Policy
from placement.rules import AtMost, Even, Rule, Standing, Strength
from placement.rules_places import WithTags
from placement.strategies.base import View, candidates
from placement.topology import Scope, Topology

# Shards from which one walk over the tree costs less than asking for every replica.
BULK_FROM = 128


def walkable(rules: Sequence[Rule], topology: Topology) -> bool:
    """Whether the walk keeps these rules of a policy: required ones on the levels of the tree, or
    on what a node carries. What it makes of them is judged nevertheless."""
    return all(
        rule.strength is Strength.REQUIRED
        and (
            isinstance(rule, WithTags)
            or (isinstance(rule, AtMost | Even) and _tier(rule.per, topology) is not None)
        )
        for rule in rules
    )


def _tier(scope: Scope, topology: Topology) -> int | None:
    """The level of the tree whose domains are those of the scope."""
    domains = topology.domain_of(scope)
    same = (np.array_equal(domains, topology.domain_of(tier)) for tier in topology.tiers())
    return next((tier for tier, equal in enumerate(same) if equal), None)


def spread_in_bulk(spec: StreamSpec, policy: Policy, view: View) -> list[list[int]] | None:
    """Nodes of every slot of every shard, leader first, counted in `view`; None where some slot
    finds no node."""
    topology, shards, factor = view.topology, spec.shards, spec.replication_factor
    tree = domain_tree(topology)
    left = np.where(candidates(policy, view), view.room(), 0)
    everywhere = Standing(topology, policy.copies(factor), (), nodes=policy.nodes)
    for rule in policy.rules:
        left[rule.penalty(everywhere) > 0] = 0
    caps = _caps(tree, policy.rules, everywhere)
    # As rebalancing shares: by the weight of all that the policy admits, full or not.
    parts = np.rint(topology.weight * 1e6)
    admitted = parts * policy.nodes.mask(topology)
    weights = _whole(tree, parts), _whole(tree, admitted)
    room, size = _whole(tree, left), _most(tree, left > 0, caps)
    amount, nothing = shards * factor, np.zeros_like(room)
    # All kernels run in the form that suits the largest work, which is dealing out.
    looked_at = amount * tree.looked_at
    load, bounds = _whole(tree, view.load), (nothing, room)
    need = _apportioned(tree, weights, load, size, bounds, shards, factor, amount, looked_at)
    hashes = scores(digest64(spec.stream, "bulk"), np.arange(shards, dtype=np.uint64))
    out = np.full(amount, -1, np.int64)
    *_, out = kernels.run(
        kernels.spread_shards,
        looked_at,
        tree.elements,
        need,
        room,
        np.where(size > 0, 0, kernels.NEVER),
        caps,
        (hashes >> np.uint64(33)).astype(np.int64),
        factor,
        out,
    )
    if (out < 0).any():
        return None
    places = out - tree.domains
    view.add_all(tree.leaves[places])
    able = topology.can_lead
    leading = _whole(tree, parts * able), _whole(tree, admitted * able)
    rows = _led(tree, leading, places, spec, view, looked_at)
    nodes: list[list[int]] = tree.leaves[rows].tolist()
    return nodes


def _caps(tree: DomainTree, rules: Sequence[Rule], everywhere: Standing) -> Integers:
    """By element of the tree the copies of one shard that the rules let it hold."""
    topology, factor = everywhere.topology, everywhere.replication_factor
    caps = np.full(tree.elements.shape[1], factor, np.int64)
    for rule in rules:
        tier = _tier(rule.per, topology) if isinstance(rule, AtMost) else None
        if isinstance(rule, AtMost) and tier is not None:
            elements, live = tree.above[tier], len(everywhere.live_domains(rule.per))
            caps[elements] = np.minimum(caps[elements], rule.cap(factor, live))
    return caps


def _most(tree: DomainTree, is_open: NDArray[np.bool_], caps: Integers) -> Integers:
    """By element the copies of one shard that it can hold: one for an open node."""
    most = np.zeros(tree.elements.shape[1], np.int64)
    most[tree.domains :] = is_open[tree.leaves]
    parent, levels = tree.elements[2], tree.levels
    for elements in reversed(levels):
        below = np.unique(elements)
        most[below] = np.minimum(most[below], caps[below])
        np.add.at(most, parent[below], most[below])
    return most


def _whole(tree: DomainTree, values: NDArray[np.generic]) -> Integers:
    """Values by node index as whole numbers by element."""
    return tree.sums(values).astype(np.int64)


def _apportioned(
    tree: DomainTree,
    weights: tuple[Integers, Integers],
    held: Integers,
    size: Integers,
    bounds: tuple[Integers, Integers],
    shards: int,
    factor: int,
    amount: int,
    looked_at: int,
) -> Integers:
    """What each element is to get of so much."""
    need = np.zeros(tree.elements.shape[1], np.int64)
    need[0] = amount
    arguments = np.stack(weights), held, size, np.stack(bounds), shards, factor, need
    found: Integers = kernels.run(apportion.apportion, looked_at, tree.elements, *arguments)[-1]
    return found


def _led(
    tree: DomainTree,
    weights: tuple[Integers, Integers],
    places: Integers,
    spec: StreamSpec,
    view: View,
    looked_at: int,
) -> Integers:
    """The shards as rows of leaves, each with its leader in front; counted in `view`."""
    shards, factor, leaves = spec.shards, spec.replication_factor, len(tree.leaves)
    held = np.bincount(places, minlength=leaves)
    most = np.zeros(tree.elements.shape[1])
    most[tree.domains :] = held
    most[0] = shards
    for elements in tree.above:
        most += np.bincount(elements, held, len(most))
    bounds = np.zeros(len(most), np.int64), np.minimum(most, shards).astype(np.int64)
    leads = _whole(tree, view.leaders)
    quota = _apportioned(tree, weights, leads, bounds[1], bounds, shards, 0, shards, looked_at)
    begin = np.concatenate([[0], np.cumsum(held)])
    order = np.argsort(places, kind="stable") // factor
    leader = np.zeros(shards, np.int64)
    *_, leader = kernels.run(
        apportion.elect,
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
