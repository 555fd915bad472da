"""The stateful operator under PySpark's own tester: no JVM, the state in memory."""

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from placement.liveness import Clock, LivenessTable, Registration, Timers, Verdict
from placement.model import Liveness, NodeAttributes, NodeView
from schemas.refusals import RefusalCode
from streaming.codec import RawRecord
from streaming.ingest import node_lifecycle
from streaming.ingest.node_lifecycle import NodeLifecycle, ShardOutput, initial_liveness_tables
from streaming.ingest.source import make_packing_plan, pack, shard_of
from tests.builders.kafka_rows import PREFIX, arrow, cuts, heartbeat, raw, registered, tick
from tests.builders.random_logs import logs

TIMERS = Timers(suspect_after_ms=2_000, dead_after_ms=4_000)
ONE = make_packing_plan(PREFIX, 1, TIMERS)


@pytest.fixture(autouse=True)
def fresh_worker() -> Iterator[None]:
    """A worker process that has seen no batch."""
    node_lifecycle._TABLES.clear()
    yield
    node_lifecycle._TABLES.clear()


def operator(nodes: Sequence[NodeView] = (), clocks: dict[int, Clock] | None = None) -> TwsTester:
    """The operator with one topology shard, started as the application starts it."""
    tables = initial_liveness_tables(nodes, clocks or {}, TIMERS, 1)
    initial = [(key, Row(topology_shard=key, table=blob)) for key, blob in tables]
    return TwsTester(NodeLifecycle(TIMERS), initialStateRow=initial, outputMode="Update")


def batch(
    tester: TwsTester, *partitions: Sequence[RawRecord], shards: int = 1, key: int = 0
) -> ShardOutput:
    """One micro-batch: what is read of each partition, packed, and judged for one shard."""
    packing = make_packing_plan(PREFIX, shards, TIMERS)
    rows = [
        Row(**row)
        for records in partitions
        for made in pack(packing, iter([arrow(records)]))
        for row in made.to_pylist()
        if row["topology_shard"] == key
    ]
    (answer,) = tester.test(key, rows)
    judged: ShardOutput = pickle.loads(answer.payload)
    return judged


def told(judged: ShardOutput) -> list[tuple[str, str, int]]:
    return [(v.node_id, v.liveness.value, v.offset) for _, v in judged.verdicts]


def ticks(first: int, start: int, count: int) -> list[RawRecord]:
    """Ticks a second apart, as many as asked for."""
    return [tick(first + number, start + 1_000 * number) for number in range(count)]


def view(node_id: str, liveness: Liveness, sequence: int = 5) -> NodeView:
    return NodeView(node_id, "a", sequence, "", 1, NodeAttributes(), liveness, 0)


# Life of a node


def test_a_node_registers_falls_silent_dies_and_returns() -> None:
    tester = operator()
    assert told(batch(tester, [registered("n1", 1)])) == [("n1", "up", 0)]
    assert told(batch(tester, [heartbeat("n1", 2, offset=1, at=500)])) == []
    assert told(batch(tester, ticks(2, 1_500, 1))) == [], "a second is no silence"
    assert told(batch(tester, ticks(3, 2_500, 2))) == [("n1", "suspect", 3)]
    assert told(batch(tester, ticks(5, 4_500, 3))) == [("n1", "dead", 5)]
    assert told(batch(tester, ticks(8, 7_500, 3))) == [], "dead is said once"
    back = [heartbeat("n1", 3, offset=11, at=10_500), heartbeat("n1", 4, offset=12, at=10_600)]
    assert told(batch(tester, back)) == [("n1", "up", 11)]
    assert told(batch(tester, [tick(13, 11_600)])) == []


def test_a_return_within_the_time_costs_nothing_but_a_word() -> None:
    tester = operator()
    batch(tester, [registered("n1", 1), *ticks(1, 1_000, 3)])
    found = batch(tester, [heartbeat("n1", 2, offset=4, at=3_500), *ticks(5, 4_000, 2)])
    assert told(found) == [("n1", "up", 4)]


def test_unregistered_is_final_for_heartbeats() -> None:
    tester = operator()
    batch(tester, [registered("n1", 1)])
    life = {"node_id": "n1", "incarnation": "a"}
    gone = raw("NodeUnregistered", "n1", life | {"sequence": 2}, offset=1)
    assert told(batch(tester, [gone])) == [("n1", "unregistered", 1)]
    assert told(batch(tester, [heartbeat("n1", 3, offset=2, at=100), *ticks(3, 1_000, 9)])) == []
    assert told(batch(tester, [registered("n1", 4, offset=12)])) == [("n1", "up", 12)]


def test_a_process_that_restarts_waits_and_takes_over() -> None:
    tester = operator()
    batch(tester, [registered("n1", 1)])
    again = registered("n1", 1, incarnation="b", location="/z2", offset=1, at=500)
    ((_, verdict),) = batch(tester, [again]).verdicts
    assert verdict.incarnation == "a"
    assert verdict.lives is not None
    assert verdict.lives.pending is not None
    assert verdict.lives.pending.grace_ms == TIMERS.suspect_after_ms
    beats = [heartbeat("n1", 2, incarnation="b", offset=2, at=900), *ticks(3, 1_000, 1)]
    assert told(batch(tester, beats)) == []
    ((_, verdict),) = batch(tester, ticks(4, 2_000, 1)).verdicts
    assert (verdict.incarnation, verdict.sequence, verdict.liveness) == ("b", 2, Liveness.UP)
    assert verdict.statement is not None
    assert verdict.statement.body == Registration(NodeAttributes("/z2"))
    assert verdict.flaps is None


def test_a_process_that_says_that_it_stops_is_followed_at_once() -> None:
    tester = operator()
    batch(tester, [registered("n1", 1)])
    life = {"node_id": "n1", "incarnation": "a", "sequence": 2, "stopping": True}
    again = registered("n1", 1, incarnation="b", offset=2, at=20)
    ((_, verdict),) = batch(tester, [raw("NodeHeartbeat", "n1", life, offset=1), again]).verdicts
    assert (verdict.offset, verdict.incarnation) == (2, "b")


def test_what_is_refused_comes_with_its_record_and_what_is_ignored_is_counted() -> None:
    tester = operator()
    batch(tester, [registered("n1", 1)])
    life = {"node_id": "n1", "incarnation": "manual", "sequence": 1}
    strangers = [heartbeat("ghost", 1, offset=n, at=n) for n in (2, 3)]
    own = [heartbeat("n1", 1, offset=4, at=4), heartbeat("n1", 9, incarnation="x", offset=5, at=5)]
    found = batch(tester, [raw("NodeUnregistered", "n1", life, offset=1), *strangers, *own])
    ((_, verdict),) = found.verdicts
    assert verdict.refused is not None
    assert verdict.refused.code == "INCARNATION_UNKNOWN"
    assert verdict.statement is not None
    assert verdict.statement.record.offset == 1, "the dead letter needs the record"
    assert found.ignored == {"unknown_node": 2, "older_sequence": 1, "unknown_incarnation": 1}
    assert not batch(tester, ticks(6, 1_000, 1)).ignored


def test_verdicts_know_the_partition_they_come_from() -> None:
    tester = operator()
    other = [each._replace(partition=3) for each in (registered("n2", 1), *ticks(1, 0, 2))]
    found = batch(tester, other, [registered("n1", 1)])
    assert [(partition, v.node_id) for partition, v in found.verdicts] == [(0, "n1"), (3, "n2")]
    assert set(found.clocks) == {0, 3}
    assert found.clocks[3] == Clock(1_000, 1_000)


def test_one_partition_going_on_makes_no_silence_in_another() -> None:
    """An unavailable partition can delay a verdict, never cause one."""
    tester = operator()
    batch(tester, [registered("n1", 1)], [registered("n2", 1)._replace(partition=1)])
    running = [each._replace(partition=1) for each in ticks(1, 1_000, 6)]
    assert told(batch(tester, running)) == [("n2", "suspect", 2), ("n2", "dead", 4)]


# Cut into batches


def essence(verdict: Verdict) -> tuple[object, ...]:
    """A verdict without where in its batch the record stood."""
    said = verdict.statement
    return (*astuple(replace(verdict, statement=None)), said and (said.body, said.record))


def verdicts(tester: TwsTester, records: Sequence[RawRecord], sizes: Sequence[int]) -> list[object]:
    return [essence(v) for part in cuts(records, sizes) for _, v in batch(tester, part).verdicts]


@given(logs(), st.lists(st.integers(1, 20)))
@settings(max_examples=100)
def test_where_the_log_is_cut_changes_nothing(records: list[RawRecord], sizes: list[int]) -> None:
    node_lifecycle._TABLES.clear()
    whole, cut = operator(), operator()
    expected = verdicts(whole, records, [])
    node_lifecycle._TABLES.clear()
    assert verdicts(cut, records, sizes) == expected
    assert whole.peekValueState("table", 0) == cut.peekValueState("table", 0)


@given(logs(), st.lists(st.integers(1, 20)))
@settings(max_examples=50)
def test_the_cache_changes_nothing(records: list[RawRecord], sizes: list[int]) -> None:
    node_lifecycle._TABLES.clear()
    cached, expected = operator(), verdicts(operator(), records, sizes)
    node_lifecycle._TABLES.clear()
    found: list[object] = []
    for part in cuts(records, sizes):
        found += [essence(v) for _, v in batch(cached, part).verdicts]
        node_lifecycle._TABLES.clear()
    assert found == expected


def test_topology_shards_judge_their_own_nodes() -> None:
    names = [f"n{number}" for number in range(12)]
    records = [registered(name, 1, offset=number) for number, name in enumerate(names)]
    records += ticks(12, 1_000, 3)
    tester = TwsTester(NodeLifecycle(TIMERS))
    found = [told(batch(tester, records, shards=2, key=key)) for key in (0, 1)]
    for key, verdicts_found in enumerate(found):
        mine = [name for name in names if shard_of(name, 2) == key]
        assert mine
        assert {name for name, _, _ in verdicts_found} == set(mine)
        suspects = [name for name, liveness, _ in verdicts_found if liveness == "suspect"]
        assert suspects == sorted(mine)


# Initial state


def test_the_first_batch_goes_on_from_the_recovered_state() -> None:
    known = [view("n1", Liveness.UP), view("n2", Liveness.SUSPECT), view("n3", Liveness.DEAD)]
    tester = operator(known, {0: Clock(50_000, 1_000_000)})
    silent = batch(tester, ticks(100, 1_001_000, 2))
    assert told(silent) == [("n1", "suspect", 101), ("n2", "dead", 101)], "n3 is dead already"
    assert silent.clocks == {0: Clock(52_000, 1_002_000)}
    old = heartbeat("n3", 5, offset=102, at=1_002_100)
    assert told(batch(tester, [old])) == [], "its sequence is known"
    assert told(batch(tester, [old._replace(offset=103), heartbeat("n3", 6, offset=104)])) == [
        ("n3", "up", 104)
    ]


def test_a_long_stop_of_the_application_is_no_silence_of_the_nodes() -> None:
    tester = operator([view("n1", Liveness.UP)], {0: Clock(50_000, 1_000_000)})
    after_a_day = 1_000_000 + 86_400_000
    assert told(batch(tester, ticks(100, after_a_day, 1))) == []


def test_every_shard_has_an_initial_table() -> None:
    known = [view(f"n{number}", Liveness.UP) for number in range(8)]
    tables = initial_liveness_tables(known, {}, TIMERS, 3)
    assert [shard for shard, _ in tables] == [0, 1, 2]
    sizes = [len(LivenessTable.from_bytes(blob, TIMERS)) for _, blob in tables]
    assert sum(sizes) == 8


# The cache of the worker


def test_a_table_of_another_history_is_not_trusted() -> None:
    """The worker served the shard, another one went on, and the shard comes back."""
    tester = operator()
    batch(tester, [registered("n1", 1)])
    stale = node_lifecycle._TABLES[0]
    node_lifecycle._TABLES.clear()
    batch(tester, [registered("n2", 1, offset=1)])
    node_lifecycle._TABLES[0] = stale
    found = batch(tester, ticks(2, 1_000, 3))
    assert told(found) == [("n1", "suspect", 3), ("n2", "suspect", 3)]


def test_a_table_with_the_hash_of_the_state_is_used() -> None:
    tester = operator()
    batch(tester, [registered("n1", 1)])
    _, table = node_lifecycle._TABLES[0]
    batch(tester, [heartbeat("n1", 2, offset=1, at=100)])
    assert node_lifecycle._TABLES[0][1] is table


def test_a_failed_attempt_leaves_no_trace_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark retries a task on the state as it was; the worker's table has gone on by then."""
    tester = operator()
    batch(tester, [registered("n1", 1)])
    silence = ticks(1, 1_000, 3)
    with monkeypatch.context() as broken:

        def fail(*_: object) -> bytes:
            raise OSError("no space left on device")

        broken.setattr(NodeLifecycle, "_put", fail)
        with pytest.raises(OSError, match="no space"):
            batch(tester, silence)
    assert told(batch(tester, silence)) == [("n1", "suspect", 2)]


# What is not about nodes


def test_other_events_pass_untouched() -> None:
    tester = operator()
    streams = [
        RawRecord("streams.v1", 0, 7, 50, b"s", b"no JSON", [("h", None)]),
        RawRecord("streams.v1", 0, 9, 60, None, None, []),
    ]
    acks = [RawRecord("acks.v1", 1, 0, 55, b"s/0", b"{}", [])]
    found = batch(tester, streams, acks)
    assert found.passed == streams + acks
    assert [(s.topic, s.first_offset, s.next_offset) for s in found.stretches] == [
        ("streams.v1", 7, 10),
        ("acks.v1", 0, 1),
    ]
    assert (found.verdicts, found.clocks, found.tick) == ([], {}, None)


def test_stretches_ticks_and_refused_records_pass() -> None:
    tester = operator()
    poison = RawRecord("nodes.v1", 0, 1, 0, b"n1", b"\xff", [])
    found = batch(
        tester,
        [registered("n1", 1), poison, tick(2, 10, number=8)],
        [tick(0, 5, number=9)._replace(partition=1)],
    )
    assert [(each.raw.offset, each.code) for each in found.refused] == [(1, RefusalCode.NOT_JSON)]
    assert found.tick == (3, 9)
    assert [(s.partition, s.next_offset, s.last_at) for s in found.stretches] == [
        (0, 3, 10),
        (1, 1, 5),
    ]


def test_a_batch_without_node_records_leaves_the_state_alone() -> None:
    tester = operator([view("n1", Liveness.UP)], {0: Clock(1, 2)})
    before = tester.peekValueState("table", 0)
    batch(tester, [RawRecord("streams.v1", 0, 0, 0, b"s", b"{}", [])])
    assert tester.peekValueState("table", 0) == before
