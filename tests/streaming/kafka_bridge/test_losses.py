"""Replicas in a failed log directory of a live broker are told as lost, and placed anew."""

from dataclasses import replace

import pytest

from schemas.acks import MoveFailed, ReplicaLost, ReplicasObserved
from streaming.kafka_bridge.controller import BridgeOptions, Step, find_step
from streaming.kafka_bridge.memory import SETTLE_MS, Memory
from streaming.kafka_bridge.observations import CONFIRM_INTERVAL_MS, LOSSES_MAX
from streaming.kafka_bridge.report import describe_message
from streaming.kafka_bridge.snapshot import Disk, Partition, Snapshot
from tests.builders.bridge_tables import NOW, TableBuilder, look
from tests.builders.bridge_tables import partition as whole
from tests.builders.bridged_cluster import BridgedCluster, reassigned

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
FAILED = Disk(10, 5, ("/disk2",))
SETTLED = NOW - SETTLE_MS
OTHER = whole((4, 5, 6), number=1)


def offline(
    broker: int, listed: tuple[int, ...] = (1, 2, 3), in_sync: tuple[int, ...] = (1, 2)
) -> Partition:
    return replace(whole(listed, in_sync), offline=(broker,))


def with_disks(kafka: Snapshot, sizes: dict[int, int] | None = None) -> Snapshot:
    """The look with the third broker's failed directory, which it was asked for."""
    held = {1: 7, 2: 7} if sizes is None else sizes
    return replace(kafka, disks={3: FAILED}, sizes={("t", 0): held}, sized_at=kafka.at)


def built(factor: int = 3) -> TableBuilder:
    nodes = TableBuilder().nodes(1, 2, 3, 4, 5, 6)
    return nodes.stream(shards=2, factor=factor, uid="u1").assign("456", shard=1)


def lost_since(since: int = SETTLED) -> Memory:
    return Memory(looked_at=NOW - 1_000, lost_since={(("t", 0), 3): since})


def losses(step: Step) -> list[ReplicaLost]:
    return [each for each in step.messages if isinstance(each, ReplicaLost)]


def test_a_loss_is_told_once_when_all_looks_of_a_while_agree() -> None:
    kafka, tables = with_disks(look(offline(3), OTHER)), built().assign("123", uid="u1").tables
    first = find_step(kafka, tables, Memory(), BridgeOptions())
    assert not losses(first)
    assert first.memory.sizes_interval_ms == CONFIRM_INTERVAL_MS
    step = find_step(kafka, tables, lost_since(), BridgeOptions())
    (said,) = losses(step)
    assert (said.record_key(), said.node_id, said.uid) == ("t/0", "3", "u1")
    why = "ReplicaLost: t-0 on broker 3 (log directory /disk2 of broker 3 has failed)"
    assert describe_message(said) == why
    assert "broker 3 has a failed log directory: /disk2" in step.notes
    assert not losses(find_step(kafka, tables, step.memory, BridgeOptions()))
    # That it is out of sync, too, is no news.
    assert not any(isinstance(each, ReplicasObserved) for each in step.messages)
    assert not step.memory.unsynced_since


@pytest.mark.parametrize(
    "kafka",
    [
        look(offline(3), OTHER),
        with_disks(look(offline(3), OTHER), sizes={1: 7, 2: 7, 3: 7}),
        with_disks(look(whole((1, 2, 3), (1, 2)), OTHER)),
        with_disks(look(offline(3), OTHER, fenced=(3,))),
    ],
    ids=["no directory has failed", "the broker holds it", "not offline", "the broker is fenced"],
)
def test_what_one_side_alone_says_is_no_loss(kafka: Snapshot) -> None:
    step = find_step(kafka, built().assign("123").tables, lost_since(), BridgeOptions())
    assert not losses(step)
    assert not step.memory.lost_since


def test_the_only_replica_in_sync_is_left_alone_and_named() -> None:
    kafka = with_disks(look(offline(3, in_sync=(3,)), OTHER))
    step = find_step(kafka, built().assign("123").tables, lost_since(), BridgeOptions())
    assert not losses(step)
    assert step.notes[-1] == (
        "1 partition is left alone, with no replica in sync outside of a failed log directory: "
        "t-0 (broker 3); repair the directory"
    )


def test_a_replica_that_is_moved_away_or_recorded_no_more_is_not_told() -> None:
    kafka = with_disks(look(offline(3), OTHER))
    moved = built().assign("123", "m").move("m", "3>4", slot=2).tables
    assert not losses(find_step(kafka, moved, lost_since(), BridgeOptions()))
    assert not losses(find_step(kafka, built().assign("12").tables, lost_since(), BridgeOptions()))


def test_many_losses_are_told_over_several_looks() -> None:
    builder = TableBuilder().nodes(1, 2, 3).stream(shards=LOSSES_MAX + 5, uid="u1")
    for shard in range(LOSSES_MAX + 5):
        builder.assign("123", shard=shard)
    kafka = look(*(replace(offline(3), number=number) for number in range(LOSSES_MAX + 5)))
    kafka = replace(kafka, disks={3: FAILED}, sized_at=NOW)
    since = {(("t", number), 3): SETTLED for number in range(LOSSES_MAX + 5)}
    memory = Memory(looked_at=NOW - 1_000, lost_since=since)
    assert len(losses(find_step(kafka, builder.tables, memory, BridgeOptions()))) == LOSSES_MAX


def test_a_lost_replica_stays_listed_until_another_is_placed() -> None:
    kafka = with_disks(look(offline(3), OTHER))
    waiting = find_step(kafka, built().assign("12").tables, lost_since(), BridgeOptions())
    assert not waiting.actions
    assert not waiting.memory.foreign_since
    placed = built().assign("12", "m").move("m", ">4", slot=2).tables
    found = find_step(kafka, placed, lost_since(), BridgeOptions())
    assert reassigned(found) == {("t", 0): (1, 2, 4)}
    # With a lower replication factor nothing is to come.
    fewer = built(factor=2).assign("12").tables
    found = find_step(kafka, fewer, lost_since(), BridgeOptions())
    assert reassigned(found) == {("t", 0): (1, 2)}


def test_a_move_back_to_the_failed_directory_fails_at_once() -> None:
    kafka = with_disks(look(offline(3), OTHER))
    tables = built().assign("12", "m").move("m", ">3", slot=2).tables
    step = find_step(kafka, tables, lost_since(), BridgeOptions())
    (failed,) = (each for each in step.messages if isinstance(each, MoveFailed))
    expected = "the log directory of broker 3 that held the replica has failed"
    assert (failed.move_id, failed.reason) == ("m", expected)
    assert not step.actions


KEYS = (("t", 0), ("t", 1), ("u", 0))


def bridged(racks: dict[int, str | None]) -> BridgedCluster:
    """A cluster at rest with two topics on the first three brokers."""
    made = BridgedCluster(racks)
    made.kafka.create("t", [(1, 2, 3), (3, 1, 2)], size=10, min_insync_replicas="2")
    made.kafka.create("u", [(2, 3, 1)], size=10, min_insync_replicas="2")
    made.run()
    return made


def test_a_failed_disk_is_healed_on_other_brokers() -> None:
    cluster = bridged({**RACKS})
    cluster.kafka.fail_disk(3, *KEYS)
    cluster.run()
    lists = cluster.lists()
    assert cluster.assigned() == lists
    assert all(len(each) == 3 and 3 not in each for each in lists.values())
    assert not cluster.letters()
    assert not cluster.throttles()
    said = [each for each in cluster.messages if isinstance(each, ReplicaLost)]
    assert sorted((each.stream, each.shard) for each in said) == [*KEYS]


def test_where_no_other_broker_is_the_repaired_disk_takes_the_replicas_back() -> None:
    cluster = bridged({1: "a", 2: "b", 3: "c"})
    cluster.kafka.fail_disk(3, *KEYS)
    for _ in range(60):
        cluster.step()
        cluster.kafka.copy()
    # Until then Kafka lists them, and nothing is asked for in vain.
    assert all({*each} == {1, 2, 3} for each in cluster.lists().values())
    assert not cluster.kafka.altered
    cluster.kafka.repair_disks()
    cluster.run(200)
    assert cluster.assigned() == cluster.lists()
    assert all({*each} == {1, 2, 3} for each in cluster.lists().values())
