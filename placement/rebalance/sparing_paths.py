"""Finds chains of leadership changes on which the streams that come first lose nothing in sum.

The shortest chain (`leader_chains`) may make a stream uneven that another chain leaves as it is. A
stretch of links passes on the leadership of one stream, which changes only at both ends of it, so
that a path is as good as its stretches: this is the shortest path of a flow of least cost, cut off
after a few links.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY
from placement.rebalance.shares import FamilyCounts, Integers, LevelShares

# Links of a path: what takes more is not worth the changes of leaders.
_LINKS = 6
# Changes of leaders that the searches of a plan look at in all: a tenth of a second or two. It is
# enough for fleets of some dozen nodes; larger ones become as even as it allows.
_CHANGES = 12_000
# More than a stream can lose on a level by the links of one path.
_WORST = 1 << 20

# An item, the node that leads it, and the node that is to lead it.
Handover = tuple[int, int, int]


class _Stretch(NamedTuple):
    """A stream whose leadership goes from the node `first` to `last`, EMPTY where none has begun.

    `loss` is that of the path up to `first`, `path` leads to `last`.
    """

    stream: int
    first: int
    last: int
    loss: int
    path: tuple[Handover, ...]

    @property
    def key(self) -> tuple[int, int, int]:
        return self.stream, self.first, self.last


class SparingPaths:
    """Searches for paths of leadership changes that spare the streams.

    - `streams`: of every item its stream that comes before all leaders, EMPTY for none; `tally`
      counts these.
    - `members`: by item, the nodes (by rank) that may lead it.
    - `leads`: items by the node that leads them now.
    - `is_allowed`: asks the rules whether a node may lead an item.
    """

    def __init__(
        self,
        levels: LevelShares,
        tally: FamilyCounts,
        streams: Integers,
        members: Integers,
        leads: Mapping[int, set[int]],
        is_allowed: Callable[[int, int], bool],
    ) -> None:
        self._levels, self._tally, self._streams = levels, tally, streams
        self._members, self._leads, self._is_allowed = members, leads, is_allowed
        self._any = bool((streams >= 0).any())
        self._left = _CHANGES

    def find(self, level: int, starts: Integers, ends: NDArray[np.bool_]) -> list[Handover]:
        """Find a path from a start to an end by which streams lose nothing down to the level.

        Empty if there is none, if no stream comes first, or if the searches have taken too long.
        """
        if not self._any or self._left < 0:
            return []
        losses = dict.fromkeys(starts.tolist(), 0)
        known: dict[tuple[int, int, int], int] = {}
        opened = [_Stretch(EMPTY, node, node, 0, ()) for node in losses]
        for _ in range(_LINKS):
            stretches = self._extend(opened, known)
            arrived = self._arrive(level, stretches, losses)
            for each in arrived:
                if ends[each.last] and each.loss <= 0:
                    return [*each.path]
            opened = stretches + arrived
        return []

    def _extend(
        self, opened: Sequence[_Stretch], known: dict[tuple[int, int, int], int]
    ) -> list[_Stretch]:
        """Extend stretches by one link each; where two have the same ends, the lighter one stays.

        `known`: the losses of earlier stretches.
        """
        found: dict[tuple[int, int, int], _Stretch] = {}
        for each in opened:
            for item, heir in self._links(each):
                self._left -= 1
                if self._left < 0:
                    return []
                stretch = _Stretch(
                    int(self._streams[item]),
                    each.first,
                    heir,
                    each.loss,
                    (*each.path, (item, each.last, heir)),
                )
                lighter = stretch.loss < known.get(stretch.key, stretch.loss + 1)
                if lighter and heir != each.first and self._is_allowed(item, heir):
                    known[stretch.key] = stretch.loss
                    found[stretch.key] = stretch
        return [*found.values()]

    def _links(self, stretch: _Stretch) -> Iterator[tuple[int, int]]:
        """Yield the items that may go on from the last node, each with its possible leaders."""
        gone = {item for item, _, _ in stretch.path}
        for item in sorted(self._leads.get(stretch.last, ())):
            if item not in gone and stretch.stream in (EMPTY, self._streams[item]):
                for heir in self._members[item].tolist():
                    if heir not in (EMPTY, stretch.last):
                        yield item, heir

    def _arrive(
        self, level: int, stretches: Sequence[_Stretch], losses: dict[int, int]
    ) -> list[_Stretch]:
        """End stretches at their last nodes, where that is lighter than what is known.

        `losses`: the least loss of a path by node.
        """
        if not stretches:
            return []
        lost = self._lost(level, stretches)
        totals = [each.loss + more for each, more in zip(stretches, lost, strict=True)]
        order = sorted(range(len(stretches)), key=lambda at: (stretches[at].last, totals[at]))
        arrived = []
        for node, ways in groupby(order, key=lambda at: stretches[at].last):
            best = next(ways)
            if totals[best] < losses.get(node, totals[best] + 1):
                losses[node] = totals[best]
                arrived.append(_Stretch(EMPTY, node, node, totals[best], stretches[best].path))
        return arrived

    def _lost(self, level: int, stretches: Sequence[_Stretch]) -> list[int]:
        """Compute what each stream loses if one leadership goes from the first to the last node.

        What is lost on a level counts more than all that is lost below.
        """
        family, source, target = np.asarray([each.key for each in stretches], np.int64).T
        counted, stream = family >= 0, np.maximum(family, 0)
        lost = np.zeros(len(stretches), np.int64)
        for at in range(1, level + 1):
            of = self._levels.of[at]
            change = self._tally.change_of(at, stream, of[source], -1)
            change += self._tally.change_of(at, stream, of[target], 1)
            apart = counted & (of[source] != of[target])
            lost = lost * _WORST + np.where(apart, change, 0)
        return [int(each) for each in lost]
