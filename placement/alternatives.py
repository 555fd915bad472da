"""Alternatives: where a replica could stand, one node of each kind that rules tell apart.

A strategy proposes one node, by its own order and by loads; that one may keep a rule no better
although another would. Whether a shard can be helped must not depend on loads, which change
without anybody looking at the shard again, nor on which nodes are full: so where the proposal does
not help every kind is tried.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from placement.allocator import View, distance
from placement.rules import Mask, Rule, Standing, scope_of
from placement.topology import NO_DOMAIN, Scope, Topology

# Kinds are numbered by what tells them apart as long as that fits, then anew.
_NUMBERS_MAX = 1 << 62


def alternatives(
    rules: Sequence[Rule],
    most: Sequence[int],
    standing: Standing,
    old: int,
    mask: Mask,
    view: View,
) -> list[int]:
    """Nodes of `mask`, one of each kind, to stand beside the replicas of `standing` and instead of
    the one on `old`; rules may mind none of them more than `most` says, rule by rule.

    Of a kind it is the one that limits leave free, then the nearest, the least loaded, the first by
    id. Nodes are of one kind if every rule minds them alike, and if at every level and tag they
    share the domains of the same replicas and are both, or both not, the last node there.
    """
    topology, found = standing.topology, np.flatnonzero(mask)
    minded = [rule.penalty(standing) for rule in rules]
    for penalties, limit in zip(minded, most, strict=True):
        found = found[penalties[found] <= limit]
    if not len(found):
        return []
    pressure = view.load[found] / topology.weight[found]
    keys = (topology.order()[found], pressure, distance(topology, old)[found], view.busy[found])
    found = found[np.lexsort(keys)]
    scopes = dict.fromkeys((*topology.tiers(), *filter(None, map(scope_of, rules))))
    places = (column for scope in scopes for column in _places(topology, scope, standing))
    kinds = np.zeros(len(found), np.int64)
    numbers = 1
    for told_apart in (*minded, *places):
        column = told_apart[found].astype(np.int64)
        size = int(column.max()) + 1
        if numbers * size > _NUMBERS_MAX:
            _, kinds = np.unique(kinds, return_inverse=True)
            numbers = len(kinds)
        kinds, numbers = kinds * size + column, numbers * size
    _, first = np.unique(kinds, return_index=True)
    ordered: list[int] = found[np.sort(first)].tolist()
    return ordered


def _places(topology: Topology, scope: Scope, standing: Standing) -> Iterable[NDArray[np.bool_]]:
    """By node whether it shares its domain with each of the replicas, and whether it is the last
    one there that could take one."""
    domains = topology.domain_of(scope)
    yield from (domains == domains[node] for node in standing.replicas)
    free = topology.eligible & standing.nodes.mask(topology)
    free[np.asarray(standing.replicas, np.int64)] = False
    free &= domains != NO_DOMAIN
    yield np.bincount(domains[free], minlength=int(domains.max()) + 2)[domains] == 1
