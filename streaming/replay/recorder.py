"""Records a running system into a file: what goes in, what was applied, and what came out.

The file begins with a snapshot, so that it can be replayed by itself, or goes back to the beginning
of all topics. Nothing is sent to the system and it notices nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from placement.model import Configuration
from schemas.topics import INPUT_TOPICS, JOURNAL
from streaming.administration import count_partitions
from streaming.brokers import CommittedReader, Record
from streaming.recovery import Snapshot, take_snapshot
from streaming.replay.history import OUTPUTS, check_beginning, marker_sequence
from streaming.replay.recording import (
    LOG,
    STATE,
    RecordingHead,
    end_line,
    head_line,
    record_line,
    write_lines,
)

# How soon the recorder notices that it is to stop.
POLL_SECONDS = 0.2


def make_head(
    bootstrap: str,
    prefix: str,
    cell: str,
    settings: Mapping[str, Any],
    options: Mapping[str, str] | None = None,
) -> RecordingHead:
    """Describe the recorded system for the first line of a file."""
    counts = count_partitions(bootstrap, prefix, options=options)
    return RecordingHead(prefix, cell, counts, settings)


class Recorder:
    """Writes one recording."""

    def __init__(
        self,
        bootstrap: str,
        head: RecordingHead,
        configuration: Configuration,
        options: Mapping[str, str] | None = None,
        *,
        from_beginning: bool = False,
    ) -> None:
        """Raises NoSnapshot, JournalShortened, TopicMissing, BrokerUnreachable."""
        self._head = head
        self._snapshot: Snapshot | None = None
        self.records = 0
        positions: dict[str, Mapping[int, int]] = {}
        prefix = head.prefix
        if not from_beginning:
            # Entries behind the snapshot's marker come after what the journal holds now.
            with CommittedReader(
                bootstrap, prefix, [JOURNAL], from_beginning=False, options=options
            ) as journal:
                positions |= journal.positions
            self._snapshot = take_snapshot(bootstrap, prefix, configuration, options)
            positions |= self._snapshot.positions
            for topic, places in self._snapshot.marker["positions"].items():
                positions[topic] = {int(p): offset for p, offset in places.items()}
        topics = [*INPUT_TOPICS, *OUTPUTS, JOURNAL]
        self._reader = CommittedReader(
            bootstrap, prefix, topics, positions=positions, options=options
        )
        if from_beginning:
            check_beginning(self._reader.bounds(JOURNAL), None)

    def run(self, path: Path, stopped: Callable[[], bool]) -> None:
        """Write until `stopped`, then what is on the topics by then. Raises RecordingUnreadable."""
        try:
            write_lines(path, self._lines(stopped))
        finally:
            self._reader.close()

    def _lines(self, stopped: Callable[[], bool]) -> Iterable[bytes]:
        yield head_line(self._head)
        if self._snapshot is not None:
            for record in self._snapshot.records:
                yield record_line(STATE, record)
        sequence = self._snapshot.sequence if self._snapshot else 0
        while not stopped():
            for record in self._reader.poll(POLL_SECONDS):
                yield self._line(record)
                sequence = max(sequence, marker_sequence(record, self._head.cell))
        for record in self._reader.read_to_end():
            yield self._line(record)
            sequence = max(sequence, marker_sequence(record, self._head.cell))
        # A commit becomes visible topic by topic: by now all of the last one seen is.
        for record in self._reader.read_to_end():
            yield self._line(record)
        yield end_line(sequence, self._snapshot.positions if self._snapshot else {})

    def _line(self, record: Record) -> bytes:
        self.records += 1
        return record_line(LOG, record)
