"""Goal: what a store raises is tried again, ends the move, or is cleaned up, and never escapes.

Method: a store that does as it is told, in this thread; pauses are zero.
"""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from streaming.client.carrying import Carrier, Result, Retries
from streaming.client.moves import Move, Replica, ShardId
from streaming.client.permit import POLL_SECONDS, Permit
from streaming.client.schedule import Ending, Task, TaskKind
from streaming.client.store import MoveCalledOff, MoveRefused, Progress, ReplicaStore

SHARD = ShardId("orders", 0)
MOVE = Move("m1", "replace", "orders", 0, 2, "issued", 1_000, 0, remove="a", add="d", source="b")


class Told(ReplicaStore):
    """Notes its calls; `faults` are raised by the next calls, one each."""

    def __init__(self, *faults: Exception, during: Callable[[], None] | None = None) -> None:
        self.calls: list[str] = []
        self.faults = [*faults]
        self.is_held = False
        self.asked: list[Replica] = []
        self._during = during or (lambda: None)

    def holds(self, replica: Replica) -> bool:
        self.asked.append(replica)
        return self.is_held

    def copy(self, _: Move, progress: Progress) -> None:
        self._note("copy")
        progress(1, 2)

    def remove(self, _: Move) -> None:
        self._note("remove")

    def create(self, _: Replica) -> None:
        self._note("create")

    def delete(self, replica: Replica) -> None:
        self._note(f"delete {replica.node_id}")

    def _note(self, call: str) -> None:
        self.calls.append(call)
        self._during()
        if self.faults:
            raise self.faults.pop(0)


def run(store: Told, task: Task, progress: Progress | None = None) -> Result:
    retries = Retries(attempts_max=3, pause_seconds=0)
    return Carrier(store, retries, valid()).run(task, progress or Progress())


def valid() -> Permit:
    permit = Permit()
    permit.extend(float("inf"))
    return permit


def carry(store: Told, move: Move = MOVE, *, is_resumed: bool = False) -> Result:
    return run(store, Task(TaskKind.CARRY_OUT, SHARD, move, is_resumed=is_resumed))


def test_a_fault_is_tried_again() -> None:
    store = Told(OSError("no route"), OSError("no route"))
    assert carry(store) == Result(Ending.COMPLETED)
    assert store.calls == ["copy"] * 3


def test_what_fails_too_often_is_removed_and_told() -> None:
    store = Told(*[OSError("disk full")] * 3)
    assert carry(store) == Result(Ending.FAILED, "OSError: disk full")
    assert store.calls == ["copy"] * 3 + ["delete d"]


def test_a_refusal_is_not_tried_again() -> None:
    store = Told(MoveRefused("no source is left"))
    assert carry(store) == Result(Ending.FAILED, "no source is left")
    assert store.calls == ["copy", "delete d"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"kind": "leader", "leader": "b", "add": None}, "promote"), ({"kind": "split"}, "'split'")],
)
def test_what_it_cannot_do_is_refused(fields: dict[str, str], reason: str) -> None:
    move = Move(**{**{n: getattr(MOVE, n) for n in Move.__slots__}, **fields})
    ending, said = carry(Told(), move)
    assert ending is Ending.FAILED
    assert reason in said


def test_a_copy_that_is_called_off_is_removed() -> None:
    progress = Progress()
    store = Told(during=progress.call_off)
    assert run(store, Task(TaskKind.CARRY_OUT, SHARD, MOVE), progress).ending is Ending.STOPPED
    assert store.calls == ["copy", "delete d"]


def test_a_copy_that_was_complete_is_not_made_again() -> None:
    store = Told()
    store.is_held = True
    assert carry(store, is_resumed=True) == Result(Ending.COMPLETED)
    assert store.calls == []
    assert carry(store) == Result(Ending.COMPLETED)
    assert store.calls == ["copy"]


def test_a_store_is_asked_for_data_of_the_stream_with_the_uid_of_the_move() -> None:
    store = Told()
    carry(store, replace(MOVE, uid="u1"), is_resumed=True)
    assert store.asked == [Replica("orders", 0, "d", "u1")]


def test_a_removal_stops_serving_and_deletes_nothing() -> None:
    store = Told()
    move = Move("m1", "remove", "orders", 0, 2, "issued", 1_000, 0, remove="a")
    assert carry(store, move) == Result(Ending.COMPLETED)
    assert store.calls == ["remove"]


def test_cleaning_up_is_tried_until_it_is_done() -> None:
    store = Told(*[OSError("busy")] * 9)
    task = Task(TaskKind.DELETE, SHARD, replica=Replica("orders", 0, "a"))
    assert run(store, task) == Result(Ending.COMPLETED)
    assert store.calls == ["delete a"] * 10


def test_a_replica_that_is_there_is_not_created() -> None:
    store, task = Told(), Task(TaskKind.CREATE, SHARD, replica=Replica("orders", 0, "a"))
    assert run(store, task) == Result(Ending.COMPLETED)
    store.is_held = True
    run(store, task)
    assert store.calls == ["create"]


def test_the_end_of_a_term_leaves_what_is_under_way() -> None:
    permit = valid()
    store = Told(during=permit.end)
    carrier = Carrier(store, Retries(pause_seconds=0), permit)
    result = carrier.run(Task(TaskKind.CARRY_OUT, SHARD, MOVE), Progress(permit))
    assert (result.ending, store.calls) == (Ending.ABANDONED, ["copy"])
    task = Task(TaskKind.DELETE, SHARD, replica=Replica("orders", 0, "a"))
    assert carrier.run(task, Progress(permit)).ending is Ending.ABANDONED
    assert store.calls == ["copy"]


@pytest.mark.parametrize(
    "task",
    [
        Task(TaskKind.CARRY_OUT, SHARD, MOVE),
        Task(TaskKind.DELETE, SHARD, replica=Replica("orders", 0, "a")),
    ],
)
def test_nothing_is_done_while_it_is_not_known_whether_the_executor_may_act(task: Task) -> None:
    store, permit = Told(), Permit()
    results: list[Result] = []

    def work() -> None:
        results.append(Carrier(store, Retries(), permit).run(task, Progress(permit)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(2 * POLL_SECONDS)
    assert (thread.is_alive(), store.calls) == (True, [])
    permit.extend(float("inf"))
    thread.join()
    assert results == [Result(Ending.COMPLETED)]
    assert len(store.calls) == 1


def test_a_copy_waits_in_its_progress_while_the_permit_has_run_out() -> None:
    now = [0.0]
    permit = Permit(lambda: now[0])
    permit.extend(10.0)
    progress = Progress(permit)
    progress(1)
    now[0] = 10.0
    assert progress.is_held_up
    thread = threading.Thread(target=progress, args=(2,))
    thread.start()
    thread.join(2 * POLL_SECONDS)
    assert thread.is_alive()
    assert progress.newest == (1, None)
    permit.extend(20.0)
    thread.join()
    assert progress.newest == (2, None)
    now[0] = 20.0
    progress.call_off()
    with pytest.raises(MoveCalledOff):
        progress(3)


def test_pauses_grow_to_their_bound() -> None:
    retries = Retries(pause_seconds=1, pause_seconds_max=10)
    longest = [max(retries.pause_after(attempt) for _ in range(200)) for attempt in (1, 2, 3, 9)]
    assert [round(each) for each in longest] == [1, 2, 4, 10]
    assert retries.pause_after(10_000) <= 10
