"""What the reconciler is told of brokers: the least, and after a patience."""

from typing import Any

import pytest

from schemas.inputs import NodeLivenessReported, NodeMessage, NodeRegistered, NodeUnregistered
from streaming.kafka_bridge.importer import ImportOptions
from streaming.kafka_bridge.membership import (
    Membership,
    MembershipOptions,
    find_membership,
    find_silent_brokers,
    word_of,
)
from streaming.kafka_bridge.memory import Memory, advance_since
from streaming.kafka_bridge.snapshot import Broker, Snapshot
from tests.builders.bridge_tables import CLUSTER, NOW, TableBuilder, look, partition

OPTIONS = MembershipOptions(patience_ms=5_000, forget_after_ms=9_000)
LONG_AGO = NOW - 60_000


def tell(
    kafka: Snapshot,
    built: TableBuilder,
    memory: Memory | None = None,
    options: MembershipOptions = OPTIONS,
    **imports: Any,
) -> Membership:
    memory = Memory() if memory is None else memory
    return find_membership(kafka, built.tables, memory, options, ImportOptions(**imports))


def silent(broker: int, since: int) -> Memory:
    return Memory(silent_since={broker: since})


def describe(messages: tuple[NodeMessage, ...]) -> list[str]:
    return [" ".join(word_of(each)) for each in messages]


def test_brokers_register_with_their_racks_and_then_say_nothing() -> None:
    kafka = look(brokers=(1, 2))
    first, _ = tell(kafka, TableBuilder(), options=MembershipOptions(capacity=4000)).messages
    assert isinstance(first, NodeRegistered)
    assert (first.location, first.tags, first.host) == ("/r1", {"rack": "r1"}, "k1:9092")
    assert (first.liveness, first.capacity) == ("external", 4000)
    assert tell(kafka, TableBuilder().nodes(1, 2)).messages == ()


@pytest.mark.parametrize(
    "changed",
    [
        {"host": "other:9092"},
        {"location": "/r9"},
        {"tags": {}},
        {"capacity": 5},
        {"liveness_mode": "heartbeat"},
        {"liveness": "unregistered"},
        {"incarnation": "of-its-own"},
    ],
)
def test_a_broker_registers_again_when_it_changed(changed: dict[str, Any]) -> None:
    (said,) = tell(
        look(brokers=(1,)), TableBuilder().node("1", sequence=NOW + 7, **changed)
    ).messages
    assert isinstance(said, NodeRegistered)
    assert said.sequence == NOW + 8
    assert said.replaces == ("of-its-own" if "incarnation" in changed else None)


def test_a_place_that_waits_for_approval_is_not_claimed_again() -> None:
    pending = {"location": "/r1", "tags": {"rack": "r1"}, "impact_hash": ""}
    assert not tell(
        look(brokers=(1,)), TableBuilder().node("1", location="/r9", pending=pending)
    ).messages
    claimed = TableBuilder().node("1", location="/r9", claimed_location="/r1")
    assert not tell(look(brokers=(1,)), claimed).messages


@pytest.mark.parametrize(
    ("liveness", "fenced", "since", "controller", "said"),
    [
        ("up", True, NOW - 5_000, 1, ["NodeLivenessReported down 1"]),
        ("up", True, NOW - 4_999, 1, []),
        ("up", True, LONG_AGO, None, []),
        ("dead", True, LONG_AGO, 1, []),
        ("dead", False, NOW, 1, ["NodeLivenessReported up 1"]),
        ("up", False, NOW, 1, []),
    ],
)
def test_a_fenced_broker_is_down_after_the_patience(
    liveness: str, fenced: bool, since: int, controller: int | None, said: list[str]
) -> None:
    kafka = look(brokers=(1,), fenced=(1,) if fenced else (), controller=controller)
    found = tell(kafka, TableBuilder().node("1", liveness), silent(1, since))
    assert describe(found.messages) == said


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (5_000, 3_000, []),
        (6_999, 4_999, []),
        (7_000, 5_000, ["NodeLivenessReported down 1", "NodeLivenessReported down 2"]),
        # Too late to be of one loss, and at last reported alone.
        (7_000, 3_999, ["NodeLivenessReported down 1"]),
        (5_000, 5_000, ["NodeLivenessReported down 1", "NodeLivenessReported down 2"]),
    ],
)
def test_brokers_that_fall_together_are_reported_together(
    first: int, second: int, said: list[str]
) -> None:
    kafka = look(brokers=(1, 2, 3), fenced=(1, 2))
    memory = Memory(silent_since={1: NOW - first, 2: NOW - second})
    assert describe(tell(kafka, TableBuilder().nodes(1, 2, 3), memory).messages) == said


def test_reports_rise_above_the_last_one() -> None:
    built = TableBuilder().node("1", "dead", reported={"sequence": NOW, "said": "reported down"})
    (report,) = tell(look(brokers=(1,)), built).messages
    assert isinstance(report, NodeLivenessReported)
    assert report.sequence == NOW + 1


@pytest.mark.parametrize(
    ("since", "said"),
    [(NOW - 5_000, ["NodeLivenessReported down 9"]), (NOW - 9_000, ["NodeUnregistered 9"])],
)
def test_a_broker_that_kafka_forgot_is_down_and_then_leaves(since: int, said: list[str]) -> None:
    kafka, built = look(brokers=(1,)), TableBuilder().nodes(1).node("9")
    assert find_silent_brokers(kafka, built.tables) == {9}
    assert describe(tell(kafka, built, silent(9, since)).messages) == said
    left = TableBuilder().nodes(1).node("9", "unregistered")
    assert not tell(kafka, left, silent(9, since)).messages


def test_a_broker_that_stands_in_lists_alone_is_registered_without_room() -> None:
    kafka = look(partition((1, 9)), brokers=(1,))
    (ghost,) = tell(kafka, TableBuilder().nodes(1)).messages
    assert isinstance(ghost, NodeRegistered)
    assert (ghost.node_id, ghost.capacity, ghost.location) == ("9", 0, None)


def test_nothing_is_said_twice_while_the_answer_may_come() -> None:
    kafka = look(brokers=(1,))
    (said,) = tell(kafka, TableBuilder()).messages
    for ago, expected in ((1_000, 0), (31_000, 1)):
        memory = Memory(words={word_of(said): NOW - ago})
        assert len(tell(kafka, TableBuilder(), memory).messages) == expected


def test_two_clusters_do_not_share_a_reconciler() -> None:
    found = tell(look(brokers=(1,)), TableBuilder().node("1", incarnation="kafka-OTHER"))
    assert not found.messages
    assert "OTHER" in found.notes[0]
    assert CLUSTER in found.notes[0]


def test_a_rack_that_cannot_be_read_is_told_by_name() -> None:
    kafka = look(brokers=(1,))
    found = tell(kafka, TableBuilder(), levels=("zone", "rack"), separator="/")
    assert not found.messages
    assert "broker 1" in found.notes[0]


def test_a_broker_that_returns_takes_its_name_back() -> None:
    gone = TableBuilder().node("1", "unregistered")
    (said,) = tell(look(brokers=(1,)), gone).messages
    assert isinstance(said, NodeRegistered)
    assert not isinstance(said, NodeUnregistered)


@pytest.mark.parametrize(
    ("looked_at", "expected"),
    [
        (NOW - 2_000, NOW - 9_000),
        (NOW - 600_000, NOW - 9_000 + 600_000),
        (NOW + 50_000, NOW - 59_000),
    ],
    ids=["a look as usual", "a stop or a jump of the clock", "a clock that was set back"],
)
def test_patience_counts_only_what_was_observed(looked_at: int, expected: int) -> None:
    unobserved = Memory(looked_at=looked_at).unobserved_ms(NOW)
    assert advance_since({1: NOW - 9_000}, {1}, NOW, unobserved)[1] == min(expected, NOW)


def test_a_broker_without_a_rack_has_no_location() -> None:
    kafka = look(brokers=(1,))
    brokers = {1: Broker(1, "k1", 9092)}
    bare = Snapshot(kafka.at, kafka.cluster_id, 1, brokers, {})
    (said,) = tell(bare, TableBuilder()).messages
    assert isinstance(said, NodeRegistered)
    assert said.location is None
    assert not tell(bare, TableBuilder().node("1", location="", tags={})).messages
