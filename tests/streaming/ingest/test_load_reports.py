"""Reading reports of loads: the plain form agrees with the careful way, and nothing raises."""

import json
import pickle
from collections import Counter
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from placement.load_reports import LoadBands, LoadReport
from schemas.refusals import RefusalCode
from streaming.codec import RawRecord, RefusedRecord
from streaming.ingest.load_reports import LoadPacking, PackedLoads, pack_loads, read_plain
from streaming.ingest.load_reports import read_report as read
from streaming.ingest.source import make_packing_plan
from tests.builders.kafka_rows import LIFE, PREFIX, arrow, bare, packed, raw
from tests.streaming.ingest.test_source import TIMERS

NAMES = frozenset({"disk", "writes"})
SHARDS = [
    {"stream": "s", "shard": 3, "disk": 5, "writes": 7},
    {"stream": "t", "shard": 0, "disk": 6, "writes": 0},
    {"stream": "s", "shard": 4, "disk": 2**62, "writes": 8},
]


def report(shards: Any = SHARDS, at: int = 1_000, offset: int = 0, **fields: Any) -> RawRecord:
    body = {**LIFE, **fields, "shards": shards}
    return raw("NodeLoadReported", str(body["node_id"]), body, offset, at, "loads.v1")


def same(one: LoadReport, other: LoadReport) -> bool:
    arrays = ("codes", "shards", "amounts")
    names = [name for name in LoadReport.__match_args__ if name not in arrays]
    equal = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)
    return equal and all(list_of(one, name) == list_of(other, name) for name in names)


def list_of(found: LoadReport, name: str) -> Any:
    value = getattr(found, name)
    return [*value] if isinstance(value, list | tuple) else value


def carefully(record: RawRecord, ignored: Counter[str] | None = None) -> LoadReport | RefusedRecord:
    """The same record in a form that is not plain."""
    assert record.value is not None
    body = {"type": "NodeLoadReported"}
    text = orjson.dumps(body)[:-1] + b"," + record.value.lstrip()[1:]
    return read(record._replace(value=text, headers=[]), NAMES, ignored or Counter())


def test_a_plain_report_is_read_by_the_column() -> None:
    found = read_plain(report(capacities={"disk": 99}))
    assert found is not None
    assert (found.streams, found.codes.tolist()) == (["s", "t"], [0, 1, 0])
    assert found.amounts.tolist() == [[5, 6, 2**62], [7, 0, 8]]
    other = carefully(report(capacities={"disk": 99}))
    assert isinstance(other, LoadReport)
    assert same(found, other)


@pytest.mark.parametrize("uid", [None, "u1"])
def test_uids_and_resources_that_differ_are_read_too(uid: str | None) -> None:
    shards = [{"stream": "s", "shard": 0, "uid": uid, "disk": 1}, {**SHARDS[1], "writes": 2}]
    found = read(report(shards), NAMES, Counter())
    assert isinstance(found, LoadReport)
    assert found.uids == [uid, None]
    assert found.amounts.tolist() == [[1, 6], [-1, 2]]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('"disk": 5, "disk": 5', "DUPLICATE_FIELD"),
        ('"disk": -5', "WRONG_TYPE"),
        ('"disk": 5.0', "WRONG_TYPE"),
        ('"disk": true', "WRONG_TYPE"),
        ('"disk": false', "WRONG_TYPE"),
        ('"disk": null', "WRONG_TYPE"),
        ('"disk": "5"', "WRONG_TYPE"),
        ('"disk": NaN', "NOT_JSON"),
        ('"disk": 18446744073709551615', "NUMBER_OUT_OF_RANGE"),
        ('"disk": 4611686018427387905', "WRONG_TYPE"),
        ('"dsk": 5', "RESOURCE_UNKNOWN"),
        ('"disk": 5}, {"stream": "s", "shard": 0, "disk": 5', "WRONG_TYPE"),
    ],
)
def test_what_is_wrong_is_refused_and_named(text: str, code: str) -> None:
    life = json.dumps(LIFE)[:-1]
    value = f'{life}, "shards": [{{"stream": "s", "shard": 0, {text}}}]}}'.encode()
    found = read(report()._replace(value=value), NAMES, Counter())
    assert isinstance(found, RefusedRecord)
    assert found.code == code


def test_an_unknown_resource_is_named_with_the_known_ones() -> None:
    found = read(report([{"stream": "s", "shard": 0, "dsk": 5}]), NAMES, Counter())
    assert isinstance(found, RefusedRecord)
    assert found.detail == (
        "field 'shards[0].dsk' names no configured resource; there are: disk, writes"
    )


def test_a_field_that_is_not_read_is_counted() -> None:
    ignored: Counter[str] = Counter()
    found = read(report(note="x"), NAMES, ignored)
    assert isinstance(found, LoadReport)
    assert ignored == {"unknown_field": 1}


values = st.one_of(
    st.integers(-2, 3),
    st.sampled_from([2**62, 2**62 + 1, 2**63, 2**64, True, None, 1.0, "1", [], [1], {"a": 1}]),
)
entries = st.fixed_dictionaries(
    {"stream": st.sampled_from(["s", "t", "", 5, ["s"], {"s": 1}]), "shard": values},
    optional={"uid": st.sampled_from(["u", "v", None, 5, ["u"]]), "disk": values, "x y": values},
)
LISTED = {"node_id": "n1", "incarnation": "a", "sequence": 1}
bodies = st.fixed_dictionaries(
    {"node_id": st.sampled_from(["n1", "n2", 5]), "incarnation": st.just("a"), "sequence": values},
    optional={
        "shards": st.lists(entries, max_size=3) | values,
        "capacities": st.dictionaries(st.sampled_from(["disk", "D"]), values, max_size=2) | values,
    },
)


@given(bodies)
@example({**LISTED, "shards": [{"stream": ["s"], "shard": 0, "disk": 5}]})
@example({**LISTED, "shards": [{"stream": "s", "uid": ["u"], "shard": 0, "disk": 5}]})
@example({**LISTED, "shards": [{"stream": "s", "shard": 0, "disk": [5]}]})
@example({**LISTED, "shards": [{"stream": "s", "shard": [0], "disk": [5]}]})
@example({**LISTED, "shards": [{"stream": "s", "shard": n, "disk": [5] * n} for n in (0, 1)]})
def test_nothing_is_plain_that_the_careful_way_would_refuse(body: dict[str, Any]) -> None:
    record = raw("NodeLoadReported", "n1", {}, 0, 5, "loads.v1")
    record = record._replace(value=json.dumps(body).encode())
    plain = read_plain(record)
    found = carefully(record)
    if plain is not None:
        assert isinstance(found, LoadReport)
        assert same(plain, found)


def test_reports_go_where_their_node_is_and_the_rest_with_the_first() -> None:
    packing = LoadPacking(NAMES, 3, LoadBands())
    records = [report(node_id=f"n{number}", offset=number) for number in range(20)]
    records.append(bare("NodeHeartbeat", "n1", LIFE, offset=20, topic="loads.v1"))
    rows: dict[int, PackedLoads] = {
        row["load_shard"]: pickle.loads(row["payload"])
        for made in pack_loads(packing, iter([arrow(records)]))
        for row in made.to_pylist()
    }
    assert set(rows) == {0, 1, 2}
    assert sorted(offset for row in rows.values() for offset, _ in row.reports) == [*range(20)]
    assert [row.stretch is not None for row in rows.values()] == [True, False, False]
    (refused,) = rows[0].refused
    assert refused.code == RefusalCode.WRONG_TOPIC


def test_a_registration_may_only_name_configured_resources() -> None:
    body = LIFE | {"capacities": {"disk": 5, "dsk": 5}}
    record = raw("NodeRegistered", "n1", body)
    (row,) = packed(make_packing_plan(PREFIX, 1, TIMERS, NAMES), [arrow([record])]).values()
    (refused,) = row.refused
    assert (refused.code, refused.detail) == (
        "RESOURCE_UNKNOWN",
        "field 'capacities.dsk' names no configured resource; there are: disk, writes",
    )
    (row,) = packed(make_packing_plan(PREFIX, 1, TIMERS), [arrow([record])]).values()
    assert row.refused == [], "where none is configured, nobody knows which are right"
