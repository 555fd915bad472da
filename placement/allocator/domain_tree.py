"""The usable part of a fleet as a tree of flat arrays: what the kernels walk.

Elements are numbered level by level from the root, 0; the children of an element are contiguous,
nodes come last. Siblings stand in the natural order of their names.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from placement.model import natural_key
from placement.topology import Topology

Integers = NDArray[np.int64]

# A copy in a domain outweighs all that a shard can have below it (64 copies at most).
_COPIES = 65
_HASH_BITS = np.uint64(33)


@dataclass(frozen=True, slots=True)
class DomainTree:
    """The usable nodes and their domains as flat arrays.

    `elements` has a column each: first child, the one behind the last child, parent, worth of one
    copy, 31-bit hash. `leaves` are the node indexes of the last elements, `above` the element of
    each leaf's domain by tier.
    """

    elements: Integers
    leaves: Integers
    above: Integers

    @property
    def domains(self) -> int:
        """Count the elements that are not nodes; also the number of the first node."""
        return int(self.elements.shape[1]) - len(self.leaves)

    @property
    def looked_at(self) -> int:
        """Bound the number of elements that a kernel reads for one replica: the widest path down
        the tree."""
        widest = int((self.elements[1] - self.elements[0]).max(initial=1))
        return widest * (len(self.above) + 1)

    @property
    def levels(self) -> list[Integers]:
        """List the element of each leaf's domain by tier, and last that of the leaf."""
        return [*self.above, np.arange(self.domains, self.elements.shape[1])]

    def sums(self, values: NDArray[np.generic]) -> NDArray[np.float64]:
        """Add up values by node index over the elements."""
        own = values[self.leaves].astype(np.float64)
        size = self.elements.shape[1]
        total = np.zeros(size)
        total[self.domains :] = own
        total[0] = own.sum()
        for elements in self.above:
            total += np.bincount(elements, own, size)
        return total


def domain_tree(topology: Topology, usable: NDArray[np.bool_] | None = None) -> DomainTree:
    """Build the tree of the usable nodes (all eligible ones if None) over all tiers."""
    nodes = np.flatnonzero(topology.eligible if usable is None else usable)
    rank = _domain_ranks(topology)
    keys = [topology.order()[nodes]]
    keys += [rank[topology.domain_of(scope)[nodes]] for scope in topology.tiers()]
    columns = [keys[0], *keys[:0:-1]]  # the last key of a lexicographic sort counts first
    order = np.lexsort(columns) if len(nodes) else np.zeros(0, np.int64)
    leaves = nodes[order]
    tiers = [key[order] for key in keys[1:]]
    above, base = np.zeros((len(tiers), len(leaves)), np.int64), 1
    for tier, key in enumerate(tiers):
        above[tier] = base + np.cumsum(np.diff(key, prepend=key[:1]) != 0)
        base = int(above[tier][-1]) + 1 if len(leaves) else base
    size = base + len(leaves)
    rows = [np.zeros(len(leaves), np.int64), *above, np.arange(base, size)]
    first, end = np.zeros(size, np.int64), np.zeros(size, np.int64)
    parent, tie = np.zeros(size, np.int64), np.zeros(size, np.int64)
    hashes = (topology.digests[leaves] >> _HASH_BITS).astype(np.int64)
    for upper, lower in pairwise(rows):
        children, begin = np.unique(lower, return_index=True)
        parent[children], tie[children] = upper[begin], hashes[begin]
        owners, start, count = np.unique(upper[begin], return_index=True, return_counts=True)
        first[owners] = children[start]
        end[owners] = children[start] + count
    worth = np.zeros(size, np.int64)
    for tier, elements in enumerate(above):
        worth[elements] = _COPIES ** (len(tiers) - 1 - tier)
    return DomainTree(np.stack([first, end, parent, worth, tie]), leaves, above)


def _domain_ranks(topology: Topology) -> Integers:
    """Rank every domain in the natural order of names; cached in the topology."""
    return topology.derive("ranks of domains", lambda: _rank_domains(topology))


def _rank_domains(topology: Topology) -> Integers:
    names = [natural_key(str(domain)) for domain in topology.domains]
    ranks = np.empty(len(names), np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return ranks
