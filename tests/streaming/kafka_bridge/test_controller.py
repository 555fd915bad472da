"""The step of the bridge: the order of actions, what a failure leaves, and whole stories with the
real reconciler."""

from typing import Any

import pytest

from schemas.acks import MoveCompleted
from streaming.errors import BrokerUnreachable
from streaming.kafka_bridge.actions import ChangeEntries, Elect, Reassign, SetRates, carry_out
from streaming.kafka_bridge.controller import BridgeOptions, find_step
from streaming.kafka_bridge.memory import Memory
from streaming.kafka_bridge.snapshot import Throttles
from tests.builders.bridge_tables import NOW, TableBuilder, look, partition
from tests.builders.bridged_cluster import BridgedCluster, reassigned
from tests.builders.kafka_cluster import SimulatedKafka

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
OPTIONS = BridgeOptions()


def built() -> TableBuilder:
    nodes = TableBuilder().nodes(1, 2, 3, 4, 5, 6)
    return nodes.stream(shards=2).assign("123", "m").move("m", "1>4").assign("213", shard=1)


def test_throttles_come_first_and_those_that_go_last() -> None:
    stale = Throttles({6: 50}, {}, {}, {"t": frozenset({"1:3"})})
    kafka = look(partition((1, 2, 3)), partition((2, 1, 3), number=1, leader=1), throttles=stale)
    tables = built().move("old", "2>3", "completed", shard=1).tables
    kinds = [type(each) for each in find_step(kafka, tables, Memory(), OPTIONS).actions]
    assert kinds == [SetRates, ChangeEntries, Reassign, Elect, ChangeEntries, SetRates]


def test_a_step_is_a_function_of_what_it_is_given() -> None:
    kafka = look(partition((1, 2, 3)), partition((2, 1, 3), number=1))
    tables = built().tables
    first, again = (find_step(kafka, tables, Memory(), OPTIONS) for _ in range(2))
    assert first == again


def test_without_a_controller_nothing_is_done_or_said() -> None:
    kafka = look(partition((1, 2, 3)), partition((2, 1, 3), number=1), controller=None)
    step = find_step(kafka, TableBuilder().tables, Memory(), OPTIONS)
    assert (step.actions, step.messages) == ((), ())
    assert "controller" in step.notes[0]


def test_an_acknowledgement_is_repeated_when_its_answer_stays_away() -> None:
    kafka = look(partition((4, 2, 3)), partition((2, 1, 3), number=1))
    tables = built().tables
    step = find_step(kafka, tables, Memory(), OPTIONS)
    assert [type(each) for each in step.messages] == [MoveCompleted]
    assert not find_step(kafka, tables, step.memory, OPTIONS).messages
    later = look(partition((4, 2, 3)), partition((2, 1, 3), number=1), at=NOW + 61_000)
    assert len(find_step(later, tables, step.memory, OPTIONS).messages) == 1


class FailingKafka(SimulatedKafka):
    """Refuses one kind of call."""

    fails = ""

    def alter_broker_rates(self, changes: Any) -> Any:
        """Refuse, or break off."""
        if self.fails == "rates":
            return dict.fromkeys(changes, "UnknownBrokerId")
        if self.fails == "call":
            raise BrokerUnreachable("gone")
        return super().alter_broker_rates(changes)


@pytest.mark.parametrize(
    ("fails", "copies", "cancels"),
    [("", True, True), ("rates", False, True), ("call", False, False)],
)
def test_no_copy_starts_whose_throttle_was_not_set(fails: str, copies: bool, cancels: bool) -> None:
    kafka = FailingKafka(RACKS)
    kafka.create("t", [(1, 2, 3), (1, 2, 3)])
    kafka.alter_reassignments({("t", 1): (4, 2, 3)})
    kafka.altered.clear()
    kafka.fails = fails
    actions = (SetRates({1: {"x": 5}}), Reassign({("t", 0): (4, 2, 3), ("t", 1): None}))
    carried = carry_out(actions, kafka)
    assert ((("t", 0), (4, 2, 3)) in kafka.altered) is copies
    assert ((("t", 1), None) in kafka.altered) is cancels
    assert bool(carried.failures) is bool(fails)


def test_a_refused_reassignment_is_remembered_for_one_step() -> None:
    kafka = SimulatedKafka(RACKS)
    kafka.create("t", [(1, 2, 3)])
    carried = carry_out([Reassign({("t", 0): (9, 2, 3)})], kafka)
    assert carried.refused == {("t", 0): "InvalidReplicationAssignment"}
    step = find_step(look(partition((1, 2, 3))), TableBuilder().tables, Memory(), OPTIONS)
    assert step.remember(carried).refused == carried.refused


# With the real reconciler


@pytest.fixture(scope="module")
def adopted() -> BridgedCluster:
    """Six brokers with two topics, adopted and at rest; brokers die and come back in the tests."""
    cluster = BridgedCluster(RACKS)
    cluster.kafka.create("t", [(1, 2, 3), (2, 3, 1), (3, 1, 2), (4, 5, 6)], size=10)
    cluster.kafka.create("u", [(1, 5, 3), (2, 3, 4)], size=10, min_insync_replicas="2")
    cluster.run()
    return cluster


def check_rest(cluster: BridgedCluster) -> None:
    assert cluster.assigned() == cluster.lists()
    assert not cluster.throttles()
    assert not cluster.open_moves
    assert not cluster.letters()


def test_a_dead_broker_is_healed_in_its_rack_and_acknowledged_once(adopted: BridgedCluster) -> None:
    adopted.acknowledged.clear()
    adopted.kafka.fence(1)
    adopted.run()
    check_rest(adopted)
    assert not any(1 in replicas for replicas in adopted.lists().values())
    assert {4 in adopted.lists()["t", n] for n in range(3)} == {True}
    assert set(adopted.acknowledged.values()) == {1}
    adopted.kafka.unfence(1)
    adopted.run()
    check_rest(adopted)


def test_a_target_that_dies_is_given_up_and_undone(adopted: BridgedCluster) -> None:
    adopted.kafka.fence(2)
    while not reassigned(adopted.step()):
        pass
    adopted.kafka.fence(5)
    adopted.run()
    check_rest(adopted)
    assert adopted.memory.in_flight_max
    for broker in (2, 5):
        adopted.kafka.unfence(broker)
    adopted.run()
    check_rest(adopted)


@pytest.mark.parametrize("dies_after", ["look", "actions", "messages"])
def test_the_bridge_may_be_killed_between_any_two_parts_of_a_step(
    adopted: BridgedCluster, dies_after: str
) -> None:
    adopted.kafka.fence(3)
    for _ in range(8):
        adopted.step(dies_after=dies_after)
        adopted.kafka.copy(1)
    adopted.kafka.unfence(3)
    adopted.run()
    check_rest(adopted)


def test_the_reconciler_may_be_killed_while_moves_run(adopted: BridgedCluster) -> None:
    adopted.kafka.fence(6)
    while not adopted.open_moves:
        adopted.step()
    adopted.restart_reconciler()
    adopted.run()
    adopted.kafka.unfence(6)
    adopted.run()
    check_rest(adopted)


def test_topics_come_grow_go_and_are_made_anew(adopted: BridgedCluster) -> None:
    kafka = adopted.kafka
    kafka.create("v", [(1, 4, 2)])
    adopted.run()
    check_rest(adopted)
    assert {RACKS[each] for each in adopted.lists()["v", 0]} == {"a", "b", "c"}
    kafka.extend("v", [(1, 2, 3), (4, 5, 6)])
    adopted.run()
    assert adopted.assigned()["v", 2] == (4, 5, 6)
    kafka.delete("v")
    kafka.create("v", [(3, 2, 1)])
    adopted.run()
    check_rest(adopted)
    assert adopted.tables.decisions["v"].spec.uid == kafka.topics["v"].uid
    kafka.delete("v")
    adopted.run()
    check_rest(adopted)
    assert "v" not in {name for name, _ in adopted.assigned()}


def test_what_somebody_else_reassigns_is_waited_for_and_then_adopted(
    adopted: BridgedCluster,
) -> None:
    adopted.kafka.create("w", [(4, 5, 6)])
    adopted.run()
    adopted.kafka.alter_reassignments({("w", 0): (4, 2, 6)})
    for _ in range(8):
        step = adopted.step()
        assert not reassigned(step)
        assert step.notes == (
            "1 partition is reassigned by somebody else, which is waited for: w-0",
        )
    adopted.kafka.copy()
    adopted.run()
    check_rest(adopted)
    assert adopted.lists()["w", 0] == (4, 2, 6)
