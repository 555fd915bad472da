"""Compares replayed records with those on the topics: ids, headers and bodies, byte for byte.

State topics are compacted, so a record may be gone when a later one of its key is there, and
everything of a key when its tombstone was the last. Everything else that differs is named.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from placement.model import Configuration
from placement.state import DIGEST_VERSION
from placement.wording import format_count
from schemas.topics import COMMITS
from streaming.brokers import Record
from streaming.codec import OutRecord
from streaming.recovery import JournalEntry, Snapshot, digest_version, read_entries
from streaming.replay.history import LOGS, History
from streaming.replay.replay import REPAIRED_HEADER, Replay, ReplayedCommit, ReplayEnd

# Of a long value its beginning; a person wants to see what is different, not all of it.
SHOWN_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True)
class RecordDifference:
    """Describes a record that differs from the journal's. `field` is a path in its value, a
    header's name, or empty for the record as a whole; `offset` is that of the topic's record, if
    any."""

    reason: str
    topic: str
    key: str
    sequence: int | None = None
    field: str = ""
    expected: str | None = None
    got: str | None = None
    partition: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        at = "" if self.offset is None else f" (partition {self.partition}, offset {self.offset})"
        commit = "" if self.sequence is None else f" at sequence {self.sequence}"
        said = f"{self.topic} {self.key}{at}{commit}: {self.reason}"
        if self.field:
            said += f": {self.field}"
        if self.expected is not None or self.got is not None:
            said += f": expected {self.expected}, got {self.got}"
        return said


class Verification:
    """Takes the replayed entries one by one, then says what differs."""

    def __init__(
        self,
        written: Iterable[Record],
        start: Snapshot | None,
        sequence_through: int,
        shortened: frozenset[str],
    ) -> None:
        """`written`: the state topics and markers, each partition in its order. `start`: what
        lies before its ends is its own. `sequence_through`: the last commit all of whose records
        were read for sure. `shortened`: the logs whose oldest records retention has taken."""
        behind = start.positions if start else {}
        self._started_at = start.now if start else -1
        self._through = sequence_through
        self._written: dict[tuple[str, str], Record] = {}
        self._markers: list[Record] = []
        self._found: list[RecordDifference] = []
        self._missing: dict[tuple[str, str], tuple[int, OutRecord]] = {}
        self._digests: list[tuple[int, str]] = []
        self._there: set[tuple[str, str]] = set()
        # Until the first one that is there: retention has taken those before it.
        self._shortened = {*shortened}
        # What was written again, and what should have been.
        self._repaired: dict[tuple[str, str], bytes | None] = {}
        self._wanted: dict[tuple[str, str], bytes | None] = {}
        self._last = 0
        self._uncompared: list[Record] = []
        self.compared = 0
        for record in written:
            if record.offset < behind.get(record.topic, {}).get(record.partition, 0):
                continue
            if REPAIRED_HEADER in record.headers:
                self._repaired[record.topic, record.key or ""] = record.raw
            elif record.topic == COMMITS:
                self._markers.append(record)
            else:
                self._match_record(record)

    def compare(self, replayed: ReplayedCommit) -> None:
        """Compare what one entry gave."""
        self._last = replayed.entry.sequence
        self._digests.append((self._last, replayed.digest))
        for record in replayed.records:
            identity = _identity(record)
            place = (record.topic, (record.key or b"").decode())
            if place in self._repaired:
                self._wanted[place] = record.value
            # Of a log every record has to be there, of a compacted topic the last of each key.
            slot = identity if record.topic in LOGS else (record.key or b"").decode()
            there = self._written.pop((record.topic, identity), None)
            if there is None:
                if record.topic not in self._shortened:
                    self._missing[record.topic, slot] = (self._last, record)
                continue
            self._missing.pop((record.topic, slot), None)
            self._there.add((record.topic, slot))
            self._shortened.discard(record.topic)
            self.compared += 1
            if (there.raw_key, there.raw, list(there.raw_headers)) != (
                record.key,
                record.value,
                record.headers,
            ):
                reason = "the body is another under the same id"
                self._found.append(_difference(reason, self._last, record, there))

    def differences(self, complete: bool) -> list[RecordDifference]:
        """All that differs, the earliest commit first. `complete`: the replay went through the
        whole journal, so that what it did not make should not be there."""
        left = {(r.topic, r.key, place[1]): r for place, r in self._written.items()}
        by_key = {(topic, key): place for place in left for topic, key, _ in [place]}
        found = self._found[:]
        for sequence, record in self._missing.values():
            topic, key = record.topic, (record.key or b"").decode()
            if sequence > self._through:
                continue
            place = by_key.pop((topic, key), None)
            if place is not None:
                reason = "another record is in its place"
                found.append(_difference(reason, sequence, record, left.pop(place)))
            elif record.value is not None or (topic, key) in self._there:
                shown = _truncate(_decode(record.value))
                reason = "the record is missing"
                found.append(RecordDifference(reason, topic, key, sequence, expected=shown))
        found.sort(key=lambda each: each.sequence or 0)
        found += self._wrong_digests(self._through if complete else self._last)
        if complete:
            found += [
                RecordDifference(
                    "the journal does not give this record",
                    record.topic,
                    record.key or "",
                    got=_truncate(record.value),
                    partition=record.partition,
                    offset=record.offset,
                )
                for record in left.values()
                if not self._is_earlier(record)
            ]
        return [each for each in found if not self._is_mended(each)]

    def _is_mended(self, found: RecordDifference) -> bool:
        """Return whether the record was written again since, as it should be."""
        place = (found.topic, found.key)
        written = self._repaired.get(place, found)
        return written is not found and written == self._wanted.get(place, written)

    def _is_earlier(self, record: Record) -> bool:
        """Return whether it is of a log and from before the snapshot, which keeps none."""
        at = (record.value or {}).get("at")
        return record.topic in LOGS and isinstance(at, int) and at <= self._started_at

    def _match_record(self, record: Record) -> None:
        place = (record.topic, record.headers.get("ce_id", ""))
        if place in self._written:
            self._found.append(
                RecordDifference(
                    f"id {place[1] or 'none'} was written twice",
                    record.topic,
                    record.key or "",
                    partition=record.partition,
                    offset=record.offset,
                )
            )
        self._written[place] = record

    def describe_uncompared(self) -> str | None:
        """Say which digests `differences` could not compare, being of another formula."""
        if not self._uncompared:
            return None
        versions = sorted({digest_version(each.value or {}) for each in self._uncompared})
        formulas = ", ".join(map(str, versions))
        return (
            f"{format_count(len(self._uncompared), 'commit marker')} not compared: the digest "
            f"there is of formula {formulas}, this version replays with formula {DIGEST_VERSION}. "
            "Records are compared all the same; to compare digests, replay with the version "
            "that wrote them"
        )

    def _wrong_digests(self, through: int) -> Iterable[RecordDifference]:
        """Markers, also those without an entry, against the state behind the entry before them."""
        through = max(through, self._last)
        sequences = [sequence for sequence, _ in self._digests]
        for record in self._markers:
            marker = record.value or {}
            sequence = marker.get("sequence", 0)
            index = bisect_right(sequences, sequence) - 1
            if index < 0 or sequence > through:
                continue
            if digest_version(marker) != DIGEST_VERSION:
                self._uncompared.append(record)
                continue
            expected = self._digests[index][1]
            if marker.get("digest") != expected:
                yield RecordDifference(
                    "the state has another digest",
                    record.topic,
                    record.key or "",
                    sequence,
                    "digest",
                    expected,
                    str(marker.get("digest")),
                    record.partition,
                    record.offset,
                )


def _difference(reason: str, sequence: int, expected: OutRecord, got: Record) -> RecordDifference:
    """The first field in which two records of one key differ."""
    key = (expected.key or b"").decode()
    field = ""
    wanted: Any = None
    there: Any = None
    if (expected.value is None) != (got.raw is None):
        field = "value"
        wanted, there = _decode(expected.value), _decode(got.raw)
    elif expected.value != got.raw:
        field, wanted, there = first_difference(_decode(expected.value), _decode(got.raw))
    else:
        ours, theirs = dict(expected.headers), dict(got.raw_headers)
        for name in sorted(ours.keys() | theirs.keys()):
            if ours.get(name) != theirs.get(name):
                field = f"header {name}"
                wanted, there = _text(ours.get(name)), _text(theirs.get(name))
                break
    return RecordDifference(
        reason,
        expected.topic,
        key,
        sequence,
        field,
        _truncate(wanted),
        _truncate(there),
        got.partition,
        got.offset,
    )


def first_difference(expected: Any, got: Any, path: str = "") -> tuple[str, Any, Any]:
    """Path of the first value in which two JSON values differ, and both values there."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for name in sorted(expected.keys() | got.keys()):
            if expected.get(name) != got.get(name):
                inner = f"{path}.{name}" if path else name
                return first_difference(expected.get(name), got.get(name), inner)
    elif isinstance(expected, list) and isinstance(got, list):
        for index, (one, other) in enumerate(zip(expected, got, strict=False)):
            if one != other:
                return first_difference(one, other, f"{path}[{index}]")
        if len(expected) != len(got):
            return f"{path}.length", len(expected), len(got)
    return path or "value", expected, got


def _identity(record: OutRecord) -> str:
    return (dict(record.headers).get("ce_id") or b"").decode()


def _decode(value: bytes | None) -> Any:
    try:
        return None if value is None else orjson.loads(value)
    except orjson.JSONDecodeError:
        return _text(value)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")


def _truncate(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= SHOWN_LENGTH_MAX else text[:SHOWN_LENGTH_MAX] + "..."


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """Reports the extent of a replay, its end, and the differences found."""

    entries: int
    events: int
    records: int
    compared: int
    sequence: int
    now: int
    digest: str
    seconds: float
    differences: tuple[RecordDifference, ...]
    uncompared: str | None = None


def replay_history(
    history: History,
    cell: str,
    fallback: Configuration,
    until: ReplayEnd | None = None,
    *,
    verify: bool,
    on_record: Callable[[JournalEntry, OutRecord], None] | None = None,
) -> ReplayReport:
    """Replay a history, compare it if `verify` asks for it. `fallback`: the configuration where
    neither snapshot nor journal name one.

    Raises JournalDamaged, ReplayRefused, RecoveryRefused.
    """
    start = history.start
    check = None
    if verify:
        check = Verification(history.written, start, history.sequence, history.shortened)
    replay = Replay(cell, start.configuration(fallback) if start else fallback, start)
    counts = {"entries": 0, "events": 0, "records": 0}
    began = time.perf_counter()
    for each in replay.run(read_entries(history.journal, cell), until):
        counts["entries"] += 1
        counts["events"] += len(each.entry.events)
        counts["records"] += len(each.records)
        if check is not None:
            check.compare(each)
        if on_record is not None:
            for record in each.records:
                on_record(each.entry, record)
    found = check.differences(complete=until is None) if check else []
    return ReplayReport(
        **counts,
        compared=check.compared if check else 0,
        sequence=replay.sequence,
        now=replay.now,
        digest=replay.digest,
        seconds=time.perf_counter() - began,
        differences=tuple(found),
        uncompared=None if check is None else check.describe_uncompared(),
    )
