"""Searches small fleets again for fewer bytes: a tabu search over moves, exchanges and leaders.

It goes through arrangements outside the bands as well. Each step makes the change after which bytes
and penalties are least, the change just made being barred for a while; the penalty of a resource
rises while a node is outside its band and falls while none is. The number of steps is fixed, so
that the answer does not depend on the time there is.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placement.rebalance.resource_arrangement import Integers, ResourceArrangement
from placement.rebalance.resource_bands import Bands, movable
from placement.rebalance.resource_order import order_moves, total_bytes
from placement.rules import BOUNDLESS

Floats = NDArray[np.float64]

# The fleets that are searched: a step compares all pairs of replicas.
REPLICAS_MAX, NODES_MAX = 96, 24
# Steps from each start, and those after which a penalty follows what has been seen.
_STEPS, _ADAPT = 300, 4
# Steps in search of any arrangement inside the bands where none has been found, and after how many
# of them how many items are moved at will, search by search: changes of single items find no way
# out of some places.
_STEPS_INSIDE, _KICKS_INSIDE = 1_500, ((25, 4), (40, 6), (25, 8), (60, 5), (40, 10))
# Searches around the best arrangement, some of whose items are moved at will: how many may be in
# vain one after the other, how many there are at most, also if that is outside the bands, and their
# steps by turns.
_KICKS_IN_VAIN, _KICKS_MAX, _KICKS_OUTSIDE, _KICK_STEPS = 32, 240, 60, (25, 60, 25, 100)
# From so many times the lower bound on, so many times as many more searches may be in vain.
_FAR, _MORE = 1.2, 3
# Every so many searches one begins at the start again.
_AFRESH = 3
# Items that are drawn before one is found that may move.
_KICK_TRIES = 12
# The penalty of a byte outside the bands at the beginning, in bytes that are copied.
_PENALTY = 2.0
# How much a penalty changes, and how much more an overfull node counts than one outside a band.
_SOFTER, _HARDER, _CAPACITY = 0.75, 1.35, 8.0
# Steps for which a replica does not go back, at least and in addition by turns.
_BARRED, _TURNS = 6, 7
# Arrangements that are kept and returned.
_KEPT = 6
# A change whose rules are not kept, or a barred one.
_NEVER = float(1 << 80)
# Distances from the bands that differ by less than this share of a node's mean count as equal.
_STEP_OUTSIDE = 0.01


@dataclass(frozen=True, slots=True)
class Found:
    """An arrangement: where the items are that have moved, and who leads where that has changed.

    `rank`: overfull load, distance from the bands, bytes, moves; less is better.
    """

    rank: tuple[float, int, int, int]
    nodes: tuple[tuple[int, int], ...]
    leaders: tuple[tuple[int, int], ...]

    def apply(self, arrangement: ResourceArrangement) -> None:
        """Bring the arrangement from its start to this one."""
        arrangement.restore()
        for _, item in self.leaders:
            arrangement.lead(item)
        for item, node in self.nodes:
            arrangement.move(item, node)


def improve(
    arrangement: ResourceArrangement, bands: Bands, copied: int, bound: int, *, quick: bool
) -> tuple[Found, ...]:
    """Return the best arrangements that are found from the start and from this one, best first.

    The arrangement is left as it was found. A large fleet gives this one alone, and so does one
    that copies no more than the lower bound. `quick`: no searches around what was found.
    """
    search = _TabuSearch(arrangement, bands, copied, bound)
    search.note()
    here = search.best[0]
    if search.is_small:
        search.explore(quick)
        here.apply(arrangement)
    return (*search.within_reach, *search.best)


class _TabuSearch:
    """The state of one search; items that may not move are load that stays."""

    def __init__(
        self, arrangement: ResourceArrangement, bands: Bands, copied: int, bound: int
    ) -> None:
        self._arrangement, self._bands, self._copied = arrangement, bands, copied
        self._bound = bound
        self._rows = np.flatnonzero(
            bands.active | (bands.price > 0) | (arrangement.limit < BOUNDLESS).any(axis=1)
        )
        self._low, self._high = bands.low[self._rows], bands.high[self._rows]
        self._limit = arrangement.limit[self._rows]
        self._items = self._choose_items()
        size = arrangement.bytes_of(self._items, copied)
        self._cost = size + 1.0
        total = np.maximum(arrangement.totals[self._rows].sum(axis=1), 1)
        whole = arrangement.bytes_of(np.arange(len(arrangement.shard)), copied).sum()
        self._price = np.maximum(whole / total, 1e-9)
        self._penalty = np.full(len(self._rows), _PENALTY)
        self.best: list[Found] = []
        # Those of them inside the bands to which there is a way, and all that were tried.
        self.within_reach: list[Found] = []
        self._tried: set[object] = set()
        self._drawn = 1
        self._kick_every, self._kicked = _KICKS_INSIDE[0]

    def _choose_items(self) -> Integers:
        arrangement = self._arrangement
        if len(arrangement.shard) > REPLICAS_MAX * NODES_MAX:
            return np.zeros(0, np.int64)
        everything = np.arange(len(arrangement.shard))
        may = movable(arrangement, self._bands, everything)
        start = np.asarray([arrangement.home(item) for item in everything.tolist()], np.int64)
        over = (arrangement.start_totals > arrangement.limit).any(axis=0) & arrangement.eligible
        may |= over[start] & arrangement.free
        may[[*arrangement.changed]] = True
        found: Integers = np.flatnonzero(may)
        return found

    @property
    def is_small(self) -> bool:
        """True if the search is worth its time."""
        nodes = int(self._arrangement.eligible.sum())
        return 0 < len(self._items) <= REPLICAS_MAX and nodes <= NODES_MAX

    def read(self) -> None:
        """Start from the arrangement as it stands."""
        arrangement, items = self._arrangement, self._items
        self._node = arrangement.node[items].copy()
        self._home = np.asarray([arrangement.home(item) for item in items.tolist()], np.int64)
        self._refused = np.zeros((len(items), arrangement.size), bool)
        self._barred = np.zeros((len(items), arrangement.size), np.int64)
        self._quiet = np.zeros(len(self._rows), np.int64)
        # Until which step an item that has handed on the lead does not lead again.
        self._led_until, self._now = dict[int, int](), 0
        self._tally()

    def _tally(self) -> None:
        arrangement = self._arrangement
        self._borne = arrangement.borne(self._items)[self._rows].astype(np.float64)
        self._totals = arrangement.totals[self._rows].astype(np.float64)
        self._outside = self._weigh(self._totals, slice(None))

    def _weigh(self, held: Floats, nodes: Integers | slice) -> Floats:
        """Compute the penalties of loads on nodes, before the penalty of their resource."""
        outer = (...,) if isinstance(nodes, slice) else (slice(None), nodes)
        high, low, limit = self._high[outer], self._low[outer], self._limit[outer]
        outside = np.maximum(np.maximum(held - high, low - held), 0.0)
        found: Floats = outside + _CAPACITY * np.maximum(held - limit, 0.0)
        return found

    @property
    def is_inside(self) -> bool:
        """True if an arrangement without overfull nodes inside all bands has been found."""
        return self.best[0].rank[:2] == (0.0, 0)

    @property
    def is_least(self) -> bool:
        """True if an arrangement copies no more than the lower bound."""
        return bool(self.within_reach) and self.within_reach[0].rank[2] <= self._bound

    def _state_of_search(self) -> tuple[object, ...]:
        return self.best[0].rank, [each.rank for each in self.within_reach[:1]]

    @property
    def _is_far(self) -> bool:
        return not self.within_reach or self.within_reach[0].rank[2] > self._bound * _FAR

    def explore(self, quick: bool) -> None:
        """Search from the arrangement as it stands, from its start, and around what was found.

        `quick`: only from these two, and further where neither is inside the bands.
        """
        size = len(self._items) * self._arrangement.size
        steps = min(_STEPS, size * 2)
        self._run(steps, 1.0)
        self._arrangement.restore()
        self._run(steps, 1.0)
        if not self.is_inside:
            for self._kick_every, self._kicked in _KICKS_INSIDE[: 1 if quick else None]:
                if not self.is_inside:
                    self.best[0].apply(self._arrangement)
                    self._run(min(_STEPS_INSIDE, size * 10), 0.0)
        most = _KICKS_MAX if self.is_inside else _KICKS_OUTSIDE
        most = 0 if quick else most
        since, number, in_vain = 0, 0, max(min(_KICKS_IN_VAIN, size // 8), 4)
        # More where the bound leaves more to be found, or is far from what can be reached.
        while since < in_vain * (1 + _MORE * self._is_far) and number < most and not self.is_least:
            before = self._state_of_search()
            around = (self.best, self.within_reach or self.best)[number % 2]
            if number % _AFRESH:
                around[0].apply(self._arrangement)
            else:
                self._arrangement.restore()
            steps = _KICK_STEPS[number // 2 % len(_KICK_STEPS)]
            self._run(steps, float(self.is_inside), kicked=2 + number % 5)
            since = since + 1 if self._state_of_search() == before else 0
            number += 1

    def _run(self, steps: int, weight: float, kicked: int = 0) -> None:
        """Make the steps from the arrangement as it stands, counting bytes by the weight.

        Without weight the search ends inside the bands, and goes on elsewhere now and then.
        """
        self._weight = self._cost * weight
        self.read()
        self._kick(kicked, 0)
        for step in range(1, steps + 1):
            if not weight and not step % self._kick_every:
                self._kick(self._kicked, step)
            if self.is_least or not self._step(step):
                return
            self._adapt()
            if not self._outside.any() or not self.is_inside:
                self.note()
            if self.is_least or (not weight and self.is_inside):
                return

    def _kick(self, count: int, step: int) -> None:
        """Move items regardless of bytes and bands, by numbers that look as if drawn."""
        for _ in range(count * _KICK_TRIES):
            self._drawn = (self._drawn * 1_103_515_245 + 12_345) & 0x7FFFFFFF
            index, node = divmod(
                (self._drawn >> 7) % (len(self._items) * self._arrangement.size),
                self._arrangement.size,
            )
            if node != self._node[index] and self._move(index, node, step):
                count -= 1
            if not count:
                break
        self._penalty[:] = _PENALTY

    def _adapt(self) -> None:
        """Let penalties follow the resources' being outside their bands."""
        outside = self._outside.any(axis=1)
        self._quiet = np.where(
            outside, np.minimum(self._quiet, 0) - 1, np.maximum(self._quiet, 0) + 1
        )
        self._penalty[self._quiet >= _ADAPT] *= _SOFTER
        self._penalty[self._quiet <= -_ADAPT] *= _HARDER
        self._quiet[np.abs(self._quiet) >= _ADAPT] = 0
        np.clip(self._penalty, 0.05, 1e4, out=self._penalty)

    def note(self) -> None:
        """Keep the arrangement if it is one of the best so far."""
        arrangement, bands = self._arrangement, self._bands
        excess = float((arrangement.excess() / np.maximum(arrangement.limit, 1)).sum())
        active = bands.active[:, None]
        outside = (bands.over(arrangement.totals) + bands.under(arrangement.totals)) / bands.share
        distance = float(np.where(active, outside, 0.0).sum())
        changed = np.asarray(sorted(arrangement.changed), np.int64)
        spent = int(arrangement.bytes_of(changed, self._copied).sum())
        far = 0 if not distance else 1 + int(distance / _STEP_OUTSIDE)
        leaders = arrangement.led_at_first
        rank = (round(excess, 6), far, spent, len(changed) + len(leaders))
        if len(self.best) == _KEPT and rank >= self.best[-1].rank:
            return
        if self.best and self._leaves_a_band(excess):
            return
        nodes = tuple((item, int(arrangement.node[item])) for item in changed.tolist())
        now = tuple((shard, arrangement.leader_of(shard)) for shard in sorted(leaders))
        found = Found(rank, nodes, now)
        if self.is_small and rank[:2] == (0.0, 0):
            self._try_out(found)
        if found not in self.best:
            self.best = sorted([*self.best, found], key=lambda each: each.rank)[:_KEPT]

    def _try_out(self, found: Found) -> None:
        """Keep the arrangement if moves lead to it, ranked by their bytes."""
        key = found.nodes, found.leaders
        if key in self._tried:
            return
        self._tried.add(key)
        ordered = order_moves(self._arrangement, self._copied)
        found.apply(self._arrangement)
        if not ordered.left_out:
            rank = 0.0, 0, total_bytes(ordered.moves), len(ordered.moves)
            within = replace(found, rank=rank)
            self.within_reach = sorted([*self.within_reach, within], key=lambda each: each.rank)
            del self.within_reach[_KEPT:]

    def _leaves_a_band(self, excess: float) -> bool:
        """Return whether a node is farther outside a band than at the start, with nothing gained
        for capacity."""
        arrangement, bands = self._arrangement, self._bands
        worse = (arrangement.totals > bands.ceiling) | (arrangement.totals < bands.floor)
        return bool(worse.any()) and excess >= self.best[0].rank[0]

    def _step(self, step: int) -> bool:
        """Make the best change that is not barred; returns whether there was one."""
        singles, pairs = self._singles(), self._pairs()
        barred = self._barred >= step
        spent = float(self._weight[self._node != self._home].sum())
        now = spent + float((self._outside * self._price[:, None] * self._penalty[:, None]).sum())
        # A barred change is made all the same if nothing so good has been seen.
        known = self.best[0].rank
        hope = float(known[2]) - now if self.is_inside else -_NEVER
        singles[barred & (singles >= hope)] = _NEVER
        back = barred[:, self._node]
        pairs[(back | back.T) & (pairs >= hope)] = _NEVER
        leads, ends = self._leads()
        for _ in range(64):
            best = [float(each.min(initial=_NEVER)) for each in (singles, pairs, leads)]
            kind = best.index(min(best))
            if best[kind] >= _NEVER:
                return False
            table = (singles, pairs, leads)[kind]
            place = int(table.argmin())
            if kind == 0:
                index, target = divmod(place, singles.shape[1])
                made = self._move(index, target, step)
            elif kind == 1:
                one, two = divmod(place, len(self._items))
                made = self._exchange(one, two, step)
            else:
                made = self._lead(ends[place], step)
            if made:
                return True
            table.flat[place] = _NEVER
        return False

    def _worth(self, more: Floats) -> Floats:
        """Weigh changes of penalties by resource."""
        factor = self._price * self._penalty
        found: Floats = more[0] * factor[0]
        for row in range(1, len(factor)):
            found = found + more[row] * factor[row]
        return found

    def _singles(self) -> Floats:
        """Compute the change of bytes and penalties by each move of an item to a node."""
        node, borne = self._node, self._borne
        here = self._outside[:, node]
        leaving = self._weigh(self._totals[:, node] - borne, node) - here
        held = self._totals[:, None, :] + borne[:, :, None]
        high, low = self._high[:, None, :], self._low[:, None, :]
        arriving = np.maximum(np.maximum(held - high, low - held), 0.0)
        arriving += _CAPACITY * np.maximum(held - self._limit[:, None, :], 0.0)
        arriving -= self._outside[:, None, :]
        change = self._worth(leaving[:, :, None] + arriving)
        places = np.arange(self._arrangement.size)
        away = (places[None, :] != self._home[:, None]) * self._weight[:, None]
        change += away - (self._weight * (node != self._home))[:, None]
        change[self._refused | (places[None, :] == node[:, None])] = _NEVER
        change[:, ~self._arrangement.eligible] = _NEVER
        return change

    def _pairs(self) -> Floats:
        """Compute the change by each exchange of two items."""
        node, borne = self._node, self._borne
        held = self._totals[:, node][:, :, None] - borne[:, :, None] + borne[:, None, :]
        high, low = self._high[:, node][:, :, None], self._low[:, node][:, :, None]
        one = np.maximum(np.maximum(held - high, low - held), 0.0)
        one += _CAPACITY * np.maximum(held - self._limit[:, node][:, :, None], 0.0)
        one -= self._outside[:, node][:, :, None]
        change = self._worth(one)
        change = change + change.T
        moved = self._weight * (node != self._home)
        away = (node[None, :] != self._home[:, None]) * self._weight[:, None]
        change += away + away.T - moved[:, None] - moved[None, :]
        refused = self._refused[:, node]
        change[refused | refused.T] = _NEVER
        shard = self._arrangement.shard[self._items]
        change[node[:, None] == node[None, :]] = _NEVER
        change[shard[:, None] == shard[None, :]] = _NEVER
        change[np.tril_indices(len(node))] = _NEVER
        return change

    def _leads(self) -> tuple[Floats, list[int]]:
        """Compute the change by each hand-over, and the items that lead after it."""
        arrangement = self._arrangement
        if not arrangement.led.any():
            return np.zeros(0), []
        leaders = np.flatnonzero((arrangement.slot == 0) & arrangement.free)
        before, after = arrangement.successions(leaders)
        loads = arrangement.led_loads(arrangement.shard[after])[self._rows].astype(np.float64)
        give, take = arrangement.node[before], arrangement.node[after]
        more = self._weigh(self._totals[:, give] - loads, give) - self._outside[:, give]
        more += self._weigh(self._totals[:, take] + loads, take) - self._outside[:, take]
        change = self._worth(more) + 1.0 if len(after) else np.zeros(0)
        barred = [self._led_until.get(item, -1) for item in after.tolist()]
        change[np.asarray(barred, np.int64) >= self._now] = _NEVER
        return change, after.tolist()

    def _bar(self, index: int, node: int, step: int) -> None:
        self._barred[index, node] = step + _BARRED + step % _TURNS

    def _move(self, index: int, target: int, step: int) -> bool:
        item, source = int(self._items[index]), int(self._node[index])
        if not self._arrangement.may_move(item, target):
            self._refused[index, target] = True
            return False
        self._arrangement.move(item, target)
        self._bar(index, source, step)
        self._moved([index])
        return True

    def _exchange(self, one: int, two: int, step: int) -> bool:
        arrangement = self._arrangement
        first, second = int(self._items[one]), int(self._items[two])
        here, there = int(self._node[one]), int(self._node[two])
        if not arrangement.may_move(first, there):
            self._refused[one, there] = True
            return False
        arrangement.move(first, there)
        if not arrangement.may_move(second, here):
            arrangement.move(first, here)
            return False
        arrangement.move(second, here)
        self._bar(one, here, step)
        self._bar(two, there, step)
        self._moved([one, two])
        return True

    def _lead(self, item: int, step: int) -> bool:
        if not self._arrangement.may_lead(item):
            return False
        before = self._arrangement.leader_of(int(self._arrangement.shard[item]))
        self._arrangement.lead(item)
        self._led_until[before] = step + _BARRED + step % _TURNS
        self._moved([])
        return True

    def _moved(self, indexes: list[int]) -> None:
        """Take note of changes: rules may see the shards' other items with new eyes."""
        self._now += 1
        for index in indexes:
            self._node[index] = self._arrangement.node[self._items[index]]
            shard = self._arrangement.shard[self._items[index]]
            self._refused[self._arrangement.shard[self._items] == shard] = False
        self._tally()
