"""Finds chains of leadership changes, for where no single change helps.

A node leads too many shards, and no node that leads too few has a replica of one of them. A chain
passes leadership on from the one to the other: each node between gives one shard up and takes one
over, so that its count stays. The search is breadth first and finds the shortest chain; where that
makes a stream uneven that is to be even first, another is searched for (`sparing_paths`). A chain
is made as a whole, and only if it lowers the objective.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY
from placement.rebalance.objective import Objective
from placement.rebalance.shares import FamilyCounts, Integers, LevelShares
from placement.rebalance.sparing_paths import Handover, SparingPaths

# Links of a chain, nodes that a search reaches, shards looked at on each: a way that is not found
# in these is not worth the changes of leaders that it takes.
_LINKS = 6
_REACHED = 512
_SHARDS = 48
# Searches in vain for the families of one kind on one level. A fleet whose rules leave many uneven
# has no chain for most.
_SEARCHES = 200

# A shard, by item, and the node that is to lead it.
Link = tuple[int, int]


class LeaderChains:
    """Searches for chains of leadership changes.

    - `families`: of every item, by tally, EMPTY for none.
    - `members`: by item, the nodes (by rank) that may lead it.
    - `leads`: items by the node that leads them now.
    - `is_allowed`: asks the rules whether a node may lead an item.
    """

    def __init__(
        self,
        levels: LevelShares,
        tallies: list[FamilyCounts],
        families: list[Integers],
        members: Integers,
        leads: dict[int, set[int]],
        is_allowed: Callable[[int, int], bool],
        objective: Objective,
        groups: Sequence[Sequence[int]],
    ) -> None:
        self._levels, self._tallies, self._families = levels, tallies, families
        self._members, self._leads, self._is_allowed = members, leads, is_allowed
        self._objective, self._groups = objective, groups
        self._left = _SEARCHES
        first = groups[0][0]
        self._sparing = SparingPaths(
            levels, tallies[first], families[first], members, leads, is_allowed
        )

    def run(self, make: Callable[[list[Link]], None]) -> bool:
        """Search chains for every uneven family once; returns whether there was one.

        `make` carries out the links of a chain in their order.
        """
        found = False
        for group in self._groups:
            for level in range(1, self._levels.last + 1):
                # A chain ends where it began, one level up: this stays as it is.
                led = find_leading(self._levels.of[level - 1], self._leads)
                for kind in group:
                    self._left = _SEARCHES
                    for family, parent in self._tallies[kind].uneven_families(level):
                        while parent in led and (links := self._find(level, kind, family, parent)):
                            make(links)
                            found = True
        return found

    def _find(self, level: int, kind: int, family: int, parent: int) -> list[Link]:
        """Find a chain of the family between two elements inside `parent`; empty if none helps."""
        for starts, ends in self._ends(level, self._tallies[kind], family, parent):
            if not self._left:
                return []
            if ends is None:
                self._left -= 1
                continue
            links = self._find_path(kind, family, starts, ends)
            upto = level if kind in self._groups[0] else None
            improves = bool(links) and self._objective.is_lowered_by(links, upto)
            if not improves and kind in self._groups[0][1:]:
                links = self._sparing.find(level, starts, ends)
                improves = bool(links) and self._objective.is_lowered_by(links, upto)
            if improves:
                return [(item, heir) for item, _, heir in reversed(links)]
            self._left -= 1
        return []

    def _ends(
        self, level: int, tally: FamilyCounts, family: int, parent: int
    ) -> Iterator[tuple[Integers, NDArray[np.bool_] | None]]:
        """Yield the nodes of an overloaded element with a mask of nodes that have room.

        Without a mask where no item is led in the element, so that no chain begins there.
        """
        levels = self._levels
        elements = levels.children(level, parent)
        elements = elements[tally.has_share(level, family, elements)]
        relief = -tally.change_of(level, family, elements, -1)
        burden = tally.change_of(level, family, elements, 1)
        order = np.lexsort((elements, -relief))
        leading = find_leading(levels.of[level], self._leads)
        for giver in order[relief[order] > burden.min(initial=0)].tolist():
            if int(elements[giver]) not in leading:
                yield elements[:0], None
                continue
            ends = levels.mask_inside(level, elements[burden < relief[giver]])
            starts = levels.members(level, int(elements[giver]))
            ends[starts] = False
            yield starts, ends

    def _find_path(
        self, kind: int, family: int, starts: Integers, ends: NDArray[np.bool_]
    ) -> list[Handover]:
        """Find the shortest path from a start to an end.

        Returns (item, old leader, new leader) for each link; empty if there is no path.
        """
        if len(starts) > _REACHED and not self._leads.get(int(starts[0])):
            return []  # of so many the loop below looks at the first alone
        came: dict[int, tuple[int, int] | None] = dict.fromkeys(starts.tolist())
        reached = list(came)
        for _ in range(_LINKS):
            further: list[int] = []
            for node in reached:
                # Few of a rack's nodes lead one of the items.
                links = self._possible_links(kind, family, node) if self._leads.get(node) else ()
                for item, heir in links:
                    if heir in came or not self._is_allowed(item, heir):
                        continue
                    came[heir] = (item, node)
                    if ends[heir]:
                        return _trace_back(came, heir)
                    further.append(heir)
                if len(came) > _REACHED:
                    return []
            reached = further
        return []

    def _possible_links(self, kind: int, family: int, node: int) -> Iterator[Link]:
        """Yield the family's items that the node leads, each with every possible new leader."""
        families = self._families[kind]
        own = [item for item in sorted(self._leads[node]) if families[item] == family]
        for item in own[:_SHARDS]:
            for heir in self._members[item].tolist():
                if heir not in (EMPTY, node):
                    yield item, heir


def find_leading(of: Integers, leads: Mapping[int, Collection[int]]) -> set[int]:
    """Find the elements of a level in which one of the items is led. `of`: element by node."""
    return {int(of[node]) for node, items in leads.items() if items}


def _trace_back(came: dict[int, tuple[int, int] | None], end: int) -> list[Handover]:
    """List the links from the start to the end."""
    links: list[Handover] = []
    node, step = end, came[end]
    while step is not None:
        item, source = step
        links.append((item, source, node))
        node, step = source, came[source]
    return links[::-1]
