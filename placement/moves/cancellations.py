"""Unmarks: executors are told that a move was called off until they say that they have stopped it.

A word that is said once is lost when its hearer is busy, and leaves a copy that nobody wants
(KUDU-3789: the mark of a move whose removal was tried once stayed for ever). So the record of a
move that expired, was cancelled or superseded is published again and again, until its executor
confirms it or the record is taken away. What is not confirmed is published (`unmark` in
`state.v1`), so that a restart goes on with it; it is never more than the ended moves that are kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from placement.model import Move

KIND = "unmark"


@dataclass(slots=True)
class CancelNotices:
    """Moves that were called off and not confirmed: id, shard, and when it was told last (ms)."""

    _told: dict[str, tuple[int, tuple[str, int]]] = field(default_factory=dict)
    _by_shard: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    # By the time of the last telling; what was told again or confirmed since is passed over.
    _queue: list[tuple[int, str]] = field(default_factory=list)

    def __contains__(self, move_id: str) -> bool:
        return move_id in self._told

    def record(self, move: Move, now: int) -> Mapping[str, Any]:
        """Note that an executor is told, for the first time or again, of the end of its move.

        Returns the body to remember of it.
        """
        shard = (move.stream, move.shard)
        if self._told.get(move.move_id) != (now, shard):
            heappush(self._queue, (now, move.move_id))
        self._told[move.move_id] = now, shard
        self._by_shard.setdefault(shard, set()).add(move.move_id)
        return {"stream": move.stream, "shard": move.shard, "reminded": move.reminded or 0}

    def of(self, shard: tuple[str, int]) -> list[str]:
        """List the ids of the shard's cancelled moves that are not confirmed."""
        return sorted(self._by_shard.get(shard, ()))

    def confirm(self, move_id: str) -> None:
        """Forget a move: its executor has stopped it, or its record is taken away."""
        _, shard = self._told.pop(move_id, (0, None))
        if shard is not None:
            self._by_shard[shard].discard(move_id)
            if not self._by_shard[shard]:
                del self._by_shard[shard]

    def due_moves(self, before: int) -> list[str]:
        """List the ids of the moves that were told last at the given time or earlier."""
        found: list[str] = []
        while self._queue and self._queue[0][0] <= before:
            told, move_id = heappop(self._queue)
            if self._told.get(move_id, (None,))[0] == told:
                found.append(move_id)
        return sorted(found)
