"""Notifies executors of cancelled moves until they confirm that they have stopped.

A message that is sent once is lost when its receiver is busy, and leaves a copy that nobody needs
(KUDU-3789: the mark of a move whose removal was tried once stayed for ever). So the record of a
move that expired, was cancelled or superseded is published again and again, until its executor
confirms it or the record is dropped. Unconfirmed moves are published (`unmark` in `state.v1`), so
that a restart goes on with them; there are never more of them than ended moves that are kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from placement.model import Move

KIND = "unmark"


@dataclass(slots=True)
class CancelNotices:
    """Holds the cancelled moves that are not confirmed.

    Each has its id, its shard, and the time of its last notice in ms.
    """

    _notified: dict[str, tuple[int, tuple[str, int]]] = field(default_factory=dict)
    _by_shard: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    # By the time of a notice; entries of moves notified again or confirmed since are skipped.
    _queue: list[tuple[int, str]] = field(default_factory=list)

    def __contains__(self, move_id: str) -> bool:
        return move_id in self._notified

    def record(self, move: Move, now: int) -> Mapping[str, Any]:
        """Record that the executor is notified of the end of its move, for the first time or again.

        Returns the body to remember.
        """
        shard = (move.stream, move.shard)
        if self._notified.get(move.move_id) != (now, shard):
            heappush(self._queue, (now, move.move_id))
        self._notified[move.move_id] = now, shard
        self._by_shard.setdefault(shard, set()).add(move.move_id)
        return {"stream": move.stream, "shard": move.shard, "reminded": move.reminded or 0}

    def of(self, shard: tuple[str, int]) -> list[str]:
        """List the ids of the shard's cancelled moves that are not confirmed."""
        return sorted(self._by_shard.get(shard, ()))

    def confirm(self, move_id: str) -> None:
        """Forget a move: its executor has stopped it, or its record is taken away."""
        _, shard = self._notified.pop(move_id, (0, None))
        if shard is not None:
            self._by_shard[shard].discard(move_id)
            if not self._by_shard[shard]:
                del self._by_shard[shard]

    def due_moves(self, before: int) -> list[str]:
        """List the ids of the moves whose last notice was at the given time (ms) or earlier."""
        found: list[str] = []
        while self._queue and self._queue[0][0] <= before:
            at, move_id = heappop(self._queue)
            if self._notified.get(move_id, (None,))[0] == at:
                found.append(move_id)
        return sorted(found)
