"""The state rebuilt from columns is the one rebuilt record by record, and so are its refusals."""

import sys

import pytest

from placement.model import Configuration
from schemas.topics import ASSIGNMENTS, STATE_TOPICS
from streaming.codec import COLUMN_RECORDS_MIN, assignments
from streaming.errors import StreamingError
from streaming.recovery import RecordUnreadable, rebuild
from tests.builders.batches import CELL
from tests.builders.histories import eventful

Latest = dict[str, dict[bytes, bytes]]

CONFIGURATION = Configuration(cell=CELL)
FIELDS = b'"replicas":["n1"],"adding":[],"removing":[],"decided_at":1'


@pytest.fixture(scope="module")
def published() -> Latest:
    """What an eventful history has left on the state topics."""
    latest: Latest = {topic: {} for topic in STATE_TOPICS}
    for record in (record for commit in eventful() for record in commit):
        if record.topic in latest and record.key is not None:
            latest[record.topic].pop(record.key, None)
            if record.value is not None:
                latest[record.topic][record.key] = record.value
    assert ASSIGNMENTS in latest
    return latest


def rebuilt(monkeypatch: pytest.MonkeyPatch, latest: Latest, block: int) -> tuple[object, ...]:
    """Digest and loads of the nodes, or the refusal; `block`: as many are read as columns."""
    monkeypatch.setattr(assignments, "COLUMN_RECORDS_MIN", block)
    try:
        state = rebuild(CONFIGURATION, latest, 1).reconciler
    except StreamingError as error:
        return type(error), str(error)
    return state.digest, state.state.table.load(len(state.state.nodes)).tolist()


def test_both_ways_give_one_state(monkeypatch: pytest.MonkeyPatch, published: Latest) -> None:
    digest, loads = rebuilt(monkeypatch, published, COLUMN_RECORDS_MIN)
    assert (digest, loads) == rebuilt(monkeypatch, published, 1)
    assert isinstance(loads, list)
    assert sum(loads) > 0


@pytest.mark.parametrize(
    "value",
    [
        b"{torn",
        b"null",
        b"[1]",
        b"\xff",
        b'{"stream":"a"}',
        b'{"stream":"a","shard":null,"epoch":1,%s}' % FIELDS,
        b'{"stream":"a","shard":99,"epoch":1,%s}' % FIELDS,
        b'{"stream":"other","shard":0,"epoch":1,%s}' % FIELDS,
        b'{"stream":"a","shard":0,"epoch":1,%s}' % FIELDS.replace(b"n1", b"nobody"),
        b'{"stream":"a","shard":0,"epoch":1,%s,"more":1}' % FIELDS,
        b'{"stream":"a","shard":0,"epoch":1,%s,"move_id":"m"}' % FIELDS,
        b'{"stream":"a","shard":0,"epoch":1,"epoch":2,%s}' % FIELDS,
        b'{"stream":"a","shard":0,"epoch":1,%s}{}' % FIELDS,
        b'{"stream":"a","shard":0,"epoch":1,%s},{}' % FIELDS,
    ],
)
def test_one_bad_record_is_told_alike(
    monkeypatch: pytest.MonkeyPatch, published: Latest, value: bytes
) -> None:
    latest = published | {ASSIGNMENTS: published[ASSIGNMENTS] | {b"a/0": value}}
    sound = rebuilt(monkeypatch, published, 1)
    found = rebuilt(monkeypatch, latest, 1)
    assert found == rebuilt(monkeypatch, latest, COLUMN_RECORDS_MIN)
    assert found != sound


@pytest.mark.parametrize("in_a_chunk", [1, 2, 100])
def test_the_record_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, published: Latest, in_a_chunk: int
) -> None:
    monkeypatch.setattr(assignments, "COLUMN_RECORDS_MIN", 1)
    monkeypatch.setattr(sys.modules[rebuild.__module__], "CHUNK_RECORDS", in_a_chunk)
    latest = published | {ASSIGNMENTS: published[ASSIGNMENTS] | {b"b/1": b'{"stream":"b"}'}}
    assert [*latest[ASSIGNMENTS]].index(b"b/1") > 2, "not in the first chunk"
    with pytest.raises(RecordUnreadable, match=r"key b/1 cannot be read: KeyError: 'adding'"):
        rebuild(CONFIGURATION, latest, 1)
