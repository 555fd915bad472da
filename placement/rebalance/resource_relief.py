"""Relieves nodes that hold more than they may: the fewest bytes that cover the excess just so.

Single replicas that cover it alone are compared with sets that are filled largest first and
completed by the one or two replicas that leave the least over. Each replica goes to the lawful
node with the most room. Where no lawful node has room, a replica of one of them makes room first.
"""

from collections.abc import Iterator

import numpy as np

from placement.rebalance.resource_arrangement import Integers, ResourceArrangement

# Replicas that are compared in pairs, and sets that are tried again without a replica that has
# found no node.
_PAIRED, _AGAIN = 256, 32
# Replicas and nodes that are tried where room has to be made first.
_CHAINED = 24


def relieve(arrangement: ResourceArrangement, copied: int | None) -> None:
    """Move replicas and leadership off nodes above their limits, the fullest node first.

    `copied` is the resource whose loads count as bytes where none is copied.
    """
    for dwelling in (False, True):
        over = arrangement.excess()
        fullness = (over / np.maximum(arrangement.limit, 1)).max(axis=0, initial=0.0)
        for node in np.argsort(-fullness, kind="stable").tolist():
            if not fullness[node]:
                break
            _Relief(arrangement, node, copied, dwelling).run()


class _Relief:
    """The relief of one node; `dwelling` replicas move only where nothing else helps."""

    def __init__(
        self, arrangement: ResourceArrangement, node: int, copied: int | None, dwelling: bool
    ) -> None:
        self._arrangement, self._node, self._dwelling = arrangement, node, dwelling
        worst = int(self._excess().argmax())
        self._copied = worst if copied is None else copied
        self._stuck: set[int] = set()

    def _excess(self) -> Integers:
        held, limit = self._arrangement.totals, self._arrangement.limit
        over: Integers = np.maximum(held[:, self._node] - limit[:, self._node], 0)
        return over

    def run(self) -> None:
        """Relieve the node as far as the rules and the room of others allow."""
        while self._excess()[self._arrangement.led].any() and self._hand_over():
            pass
        for _ in range(_AGAIN):
            items = self._items()
            chosen = self._cover(items) if self._excess().any() else items[:0]
            if not len(chosen):
                break
            for item in chosen.tolist():
                target = self._roomiest(item)
                if target is None:
                    self._stuck.add(item)
                else:
                    self._arrangement.move(item, target)
        if self._excess().any():
            self._make_room()

    def _items(self) -> Integers:
        """Find the items that may go and bear what the node has too much of."""
        arrangement = self._arrangement
        items = arrangement.items_on(self._node)
        may = arrangement.free[items]
        if not self._dwelling:
            may = may & ~arrangement.dwelling[items]
        may = may & (arrangement.borne(items)[self._excess() > 0] > 0).any(axis=0)
        items = items[may]
        if not self._stuck:
            return items
        known: Integers = items[~np.isin(items, sorted(self._stuck))]
        return known

    def _cover(self, items: Integers) -> Integers:
        """Choose items that cover the excess, largest first; as many as there are if too few."""
        arrangement, excess = self._arrangement, self._excess()
        rows = np.flatnonzero(excess)
        borne = arrangement.borne(items)
        cost = arrangement.bytes_of(items, self._copied)
        if len(rows) == 1:
            places = _cover_one(borne[rows[0]], cost, int(excess[rows[0]]))
        else:
            places = _cover_all(borne[rows], cost, excess[rows])
        chosen = items[np.asarray(places, np.int64)]
        size = arrangement.bytes_of(chosen, self._copied)
        ordered: Integers = chosen[np.lexsort((chosen, -size))]
        return ordered

    def _roomiest(self, item: int) -> int | None:
        """Find the lawful node with the lowest utilisation after taking the item."""
        arrangement = self._arrangement
        nodes = np.flatnonzero(arrangement.eligible)
        nodes = nodes[arrangement.fits(np.asarray([item]), nodes)[0]]
        for node in nodes[np.argsort(self._fullness(item, nodes), kind="stable")].tolist():
            if arrangement.may_move(item, node):
                return int(node)
        return None

    def _fullness(self, item: int, nodes: Integers) -> Integers:
        """Compute the largest utilisation of nodes with the item on them, in millionths."""
        arrangement = self._arrangement
        borne = arrangement.borne(np.asarray([item]))
        capacity = np.maximum(arrangement.capacity[:, nodes], 1)
        share = (arrangement.totals[:, nodes] + borne) / capacity
        share[arrangement.capacity[:, nodes] < 0] = 0.0
        most: Integers = (share.max(axis=0) * 1e6).astype(np.int64)
        return most

    def _hand_over(self) -> bool:
        """Let another replica lead a shard that the node leads; returns whether one can."""
        arrangement, excess = self._arrangement, self._excess() * self._arrangement.led
        items = arrangement.items_on(self._node)
        _, after = arrangement.successions(items[arrangement.slot[items] == 0])
        loads = arrangement.led_loads(arrangement.shard[after])
        targets = arrangement.node[after]
        room = ((arrangement.limit - arrangement.totals)[:, targets] >= loads) | (loads == 0)
        row = int(excess.argmax())
        useful = np.minimum(loads[row], excess[row]) * room.all(axis=0) * arrangement.free[after]
        fullness = arrangement.totals[row, targets] / np.maximum(
            arrangement.capacity[row, targets], 1
        )
        for place in np.lexsort((after, fullness, loads[row], -useful)).tolist():
            if not useful[place]:
                return False
            if arrangement.may_lead(int(after[place])):
                arrangement.lead(int(after[place]))
                return True
        return False

    def _make_room(self) -> None:
        """Move a replica to a lawful node, of which another one goes elsewhere first."""
        items = self._chain_order()
        for item in items[:_CHAINED].tolist():
            for target in self._lawful_nodes(item):
                if not self._excess().any():
                    return
                if self._make_room_on(item, target):
                    break

    def _chain_order(self) -> Integers:
        self._stuck.clear()
        items = self._items()
        rows = self._excess() > 0
        borne = np.minimum(self._arrangement.borne(items)[rows], self._excess()[rows][:, None])
        cost = self._arrangement.bytes_of(items, self._copied)
        useful = (borne / np.maximum(self._arrangement.limit[rows, self._node], 1)[:, None]).sum(
            axis=0
        )
        ordered: Integers = items[np.lexsort((items, cost, -useful))]
        return ordered

    def _lawful_nodes(self, item: int) -> Iterator[int]:
        """Generate lawful nodes without room for the item, the emptiest first."""
        arrangement = self._arrangement
        nodes = np.flatnonzero(arrangement.eligible)
        nodes = nodes[np.argsort(self._fullness(item, nodes), kind="stable")][:_CHAINED]
        for node in nodes.tolist():
            if arrangement.may_move(item, node):
                yield node

    def _make_room_on(self, item: int, target: int) -> bool:
        """Move one replica off the target and the item there, if that can be done."""
        arrangement = self._arrangement
        room = (arrangement.limit - arrangement.totals)[:, target]
        borne = arrangement.borne(np.asarray([item]))[:, 0]
        missing = np.where(borne > 0, borne - room, 0)
        others = arrangement.items_on(target)
        may = arrangement.free[others] & (self._dwelling | ~arrangement.dwelling[others])
        may &= (arrangement.borne(others) >= missing[:, None]).all(axis=0)
        may &= arrangement.shard[others] != arrangement.shard[item]
        others = others[may]
        cost = arrangement.bytes_of(others, self._copied)
        for other in others[np.lexsort((others, cost))][:_CHAINED].tolist():
            place = self._roomiest(other)
            if place is not None and place != self._node:
                arrangement.move(other, place)
                arrangement.move(item, target)
                return True
        return False


def _cover_one(load: Integers, cost: Integers, excess: int) -> list[int]:
    """Choose items of one resource whose loads reach the excess at the least cost."""
    if int(load.sum()) < excess:
        return list(range(len(load)))
    order = np.lexsort((cost, -load)).tolist()
    best: tuple[int, int, list[int]] | None = None
    prefix: list[int] = []
    left, spent = excess, 0
    for place in [None, *order]:
        if place is not None:
            if load[place] >= left:
                continue
            prefix.append(place)
            left, spent = left - int(load[place]), spent + int(cost[place])
        rest = np.setdiff1d(np.arange(len(load)), prefix)
        for end in _completions(load, cost, rest, left):
            found = spent + int(cost[end].sum()), len(prefix) + len(end), [*prefix, *end]
            if best is None or found[:2] < best[:2]:
                best = found
        if len(prefix) >= _AGAIN and best is not None:
            break
    return best[2] if best is not None else order


def _completions(load: Integers, cost: Integers, rest: Integers, left: int) -> Iterator[list[int]]:
    """Generate the cheapest item and the cheapest pair that cover what is left."""
    single = rest[load[rest] >= left]
    if len(single):
        yield [int(single[cost[single].argmin()])]
    near = rest[load[rest] < left]
    near = near[np.argsort(-load[near], kind="stable")][:_PAIRED]
    if len(near) > 1:
        enough = np.triu(load[near][:, None] + load[near][None, :] >= left, 1)
        if enough.any():
            price = np.where(
                enough, cost[near][:, None] + cost[near][None, :], np.iinfo(np.int64).max
            )
            one, two = divmod(int(price.argmin()), len(near))
            yield [int(near[one]), int(near[two])]


def _cover_all(loads: Integers, cost: Integers, excess: Integers) -> list[int]:
    """Choose items that reach the excess of several resources: the most covered for each byte."""
    left, chosen = excess.copy(), list[int]()
    open_ = np.ones(loads.shape[1], bool)
    while (left > 0).any() and open_.any():
        covered = (np.minimum(loads, left[:, None]) / excess[:, None]).sum(axis=0)
        worth = np.where(open_, covered / np.maximum(cost, 1), -1.0)
        good = np.where(worth >= worth.max() * 0.97, covered, -1.0)
        place = int(good.argmax())
        if good[place] <= 0:
            break
        chosen.append(place)
        open_[place] = False
        left = np.maximum(left - loads[:, place], 0)
    for place in sorted(chosen, key=lambda each: (-int(cost[each]), each)):
        rest = [other for other in chosen if other != place]
        if (loads[:, rest].sum(axis=1) >= excess).all():
            chosen = rest
    return chosen
