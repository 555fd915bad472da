"""The scenarios: what is published for an executor, and which clause each answer holds or breaks.

Three groups, each with an executor that was started anew: copies as fast as they are, copies that
take `COPY_SECONDS`, copies that fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streaming.conformance.absences import (
    AGAIN_SHARE,
    play_called_off_while_away,
    play_decided_while_away,
    play_issued_while_away,
    play_killed_after_copying,
    play_killed_while_copying,
)
from streaming.conformance.acknowledgements import (
    ACCEPTED,
    COMPLETED,
    FAILED,
    PROGRESSED,
    STOPPED,
    find_overlap,
)
from streaming.conformance.clauses import Clause
from streaming.conformance.reconciler import Output, assigned, make_move, now_ms, told
from streaming.conformance.subject import COPY_FAILS, COPY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.conformance.stage import Scene


# A copy that fails is tried again a few times, with growing pauses, before it is given up: a minute
# with the patience that ships.
FAILURE_PATIENCE_FACTOR = 6


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario by its name; `clauses`: what it tries, `says`: what it plays, for people."""

    name: str
    play: Callable[[Scene], None]
    clauses: tuple[Clause, ...]
    says: str


def play_replace(scene: Scene) -> None:
    shard = scene.shard()
    old = shard.replicas[0]
    scene.expect_holds(Clause.CREATE, shard, old, True)
    move = scene.replace(shard)
    scene.carry_out(shard, move)
    scene.check_holds(Clause.ACKNOWLEDGE, shard, scene.spare, True)
    scene.check_holds(Clause.DELETE, shard, old, True)
    scene.stand_in.complete(shard, move)
    scene.expect_holds(Clause.DELETE, shard, old, False)


def play_add(scene: Scene) -> None:
    shard = scene.shard()
    move = scene.stand_in.issue(shard, "add", add=scene.spare, slot=2)
    scene.carry_out(shard, move)
    scene.check_holds(Clause.ACKNOWLEDGE, shard, scene.spare, True)
    scene.stand_in.complete(shard, move)


def play_remove(scene: Scene) -> None:
    shard = scene.shard()
    gone = shard.replicas[1]
    scene.expect_holds(Clause.CREATE, shard, gone, True)
    move = scene.stand_in.issue(shard, "remove", remove=gone, slot=1)
    scene.carry_out(shard, move)
    scene.check_holds(Clause.DELETE, shard, gone, True)
    scene.stand_in.complete(shard, move)
    scene.expect_holds(Clause.DELETE, shard, gone, False)


def play_leader(scene: Scene) -> None:
    shard = scene.shard()
    move = scene.stand_in.issue(shard, "leader", leader=shard.replicas[1])
    scene.expect(Clause.LEADER, ACCEPTED, shard, move)
    scene.stand_in.tell(move, "accepted")
    scene.expect(Clause.LEADER, COMPLETED, shard, move)
    scene.stand_in.complete(shard, move)


def play_called_off_before(scene: Scene) -> None:
    shard = scene.shard()
    shard.epoch += 1
    move = make_move(shard, "replace", remove=shard.replicas[0], add=scene.spare)
    scene.stand_in.end(shard, move, "cancelled")
    scene.expect(Clause.STOP, STOPPED, shard, move)
    is_begun = scene.stage.find(ACCEPTED, shard, move) is not None
    scene.note(Clause.STOP, not is_begun, "a move was accepted that was cancelled before")
    for _ in range(2):
        since = len(scene.stage.said)
        scene.stand_in.remind(move)
        scene.expect(Clause.REMIND, STOPPED, shard, move, since=since)


def play_called_off_after(scene: Scene) -> None:
    shard = scene.shard()
    move = scene.replace(shard)
    scene.carry_out(shard, move)
    scene.stand_in.end(shard, move, "expired")
    scene.expect(Clause.STOP, STOPPED, shard, move)
    scene.check_holds(Clause.CLEAN, shard, scene.spare, False)


def play_expired(scene: Scene) -> None:
    shard = scene.shard()
    move = scene.replace(shard, deadline=now_ms() - 1)
    scene.expect_none(Clause.DEADLINE, [ACCEPTED, COMPLETED], shard, move)
    scene.stand_in.end(shard, move, "expired")
    scene.expect(Clause.STOP, STOPPED, shard, move)


def play_epoch_passed(scene: Scene) -> None:
    shard = scene.shard()
    move = make_move(shard, "replace", remove=shard.replicas[0], add=scene.spare)
    shard.epoch += 1
    scene.stand_in.publish(assigned(shard))
    # The two topics are fetched apart: the assignment has to be read before the move comes.
    scene.stage.fence(scene.stage.patience_seconds)
    scene.stand_in.publish(told(move))
    scene.expect_none(Clause.EPOCH, [ACCEPTED, COMPLETED], shard, move)
    scene.stand_in.end(shard, move, "cancelled")


def play_epoch_awaited(scene: Scene) -> None:
    shard = scene.shard()
    shard.epoch += 1
    move = make_move(shard, "replace", remove=shard.replicas[0], add=scene.spare)
    scene.stand_in.publish(told(move))
    scene.expect_none(Clause.EPOCH, [ACCEPTED, COMPLETED], shard, move)
    scene.stand_in.publish(assigned(shard, move))
    scene.expect(Clause.EPOCH, ACCEPTED, shard, move)
    scene.stand_in.tell(move, "accepted")
    scene.expect(Clause.ACKNOWLEDGE, COMPLETED, shard, move)
    scene.stand_in.complete(shard, move)


def play_aborted(scene: Scene) -> None:
    shard = scene.shard()
    shard.epoch += 1
    move = make_move(shard, "replace", remove=shard.replicas[0], add=scene.spare)
    scene.stand_in.publish(told(move), assigned(shard, move), aborts=True)
    scene.expect_none(Clause.COMMITTED, [ACCEPTED, COMPLETED], shard, move)


def play_twice(scene: Scene) -> None:
    shard = scene.shard()
    move = scene.replace(shard)
    scene.stand_in.publish(told(move), assigned(shard, move))
    scene.carry_out(shard, move)
    since = len(scene.stage.said)
    scene.stand_in.publish(told({**move, "state": "issued"}), assigned(shard, move))
    scene.stage.fence(scene.stage.patience_seconds)
    scene.stand_in.complete(shard, move)
    scene.stand_in.publish(told(move), assigned(shard))
    if not scene.stage.fence(scene.stage.patience_seconds):
        scene.leave_out(Clause.ONCE, "the executor did not go on with other shards")
        return
    again = scene.stage.find(ACCEPTED, shard, move, since)
    scene.note(Clause.ONCE, again is None, "a move was accepted again after its completion")


def play_old_assignment(scene: Scene) -> None:
    shard = scene.shard()
    old, first = shard.replicas[0], assigned(shard)
    move = scene.replace(shard)
    scene.carry_out(shard, move)
    scene.stand_in.complete(shard, move)
    scene.stand_in.publish(first)
    # The two topics are fetched apart: the assignment has to be read before the move comes.
    scene.stage.fence(scene.stage.patience_seconds)
    late = make_move(shard, "replace", remove=shard.replicas[1], add=old, expected_epoch=1)
    scene.stand_in.publish(told(late))
    scene.expect_none(Clause.NEWEST, [ACCEPTED, COMPLETED], shard, late)
    scene.check_holds(Clause.NEWEST, shard, scene.spare, True)
    scene.stand_in.end(shard, late, "cancelled")


def play_stopped_while_copying(scene: Scene) -> None:
    shard = scene.shard()
    move = scene.replace(shard)
    scene.take_on(shard, move)
    scene.stand_in.end(shard, move, "cancelled")
    scene.expect(Clause.STOP, STOPPED, shard, move)
    scene.stage.wait(
        lambda: scene.stage.find(COMPLETED, shard, move) is not None, scene.stage.copy_seconds
    )
    went_on = scene.stage.find(COMPLETED, shard, move) is not None
    scene.note(Clause.STOP, not went_on, "the copy went on: MoveCompleted came after all")
    scene.check_holds(Clause.CLEAN, shard, scene.spare, False)


def play_superseded(scene: Scene) -> None:
    shard = scene.shard()
    first = scene.replace(shard)
    scene.take_on(shard, first)
    second = scene.stand_in.supersede(shard, first, remove=shard.replicas[1], add=scene.spare)
    scene.expect(Clause.STOP, STOPPED, shard, first)
    scene.carry_out(shard, second)
    scene.stand_in.complete(shard, second)
    said = [each for each in scene.stage.said if each.key == shard.key]
    overlap = find_overlap(said)
    scene.note(Clause.ORDER, overlap is None, "the second move began while the first was under way")


def play_progress(scene: Scene) -> None:
    shard = scene.shard()
    lease_ms = int(scene.stage.copy_seconds * 1000)
    move = scene.replace(shard, deadline=now_ms() + lease_ms)
    scene.take_on(shard, move)
    # Half of the lease, and as much again for a machine that is busy.
    report = scene.expect(Clause.PROGRESS, PROGRESSED, shard, move, seconds=lease_ms / 1000)
    progress = {name: report.body.get(name) for name in ("bytes_done", "bytes_total")}
    renewed = {"renewed_at": now_ms(), "deadline": now_ms() + 4 * lease_ms}
    known = {name: value for name, value in progress.items() if value is not None}
    scene.stand_in.tell(move, "accepted", **renewed, **known)
    allowed = scene.stage.patience_seconds + scene.stage.copy_seconds
    scene.expect(Clause.ACKNOWLEDGE, COMPLETED, shard, move, seconds=allowed)
    scene.stand_in.complete(shard, move)


def play_dropped(scene: Scene) -> None:
    shard = scene.shard()
    move = scene.replace(shard)
    scene.take_on(shard, move)
    scene.stand_in.drop(shard, [move])
    scene.expect(Clause.DROP, STOPPED, shard, move)
    for node_id in scene.stage.nodes:
        scene.expect_holds(Clause.DROP, shard, node_id, False)


def play_failing(scene: Scene) -> None:
    shard = scene.shard()
    move = scene.replace(shard)
    scene.take_on(shard, move)

    def is_ended() -> bool:
        return any(scene.stage.find(word, shard, move) for word in (FAILED, COMPLETED))

    scene.stage.wait(is_ended, FAILURE_PATIENCE_FACTOR * scene.stage.patience_seconds)
    if scene.stage.find(COMPLETED, shard, move):
        scene.leave_out(Clause.FAIL, f"copies succeed although {COPY_FAILS} is set")
        scene.stand_in.complete(shard, move)
        return
    failed = scene.expect(Clause.FAIL, FAILED, shard, move)
    scene.note(Clause.FAIL, bool(failed.body.get("reason")), "MoveFailed says no reason")
    scene.check_holds(Clause.CLEAN, shard, scene.spare, False)
    scene.stand_in.end(shard, move, "failed", Output("moves.v1", move["move_id"], None))


def play_long_copy(scene: Scene) -> bool:
    """Try whether copies take as long as they are asked to; returns whether they do."""
    shard = scene.shard()
    move = scene.replace(shard)
    began = scene.expect(Clause.ACKNOWLEDGE, ACCEPTED, shard, move)
    scene.carry_out(shard, move)
    ended = scene.stage.find(COMPLETED, shard, move)
    scene.stand_in.complete(shard, move)
    asked_ms = scene.stage.copy_seconds * 1000
    return ended is not None and ended.at_ms - began.at_ms >= AGAIN_SHARE * asked_ms


QUICK = (
    Scenario(
        "replace",
        play_replace,
        (Clause.ACKNOWLEDGE, Clause.CREATE, Clause.DELETE),
        "a replica moves to another node; the old one goes once the assignment says so",
    ),
    Scenario(
        "add", play_add, (Clause.ACKNOWLEDGE,), "a node gets a replica that the shard did not have"
    ),
    Scenario(
        "remove", play_remove, (Clause.ACKNOWLEDGE, Clause.DELETE), "a node gives up its replica"
    ),
    Scenario(
        "called-off-before",
        play_called_off_before,
        (Clause.STOP, Clause.REMIND),
        "a move is cancelled before the executor reads it, and reminded of twice",
    ),
    Scenario(
        "called-off-after",
        play_called_off_after,
        (Clause.STOP, Clause.CLEAN),
        "a move expires after its completion was said",
    ),
    Scenario(
        "expired",
        play_expired,
        (Clause.DEADLINE, Clause.STOP),
        "a move is issued with a deadline that is past",
    ),
    Scenario(
        "epoch-passed",
        play_epoch_passed,
        (Clause.EPOCH,),
        "a move comes when the assignment has a later epoch than it expects",
    ),
    Scenario(
        "epoch-awaited",
        play_epoch_awaited,
        (Clause.EPOCH, Clause.ACKNOWLEDGE),
        "a move comes before the assignment that it expects",
    ),
    Scenario(
        "aborted",
        play_aborted,
        (Clause.COMMITTED,),
        "a move and its assignment come in a transaction that is aborted",
    ),
    Scenario(
        "twice",
        play_twice,
        (Clause.ONCE,),
        "a move is delivered again while it is carried out, and after it",
    ),
    Scenario(
        "old-assignment",
        play_old_assignment,
        (Clause.NEWEST,),
        "an assignment is delivered again behind a newer one, with a move that expects it",
    ),
    Scenario(
        "issued-while-away",
        play_issued_while_away,
        (Clause.RESTART,),
        "the executor is killed, and gets a move before it is started again",
    ),
    Scenario(
        "decided-while-away",
        play_decided_while_away,
        (Clause.CATCH_UP,),
        "the executor is killed; meanwhile a stream is created and one dropped, a move is issued "
        "and cancelled, and one is completed by others",
    ),
)
LEADING = (
    Scenario(
        "leader",
        play_leader,
        (Clause.LEADER,),
        "a move of kind leader is issued (with --leader-moves)",
    ),
)
SLOW = (
    Scenario(
        "stopped-while-copying",
        play_stopped_while_copying,
        (Clause.STOP, Clause.CLEAN),
        "a move is cancelled in the middle of its copy",
    ),
    Scenario(
        "superseded",
        play_superseded,
        (Clause.ORDER, Clause.STOP),
        "another move takes the place of one that is in the middle of its copy",
    ),
    Scenario(
        "progress",
        play_progress,
        (Clause.PROGRESS,),
        "a copy takes as long as its move's deadline leaves",
    ),
    Scenario(
        "killed-while-copying",
        play_killed_while_copying,
        (Clause.RESTART,),
        "the executor is killed in the middle of a copy, and started again",
    ),
    Scenario(
        "killed-after-copying",
        play_killed_after_copying,
        (Clause.RESTART,),
        "the executor is killed after it said that a copy is complete",
    ),
    Scenario(
        "called-off-while-away",
        play_called_off_while_away,
        (Clause.RESTART, Clause.CLEAN),
        "the executor is killed, and its move expires before it is started again",
    ),
    Scenario(
        "dropped", play_dropped, (Clause.DROP,), "the stream is dropped in the middle of a copy"
    ),
)
FAILING = (
    Scenario("failing", play_failing, (Clause.FAIL, Clause.CLEAN), "each attempt of a copy fails"),
)
SCENARIOS = (*QUICK, *LEADING, *SLOW, *FAILING)
LONG_COPIES = f"copies do not take the time that {COPY_SECONDS} asks for"
