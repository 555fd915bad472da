"""The bands in which nodes should be, for each resource that is balanced.

A band lies around the mean utilisation of eligible nodes with a capacity. Balancing begins when a
node is outside the band and ends when all are within half of it, so that loads which waver around
an edge move nothing.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.rebalance.resource_arrangement import Integers, ResourceArrangement
from placement.rules import BOUNDLESS, Mask, band_edges

# How far inside the band balancing ends.
_HALF = 0.5
# The share of a node's capacity from which on a shard is worth moving for balance: a thousand such
# moves fill a node.
SMALLEST_SHARE = 0.001


@dataclass(frozen=True, slots=True)
class Bands:
    """Edges by resource and node.

    - `active`: resources of which a node is outside its band.
    - `low`, `high`: where balancing ends; the whole band for resources that are not active. A node
      with a larger shard than that may keep this one.
    - `floor`, `ceiling`: what no node may leave: the band, or where it was if that is outside.
    - `share`: the load of each node at the mean utilisation, 1 where it is not balanced.
    - `price`: bytes for a unit of each resource in the mean, 0 if it is not balanced.
    """

    active: Mask
    low: Integers
    high: Integers
    floor: Integers
    ceiling: Integers
    share: NDArray[np.float64]
    price: NDArray[np.float64]

    def over(self, totals: Integers) -> Integers:
        """Compute what nodes hold above the edge at which balancing ends."""
        found: Integers = np.maximum(totals - self.high, 0)
        return found

    def under(self, totals: Integers) -> Integers:
        """Compute what nodes lack below the edge at which balancing ends."""
        found: Integers = np.maximum(self.low - totals, 0)
        return found


def needs_balance(arrangement: ResourceArrangement) -> tuple[int, ...]:
    """Return the resources of which a node is outside its band, by their numbers."""
    found = []
    for row, each in enumerate(arrangement.resources):
        if each.balance is not None:
            low, high, _ = _edges(arrangement, row, each.balance)
            totals = arrangement.totals[row]
            if ((totals < low) | (totals > high)).any():
                found.append(row)
    return tuple(found)


def bands_of(arrangement: ResourceArrangement) -> Bands:
    """Compute the bands of an arrangement as it stands."""
    active = np.zeros(len(arrangement.resources), bool)
    active[list(needs_balance(arrangement))] = True
    largest = np.zeros(arrangement.totals.shape, np.int64)
    if active.any():
        everything = np.arange(len(arrangement.node))
        for row, borne in enumerate(arrangement.borne(everything)):
            np.maximum.at(largest[row], arrangement.node, borne)
    shape = arrangement.totals.shape
    low, high = np.zeros(shape, np.int64), np.full(shape, BOUNDLESS)
    floor, ceiling, share = low.copy(), high.copy(), np.ones(shape)
    price = np.zeros(shape[0])
    for row, each in enumerate(arrangement.resources):
        if each.balance is None:
            continue
        floor[row], ceiling[row], share[row] = _edges(arrangement, row, each.balance)
        inner = each.balance * _HALF if active[row] else each.balance
        low[row], high[row], _ = _edges(arrangement, row, inner)
        high[row] = np.maximum(high[row], largest[row])
        balanced = ceiling[row] < BOUNDLESS
        price[row] = 1.0 / max(float(share[row][balanced].sum()), 1.0) if balanced.any() else 0.0
    floor = np.minimum(floor, arrangement.totals)
    ceiling = np.maximum(ceiling, arrangement.totals)
    return Bands(active, low, high, floor, ceiling, share, price)


def _edges(
    arrangement: ResourceArrangement, row: int, band: float
) -> tuple[Integers, Integers, NDArray[np.float64]]:
    """Compute the edges of a band of one resource; see `band_edges`."""
    counted = arrangement.totals[row], arrangement.capacity[row], arrangement.eligible
    return band_edges(*counted, band)


def movable(arrangement: ResourceArrangement, bands: Bands, items: Integers) -> Mask:
    """Mask the items that may be moved for balance.

    Those that are free, do not dwell, and bear at least `SMALLEST_SHARE` of their node's capacity
    of a resource that is active.
    """
    borne = arrangement.borne(items)[bands.active]
    capacity = arrangement.capacity[bands.active][:, arrangement.node[items]]
    large = ((capacity > 0) & (borne > 0) & (borne >= capacity * SMALLEST_SHARE)).any(axis=0)
    found: Mask = large & arrangement.free[items] & ~arrangement.dwelling[items]
    return found & arrangement.eligible[arrangement.node[items]]
