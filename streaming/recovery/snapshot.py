"""Reads the state of record at one commit marker while the writer goes on.

The topics are read to their ends, which no transaction lets be one moment. So what was read is
rebuilt and its digest held against the last marker; until both agree, reading goes on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement.model import Configuration, Move
from placement.reconciler import Reconciler
from schemas.topics import COMMITS, MOVES, STATE_TOPICS
from streaming import codec
from streaming.brokers import CommittedReader, Record
from streaming.codec import parse_configuration
from streaming.errors import StreamingError
from streaming.recovery.rebuild import RecordUnreadable, StateContradictory, rebuild
from streaming.recovery.recovery import digest_by_marker, refuse_newer_format

# A transaction's records become visible topic by topic, within milliseconds. What does not add up
# when nothing has come for so long never will.
QUIET_SECONDS = 1.0
# A writer that commits without a pause leaves gaps of tens of milliseconds, so that the first or
# second attempt succeeds.
ATTEMPTS_MAX = 50


class NoSnapshot(StreamingError):
    """There is no state to take, or it cannot be proved."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Last record of every key of the state topics, and the marker they belong to.

    `positions`: next offset behind it of the state topics; empty where it came from a file that
    was edited by hand.
    """

    marker: Mapping[str, Any]
    records: tuple[Record, ...]
    positions: Mapping[str, Mapping[int, int]]

    @property
    def sequence(self) -> int:
        """Sequence of the marker."""
        sequence: int = self.marker["sequence"]
        return sequence

    @property
    def now(self) -> int:
        """The core's time at the marker."""
        now: int = self.marker["now"]
        return now

    @property
    def digest(self) -> str:
        """The digest that the marker names."""
        digest: str = self.marker["digest"]
        return digest

    @property
    def open_moves(self) -> list[Move]:
        """Moves under way at the marker. Raises KeyError, ValueError for records of others."""
        found = [codec.parse_move(r.value) for r in self.records if r.topic == MOVES and r.value]
        return [move for move in found if move.state.is_open]

    def configuration(self, fallback: Configuration) -> Configuration:
        """The configuration the marker names; `fallback` for markers of older versions."""
        configuration = self.marker.get("configuration")
        return fallback if configuration is None else parse_configuration(configuration)


def take_snapshot(
    bootstrap: str,
    prefix: str,
    configuration: Configuration,
    options: Mapping[str, str] | None = None,
) -> Snapshot:
    """The state of the configuration's cell as its last commit left it.

    Raises NoSnapshot, StateTooNew, BrokerUnreachable, TopicMissing.
    """
    latest: dict[str, dict[str, Record]] = {topic: {} for topic in (*STATE_TOPICS, COMMITS)}
    with CommittedReader(bootstrap, prefix, list(latest), options=options) as reader:
        new = reader.read_to_end()
        for _ in range(ATTEMPTS_MAX):
            for record in new:
                _note(latest[record.topic], record)
            found = latest[COMMITS].get(configuration.cell)
            if found is None or found.value is None:
                raise NoSnapshot(
                    f"{prefix}{COMMITS} has no commit marker of cell '{configuration.cell}'"
                )
            refuse_newer_format(found.value)
            records = [each for topic in latest for each in latest[topic].values()]
            snapshot = Snapshot(found.value, tuple(records), reader.positions)
            if is_whole(snapshot, configuration):
                return snapshot
            new = reader.poll(QUIET_SECONDS)
            if not new:
                break
            new += reader.read_to_end()
    raise NoSnapshot(
        f"the state under '{prefix}' does not agree with its marker: records of "
        f"{', '.join(STATE_TOPICS)} were lost or altered; see: placer doctor"
    )


def is_whole(snapshot: Snapshot, configuration: Configuration) -> bool:
    """Tell whether the records have the digest that the marker names, by its formula.

    Raises StateTooNew for a formula that this version does not know.
    """
    try:
        restored = restore_snapshot(snapshot, configuration)
        return digest_by_marker(restored, snapshot.marker) == snapshot.digest
    except (RecordUnreadable, StateContradictory):
        return False


def restore_snapshot(snapshot: Snapshot, configuration: Configuration) -> Reconciler:
    """The reconciler that left the snapshot: a copy to try things with. Raises RecordUnreadable,
    StateContradictory."""
    latest: dict[str, dict[bytes, bytes]] = {topic: {} for topic in STATE_TOPICS}
    for record in snapshot.records:
        if record.topic in latest and record.raw is not None and record.raw_key is not None:
            latest[record.topic][record.raw_key] = record.raw
    return rebuild(snapshot.configuration(configuration), latest, snapshot.now).reconciler


def _note(latest: dict[str, Record], record: Record) -> None:
    if record.raw is None:
        latest.pop(record.key or "", None)
    else:
        latest[record.key or ""] = record
