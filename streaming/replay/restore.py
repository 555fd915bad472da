"""`placer restore`: writes a snapshot, or the end of a recording, into topics that hold no state.

For a cluster that has been lost with our topics in it. The state is proven by the digest of its
marker before anything is written, and all of it is one transaction.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from placement.hashing import stable_id
from placement.model import Configuration
from placement.wording import format_count
from schemas.envelope import encode_headers
from schemas.topics import CATALOGUE, COMMITS, JOURNAL, STATE_TOPICS
from streaming.administration import count_partitions
from streaming.brokers import CommittedReader
from streaming.codec import OutRecord
from streaming.errors import StreamingError
from streaming.outbox import Outbox
from streaming.recovery import read_entries
from streaming.replay.recording import Recording
from streaming.replay.replay import Replay


class RestoreRefused(StreamingError):
    """The file holds no proven state, or there is one already."""


@dataclass(frozen=True, slots=True)
class RestoredState:
    """Describes a state that is to be written: its records, the marker among them."""

    records: list[OutRecord]
    cell: str
    sequence: int
    digest: str


def make_state(
    recording: Recording, fallback: Configuration, *, same_inputs: bool
) -> RestoredState:
    """Make the state at the end of a file.

    `fallback`: configuration where the file names none. `same_inputs`: the input topics are those
    of the file, so that reading goes on behind the marker; otherwise it begins with what is there.
    Raises RestoreRefused, JournalDamaged.
    """
    start, cell = recording.snapshot, recording.head.cell
    replay = Replay(cell, start.configuration(fallback) if start else fallback, start)
    for _ in replay.run(read_entries(recording.of(JOURNAL), cell)):
        pass
    markers = [dict(start.marker)] if start else []
    markers += [r.value for r in recording.of(COMMITS) if r.key == cell and r.value]
    if not markers:
        raise RestoreRefused(f"the file holds no commit of cell '{cell}': there is no state in it")
    marker: dict[str, Any] = max(markers, key=lambda each: int(each["sequence"]))
    found = replay.digest_by(marker)
    if found != marker["digest"]:
        raise RestoreRefused(
            f"the records of the file have digest {found}, its last commit marker says "
            f"{marker['digest']}: the file was altered"
        )
    if not same_inputs:
        marker |= {"positions": {}, "clocks": {}}
    records = [each for topic in STATE_TOPICS for each in replay.latest[topic].values()]
    return RestoredState([*records, _marker_record(marker, cell)], cell, marker["sequence"], found)


def write_state(state: RestoredState, bootstrap: str, prefix: str, options: dict[str, str]) -> None:
    """Write it as the cell's writer. Raises RestoreRefused where the topics hold state, and
    OutboxFailed, BrokerUnreachable, TopicMissing."""
    with CommittedReader(bootstrap, prefix, (*STATE_TOPICS, COMMITS), options=options) as reader:
        there = sum(map(len, reader.read_latest().values()))
    if there:
        raise RestoreRefused(
            f"the topics under '{prefix}' hold {format_count(there, 'record')} of state: a state "
            "is only restored into topics that hold none; choose another prefix, or make the "
            "topics anew"
        )
    counts = count_partitions(bootstrap, prefix, options=options)
    outputs = {t.name: counts[t.name] for t in CATALOGUE if t.direction == "out"}
    *records, last = state.records
    marker = orjson.loads(last.value or b"") | {"output_partitions": outputs}
    outbox = Outbox(bootstrap, prefix, state.cell, outputs, options)
    outbox.fence()
    outbox.commit([*records, _marker_record(marker, state.cell)])


def _marker_record(marker: dict[str, Any], cell: str) -> OutRecord:
    identity = stable_id(cell, COMMITS, "restored", str(marker["sequence"]))
    headers = encode_headers(
        "CommitMarker", cell=cell, id=identity, subject=cell, time_ms=marker["now"]
    )
    return OutRecord(COMMITS, cell.encode(), orjson.dumps(marker), [*headers])
