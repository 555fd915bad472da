"""Turns a node's reports into the events that the planner needs to know.

A report is smoothed over the append times of its predecessors, so that noise moves nothing. What
leaves a band around the last word is a new word; so are shards that have drifted together until
their node's sum left it. A report far above what is known is held back until others agree. The
result depends on the node's reports alone, not on how they are cut into batches.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from placement.load_reports.columns import Figures, Integers, Mask, ReportColumns
from placement.load_reports.report import UNSAID, LoadBands, LoadReport
from placement.load_reports.suspicions import Suspicions
from placement.model import Amounts, LoadsReported, ReportedLoad, SuspectedLoad

# A change of less than this share of a node's capacity is none, however small the shard was: a
# thousand such shards make a hundredth of the node.
SHARE_MIN = 1e-5
# Spreads the repetitions of a node's shards over time, by the number of the shard.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
# Of lives that ended, whose late reports are ignored.
EARLIER_LIVES_MAX = 3


class ReportFilter:
    """Decides about the reports of one node; its state is bytes between two batches."""

    def __init__(self, bands: LoadBands) -> None:
        self._bands = bands
        self._columns = ReportColumns()
        self._incarnation, self._sequence = "", -1
        self._earlier: list[str] = []
        self._capacities: dict[str, int] = {}
        self._suspicions = Suspicions(bands)
        self.ignored: Counter[str] = Counter()
        # What was told before and is said again, as the planner may have ignored it.
        self.repeated: list[LoadsReported] = []

    def __len__(self) -> int:
        return len(self._columns)

    def restore(
        self, known: Iterable[tuple[str, int, Amounts]], capacities: Amounts, now: int
    ) -> None:
        """Begin with what the planner knows of shards, as if it had been reported now."""
        columns = self._columns
        self._capacities = dict(capacities)
        entries = [*known]
        amounts = [dict(each[2]) for each in entries]
        rows = columns.rows_of(sorted({name for each in amounts for name in each}))
        names = list(dict.fromkeys(each[0] for each in entries))
        codes = dict(zip(names, columns.codes_of(names, [None] * len(names)), strict=True))
        places = np.array([codes[each[0]] for each in entries], np.int64)
        found, taken = columns.columns_of(places, np.array([e[1] for e in entries], np.int64))
        for row in rows:
            name = columns.resources[row]
            said = np.array([each.get(name, UNSAID) for each in amounts], np.float64)
            use = taken & (said != UNSAID)
            columns.smoothed[row, found[use]] = columns.told[row, found[use]] = said[use]
            columns.at[row, found[use]] = now

    def apply(self, report: LoadReport) -> LoadsReported | None:
        """Take a report; return what the planner has to know, or None."""
        if not self._takes(report):
            return None
        self._capacities.update(report.capacities)
        columns = self._columns
        codes = columns.codes_of(report.streams, report.uids)
        rows = columns.rows_of(report.resources)
        found, known = columns.columns_of(codes[report.codes], report.shards)
        if not known.all():
            self.ignored["load_beyond_shards"] += int((~known).sum())
        before = columns.at.max(axis=0, initial=0)
        telling = np.zeros(len(columns), bool)
        suspected: list[SuspectedLoad] = []
        for row, amounts in zip(rows, report.amounts, strict=True):
            said = known & (amounts != UNSAID)
            use, raw = found[said], amounts[said]
            held, fresh = self._suspicions.judge(columns, row, use, raw, self._yardstick(row))
            suspected += fresh
            if held.any():
                self.ignored["load_suspected"] += int(held.sum())
            self._smooth(row, use[~held], raw[~held], report.at)
            telling |= self._find_news(row)
            # A word on the shard ends what the planner remembers of the suspicion.
            telling[self._suspicions.clear(columns, row, use[~held])] = True
        event = self._tell(report, np.flatnonzero(telling), suspected)
        due = np.setdiff1d(found[known], np.flatnonzero(telling))
        self._repeat(report, due, before[due])
        self._forget(report.at)
        return event

    def to_bytes(self) -> bytes:
        """Write everything; `from_bytes` restores it."""
        life = [self._incarnation, self._sequence, self._earlier]
        return self._columns.to_bytes([life, self._capacities, self._suspicions.to_json()])

    @classmethod
    def from_bytes(cls, blob: bytes, bands: LoadBands) -> "ReportFilter":
        """Read what `to_bytes` wrote."""
        found = cls(bands)
        header: Any
        found._columns, header = ReportColumns.from_bytes(blob)
        (found._incarnation, found._sequence, found._earlier), found._capacities, held = header
        found._suspicions = Suspicions.from_json(held, bands)
        return found

    def _takes(self, report: LoadReport) -> bool:
        """Return whether the report is the next of its life, or the first of a new one."""
        if report.incarnation == self._incarnation:
            if report.sequence <= self._sequence:
                self.ignored["load_older_sequence"] += 1
                return False
        elif report.incarnation in self._earlier:
            self.ignored["load_earlier_incarnation"] += 1
            return False
        elif self._incarnation:
            self._earlier = [*self._earlier, self._incarnation][-EARLIER_LIVES_MAX:]
        self._incarnation, self._sequence = report.incarnation, report.sequence
        return True

    def _yardstick(self, row: int) -> float:
        """Return the node's capacity of a resource, or its whole load where that is not known."""
        columns = self._columns
        given = self._capacities.get(columns.resources[row])
        return float(np.nansum(columns.smoothed[row])) if given is None else float(given)

    def _smooth(self, row: int, use: Integers, raw: Integers, at: int) -> None:
        columns = self._columns
        before = columns.smoothed[row, use]
        age = np.maximum(at - columns.at[row, use], 0)
        weight = -np.expm1(-np.log(2.0) * age / self._bands.half_life_ms)
        smoothed = before + weight * (raw - before)
        columns.smoothed[row, use] = np.where(np.isnan(before), raw, smoothed)
        columns.at[row, use] = at

    def _find_news(self, row: int) -> Mask:
        """Return the shards whose load of a resource has left the band, or drifts with others."""
        columns, bands = self._columns, self._bands
        smoothed, told = columns.smoothed[row], columns.told[row]
        yardstick = self._yardstick(row)
        # Without a capacity nothing depends on how full the node is.
        share = bands.share if columns.resources[row] in self._capacities else np.inf
        change = np.where(np.isnan(told), 0.0, smoothed - told)
        size = np.abs(change)
        # Loads are whole numbers: less than one is no change.
        much = (size > bands.relative * told) & (size > SHARE_MIN * yardstick)
        news: Mask = (much | (size > share * yardstick)) & (size >= 1)
        news |= np.isnan(told) & ~np.isnan(smoothed)
        drift = np.where(news, 0.0, change)
        total = float(np.nansum(told))
        edge = max(min(bands.relative * total, share * yardstick), SHARE_MIN * yardstick, 1.0)
        if abs(drift.sum()) > edge:
            news |= self._choose_drifted(drift, edge)
        return news

    def _choose_drifted(self, drift: Figures, edge: float) -> Mask:
        """Choose the shards that drifted most, until half the edge is left of the sum."""
        total = float(drift.sum())
        along = np.maximum(drift if total > 0 else -drift, 0.0)
        order = np.lexsort((np.arange(len(along)), -along))
        left = abs(total) - np.cumsum(along[order])
        enough = int(np.searchsorted(-left, -edge / 2)) + 1
        chosen = np.zeros(len(along), bool)
        chosen[order[:enough]] = True
        return chosen & (along >= 1)

    def _tell(
        self, report: LoadReport, chosen: Integers, suspected: list[SuspectedLoad]
    ) -> LoadsReported | None:
        """Make the event, and note what was told."""
        if not len(chosen) and not suspected:
            return None
        figures = np.rint(self._columns.smoothed[:, chosen])
        self._columns.told[:, chosen] = figures
        loads = self._loads_of(chosen, figures)
        return LoadsReported(report.at, report.node_id, loads, tuple(suspected))

    def _repeat(self, report: LoadReport, columns: Integers, before: Integers) -> None:
        """Say again what was told of shards, of each once in `repeat_ms`.

        `before`: when they were reported last.
        """
        every = self._bands.repeat_ms
        phases = (self._columns.keys[columns].astype(np.uint64) * _SPREAD >> np.uint64(11)) / 2**53
        turned = np.floor(report.at / every + phases) > np.floor(before / every + phases)
        due = columns[turned & (before > 0)]
        words = self._loads_of(due, self._columns.told[:, due])
        loads = tuple(each for each in words if each.amounts)
        if loads:
            self.repeated.append(LoadsReported(report.at, report.node_id, loads))

    def _loads_of(self, chosen: Integers, figures: Figures) -> tuple[ReportedLoad, ...]:
        """Make the words on shards; figures that are held back are left out."""
        columns = self._columns
        names = sorted((name, row) for row, name in enumerate(columns.resources))
        rows = [row for _, row in names]
        loads = []
        for column, amounts in zip(chosen.tolist(), figures[rows].T.tolist(), strict=True):
            stream, uid, shard = columns.place(column)
            pairs = zip(names, amounts, strict=True)
            said = tuple(
                (name, int(amount))
                for (name, _), amount in pairs
                if not np.isnan(amount) and not self._suspicions.holds(column, columns, name)
            )
            loads.append(ReportedLoad(stream, shard, said, uid))
        return tuple(sorted(loads, key=lambda each: (each.stream, each.shard)))

    def _forget(self, at: int) -> None:
        """Forget shards that have not been reported for long."""
        columns = self._columns
        if not len(columns):
            return
        fresh: Mask = columns.at.max(axis=0, initial=0) >= at - self._bands.expiry_ms
        if not fresh.all():
            columns.keep(fresh)
            columns.drop_idle_streams()
            self._suspicions.keep(columns)
