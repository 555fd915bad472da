"""Holds the loads of shards by resource, and the sums of them on each node, as columns.

The table counts every replica here that comes, goes or begins to lead, so that the sums cost
nothing when they are asked for. A shard of which nothing is known has the mean of the fleet: its
replicas are counted apart, so that another mean changes no sum.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


class LoadColumns:
    """Loads by resource (first axis) and shard, and their sums by resource and node.

    `led`: by resource, whether only the replica that leads bears the load. `mean`: by resource, the
    load of a shard of which nothing is known.
    """

    def __init__(self, led: Sequence[bool]) -> None:
        self._led = np.asarray(led, bool)
        self._always = (~self._led).astype(np.int64)
        self.mean = np.zeros(len(led), np.int64)
        self._known = np.zeros((len(led), 0), np.int64)
        self._unknown = np.zeros((len(led), 0), np.int64)
        self._sums = np.zeros((len(led), 0), np.int64)
        self._counts = np.zeros((len(led), 0), np.int64)

    def of_shards(self, shards: Integers) -> Integers:
        """Read the loads of shards, a row for each resource."""
        self._reserve(int(shards.max(initial=-1)) + 1)
        return self._known[:, shards] + self._unknown[:, shards] * self.mean[:, None]

    def of_shard(self, shard: int) -> Integers:
        """Read the load of a shard by resource."""
        self._reserve(shard + 1)
        return self._known[:, shard] + self._unknown[:, shard] * self.mean

    def load(self, row: int, shard: int) -> int:
        """Read the load of a shard of one resource, by its row."""
        self._reserve(shard + 1)
        return int(self._known[row, shard] + self._unknown[row, shard] * self.mean[row])

    def on_nodes(self, nodes: int) -> Integers:
        """Sum the loads on each of the first `nodes` nodes, a row for each resource."""
        self._reserve_nodes(nodes)
        return self._sums[:, :nodes] + self._counts[:, :nodes] * self.mean[:, None]

    def on_node(self, node: int) -> Integers:
        """Sum the loads on one node, by resource."""
        self._reserve_nodes(node + 1)
        found: Integers = self._sums[:, node] + self._counts[:, node] * self.mean
        return found

    def count(self, shard: int, node: int, leads: bool, by: int) -> None:
        """Count a replica that comes to a node (1) or leaves it (-1)."""
        self._reserve(shard + 1)
        self._reserve_nodes(node + 1)
        borne = by if leads else by * self._always
        self._sums[:, node] += borne * self._known[:, shard]
        self._counts[:, node] += borne * self._unknown[:, shard]

    def count_all(self, shards: Integers, nodes: Integers, leads: NDArray[np.bool_]) -> None:
        """Count a replica of each of the shards that comes to a node; `leads`: whether it leads."""
        self._reserve(int(shards.max(initial=-1)) + 1)
        self._reserve_nodes(int(nodes.max(initial=-1)) + 1)
        known, unknown = self._known[:, shards], self._unknown[:, shards]
        self._add(nodes, known, unknown, leads)

    def count_leaders(self, shards: Integers, nodes: Integers, by: int) -> None:
        """Count nodes that begin (1) or cease (-1) to lead a shard which they hold."""
        self._reserve(int(shards.max(initial=-1)) + 1)
        self._reserve_nodes(int(nodes.max(initial=-1)) + 1)
        for row in np.flatnonzero(self._led).tolist():
            np.add.at(self._sums[row], nodes, by * self._known[row, shards])
            np.add.at(self._counts[row], nodes, by * self._unknown[row, shards])

    def change(self, shards: Integers, known: Integers, unknown: Integers, rows: Integers) -> None:
        """Change the loads of shards, and with them the sums of the nodes that hold them.

        - `known`: the loads, a row for each resource; 0 where `unknown` is 1.
        - `rows`: the nodes of each shard by slot, the leader first, -1 in an empty slot.
        """
        self._reserve(int(shards.max(initial=-1)) + 1)
        self._reserve_nodes(int(rows.max(initial=-1)) + 1)
        more, fewer = known - self._known[:, shards], unknown - self._unknown[:, shards]
        self._known[:, shards], self._unknown[:, shards] = known, unknown
        for slot in range(rows.shape[1]):
            there = np.flatnonzero(rows[:, slot] >= 0)
            leads = np.full(len(there), slot == 0)
            self._add(rows[there, slot], more[:, there], fewer[:, there], leads)

    def forget(self, shards: Integers) -> None:
        """Forget the loads of shards that have no replicas any more."""
        self._reserve(int(shards.max(initial=-1)) + 1)
        self._known[:, shards], self._unknown[:, shards] = 0, 1

    def _add(
        self, nodes: Integers, known: Integers, unknown: Integers, leads: NDArray[np.bool_]
    ) -> None:
        for row, led in enumerate(self._led.tolist()):
            borne = leads if led else slice(None)
            np.add.at(self._sums[row], nodes[borne], known[row, borne])
            np.add.at(self._counts[row], nodes[borne], unknown[row, borne])

    def _reserve(self, shards: int) -> None:
        if shards > self._known.shape[1]:
            more = max(shards - self._known.shape[1], self._known.shape[1])
            self._known = np.pad(self._known, ((0, 0), (0, more)))
            # Nothing is known of a shard until something is said.
            self._unknown = np.pad(self._unknown, ((0, 0), (0, more)), constant_values=1)

    def _reserve_nodes(self, nodes: int) -> None:
        if nodes > self._sums.shape[1]:
            more = max(nodes - self._sums.shape[1], self._sums.shape[1])
            self._sums = np.pad(self._sums, ((0, 0), (0, more)))
            self._counts = np.pad(self._counts, ((0, 0), (0, more)))
