"""`placer repair`: writes the state topics again as the journal says they should be.

A state that does not add up is refused at every start. The journal gives what every key should
hold; whatever differs is written in one transaction of the cell's writer, and nothing at all unless
the result has the digest that the commit marker names.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from placement.hashing import stable_id
from placement.model import Configuration
from schemas.envelope import encode_headers
from schemas.topics import BY_NAME, CATALOGUE, COMMITS, STATE_TOPICS
from streaming.administration import count_partitions
from streaming.brokers import CommittedReader
from streaming.codec import OutRecord
from streaming.errors import StreamingError
from streaming.outbox import Outbox
from streaming.recovery import Snapshot, parse_marker, read_entries
from streaming.replay.history import History, read_history
from streaming.replay.replay import REPAIRED_HEADER, Replay


class RepairRefused(StreamingError):
    """The journal does not give the state that the commit marker speaks of."""


@dataclass(frozen=True, slots=True)
class RepairedRecord:
    """Holds one key with a wrong record: `was` describes it, `record` belongs there."""

    was: str
    record: OutRecord


def find_damage(
    bootstrap: str,
    prefix: str,
    fallback: Configuration,
    start: Snapshot | None,
    options: Mapping[str, str],
) -> list[RepairedRecord]:
    """List the records that differ from the journal's, in the order of topics and keys; change
    nothing.

    Raises RepairRefused, JournalShortened, JournalDamaged.
    """
    cell = fallback.cell
    history: History = read_history(bootstrap, prefix, cell, start, options, written=False)
    replay = Replay(cell, start.configuration(fallback) if start else fallback, start)
    for _ in replay.run(read_entries(history.journal, cell)):
        pass
    with CommittedReader(bootstrap, prefix, (*STATE_TOPICS, COMMITS), options=options) as reader:
        latest = reader.read_latest()
    marker = parse_marker(latest, prefix, cell)
    found = replay.digest if marker is None else replay.digest_by(marker)
    if marker is None or marker["digest"] != found:
        raise RepairRefused(
            f"the journal gives a state with digest {found}, the commit marker says "
            f"{marker['digest'] if marker else 'nothing'}: it is not what was lost"
        )
    mended = []
    for topic in STATE_TOPICS:
        there = latest[topic]
        for key, record in sorted(replay.latest[topic].items()):
            if there.get(key) != record.value:
                was = "was missing" if key not in there else "held another value"
                mended.append(RepairedRecord(was, _check_against_marker(record)))
        surplus = sorted(there.keys() - replay.latest[topic].keys())
        mended += [
            RepairedRecord("should not be there", _tombstone(topic, key, cell, replay))
            for key in surplus
        ]
    return mended


def write_repair(
    bootstrap: str, prefix: str, cell: str, mended: list[RepairedRecord], options: Mapping[str, str]
) -> None:
    """Write it, as the cell's writer: an application that still runs ends. Raises OutboxFailed."""
    counts = count_partitions(bootstrap, prefix, options=options)
    outputs = {t.name: counts[t.name] for t in CATALOGUE if t.direction == "out"}
    outbox = Outbox(bootstrap, prefix, cell, outputs, options)
    outbox.fence()
    outbox.commit([each.record for each in mended])


def _check_against_marker(record: OutRecord) -> OutRecord:
    headers = [*record.headers, (REPAIRED_HEADER, b"1")]
    return OutRecord(record.topic, record.key, record.value, headers, record.route)


def _tombstone(topic: str, key: bytes, cell: str, replay: Replay) -> OutRecord:
    name = key.decode("utf-8", "backslashreplace")
    identity = stable_id(cell, topic, name, "repaired", str(replay.sequence))
    (message,) = BY_NAME[topic].messages
    headers = encode_headers(message, cell=cell, id=identity, subject=name, time_ms=replay.now)
    return OutRecord(topic, key, None, [*headers, (REPAIRED_HEADER, b"1")])
