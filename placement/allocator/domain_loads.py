"""Load per weight, of nodes and of domains, as plans compare it.

Loads are whole numbers and weights whole millionths, so that no sum depends on the order of nodes.
"""

from collections.abc import Iterable
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.topology import LEAF, NO_DOMAIN, Scope, Topology

# Load per weight is compared as if half a replica more were there: Webster's divisor, with which
# counts stay closest to the shares (with none or a whole one, small or large nodes are favoured).
# Numpy adds its own kind of number to one of its own in a fifth of the time.
HALF = np.float64(0.5)


def per_weight(load: Any, weight: Any, more: float = HALF) -> Any:
    """Compute load per weight, of one or of several, with `more` load."""
    return (load + more) / weight


def sum_by_pool(topology: Topology, values: NDArray[Any]) -> NDArray[np.float64]:
    """Sum the values of all nodes of a node's pool, for each node.

    If some nodes have a location and others have none, these are two pools.
    """
    if not topology.mixes_located:
        return np.full(topology.size, float(values.sum()))
    pools = (topology.domain_of(LEAF) == topology.unlocated).astype(np.int64)
    sums: NDArray[np.float64] = np.bincount(pools, values, 2).astype(np.float64)[pools]
    return sums


class DomainLoads:
    """Load and weight of the eligible nodes of each domain of a level."""

    def __init__(self, topology: Topology, scope: Scope, load: NDArray[np.int64]) -> None:
        self.domains = topology.domain_of(scope)
        self._counted, self._weights = topology.derive(
            ("domain weights", scope), lambda: _sum_weights(topology, scope), by_condition=True
        )
        self.loads = np.bincount(self._counted, load, len(self._weights))
        # The last one is that of all nodes which do not count.
        self.loads[-1] = 0
        # The same once more, for one domain at a time.
        self._load_of = self.loads.data

    def copy(self) -> "DomainLoads":
        """Copy the loads, so that the copy can be changed."""
        made: DomainLoads = copy(self)
        made.loads = self.loads.copy()
        made._load_of = made.loads.data
        return made

    def count(self, node: int, more: int) -> None:
        """Count `more` replicas on an eligible node."""
        self._load_of[self.domains.item(node)] += more

    def count_all(self, nodes: NDArray[np.int64]) -> None:
        """Count one replica for every mention of a node."""
        domains = self.domains[nodes]
        np.add.at(self.loads, domains[domains != NO_DOMAIN], 1)

    def pressure(self, domains: NDArray[np.int32], more: float) -> NDArray[np.float64]:
        """Compute load per weight of domains, with `more` load."""
        return per_weight(self.loads[domains], self._weights[domains], more)  # type: ignore[no-any-return]

    def pressures(self, domains: Iterable[int], more: float) -> list[float]:
        """Compute the same of a few domains, in Python's own numbers."""
        load, weight = self._load_of, self._weights.item
        return [per_weight(load[domain], weight(domain), more) for domain in domains]


def whole_weights(topology: Topology) -> NDArray[np.float64]:
    """Weights of the eligible nodes in whole millionths, 0 for others."""
    return np.rint(topology.weight * 1e6) * topology.eligible


def _sum_weights(topology: Topology, scope: Scope) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find the domain of each node that counts, and the weight of each domain.

    Nodes that are not eligible, or in no domain, count in a spare domain, the last one; NO_DOMAIN
    is its index from the end.
    """
    domains = topology.domain_of(scope).astype(np.int64)
    size = int(domains.max(initial=0)) + 2
    counted = np.where(topology.eligible & (domains != NO_DOMAIN), domains, size - 1)
    whole = np.bincount(counted, whole_weights(topology), size) / 1e6
    whole[-1] = 0
    return counted, np.maximum(whole, np.finfo(float).tiny)
