"""Defines the objective of rebalancing: a list of whole numbers, compared from the first.

Its terms are the distances of families from their shares (`shares`), level by level from the top.
The kinds of one group come together on each level; the levels of the next group follow all of
these. A move between domains changes the counts of both, and with them the shares of all domains
below.
"""

from collections.abc import Sequence

import numpy as np

from placement.rebalance.shares import FamilyCounts, Integers, LevelShares

# An item, the node it stands on, the node it goes to.
ItemMove = tuple[int, int, int]


class Objective:
    """The terms of the objective for the counts in `tallies`, kind by kind.

    - `families`: by kind, the family of each item.
    - `sizes`: replicas that each item stands for; None where each stands for one.
    """

    def __init__(
        self,
        levels: LevelShares,
        tallies: Sequence[FamilyCounts],
        families: Sequence[Integers],
        groups: Sequence[Sequence[int]],
        sizes: Integers | None = None,
    ) -> None:
        self._levels, self._tallies, self._families = levels, tallies, families
        self._groups, self._sizes = groups, sizes

    def changes_of(self, moves: Sequence[ItemMove], level: int | None = None) -> list[int]:
        """Compute the change of each term if all of these moves are made.

        Covers all groups on all levels, or with `level` the first group down to that level.
        """
        before = self._terms(moves, level)
        self._apply(moves, 1)
        after = self._terms(moves, level)
        self._apply(moves, -1)
        return [then - now for then, now in zip(after, before, strict=True)]

    def is_lowered_by(self, moves: Sequence[ItemMove], level: int | None = None) -> bool:
        """Return whether the first term that the moves change gets smaller."""
        return next((each < 0 for each in self.changes_of(moves, level) if each), False)

    def _terms(self, moves: Sequence[ItemMove], level: int | None) -> list[int]:
        nodes = [node for _, *ends in moves for node in ends]
        items = np.asarray([item for item, _, _ in moves])
        found = [np.unique(families[items]) for families in self._families]
        concerned = [families[families >= 0] for families in found]
        last = self._levels.last if level is None else level
        return [
            self._tallies[kind].distance_around(at, concerned[kind], nodes)
            for group in (self._groups if level is None else self._groups[:1])
            for at in range(1, last + 1)
            for kind in group
        ]

    def _apply(self, moves: Sequence[ItemMove], sign: int) -> None:
        for item, source, target in moves:
            size = 1 if self._sizes is None else int(self._sizes[item])
            for tally, families in zip(self._tallies, self._families, strict=True):
                family = int(families[item])
                if family >= 0:
                    tally.move(family, source, target, sign * size)
