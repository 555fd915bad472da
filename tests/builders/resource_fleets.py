"""Fleets with loads for the search that evens out resources: columns, and a rule by racks.

Every fleet is drawn from a seed; the gate allows a shard at most one replica in each rack.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placement.model import Resource
from placement.rebalance.resource_arrangement import (
    ItemColumns,
    NodeColumns,
    ResourceArrangement,
)


class RackGate:
    """At most one replica of a shard in a rack; any replica may lead."""

    def __init__(self, racks: np.ndarray, shard: np.ndarray, node: np.ndarray) -> None:
        self.racks, self.node = racks.tolist(), node.copy()
        self._shard = shard

    def allows_move(self, item: int, target: int) -> bool:
        shard = self._shard[item]
        first, end = np.searchsorted(self._shard, [shard, shard + 1]).tolist()
        rack = self.racks[target]
        return all(
            self.racks[self.node[other]] != rack for other in range(first, end) if other != item
        )

    def allows_lead(self, _: int) -> bool:
        return True

    def follow_move(self, item: int, target: int) -> None:
        self.node[item] = target

    def follow_lead(self, item: int) -> None:
        """Leaders are not looked at."""


@dataclass
class Fleet:
    """A fleet from which arrangements are made as often as they are needed."""

    resources: Sequence[Resource]
    loads: np.ndarray
    rows: np.ndarray
    racks: np.ndarray
    capacity: np.ndarray
    eligible: np.ndarray | None = None

    def limits(self) -> np.ndarray:
        """The most that each node may hold."""
        rows = []
        for each, capacity in zip(self.resources, self.capacity, strict=True):
            share = -1 if each.capacity is None else each.capacity
            most = [int(c * share) if c >= 0 and share >= 0 else -1 for c in capacity.tolist()]
            rows.append(most)
        return np.asarray(rows, np.int64).reshape(self.capacity.shape)

    def totals(self) -> np.ndarray:
        """What each node holds."""
        found = np.zeros_like(self.capacity)
        for row, each in enumerate(self.resources):
            for slot in range(1 if each.led else self.rows.shape[1]):
                np.add.at(found[row], self.rows[:, slot], self.loads[row])
        return found

    def arrangement(
        self,
        rows: np.ndarray | None = None,
        dwelling: Collection[tuple[int, int]] = (),
        forbidden: Collection[tuple[int, int]] = (),
    ) -> ResourceArrangement:
        """Columns of the fleet, or of another with these rows."""
        if rows is not None:
            return replace(self, rows=rows).arrangement(None, dwelling, forbidden)
        shards, copies = self.rows.shape
        shard = np.repeat(np.arange(shards), copies)
        slot = np.tile(np.arange(copies), shards)
        node = self.rows.ravel().astype(np.int64)
        free = np.ones(len(node), bool)
        stay = np.asarray(
            [pair in dwelling for pair in zip(shard.tolist(), node.tolist(), strict=True)]
            if dwelling
            else np.zeros(len(node), bool)
        )
        eligible = self.eligible
        if eligible is None:
            eligible = np.ones(self.capacity.shape[1], bool)
        return ResourceArrangement(
            self.resources,
            self.loads,
            ItemColumns(shard, slot, node, free, stay),
            NodeColumns(self.capacity, self.limits(), self.totals(), eligible),
            RackGate(self.racks, shard, node),
            forbidden,
        )


def large_fleet(
    nodes: int = 1_000,
    shards: int = 100_000,
    copies: int = 3,
    seed: int = 1,
    empty: int = 0,
    led: bool = False,
    balance: float = 0.1,
) -> Fleet:
    """Log-normal sizes (sigma 1.5), as many replicas on every node that is not empty."""
    rng = np.random.default_rng(seed)
    racks = np.arange(nodes) % max(nodes // 20, 4)
    holding = nodes - empty
    names = ("disk_bytes", "write_bytes_per_second", "read_bytes_per_second")
    means = (2_000_000_000, 1_000_000, 3_000_000)
    draws = rng.lognormal(0.0, 1.5, (3, shards)) / np.exp(1.5**2 / 2)
    loads = np.stack(
        [(row * mean).astype(np.int64) for row, mean in zip(draws, means, strict=True)]
    )
    # Striped by shard: consecutive nodes are in different racks.
    first = rng.permutation(shards)
    rows = (first[:, None] * copies + np.arange(copies)[None, :]) % holding
    resources = tuple(
        Resource(name, 0.85, balance, led and row == 2) for row, name in enumerate(names)
    )
    bearing = np.asarray([1 if each.led else copies for each in resources])
    capacity = (loads.sum(axis=1) * bearing / nodes / 0.55).astype(np.int64)
    return Fleet(resources, loads, rows, racks, np.repeat(capacity[:, None], nodes, axis=1))


def small_fleet(seed: int, led: bool = False) -> Fleet:
    """At most 8 nodes in racks and 40 replicas, two resources, lawful by racks but uneven."""
    rng = np.random.default_rng([seed, 16])
    nodes = int(rng.integers(4, 9))
    racks = np.arange(nodes) % int(rng.integers(3, nodes + 1))
    copies = int(rng.integers(1, 4))
    shards = int(rng.integers(28, 41)) // copies
    loads = rng.lognormal(0.0, 1.0, (2, shards))
    loads[1] = loads[1] * 0.5 + loads[0] * 0.5 * rng.integers(0, 2)
    loads = (loads * np.asarray([[1_000_000], [40_000]])).astype(np.int64)
    attraction = rng.dirichlet(np.full(nodes, 2.0))
    rows = np.asarray([_lawful(rng, attraction, racks, copies) for _ in range(shards)])
    resources = (
        Resource("disk_bytes", 0.85, 0.4),
        Resource("requests_per_second", 0.9, 0.5, led),
    )
    weight = rng.choice([1.0, 1.0, 1.5], nodes)
    bearing = np.asarray([1 if each.led else copies for each in resources])
    whole = loads.sum(axis=1) * bearing / rng.uniform(0.45, 0.65, 2)
    capacity = (whole[:, None] * (weight / weight.sum())[None, :]).astype(np.int64)
    return Fleet(resources, loads, rows, racks, capacity)


def _lawful(
    rng: np.random.Generator, attraction: np.ndarray, racks: np.ndarray, copies: int
) -> list[int]:
    found: list[int] = []
    while len(found) < copies:
        node = int(rng.choice(len(racks), p=attraction))
        if all(racks[node] != racks[other] for other in found):
            found.append(node)
    return found
