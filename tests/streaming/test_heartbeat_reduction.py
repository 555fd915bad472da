"""Reduction of heartbeats: whatever is left out, the liveness table must come to the same verdicts.

Method: a random log of one partition goes through the packing, in stretches of any length, and
beside it, read the careful way and whole, into a second table.
"""

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from placement.liveness import Beat, LivenessTable, PartitionLog, Statement, Tick, Timers, Verdict
from placement.model import Liveness
from streaming import source
from streaming.source import Layout, Raw, Refused, layout, shard_of
from tests.streaming.kafka_rows import LIFE, PREFIX, arrow, cuts, packed, raw, steady
from tests.streaming.random_logs import logs

TIMERS = Timers(suspect_after_ms=2_000, dead_after_ms=4_000)
ONE = layout(PREFIX, 1, TIMERS)


def whole_log(records: Sequence[Raw]) -> PartitionLog:
    """A stretch without any reduction, read the careful way."""
    elapsed, before = 0, records[0].at
    found: list[Any] = []
    for record in records:
        elapsed += min(max(record.at - before, 0), TIMERS.gap_max_ms)
        before = record.at
        parsed = source._careful(record, elapsed)
        assert not isinstance(parsed, Refused)
        found.append(parsed[0] if isinstance(parsed, tuple) else parsed)
    return PartitionLog(
        0,
        records[0].at,
        before,
        elapsed,
        [each for each in found if isinstance(each, Beat)],
        [each for each in found if isinstance(each, Statement)],
        [each for each in found if isinstance(each, Tick)],
    )


def judged(tables: dict[int, LivenessTable], packing: Layout, part: Sequence[Raw]) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for shard, row in packed(packing, [arrow(part)]).items():
        assert row.log is not None
        verdicts += tables[shard].apply(row.log)
    return sorted(verdicts, key=lambda each: (each.offset, each.node_id))


@given(logs(beats_rise=True), st.lists(st.integers(1, 20)), st.sampled_from([1, 2]))
@settings(max_examples=200)
def test_reduction_changes_no_verdict(records: list[Raw], sizes: list[int], shards: int) -> None:
    packing = layout(PREFIX, shards, TIMERS)
    reduced = {shard: LivenessTable(TIMERS) for shard in range(shards)}
    whole = LivenessTable(TIMERS)
    for part in cuts(records, sizes):
        expected = sorted(whole.apply(whole_log(part)), key=lambda v: (v.offset, v.node_id))
        assert judged(reduced, packing, part) == expected
        for name in ("n1", "n2"):
            mine = reduced[shard_of(name, shards)]
            assert mine.condition(name) == whole.condition(name)


@given(logs(beats_rise=False), st.lists(st.integers(1, 20)))
@settings(max_examples=200)
def test_late_and_repeated_beats_end_in_the_same_condition(
    records: list[Raw], sizes: list[int]
) -> None:
    """A beat that an earlier batch had already is not known as such to the packing, so that the
    moment of a return may differ; what is believed at a statement and at the end may not."""
    reduced, whole = {0: LivenessTable(TIMERS)}, LivenessTable(TIMERS)
    for part in cuts(records, sizes):
        expected = [each for each in whole.apply(whole_log(part)) if each.statement]
        found = [each for each in judged(reduced, ONE, part) if each.statement]
        assert found == expected
        assert reduced[0].condition("n1") == whole.condition("n1")
        assert reduced[0].condition("n2") == whole.condition("n2")


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


def test_a_steady_node_costs_few_heartbeats() -> None:
    records = steady("n1", 200)
    log = packed(ONE, [arrow(records)])[0].log
    assert log is not None
    span = records[-1].at / TIMERS.suspect_after_ms
    assert len(log.beats) <= 2 * span + 2 < len(records) / 2
