"""Packing: what the executors make of a partition's records, held against the careful way."""

from collections import Counter
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.liveness import Timers
from schemas.refusals import RefusalCode
from streaming.codec import OffsetRange, RawRecord
from streaming.ingest.source import make_packing_plan, shard_of
from tests.builders.damaged_records import beat, damaged
from tests.builders.kafka_rows import (
    LIFE,
    PREFIX,
    arrow,
    cuts,
    packed,
    raw,
    registered,
    steady,
    tick,
)

TIMERS = Timers(suspect_after_ms=2_000, dead_after_ms=4_000)
ONE = make_packing_plan(PREFIX, 1, TIMERS)


def json(**changes: Any) -> bytes:
    return orjson.dumps(LIFE | changes)


# Poison


@given(
    st.lists(
        st.one_of(
            damaged(),
            st.builds(
                RawRecord,
                st.just("nodes.v1"),
                st.just(0),
                st.just(0),
                st.just(0),
                st.none() | st.binary(max_size=9),
                st.none() | st.binary(max_size=40) | st.sampled_from([b"[" * 100_000, b"{}"]),
                st.lists(
                    st.tuples(
                        st.text(st.characters(codec="utf-8"), max_size=9),
                        st.none() | st.binary(max_size=9),
                    ),
                    max_size=3,
                ),
            ),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_no_record_stops_the_packing_and_none_is_lost(records: list[RawRecord]) -> None:
    records = [each._replace(offset=number) for number, each in enumerate(records)]
    singles = Counter[str]()
    for record in records:
        alone = packed(ONE, [arrow([record])])[0]
        assert alone.log is not None
        parts = {
            "beat": alone.log.beats,
            "statement": alone.log.statements,
            "tick": alone.log.ticks,
            "refused": alone.refused,
        }
        assert sum(map(len, parts.values())) == 1, parts
        singles += Counter({name: len(part) for name, part in parts.items()})
    together = packed(ONE, [arrow(records)])[0]
    assert together.log is not None
    assert len(together.log.ticks) == singles["tick"]
    assert len(together.refused) == singles["refused"]


@pytest.mark.parametrize(
    ("record", "stage", "code"),
    [
        (beat(value=b"no JSON"), "decode", RefusalCode.NOT_JSON),
        (beat(value=None), "decode", RefusalCode.EMPTY_VALUE),
        (beat(value=b"\xff\xfe"), "decode", RefusalCode.NOT_JSON),
        (beat(value=json(sequence="7")), "validate", RefusalCode.WRONG_TYPE),
        (beat(value=json(node_id="n/1")), "validate", RefusalCode.WRONG_TYPE),
        (beat(key=b"n2"), "validate", RefusalCode.KEY_MISMATCH),
        (beat(key=None), "validate", RefusalCode.KEY_MISMATCH),
        (beat(headers=[]), "decode", RefusalCode.UNKNOWN_TYPE),
        (
            beat(headers=[("ce_type", b"placement.NodeHeartbeat.v2")]),
            "decode",
            RefusalCode.UNKNOWN_VERSION,
        ),
        (raw("StreamCreated", "n1", LIFE), "validate", RefusalCode.WRONG_TOPIC),
        (beat(value=b"[" * 100_000), "decode", RefusalCode.TOO_LARGE),
        (beat(value=b"[" * 60_000), "decode", RefusalCode.TOO_DEEP),
    ],
)
def test_poison_is_refused_with_a_reason(record: RawRecord, stage: str, code: str) -> None:
    found = packed(ONE, [arrow([beat(), record, beat()])])[0]
    assert [(each.stage, each.code) for each in found.refused] == [(stage, code)]
    assert found.refused[0].raw == record
    assert found.refused[0].detail
    assert found.log is not None
    assert [each.node_id for each in found.log.beats.rows()] == ["n1", "n1"], (
        "those around it count"
    )


# Shape


def test_a_stretch_names_what_was_read() -> None:
    records = [beat(offset=10, at=1_000), tick(12, 1_500), beat(offset=15, at=1_400)]
    found = packed(ONE, [arrow(records)])
    assert set(found) == {0}
    assert found[0].stretch == OffsetRange("nodes.v1", 0, 10, 16, 1_400)
    assert found[0].tick == (3, 4)
    log = found[0].log
    assert log is not None
    assert (log.partition, log.first_at, log.last_at, log.elapsed) == (0, 1_000, 1_400, 500)
    assert [each.elapsed for each in log.ticks] == [500], "time in the log never goes back"


def test_a_jump_of_the_clock_counts_as_one_gap() -> None:
    records = [beat(at=0), tick(1, 3_600_000), tick(2, 3_600_100)]
    log = packed(ONE, [arrow(records)])[0].log
    assert log is not None
    assert [each.elapsed for each in log.ticks] == [TIMERS.gap_max_ms, TIMERS.gap_max_ms + 100]


def test_the_newest_tick_of_the_newest_writer_is_told() -> None:
    ticks = [tick(0, 0, 9, writer_epoch=3), tick(1, 0, 1, writer_epoch=4), tick(2, 0, 10)]
    assert packed(ONE, [arrow(ticks)])[0].tick == (4, 1)


def test_nothing_comes_of_nothing() -> None:
    assert packed(ONE, []) == {}
    assert packed(ONE, [arrow([])]) == {}


@pytest.mark.parametrize("topic", ["streams.v1", "acks.v1"])
def test_other_topics_pass_unread_and_in_order(topic: str) -> None:
    records = [
        RawRecord(topic, 2, 4, 100, b"k", b"no JSON", []),
        RawRecord(topic, 2, 5, 90, None, None, [("h", None), ("", b"\xff")]),
    ]
    found = packed(make_packing_plan(PREFIX, 3, TIMERS), [arrow(records)])
    assert set(found) == {0}
    assert found[0].passed == records
    assert found[0].stretch == OffsetRange(topic, 2, 4, 6, 90)
    assert found[0].log is None


@pytest.mark.parametrize("null_headers", [True, False])
def test_headers_stay_with_their_records(null_headers: bool) -> None:
    records = [
        RawRecord("streams.v1", 0, number, 0, b"k", b"v", headers)
        for number, headers in enumerate(
            [[], [("a", b"1"), ("b", None)], [], [], [("a", b""), ("a", b"2"), ("c", b"3")], []]
        )
    ]
    whole = arrow(records, null_headers)
    assert packed(ONE, [whole])[0].passed == records
    sliced = [whole.slice(0, 2), whole.slice(2, 0), whole.slice(2, 1), whole.slice(3)]
    assert packed(ONE, sliced)[0].passed == records


@given(st.lists(st.integers(0, 4), max_size=8))
def test_arrow_batches_of_a_task_are_gathered(sizes: list[int]) -> None:
    records = steady("n1", 12)
    batches = [arrow(part) for part in cuts(records, sizes)]
    assert packed(ONE, batches) == packed(ONE, [arrow(records)])


def test_every_topology_shard_gets_a_row_and_its_own_nodes() -> None:
    three = make_packing_plan(PREFIX, 3, TIMERS)
    names = [f"n{number}" for number in range(20)]
    records = [registered(name, 1, offset=number) for number, name in enumerate(names)]
    records += [tick(20, 10), RawRecord("nodes.v1", 0, 21, 10, b"x", b"no JSON", [])]
    found = packed(three, [arrow(records)])
    assert sorted(found) == [0, 1, 2]
    for shard, row in found.items():
        assert row.log is not None
        mine = [name for name in names if shard_of(name, 3) == shard]
        assert mine, "twenty names leave no shard empty"
        assert [said.node_id for said in row.log.statements] == mine
        assert len(row.log.ticks) == 1
        assert row.log.elapsed == 10
        assert (row.stretch is None) == (shard > 0)
        assert (len(row.refused), row.tick) == ((1, (3, 4)) if shard == 0 else (0, None))
    only_ticks = packed(three, [arrow([tick(0, 0)])])
    assert sorted(only_ticks) == [0, 1, 2], "shards without records are judged too"
