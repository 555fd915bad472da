"""Counts the replicas of each family in every domain of every level, and their shares.

A family is a set of replicas that should be even: those of a stream, of a range or of a dimension,
all replicas, or leaders. Inside each domain the domains below share its replicas by weight. A share
lies between two whole numbers, its *band*. A count outside its band adds the square of its distance
to the objective, so that counts that rules keep out of the band are still as even as possible.
"""

from collections.abc import Sequence
from enum import Enum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placement.allocator import SCALE
from placement.rules import Mask
from placement.topology import LEAF, Topology

Integers = NDArray[np.int64]

# Weights in whole millionths, so that sums and shares are exact.
_PARTS = 1e6
# Families looked at in one piece: bounds what detection holds at a time.
_ROWS = 256


class Slack(Enum):
    """Distance of a count from its share up to which no move is made for it.

    - `NONE`: up to the next whole number.
    - `ONE`: one more; but a share of one or more is never left at zero.
    - `DOUBLE`: up to twice the share, and at least one more; of two siblings, halfway to all.
    """

    NONE = 0
    ONE = 1
    DOUBLE = 2


class LevelShares:
    """The domains of every level as numbered elements.

    Level 0 is the whole fleet, the last level are the nodes. Nodes are numbered by their rank,
    elements by their first node, so that no number depends on the order of registration. With
    `apart`, nodes without a location are a fleet of their own at level 0: they share nothing with
    the others.
    """

    def __init__(self, topology: Topology, apart: bool = False) -> None:
        self.apart = apart
        rank = topology.order()
        self.nodes = np.argsort(rank)  # index in the topology by rank
        self.names = ("", *map(str, topology.tiers()), "node")
        size = topology.size
        nowhere = topology.domain_of(LEAF)[self.nodes] == topology.unlocated
        # The pool of the first node by rank comes first, as the elements of any level do.
        self.of = [(nowhere != nowhere[:1]).astype(np.int64) if apart else np.zeros(size, np.int64)]
        for scope in topology.tiers():
            domains = topology.domain_of(scope)[self.nodes]
            _, first, which = np.unique(domains, return_index=True, return_inverse=True)
            order = np.argsort(np.argsort(first))
            self.of.append(order[which])
        self.of.append(np.arange(size))
        self.parent: list[Integers] = [np.zeros(int(self.of[0].max(initial=0)) + 1, np.int64)]
        for upper, lower in zip(self.of, self.of[1:], strict=False):
            above = np.zeros(int(lower.max(initial=-1)) + 1, np.int64)
            above[lower] = upper
            self.parent.append(above)
        # By level, the element of level 0 above each element.
        self.fleet = [np.arange(len(self.parent[0]))]
        for upward in self.parent[1:]:
            self.fleet.append(self.fleet[-1][upward])
        self.parts = np.rint(topology.weight[self.nodes] * _PARTS).astype(np.int64)
        self._members: dict[tuple[int, int], Integers] = {}

    @property
    def last(self) -> int:
        """The level of the nodes."""
        return len(self.of) - 1

    def size(self, level: int) -> int:
        """Count the elements of a level."""
        return len(self.parent[level])

    def children(self, level: int, parent: int) -> Integers:
        """Find the elements of `level` inside an element of the level above."""
        key = level, parent
        if key not in self._members:
            self._members[key] = np.flatnonzero(self.parent[level] == parent)
        return self._members[key]

    def members(self, level: int, element: int) -> Integers:
        """Find the nodes inside an element, by rank."""
        key = -1 - level, element
        if key not in self._members:
            self._members[key] = np.flatnonzero(self.of[level] == element)
        return self._members[key]

    def mask_inside(self, level: int, elements: Integers) -> Mask:
        """Mask the nodes inside one of the elements."""
        found = np.zeros(self.size(level), bool)
        found[elements] = True
        inside: Mask = found if level == self.last else found[self.of[level]]
        return inside


def levels_of(topology: Topology, apart: bool = False) -> LevelShares:
    """Return the levels of a fleet, cached until a node's attributes change.

    `apart`: see `LevelShares`.
    """
    return topology.derive(("levels", apart), lambda: LevelShares(topology, apart))


class ShareWeights:
    """What shares go by: by level, kind of family and element, the weight of the usable nodes.

    `own` are the elements' own weights, `whole` those of the elements above them, at least 1.
    """

    def __init__(self, levels: LevelShares, usable: Sequence[Mask]) -> None:
        """Sum for each kind the weights of its usable nodes, a mask by rank."""
        parts = [np.where(mask, levels.parts, 0) for mask in usable]
        self._levels = levels
        self.own = [
            np.stack([_sum_by(of, part, levels.size(level)) for part in parts])
            for level, of in enumerate(levels.of)
        ]
        self.whole = [
            np.maximum(upper[:, above], 1)
            for upper, above in zip([self.own[0], *self.own], levels.parent, strict=False)
        ]

    @cached_property
    def largest_shares(self) -> list[tuple[Integers, Integers]]:
        """By level, kind and element above: the largest weight inside it, and its whole weight."""
        found = []
        for own, whole, above in zip(self.own, self.whole, self._levels.parent, strict=True):
            size = int(above.max(initial=-1)) + 1
            largest, weight = (np.ones((len(own), size), np.int64) for _ in range(2))
            for kind in range(len(own)):
                np.maximum.at(largest[kind], above, own[kind])
                weight[kind, above] = whole[kind]
            found.append((largest, weight))
        return found

    @cached_property
    def scales(self) -> list[Integers]:
        """Factors of squared distances by level, kind and element, as `apportion` has them."""
        found = []
        for own, whole, above in zip(self.own, self.whole, self._levels.parent, strict=True):
            used = (own > 0).astype(np.int64)
            width = np.stack([_sum_by(above, each, int(above.max(initial=0)) + 1) for each in used])
            mean = whole // np.maximum(width, 1)[:, above] * SCALE
            found.append(np.maximum(mean // np.maximum(own, 1), 1))
        return found


class FamilyCounts:
    """Counts of families by element, for every level.

    - `kinds`: by family, the index of its weights.
    - `slack`: distance from a share that is no reason for a move.
    - `scaled`: distances count more in elements of less weight, as `apportion` has it.
    """

    def __init__(
        self,
        levels: LevelShares,
        weights: ShareWeights,
        kinds: Sequence[int],
        slack: Slack = Slack.NONE,
        scaled: bool = False,
    ) -> None:
        self.levels, self._slack = levels, slack
        self.kinds = np.asarray(kinds, np.int64)
        self._weights, self._scales = weights, weights.scales if scaled else None
        self.counts = [np.zeros((len(kinds), levels.size(m)), np.int64) for m in self._levels]
        # By level, the distance of each family inside each element above that is uneven, and the
        # pairs of family and element above in which counts have changed since.
        self._uneven: dict[int, dict[tuple[int, int], int]] = {}
        self._changed: dict[int, set[tuple[int, int]]] = {}

    @property
    def _levels(self) -> range:
        return range(self.levels.last + 1)

    def fill(self, families: Integers, nodes: Integers, sizes: Integers) -> None:
        """Add `sizes` replicas of each family on each node; a family of -1 is left out."""
        known = families >= 0
        families, nodes, sizes = families[known], nodes[known], sizes[known]
        for of, counts in zip(self.levels.of, self.counts, strict=True):
            np.add.at(counts.reshape(-1), families * counts.shape[1] + of[nodes], sizes)
        self._uneven.clear()

    def fill_nodes(self, family: int, sizes: Integers) -> None:
        """Add `sizes` replicas of one family, a number for every node."""
        for level in reversed(self._levels):
            self.counts[level][family] += sizes
            # From here on by the elements of the level above.
            above = self.levels.parent[level]
            sizes = _sum_by(above, sizes, self.levels.size(level - 1)) if level else sizes
        self._uneven.clear()

    def move(self, family: int, source: int, target: int, size: int) -> None:
        """Count a move from node to node."""
        for of, counts in zip(self.levels.of, self.counts, strict=True):
            counts[family, of[source]] -= size
            counts[family, of[target]] += size
        fleet = self.levels.of[0]
        if fleet[source] != fleet[target]:
            self._uneven.clear()
        for level in self._uneven:
            above = self.levels.of[level - 1]
            changed = (family, int(above[source])), (family, int(above[target]))
            self._changed[level].update(changed)

    def bands(
        self, level: int, families: Integers | int, elements: Integers
    ) -> tuple[Integers, Integers]:
        """Compute the fewest and most replicas of each pair of family and element."""
        kinds = self.kinds[families]
        held = self.counts[level - 1][families, self.levels.parent[level][elements]]
        share = held * self._weights.own[level][kinds, elements]
        whole = self._weights.whole[level][kinds, elements]
        least = share // whole
        return least, least + (least * whole < share)

    def has_share(self, level: int, family: int, elements: Integers) -> Mask:
        """Mask the elements that have a share of the family."""
        found: Mask = self._weights.own[level][self.kinds[family], elements] > 0
        return found

    def change_of(
        self,
        level: int,
        families: Integers | int,
        elements: Integers,
        more: Integers | int,
        strict: bool = False,
    ) -> Integers:
        """Compute the change of each pair's squared distance with `more` replicas in it.

        `families`: one for each element, or one for all. The count of the element above stays the
        same; `strict`: without slack.
        """
        least, most = self.bands(level, families, elements)
        if not strict:
            least, most = self._loosen(level, families, elements, least, most)
        held = self.counts[level][families, elements]
        changed = _squared_distance(held + more, least, most) - _squared_distance(held, least, most)
        return self._scaled(level, families, elements, changed)

    def distance_around(self, level: int, families: Integers, nodes: Sequence[int]) -> int:
        """Sum the distances among the siblings of the domains of these nodes.

        Moves between the nodes change nothing else.
        """
        if not len(families):
            return 0
        above = sorted({int(self.levels.of[level - 1][node]) for node in nodes})
        elements = np.concatenate([self.levels.children(level, parent) for parent in above])
        return int(self._distances(level, families[:, None], elements).sum())

    def pressure(self, level: int, elements: Integers) -> NDArray[np.float64]:
        """Compute the replicas of the first family in each element, per weight."""
        weight = np.maximum(self._weights.own[level][self.kinds[0], elements], 1)
        found: NDArray[np.float64] = self.counts[level][0, elements] / weight
        return found

    def uneven_families(self, level: int) -> list[tuple[int, int]]:
        """List families with the parents of elements outside their bands, worst first."""
        known = self._uneven.get(level)
        if known is None:
            known = self._uneven[level] = self._find_uneven(level)
        else:
            for family, above in self._changed[level]:
                elements = self.levels.children(level, above)
                distance = int(self._distances(level, np.asarray([family]), elements).sum())
                known[family, above] = distance
                if not distance:
                    del known[family, above]
        self._changed[level] = set()
        return sorted(known, key=lambda key: (-known[key], key))

    def _find_uneven(self, level: int) -> dict[tuple[int, int], int]:
        """Sum the distances of each family inside each element above, where there are any."""
        parent = self.levels.parent[level]
        found: dict[tuple[int, int], int] = {}
        for first in range(0, len(self.kinds), _ROWS):
            rows = slice(first, first + _ROWS)
            kinds, counts = self.kinds[rows], self.counts[level][rows]
            # Only what is a whole replica off can be outside a band: it has replicas, or a share of
            # at least one, which no element has inside most of those above for a small family.
            above = self.counts[level - 1][rows]
            largest, least = self._weights.largest_shares[level]
            some = counts > 0
            full = above * largest[kinds] >= least[kinds]
            if full.any():
                some |= full[:, parent]
            if not some.any():
                continue
            row, element = np.divmod(np.flatnonzero(some), counts.shape[1])
            held, kind = above[row, parent[element]], kinds[row]
            whole = self._weights.whole[level][kind, element]
            off = counts[row, element] * whole - held * self._weights.own[level][kind, element]
            far = np.abs(off) >= whole
            if not far.any():
                continue
            row, element = row[far], element[far]
            outside = self._distances(level, first + row, element)
            sums = np.zeros((len(kinds), self.levels.size(level - 1)), np.int64)
            np.add.at(sums.reshape(-1), row * sums.shape[1] + parent[element], outside)
            rows_off, uneven = np.nonzero(sums)
            keys = zip((first + rows_off).tolist(), uneven.tolist(), strict=True)
            found.update(zip(keys, sums[rows_off, uneven].tolist(), strict=True))
        return found

    def skews(self) -> list[int]:
        """Measure how uneven the worst family is inside the worst parent, by level from 1.

        Between equal siblings the largest difference, else the largest distance from a share,
        rounded up.
        """
        result = []
        for level in range(1, self.levels.last + 1):
            most = 0
            for kind in np.unique(self.kinds).tolist():
                rows = np.flatnonzero(self.kinds == kind)
                for first in range(0, len(rows), _ROWS):
                    most = max(most, self._skew(level, kind, rows[first : first + _ROWS]))
            result.append(most)
        return result

    def _grid(self, level: int, rows: Integers) -> tuple[Integers, Integers, Integers]:
        elements = np.arange(self.levels.size(level))
        least, most = self.bands(level, rows[:, None], elements[None, :])
        return self.counts[level][rows], least, most

    def _distances(self, level: int, families: Integers, elements: Integers) -> Integers:
        """Compute the distance of each pair from its share."""
        least, most = self._loosen(
            level, families, elements, *self.bands(level, families, elements)
        )
        outside = _squared_distance(self.counts[level][families, elements], least, most)
        return self._scaled(level, families, elements, outside)

    def _scaled(
        self, level: int, families: Integers | int, elements: Integers, distances: Integers
    ) -> Integers:
        """Scale the distances of pairs, where they count more in elements of less weight."""
        if self._scales is None:
            return distances
        scaled: Integers = distances * self._scales[level][self.kinds[families], elements]
        return scaled

    def _loosen(
        self,
        level: int,
        families: Integers | int,
        elements: Integers,
        least: Integers,
        most: Integers,
    ) -> tuple[Integers, Integers]:
        """Widen the bands by the slack.

        That of one does not add up over the levels: a node of a domain that has one more than its
        share has at most one more than its share of the fleet.
        """
        if self._slack is Slack.NONE:
            return least, most
        if self._slack is Slack.ONE:
            fewest, largest = self._fleet_bands(level, families, elements)
            lower, upper = least - (least > 1), most + 1
            lower = np.minimum(np.maximum(lower, fewest - (fewest > 1)), least)
            return lower, np.maximum(np.minimum(upper, largest + 1), most)
        held = self.counts[level - 1][families, self.levels.parent[level][elements]]
        slack = np.maximum(np.minimum(most, (held - most) // 2), 1)
        return least - slack, most + slack

    def _fleet_bands(
        self, level: int, families: Integers | int, elements: Integers
    ) -> tuple[Integers, Integers]:
        """Compute the band of each pair by the element's share of all that its fleet has."""
        fleet = self.levels.fleet[level][elements]
        kinds = self.kinds[families]
        whole = np.maximum(self._weights.own[0][kinds, fleet], 1)
        share = self.counts[0][families, fleet] * self._weights.own[level][kinds, elements]
        return share // whole, -(-share // whole)

    def _skew(self, level: int, kind: int, rows: Integers) -> int:
        weights, above = self._weights.own[level][kind], self.levels.parent[level]
        usable = np.flatnonzero(weights > 0)
        if not len(usable):
            return 0
        usable = usable[np.argsort(above[usable], kind="stable")]
        starts = np.flatnonzero(np.diff(above[usable], prepend=-1))
        held, least, most = (each[:, usable] for each in self._grid(level, rows))
        highest = np.maximum.reduceat(held, starts, axis=1)
        lowest = np.minimum.reduceat(held, starts, axis=1)
        off = np.maximum.reduceat(np.maximum(held - least, most - held), starts, axis=1)
        alike = np.maximum.reduceat(weights[usable], starts)
        alike = alike == np.minimum.reduceat(weights[usable], starts)
        return int(np.where(alike, highest - lowest, off).max(initial=0))


def _squared_distance(held: Integers, least: Integers, most: Integers) -> Integers:
    distance = np.maximum(held - most, 0) + np.maximum(least - held, 0)
    squared: Integers = distance * distance
    return squared


def _sum_by(of: Integers, own: Integers, size: int) -> Integers:
    total = np.zeros(size, np.int64)
    np.add.at(total, of, own)
    return total
