"""Goal: what an executor does follows the contract, in every order of records.

Method: records and ends of tasks by hand, the effects read; no Kafka, no threads, no clock. A play
lets all tasks end at once and says what was said.
"""

from dataclasses import replace
from typing import Any

import pytest

from streaming.client.moves import Move, Replica, ShardAssignment, ShardId, parse_shard_key
from streaming.client.schedule import CallOff, Ending, Limits, Say, Schedule, Start, Task, TaskKind

SHARD = ShardId("orders", 0)
MOVE = Move("m1", "replace", "orders", 0, 2, "issued", 1_000, 0, remove="a", add="d", source="b")
LISTED = ShardAssignment("orders", 0, 2, ("a", "b"), ("d",), ("a",), "m1")
DONE = ShardAssignment("orders", 0, 3, ("d", "b"))
BACK = ShardAssignment("orders", 0, 3, ("a", "b"))


class Play:
    """A schedule whose tasks end when it is told; `said` and `done` are what came of it."""

    def __init__(self, nodes: Any = None, limits: Limits | None = None) -> None:
        self.schedule = Schedule(nodes, limits)
        self.running: list[Task] = []
        self.called_off: list[Task] = []
        self.said: list[tuple[str, str | None]] = []
        self.done: list[tuple[TaskKind, str | None]] = []

    def see(self, *records: Move | ShardAssignment) -> "Play":
        for record in records:
            if isinstance(record, Move):
                self.schedule.see_move(record.move_id, record)
            else:
                self.schedule.see_assignment(record.shard_id, record)
        return self

    def begin(self, *replicas: Replica, now_ms: int = 500) -> "Play":
        self.schedule.begin(replicas)
        return self.advance(now_ms)

    def advance(self, now_ms: int = 500) -> "Play":
        self._take(self.schedule.advance(now_ms))
        return self

    def end(self, ending: Ending = Ending.COMPLETED, reason: str | None = None) -> "Play":
        """End the task that began first, and all that cleaning up begins after it."""
        task = self.running.pop(0)
        self._take(self.schedule.finish(task, ending, reason))
        self.advance()
        while self.running and self.running[0].kind is not TaskKind.CARRY_OUT:
            self.end()
        return self

    def _take(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Say):
                self.said.append((effect.message, effect.move and effect.move.move_id))
            elif isinstance(effect, CallOff):
                self.called_off.append(effect.task)
            elif isinstance(effect, Start):
                task = effect.task
                self.running.append(task)
                self.done.append((task.kind, task.move.move_id if task.move else task.replica[2]))


def play(*records: Move | ShardAssignment, **made: Any) -> Play:
    return Play(**made).see(*records).begin()


ACCEPTED, COMPLETED, STOPPED = (
    ("MoveAccepted", "m1"),
    ("MoveCompleted", "m1"),
    ("MoveStopped", "m1"),
)
CARRIED, CLEARED = (TaskKind.CARRY_OUT, "m1"), (TaskKind.CLEAR, "m1")


@pytest.mark.parametrize("records", [(MOVE, LISTED), (LISTED, MOVE)])
def test_a_move_begins_with_its_assignment_whichever_comes_first(records: tuple[Any, ...]) -> None:
    playing = play(*records)
    assert playing.said == [ACCEPTED]
    assert playing.end().said == [ACCEPTED, COMPLETED]
    playing.see(replace(MOVE, state="completed"), DONE).advance()
    assert playing.done == [CARRIED, (TaskKind.DELETE, "a")]


def test_the_old_copy_stays_until_the_assignment_comes_without_it() -> None:
    playing = play(MOVE, LISTED).end().see(replace(MOVE, state="completed")).advance()
    assert playing.done == [CARRIED]


@pytest.mark.parametrize(
    ("epoch", "now_ms"), [(1, 500), (3, 500), (2, 1_000)], ids=["higher", "passed", "expired"]
)
def test_nothing_is_copied_at_another_epoch_or_past_the_deadline(epoch: int, now_ms: int) -> None:
    playing = Play().see(MOVE, replace(LISTED, epoch=epoch)).begin(now_ms=now_ms)
    assert (playing.said, playing.running) == ([], [])


def test_a_move_waits_for_its_assignment() -> None:
    playing = play(MOVE, ShardAssignment("orders", 0, 1, ("a", "b"))).end()
    assert playing.said == []
    assert playing.see(LISTED).advance().said == [ACCEPTED]


def test_what_comes_twice_is_done_once() -> None:
    playing = play(MOVE, MOVE, LISTED, LISTED)
    playing.see(MOVE, replace(MOVE, state="accepted"), LISTED).advance().end()
    playing.see(MOVE, replace(MOVE, state="accepted")).advance()
    assert (playing.said, playing.done) == ([ACCEPTED, COMPLETED], [CARRIED])


@pytest.mark.parametrize("state", ["cancelled", "superseded", "expired"])
def test_a_move_called_off_before_it_began_is_cleared_and_answered(state: str) -> None:
    playing = play(replace(MOVE, state=state), BACK)
    assert playing.end().said == [STOPPED]
    assert CARRIED not in playing.done
    assert playing.done[0] == CLEARED
    playing.see(replace(MOVE, state=state, reminded=1)).advance()
    assert playing.said == [STOPPED, STOPPED]
    assert playing.done.count(CLEARED) == 1


def test_a_copy_that_is_called_off_stops_before_it_is_answered() -> None:
    playing = play(MOVE, LISTED).see(replace(MOVE, state="cancelled")).advance()
    assert playing.called_off == playing.running
    assert playing.said == [ACCEPTED]
    assert playing.end(Ending.STOPPED).said == [ACCEPTED, STOPPED]
    assert playing.done == [CARRIED]


def test_a_copy_that_ends_as_it_is_called_off_is_cleared() -> None:
    playing = play(MOVE, LISTED).see(replace(MOVE, state="expired")).advance().end()
    assert playing.said == [ACCEPTED, STOPPED]
    assert playing.done == [CARRIED, CLEARED]


def test_a_late_completion_is_told_and_cleared() -> None:
    playing = play(MOVE, LISTED).end().see(replace(MOVE, state="expired"), BACK).advance().end()
    assert playing.said == [ACCEPTED, COMPLETED, STOPPED]
    assert playing.done == [CARRIED, CLEARED, (TaskKind.DELETE, "d")]


def test_an_epoch_that_passes_stops_the_copy_and_its_end_is_awaited() -> None:
    playing = play(MOVE, LISTED).see(BACK).advance()
    assert playing.called_off
    assert playing.end(Ending.STOPPED).said == [ACCEPTED]
    assert playing.see(replace(MOVE, state="cancelled")).advance().said == [ACCEPTED, STOPPED]


def test_a_copy_whose_target_is_listed_goes_on() -> None:
    playing = play(MOVE, LISTED).see(DONE).advance()
    assert playing.called_off == []


def test_a_superseded_move_stops_before_the_next_begins() -> None:
    second = replace(MOVE, move_id="m2", add="e", expected_epoch=3, supersedes="m1")
    listed = replace(LISTED, epoch=3, adding=("e",), move_id="m2")
    playing = play(MOVE, LISTED).see(second, listed).advance()
    assert playing.called_off == playing.running
    playing.end(Ending.STOPPED).see(replace(MOVE, state="superseded")).advance()
    assert playing.said == [ACCEPTED, ("MoveAccepted", "m2"), STOPPED]
    assert playing.end().said[-1] == ("MoveCompleted", "m2")


def test_a_reminder_leaves_what_a_later_move_copies_to_the_same_node() -> None:
    first = replace(MOVE, state="expired", reminded=1)
    second = replace(MOVE, move_id="m2", expected_epoch=4, state="accepted")
    playing = play(first, second, replace(LISTED, epoch=4, move_id="m2"))
    assert playing.done == [(TaskKind.CARRY_OUT, "m2")]
    assert playing.said == [STOPPED]


def test_a_failure_is_told_with_its_reason_and_not_tried_again() -> None:
    schedule = Schedule()
    schedule.see_move("m1", MOVE)
    schedule.see_assignment(SHARD, LISTED)
    schedule.begin()
    (_, start) = schedule.advance(500)
    assert isinstance(start, Start)
    (said,) = schedule.finish(start.task, Ending.FAILED, "disk full")
    assert isinstance(said, Say)
    assert (said.message, said.reason) == ("MoveFailed", "disk full")
    assert schedule.advance(500) == []


def test_an_accepted_move_is_resumed_without_another_word() -> None:
    playing = play(replace(MOVE, state="accepted"), LISTED)
    assert playing.said == []
    assert [task.is_resumed for task in playing.running] == [True]


def test_what_is_abandoned_is_begun_again() -> None:
    playing = play(MOVE, LISTED).end(Ending.ABANDONED)
    assert playing.done == [CARRIED, CARRIED]


def test_a_dropped_stream_stops_copies_and_deletes_replicas() -> None:
    playing = play(MOVE, LISTED)
    playing.schedule.see_assignment(SHARD, None)
    assert playing.advance().called_off == playing.running
    playing.end(Ending.STOPPED)
    deleted = {node for kind, node in playing.done if kind is TaskKind.DELETE}
    assert deleted == {"a", "b", "d"}


def test_a_stream_dropped_while_away_is_deleted_where_a_tombstone_says_so() -> None:
    playing = Play(nodes={"a"})
    playing.schedule.see_assignment(SHARD, None)
    playing.begin()
    assert playing.done == [(TaskKind.DELETE, "a")]


def test_what_the_topics_do_not_name_is_kept() -> None:
    kept = Replica("orders", 0, "a")
    assert Schedule().begin([kept]) == [kept]


def test_what_was_given_up_while_away_is_deleted() -> None:
    playing = Play().see(replace(MOVE, state="completed"), DONE)
    playing.begin(Replica("orders", 0, "a"), Replica("orders", 0, "b"))
    assert playing.done == [(TaskKind.DELETE, "a")]


def test_first_replicas_are_created_and_later_ones_are_not() -> None:
    first = ShardAssignment("orders", 0, 1, ("a", "b"))
    assert play(first).end().done == [(TaskKind.CREATE, "a"), (TaskKind.CREATE, "b")]
    assert play(DONE).done == []


FIRST = ShardAssignment("orders", 0, 1, ("a", "b"))
LOST = ("ReplicaLost", None)
CREATED = [(TaskKind.CREATE, "a"), (TaskKind.CREATE, "b")]
DELETED = [(TaskKind.DELETE, "a"), (TaskKind.DELETE, "b")]


def tell(playing: Play) -> list[tuple[TaskKind, str | None]]:
    """Let all tasks end, and return them."""
    playing.advance()
    while playing.running:
        playing.end()
    return playing.done


def test_a_stream_created_while_away_is_made_when_no_replica_of_it_is_there() -> None:
    assert tell(Play().see(FIRST).begin()) == CREATED
    assert tell(Play().see(FIRST).begin(Replica("other", 0, "a"))) == CREATED


def test_a_replica_that_is_gone_while_another_is_there_is_lost_and_not_made_anew() -> None:
    """Also where its list has the first epoch: nothing has moved since the stream was created."""
    playing = Play().see(FIRST).begin(Replica("orders", 0, "a"))
    assert (tell(playing), playing.said) == ([], [LOST])


@pytest.mark.parametrize(
    ("held", "said"),
    [("other", [LOST]), ("orders", []), (None, [])],
    ids=["others are there", "it is there", "nothing is listed"],
)
def test_a_later_replica_that_is_gone_is_lost(held: str | None, said: list[Any]) -> None:
    """A node with nothing at all may have a store that lists nothing."""
    playing = Play(nodes={"b"}).see(DONE, replace(DONE, stream="other"))
    playing.begin(*[Replica(held, 0, "b"), Replica("other", 0, "b")] if held else [])
    assert (tell(playing), playing.said) == ([], said)


def test_a_loss_names_the_stream_by_its_uid() -> None:
    schedule = Schedule()
    schedule.see_assignment(SHARD, replace(FIRST, uid="u1"))
    schedule.begin([Replica("orders", 0, "a", "u1")])
    (said,) = schedule.advance(500)
    assert isinstance(said, Say)
    assert (said.node_id, said.uid) == ("b", "u1")
    assert "not in the store" in (said.reason or "")


def test_data_of_an_earlier_stream_of_the_name_is_deleted_and_made_anew() -> None:
    """The stream was dropped and created again while the executor was away; the log may show no
    trace of the first."""
    again = replace(FIRST, epoch=7, uid="u2")
    old = [Replica("orders", 0, node, "u1") for node in ("a", "b")]
    playing = Play().see(again).begin(*old)
    assert tell(playing) == [DELETED[0], DELETED[1], *CREATED]
    assert playing.said == []


@pytest.mark.parametrize("uid", ["u2", None], ids=["its own", "not noted"])
def test_what_the_stream_has_now_is_kept_whatever_the_log_shows_of_earlier_ones(
    uid: str | None,
) -> None:
    playing = Play().see(replace(FIRST, uid="u1"))
    playing.schedule.see_assignment(SHARD, None)
    playing.see(replace(FIRST, epoch=2, uid="u2"))
    playing.begin(*[Replica("orders", 0, node, uid) for node in ("a", "b")])
    assert tell(playing) == []


@pytest.mark.parametrize("has_tombstone", [True, False])
def test_a_stream_that_takes_the_place_of_another_begins_empty(has_tombstone: bool) -> None:
    """Both records may be read at once."""
    playing = Play().see(replace(FIRST, uid="u1")).begin(*[Replica("orders", 0, n) for n in "ab"])
    if has_tombstone:
        playing.schedule.see_assignment(SHARD, None)
    playing.see(replace(FIRST, epoch=2, uid=None if has_tombstone else "u2"))
    done = tell(playing)
    assert (sorted(done[:2]), done[2:]) == (DELETED, CREATED)


def test_only_nodes_that_are_served_give_up_what_an_earlier_stream_has_left() -> None:
    playing = Play(nodes={"a"}).see(replace(FIRST, uid="u1")).begin(Replica("orders", 0, "a"))
    playing.see(replace(FIRST, epoch=2, uid="u2"))
    assert tell(playing) == [DELETED[0], CREATED[0]]


def test_a_copy_of_an_earlier_stream_stops_even_where_its_target_is_listed_now() -> None:
    playing = play(replace(MOVE, uid="u1"), replace(LISTED, uid="u1"))
    playing.see(ShardAssignment("orders", 0, 3, ("d", "b"), uid="u2")).advance()
    assert playing.called_off == playing.running
    playing.end(Ending.STOPPED)
    made = [(kind, node) for kind, node in tell(playing) if node == "d"]
    assert made == [(TaskKind.DELETE, "d"), (TaskKind.CREATE, "d")]


def test_a_replica_that_cannot_be_created_is_lost() -> None:
    playing = play(ShardAssignment("orders", 0, 1, ("a",))).end(Ending.FAILED, "disk full")
    assert playing.said == [("ReplicaLost", None)]


def test_it_acts_for_its_nodes_alone() -> None:
    assert play(MOVE, LISTED, nodes={"a", "b"}).done == []
    giving = play(MOVE, LISTED, nodes={"a"}).see(DONE).advance()
    assert giving.done == [(TaskKind.DELETE, "a")]


@pytest.mark.parametrize(
    ("limits", "begun"),
    [(Limits(2), 2), (Limits(9, bytes_max=25), 2), (Limits(9, bytes_max=5), 1), (Limits(9), 4)],
)
def test_limits_bound_what_is_carried_out_at_once(limits: Limits, begun: int) -> None:
    playing = Play(limits=limits)
    for shard in range(4):
        move = replace(MOVE, move_id=f"m{shard}", shard=shard, size_bytes=10)
        playing.see(move, replace(LISTED, shard=shard))
    playing.begin()
    assert len(playing.running) == begun
    for _ in range(4):
        playing.end()
    assert [message for message, _ in playing.said].count("MoveCompleted") == 4


def test_a_shard_is_forgotten_with_its_last_move() -> None:
    playing = play(MOVE, LISTED).end().see(replace(MOVE, state="completed"), DONE).advance().end()
    playing.schedule.see_assignment(SHARD, None)
    playing.advance().end()
    playing.schedule.see_move("m1", None)
    playing.advance()
    assert playing.schedule._shards == {}


def test_a_key_of_another_form_is_refused() -> None:
    assert parse_shard_key("orders/7") == ShardId("orders", 7)
    with pytest.raises(ValueError, match="stream/shard"):
        parse_shard_key("orders")
