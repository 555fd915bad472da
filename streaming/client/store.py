"""The part of an executor that its author writes: what happens to data, and how a copy is told.

`carrying.py` calls a `ReplicaStore` on threads of its own, never twice at once for one shard; what
to call and when is decided by `schedule.py`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from streaming.client.moves import Replica
from streaming.errors import StreamingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.client.moves import Move
    from streaming.client.permit import Permit


class MoveRefused(StreamingError):
    """A store cannot carry a move out, now or later: it is reported as failed without another try.
    The message becomes the move's reason."""


class MoveCalledOff(StreamingError):
    """A move is not wanted any more; raised inside a copy that looks at its progress."""


class Report(NamedTuple):
    """What a copy has reported last, in bytes; None: not known."""

    bytes_done: int | None
    bytes_total: int | None


class Progress:
    """Carries a copy's reports out, and the word that it is to stop in.

    Call it now and then, at least every few seconds: `progress(bytes_done, bytes_total)`. While the
    executor cannot prove that it alone acts for the node, as when no broker answers, a call waits.
    `newest` is the last report, None before the first. Safe for threads.
    """

    def __init__(self, permit: Permit | None = None) -> None:
        """`permit`: of the executor's term; without one calls never wait."""
        self._permit = permit
        # False where a call must not wait, as on the loop of asyncio.
        self.may_wait = True
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._report: Report | None = None
        self.newest: Report | None = None

    def __call__(self, bytes_done: int | None = None, bytes_total: int | None = None) -> None:
        """Report how far the copy is. Raises MoveCalledOff when it is to stop."""
        self.check()
        with self._lock:
            self._report = self.newest = Report(bytes_done, bytes_total)

    @property
    def is_called_off(self) -> bool:
        """Return whether the copy is to stop."""
        return self._stopped.is_set()

    @property
    def is_held_up(self) -> bool:
        """Return whether a call would wait now."""
        return self._permit is not None and not self._permit.is_valid

    def check(self) -> None:
        """Wait while it is not known whether the executor may act; raise MoveCalledOff when the
        copy is to stop."""
        may_act = True
        if self._permit is not None and self.may_wait:
            may_act = self._permit.wait(self._stopped.is_set)
        if self._stopped.is_set() or not may_act:
            raise MoveCalledOff("the move is not wanted any more")

    def wait(self, seconds: float) -> bool:
        """Wait, at most until the copy is to stop; returns whether it is."""
        return self._stopped.wait(seconds)

    def call_off(self) -> None:
        """Let the copy stop; for the executor."""
        self._stopped.set()

    def take(self) -> Report | None:
        """Hand out the report since the last call, if there was one; for the executor."""
        with self._lock:
            report, self._report = self._report, None
        return report


class ReplicaStore(ABC):
    """Holds the replicas of the nodes that an executor serves.

    Every method may be called again for what is done already, as after a restart, and has to be
    idempotent. What one raises is logged and tried again with growing pauses; `MoveRefused` ends
    the move at once. Only `holds`, `copy` and `delete` have to be written.
    """

    @abstractmethod
    def holds(self, replica: Replica) -> bool:
        """Return whether the node has a complete replica. A copy under way, or one that was cut
        off, is none: after a restart this decides whether a move is copied again. Data of a stream
        with another `uid` is none either, where the store has noted whose data it is."""

    @abstractmethod
    def copy(self, move: Move, progress: Progress) -> None:
        """Make a complete replica on `move.add`, from `move.source`, in place of whatever is there.

        No `source` means that no live replica is left: restore it from elsewhere, or raise
        MoveRefused. Call `progress` now and then. It may raise MoveCalledOff: let it pass.
        """

    @abstractmethod
    def delete(self, replica: Replica) -> None:
        """Delete all data of a replica, complete or not, whatever its `uid`; it may be gone
        already."""

    def create(self, replica: Replica) -> None:  # noqa: B027 - a store may do without
        """Make an empty replica, the first of a new stream. By default nothing: for stores that
        make them when they are first written to.

        It is called too for a stream that was created before this start, if no replica of the shard
        is listed by `list_replicas`. A store that knows that the replica was here once, as one
        whose disk was replaced, raises MoveRefused: then it is reported as lost."""

    def remove(self, move: Move) -> None:  # noqa: B027 - a store may do without
        """Stop to serve from the replica on `move.remove`, and keep its data: `delete` comes when
        the assignment allows it. By default nothing: for systems that follow the assignments."""

    def promote(self, move: Move) -> None:
        """Let the replica on `move.leader` lead. By default MoveRefused."""
        raise MoveRefused(
            f"this executor cannot let {move.leader} lead: implement promote, or set "
            "moves.leader_moves to false"
        )

    def stop(self, move: Move) -> None:
        """Undo what was begun for a move that is not wanted any more or has failed; there may be
        nothing. By default `delete` of its target; a store with a `remove` of its own serves from
        that replica again."""
        if move.add is not None:
            self.delete(Replica(move.stream, move.shard, move.add, move.uid))

    def list_replicas(self) -> Iterable[Replica]:
        """List all that the store has, for the start, with the `uid` of the stream where the store
        has noted it. What was given up while the executor was away is deleted then, what is of an
        earlier stream of the name as well, and what is missing is reported as lost: raise where a
        part of the store cannot be asked. By default nothing is listed; then only the topics are
        asked."""
        return ()
