"""The operator of loads under PySpark's own tester: state by node, rebuilt from what is known."""

import pickle
from collections.abc import Sequence

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from placement.load_reports import LoadBands
from placement.model import Amounts
from streaming.codec import RawRecord
from streaming.ingest import load_filter
from streaming.ingest.load_filter import LoadFilter, initial_node_loads
from streaming.ingest.load_reports import LoadPacking, pack_loads
from streaming.ingest.node_lifecycle import ShardOutput
from tests.builders.kafka_rows import arrow
from tests.streaming.ingest.test_load_reports import report

BANDS = LoadBands()
PACKING = LoadPacking(frozenset({"disk"}), 1, BANDS)
Known = dict[str, list[tuple[str, int, Amounts]]]


def operator(known: Known | None = None) -> TwsTester:
    rows = initial_node_loads(known or {}, {}, BANDS, 1, 0)
    initial = [(shard, Row(load_shard=shard, node=n, loads=blob)) for shard, n, blob in rows]
    return TwsTester(LoadFilter(BANDS), initialStateRow=initial, outputMode="Update")


def batch(tester: TwsTester, *records: RawRecord) -> ShardOutput:
    rows = [
        Row(**row)
        for made in pack_loads(PACKING, iter([arrow(records)]))
        for row in made.to_pylist()
    ]
    (answer,) = tester.test(0, rows)
    judged: ShardOutput = pickle.loads(answer.payload)
    return judged


def said(node_id: str, sequence: int, loads: Sequence[int], at: int, offset: int = 0) -> RawRecord:
    shards = [{"stream": "s", "shard": n, "disk": amount} for n, amount in enumerate(loads)]
    return report(shards, at, offset, node_id=node_id, sequence=sequence)


def told(output: ShardOutput) -> list[tuple[int, str, list[int]]]:
    return [
        (offset, event.node_id, [each.amounts[0][1] for each in event.loads])
        for _, offset, event in output.loads
    ]


def test_each_node_has_a_state_of_its_own() -> None:
    tester = operator()
    first = batch(tester, said("n1", 1, [5, 6], 0, 0), said("n2", 1, [9], 10, 1))
    assert told(first) == [(0, "n1", [5, 6]), (1, "n2", [9])]
    assert first.stretches[0].next_offset == 2
    again = batch(tester, said("n1", 2, [5, 60], 10**6, 2), said("n1", 2, [7, 7], 10**6, 3))
    assert told(again) == [(2, "n1", [60])]
    assert again.ignored == {"load_older_sequence": 1}


def test_a_start_goes_on_from_what_the_planner_knows() -> None:
    tester = operator({"n1": [("s", 0, (("disk", 100),))]})
    assert told(batch(tester, said("n1", 1, [105, 7], 10))) == [(0, "n1", [7])]


@pytest.mark.parametrize("cut", range(1, 8))
def test_the_events_do_not_depend_on_how_the_log_is_cut(cut: int) -> None:
    records = [said(f"n{n % 2}", n, [100 * (n // 4), 50], 60_000 * n, offset=n) for n in range(8)]
    whole = told(batch(operator(), *records))
    tester = operator()
    parts = told(batch(tester, *records[:cut])) + told(batch(tester, *records[cut:]))
    assert parts == whole


def test_a_silent_node_is_forgotten_when_another_reports() -> None:
    tester = operator()
    batch(tester, said("n1", 1, [5], 0), said("n2", 1, [5], 0, 1))
    assert told(batch(tester, said("n2", 2, [5], BANDS.expiry_ms + 1))) == []
    assert told(batch(tester, said("n1", 2, [5], BANDS.expiry_ms + 2))) == [(0, "n1", [5])]
    assert tester.peekMapState("nodes", 0).keys() == {("n1",), ("n2",)}


def test_made_up_nodes_do_not_fill_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_filter, "NODES_MAX", 3)
    tester = operator()
    for number in range(10):
        batch(tester, said(f"n{number}", 1, [5], number))
    assert tester.peekMapState("nodes", 0).keys() == {("n7",), ("n8",), ("n9",)}
