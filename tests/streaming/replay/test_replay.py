"""Replay gives every record again, and whatever was damaged is named.

Method: an eventful history of the driver's half; its journal goes through the core again and the
result is held against what was written, whole, from a snapshot, compacted, and damaged.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from placement.model import Configuration
from schemas.topics import JOURNAL
from streaming.brokers import Record
from streaming.recovery import Snapshot
from streaming.recovery.journal import JournalDamaged
from streaming.recovery.recovery import RecoveryRefused
from streaming.recovery.snapshot import restore_snapshot
from streaming.replay.history import LOGS, History, JournalShortened, history_of_recording
from streaming.replay.recording import (
    LOG,
    STATE,
    RecordingHead,
    RecordingUnreadable,
    end_line,
    head_line,
    read_recording,
    record_line,
    write_lines,
)
from streaming.replay.replay import ReplayEnd, ReplayRefused
from streaming.replay.verification import ReplayReport, first_difference, replay_history
from tests.builders.batches import CELL
from tests.builders.histories import altered, eventful, history, lying, snapshot_behind

Change = Callable[[list[Record]], list[Record]]


@pytest.fixture(scope="module")
def written() -> list[Record]:
    """The records of the eventful history."""
    return lying(eventful())


def replayed(given: History, until: ReplayEnd | None = None) -> ReplayReport:
    return replay_history(given, CELL, Configuration(cell="unused"), until, verify=True)


def test_a_journal_gives_every_record_again(written: list[Record]) -> None:
    report = replayed(history(written))
    assert report.differences == ()
    state = [r for r in written if r.topic in ("assignments.v1", "moves.v1", "decisions.v1")]
    assert len(state) < report.compared == report.records
    assert {r.value["state"] for r in written if r.topic == "moves.v1" and r.value} >= {
        "issued",
        "completed",
    }
    assert report.digest == [r.value for r in written if r.topic == "commits.v1"][-1]["digest"]


@pytest.mark.parametrize("share", [0.1, 0.4, 0.6, 0.9])
def test_a_snapshot_and_the_journal_behind_it_give_the_rest(
    written: list[Record], share: float
) -> None:
    markers = [i for i, record in enumerate(written) if record.topic == "commits.v1"]
    cut = markers[int(len(markers) * share)] + 1
    report = replayed(history(written, snapshot_behind(written[:cut])))
    assert report.differences == ()
    assert 0 < report.records < replayed(history(written)).records


def test_what_compaction_takes_is_not_missed(written: list[Record]) -> None:
    last = {(r.topic, r.key): r.offset for r in written}
    kept = [
        record
        for record in written
        if record.topic in (JOURNAL, *LOGS)
        or (last[record.topic, record.key] == record.offset and record.raw is not None)
    ]
    assert len(kept) < len(written)
    assert replayed(history(kept)).differences == ()


def test_a_replay_ends_where_it_is_told_to(written: list[Record]) -> None:
    whole = replayed(history(written))
    part = replayed(history(written), ReplayEnd(sequence=4))
    assert (part.sequence, part.differences) == (4, ())
    entries = [r.value for r in written if r.topic == JOURNAL]
    moment = entries[-1]["now"]
    part = replayed(history(written), ReplayEnd(time_ms=moment))
    assert part.differences == ()
    assert 0 < part.records < whole.records
    assert part.now < moment


def at(records: list[Record], topic: str, key: str) -> int:
    """Index of the first record of a key."""
    return next(i for i, each in enumerate(records) if (each.topic, each.key) == (topic, key))


def body(records: list[Record]) -> list[Record]:
    index = at(records, "assignments.v1", "a/1")
    return [*records[:index], altered(records[index], decided_at=7), *records[index + 1 :]]


def lost(records: list[Record]) -> list[Record]:
    keys = [i for i, r in enumerate(records) if (r.topic, r.key) == ("assignments.v1", "c/0")]
    return [record for i, record in enumerate(records) if i != keys[-1]]


def doubled(records: list[Record]) -> list[Record]:
    index = at(records, "decisions.v1", "b")
    return [*records, records[index]]


def foreign(records: list[Record]) -> list[Record]:
    index = at(records, "decisions.v1", "b")
    place = ("decisions.v1", 0, 9_999, 0)
    return [*records, Record.of(*place, b"b", records[index].raw, (("ce_id", b"x"),))]


def header(records: list[Record]) -> list[Record]:
    index = at(records, "decisions.v1", "b")
    one = records[index]
    headers = tuple((k, b"other" if k == "ce_source" else v) for k, v in one.raw_headers)
    other = Record.of(one.topic, 0, one.offset, 0, one.raw_key, one.raw, headers)
    return [*records[:index], other, *records[index + 1 :]]


def digest(records: list[Record]) -> list[Record]:
    return [*records[:-1], altered(records[-1], digest="0" * 16)]


def event(records: list[Record]) -> list[Record]:
    """The journal says that another node fell silent."""
    for index, record in enumerate(records):
        if record.topic == JOURNAL and b'"liveness":"suspect"' in (record.raw or b""):
            assert record.value is not None
            events = orjson.loads((record.raw or b"").replace(b'"n0"', b'"n1"'))["events"]
            return [*records[:index], altered(record, events=events), *records[index + 1 :]]
    raise AssertionError("no verdict in the journal")


@pytest.mark.parametrize(("topic", "key", "count"), [
    ("alerts.v1", "NEW_DOMAIN", 2), ("answers.v1", "n4", 3),
])  # fmt: skip
def test_of_a_log_the_oldest_records_may_be_gone_and_no_other(
    written: list[Record], topic: str, key: str, count: int
) -> None:
    kept = [record for record in written if record.topic == topic]
    assert [record.key for record in kept] == [key] * count
    for gone, names in ((kept[0], []), (kept[-1], [topic])):
        given = replace(
            history([r for r in written if r is not gone]), shortened=frozenset({topic})
        )
        found = replayed(given).differences
        assert [each.topic for each in found] == names
    found = replayed(history([r for r in written if r is not kept[0]])).differences
    assert [(each.topic, each.reason) for each in found] == [(topic, "the record is missing")]


@pytest.mark.parametrize(
    ("damage", "topic", "key", "says"),
    [
        (body, "assignments.v1", "a/1", "same id: decided_at: expected 1000, got 7"),
        (lost, "assignments.v1", "c/0", "the record is missing"),
        (doubled, "decisions.v1", "b", "was written twice"),
        (foreign, "decisions.v1", "b", "the journal does not give this record"),
        (header, "decisions.v1", "b", 'header ce_source: expected "/placement/main", got "other"'),
        (digest, "commits.v1", CELL, "the state has another digest"),
        (event, "topology.v1", "n1", "the record is missing: expected"),
    ],
)  # fmt: skip
def test_damage_is_named(
    written: list[Record], damage: Change, topic: str, key: str, says: str
) -> None:
    first = replayed(history(damage(written))).differences[0]
    assert (first.topic, first.key) == (topic, key)
    assert says in str(first)


def of_formula(version: int | None, records: Sequence[Record]) -> list[Record]:
    """The records as a version wrote them whose digests this one does not compute alike."""
    marked = {"digest": "0" * 16, "digest_version": version}
    return [altered(r, **marked) if r.topic == "commits.v1" else r for r in records]


@pytest.mark.parametrize(("version", "formula"), [(None, 1), (3, 3)])
def test_digests_of_another_formula_are_not_compared_and_named(
    written: list[Record], version: int | None, formula: int
) -> None:
    report = replayed(history(of_formula(version, written)))
    assert report.differences == ()
    assert report.uncompared is not None
    assert f"the digest there is of formula {formula}, this version" in report.uncompared
    lost_too = replayed(history(of_formula(version, lost(written))))
    assert [each.topic for each in lost_too.differences] == ["assignments.v1"]
    assert replayed(history(written)).uncompared is None


def test_a_snapshot_of_a_newer_formula_is_refused_by_name(written: list[Record]) -> None:
    start = replace_marker(snapshot_behind(written), digest_version=3)
    with pytest.raises(RecoveryRefused, match="formula 3, this version computes formulas 1 to 2"):
        replayed(history(written, start))


def test_a_snapshot_of_the_first_formula_is_proved_by_it(written: list[Record]) -> None:
    whole = snapshot_behind(written)
    proved = restore_snapshot(whole, Configuration(cell=CELL)).digest_of_version(1)
    start = replace_marker(whole, digest=proved, digest_version=None)
    assert replayed(history(written, start)).differences == ()
    with pytest.raises(ReplayRefused, match="the snapshot was altered"):
        replayed(history(written, replace_marker(whole, digest_version=None)))


def replace_marker(given: Snapshot, **change: object) -> Snapshot:
    return replace(given, marker={**given.marker, **change})


def journal_only(written: list[Record], change: Callable[[list[Record]], list[Record]]) -> History:
    given = history(written)
    return History(None, change(given.journal), given.written, given.sequence)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda j: [altered(j[0], chunks=2), *j[1:]], "chunk 1 of the entry with sequence 1"),
        (lambda j: [*j[:-1], altered(j[-1], chunks=2)], "its entry is incomplete"),
        (lambda j: [j[1], j[0]], "sequence 1 follows 2"),
        (lambda j: [altered(j[0], events=[["Earthquake", {}]])], "'Earthquake' is not an event"),
        (lambda j: [altered(j[0], events=[["NodeChanged", {"at": "x"}]])], "NodeChanged.at"),
        (lambda j: [*j, Record.of(JOURNAL, 0, 99, 0, b"main", b"{", ())], "offset 99 is not a"),
    ],
)  # fmt: skip
def test_a_damaged_journal_is_refused_by_name(
    written: list[Record], change: Change, says: str
) -> None:
    with pytest.raises(JournalDamaged, match=r"journal\.v1-0 offset \d") as refused:
        replayed(journal_only(written, change))
    assert says in str(refused.value)


def test_an_altered_snapshot_is_refused(written: list[Record]) -> None:
    whole = snapshot_behind(written)
    records = tuple(
        altered(r, epoch=99) if (r.topic, r.key) == ("assignments.v1", "a/0") else r
        for r in whole.records
    )
    start = type(whole)(whole.marker, records, whole.positions)
    with pytest.raises(ReplayRefused, match="the snapshot was altered"):
        replayed(history(written, start))


@pytest.mark.parametrize(
    ("expected", "got", "path"),
    [
        ({"a": 1}, {"a": 2}, "a"),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "a.b[1]"),
        ([1], [1, 2], ".length"),
        ({"a": 1}, {}, "a"),
        (1, "1", "value"),
    ],
)
def test_the_first_field_that_differs_is_found(expected: object, got: object, path: str) -> None:
    assert first_difference(expected, got)[0] == path


# Recordings


def file_of(written: list[Record], path: Path, cut: int | None = None) -> Path:
    """A recording of the history, with a snapshot at `cut` if one is given."""
    head = RecordingHead("placement.", CELL, {}, {})
    start = None if cut is None else snapshot_behind(written[:cut])
    lines = [head_line(head)]
    lines += [record_line(STATE, record) for record in (start.records if start else ())]
    lines += [record_line(LOG, record) for record in written[cut or 0 :]]
    lines.append(end_line(history(written).sequence, start.positions if start else {}))
    write_lines(path, lines)
    return path


@pytest.mark.parametrize("share", [None, 0.5])
def test_a_recording_can_be_replayed_by_itself(
    written: list[Record], share: float | None, tmp_path: Path
) -> None:
    markers = [i for i, record in enumerate(written) if record.topic == "commits.v1"]
    cut = None if share is None else markers[int(len(markers) * share)] + 1
    recording = read_recording(file_of(written, tmp_path / "r.ndjson", cut))
    report = replayed(history_of_recording(recording))
    assert report.differences == ()
    assert report.compared == report.records > 0


def test_a_recording_loses_no_byte(tmp_path: Path) -> None:
    odd = Record.of("streams.v1", 3, 9, 17, b"\xff", b"\x00\xfe{", (("h", b"\x80"), ("h", None)))
    given = [odd, Record.of("streams.v1", 0, 0, 5, None, None, ())]
    path = tmp_path / "r.ndjson"
    lines = [head_line(RecordingHead("p.", "c", {}, {})), *(record_line(LOG, r) for r in given)]
    write_lines(path, [*lines, end_line(1, {})])
    assert read_recording(path).records == given


def test_a_recording_from_the_middle_without_a_snapshot_is_refused(
    written: list[Record], tmp_path: Path
) -> None:
    later = [r for r in written if r.topic != JOURNAL or r.offset > 5]
    with pytest.raises(JournalShortened):
        history_of_recording(read_recording(file_of(later, tmp_path / "r.ndjson")))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda text: text[:-30], "line"),
        (lambda text: b"".join(text.splitlines(keepends=True)[:-1]), "the file was cut off"),
        (
            lambda text: text.replace(b'"recording":1', b'"recording":2'),
            "version 2 of recordings cannot be read, only 1",
        ),
        (lambda text: text[:0], "ends after line 0"),
        (lambda text: b"[1]\n" + text, "line 1 is not a line of a recording"),
    ],
)
def test_a_damaged_recording_is_refused(
    written: list[Record], damage: Callable[[bytes], bytes], says: str, tmp_path: Path
) -> None:
    path = file_of(written[:9], tmp_path / "r.ndjson")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RecordingUnreadable, match=says):
        read_recording(path)
