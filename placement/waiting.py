"""Shards that a limit keeps waiting, the most urgent first.

They are not looked at again in every batch: a batch takes from the front as many as the limits
allow, and of those that wait for a limit of one node none before that node has room. Their order
is derived from the state, so that a rebuilt reconciler has the same.
"""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

from placement.assignments import EMPTY
from placement.urgency import Urgency

# Entries that are out of date are dropped once they are more than those in use, and than this.
_STALE_MAX = 256

# Shards that wait, for each that is put, from which putting them one by one costs less.
_MANY = 16


class Waiting:
    """A priority queue of shards that may be left at any time: one heap for those that wait for
    limits of the fleet (node EMPTY), one for each node whose own limit others wait for."""

    def __init__(self, is_closed: Callable[[int], bool]) -> None:
        """`is_closed` says whether a node's own limit has no room; never asked of EMPTY."""
        self._is_closed = is_closed
        self._urgency: dict[int, Urgency] = {}
        self._node: dict[int, int] = {}
        self._heaps: dict[int, list[Urgency]] = {EMPTY: []}

    def __contains__(self, shard: int) -> bool:
        return shard in self._urgency

    def __len__(self) -> int:
        return len(self._urgency)

    def put(self, urgency: Urgency, node: int = EMPTY) -> None:
        """Let a shard wait, for a limit of the node if one is named, or change its place."""
        shard = urgency[-1]
        if self._urgency.get(shard) == urgency and self._node.get(shard, EMPTY) == node:
            return
        self.leave(shard)
        self._urgency[shard] = urgency
        if node != EMPTY:
            self._node[shard] = node
        heap = self._heaps.setdefault(node, [])
        heappush(heap, urgency)
        if len(heap) > 2 * len(self._urgency) + _STALE_MAX:
            heap[:] = {each for each in heap if self._is_current(each, node)}
            heapify(heap)

    def put_all(self, urgencies: Sequence[Urgency]) -> None:
        """Let shards wait for limits of the fleet, or change their places."""
        if len(urgencies) * _MANY < len(self._urgency):
            for each in urgencies:
                self.put(each)
            return
        for each in urgencies:
            self._node.pop(each[-1], None)
        self._urgency.update((each[-1], each) for each in urgencies)
        # Sorted it is a heap, and what comes in order is soon sorted.
        waits = (each for shard, each in self._urgency.items() if shard not in self._node)
        self._heaps[EMPTY] = sorted(waits)

    def leave(self, shard: int) -> None:
        """The shard waits no more."""
        self._urgency.pop(shard, None)
        self._node.pop(shard, None)

    def first(self) -> Urgency | None:
        """The urgency of the shard at the front, of those that need not wait for a node."""
        fronts = [self._front(node) for node in [*self._heaps] if not self._waits(node)]
        return min((front for front in fronts if front is not None), default=None)

    def take(self) -> int:
        """Take the shard at the front out; there must be one."""
        first = self.first()
        assert first is not None, "a shard that need not wait for a node"
        heappop(self._heaps[self._node.get(first[-1], EMPTY)])
        self.leave(first[-1])
        return first[-1]

    def _waits(self, node: int) -> bool:
        return node != EMPTY and self._is_closed(node)

    def _front(self, node: int) -> Urgency | None:
        """The first of one heap that is not out of date; a node's heap that is empty is dropped."""
        heap = self._heaps[node]
        while heap and not self._is_current(heap[0], node):
            heappop(heap)
        if not heap and node != EMPTY:
            del self._heaps[node]
        return heap[0] if heap else None

    def _is_current(self, urgency: Urgency, node: int) -> bool:
        shard = urgency[-1]
        return self._urgency.get(shard) == urgency and self._node.get(shard, EMPTY) == node

    def shards(self) -> list[int]:
        """All that wait, in no order."""
        return [*self._urgency]
