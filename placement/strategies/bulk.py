"""`spread` for many shards at once, over arrays: the order of `choose`, which `placement.kernels`
walks down the tree of domains, for streams whose own rules, if they have any, the walk keeps: how
many replicas of a shard a domain may hold, and which tags a node must carry."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from placement import kernels
from placement.choice import digest64, scores
from placement.domain_tree import DomainTree, Integers, domain_tree
from placement.model import StreamSpec
from placement.policy import Policy
from placement.rules import AtMost, Even, Rule, Standing, Strength
from placement.rules_places import WithTags
from placement.strategies.base import View, candidates
from placement.strategies.leaders import elect
from placement.topology import Scope, Topology

# Shards from which one walk over the tree costs less than asking for every replica.
BULK_FROM = 128

# Shards up to which leaders are also chosen exactly; beyond, the search finds no end and those of
# the walk are within a few of their share.
_ELECTED_UP_TO = 500


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
    topology = view.topology
    tree = domain_tree(topology)
    left = np.where(candidates(policy, view), view.room(), 0)
    everywhere = Standing(topology, policy.copies(spec.replication_factor), (), nodes=policy.nodes)
    for rule in policy.rules:
        left[rule.penalty(everywhere) > 0] = 0
    # In whole millionths, so that a sum does not depend on the order of nodes.
    weight = np.maximum(tree.sums(np.rint(topology.weight * 1e6)) / 1e6, np.finfo(float).tiny)
    hashes = scores(digest64(spec.stream, "bulk"), np.arange(spec.shards, dtype=np.uint64))
    out = np.full(spec.shards * spec.replication_factor, -1, np.int64)
    *_, out = kernels.run(
        kernels.spread_shards,
        len(out) * tree.looked_at,
        tree.elements,
        np.stack([weight, tree.sums(view.load), tree.sums(view.leaders)]),
        tree.sums(left).astype(np.int64),
        np.where(tree.sums(left > 0) > 0, 0, kernels.NEVER),
        _caps(tree, policy.rules, everywhere),
        (hashes >> np.uint64(33)).astype(np.int64),
        spec.replication_factor,
        out,
    )
    if (out < 0).any():
        return None
    placed: NDArray[np.int64] = tree.leaves[out - tree.domains]
    view.add_all(placed)
    shards = placed.reshape(spec.shards, spec.replication_factor)
    nodes: list[list[int]] = _led(shards, view).tolist()
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


def _led(shards: NDArray[np.int64], view: View) -> NDArray[np.int64]:
    """The shards with their leaders in front: those of the walk, or, for fewer shards, those of
    the exact search where they are more even."""
    walked = view.fork()
    walked.leaders = walked.leaders + np.bincount(shards[:, 0], minlength=len(view.leaders))
    elected = view.fork()
    if len(shards) <= _ELECTED_UP_TO:
        leaders = np.array(elect(shards.tolist(), elected))
        if _unevenness(elected) < _unevenness(walked):
            position = np.argmax(shards == leaders[:, None], axis=1)
            rows = np.arange(len(shards))
            shards[rows, position] = shards[:, 0]
            shards[:, 0] = leaders
            walked = elected
    view.leaders = walked.leaders
    return shards


def _unevenness(view: View) -> float:
    """Between the node that leads most for its weight and the one that leads least."""
    leads = (view.leaders / view.topology.weight)[view.topology.eligible]
    return float(leads.max() - leads.min())
