"""An executor to be examined, as a program: the one of `deploy/examples`, with faults on demand.

Its copies take COPY_SECONDS, and fail where COPY_FAILS is set. BREAKS names the fault, a function
of this module without its `break_`.
"""

import os
import time
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer

from deploy.examples.executor import Files
from streaming.brokers import ProducerRecord, reader
from streaming.client import Executor, Move, Progress, Replica, Retries, term
from streaming.client.schedule import Ending, Schedule
from streaming.client.term import Term

PAUSE_SECONDS = 0.05


class Timed(Files):
    """Copies as slowly, or as badly, as it is asked to."""

    def copy(self, move: Move, progress: Progress) -> None:
        if "COPY_FAILS" in os.environ:
            target = self.path(*move.shard_id, move.add)
            target.with_name(f"{target.name}.part").touch()
            raise OSError("the copy fails, as it was asked to")
        ends_at = time.monotonic() + float(os.environ.get("COPY_SECONDS", "0"))
        done = 0
        while time.monotonic() < ends_at:
            progress(done := done + 1)
            progress.wait(PAUSE_SECONDS)
        super().copy(move, progress)

    def promote(self, move: Move) -> None:
        """The order of the assignment is all there is to follow."""


def break_acknowledge() -> None:
    """Carries out, and accepts nothing."""
    keep_silent_about("MoveAccepted")


def break_well_formed() -> None:
    """Names the shard as text."""
    encoded = vars(term)["encode_record"]

    def misspell(*words: Any) -> ProducerRecord:
        record = encoded(*words)
        return record._replace(value=record.value.replace(b'"shard":0', b'"shard":"0"'))

    vars(term)["encode_record"] = misspell


def break_committed() -> None:
    """Reads what was aborted."""

    def make(bootstrap: str, *_: Any, **__: Any) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "uncommitted",
                "isolation.level": "read_uncommitted",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )

    vars(reader)["make_reader"] = make


def break_create() -> None:
    Timed.create = lambda *_: None


def break_order() -> None:
    """Accepts a move when it is read, whatever is under way."""
    seen = Schedule.see_move
    issued: list[Move] = []

    def see(self: Schedule, move_id: str, move: Move | None) -> None:
        seen(self, move_id, move)
        if move is not None and move.state == "issued":
            issued.append(move)

    decided = Schedule.advance

    def advance(self: Schedule, now_ms: int) -> list[Any]:
        from streaming.client.schedule import Say

        early = [Say.of("MoveAccepted", move) for move in issued]
        issued.clear()
        return early + decided(self, now_ms)

    Schedule.see_move, Schedule.advance = see, advance


def break_epoch() -> None:
    choose_moves(lambda move, _epoch, now_ms: now_ms < move.deadline_ms)


def break_newest() -> None:
    """Takes each assignment for the newest."""
    seen = Schedule.see_assignment

    def see(self: Schedule, shard_id: Any, assignment: Any) -> None:
        shard = self._shards.get(shard_id)
        known = None if shard is None else shard.assignment
        if known is not None and assignment is not None and assignment.epoch < known.epoch:
            shard.assignment = replace(known, epoch=0)
        seen(self, shard_id, assignment)

    Schedule.see_assignment = see


def break_deadline() -> None:
    choose_moves(lambda move, epoch, _now_ms: move.expected_epoch == epoch)


def break_once() -> None:
    """Forgets what it has completed."""
    finished = Schedule.finish

    def finish(self: Schedule, task: Any, *how: Any) -> list[Any]:
        said = finished(self, task, *how)
        self._shards[task.shard_id].ended.clear()
        return said

    Schedule.finish = finish


def break_stop() -> None:
    keep_silent_about("MoveStopped")


def break_remind() -> None:
    """Answers what was called off once."""
    keep_silent_about("MoveStopped", after=1)


def break_clean() -> None:
    """Leaves what it has copied."""
    Timed.delete = lambda *_: None


def break_delete() -> None:
    """Deletes the old copy as soon as the new one is there."""
    copied = Timed.copy

    def copy(self: Timed, move: Move, progress: Progress) -> None:
        copied(self, move, progress)
        self.delete(Replica(*move.shard_id, move.remove or ""))

    Timed.copy = copy


def break_progress() -> None:
    keep_silent_about("MoveProgressed")


def break_fail() -> None:
    keep_silent_about("MoveFailed")


def break_restart() -> None:
    """Copies again what was complete."""
    Timed.holds = lambda *_: False


def break_restart_of_issued() -> None:
    """Begins no move that was issued before its start. The stage's own are begun: it would not go
    on without."""
    begun = Schedule.begin

    def begin(self: Schedule, replicas: Any = ()) -> Any:
        for shard_id, shard in self._shards.items():
            issued = [move.move_id for move in shard.moves.values() if move.state == "issued"]
            if shard_id.stream != "fence":
                shard.ended |= dict.fromkeys(issued, Ending.STOPPED)
        return begun(self, replicas)

    Schedule.begin = begin


def break_catch_up() -> None:
    """Makes and deletes nothing at its start."""
    begun = Schedule.begin

    def begin(self: Schedule, replicas: Any = ()) -> Any:
        unknown = begun(self, replicas)
        for shard in self._shards.values():
            shard.fresh, shard.departed = {}, {}
        return unknown

    Schedule.begin = begin


def break_drop() -> None:
    Schedule._drop = lambda *_: None


def break_leader() -> None:
    """Has no leaders elected, as the library's default."""
    del Timed.promote


def choose_moves(may_begin: Any) -> None:
    def choose(_: Schedule, shard: Any, now_ms: int) -> Move | None:
        if shard.assignment is None:
            return None
        moves = (m for m in shard.moves.values() if m.is_open and m.move_id not in shard.ended)
        return next((m for m in moves if may_begin(m, shard.assignment.epoch, now_ms)), None)

    Schedule._next_move = choose


def keep_silent_about(message: str, after: int = 0) -> None:
    said, heard = Term._say, dict[str, int]()

    def say(self: Term, effect: Any, *more: Any) -> None:
        if effect.message == message:
            key = str(effect.shard_id)
            heard[key] = heard.get(key, 0) + 1
            if heard[key] > after:
                return
        said(self, effect, *more)

    Term._say = say


if __name__ == "__main__":
    if "BREAKS" in os.environ:
        globals()[f"break_{os.environ['BREAKS']}"]()
    at = (os.environ["KAFKA_BOOTSTRAP"], os.environ["TOPIC_PREFIX"])
    Executor(*at, Timed(), retries=Retries(attempts_max=2, pause_seconds=0.1)).serve()
