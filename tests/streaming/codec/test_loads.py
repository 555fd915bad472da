"""Loads and capacities through the wire: what comes in, what is published, and both back."""

from dataclasses import replace

import numpy as np
import orjson

from placement.load_reports import UNSAID
from placement.model import (
    Amounts,
    Cause,
    LoadsReported,
    NodeAttributes,
    PendingLife,
    ReportedLoad,
    ShardLoad,
    StreamCreated,
    SuspectedLoad,
)
from schemas.envelope import Envelope, validate
from schemas.inputs import NodeLoadReported
from streaming import codec
from streaming.codec.records import (
    decision_record,
    load_record,
    move_record,
    node_record,
    parse_decision,
    parse_load,
    parse_move,
    parse_node,
)
from tests.streaming.codec.test_codec import CELL, DECISION, MOVE, VIEW, body_of, identity

AMOUNTS: Amounts = (("disk_bytes", 2**40), ("writes", 7))
LOAD = ShardLoad("s", 3, AMOUNTS, "n1", 1_000)


def test_the_load_of_a_shard_is_published_and_read_back() -> None:
    record = load_record("s", 3, LOAD, CELL, 5, 9)
    assert (record.topic, record.key) == ("load.v1", b"s/3")
    assert body_of(record)["amounts"] == {"disk_bytes": 2**40, "writes": 7}
    assert parse_load(body_of(record)) == LOAD
    gone = load_record("s", 3, None, CELL, 5, 9)
    assert (gone.key, gone.value) == (record.key, None)
    later = load_record("s", 3, LOAD, CELL, 5, 10)
    assert len({identity(each) for each in (record, gone, later)}) == 3


def test_capacities_of_a_node_and_of_a_life_that_waits_come_back() -> None:
    attributes = NodeAttributes("/z1", capacities=AMOUNTS)
    life = PendingLife("b", 1, "0f", 5, 7, attributes, False)
    view = replace(VIEW, attributes=attributes, lives=replace(VIEW.lives, pending=life))
    body = body_of(node_record("n1", view, CELL, 5, 9))
    assert body["capacities"] == body["pending_life"]["capacities"] == dict(AMOUNTS)
    assert parse_node(body) == view


def test_the_expected_load_of_a_spec_and_the_bytes_of_a_move_come_back() -> None:
    spec = replace(DECISION.spec, expected_load=AMOUNTS)
    decision = replace(DECISION, spec=spec, requested=spec)
    assert parse_decision(body_of(decision_record(decision, CELL))) == decision
    move = MOVE._replace(bytes=2**40, cause=Cause.DRAIN)
    assert parse_move(body_of(move_record(move, False, CELL))) == move


def test_what_is_not_set_leaves_no_trace() -> None:
    """Without resources, records and hashes of bodies are as they were before there were any."""
    assert "capacities" not in body_of(node_record("n1", VIEW, CELL, 5, 9))
    assert "expected_load" not in body_of(decision_record(DECISION, CELL))["spec"]
    assert "bytes" not in body_of(move_record(MOVE._replace(cause=Cause.DRAIN), False, CELL))
    body = {"stream": "s", "sequence": 1, "shards": 1, "replication_factor": 1}
    plain = validate(Envelope("StreamCreated", 1, None, body), b"s", "streams.v1")
    event = codec.event_of_message(plain, 5)  # type: ignore[arg-type]
    assert isinstance(event, StreamCreated)
    assert event.expected_load is None
    assert event.body_hash == "4d363a622717afbc9ec3c564332b36a0"
    asked = body | {"expected_load": dict(AMOUNTS)}
    given = validate(Envelope("StreamCreated", 1, None, asked), b"s", "streams.v1")
    event = codec.event_of_message(given, 5)  # type: ignore[arg-type]
    assert isinstance(event, StreamCreated)
    assert event.expected_load == AMOUNTS
    assert event.body_hash != "4d363a622717afbc9ec3c564332b36a0"


def test_a_report_becomes_columns() -> None:
    shards = [
        {"stream": "s", "shard": 3, "disk_bytes": 5, "uid": "u"},
        {"stream": "t", "shard": 0, "writes": 7},
        {"stream": "s", "shard": 4, "disk_bytes": 6, "writes": 8},
    ]
    life = {"node_id": "n1", "incarnation": "a", "sequence": 2, "capacities": {"disk_bytes": 99}}
    message = NodeLoadReported.model_validate(life | {"shards": shards})
    report = codec.report_of_message(message, 1_000)
    assert (report.at, report.node_id, report.sequence) == (1_000, "n1", 2)
    assert report.capacities == (("disk_bytes", 99),)
    assert (report.streams, report.uids) == (["s", "t"], ["u", None])
    assert report.codes.tolist() == [0, 1, 0]
    assert report.shards.tolist() == [3, 0, 4]
    assert report.resources == ["disk_bytes", "writes"]
    assert np.array_equal(report.amounts, [[5, UNSAID, 6], [UNSAID, 7, 8]])


def test_the_journal_keeps_what_the_filter_let_pass() -> None:
    event = LoadsReported(
        7,
        "n1",
        (ReportedLoad("s", 3, AMOUNTS, "u"), ReportedLoad("s", 4, AMOUNTS)),
        (SuspectedLoad("s", 5, "disk_bytes", 2**50, 7),),
    )
    line = orjson.loads(orjson.dumps(codec.journal_event(event)))
    assert codec.parse_journal_event(line) == event
