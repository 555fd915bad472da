"""What somebody else has changed of replicas is told, once, and the reconciler's record follows."""

from dataclasses import replace

import orjson
import pytest

from schemas.acks import MoveStopped, ReplicasObserved
from schemas.inputs import NodeLivenessReported
from schemas.limits import RECORD_BYTES_MAX
from streaming.kafka_bridge.controller import BridgeOptions, Step, find_step
from streaming.kafka_bridge.membership import word_of
from streaming.kafka_bridge.memory import SETTLE_MS, Memory
from streaming.kafka_bridge.observations import SYNC_CHANGES_MAX
from streaming.kafka_bridge.reconciler_topics import encode_body
from streaming.kafka_bridge.snapshot import Snapshot
from streaming.kafka_bridge.tables import Tables
from tests.builders.bridge_tables import NOW, REASON, TableBuilder, look, partition
from tests.builders.bridged_cluster import BridgedCluster, reassigned

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
P = partition
SETTLED = NOW - SETTLE_MS


def built(uid: str | None = "u1") -> TableBuilder:
    nodes = TableBuilder().nodes(1, 2, 3, 4, 5, 6)
    nodes.stream(shards=2, **({} if uid is None else {"uid": uid}))
    return nodes.assign("123", epoch=7).assign("123", shard=1)


def observed(step: Step) -> list[ReplicasObserved]:
    return [each for each in step.messages if isinstance(each, ReplicasObserved)]


def seen(listed: tuple[int, ...], since: int = SETTLED) -> Memory:
    return Memory(looked_at=NOW - 1_000, foreign_since={(("t", 0), listed): since})


@pytest.mark.parametrize("uid", [None, "u1"])
def test_a_list_that_somebody_made_is_told_with_the_epoch_that_it_contradicts(
    uid: str | None,
) -> None:
    kafka = look(P((1, 5, 3), (1, 3), leader=3), P((1, 2, 3), number=1))
    step = find_step(kafka, built(uid).tables, seen((1, 5, 3)), BridgeOptions())
    expected = ReplicasObserved(
        stream="t",
        shard=0,
        epoch=7,
        replicas=("1", "5", "3"),
        leader="3",
        in_sync=("1", "3"),
        uid=uid,
    )
    assert observed(step) == [expected]
    assert not step.actions
    # It is not said again until it may have been lost.
    again = find_step(kafka, built(uid).tables, step.memory, BridgeOptions())
    assert not observed(again)


@pytest.mark.parametrize(
    ("listed", "memory"),
    [
        ((1, 5, 3), Memory()),
        ((1, 5, 3), seen((1, 5, 3), SETTLED + 1)),
        ((1, 5, 3), seen((1, 2, 6))),
        ((1, 2, 3), seen((1, 5, 3))),
    ],
    ids=["just seen", "not for long enough", "another list before", "as recorded again"],
)
def test_one_look_that_lags_tells_nothing(listed: tuple[int, ...], memory: Memory) -> None:
    kafka = look(P(listed), P((1, 2, 3), number=1))
    assert not observed(find_step(kafka, built().tables, memory, BridgeOptions()))


def test_a_topic_that_others_still_change_is_waited_for() -> None:
    running = P((4, 2, 3, 1), number=1, adding=(4,), removing=(1,))
    step = find_step(look(P((1, 5, 3)), running), built().tables, seen((1, 5, 3)), BridgeOptions())
    assert not observed(step)
    assert not step.memory.foreign_since


def test_a_broker_that_the_reconciler_does_not_know_is_registered_first() -> None:
    kafka = look(P((1, 9, 3)), P((1, 2, 3), number=1))
    step = find_step(kafka, built().tables, seen((1, 9, 3)), BridgeOptions())
    assert [type(each).__name__ for each in step.messages] == ["NodeRegistered"]
    known = find_step(kafka, built().node("9").tables, seen((1, 9, 3)), BridgeOptions())
    assert [each.replicas for each in observed(known)] == [("1", "9", "3")]


def test_a_stream_whose_decision_cannot_be_read_is_left_alone() -> None:
    tables = built().tables
    del tables.decisions["t"]
    step = find_step(look(P((1, 5, 3))), tables, seen((1, 5, 3)), BridgeOptions())
    assert not observed(step)
    assert not step.actions


def unsynced(in_sync: tuple[int, ...], since: int = SETTLED) -> Memory:
    return Memory(looked_at=NOW - 1_000, unsynced_since={(("t", 0), in_sync): since})


def remembering(tables: Tables, *nodes: str) -> Tables:
    """The tables with what the reconciler remembers of the first shard's replicas out of sync."""
    body = {"kind": "out_of_sync", "name": "t/0", "body": {"nodes": [*nodes]}, "at": 1}
    tables.take("state.v1", "out_of_sync/t/0", orjson.dumps(body))
    assert not tables.unreadable
    return tables


OTHER = P((1, 2, 3), number=1)
BEHIND = P((1, 2, 3), (1, 2))


def test_a_replica_that_falls_out_of_sync_is_told_with_the_list_as_recorded() -> None:
    step = find_step(look(BEHIND, OTHER), built().tables, unsynced((1, 2)), BridgeOptions())
    (said,) = observed(step)
    assert (said.replicas, said.in_sync, said.epoch) == (("1", "2", "3"), ("1", "2"), 7)
    again = find_step(look(BEHIND, OTHER), built().tables, step.memory, BridgeOptions())
    assert not observed(again)


def test_so_is_one_that_is_in_sync_again() -> None:
    tables = remembering(built().tables, "3")
    kafka = look(P((1, 2, 3)), OTHER)
    (said,) = observed(find_step(kafka, tables, unsynced((1, 2, 3)), BridgeOptions()))
    assert said.in_sync == ("1", "2", "3")


def test_a_replica_of_an_order_that_is_not_stated_yet_changes_no_leader() -> None:
    kafka = look(P((3, 2, 1), (3, 2)), OTHER)
    (said,) = observed(find_step(kafka, built().tables, unsynced((2, 3)), BridgeOptions()))
    assert (said.replicas, said.in_sync) == (("1", "2", "3"), ("3", "2"))


@pytest.mark.parametrize(
    ("kafka", "tables", "memory"),
    [
        (look(BEHIND, OTHER), built().tables, unsynced((1, 2), SETTLED + 1)),
        (look(BEHIND, OTHER), built().tables, unsynced((1, 3))),
        (look(BEHIND, OTHER), remembering(built().tables, "3"), unsynced((1, 2))),
        (look(BEHIND, OTHER), built().node("3", "dead").tables, unsynced((1, 2))),
        (
            look(P((1, 2, 3)), OTHER),
            remembering(built().node("3", "dead").tables, "3"),
            unsynced((1, 2, 3)),
        ),
        (
            look(P((4, 2, 3, 1), (2, 3), adding=(4,), removing=(1,)), OTHER),
            built().assign("123", "m").move("m", "1>4").tables,
            unsynced((2, 3)),
        ),
        (
            look(BEHIND, OTHER, fenced=(4,)),
            built().assign("123", "m").move("m", "1>4").tables,
            unsynced((1, 2)),
        ),
    ],
    ids=[
        "just now",
        "other ones before",
        "known",
        "on a broker that is known to be dead",
        "known, and its broker is dead by now",
        "being moved",
        "about to be moved",
    ],
)
def test_of_replicas_out_of_sync_nothing_is_told(
    kafka: Snapshot, tables: Tables, memory: Memory
) -> None:
    assert not observed(find_step(kafka, tables, memory, BridgeOptions()))


def test_replicas_of_a_broker_that_was_just_told_to_be_down_are_not_told() -> None:
    down = NodeLivenessReported(node_id="3", incarnation="kafka-K1", sequence=1, status="down")
    memory = replace(unsynced((1, 2)), words={word_of(down): NOW - 1_000})
    assert not observed(find_step(look(BEHIND, OTHER), built().tables, memory, BridgeOptions()))


def test_a_broker_that_restarts_floods_nobody() -> None:
    many = [P((1, 2, 3), (1, 2), number=number) for number in range(SYNC_CHANGES_MAX + 5)]
    nodes = TableBuilder().nodes(1, 2, 3, 4, 5, 6).stream(shards=len(many), uid="u1")
    for number in range(len(many)):
        nodes.assign("123", shard=number)
    since = {(("t", number), (1, 2)): SETTLED for number in range(len(many))}
    step = find_step(
        look(*many), nodes.tables, Memory(looked_at=NOW - 1, unsynced_since=since), BridgeOptions()
    )
    assert len(observed(step)) == SYNC_CHANGES_MAX


def test_memory_of_another_form_is_unreadable_and_of_other_kinds_no_matter() -> None:
    tables = built().tables
    for kind, body in (("out_of_sync", {"nodes": 3}), ("hold", {"since": 1})):
        value = {"kind": kind, "name": "t/0", "body": body, "at": 1}
        tables.take("state.v1", f"{kind}/t/0", orjson.dumps(value))
    assert [*tables.unreadable] == [("state.v1", "out_of_sync/t/0")]
    assert not tables.out_of_sync
    remembering_again = {"kind": "out_of_sync", "name": "t/0", "body": {"nodes": ["2"]}, "at": 1}
    tables.take("state.v1", "out_of_sync/t/0", orjson.dumps(remembering_again))
    assert tables.out_of_sync == {("t", 0): {"2"}}
    tables.take("state.v1", "out_of_sync/t/0", None)
    assert not tables.out_of_sync
    assert not tables.unreadable


# With the real reconciler


@pytest.fixture(scope="module")
def adopted() -> BridgedCluster:
    """Six brokers with a topic of four partitions, adopted and at rest."""
    cluster = BridgedCluster(RACKS)
    cluster.kafka.create("t", [(1, 2, 3), (2, 3, 1), (3, 1, 2), (4, 5, 6)], size=10)
    cluster.run()
    return cluster


def check_rest(cluster: BridgedCluster) -> None:
    assert cluster.assigned() == cluster.lists()
    assert not cluster.open_moves
    assert not cluster.letters()


def check_silent(cluster: BridgedCluster, steps: int = 15) -> None:
    """Nothing is said or done, for longer than anything settles, before and after a restart.

    A bridge that starts says once more of moves that were called off that they have stopped.
    """
    for restarts in (False, True):
        if restarts:
            cluster.restart_bridge()
        for _ in range(steps):
            step = cluster.step()
            said = [each for each in step.messages if not isinstance(each, MoveStopped)]
            assert [*said, *step.actions] == []


def test_replicas_out_of_sync_are_known_until_they_are_in_sync_again(
    adopted: BridgedCluster,
) -> None:
    adopted.messages.clear()
    adopted.kafka.lag(("t", 0), adopted.lists()["t", 0][1])
    adopted.run()
    assert {*adopted.tables.out_of_sync} == {("t", 0)}
    assert [type(each) for each in adopted.messages] == [ReplicasObserved]
    check_silent(adopted)
    adopted.kafka.catch_up(("t", 0))
    adopted.run()
    assert not adopted.tables.out_of_sync
    assert [type(each) for each in adopted.messages] == [ReplicasObserved] * 2
    check_rest(adopted)
    check_silent(adopted)


@pytest.mark.parametrize(("lags", "outcome"), [(True, "refused"), (False, "accepted")])
def test_maintenance_that_would_stop_writes_is_refused(lags: bool, outcome: str) -> None:
    cluster = BridgedCluster(RACKS)
    cluster.kafka.create("q", [(1, 2, 3)], min_insync_replicas="2")
    cluster.run()
    if lags:
        cluster.kafka.lag(("q", 0), 2)
    cluster.run()
    order = {"request_id": "r", "target": "3", "ttl_seconds": 60}
    cluster.ask("operator.v1", "Maintenance", "3", **order)
    cluster.step()
    cluster.step()
    records = [record for commit in cluster.commits for record in commit]
    answers = [orjson.loads(r.value or b"") for r in records if r.topic == "answers.v1"]
    assert [each["outcome"] for each in answers] == [outcome], answers
    assert ("q" in answers[0]["reason"]["message"]) is lags


def count(cluster: BridgedCluster, name: str) -> int:
    return sum(type(each).__name__ == name for each in cluster.messages)


def test_a_foreign_change_corrects_one_shard_and_leaves_the_others(
    adopted: BridgedCluster,
) -> None:
    before = {key: each.epoch for key, each in adopted.tables.assignments.items()}
    adopted.messages.clear()
    adopted.kafka.alter_reassignments({("t", 0): (1, 5, 3)})
    adopted.kafka.copy()
    adopted.run()
    check_rest(adopted)
    assert adopted.lists()["t", 0] == (1, 5, 3)
    assert [type(each).__name__ for each in adopted.messages] == ["ReplicasObserved"]
    after = {key: each.epoch for key, each in adopted.tables.assignments.items()}
    assert {key for key, epoch in after.items() if epoch != before[key]} == {("t", 0)}
    check_silent(adopted)


def test_what_breaks_a_rule_is_told_and_then_repaired(adopted: BridgedCluster) -> None:
    adopted.kafka.alter_reassignments({("t", 3): (4, 1, 6)})
    adopted.kafka.copy()
    adopted.run()
    check_rest(adopted)
    assert {RACKS[each] for each in adopted.lists()["t", 3]} == {"a", "b", "c"}


def test_a_move_that_somebody_else_crosses_is_called_off(adopted: BridgedCluster) -> None:
    adopted.kafka.fence(2)
    while not adopted.open_moves:
        adopted.step()
    number = next(m.shard for m in adopted.tables.moves.values() if m.move_id in adopted.open_moves)
    adopted.kafka.alter_reassignments({("t", number): (4, 5, 6)})
    adopted.kafka.copy()
    adopted.run()
    check_rest(adopted)
    adopted.kafka.unfence(2)
    adopted.run()
    check_rest(adopted)
    check_silent(adopted)


@pytest.mark.parametrize("lists", [[(1, 2), (2, 3), (3, 1), (4, 5)], [(1, 5), (2, 6), (3, 4)]])
def test_a_replication_factor_that_somebody_lowers_is_kept(
    adopted: BridgedCluster, lists: list[tuple[int, ...]]
) -> None:
    adopted.kafka.create("f", [(1, 2, 3), (2, 3, 1), (3, 1, 2), (4, 5, 6)][: len(lists)])
    adopted.run()
    adopted.messages.clear()
    asked = {("f", number): to for number, to in enumerate(lists)}
    adopted.kafka.alter_reassignments(asked)
    adopted.kafka.copy()
    for _ in range(40):
        assert not reassigned(adopted.step())
    adopted.run()
    check_rest(adopted)
    assert {key: adopted.lists()[key] for key in asked} == asked
    assert adopted.tables.decisions["f"].spec.replication_factor == 2
    assert count(adopted, "StreamAltered") == 1
    adopted.kafka.delete("f")
    adopted.run()


def test_a_replication_factor_that_somebody_raises_is_kept(adopted: BridgedCluster) -> None:
    adopted.kafka.create("g", [(1, 2), (2, 3), (3, 4)])
    adopted.run()
    asked = {("g", 0): (1, 2, 3), ("g", 1): (2, 3, 4), ("g", 2): (3, 4, 5)}
    adopted.kafka.alter_reassignments(asked)
    adopted.kafka.copy()
    adopted.run()
    check_rest(adopted)
    assert {key: adopted.lists()[key] for key in asked} == asked
    assert adopted.tables.decisions["g"].spec.replication_factor == 3
    check_silent(adopted)


def test_one_partition_with_more_replicas_than_its_topic_is_brought_back(
    adopted: BridgedCluster,
) -> None:
    adopted.kafka.alter_reassignments({("t", 1): (2, 3, 1, 5)})
    adopted.kafka.copy()
    adopted.run()
    check_rest(adopted)
    assert len(adopted.lists()["t", 1]) == 3
    assert adopted.tables.decisions["t"].spec.replication_factor == 3


def test_partitions_that_are_added_with_places_of_their_own_are_adopted(
    adopted: BridgedCluster,
) -> None:
    adopted.kafka.create("x", [(1, 2, 3)])
    adopted.run()
    before = adopted.tables.assignments["x", 0].epoch
    adopted.messages.clear()
    adopted.kafka.extend("x", [(6, 5, 4), (2, 1, 6)])
    adopted.run()
    check_rest(adopted)
    assert [adopted.lists()["x", number] for number in (1, 2)] == [(6, 5, 4), (2, 1, 6)]
    assert [type(each).__name__ for each in adopted.messages] == ["StreamAltered"]
    assert adopted.tables.assignments["x", 0].epoch == before
    check_silent(adopted)


def test_a_topic_that_is_made_anew_under_its_moves_is_no_race() -> None:
    adopted = BridgedCluster(RACKS)
    kafka = adopted.kafka
    kafka.create("y", [(1, 2, 3), (1, 3, 2)])
    adopted.run()
    kafka.fence(1)
    while not reassigned(adopted.step()):
        pass
    adopted.messages.clear()
    kafka.delete("y")
    kafka.create("y", [(5, 6, 4), (6, 4, 5), (4, 5, 6)])
    adopted.run()
    check_rest(adopted)
    assert adopted.lists()["y", 2] == (4, 5, 6)
    assert adopted.tables.decisions["y"].spec.uid == kafka.topics["y"].uid
    # One word: no drop before it, whose answer a creation would have to wait for.
    assert (count(adopted, "StreamDropped"), count(adopted, "StreamCreated")) == (0, 1)
    kafka.unfence(1)
    adopted.run()
    check_rest(adopted)
    check_silent(adopted)


def adopting(shards: int = 2, listed: int = 2) -> tuple[BridgedCluster, int]:
    """A cluster whose reconciler has a stream that waits for the lists of a topic."""
    cluster = BridgedCluster(RACKS)
    cluster.run()
    body = {"stream": "t", "sequence": 1, "shards": shards, "replication_factor": 3}
    body |= {"adopt": "observed", "quorum": 1, "policy": {"rules": [{"even": "rack"}]}}
    cluster.ask("streams.v1", "StreamCreated", "t", **body)
    cluster.reconcile()
    cluster.catch_up()
    assert not cluster.assigned()
    cluster.kafka.create("t", [(1, 2, 3)] * listed)
    return cluster, len(cluster.messages)


def test_a_stream_that_waits_for_its_lists_is_told_them() -> None:
    cluster, before = adopting()
    cluster.run()
    assert cluster.assigned() == cluster.lists()
    (told,) = [each for each in cluster.messages[before:] if isinstance(each, ReplicasObserved)]
    nodes = ("1", "2", "3")
    assert (told.shard, told.replicas, told.following) == (0, nodes, (nodes,))
    assert not cluster.letters()
    assert not cluster.kafka.altered


def test_ranges_of_lists_fit_into_records_and_leave_out_what_is_known() -> None:
    count = 4_000
    builder = TableBuilder().nodes(1, 2, 3)
    builder.stream(shards=count, uid="u1", reasons=[REASON | {"code": "REPLICAS_AWAITED"}])
    builder.assign("123", shard=5)
    kafka = look(*(P((1, 2, 3), number=number) for number in range(count)))
    told = observed(find_step(kafka, builder.tables, Memory(), BridgeOptions()))
    assert [each.shard for each in told][:2] == [0, 6]
    assert all(len(encode_body(each)) < RECORD_BYTES_MAX for each in told)
    seen = [each.shard + n for each in told for n in range(1 + len(each.following or ()))]
    assert seen == [number for number in range(count) if number != 5]


def test_a_topic_with_fewer_partitions_than_its_stream_has_shards_is_waited_for() -> None:
    cluster, before = adopting(shards=3)
    for _ in range(3):
        cluster.step()
    assert not [e for e in cluster.messages[before:] if isinstance(e, ReplicasObserved)]
