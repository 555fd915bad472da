"""Replays the journal through the core, which gives every record again, byte for byte.

    snapshot (or nothing) -> for each journal entry: Reconciler.apply -> records

A writer's first entry stands for a restart: the core is rebuilt there from the records replayed so
far, as the application did, unless the entry says that its writer went on with a state that it had
followed. `verification` holds the records against those on the topics.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from placement.model import Configuration
from placement.reconciler import Reconciler
from schemas.topics import STATE_TOPICS
from streaming import codec
from streaming.codec import OutRecord
from streaming.errors import StreamingError
from streaming.recovery import JournalEntry, Snapshot, digest_by_marker, rebuild

# Says of a record that `placer repair` wrote it again; its value is that of the commit that wrote
# it first.
REPAIRED_HEADER = "__placement.repaired"


class ReplayRefused(StreamingError):
    """The input lacks something that a replay needs."""


@dataclass(frozen=True, slots=True)
class ReplayedCommit:
    """Holds the output of one journal entry: its records in the order of writing, and the digest of
    the state. Dead letters are not among them: they are made from inputs, not by the core."""

    entry: JournalEntry
    records: list[OutRecord]
    digest: str


@dataclass(frozen=True, slots=True)
class ReplayEnd:
    """Where a replay ends: after the commit of this sequence, or before this time in ms."""

    sequence: int | None = None
    time_ms: int | None = None

    def is_before(self, entry: JournalEntry) -> bool:
        """Return whether the entry lies beyond."""
        if self.sequence is not None and entry.sequence > self.sequence:
            return True
        return self.time_ms is not None and entry.now >= self.time_ms


class Replay:
    """A core that goes through the journal from a snapshot, or from the beginning of everything."""

    def __init__(self, cell: str, configuration: Configuration, start: Snapshot | None) -> None:
        """`configuration` holds until an entry says another. `latest`: the last record of every
        key of the state topics, as far as it has gone."""
        self._cell, self._configuration = cell, configuration
        self.latest: dict[str, dict[bytes, OutRecord]] = {topic: {} for topic in STATE_TOPICS}
        self._sequence = start.sequence if start else 0
        self._now = start.now if start else 0
        for record in start.records if start else ():
            key, value = record.raw_key, record.raw
            if record.topic in self.latest and key is not None and value is not None:
                kept = OutRecord(record.topic, key, value, [*record.raw_headers])
                self.latest[record.topic][key] = kept
        self._reconciler = self._rebuild(configuration) if start else Reconciler(configuration)
        if start and (found := digest_by_marker(self._reconciler, start.marker)) != start.digest:
            raise ReplayRefused(
                f"the snapshot's records have digest {found}, its marker says "
                f"{start.digest}: the snapshot was altered"
            )

    @property
    def sequence(self) -> int:
        """Sequence of the last commit replayed."""
        return self._sequence

    @property
    def now(self) -> int:
        """The core's time behind it, in ms."""
        return self._now

    @property
    def digest(self) -> str:
        """Digest of the state behind it."""
        return self._reconciler.digest

    def digest_by(self, marker: Mapping[str, Any]) -> str:
        """Compute the digest of the state behind it by a marker's formula; see `recovery`."""
        return digest_by_marker(self._reconciler, marker)

    def run(
        self, entries: Iterable[JournalEntry], until: ReplayEnd | None = None
    ) -> Iterator[ReplayedCommit]:
        """Apply the entries behind the start, in order, up to `until`."""
        for entry in entries:
            if entry.sequence <= self._sequence:
                continue
            if until is not None and until.is_before(entry):
                return
            yield self._apply(entry)

    def _apply(self, entry: JournalEntry) -> ReplayedCommit:
        self._sequence = entry.sequence
        if entry.configuration is not None:
            if not entry.rebuilt and entry.configuration == self._configuration:
                return ReplayedCommit(entry, [], self._reconciler.digest)
            self._configuration = entry.configuration
            self._reconciler = self._rebuild(entry.configuration)
            return ReplayedCommit(entry, [], self._reconciler.digest)
        ready = self._reconciler.apply(entry.events, entry.now, entry.caught_up)
        records = [*codec.ready_records(ready, self._cell, entry.now, entry.sequence)]
        for record in records:
            latest = self.latest.get(record.topic)
            if latest is None or record.key is None:
                continue
            if record.value is None:
                latest.pop(record.key, None)
            else:
                latest[record.key] = record
        self._now = self._reconciler.now
        return ReplayedCommit(entry, records, self._reconciler.digest)

    def _rebuild(self, configuration: Configuration) -> Reconciler:
        values = {
            topic: {key: record.value for key, record in latest.items() if record.value is not None}
            for topic, latest in self.latest.items()
        }
        return rebuild(configuration, values, self._now).reconciler
