"""Shards that a limit keeps waiting, the most urgent first.

They are not looked at again in every batch: a batch takes from the front as many as the limits
allow. Their order is derived from the state, so that a rebuilt reconciler has the same.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from placement.model import Cause

# Cause, live replicas, stream and number, which no two shards share; behind them the shard.
Urgency = tuple[int, int, str, int, int]

# Entries that are out of date are dropped once they are more than those in use, and than this.
_STALE_MAX = 256

# Shards that wait, for each that is put, from which putting them one by one costs less.
_MANY = 16

_URGENCY = {cause: place for place, cause in enumerate(Cause)}


def urgency(cause: Cause | None) -> int:
    """The place of a cause in the order of repair."""
    return len(_URGENCY) if cause is None else _URGENCY[cause]


MISSING = urgency(Cause.UNDER_REPLICATED)


class Waiting:
    """A priority queue of shards that may be left at any time."""

    def __init__(self) -> None:
        self._urgency: dict[int, Urgency] = {}
        self._heap: list[Urgency] = []

    def __contains__(self, shard: int) -> bool:
        return shard in self._urgency

    def __len__(self) -> int:
        return len(self._urgency)

    def put(self, urgency: Urgency) -> None:
        """Let a shard wait, or change its place."""
        if self._urgency.get(urgency[-1]) == urgency:
            return
        self._urgency[urgency[-1]] = urgency
        heappush(self._heap, urgency)
        if len(self._heap) > 2 * len(self._urgency) + _STALE_MAX:
            self._heap = [*self._urgency.values()]
            heapify(self._heap)

    def put_all(self, urgencies: Sequence[Urgency]) -> None:
        """Let shards wait, or change their places."""
        if len(urgencies) * _MANY < len(self._urgency):
            for each in urgencies:
                self.put(each)
            return
        self._urgency.update((each[-1], each) for each in urgencies)
        # Sorted it is a heap, and what comes in order is soon sorted.
        self._heap = sorted(self._urgency.values())

    def leave(self, shard: int) -> None:
        """The shard waits no more."""
        self._urgency.pop(shard, None)

    def first(self) -> Urgency | None:
        """The urgency of the shard at the front."""
        heap = self._heap
        while heap and self._urgency.get(heap[0][-1]) != heap[0]:
            heappop(heap)
        return heap[0] if heap else None

    def take(self) -> int:
        """Take the shard at the front out; there must be one."""
        self.first()
        shard = heappop(self._heap)[-1]
        del self._urgency[shard]
        return shard

    def shards(self) -> list[int]:
        """All that wait, in no order."""
        return [*self._urgency]
