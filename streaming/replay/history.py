"""Reads the input of a replay: journal, written records and start, from topics or a file.

A commit becomes visible topic by topic. So the outputs are read twice and the journal after them:
of every commit whose marker the first reading saw the second has all records, and of every record
read the journal has the entry.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.topics import ALERTS, ANSWERS, COMMITS, JOURNAL, STATE_TOPICS
from streaming.brokers import CommittedReader, Record
from streaming.errors import StreamingError
from streaming.recovery import Snapshot
from streaming.replay.recording import Recording

# What the core publishes that is no state: kept for a time, then deleted.
LOGS = (ALERTS, ANSWERS)
OUTPUTS = (*STATE_TOPICS, *LOGS, COMMITS)


class JournalShortened(StreamingError):
    """Retention has taken journal entries that would be needed."""


@dataclass(frozen=True, slots=True)
class History:
    """`start`: the snapshot it begins with, None for the beginning of everything. `sequence`: the
    last commit all of whose records are in `written`. `shortened`: the topics of LOGS from which
    retention has taken records behind `start`."""

    start: Snapshot | None
    journal: list[Record]
    written: list[Record]
    sequence: int
    shortened: frozenset[str] = frozenset()


def history_of_recording(recording: Recording) -> History:
    """The history that a recording holds. Raises JournalShortened when it holds none."""
    journal = recording.of(JOURNAL)
    if recording.snapshot is None and (not journal or journal[0].offset):
        raise JournalShortened(
            "the recording has neither a snapshot nor the journal's beginning; record again "
            "from a snapshot with: placer record"
        )
    return History(recording.snapshot, journal, recording.of(*OUTPUTS), recording.sequence)


def read_history(
    bootstrap: str,
    prefix: str,
    cell: str,
    start: Snapshot | None,
    options: Mapping[str, str] | None = None,
    *,
    written: bool,
) -> History:
    """The history on the topics behind `start`; the outputs only where `written` asks for them.

    Raises JournalShortened, BrokerUnreachable, TopicMissing.
    """
    records: list[Record] = []
    sequence = start.sequence if start else 0
    shortened: frozenset[str] = frozenset()
    if written:
        positions = start.positions if start else {}
        with CommittedReader(
            bootstrap, prefix, OUTPUTS, positions=positions, options=options
        ) as outputs:
            records = outputs.read_to_end()
            shortened = frozenset(
                topic
                for topic in LOGS
                for partition, (first, _) in outputs.bounds(topic).items()
                if first > positions.get(topic, {}).get(partition, 0)
            )
            sequence = max([sequence, *(marker_sequence(record, cell) for record in records)])
            records += outputs.read_to_end()
    with CommittedReader(bootstrap, prefix, [JOURNAL], options=options) as reader:
        bounds = reader.bounds(JOURNAL)
        journal = reader.read_to_end()
    check_beginning(bounds, journal[0].value if start and journal else None, start)
    return History(start, journal, records, sequence, shortened)


def check_beginning(
    bounds: Mapping[int, tuple[int, int]],
    oldest: Mapping[str, object] | None,
    start: Snapshot | None = None,
) -> None:
    """Refuse a journal that retention has shortened, unless its oldest entry is one that `start`
    already holds. `bounds`: those of its partitions. Raises JournalShortened."""
    gone = [first for first, _ in bounds.values() if first]
    if not gone:
        return
    if start is not None and oldest is not None:
        sequence = oldest.get("sequence")
        if isinstance(sequence, int) and sequence <= start.sequence + 1:
            return
    raise JournalShortened(
        f"{JOURNAL} starts at offset {gone[0]}: entries before it were deleted; start from "
        "a newer snapshot (placer snapshot), or from a recording"
    )


def marker_sequence(record: Record, cell: str) -> int:
    """The sequence of a commit marker of the cell; 0 for any other record."""
    if record.topic != COMMITS or record.key != cell or record.value is None:
        return 0
    sequence: int = record.value["sequence"]
    return sequence
