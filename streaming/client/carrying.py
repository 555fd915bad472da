"""Carries one task out on the store: tries again with growing pauses, cleans up after failures.

Runs on a thread of its own for each task, which `executor.py` starts. What is to be done was
decided by `schedule.py`.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from schemas import limits
from schemas.acks import MoveKind
from streaming.client import metrics
from streaming.client.moves import KINDS, Replica, log_extra
from streaming.client.schedule import Ending, Task, TaskKind
from streaming.client.store import MoveCalledOff, MoveRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.client.moves import Move
    from streaming.client.permit import Permit
    from streaming.client.store import Progress, ReplicaStore

LOG = logging.getLogger("streaming.client")


@dataclass(frozen=True, slots=True)
class Retries:
    """Says how often and how soon what failed is tried again. The pause doubles with each attempt,
    up to `pause_seconds_max`, and is cut by up to a half at random, so that executors which failed
    together do not come back together. Cleaning up has no limit of attempts."""

    attempts_max: int = 5
    pause_seconds: float = 1.0
    pause_seconds_max: float = 60.0

    def pause_after(self, attempt: int) -> float:
        """Return the seconds to wait after an attempt, counted from 1."""
        longest = min(self.pause_seconds * 2 ** min(attempt - 1, 30), self.pause_seconds_max)
        return longest * random.uniform(0.5, 1.0)


class Result(NamedTuple):
    """How a task ended, and why where it failed."""

    ending: Ending
    reason: str | None = None


class Carrier:
    """Carries out the tasks of one term of an executor."""

    def __init__(self, store: ReplicaStore, retries: Retries, permit: Permit) -> None:
        """`permit`: of the term; once it is over, what is under way is left for the next term."""
        self._store, self._retries, self._permit = store, retries, permit

    def run(self, task: Task, progress: Progress) -> Result:
        """Carry a task out to its end. Raises nothing that the store raised."""
        if task.kind is TaskKind.CARRY_OUT:
            assert task.move is not None
            return self._carry_out(task.move, progress, task.is_resumed)
        if task.kind is TaskKind.CREATE:
            return self._create(task.replica, progress)
        ending = Ending.STOPPED if task.kind is TaskKind.CLEAR else Ending.COMPLETED
        return Result(ending if self._clean_up(task) else Ending.ABANDONED)

    def _carry_out(self, move: Move, progress: Progress, is_resumed: bool) -> Result:
        """Do what the move asks for; undo it where it fails or is called off."""
        result = self._try(
            f"move {move.move_id} of {move.shard_id}",
            log_extra(move.shard_id, move),
            progress,
            self._act_on(move, progress, is_resumed),
        )
        if result.ending in (Ending.FAILED, Ending.STOPPED):
            undo = Task(TaskKind.CLEAR, move.shard_id, move)
            return result if self._clean_up(undo) else Result(Ending.ABANDONED)
        return result

    def _act_on(self, move: Move, progress: Progress, is_resumed: bool) -> Callable[[], None]:
        def act() -> None:
            if move.kind == MoveKind.REMOVE:
                self._store.remove(move)
            elif move.kind == MoveKind.LEADER:
                self._store.promote(move)
            elif move.kind not in KINDS or move.add is None:
                raise MoveRefused(
                    f"a move of kind '{move.kind}' is not known; upgrade the executor"
                )
            elif not is_resumed or not self._store.holds(
                Replica(*move.shard_id, move.add, move.uid)
            ):
                self._store.copy(move, progress)

        return act

    def _create(self, replica: Replica | None, progress: Progress) -> Result:
        assert replica is not None

        def act() -> None:
            if not self._store.holds(replica):
                self._store.create(replica)

        extra = log_extra(replica.shard_id, node_id=replica.node_id)
        return self._try(f"creating {replica.shard_id} on {replica.node_id}", extra, progress, act)

    def _try(
        self, what: str, extra: dict[str, Any], progress: Progress, act: Callable[[], None]
    ) -> Result:
        """Try until it is done, called off, or has failed too often; `what` is tried and `extra`,
        its fields, are for the log."""
        attempt = 0
        while True:
            attempt += 1
            try:
                progress.check()
                act()
            except MoveCalledOff:
                return Result(Ending.ABANDONED if self._permit.is_over else Ending.STOPPED)
            except Exception as error:  # noqa: BLE001 - a store may raise anything
                reason = _describe(error)
                if isinstance(error, MoveRefused) or attempt >= self._retries.attempts_max:
                    failed = "%s failed after %d attempts: %s"
                    LOG.error(failed, what, attempt, reason, extra=extra)
                    return Result(Ending.FAILED, reason)
                pause = self._retries.pause_after(attempt)
                metrics.RETRIES.inc()
                again = "%s failed, is tried again in %.1f s: %s"
                LOG.warning(again, what, pause, reason, extra=extra)
                progress.wait(pause)
            else:
                return Result(Ending.COMPLETED)

    def _clean_up(self, task: Task) -> bool:
        """Undo a move or delete a replica, however often it takes; False when the term is over
        first."""
        attempt = 0
        while self._permit.wait():
            attempt += 1
            try:
                if task.move is not None:
                    self._store.stop(task.move)
                elif task.replica is not None:
                    self._store.delete(task.replica)
            except Exception as error:  # noqa: BLE001 - a store may raise anything
                pause = self._retries.pause_after(attempt)
                metrics.RETRIES.inc()
                LOG.error(
                    "%s of %s failed, is tried again in %.1f s; its shard waits: %s",
                    task.kind,
                    task.shard_id,
                    pause,
                    _describe(error),
                    extra=task.log_extra,
                )
                self._permit.pause(pause)
            else:
                return True
        return False


def _describe(error: Exception) -> str:
    """Describe what a store raised, cut to what a message may hold."""
    text = str(error) or type(error).__name__
    named = text if isinstance(error, MoveRefused) else f"{type(error).__name__}: {text}"
    return named.encode("ascii", "backslashreplace").decode()[: limits.STRING_BYTES_MAX]
