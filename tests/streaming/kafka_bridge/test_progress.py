"""Long copies report how far they are, so that their moves do not expire; stuck ones do."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from schemas.acks import MoveProgressed
from schemas.base import Message
from streaming.kafka_bridge.admin_client import DescribedLogs
from streaming.kafka_bridge.controller import BridgeOptions, find_step
from streaming.kafka_bridge.memory import Memory
from streaming.kafka_bridge.snapshot import Snapshot
from tests.builders.bridge_tables import NOW, TableBuilder, look, partition
from tests.builders.bridged_cluster import BridgedCluster

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
SIZE = 1_000_000
# Of a lease of 600 s a tenth.
INTERVAL_MS = 60_000


def built(**fields: int) -> TableBuilder:
    times = {"issued_at": 0, "deadline": 10 * INTERVAL_MS} | fields
    tables = TableBuilder().nodes(1, 2, 3, 4, 5, 6).stream(uid="u1").assign("123", "m")
    return tables.move("m", "1>4", "accepted", uid="u1", **times)


def running(copied: int | None, sized_at: int | None = NOW) -> Snapshot:
    moved = partition((4, 2, 3, 1), adding=(4,), removing=(1,))
    held = {1: SIZE, 2: SIZE} | ({} if copied is None else {4: copied})
    return replace(look(moved), sizes={("t", 0): held}, sized_at=sized_at)


def copying(since: int, said_at: int | None = None) -> Memory:
    said = {} if said_at is None else {("m", "MoveProgressed", 0): said_at}
    return Memory(looked_at=NOW - 1_000, copying_since={"m": since}, said=said)


def reports(messages: tuple[Message, ...]) -> list[MoveProgressed]:
    return [each for each in messages if isinstance(each, MoveProgressed)]


def test_a_report_names_move_topic_and_bytes() -> None:
    step = find_step(running(700), built().tables, copying(0), BridgeOptions())
    expected = MoveProgressed(
        stream="t", shard=0, move_id="m", bytes_done=700, bytes_total=SIZE, uid="u1"
    )
    assert reports(step.messages) == [expected]
    assert step.memory.sizes_interval_ms == INTERVAL_MS


@pytest.mark.parametrize(
    ("kafka", "memory", "count"),
    [
        (running(700), copying(NOW - INTERVAL_MS), 1),
        (running(700), copying(NOW - INTERVAL_MS + 1), 0),
        (running(700), Memory(), 0),
        (running(700), copying(0, NOW - INTERVAL_MS), 1),
        (running(700), copying(0, NOW - INTERVAL_MS + 1), 0),
        (running(700, NOW - 2_000), copying(0, NOW - INTERVAL_MS), 0),
        (running(0), copying(0), 0),
        (running(None), copying(0), 0),
        (running(700, None), copying(0), 0),
    ],
    ids=[
        "a tenth of its lease",
        "less than that",
        "after a restart",
        "a tenth since the last report",
        "less than that since",
        "sizes of before",
        "nothing has come",
        "the target did not answer",
        "no sizes are known",
    ],
)
def test_a_report_is_said_when_it_is_of_use(kafka: Snapshot, memory: Memory, count: int) -> None:
    step = find_step(kafka, built().tables, memory, BridgeOptions())
    assert len(reports(step.messages)) == count


@pytest.mark.parametrize(("copied", "count"), [(700, 0), (701, 1)])
def test_what_the_record_shows_already_is_no_progress(copied: int, count: int) -> None:
    tables = built(renewed_at=0, bytes_done=700).tables
    step = find_step(running(copied), tables, copying(0), BridgeOptions())
    assert len(reports(step.messages)) == count


def test_sizes_are_read_as_seldom_as_ever_where_nothing_is_copied() -> None:
    tables = TableBuilder().nodes(1, 2, 3, 4, 5, 6).stream().assign("123").tables
    step = find_step(look(partition((1, 2, 3))), tables, Memory(), BridgeOptions())
    assert step.memory.sizes_interval_ms is None


# With the real reconciler, whose moves expire after a minute


@pytest.fixture
def copied() -> BridgedCluster:
    """A cluster where a large partition is copied off a broker that has died."""
    cluster = BridgedCluster(RACKS)
    cluster.kafka.create("t", [(1, 2, 3)], size=SIZE)
    cluster.run()
    cluster.kafka.fence(1)
    while not cluster.kafka.list_reassignments():
        cluster.step()
    cluster.messages.clear()
    return cluster


def test_a_copy_of_several_leases_is_completed(copied: BridgedCluster) -> None:
    (move_id,) = copied.open_moves
    seconds = 2 * copied.configuration.deadline_ms // 1_000
    for second in range(seconds):
        copied.kafka.arrive(("t", 0), second * SIZE // seconds)
        copied.step()
    assert copied.open_moves == [move_id]
    said = reports(tuple(copied.messages))
    assert 2 * 4 <= len(said) <= 2 * 10
    assert copied.tables.moves[move_id].bytes_total == SIZE
    copied.kafka.copy()
    copied.run()
    assert copied.tables.moves[move_id].state == "completed"
    assert not copied.letters()


def test_a_copy_that_is_stuck_expires(copied: BridgedCluster) -> None:
    (move_id,) = copied.open_moves
    copied.kafka.arrive(("t", 0), SIZE // 2)
    for _ in range(2 * copied.configuration.deadline_ms // 1_000):
        copied.step()
        if move_id not in copied.open_moves:
            break
    assert copied.tables.moves[move_id].state in ("expired", "superseded")
    assert "of its last progress" in copied.tables.moves[move_id].reason.message


def test_sizes_are_asked_for_as_often_as_reports_need_them(
    copied: BridgedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    ask = copied.kafka.describe_logs

    def count(live: Collection[int]) -> dict[int, DescribedLogs]:
        asked.append(copied.now)
        return ask(live)

    monkeypatch.setattr(copied.kafka, "describe_logs", count)
    for _ in range(30):
        copied.step()
    assert 30 // 6 - 1 <= len(asked) <= 30 // 6 + 1
    copied.kafka.copy()
    copied.run()
    asked.clear()
    for _ in range(30):
        copied.step()
    assert len(asked) <= 1
