"""Heartbeats by the column: the verdicts must be those of the records one by one.

Method: a random log of one partition goes through the packing, in stretches of any length, and
beside it, read the careful way and record by record, into a second table.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.liveness import (
    Heartbeat,
    Heartbeats,
    LivenessTable,
    PartitionLog,
    Statement,
    Timers,
    Verdict,
)
from placement.model import Liveness
from streaming.codec import RawRecord, RefusedRecord
from streaming.ingest import source
from streaming.ingest.heartbeats import split_heartbeats
from streaming.ingest.source import PackingPlan, make_packing_plan, shard_of
from tests.builders.damaged_records import UNUSUAL, damaged
from tests.builders.kafka_rows import LIFE, PREFIX, arrow, binary_headers, cuts, packed, raw
from tests.builders.random_logs import logs

TIMERS = Timers(suspect_after_ms=2_000, dead_after_ms=4_000)
ONE = make_packing_plan(PREFIX, 1, TIMERS)


def one_by_one(table: LivenessTable, records: Sequence[RawRecord]) -> list[Verdict]:
    """Verdicts of a log read the careful way, each record a stretch of its own."""
    verdicts: list[Verdict] = []
    for record in records:
        parsed = source._parse_record(record, 0, Counter())
        assert not isinstance(parsed, RefusedRecord)
        beats = Heartbeats.of([parsed] if isinstance(parsed, Heartbeat) else [])
        statements = [parsed] if isinstance(parsed, Statement) else []
        ticks = [parsed[0]] if isinstance(parsed, tuple) else []
        verdicts += table.apply(PartitionLog(0, record.at, record.at, 0, beats, statements, ticks))
    return verdicts


def uncut(verdict: Verdict) -> Verdict:
    """Without the place in its stretch, which depends on where the log was cut."""
    said = verdict.statement
    return verdict if said is None else replace(verdict, statement=replace(said, elapsed=0))


def judged(
    tables: dict[int, LivenessTable], packing: PackingPlan, part: Sequence[RawRecord]
) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for shard, row in packed(packing, [arrow(part)]).items():
        assert row.log is not None
        verdicts += tables[shard].apply(row.log)
    return sorted(map(uncut, verdicts), key=lambda each: (each.offset, each.node_id))


@given(logs(), st.lists(st.integers(1, 20)), st.sampled_from([1, 2]))
@settings(max_examples=300)
def test_columns_change_no_verdict(records: list[RawRecord], sizes: list[int], shards: int) -> None:
    packing = make_packing_plan(PREFIX, shards, TIMERS)
    tables = {shard: LivenessTable(TIMERS) for shard in range(shards)}
    alone = LivenessTable(TIMERS)
    expected = sorted(one_by_one(alone, records), key=lambda v: (v.offset, v.node_id))
    found = [v for part in cuts(records, sizes) for v in judged(tables, packing, part)]
    assert found == expected
    for name in ("n1", "n2"):
        assert tables[shard_of(name, shards)].condition(name) == alone.condition(name)


def test_a_late_statement_meets_the_beats_before_it() -> None:
    """The agent's two threads: a heartbeat with a higher number is in the log before it."""
    numbers = [(1, "NodeRegistered"), (2, ""), (3, ""), (9, ""), (8, "NodeLocalityChanged")]
    records = [
        raw(
            message or "NodeHeartbeat",
            "n1",
            LIFE | {"sequence": sequence} | ({"location": "/z1"} if message else {}),
            offset,
            offset,
        )
        for offset, (sequence, message) in enumerate([*numbers, (10, ""), (11, "")])
    ]
    for sizes in ([], [1] * 7, [4], [2, 2, 2]):
        table = {0: LivenessTable(TIMERS)}
        verdicts = [v for part in cuts(records, sizes) for v in judged(table, ONE, part)]
        assert [verdict.sequence for verdict in verdicts] == [1], sizes
        assert table[0].condition("n1") == (Liveness.UP, "a", 11)


def beat(**changes: Any) -> RawRecord:
    return raw("NodeHeartbeat", "n1", LIFE)._replace(**changes)


def taken(*records: RawRecord) -> list[Heartbeat]:
    """What is read by the column."""
    numbers = np.arange(len(records)) * 5
    mask, beats = split_heartbeats(pa.Table.from_batches([arrow(records)]), numbers, numbers)
    assert mask.sum() == len(beats)
    return beats.rows()


LONGEST = {"node_id": "n" * 249, "incarnation": "i" * 249, "sequence": 10**18 - 1}


@pytest.mark.parametrize(
    "record",
    [
        beat(),
        raw("NodeHeartbeat", "n" * 249, LONGEST),
        beat(value=b' { "node_id": "n1",\t"incarnation" :"a", "sequence": 7}\r\n'),
        beat(headers=[*binary_headers("NodeHeartbeat"), ("traceparent", b"00-af")]),
    ],
    ids=["as a fleet sends it", "ids of full length", "white space", "a header of one's own"],
)
def test_plain_heartbeats_are_read_by_the_column(record: RawRecord) -> None:
    assert taken(record) == [source._parse_record(record, 0, Counter())]


@pytest.mark.parametrize("record", UNUSUAL.values(), ids=list(UNUSUAL))
def test_nothing_is_taken_that_the_careful_way_reads_differently(record: RawRecord) -> None:
    assert taken(record) in ([], [source._parse_record(record, 0, Counter())])


@given(st.lists(damaged(), min_size=1, max_size=6))
@settings(max_examples=500)
def test_both_ways_agree_on_damaged_records(records: list[RawRecord]) -> None:
    records = [each._replace(offset=n, at=5 * n) for n, each in enumerate([beat(), *records])]
    careful = {each.offset: source._parse_record(each, each.at, Counter()) for each in records}
    found = {each.offset: each for each in taken(*records)}
    assert found[0] == careful[0], "what is not damaged is read by the column"
    assert found == {offset: careful[offset] for offset in found}


def test_a_header_of_many_names_is_left_to_the_careful_way() -> None:
    many = [(f"h{number}", b"x") for number in range(20)]
    assert taken(beat(headers=[*binary_headers("NodeHeartbeat"), *many])) == []
