"""Finds pairs of moves that improve only together, for where no single move helps.

- An exchange: two replicas change nodes, because the nodes are full or the loads are even already.
- A detour: a replica goes to a third node, which gives another replica of the family to a node that
  the first replica may not go to.

Each of the two moves keeps the rules when its turn comes; the objective falls when both are made.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice, permutations

import numpy as np

from placement.rebalance.arrangement import ALL, LATER, OWN
from placement.rebalance.objective import ItemMove
from placement.rebalance.replica_moves import GROUPS, KINDS, ReplicaBalancer
from placement.rebalance.shares import Integers

# Most items for which exchanges of all pairs are tried.
_SWAPPED = 300
# Pairs tried in vain, for the families of one kind on one level: where rules leave a family uneven
# most have no detour, and a plan may not take minutes to find that out.
_TRIES = 200
# Nodes and items looked at from the best on.
_NODES = 6
# Of the nodes that a detour may lead over so many at most: some of them are its start or its end.
_BETWEEN = 3 * _NODES
_ITEMS = 12
_REPLICAS = 24


def search_moves(search: ReplicaBalancer) -> None:
    """Make moves until neither a single move nor a pair of moves improves."""
    pairs = MovePairs(search)
    # Both moves of a pair are of shards of their own.
    shards = sum(len(each.rows) for each in search.arrangement.streams)
    while search.improve() or (shards > 1 and pairs.improve()):
        pass


class MovePairs:
    """Finds and makes pairs of moves."""

    def __init__(self, search: ReplicaBalancer) -> None:
        self._search, self._arrangement = search, search.arrangement
        self._levels = search.arrangement.levels
        self._tries = 0

    def improve(self) -> bool:
        """Make one exchange, or all detours there are; returns whether a pair was made."""
        return self._swap_once() or self._detours()

    def _swap_once(self) -> bool:
        """Make the first exchange that improves: of each stream's items, then of all."""
        arrangement = self._arrangement
        if np.count_nonzero(arrangement.free) > _SWAPPED:
            return False
        # Items of one size change nothing in total.
        kinds = (OWN, ALL) if len(np.unique(arrangement.size[arrangement.free])) > 1 else (OWN,)
        for group in (kinds, (LATER,)):
            self._tries = _TRIES
            for level in range(1, self._levels.last + 1):
                for kind in group:
                    for family, parent in arrangement.tallies[kind].uneven_families(level):
                        if self._swap(level, kind, family, parent):
                            return True
        return False

    def _swap(self, level: int, kind: int, family: int, parent: int) -> bool:
        """Exchange an item of the family with one of another element inside `parent`."""
        elements = self._levels.children(level, parent)
        for source, target in permutations(elements.tolist(), 2):
            for giver in self._levels.members(level, source).tolist():
                items = self._search.items_of(kind, family, giver)
                for taker in self._levels.members(level, target).tolist():
                    if len(items) and self._exchange(level, items, giver, taker):
                        return True
        return False

    def _exchange(self, level: int, items: Integers, one: int, other: int) -> bool:
        """Exchange an item with one on the other node, if that lowers the objective."""
        back = self._arrangement.items_on(other)
        back = back[self._arrangement.free[back]]
        for item in items.tolist() if len(back) else ():
            own, dimension, total, later = (
                self._changes_of_exchange(level, kind, item, back, one, other)
                for kind in (*KINDS, LATER)
            )
            better = own < 0
            better |= (own == 0) & ((dimension < 0) | ((dimension == 0) & (total < 0)))
            same = (own == 0) & (dimension == 0) & (total == 0) & (later < 0)
            for which in np.flatnonzero(better | same)[:_REPLICAS].tolist():
                there, here = (item, one, other), (int(back[which]), other, one)
                if same[which]:
                    if not self._tries:
                        break
                    self._tries -= 1
                    if not self._search.objective.is_lowered_by([there, here]):
                        continue
                if self._make_both(there, here) or self._make_both(here, there):
                    return True
        return False

    def _changes_of_exchange(
        self, level: int, kind: int, item: int, back: Integers, one: int, other: int
    ) -> Integers:
        """Compute the effect of each exchange of the item on the families of one kind."""
        arrangement, change = self._arrangement, self._search.change_of
        goes = change(level, kind, np.asarray([item]), one, other)
        apart = goes + change(level, kind, back, other, one)
        family = int(arrangement.family[kind][item])
        if family < 0:
            return apart
        of, tally = self._levels.of[level], arrangement.tallies[kind]
        families, net = np.full(len(back), family), arrangement.size[item] - arrangement.size[back]
        joint = tally.change_of(level, families, np.full(len(back), of[one]), -net)
        joint += tally.change_of(level, families, np.full(len(back), of[other]), net)
        return np.where(arrangement.family[kind][back] == family, joint, apart)

    def _detours(self) -> bool:
        """Search a detour once for every uneven family; returns whether one was made."""
        found = False
        for group in GROUPS:
            for level in range(1, self._levels.last + 1):
                movable = self._search.find_movable(level - 1)
                for kind in group:
                    self._tries = _TRIES
                    for family, parent in self._arrangement.tallies[kind].uneven_families(level):
                        while (
                            movable[parent]
                            and self._tries
                            and self._detour(level, kind, family, parent)
                        ):
                            found = True
        return found

    def _detour(self, level: int, kind: int, family: int, parent: int) -> bool:
        """Make the first detour of the family between elements inside `parent`."""
        arrangement = self._arrangement
        held = arrangement.tallies[kind].counts[-1][family]
        between = np.flatnonzero((held > 0) & arrangement.eligible)
        between = between[np.lexsort((between, -held[between]))][:_BETWEEN]
        mine = arrangement.node[arrangement.free & (arrangement.family[kind] == family)]
        if set(mine.tolist()).isdisjoint(between.tolist()):
            return False
        items = {node: self._search.items_of(kind, family, node) for node in between.tolist()}
        return any(
            self._detour_over_third(level, kind, family, starts, items, ends)
            for starts, ends in self._uneven_nodes(level, kind, family, parent)
        )

    def _uneven_nodes(
        self, level: int, kind: int, family: int, parent: int
    ) -> Iterator[tuple[Integers, Integers]]:
        """Yield ranked nodes of an element with too many items, and of one with fewer."""
        levels, tally = self._levels, self._arrangement.tallies[kind]
        elements = levels.children(level, parent)
        elements = elements[tally.has_share(level, family, elements)]
        if len(elements) < 2:
            return

        @cache
        def rank_starts(giver: int) -> Integers:
            starts = levels.members(level, int(elements[giver]))
            starts = starts[tally.counts[-1][family, starts] > 0]
            return self._search.rank_nodes(level, kind, family, starts, -1)[:_NODES]

        @cache
        def rank_ends(taker: int) -> Integers:
            ends = levels.members(level, int(elements[taker]))
            ends = ends[self._arrangement.eligible[ends]]
            return self._search.rank_nodes(level, kind, family, ends, 1)[:_NODES]

        relief = -tally.change_of(level, family, elements, -1)
        burden = tally.change_of(level, family, elements, 1)
        for giver in np.lexsort((elements, -relief))[:_NODES].tolist():
            for taker in np.lexsort((elements, burden))[:_NODES].tolist():
                if giver != taker and relief[giver] > burden[taker]:
                    yield rank_starts(giver), rank_ends(taker)

    def _detour_over_third(
        self,
        level: int,
        kind: int,
        family: int,
        starts: Integers,
        between: Mapping[int, Integers],
        ends: Integers,
    ) -> bool:
        """Make the first detour from a start over a third node to an end.

        `between`: the items on the nodes that may be the third, the fullest first.
        """
        search, without = self._search, {*starts.tolist(), *ends.tolist()}
        for third in islice((node for node in between if node not in without), _NODES):
            goes_on = between[third][:_ITEMS].tolist()
            for end in ends.tolist() if goes_on else ():
                able = [item for item in goes_on if self._may_go(item, end)]
                for start in starts.tolist() if able else ():
                    for comes in search.items_of(kind, family, start)[:_ITEMS].tolist():
                        if not self._tries:
                            return False
                        if not self._may_go(comes, third):
                            continue
                        for item in able:
                            pair = (item, third, end), (comes, start, third)
                            upto = None if kind == LATER else level
                            if search.objective.is_lowered_by(pair, upto) and self._make_both(
                                *pair
                            ):
                                return True
                            self._tries -= self._tries > 0
        return False

    def _may_go(self, item: int, node: int) -> bool:
        """Return whether the item may go to the node; a refusal uses up one try."""
        if not self._tries:
            return False
        may = self._search.is_allowed(item, node)
        self._tries -= not may
        return may

    def _make_both(self, first: ItemMove, second: ItemMove) -> bool:
        """Make both moves in this order, if each is allowed when its turn comes."""
        arrangement, budget, search = self._arrangement, self._search.budget, self._search
        shards = [*arrangement.table_shards(first[0]), *arrangement.table_shards(second[0])]
        nodes = {node for _, *ends in (first, second) for node in ends}
        touched = len(shards)
        fits = all(budget.has_node_room(node, touched) for node in sorted(nodes))
        if not fits or len(set(shards)) < touched or not budget.has_room_for(shards):
            return False
        if not self._may_make(first):
            return False
        arrangement.move(first[0], first[2])
        if not self._may_make(second):
            arrangement.move(first[0], first[1])
            return False
        arrangement.move(second[0], second[2])
        budget.spend(shards, *sorted(nodes))
        search.swaps.add(len(search.steps))
        search.steps += [first, second]
        return True

    def _may_make(self, way: ItemMove) -> bool:
        arrangement, (item, _, target) = self._arrangement, way
        room = arrangement.has_room(np.asarray([target]), int(arrangement.size[item]))
        return bool(room[0]) and self._search.is_allowed(item, target)
