"""The fewest bytes that have to move, whatever the search finds.

For each resource the sum of what nodes hold above the edge of their band, or lack below it, and
above their limit: each node's excess is covered by the replicas that weigh least for what they
bear, the last one in part. The largest of these sums bounds them all. Leadership costs nothing.
"""

import numpy as np

from placement.rebalance.resource_arrangement import Integers, ResourceArrangement
from placement.rebalance.resource_bands import Bands
from placement.rules import Mask


def lower_bounds(
    arrangement: ResourceArrangement, bands: Bands | None, copied: int
) -> tuple[int, ...]:
    """Compute for each resource the bytes that have to move at least.

    `bands` is None where nothing is balanced.
    """
    totals = arrangement.totals
    over, under = arrangement.excess(), np.zeros_like(totals)
    if bands is not None:
        active = bands.active[:, None]
        over = np.maximum(over, np.where(active, bands.over(totals), 0))
        under = np.where(active, bands.under(totals), 0)
    return tuple(
        max(
            _given(arrangement, row, over[row], copied),
            _taken(arrangement, row, under[row], copied),
        )
        for row in range(len(totals))
    )


def _given(arrangement: ResourceArrangement, row: int, over: Integers, copied: int) -> int:
    """Bound the bytes that leave nodes which hold too much."""
    if row == copied and not arrangement.led[row]:
        return int(over.sum())
    return sum(
        _cover(arrangement, row, arrangement.items_on(node), int(over[node]), copied)
        for node in np.flatnonzero(over).tolist()
    )


def _taken(arrangement: ResourceArrangement, row: int, under: Integers, copied: int) -> int:
    """Bound the bytes that reach nodes which hold too little, from wherever they come."""
    lacking = int(under.sum())
    if not lacking or (row == copied and not arrangement.led[row]):
        return lacking
    items = np.arange(len(arrangement.shard))
    return _cover(arrangement, row, items, lacking, copied)


def _cover(
    arrangement: ResourceArrangement, row: int, items: Integers, amount: int, copied: int
) -> int:
    """Bound the bytes of items that bear the amount together."""
    load = arrangement.loads[row, arrangement.shard[items]]
    if arrangement.led[row]:
        load = np.where(arrangement.slot[items] == 0, load, 0)
    items, load = items[load > 0], load[load > 0]
    cost = np.where(_hands_over(arrangement, row, items), 0, arrangement.bytes_of(items, copied))
    order = np.argsort(cost / load, kind="stable")
    reached = np.cumsum(load[order])
    whole = int(np.searchsorted(reached, amount))
    spent = int(cost[order[:whole]].sum())
    if whole < len(order):
        before = int(reached[whole - 1]) if whole else 0
        last = order[whole]
        spent += (amount - before) * int(cost[last]) // int(load[last])
    return spent


def _hands_over(arrangement: ResourceArrangement, row: int, items: Integers) -> Mask:
    """Mask the items whose load of the resource another replica may take without a copy."""
    if not arrangement.led[row]:
        return np.zeros(len(items), bool)
    first = np.searchsorted(arrangement.shard, arrangement.shard[items])
    end = np.searchsorted(arrangement.shard, arrangement.shard[items], side="right")
    several: Mask = end - first > 1
    return several
