"""The rule that what a node holds fits into it: capacities, limits and loads by resource.

The one rule on resources. Placing asks how many more shards of one size fit, repair and rebalancing
where a shard fits, diagnosis which nodes hold more than fits. It belongs to the fleet, not to a
policy, so that every strategy keeps it.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.model import Resource
from placement.rules.rule import Mask
from placement.topology import Topology

Integers = NDArray[np.int64]

# A node that does not say what it has, or a resource without a limit.
UNSTATED = -1
# More than any node holds of anything, and below the overflow of two of them.
BOUNDLESS = 1 << 61

# Room for more replicas than any node can be asked to hold.
ANY_ROOM = 1 << 40


def capacities(topology: Topology, resources: Sequence[Resource]) -> Integers:
    """Read what each node has of each resource, a row for each resource; UNSTATED if unsaid."""
    names = tuple(each.name for each in resources)

    def read() -> Integers:
        found = [dict(each.capacities or ()) for each in topology.attributes]
        rows = [[each.get(name, UNSTATED) for each in found] for name in names]
        return np.asarray(rows, np.int64).reshape(len(names), topology.size)

    return topology.derive(("capacities", names), read)


def limits(topology: Topology, resources: Sequence[Resource]) -> Integers:
    """Compute how much of each resource a node may hold: a share of its capacity, rounded down."""

    def compute() -> Integers:
        found = capacities(topology, resources).copy()
        for row, each in zip(found, resources, strict=True):
            share = 1.0 if each.capacity is None else each.capacity
            whole = np.floor(row * share + 1e-9).astype(np.int64)
            row[:] = UNSTATED if each.capacity is None else np.where(row < 0, UNSTATED, whole)
        return found

    return topology.derive(("limits of resources", tuple(resources)), compute)


def has_space(borne: Integers, more: Integers, limit: Integers) -> Mask:
    """Mask the resources of which a node that bears `borne` has room for so much more."""
    within: Mask = (limit < 0) | (more == 0) | (borne + more <= limit)
    return within


def band_edges(
    borne: Integers, capacity: Integers, eligible: Mask, band: float
) -> tuple[Integers, Integers, NDArray[np.float64]]:
    """Compute the least and the most of a resource that each node may bear to be balanced.

    The band is a share of the mean utilisation of eligible nodes with a capacity, as in Cruise
    Control's `balance.threshold`. The edges are rounded so that they hold the mean, which comes
    third; they are 0 and `BOUNDLESS` on nodes that are not counted.
    """
    counted = eligible & (capacity > 0)
    whole = int(capacity[counted].sum())
    mean = int(borne[counted].sum()) / whole if whole else 0.0
    share = np.where(counted, capacity * mean, 1.0)
    low = np.minimum(np.ceil(share * (1 - band)), np.floor(share))
    high = np.maximum(np.floor(share * (1 + band)), np.ceil(share))
    return (
        np.where(counted, low, 0).astype(np.int64),
        np.where(counted, high, BOUNDLESS).astype(np.int64),
        np.where(counted, np.maximum(share, 1.0), 1.0),
    )


@dataclass(frozen=True, slots=True)
class Overload:
    """A resource of which a node holds more than fits; `node` by index."""

    node: int
    resource: Resource
    load: int
    limit: int


@dataclass(frozen=True, slots=True)
class Lack:
    """A resource of which nodes have too little: what is needed, and the most that one has free."""

    resource: str
    needed: int
    free: int


class NodeLoads:
    """Holds what nodes bear of each resource, as one plan sees it, and the load of one shard.

    - `borne`: by resource and node, planned replicas and those that have not left yet.
    - `shard`: the load of the shard that is being placed, by resource.
    """

    def __init__(
        self, topology: Topology, resources: Sequence[Resource], borne: Integers, shard: Integers
    ) -> None:
        self.resources = tuple(resources)
        self.capacity, self.limit = capacities(topology, resources), limits(topology, resources)
        self.borne, self.shard = borne, shard
        self._led = np.asarray([each.led for each in resources], bool)

    @property
    def is_bounded(self) -> bool:
        """Return whether some node says what it has of a resource."""
        return bool((self.capacity > 0).any())

    def copy(self) -> "NodeLoads":
        """Copy the loads, so that the copy can be changed."""
        made = copy(self)
        made.borne = self.borne.copy()
        return made

    def count(self, node: int, leads: bool, by: int) -> None:
        """Count the shard on one more node (1), or on one less (-1)."""
        self.borne[:, node] += by * np.where(self._led & (not leads), 0, self.shard)

    def count_lead(self, node: int, amounts: Integers, by: int) -> None:
        """Count that a node leads a shard it holds (1), or no more (-1); `amounts`: its load."""
        self.borne[:, node] += by * np.where(self._led, amounts, 0)

    def count_all(self, replicas: Integers) -> None:
        """Count so many more replicas of the shard's size on each node; none of them leads."""
        self.borne += np.where(self._led, 0, self.shard)[:, None] * replicas

    def remove_all(self, amounts: Integers, rows: Integers) -> None:
        """Count shards on none of their nodes any more.

        `amounts`: by resource and shard; `rows`: the nodes of each shard by slot, leader first.
        """
        for slot in range(rows.shape[1]):
            there = np.flatnonzero(rows[:, slot] >= 0)
            for row, led in enumerate(self._led.tolist()):
                if not led or slot == 0:
                    np.subtract.at(self.borne[row], rows[there, slot], amounts[row, there])

    def room(self) -> Integers:
        """Count the shards of this size that still fit into each node."""
        share = self.shard[:, None]
        free = np.maximum(self.limit - self.borne, 0)
        fitting = np.where((self.limit < 0) | (share <= 0), ANY_ROOM, free // np.maximum(share, 1))
        found: Integers = fitting.min(axis=0, initial=ANY_ROOM)
        return found

    def fits(self, replicas: int = 1) -> Mask:
        """Mask the nodes into which so many shards of this size fit."""
        if replicas <= 0:
            none: Mask = self.overloaded() == 0
            return none
        found: Mask = self.room() >= replicas
        return found

    def fits_lead(self, node: int, amounts: Integers) -> bool:
        """Return whether a node has room to lead a shard that it holds; `amounts`: its load."""
        more = np.where(self._led, amounts, 0)
        return bool(has_space(self.borne[:, node], more, self.limit[:, node]).all())

    def find_lacks(self, nodes: Mask, replicas: int = 1) -> list[Lack]:
        """List the resources of which some of `nodes` have too little for so many such shards."""
        free, needed = np.maximum(self.limit - self.borne, 0), replicas * self.shard
        bounded = (self.limit >= 0) & nodes
        short = bounded & (needed > 0)[:, None] & (free < needed[:, None])
        return [
            Lack(self.resources[row].name, int(needed[row]), int(free[row, bounded[row]].max()))
            for row in np.flatnonzero(short.any(axis=1)).tolist()
        ]

    def overloaded(self) -> Integers:
        """Count for each node the resources of which it holds more than fits."""
        found: Integers = ((self.limit >= 0) & (self.borne > self.limit)).sum(axis=0)
        return found

    def overloads(self) -> Iterator[Overload]:
        """List what does not fit, by resource and node."""
        for row, node in np.argwhere((self.limit >= 0) & (self.borne > self.limit)).tolist():
            amounts = int(self.borne[row, node]), int(self.limit[row, node])
            yield Overload(node, self.resources[row], *amounts)

    def utilisation(self, nodes: Integers | slice = slice(None)) -> NDArray[np.float64]:
        """Compute the largest utilisation of each node after one more such shard, over resources.

        A node that does not say its capacity has none: 0.
        """
        return self._largest(self.borne[:, nodes], self.capacity[:, nodes])

    def domain_utilisation(
        self, domains: NDArray[np.int32], usable: Mask, nodes: Integers
    ) -> NDArray[np.float64]:
        """Compute the same for the domain of each of `nodes`, from its usable nodes together.

        `domains`: the domain of every node, -1 for none.
        """
        size = int(domains.max(initial=0)) + 2
        known = domains % size
        there = usable & (domains >= 0)
        whole = [
            [np.bincount(known, row * (there & (has >= 0)), size) for row in (load, has)]
            for load, has in zip(self.borne, self.capacity, strict=True)
        ]
        of = known[nodes]
        borne = np.asarray([load[of] for load, _ in whole])
        return self._largest(borne, np.asarray([has[of] for _, has in whole]))

    def _largest(
        self, borne: NDArray[np.number], capacity: NDArray[np.number]
    ) -> NDArray[np.float64]:
        after = (borne + self.shard[:, None]) / np.maximum(capacity, 1)
        found: NDArray[np.float64] = np.where(capacity > 0, after, 0.0).max(axis=0, initial=0.0)
        return found
