"""Holds reports back that are many times what is known, until others agree.

A mistaken unit makes every shard of a node a thousand times as large: believed, it would move half
the fleet. A load that is really so large is reported again, and counts after a few reports.
"""

from typing import Any

import numpy as np

from placement.load_reports.columns import Integers, Mask, ReportColumns
from placement.load_reports.report import LoadBands
from placement.model import SuspectedLoad

# A mistaken unit concerns all shards of a node. So many are named, the largest first.
SUSPECTED_NAMED_MAX = 10


class Suspicions:
    """Remembers the figures of one node that are held back."""

    def __init__(self, bands: LoadBands) -> None:
        self._bands = bands
        # By stream, shard and resource: the last figure, and how many in a row agree with it.
        self._held: dict[tuple[str, int, str], tuple[int, int]] = {}

    def holds(self, column: int, columns: ReportColumns, resource: str) -> bool:
        """Return whether a figure of the shard is held back."""
        return bool(self._held) and (*columns.place(column)[::2], resource) in self._held

    def judge(
        self, columns: ReportColumns, row: int, use: Integers, raw: Integers, yardstick: float
    ) -> tuple[Mask, list[SuspectedLoad]]:
        """Return which figures are not believed yet, and those that were not suspected before.

        Figures that are believed at last replace what was smoothed.
        """
        before = columns.smoothed[row, use]
        # Nothing is a multiple of 0, and the first report has no predecessor.
        held: Mask = (before > 0) & (raw > self._bands.suspicion_factor * before)
        held &= raw > self._bands.share * yardstick
        fresh = []
        for position in np.flatnonzero(held).tolist():
            column, amount = int(use[position]), int(raw[position])
            stream, _, shard = columns.place(column)
            place = (stream, shard, columns.resources[row])
            if self._is_believed(place, amount):
                held[position] = False
                columns.smoothed[row, column] = np.nan
                continue
            if self._held[place][1] == 0:
                self._held[place] = amount, 1
                fresh.append(SuspectedLoad(*place, amount, round(float(before[position]))))
        fresh.sort(key=lambda each: (-each.amount, each.stream, each.shard))
        return held, fresh[:SUSPECTED_NAMED_MAX]

    def clear(self, columns: ReportColumns, row: int, use: Integers) -> list[int]:
        """Forget the suspicions of shards whose figure is as it was; return their columns."""
        if not self._held:
            return []
        resource = columns.resources[row]
        places = ((column, (*columns.place(column)[::2], resource)) for column in use.tolist())
        return [column for column, place in places if self._held.pop(place, None) is not None]

    def keep(self, columns: ReportColumns) -> None:
        """Forget the suspicions of shards that are gone."""
        if self._held:
            left = {columns.place(column)[::2] for column in range(len(columns))}
            self._held = {place: held for place, held in self._held.items() if place[:2] in left}

    def _is_believed(self, place: tuple[str, int, str], amount: int) -> bool:
        """Count a figure that is many times what is known; return whether enough agree by now.

        One that is suspected for the first time is counted 0 times.
        """
        last, count = self._held.get(place, (0, -1))
        if count < 0:
            count = 0 if self._bands.agreeing > 1 else 1
        else:
            count = count + 1 if abs(amount - last) <= self._bands.relative * last else 1
        self._held[place] = amount, count
        if count >= self._bands.agreeing:
            del self._held[place]
            return True
        return False

    def to_json(self) -> list[Any]:
        """Return the figures as JSON has them; `from_json` restores them."""
        return [[*place, *state] for place, state in sorted(self._held.items())]

    @classmethod
    def from_json(cls, to_json: list[Any], bands: LoadBands) -> "Suspicions":
        """Read the result of `to_json`."""
        found = cls(bands)
        found._held = {(s, n, name): (amount, count) for s, n, name, amount, count in to_json}
        return found
