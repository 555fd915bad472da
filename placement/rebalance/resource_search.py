"""Plans the moves that relieve nodes and even out resources, with the fewest bytes.

Capacity first: nodes above their limits are relieved. Then the bands: single moves, exchanges,
changes of leaders. Changes that turn out to be needless are taken back, small fleets are searched
again for fewer bytes, and what is left is ordered so that no node is overfilled on the way.
"""

from dataclasses import dataclass

import numpy as np

from placement.model import COPIED_RESOURCE
from placement.rebalance.resource_arrangement import Integers, ResourceArrangement
from placement.rebalance.resource_balance import ResourceBalancer
from placement.rebalance.resource_bands import Bands, bands_of
from placement.rebalance.resource_bounds import lower_bounds
from placement.rebalance.resource_improvement import Found, improve
from placement.rebalance.resource_order import OrderedMoves, ResourceMove, order_moves, total_bytes
from placement.rebalance.resource_relief import relieve


@dataclass(frozen=True, slots=True)
class ResourcePlan:
    """Moves by wave, with their effect.

    - `bytes`, `lower_bound`: what the moves copy, and what has to be copied at least; `bounds` by
      resource, of which `lower_bound` is the largest.
    - `balanced`: resources of which a node was outside its band.
    - `peak`: the most that each node holds on the way, by resource.
    - `excess`: what nodes still hold above their limits, by resource; `outside`: how far they
      still are from their bands.
    """

    moves: tuple[ResourceMove, ...]
    bytes: int
    lower_bound: int
    bounds: tuple[int, ...]
    balanced: tuple[int, ...]
    peak: Integers
    excess: Integers
    outside: Integers

    @property
    def waves(self) -> int:
        """Number of waves."""
        return self.moves[-1].wave + 1 if self.moves else 0


def plan_relief(arrangement: ResourceArrangement) -> ResourcePlan:
    """Plan the moves that relieve nodes above their limits, and nothing else."""
    if not arrangement.excess().any():
        return _nothing(arrangement, None)
    copied = copied_row(arrangement, None)
    bounds = lower_bounds(arrangement, None, copied)
    relieve(arrangement, _configured(arrangement))
    ordered = order_moves(arrangement, copied)
    return _plan(arrangement, None, ordered, bounds)


def plan_resources(arrangement: ResourceArrangement, *, quick: bool = False) -> ResourcePlan:
    """Plan the moves that relieve nodes and bring all that are balanced into their bands.

    `quick`: a small fleet is searched for fewer bytes a fifth as long, as the stream does.
    """
    if not any(each.balance is not None for each in arrangement.resources):
        return plan_relief(arrangement)
    bands = bands_of(arrangement)
    if not bands.active.any() and not arrangement.excess().any():
        return _nothing(arrangement, bands)
    copied = copied_row(arrangement, bands)
    bounds = lower_bounds(arrangement, bands, copied)
    relieve(arrangement, _configured(arrangement))
    relieved = dict(arrangement.changed)
    if bands.active.any():
        ResourceBalancer(arrangement, bands, copied, strict=False).run()
        if _is_worse(arrangement, bands, relieved):
            arrangement.restore()
            relieve(arrangement, _configured(arrangement))
            ResourceBalancer(arrangement, bands, copied, strict=True).run()
    take_back(arrangement, bands, copied)
    ordered = _order_best(arrangement, bands, copied, max(bounds), quick)
    return _plan(arrangement, bands, ordered, bounds)


def _order_best(
    arrangement: ResourceArrangement, bands: Bands, copied: int, bound: int, quick: bool
) -> OrderedMoves:
    """Order the moves to the best arrangement that is found and can be reached.

    One that is reached without a detour is taken at once.
    """
    best: tuple[tuple[int, int, int], Found] | None = None
    for place, found in enumerate(improve(arrangement, bands, copied, bound, quick=quick)):
        found.apply(arrangement)
        ordered = order_moves(arrangement, copied)
        rank = (ordered.left_out, total_bytes(ordered.moves), place)
        if rank[:2] == (0, found.rank[2]):
            return ordered
        if best is None or rank < best[0]:
            best = rank, found
    assert best is not None, "the arrangement itself is found"
    best[1].apply(arrangement)
    return order_moves(arrangement, copied)


def copied_row(arrangement: ResourceArrangement, bands: Bands | None) -> int:
    """Return the resource whose loads count as bytes.

    The copied one if it is configured, else the one that is farthest outside.
    """
    configured = _configured(arrangement)
    if configured is not None:
        return configured
    over = arrangement.excess() / np.maximum(arrangement.limit, 1)
    if bands is not None and not over.any():
        over = (bands.over(arrangement.totals) * bands.active[:, None]) / bands.share
    return int(over.max(axis=1, initial=0.0).argmax()) if len(over) else 0


def _configured(arrangement: ResourceArrangement) -> int | None:
    names = [each.name for each in arrangement.resources]
    return names.index(COPIED_RESOURCE) if COPIED_RESOURCE in names else None


def _is_worse(arrangement: ResourceArrangement, bands: Bands, relieved: dict[int, int]) -> bool:
    """Return whether balancing has left a node farther outside a band than before."""
    totals = arrangement.totals
    outside = (totals > bands.ceiling) | (totals < bands.floor)
    if relieved:
        outside &= ~arrangement.excess().any(axis=0)
    return bool(outside.any())


def take_back(arrangement: ResourceArrangement, bands: Bands, copied: int) -> None:
    """Take back moves, the largest first, that nothing gets worse without."""
    items = np.asarray(sorted(arrangement.changed), np.int64)
    size = arrangement.bytes_of(items, copied)
    for item in items[np.lexsort((items, -size))].tolist():
        home, now = arrangement.home(item), int(arrangement.node[item])
        ends, loads = [home, now], arrangement.borne(np.asarray([item]))[:, 0]
        before = arrangement.totals[:, ends]
        after = before + np.stack([loads, -loads], axis=1)
        high, low = bands.high[:, ends], bands.low[:, ends]
        limit = arrangement.limit[:, ends]
        worse = (after > limit) & (after > before)
        worse |= (after > high) & (after > before)
        worse |= (after < low) & (after < before)
        if not worse.any() and arrangement.may_move(item, home):
            arrangement.move(item, home)


def _nothing(arrangement: ResourceArrangement, bands: Bands | None) -> ResourcePlan:
    ordered = OrderedMoves((), arrangement.totals.copy(), 0)
    return _plan(arrangement, bands, ordered, (0,) * len(arrangement.resources))


def _plan(
    arrangement: ResourceArrangement,
    bands: Bands | None,
    ordered: OrderedMoves,
    bounds: tuple[int, ...],
) -> ResourcePlan:
    outside = np.zeros_like(arrangement.totals)
    balanced: tuple[int, ...] = ()
    if bands is not None:
        active = bands.active[:, None]
        outside = bands.over(arrangement.totals) + bands.under(arrangement.totals)
        outside = np.where(active, outside, 0)
        balanced = tuple(np.flatnonzero(bands.active).tolist())
    return ResourcePlan(
        ordered.moves,
        total_bytes(ordered.moves),
        max(bounds, default=0),
        bounds,
        balanced,
        ordered.peak,
        arrangement.excess(),
        outside,
    )
