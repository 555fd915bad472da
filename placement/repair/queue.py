"""Holds the shards that repair looks at again, and says when.

- A shard whose action no limit forbids: in every batch.
- A shard that a limit keeps waiting: when the limit has room, the most urgent first. A batch takes
  as many as the limits allow, and none that waits for a limit of one node before that has room.
- A shard that cannot be repaired: when the fleet changes.
- Any other: when an event touches it.

All of it follows from what is published, so that a rebuilt reconciler holds the same.
"""

from collections.abc import Callable, Collection, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from placement.assignments import EMPTY
from placement.diagnosis import WAITS_FOR_NODES, live_slots
from placement.model import THROTTLED, Code, Violation, ViolationClass
from placement.repair.actions import ActionFinder
from placement.repair.leadership import next_leader
from placement.repair.priority import MISSING, Priority, preempts, urgency
from placement.repair.throttle import gives_all
from placement.repair.triage import ShardTriage
from placement.state import State

# Entries that are out of date are dropped once they are more than those in use, and than this.
_STALE_MAX = 256

# Shards that wait, for each that is put, from which putting them one by one costs less.
_MANY = 16


class ThrottledShards:
    """A priority queue of shards that may be left at any time: one heap for those that wait for
    limits of the fleet (node EMPTY), one for each node whose own limit others wait for."""

    def __init__(self, is_closed: Callable[[int], bool]) -> None:
        """`is_closed` says whether a node's own limit has no room; never asked of EMPTY."""
        self._is_closed = is_closed
        self._urgency: dict[int, Priority] = {}
        self._node: dict[int, int] = {}
        self._heaps: dict[int, list[Priority]] = {EMPTY: []}

    def __contains__(self, shard: int) -> bool:
        return shard in self._urgency

    def __len__(self) -> int:
        return len(self._urgency)

    def put(self, urgency: Priority, node: int = EMPTY) -> None:
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

    def put_all(self, urgencies: Sequence[Priority]) -> None:
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

    def first(self) -> Priority | None:
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

    def _front(self, node: int) -> Priority | None:
        """The first of one heap that is not out of date; a node's heap that is empty is dropped."""
        heap = self._heaps[node]
        while heap and not self._is_current(heap[0], node):
            heappop(heap)
        if not heap and node != EMPTY:
            del self._heaps[node]
        return heap[0] if heap else None

    def _is_current(self, urgency: Priority, node: int) -> bool:
        shard = urgency[-1]
        return self._urgency.get(shard) == urgency and self._node.get(shard, EMPTY) == node

    def shards(self) -> list[int]:
        """All that wait, in no order."""
        return [*self._urgency]


class RepairQueue:
    """Every shard that is in need, once, under what it waits for."""

    def __init__(self, state: State, actions: ActionFinder) -> None:
        self._state = state
        self._actions = actions
        self.recheck: set[int] = set()
        self.waiting = ThrottledShards(lambda node: gives_all(state, node))
        self.stuck: set[int] = set()
        self._wanted: set[int] = set()
        # Of those that wait the ones that wait for the source of events.
        self._behind: set[int] = set()

    def due(self, caught_up: bool) -> set[int]:
        """Take out what has to be looked at in this batch."""
        if caught_up:
            self.recheck |= self._behind
        self._look_further()
        due = self.recheck | self._wanted
        self.leave(due)
        self.recheck.clear()
        return due

    def forget(self, shards: Collection[int]) -> None:
        """These shards are no more."""
        self.recheck.difference_update(shards)
        self.leave(shards)

    def leave(self, shards: Collection[int]) -> None:
        """These shards are looked at anew."""
        for known in (self._wanted, self._behind, self.stuck):
            known.difference_update(shards)
        for shard in shards:
            self.waiting.leave(shard)

    @property
    def has_work(self) -> bool:
        """Whether a shard wants what nothing keeps from it."""
        return bool(self._wanted)

    def take(self) -> int:
        """Take out the most urgent of the shards that wait."""
        shard = self.waiting.take()
        self._behind.discard(shard)
        return shard

    def queue(self, keys: dict[int, tuple[str, int]], live: int, behind: bool) -> None:
        """Let shards wait, in the order of their keys, that lack replicas, have `live` ones, and
        break no rule; `behind` also for the source."""
        self.waiting.put_all([(MISSING, live, *key, shard) for shard, key in keys.items()])
        if behind:
            self._behind.update(keys)

    def file(self, shard: int, seen: ShardTriage, key: tuple[str, int]) -> None:
        """Keep in mind when a shard that was looked at has to be looked at again: always, when
        limits have room, when the fleet changes, or not."""
        said = self._state.violations.get(shard, ())
        opened = self._state.ledger.by_shard.get(shard)
        if opened is not None:
            if preempts(self._actions, shard, opened) or self._is_unled(shard, seen):
                self._wanted.add(shard)
        elif said:
            codes = {v.reason.code for v in said}
            if not codes.isdisjoint(THROTTLED):
                self.waiting.put(self.urgency(shard, seen, key), self._awaited(said))
                if Code.NOT_CAUGHT_UP in codes:
                    self._behind.add(shard)
            elif ViolationClass.FIXABLE in [v.violation_class for v in said]:
                self._wanted.add(shard)
            elif not codes.issubset(WAITS_FOR_NODES):
                self.stuck.add(shard)
        if opened is None and self._is_unled(shard, seen):
            self._wanted.add(shard)

    def _awaited(self, said: Collection[Violation]) -> int:
        """The node whose moves away a shard waits for, where that is all that it waits for."""
        waits = [v.reason for v in said if v.violation_class is not ViolationClass.FIXABLE]
        nodes = {each.seen for each in waits if each.code is Code.LIMIT_REACHED and each.seen}
        if len(nodes) != 1 or any(each.seen not in nodes for each in waits):
            return EMPTY
        ((node_id,),) = nodes
        return self._state.topology.index.get(node_id, EMPTY)

    def urgency(self, shard: int, seen: ShardTriage, key: tuple[str, int]) -> Priority:
        """The shard's place among those that want something."""
        if shard in seen.lacking:
            live, _ = seen.lacking[shard]
            return (MISSING, live, *key, shard)
        live = len(live_slots(self._state.table.nodes(shard), self._state.topology))
        return (urgency(self._actions.cause(shard)), live, *key, shard)

    def _is_unled(self, shard: int, seen: ShardTriage) -> bool:
        told = shard in seen.lacking or shard in seen.well
        if told and shard not in seen.unled and shard not in seen.heirs:
            return False
        return next_leader(self._state, self._actions, shard) is not None

    def _look_further(self) -> None:
        """What changes in one shard of a stream may concern others that are in need already, and
        those of a colocated stream that stand apart."""
        state, opened = self._state, self._state.ledger.by_shard
        recheck = np.fromiter(self.recheck, np.int64, len(self.recheck))
        for index in np.unique(state.table.streams_of(recheck)).tolist():
            stream = state.streams[state.stream_names[index]]
            colocated = self._actions.is_colocated(stream)
            if not colocated and not self._actions.is_wide(stream):
                continue
            for other in stream.shards:
                known = other in self.stuck or other in self.waiting or other in opened
                apart = colocated and (other in state.violations or self._actions.strays(other))
                if known or apart:
                    self.recheck.add(other)
