"""Holds the state of the active writer as far as its journal was read, and proves it at markers.

The journal holds the core's input of every commit, so that a core which applies it arrives at the
same state; the digest in the marker says whether it did. Where it did not (another version decides
otherwise, or another writer started from the topics), the state is lost and has to be rebuilt.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any

from placement.model import Configuration, ShardLoad
from placement.reconciler import Reconciler
from placement.state import DIGEST_VERSION
from schemas.topics import COMMITS, JOURNAL
from streaming.brokers import Record
from streaming.recovery import (
    EntryReader,
    JournalDamaged,
    JournalEntry,
    Rebuilt,
    digest_by_marker,
    digest_version,
    parse_marker,
    rebuild,
)

# Markers come within milliseconds of their entry; of so many entries the digest is remembered.
DIGESTS_KEPT = 1_000

Marker = Mapping[str, Any]


class FollowedState:
    """Follows one cell. `marker`: the last one read; `proven`: the sequence of the last one with
    which the state agreed."""

    def __init__(self, configuration: Configuration, prefix: str) -> None:
        """`configuration`: whoever decides by another one is not followed."""
        self._configuration, self._prefix = configuration, prefix
        self._cell = configuration.cell
        self._entries = EntryReader(self._cell)
        self._state: Rebuilt | None = None
        self._loads: dict[tuple[str, int], ShardLoad] = {}
        self._sequence = 0
        # Digests behind the last entries, by their sequences, which rise.
        self._digests: list[tuple[int, str]] = []
        self._waiting: list[Marker] = []
        self.marker: Marker | None = None
        self.proven: int | None = None

    @property
    def is_lost(self) -> bool:
        """Return whether there is a state to follow, and it is not followed: it must be rebuilt."""
        return self._state is None and self.marker is not None

    @property
    def lag_commits(self) -> int:
        """Return how many commits the last marker is ahead of the proven state."""
        if self.marker is None:
            return 0
        sequence: int = self.marker["sequence"]
        return sequence - (self.proven or 0)

    def begin(self, latest: Mapping[str, Mapping[bytes, bytes]]) -> bool:
        """Start from the last values of the state topics and the markers.

        Returns False where they are not of one commit: reading on helps. Without a marker there is
        nothing to follow yet. Raises RecoveryRefused, RecordUnreadable, StateContradictory.
        """
        self._entries = EntryReader(self._cell)
        self._waiting.clear()
        self._state, self.proven = None, None
        marker = self.marker = parse_marker(latest, self._prefix, self._cell)
        if marker is None:
            return True
        state = rebuild(self._configuration, latest, marker["now"])
        if digest_by_marker(state.reconciler, marker) != marker["digest"]:
            return False
        self._state, self._sequence = state, marker["sequence"]
        self._digests = [(self._sequence, state.reconciler.digest)]
        self._loads = {(each.stream, each.shard): each for each in state.loads}
        self.proven = self._sequence
        return True

    def take(self, records: Iterable[Record]) -> list[Marker]:
        """Take in records of the journal and the markers; returns the new markers in order."""
        markers: list[Marker] = []
        for record in records:
            if record.topic == JOURNAL:
                self._take_entry(record)
            elif record.key == self._cell and record.raw is not None:
                latest = {COMMITS: {self._cell.encode(): record.raw}}
                marker = parse_marker(latest, self._prefix, self._cell)
                assert marker is not None
                if self.marker is None or marker["sequence"] > self.marker["sequence"]:
                    self.marker = marker
                    self._waiting.append(marker)
                    markers.append(marker)
        self._waiting = [each for each in self._waiting if not self._prove(each)]
        return markers

    def end(self) -> None:
        """All that was committed has been taken in: a marker without proof will find none."""
        if self._waiting:
            self._lose()

    def take_state(self) -> Rebuilt | None:
        """The state, if it is proven at the last marker; None where it is not. It is the caller's
        from here on: nothing more is followed."""
        if self._state is None or self.lag_commits:
            return None
        reconciler, self._state = self._state.reconciler, None
        return Rebuilt(reconciler, [*reconciler.state.nodes.values()], [*self._loads.values()])

    def _take_entry(self, record: Record) -> None:
        try:
            entry = self._entries.take(record)
        except JournalDamaged:
            # Written by a version that knows more, or cut by retention: the topics say the same.
            self._entries = EntryReader(self._cell)
            self._lose()
            return
        if entry is None or self._state is None or entry.sequence <= self._sequence:
            return
        if entry.configuration is None:
            self._apply(self._state.reconciler, entry)
        elif entry.rebuilt or entry.configuration != self._configuration:
            self._lose()
            return
        self._sequence = entry.sequence
        self._digests.append((entry.sequence, self._state.reconciler.digest))
        del self._digests[:-DIGESTS_KEPT]

    def _apply(self, reconciler: Reconciler, entry: JournalEntry) -> None:
        ready = reconciler.apply(entry.events, entry.now, entry.caught_up)
        for shard, load in ready.loads.items():
            if load is None:
                self._loads.pop(shard, None)
            else:
                self._loads[shard] = load

    def _prove(self, marker: Marker) -> bool:
        """Hold the state against a marker; returns whether there is nothing left to wait for."""
        if self._state is None:
            return True
        sequence = marker["sequence"]
        # Versions that do not name themselves did not say which entry was the last.
        last_entry = marker["journal_sequence"] if "version" in marker else None
        if last_entry is not None and self._sequence < last_entry:
            return False
        index = bisect_right(self._digests, sequence, key=lambda each: each[0]) - 1
        found = self._digests[index][1] if index >= 0 else None
        if digest_version(marker) != DIGEST_VERSION and self._sequence <= sequence:
            found = digest_by_marker(self._state.reconciler, marker)
        if found == marker["digest"]:
            self.proven = max(sequence, self.proven or 0)
            return True
        if last_entry is not None or self._sequence > sequence:
            self._lose()
        return self._state is None

    def _lose(self) -> None:
        """The state is not that of the writer any more."""
        self._state = None
        self._waiting.clear()
