"""Holds the shards that repair looks at again, and says when.

- A shard whose action no limit forbids: in every batch.
- A shard that a limit keeps waiting: when the limit has room, the most urgent first. A batch takes
  as many as the limits allow, and none that waits for a limit of one node before that has room.
- A shard that cannot be repaired: when the fleet changes.
- Any other: when an event touches it.

All of it follows from what is published, so that a rebuilt reconciler holds the same.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import compress

import numpy as np

from placement.assignments import EMPTY
from placement.diagnosis import WAITS_FOR_NODES, live_slots
from placement.model import THROTTLED, Code, Violation, ViolationClass
from placement.repair.leadership import next_leader
from placement.repair.needs import RepairScope, ShardNeeds
from placement.repair.priority import UNDER_REPLICATED, Priority, preempts, rank_of
from placement.repair.throttle import Throttle
from placement.repair.triage import ShardTriage
from placement.state import ClusterState, ShardKey

# Entries that are out of date are dropped once they are more than those in use, and than this.
_STALE_MAX = 256


class Line:
    """Shards in equal need that wait for the fleet's limits, in the order of their keys.

    `front` is the priority of the first that has not left the line, as of the last look.
    """

    def __init__(
        self, rank: int, live: int, keys: Sequence[ShardKey], shards: Sequence[int]
    ) -> None:
        """Line up at least one shard; `rank` and `live` are those of their priority."""
        self._rank, self._live, self._keys, self.shards = rank, live, keys, shards
        self._step_to(0)

    def __lt__(self, other: "Line") -> bool:
        return self.front < other.front

    def __len__(self) -> int:
        return len(self.shards) - self._at

    def advance(self, line_of: Mapping[int, "Line"]) -> bool:
        """Step to the first shard that still stands in this line; returns whether there is one."""
        at, shards = self._at, self.shards
        while at < len(shards) and line_of.get(shards[at]) is not self:
            at += 1
        if at < len(shards):
            self._step_to(at)
        return at < len(shards)

    def close_up(self, line_of: Mapping[int, "Line"]) -> bool:
        """Keep the shards that still stand in this line; returns whether there are any."""
        kept = [line_of.get(shard) is self for shard in self.shards]
        self._keys, self.shards = [*compress(self._keys, kept)], [*compress(self.shards, kept)]
        self._at = 0
        return self.advance(line_of)

    def shards_before(
        self, end: Priority | None, most: int, line_of: Mapping[int, "Line"]
    ) -> list[int]:
        """List up to `most` shards before `end` that still stand in this line."""
        found: list[int] = []
        for at in range(self._at, len(self.shards)):
            if len(found) == most or (end is not None and end < self._priority(at)):
                break
            shard = self.shards[at]
            if line_of.get(shard) is self:
                found.append(shard)
        return found

    def _step_to(self, at: int) -> None:
        self._at, self.front = at, self._priority(at)

    def _priority(self, at: int) -> Priority:
        return Priority(self._rank, self._live, *self._keys[at], self.shards[at])


class ThrottledShards:
    """A priority queue of shards that may be left at any time.

    One heap for those that wait for limits of the fleet (node EMPTY), one for each node whose own
    limit others wait for. Shards that come by the thousand, in equal need, stand in lines, of
    which only the fronts are compared.
    """

    def __init__(self, is_closed: Callable[[int], bool]) -> None:
        """Start with no shard. `is_closed` says whether a node's own limit is reached; it is never
        called for EMPTY."""
        self._is_closed = is_closed
        self._priorities: dict[int, Priority] = {}
        self._node: dict[int, int] = {}
        self._heaps: dict[int, list[Priority]] = {EMPTY: []}
        self._line_of: dict[int, Line] = {}
        self._lines: list[Line] = []

    def __contains__(self, shard: int) -> bool:
        return shard in self._priorities or shard in self._line_of

    def __len__(self) -> int:
        return len(self._priorities) + len(self._line_of)

    def put(self, priority: Priority, node: int = EMPTY) -> None:
        """Queue a shard that waits for limits of one node or of the fleet, or change its place."""
        shard = priority.shard
        if self._priorities.get(shard) == priority and self._node.get(shard, EMPTY) == node:
            return
        self.drop([shard])
        self._priorities[shard] = priority
        if node != EMPTY:
            self._node[shard] = node
        heap = self._heaps.setdefault(node, [])
        heappush(heap, priority)
        if len(heap) > 2 * len(self._priorities) + _STALE_MAX:
            heap[:] = {each for each in heap if self._is_current(each, node)}
            heapify(heap)

    def put_line(self, line: Line) -> None:
        """Queue the shards of a new line, wherever they stood before."""
        self.drop(line.shards)
        self._line_of.update(dict.fromkeys(line.shards, line))
        heappush(self._lines, line)
        if sum(map(len, self._lines)) > 2 * len(self._line_of) + _STALE_MAX:
            self._lines = [each for each in self._lines if each.close_up(self._line_of)]
            heapify(self._lines)

    def drop(self, shards: Collection[int]) -> None:
        """Remove shards from the queue."""
        for known in (self._priorities, self._node, self._line_of):
            for shard in known.keys() & shards if known else ():
                del known[shard]

    def first(self) -> Priority | None:
        """Return the priority of the first shard that need not wait for a node."""
        fronts = [self._front(node) for node in [*self._heaps] if not self._is_waiting(node)]
        fronts.append(self._front_of_lines())
        return min((front for front in fronts if front is not None), default=None)

    def front_of_line(self, most: int, end: Priority | None) -> list[int]:
        """List up to `most` shards that `first` would return one after the other.

        They stand in one line, before `end` and all that are in none. The list is empty if the
        first shard of all stands in no line.
        """
        if self._front_of_lines() is None:
            return []
        fronts = [self._front(node) for node in [*self._heaps] if not self._is_waiting(node)]
        # Of a heap the least but one is the second or the third.
        ends = [*fronts, *(line.front for line in self._lines[1:3]), end]
        first_end = min((each for each in ends if each is not None), default=None)
        return self._lines[0].shards_before(first_end, most, self._line_of)

    def _is_waiting(self, node: int) -> bool:
        return node != EMPTY and self._is_closed(node)

    def _front(self, node: int) -> Priority | None:
        """Return the first current entry of one heap; drops a node's heap that is empty."""
        heap = self._heaps[node]
        while heap and not self._is_current(heap[0], node):
            heappop(heap)
        if not heap and node != EMPTY:
            del self._heaps[node]
        return heap[0] if heap else None

    def _front_of_lines(self) -> Priority | None:
        """Return the first shard of all lines; drops lines that are empty."""
        lines, line_of = self._lines, self._line_of
        while lines and line_of.get(lines[0].front.shard) is not lines[0]:
            if lines[0].advance(line_of):
                heapreplace(lines, lines[0])
            else:
                heappop(lines)
        return lines[0].front if lines else None

    def _is_current(self, priority: Priority, node: int) -> bool:
        shard = priority.shard
        return self._priorities.get(shard) == priority and self._node.get(shard, EMPTY) == node

    def shards(self) -> list[int]:
        """List all waiting shards, in no order."""
        return [*self._priorities, *self._line_of]


class RepairQueue:
    """Every shard that is in need, once, under what it waits for."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.dirty: set[int] = set()
        self.throttled = ThrottledShards(Throttle(state).gives_enough)
        self.unfixable: set[int] = set()
        self._ready: set[int] = set()
        # Of those that wait the ones that wait for the source of events.
        self._waiting_for_source: set[int] = set()

    def take_due(self, scope: RepairScope, caught_up: bool) -> set[int]:
        """Remove and return the shards to examine in this batch."""
        if caught_up:
            self.dirty |= self._waiting_for_source
        self._add_dependents(scope)
        due = (self.dirty | self._ready) - self._state.awaited
        self.drop(due)
        self.dirty.clear()
        return due

    def forget(self, shards: Collection[int]) -> None:
        """Forget shards that are no more."""
        self.dirty.difference_update(shards)
        self.drop(shards)

    def drop(self, shards: Collection[int]) -> None:
        """Remove shards from the queue, whatever they wait for."""
        for known in filter(None, (self._ready, self._waiting_for_source, self.unfixable)):
            known.difference_update(shards)
        self.throttled.drop(shards)

    @property
    def has_work(self) -> bool:
        """True if a shard needs an action that no limit forbids."""
        return bool(self._ready)

    def put_under_replicated(
        self, keys: Sequence[ShardKey], shards: Sequence[int], live: int, behind: bool
    ) -> None:
        """Queue shards that lack replicas and break no rule, given in the order of their keys.

        They have `live` replicas; `behind` also for the source.
        """
        self.throttled.put_line(Line(UNDER_REPLICATED, live, keys, shards))
        if behind:
            self._waiting_for_source.update(shards)

    def reclassify(self, needs: ShardNeeds, seen: ShardTriage, key: tuple[str, int]) -> None:
        """Queue a shard by its present obstacle (none, limits or the fleet), or drop it.

        `needs` is what it needs as planned, `seen` how it was sorted, `key` its stream and number.
        """
        shard, scope = needs.shard, needs.scope
        said = self._state.publisher.violations.get(shard, ())
        opened = self._state.ledger.by_shard.get(shard)
        if opened is not None:
            if preempts(needs, opened) or self._needs_leader(shard, scope, seen):
                self._ready.add(shard)
        elif said:
            codes = {v.reason.code for v in said}
            if not codes.isdisjoint(THROTTLED):
                self.throttled.put(self.priority(needs, seen, key), self._awaited_node(said))
                if Code.NOT_CAUGHT_UP in codes:
                    self._waiting_for_source.add(shard)
            elif ViolationClass.FIXABLE in [v.violation_class for v in said]:
                self._ready.add(shard)
            elif not codes.issubset(WAITS_FOR_NODES):
                self.unfixable.add(shard)
        if opened is None and self._needs_leader(shard, scope, seen):
            self._ready.add(shard)

    def _awaited_node(self, said: Collection[Violation]) -> int:
        """Return the node whose outgoing moves a shard waits for, if for nothing else."""
        waits = [v.reason for v in said if v.violation_class is not ViolationClass.FIXABLE]
        nodes = {each.seen for each in waits if each.code is Code.LIMIT_REACHED and each.seen}
        if len(nodes) != 1 or any(each.seen not in nodes for each in waits):
            return EMPTY
        ((node_id,),) = nodes
        return self._state.topology.index.get(node_id, EMPTY)

    def priority(self, needs: ShardNeeds, seen: ShardTriage, key: tuple[str, int]) -> Priority:
        """Return the place of a shard among those that need something."""
        shard = needs.shard
        counts = seen.lacking(shard)
        if counts is not None:
            return Priority(UNDER_REPLICATED, counts[0], *key, shard)
        live = len(live_slots(needs.nodes, self._state.topology))
        return Priority(rank_of(needs.top_cause), live, *key, shard)

    def _needs_leader(self, shard: int, scope: RepairScope, seen: ShardTriage) -> bool:
        told = seen.counts(shard) is not None
        if told and shard not in seen.leader_not_allowed and shard not in seen.successors:
            return False
        return next_leader(self._state, scope, shard) is not None

    def _add_dependents(self, scope: RepairScope) -> None:
        """Add shards that a change of another one concerns, where streams depend on all of them.

        Those in need already, and those of a colocated stream that stand apart.
        """
        state, opened = self._state, self._state.ledger.by_shard
        dirty = np.fromiter(self.dirty, np.int64, len(self.dirty))
        for index in np.unique(state.table.streams_of(dirty)).tolist():
            stream = state.streams.at(index)
            traits = scope.traits(stream)
            if not (traits.is_colocated or traits.spans_stream):
                continue
            for other in stream.shards:
                known = other in self.unfixable or other in self.throttled or other in opened
                apart = traits.is_colocated and (
                    other in state.publisher.violations or scope.needs(other).stray_slots
                )
                if known or apart:
                    self.dirty.add(other)
