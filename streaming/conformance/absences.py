"""The scenarios in which the executor is away for a while: killed, and started again.

What was under way goes on, what was done is not done again, and what was decided meanwhile is made
up for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.topics import MOVES
from streaming.conformance.acknowledgements import ACCEPTED, COMPLETED, STOPPED
from streaming.conformance.clauses import Clause
from streaming.conformance.reconciler import Output, now_ms

if TYPE_CHECKING:
    from streaming.conformance.stage import Scene

# What is copied again takes `COPY_SECONDS`; what is there already, a fraction of them.
AGAIN_SHARE = 0.6


def play_issued_while_away(scene: Scene) -> None:
    shard = scene.shard()
    scene.stage.fence(scene.stage.patience_seconds)
    scene.stage.subject.kill()
    move = scene.replace(shard)
    scene.restart()
    scene.carry_out(shard, move, Clause.RESTART)
    scene.check_holds(Clause.RESTART, shard, scene.spare, True)
    scene.stand_in.complete(shard, move)


def play_decided_while_away(scene: Scene) -> None:
    dropped, called_off, moved = scene.shard(), scene.shard(), scene.shard()
    old = moved.replicas[0]
    scene.stage.fence(scene.stage.patience_seconds)
    scene.stage.subject.kill()
    created = scene.shard()
    scene.stand_in.drop(dropped, [])
    cancelled = scene.replace(called_off)
    scene.stand_in.end(called_off, cancelled, "cancelled")
    # Carried out by others, and forgotten: only the list is left of it.
    done = scene.replace(moved)
    scene.stand_in.complete(moved, done)
    scene.stand_in.publish(Output(MOVES, done["move_id"], None))
    scene.restart()
    scene.stand_in.remind(cancelled)
    scene.expect(Clause.CATCH_UP, STOPPED, called_off, cancelled)
    for shard, move in ((called_off, cancelled), (moved, done)):
        scene.expect_none(Clause.CATCH_UP, [ACCEPTED, COMPLETED], shard, move)
    for node_id in created.replicas:
        scene.expect_holds(Clause.CATCH_UP, created, node_id, True)
    for node_id in dropped.replicas:
        scene.expect_holds(Clause.CATCH_UP, dropped, node_id, False)
    scene.expect_holds(Clause.CATCH_UP, moved, old, False)


def play_killed_while_copying(scene: Scene) -> None:
    shard = scene.shard()
    move = scene.replace(shard)
    scene.take_on(shard, move)
    scene.restart()
    allowed = scene.stage.patience_seconds + 2 * scene.stage.copy_seconds
    scene.expect(Clause.RESTART, COMPLETED, shard, move, seconds=allowed)
    scene.check_holds(Clause.RESTART, shard, scene.spare, True)
    scene.stand_in.complete(shard, move)


def play_killed_after_copying(scene: Scene) -> None:
    shard = scene.shard()
    move = scene.replace(shard)
    scene.carry_out(shard, move)
    since = len(scene.stage.said)
    scene.restart()
    ready_ms, copy_seconds = now_ms(), scene.stage.copy_seconds
    # An executor that keeps what it has said need not say it again; another copy takes this long,
    # and as much again on a machine that is busy.
    scene.stage.wait(
        lambda: scene.stage.find(COMPLETED, shard, move, since) is not None, 2 * copy_seconds
    )
    told_again = scene.stage.find(COMPLETED, shard, move, since)
    is_quick = told_again is None or told_again.at_ms - ready_ms < AGAIN_SHARE * copy_seconds * 1000
    scene.note(Clause.RESTART, is_quick, "what was copied before the restart was copied again")
    scene.check_holds(Clause.RESTART, shard, scene.spare, True)
    scene.stand_in.complete(shard, move)


def play_called_off_while_away(scene: Scene) -> None:
    shard = scene.shard()
    move = scene.replace(shard)
    scene.take_on(shard, move)
    since = len(scene.stage.said)
    scene.stage.subject.kill()
    scene.stand_in.end(shard, move, "expired")
    scene.restart()
    scene.stand_in.remind(move)
    scene.expect(Clause.RESTART, STOPPED, shard, move, since=since)
    scene.check_holds(Clause.CLEAN, shard, scene.spare, False)
