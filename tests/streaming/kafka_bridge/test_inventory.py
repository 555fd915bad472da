"""Topics become streams: adopted, extended, altered, dropped; one word on a stream at a time."""

import re
from typing import Any

import orjson
import pytest

from schemas import limits
from schemas.inputs import StreamAltered, StreamCreated
from streaming.kafka_bridge.importer import ImportOptions, TopicPolicy
from streaming.kafka_bridge.inventory import (
    Inventory,
    find_inventory,
    find_missing_streams,
    find_stale_streams,
)
from streaming.kafka_bridge.memory import SETTLE_MS, Memory
from streaming.kafka_bridge.snapshot import Snapshot
from tests.builders.bridge_tables import NOW, TableBuilder, look, partition

ALL = (1, 2, 3, 4, 5, 6)
LISTS = (partition((1, 2, 3)), partition((2, 3, 1), number=1))


def tell(
    kafka: Snapshot,
    built: TableBuilder,
    memory: Memory | None = None,
    options: ImportOptions | None = None,
) -> Inventory:
    memory, options = memory or Memory(), options or ImportOptions()
    stale = find_stale_streams(kafka, built.tables)
    return find_inventory(kafka, built.tables, memory, options, stale)


def describe(found: Inventory) -> list[str]:
    return [f"{type(each).__name__} {each.stream}" for each in found.messages]


def test_a_topic_is_adopted_with_its_lists_and_its_quorum() -> None:
    found = tell(look(*LISTS, min_in_sync=2), TableBuilder().nodes(*ALL))
    (created,) = found.messages
    assert isinstance(created, StreamCreated)
    assert (created.shards, created.replication_factor, created.quorum) == (2, 3, 2)
    assert created.replicas == (("1", "2", "3"), ("2", "3", "1"))
    assert created.policy == {"strategy": "spread", "rules": [{"even": "rack"}]}
    assert created.uid == "u1"


def test_a_topic_waits_until_its_brokers_are_known() -> None:
    assert not tell(look(*LISTS), TableBuilder().nodes(1, 2)).messages


def test_lists_are_adopted_without_what_a_reassignment_adds() -> None:
    running = partition((4, 2, 3, 1), adding=(4,), removing=(1,))
    (created,) = tell(look(running), TableBuilder().nodes(*ALL)).messages
    assert isinstance(created, StreamCreated)
    assert (created.replication_factor, created.replicas) == (3, (("2", "3", "1"),))


def test_a_topic_waits_until_a_move_of_its_earlier_stream_is_undone() -> None:
    running = look(partition((4, 2, 3, 1), adding=(4,), removing=(1,)))
    built = TableBuilder().nodes(*ALL).stream(outcome="dropped").move("m", "1>4", "cancelled")
    assert not tell(running, built).messages
    assert describe(tell(look(partition((1, 2, 3))), built)) == ["StreamCreated t"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"quorum": 2}, ["StreamAltered t"]),
        ({"policy": {"strategy": "spread"}}, ["StreamAltered t"]),
        ({"replication_factor": 2}, []),
        ({"shards": 1}, ["StreamAltered t"]),
        ({"shards": 3}, []),
    ],
)
def test_a_stream_follows_its_topic(changed: dict[str, Any], said: list[str]) -> None:
    built = TableBuilder().nodes(*ALL).stream(**({"shards": 2} | changed))
    assert describe(tell(look(*LISTS), built)) == said


@pytest.mark.parametrize(("since", "said"), [(NOW, 0), (NOW - SETTLE_MS, 1)])
def test_one_broker_that_lags_does_not_end_a_stream(since: int, said: int) -> None:
    built = TableBuilder().nodes(*ALL).stream(shards=3)
    assert find_stale_streams(look(*LISTS), built.tables) == {"t"}
    found = tell(look(*LISTS), built, Memory(stale_since={"t": since}))
    assert len(found.messages) == said


def test_new_partitions_are_adopted_where_they_are() -> None:
    (altered,) = tell(look(*LISTS), TableBuilder().nodes(*ALL).stream(sequence=NOW + 4)).messages
    assert isinstance(altered, StreamAltered)
    assert (altered.sequence, altered.replicas) == (NOW + 5, ((), ("2", "3", "1")))


@pytest.mark.parametrize("partitions", [3_000, 10_000])
def test_a_topic_of_any_size_is_adopted_in_records_that_fit(partitions: int) -> None:
    lists = [partition((1001, 1002, 1003), number=n) for n in range(partitions)]
    kafka = look(*lists, brokers=(1001, 1002, 1003))
    built = TableBuilder().nodes(1001, 1002, 1003)
    shards, records = 0, 0
    while shards < partitions and records < 20:
        (said,) = tell(kafka, built).messages
        assert isinstance(said, StreamCreated | StreamAltered)
        assert len(orjson.dumps(said.model_dump(mode="json"))) < limits.RECORD_BYTES_MAX
        assert said.replicas is not None
        assert not any(said.replicas[:shards])
        assert all(said.replicas[shards:])
        shards, records = said.shards, records + 1
        built = TableBuilder().nodes(1001, 1002, 1003).stream(shards=shards)
    assert shards == partitions
    assert not tell(kafka, built).messages


def test_policies_are_chosen_by_pattern_and_follow_a_change_of_it() -> None:
    policy = TopicPolicy(re.compile("t.*"), {"policy": {"strategy": "hashed"}})
    built = TableBuilder().nodes(*ALL).stream(shards=2)
    (altered,) = tell(look(*LISTS), built, options=ImportOptions(policies=[policy])).messages
    assert isinstance(altered, StreamAltered)
    assert altered.policy == {"strategy": "hashed"}


def test_a_policy_string_is_known_again_in_its_compact_form() -> None:
    given = TopicPolicy(re.compile("t"), {"placement_policies": "node=exclusive ; shard=balanced"})
    options = ImportOptions(policies=[given])
    other = TableBuilder().nodes(*ALL).stream(shards=2)
    (altered,) = tell(look(*LISTS), other, options=options).messages
    assert isinstance(altered, StreamAltered)
    assert altered.policy is None
    affinity = {"strategy": "affinity"}
    compact = {"policy": affinity, "placement_policies": "node=exclusive;shard=balanced"}
    known = TableBuilder().nodes(*ALL).stream(shards=2, **compact)
    assert not tell(look(*LISTS), known, options=options).messages
    assert describe(tell(look(*LISTS), known)) == ["StreamAltered t"]


def test_a_change_that_was_refused_is_not_asked_for_again() -> None:
    built = TableBuilder().nodes(*ALL).stream(shards=2, quorum=2)
    (asked,) = tell(look(*LISTS), built).messages
    assert isinstance(asked, StreamAltered)
    decision = built.tables.decisions["t"]
    requested = decision.spec.model_copy(update={"quorum": asked.quorum})
    built.tables.decisions["t"] = decision.model_copy(update={"requested": requested})
    found = tell(look(*LISTS), built)
    assert not found.messages
    assert "refused" in found.notes[0]


@pytest.mark.parametrize(("code", "again"), [("POLICY_UNKNOWN_KEY", 0), ("NODE_UNKNOWN", 1)])
def test_a_topic_that_was_rejected_is_told_and_asked_for_when_it_may_help(
    code: str, again: int
) -> None:
    reasons = [{"code": code, "band": "config", "message": "it is so"}]
    built = TableBuilder().nodes(*ALL).stream(outcome="rejected", shards=2, reasons=reasons)
    found = tell(look(*LISTS), built)
    assert len(found.messages) == again
    assert bool(found.notes) is not bool(again)


def test_a_topic_that_was_made_anew_takes_the_place_of_its_stream() -> None:
    built = TableBuilder().nodes(*ALL).stream(shards=2, uid="u0")
    assert find_stale_streams(look(*LISTS), built.tables) == {"t"}
    # A broker that lags may show the earlier topic: all looks of a while have to agree.
    assert not tell(look(*LISTS), built).messages
    memory = Memory(stale_since={"t": NOW - SETTLE_MS})
    (created,) = tell(look(*LISTS), built, memory).messages
    assert isinstance(created, StreamCreated)
    assert (created.uid, created.replicas) == ("u1", (("1", "2", "3"), ("2", "3", "1")))
    asked = Memory(words={("stream", "t"): NOW - 1_000})
    assert not tell(look(*LISTS), built, asked).messages


@pytest.mark.parametrize("uid", [None, "u1"])
def test_every_word_names_the_topic_that_the_stream_was_made_of(uid: str | None) -> None:
    known = {} if uid is None else {"uid": uid}
    altered = tell(look(*LISTS), TableBuilder().nodes(*ALL).stream(shards=1, **known)).messages
    settled = Memory(missing_since={"t": NOW - SETTLE_MS})
    dropped = tell(look(), TableBuilder().nodes(*ALL).stream(**known), settled).messages
    assert [each.uid for each in (*altered, *dropped)] == [uid, uid]
    assert not find_stale_streams(look(*LISTS), TableBuilder().stream(shards=2, **known).tables)


@pytest.mark.parametrize(("since", "said"), [(NOW - SETTLE_MS + 1, 0), (NOW - SETTLE_MS, 1)])
def test_a_stream_whose_topic_is_gone_is_dropped_when_that_lasts(since: int, said: int) -> None:
    built = TableBuilder().nodes(*ALL).stream("gone")
    assert find_missing_streams(look(), built.tables, ImportOptions()) == {"gone"}
    found = tell(look(), built, Memory(missing_since={"gone": since}))
    assert len(found.messages) == said


def test_a_topic_that_is_not_selected_any_more_is_let_go() -> None:
    built = TableBuilder().nodes(*ALL).stream(shards=2)
    options = ImportOptions(exclude=re.compile("t"))
    assert find_missing_streams(look(*LISTS), built.tables, options) == {"t"}
    assert not tell(look(*LISTS), built, options=options).messages
    memory = Memory(missing_since={"t": NOW - SETTLE_MS})
    assert describe(tell(look(*LISTS), built, memory, options)) == ["StreamDropped t"]


def test_what_the_bounds_forbid_is_told() -> None:
    long_name, many = "x" * (limits.ID_LENGTH_MAX + 1), limits.SHARDS_MAX + 1
    lists = [partition((1,), number=n) for n in range(many)]
    for kafka in (look(*LISTS, name=long_name), look(*lists)):
        found = tell(kafka, TableBuilder().nodes(*ALL))
        assert not found.messages
        assert "adopted" in found.notes[0]
