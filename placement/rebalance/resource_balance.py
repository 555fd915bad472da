"""Moves single replicas and leadership until every node is inside its bands.

The worst node of all resources is looked at first. A change counts by the load that it brings
inside the bands, over all resources at once, for each byte that it copies; among changes that are
about as good the largest is made, so that few are needed. Where no single change helps, exchanges
of two replicas are tried.
"""

import numpy as np
from numpy.typing import NDArray

from placement.rebalance.resource_arrangement import Integers, ResourceArrangement
from placement.rebalance.resource_bands import Bands, movable
from placement.rules import BOUNDLESS, Mask

Floats = NDArray[np.float64]
# The nodes that a change has changed; none if there was no change.
Ends = tuple[int, ...]

# Nodes looked at as the other end of a move: those that want it most by the resource in question,
# and those that do by all resources.
_BY_RESOURCE, _BY_ALL = 8, 6
# Nodes whose items are looked at for one that takes: all their items are compared.
_DONORS = 6
# Items of a node that are looked at for one move.
_ITEMS = 32
# Candidates whose rules are asked for before a node is given up: rules forbid few where they leave
# room, and where they leave none looking at all is no help.
_ASKED = 48
# Moves that are made with one look at the candidates.
_AT_ONCE = 12
# Changes that gain at least this share of the best gain for each byte count as equally good.
_AS_GOOD = 0.97
# Partners that are looked at for an exchange, and replicas of either side.
_PARTNERS, _EXCHANGED = 8, 40
# How often nodes that were given up are looked at again after others have changed.
_ROUNDS = 4


class ResourceBalancer:
    """Makes changes of an arrangement that lead into the bands; `copied` is the row of bytes.

    With `strict` no change takes any node out of a band, or farther out; else a change may do so
    for a resource that is being balanced, if more is gained elsewhere.
    """

    def __init__(
        self, arrangement: ResourceArrangement, bands: Bands, copied: int, strict: bool
    ) -> None:
        self._arrangement, self._bands, self._copied = arrangement, bands, copied
        self._movable: dict[int, Integers] = {}
        self._price = bands.price[:, None]
        self._counted = bands.ceiling < BOUNDLESS
        self._rows = np.flatnonzero(bands.price > 0).tolist()
        self._strict = strict | ~bands.active
        totals = arrangement.totals
        self._over, self._under = bands.over(totals), bands.under(totals)

    def run(self) -> None:
        """Change the arrangement until all nodes are inside or no change helps."""
        for _ in range(_ROUNDS):
            before = self._distance()
            if not before:
                return
            self._pass()
            if self._distance() >= before * 0.999:
                return

    def _distance(self) -> float:
        return float(((self._over + self._under) / self._bands.share).sum())

    def _pass(self) -> None:
        """Look at the worst node again and again until all that are left are given up."""
        share, shape = self._bands.share, self._over.shape
        outside = np.stack([self._over / share, self._under / share])
        blocked = np.zeros(outside.shape, bool)
        while True:
            place = int(outside.argmax())
            if not outside.flat[place]:
                return
            side, row, node = (int(n) for n in np.unravel_index(place, (2, *shape)))
            ends = self._improve(row, node, takes=bool(side))
            if not ends:
                blocked[side, row, node] = True
            for end in ends or (node,):
                self._weigh(end)
                outside[0, :, end] = self._over[:, end] / share[:, end]
                outside[1, :, end] = self._under[:, end] / share[:, end]
                outside[:, :, end][blocked[:, :, end]] = 0.0

    def _weigh(self, node: int) -> None:
        """Compute anew how far outside a node is."""
        totals, bands = self._arrangement.totals[:, node], self._bands
        self._over[:, node] = np.maximum(totals - bands.high[:, node], 0)
        self._under[:, node] = np.maximum(bands.low[:, node] - totals, 0)

    def _improve(self, row: int, node: int, takes: bool) -> Ends:
        """Make one change that brings the node nearer to its band; returns whom it changed."""
        if self._arrangement.led[row]:
            ends = self._hand_over(row, node, takes)
            if ends:
                return ends
        single = self._pull if takes else self._push
        return single(row, node) or self._exchange(row, node, takes)

    def _items(self, node: int) -> Integers:
        """Find the items on a node that may be moved for balance."""
        if node not in self._movable:
            items = self._arrangement.items_on(node)
            self._movable[node] = items[movable(self._arrangement, self._bands, items)]
        return self._movable[node]

    def _ends(self, row: int, node: int, takes: bool) -> Integers:
        """Choose the nodes that come into question as the other end, best first."""
        arrangement, share = self._arrangement, self._bands.share
        sign = -1.0 if takes else 1.0
        tension = sign * arrangement.totals / share
        by_all = tension[self._rows[0]]
        for each in self._rows[1:]:
            by_all = by_all + tension[each]
        fit = arrangement.eligible & (self._counted[row] == self._counted[row, node])
        fit[node] = False
        found = np.flatnonzero(fit)
        first = found[np.argsort(tension[row][found], kind="stable")[:_BY_RESOURCE]]
        fit[first] = False
        found = np.flatnonzero(fit)
        second = found[np.argsort(by_all[found], kind="stable")[:_BY_ALL]]
        return np.concatenate([first, second])

    def _push(self, row: int, node: int) -> Ends:
        """Move a replica off the node."""
        items, targets = self._items(node), self._ends(row, node, takes=False)
        items = self._shortlist(items[self._arrangement.borne(items)[row] > 0])
        if not len(items) or not len(targets):
            return ()
        return self._make_best(row, node, items, targets)

    def _shortlist(self, items: Integers) -> Integers:
        """Select the items whose leaving gains most for each byte."""
        arrangement = self._arrangement
        if len(items) <= _ITEMS:
            return items
        borne = arrangement.borne(items)
        gain, allowed = self._change(arrangement.node[items], -borne)
        items, gain = items[allowed], gain[allowed]
        worth = gain / np.maximum(arrangement.bytes_of(items, self._copied), 1)
        good = worth >= worth.max(initial=0.0) * _AS_GOOD
        order = np.lexsort((np.where(good, -gain, -worth), ~good))
        chosen: Integers = np.sort(items[order[:_ITEMS]])
        return chosen

    def _pull(self, row: int, node: int) -> Ends:
        """Move a replica to the node."""
        sources = self._ends(row, node, takes=True)[:_DONORS]
        if not len(sources):
            return ()
        items = np.concatenate([self._items(source) for source in sources.tolist()])
        items = items[self._arrangement.borne(items)[row] > 0]
        if not len(items):
            return ()
        return self._make_best(row, node, items, np.asarray([node]))

    def _gain_of_moves(self, items: Integers, targets: Integers) -> Floats:
        """Compute what each move brings inside the bands, -1 where it may not be made."""
        arrangement = self._arrangement
        borne, sources = arrangement.borne(items), arrangement.node[items]
        leaving, left = self._change(sources, -borne)
        shape = (len(items), len(targets))
        gain = np.broadcast_to(leaving[:, None], shape).copy()
        allowed = np.broadcast_to(left[:, None], shape) & arrangement.fits(items, targets)
        arriving, right = self._change(targets[None, :], borne[:, :, None])
        gain += arriving
        allowed &= right
        for row in self._rows:
            # What leaves the nodes that are balanced would shift their mean.
            counted = self._counted[row]
            if not counted.all():
                crosses = counted[sources][:, None] != counted[targets][None, :]
                allowed &= ~(crosses & (borne[row] > 0)[:, None])
        gain[~allowed] = -1.0
        return gain

    def _change(self, nodes: Integers, more: Integers) -> tuple[Floats, Mask]:
        """Compute what more load on nodes brings inside, and whether that is allowed.

        `more` has a row for each resource.
        """
        bands, totals = self._bands, self._arrangement.totals
        gain: Floats = np.zeros(np.broadcast_shapes(nodes.shape, more.shape[1:]))
        allowed: Mask = np.ones(gain.shape, bool)
        for row in self._rows:
            then = totals[row][nodes] + more[row]
            outside = np.maximum(then - bands.high[row][nodes], bands.low[row][nodes] - then)
            now = self._over[row][nodes] + self._under[row][nodes]
            gain += (now - np.maximum(outside, 0)) * bands.price[row]
            if self._strict[row]:
                left = (then > bands.ceiling[row][nodes]) | (then < bands.floor[row][nodes])
                allowed &= ~left | (more[row] == 0)
        return gain, allowed

    def _make_best(self, row: int, node: int, items: Integers, targets: Integers) -> Ends:
        """Make the best moves that the rules allow, until the node is inside its band.

        A few with one look at all candidates: gains fall as moves are made, so that the best one
        is weighed again, and made if it is still the best.
        """
        arrangement, width = self._arrangement, len(targets)
        gain = self._gain_of_moves(items, targets)
        cost = np.maximum(arrangement.bytes_of(items, self._copied), 1)[:, None]
        worth = gain / cost
        made, weighed, ends = 0, np.zeros(gain.shape, np.int64), set[int]()
        for _ in range(_ASKED):
            best = worth.max()
            if best <= 0 or made == _AT_ONCE or not self._outside(row, node):
                break
            place = int(np.where(worth >= best * _AS_GOOD, gain, -1.0).argmax())
            i, t = divmod(place, width)
            if weighed[i, t] < made:
                gain[i, t] = self._weigh_again(int(items[i]), int(targets[t]))
                worth[i, t], weighed[i, t] = gain[i, t] / cost[i, 0], made
                continue
            if arrangement.may_move(int(items[i]), int(targets[t])):
                ends.update(self._move(int(items[i]), int(targets[t])))
                worth[i] = -1.0
                made += 1
            else:
                worth[i, t] = -1.0
        return tuple(sorted(ends))

    def _weigh_again(self, item: int, target: int) -> float:
        """Compute the gain of a move that was allowed a short time ago; -1 if it is not now."""
        arrangement, bands, source = (
            self._arrangement,
            self._bands,
            int(self._arrangement.node[item]),
        )
        totals, shard = arrangement.totals, int(arrangement.shard[item])
        gain = 0.0
        for row in range(len(arrangement.resources)):
            more = int(arrangement.loads[row, shard])
            if not more or (arrangement.led[row] and arrangement.slot[item]):
                continue
            arrived = int(totals[row, target]) + more
            if arrived > arrangement.limit[row, target]:
                return -1.0
            if not bands.price[row]:
                continue
            change = 0
            for node, then in ((source, int(totals[row, source]) - more), (target, arrived)):
                low, high = int(bands.low[row, node]), int(bands.high[row, node])
                now = int(self._over[row, node]) + int(self._under[row, node])
                change += now - max(then - high, low - then, 0)
                inside = bands.floor[row, node] <= then <= bands.ceiling[row, node]
                if self._strict[row] and not inside:
                    return -1.0
            gain += change * float(bands.price[row])
        return gain

    def _outside(self, row: int, node: int) -> bool:
        return bool(self._over[row, node] or self._under[row, node])

    def _move(self, item: int, target: int) -> Ends:
        arrangement, source = self._arrangement, int(self._arrangement.node[item])
        arrangement.move(item, target)
        self._movable.pop(source, None)
        self._movable.pop(target, None)
        self._weigh(source)
        self._weigh(target)
        return source, target

    def _hand_over(self, row: int, node: int, takes: bool) -> Ends:
        """Let another replica lead a shard, which copies nothing."""
        arrangement = self._arrangement
        items = arrangement.items_on(node)
        items = items[(arrangement.slot[items] == 0) != takes]
        items = items[arrangement.loads[row, arrangement.shard[items]] > 0]
        before, after = arrangement.successions(items)
        if not len(after):
            return ()
        loads = arrangement.led_loads(arrangement.shard[after])
        sources, targets = arrangement.node[before], arrangement.node[after]
        leaving, left = self._change(sources, -loads)
        arriving, right = self._change(targets, loads)
        room = ((arrangement.limit - arrangement.totals)[:, targets] >= loads) | (loads == 0)
        gain = np.where(left & right & room.all(axis=0), leaving + arriving, -1.0)
        for _ in range(_ASKED):
            place = int(gain.argmax())
            if gain[place] <= 0:
                return ()
            if arrangement.free[after[place]] and arrangement.may_lead(int(after[place])):
                ends = int(sources[place]), int(targets[place])
                for end in ends:
                    self._movable.pop(end, None)
                arrangement.lead(int(after[place]))
                return ends
            gain[place] = -1.0
        return ()

    def _exchange(self, row: int, node: int, takes: bool) -> Ends:
        """Exchange a replica of the node with one of another node."""
        mine = self._exchangeable(row, node, gives=not takes)
        for other in self._ends(row, node, takes)[:_PARTNERS].tolist():
            theirs = self._exchangeable(row, other, gives=takes)
            if len(mine) and len(theirs):
                changed = self._exchange_with(node, other, mine, theirs)
                if changed:
                    return changed
        return ()

    def _exchangeable(self, row: int, node: int, gives: bool) -> Integers:
        """Select the items of a node that bear most of the resource for their bytes, or least."""
        items = self._items(node)
        cost = np.maximum(self._arrangement.bytes_of(items, self._copied), 1)
        borne = self._arrangement.borne(items)
        value = borne[row] * self._bands.price[row]
        other = (borne * self._price).sum(axis=0) - value
        rank = value - other if gives else (other - value) / cost
        chosen: Integers = np.sort(items[np.argsort(-rank, kind="stable")[:_EXCHANGED]])
        return chosen

    def _exchange_with(self, node: int, other: int, mine: Integers, theirs: Integers) -> Ends:
        arrangement = self._arrangement
        one, two = arrangement.borne(mine), arrangement.borne(theirs)
        more = two[:, None, :] - one[:, :, None]
        gain, allowed = self._change(np.asarray(node), more)
        arriving, right = self._change(np.asarray(other), -more)
        # The first of the two arrives while the other is still there; then the other goes.
        first = arrangement.fits(mine, np.asarray([other]))
        limit = (arrangement.limit - arrangement.totals)[:, node]
        then = (more <= limit[:, None, None]) | (two[:, None, :] == 0)
        gain = np.where(allowed & right & first & then.all(axis=0), gain + arriving, -1.0)
        cost = arrangement.bytes_of(mine, self._copied)[:, None]
        cost = np.maximum(cost + arrangement.bytes_of(theirs, self._copied)[None, :], 1)
        worth = gain / cost
        for _ in range(_ASKED):
            place = int(worth.argmax())
            if worth.flat[place] <= 0:
                return ()
            item, back = int(mine[place // len(theirs)]), int(theirs[place % len(theirs)])
            if arrangement.shard[item] != arrangement.shard[back] and arrangement.may_move(
                item, other
            ):
                arrangement.move(item, other)
                if arrangement.may_move(back, node):
                    self._movable.pop(other, None)
                    return self._move(back, node)
                arrangement.move(item, node)
            worth.flat[place] = -1.0
        return ()
