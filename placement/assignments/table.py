"""The assignment table: every replica of every shard, as columns.

A slot is one position of a shard's assignment. A shard's slots are contiguous, so that it is a
slice, and so are those of a stream until it gets more shards; each node keeps the list of its slots
with O(1) insert and remove, so that the death of a node costs as much as it holds. Stretches that a
dropped stream leaves are used again. There is no Python object per replica: at 10 million replicas
the columns take about 200 MB.

The table holds the *planned* arrangement: while a move is open its target stands in the slot.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from placement.assignments.load_columns import LoadColumns


class Extents:
    """The free stretches below `end`; everything from there on is free too."""

    def __init__(self) -> None:
        self.end = 0
        self._free: list[tuple[int, int]] = []

    def take(self, count: int) -> int:
        """Allocate a range of slots: the first gap that is long enough, or the end.

        Returns its first place.
        """
        for place, (first, length) in enumerate(self._free):
            if length >= count:
                self._free[place : place + 1] = (
                    [(first + count, length - count)] if length > count else []
                )
                return first
        first, self.end = self.end, self.end + count
        return first

    def give(self, first: int, count: int) -> None:
        """Free a range of slots; adjacent free ranges are merged."""
        place = bisect_left(self._free, (first, 0))
        if place < len(self._free) and self._free[place][0] == first + count:
            count += self._free.pop(place)[1]
        if place and sum(self._free[place - 1]) == first:
            place -= 1
            first, before = self._free.pop(place)
            count += before
        if first + count == self.end:
            self.end = first
        else:
            self._free.insert(place, (first, count))


EMPTY = -1

_FIRST = 256

_T = TypeVar("_T", bound=np.generic)


class AssignmentTable:
    """Slots by shard and by node; indexes are private to the process.

    `led`: of each resource that is counted, whether only leaders bear it.
    """

    def __init__(self, led: Sequence[bool] = ()) -> None:
        # None where no resource is counted, so that replicas cost nothing more.
        self.loads = LoadColumns(led) if len(led) else None
        self._slot_node = np.full(_FIRST, EMPTY, np.int32)
        self._slot_shard = np.zeros(_FIRST, np.int32)
        self._slot_place = np.zeros(_FIRST, np.int32)
        self._slots = Extents()
        self._shard_base = np.zeros(_FIRST, np.int64)
        self._shard_factor = np.zeros(_FIRST, np.int32)
        self._shard_stream = np.zeros(_FIRST, np.int32)
        self._shard_number = np.zeros(_FIRST, np.int32)
        self._shards = Extents()
        self._owned: dict[int, Sequence[int]] = {}
        self._node_slots: list[NDArray[np.int32]] = []
        self._load = np.zeros(_FIRST, np.int64)
        self._leaders = np.zeros(_FIRST, np.int64)

    @property
    def shards(self) -> int:
        """One more than the highest index of a shard."""
        return self._shards.end

    def shards_of(self, stream: int) -> Sequence[int]:
        """List the shards of a stream in the order of their numbers.

        It is a range, or an array where some shards were added later.
        """
        return self._owned.get(stream, range(0))

    def load(self, nodes: int) -> NDArray[np.int64]:
        """Count the planned replicas on each of the first `nodes` nodes."""
        self._node(nodes - 1)
        return self._load[:nodes]

    def leaders(self, nodes: int) -> NDArray[np.int64]:
        """Count the planned preferred leaders on each of the first `nodes` nodes."""
        self._node(nodes - 1)
        return self._leaders[:nodes]

    def add_shards(self, stream: int, count: int, slots: int) -> range:
        """Add shards with empty slots to a stream; return their indexes."""
        known = self.shards_of(stream)
        shards = self._shards.take(count)
        base = self._slots.take(count * slots)
        self._reserve(self._shards.end, self._slots.end)
        added = range(shards, shards + count)
        self._shard_stream[shards : added.stop] = stream
        self._shard_number[shards : added.stop] = len(known) + np.arange(count)
        self._place(added, base, slots)
        self._owned[stream] = array("q", (*known, *added)) if known else added
        return added

    def widen(self, stream: int, slots: int) -> None:
        """Widen every shard of a stream to a number of slots; new slots are empty and come last."""
        shards = self.shards_of(stream)
        kept = [self.nodes(shard) for shard in shards]
        self._free_slots(shards)
        base = self._slots.take(len(shards) * slots)
        self._reserve(self._shards.end, self._slots.end)
        self._place(shards, base, slots)
        for shard, nodes in zip(shards, kept, strict=True):
            for slot, node in enumerate(nodes):
                self.set(shard, slot, node)

    def drop_stream(self, stream: int) -> None:
        """Forget a stream's shards; their indexes are free again."""
        shards = self.shards_of(stream)
        self._free_slots(shards)
        indexes = np.asarray(shards, np.int64)
        for first, count in _stretches(indexes, np.ones(len(indexes), np.int64)):
            self._shards.give(first, count)
        if self.loads is not None:
            self.loads.forget(indexes)
        self._owned.pop(stream, None)

    def change_loads(
        self, shards: NDArray[np.int64], known: NDArray[np.int64], unknown: NDArray[np.int64]
    ) -> None:
        """Change the loads of shards, see `LoadColumns.change`."""
        assert self.loads is not None, "no resource is counted"
        self.loads.change(shards, known, unknown, self.padded_rows(shards))

    def streams(self) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Yield every stream by index, with the planned nodes of its shards, one row per shard."""
        for stream, shards in self._owned.items():
            slots, base = int(self._shard_factor[shards[0]]), int(self._shard_base[shards[0]])
            if isinstance(shards, range):
                found = self._slot_node[base : base + len(shards) * slots].reshape(-1, slots)
            else:
                bases = self._shard_base[np.asarray(shards)]
                found = self._slot_node[bases[:, None] + np.arange(slots)]
            yield stream, found

    def stream_of(self, shard: int) -> int:
        """Return the index of the stream that the shard belongs to."""
        return int(self._shard_stream[shard])

    def number_of(self, shard: int) -> int:
        """Return the shard's number within its stream."""
        return int(self._shard_number[shard])

    def factor(self, shard: int) -> int:
        """Count the slots of a shard: its replication factor or more.

        There are more where a stream was adopted with more replicas than that.
        """
        return int(self._shard_factor[shard])

    def factors_of(self, shards: NDArray[np.int64]) -> NDArray[np.int32]:
        """Count the slots of each shard, see `factor`."""
        return self._shard_factor[shards]

    def nodes(self, shard: int) -> list[int]:
        """List the planned node of every slot, leader first; EMPTY where none is."""
        base = int(self._shard_base[shard])
        nodes: list[int] = self._slot_node[base : base + int(self._shard_factor[shard])].tolist()
        return nodes

    def rows(self, shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """Read the planned nodes of shards that have equally many slots, one row each."""
        slots = np.arange(int(self._shard_factor[shards[0]]) if len(shards) else 0)
        found: NDArray[np.int32] = self._slot_node[self._shard_base[shards][:, None] + slots]
        return found.astype(np.int64)

    def lists(self, shards: Sequence[int]) -> list[list[int]]:
        """List the planned nodes of shards as `nodes` does."""
        index = np.asarray(shards, np.int64)
        factors = self._shard_factor[index]
        if (factors != factors[:1]).any():
            return [self.nodes(shard) for shard in shards]
        found: list[list[int]] = self.rows(index).tolist()
        return found

    def padded_rows(self, shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """Read `rows` of shards of any length, EMPTY behind the slots of shorter ones."""
        factors = self._shard_factor[shards]
        if (factors == factors[:1]).all():
            return self.rows(shards)
        found = np.full((len(shards), int(factors.max(initial=0))), EMPTY, np.int64)
        for factor in np.unique(factors).tolist():
            alike = np.flatnonzero(factors == factor)
            found[alike, :factor] = self.rows(shards[alike])
        return found

    def streams_of(self, shards: NDArray[np.int64]) -> NDArray[np.int32]:
        """Read the index of the stream of each shard."""
        return self._shard_stream[shards]

    def numbers_of(self, shards: NDArray[np.int64]) -> NDArray[np.int32]:
        """Read the number of each shard within its stream."""
        return self._shard_number[shards]

    def replicas(self, shard: int) -> list[int]:
        """List the planned nodes of the shard without its empty slots."""
        return [node for node in self.nodes(shard) if node != EMPTY]

    def set(self, shard: int, slot: int, node: int) -> int:
        """Put `node` (or EMPTY) into a slot of the shard; returns what stood there."""
        index = int(self._shard_base[shard]) + slot
        before = int(self._slot_node[index])
        if before == node:
            return before
        if before != EMPTY:
            self._detach(index, before, slot)
        self._slot_node[index] = node
        if node != EMPTY:
            self._attach(index, node, slot)
        return before

    def fill(
        self,
        shards: NDArray[np.int64],
        counts: NDArray[np.int64],
        nodes: NDArray[np.int64],
    ) -> None:
        """Put nodes into the first slots of empty shards, each shard once.

        `counts` nodes of `nodes`, or EMPTY, for each. Raises IndexError when a shard has fewer
        slots.
        """
        if (counts > self._shard_factor[shards]).any():
            raise IndexError("more replicas than slots")
        firsts = np.cumsum(counts) - counts
        slots = np.arange(len(nodes)) - np.repeat(firsts, counts)
        places = np.repeat(self._shard_base[shards], counts) + slots
        if EMPTY in nodes:
            there = nodes != EMPTY
            nodes, slots, places = nodes[there], slots[there], places[there]
        self._slot_node[places] = nodes
        self._node(int(nodes.max(initial=-1)))
        order = _order_by_node(nodes)
        ordered, holders = places[order].astype(np.int32), nodes[order]
        bounds = np.flatnonzero(np.diff(holders, prepend=EMPTY, append=EMPTY)).tolist()
        for first, end in pairwise(bounds):
            self._attach_all(ordered[first:end], int(holders[first]))
        np.add.at(self._leaders, nodes[slots == 0], 1)
        if self.loads is not None:
            self.loads.count_all(self._slot_shard[places].astype(np.int64), nodes, slots == 0)

    def swap(self, shard: int, one: int, other: int) -> None:
        """Exchange two slots: the way a live replica becomes the leader."""
        if one == other:
            return
        base = int(self._shard_base[shard])
        first, second = base + one, base + other
        column, places = self._slot_node, self._slot_place
        column[first], column[second] = int(column[second]), int(column[first])
        places[first], places[second] = int(places[second]), int(places[first])
        for index, slot, before in ((first, one, other), (second, other, one)):
            node = int(column[index])
            if node != EMPTY:
                self._node_slots[node][places[index]] = index
                change = (slot == 0) - (before == 0)
                self._leaders[node] += change
                if self.loads is not None and change:
                    self.loads.count_leaders(np.asarray([shard]), np.asarray([node]), change)

    def lead(self, heirs: Mapping[int, int]) -> None:
        """Exchange the first slot of each shard with the slot given for it.

        Replicas have to be in both.
        """
        first = self._shard_base[np.fromiter(heirs, np.int64, len(heirs))]
        second = first + np.fromiter(heirs.values(), np.int64, len(heirs))
        column, places = self._slot_node, self._slot_place
        for both in (column, places):
            both[first], both[second] = both[second], both[first]
        for slots, more in ((first, 1), (second, -1)):
            nodes = column[slots]
            np.add.at(self._leaders, nodes, more)
            if self.loads is not None:
                led = np.fromiter(heirs, np.int64, len(heirs))
                self.loads.count_leaders(led, nodes.astype(np.int64), more)
            self._note_places(nodes, places[slots], slots)

    def _note_places(
        self, nodes: NDArray[np.int32], places: NDArray[np.int32], slots: NDArray[np.int64]
    ) -> None:
        """Note for each node's place which slot stands there."""
        if (nodes == nodes[:1]).all():
            # As with all the slots that replicas of one dead node have led from.
            for node in nodes[:1].tolist():
                self._node_slots[node][places] = slots
            return
        noted = zip(nodes.tolist(), places.tolist(), slots.tolist(), strict=True)
        for node, place, slot in noted:
            self._node_slots[node][place] = slot

    def lay_out(self, shard: int, nodes: Sequence[int]) -> None:
        """Put these nodes into the shard's slots; those behind them are emptied."""
        before = self.nodes(shard)
        wanted = [*nodes, *[EMPTY] * (len(before) - len(nodes))]
        for slot, node in enumerate(before):
            if node != wanted[slot]:
                self.set(shard, slot, EMPTY)
        for slot, node in enumerate(wanted):
            self.set(shard, slot, node)

    def shards_on(self, node: int) -> list[int]:
        """List the shards that have a planned replica on the node, ascending."""
        self._node(node)
        slots = self._node_slots[node][: self._load[node]]
        # Nearly always each is there once: sorting takes less time than `np.unique`.
        shards = np.sort(self._slot_shard[slots])
        first_of_each = np.append(True, shards[1:] != shards[:-1])[: len(shards)]
        found: list[int] = shards[first_of_each].tolist()
        return found

    def _attach(self, index: int, node: int, slot: int) -> None:
        self._node(node)
        place = int(self._load[node])
        slots = self._node_slots[node]
        if place == len(slots):
            slots = np.concatenate([slots, np.zeros(max(place, 8), np.int32)])
            self._node_slots[node] = slots
        slots[place] = index
        self._slot_place[index] = place
        self._load[node] = place + 1
        if slot == 0:
            self._leaders[node] += 1
        if self.loads is not None:
            self.loads.count(int(self._slot_shard[index]), node, slot == 0, 1)

    def _attach_all(self, indexes: NDArray[np.int32], node: int) -> None:
        """Note slots that hold the node now, whichever they are of their shards."""
        slots, load = self._node_slots[node], int(self._load[node])
        whole = load + len(indexes)
        if whole > len(slots):
            slots = _grow(slots[:load], max(whole, 2 * load), 0)
            self._node_slots[node] = slots
        slots[load:whole] = indexes
        self._slot_place[indexes] = np.arange(load, whole)
        self._load[node] = whole

    def _detach(self, index: int, node: int, slot: int) -> None:
        slots = self._node_slots[node]
        place, last = int(self._slot_place[index]), int(self._load[node]) - 1
        moved = int(slots[last])
        slots[place] = moved
        self._slot_place[moved] = place
        self._load[node] = last
        if slot == 0:
            self._leaders[node] -= 1
        if self.loads is not None:
            self.loads.count(int(self._slot_shard[index]), node, slot == 0, -1)

    def _node(self, node: int) -> None:
        while len(self._node_slots) <= node:
            self._node_slots.append(np.zeros(0, np.int32))
        if node >= len(self._load):
            more = max(len(self._load), node + 1)
            self._load = np.concatenate([self._load, np.zeros(more, np.int64)])
            self._leaders = np.concatenate([self._leaders, np.zeros(more, np.int64)])

    def _place(self, shards: Sequence[int], base: int, slots: int) -> None:
        """Assign the shards their slots in sequence from `base` on."""
        indexes = np.asarray(shards, np.int64)
        self._shard_base[indexes] = base + slots * np.arange(len(indexes))
        self._shard_factor[indexes] = slots
        self._slot_shard[base : base + slots * len(indexes)] = np.repeat(indexes, slots)

    def _free_slots(self, shards: Sequence[int]) -> None:
        """Empty all slots of the shards and free their ranges."""
        for shard in shards:
            for slot in range(self.factor(shard)):
                self.set(shard, slot, EMPTY)
        indexes = np.asarray(shards, np.int64)
        for first, count in _stretches(self._shard_base[indexes], self._shard_factor[indexes]):
            self._slots.give(first, count)

    def _reserve(self, shards: int, slots: int) -> None:
        if slots > len(self._slot_node):
            size = max(slots, 2 * len(self._slot_node))
            self._slot_node = _grow(self._slot_node, size, EMPTY)
            self._slot_shard = _grow(self._slot_shard, size, 0)
            self._slot_place = _grow(self._slot_place, size, 0)
        if shards > len(self._shard_base):
            size = max(shards, 2 * len(self._shard_base))
            self._shard_base = _grow(self._shard_base, size, 0)
            self._shard_factor = _grow(self._shard_factor, size, 0)
            self._shard_stream = _grow(self._shard_stream, size, 0)
            self._shard_number = _grow(self._shard_number, size, 0)


def _grow(column: NDArray[_T], size: int, fill: int) -> NDArray[_T]:
    grown = np.full(size, fill, column.dtype)
    grown[: len(column)] = column
    return grown


def _order_by_node(nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort by node, those of one node in their order."""
    # numpy sorts 16 bits by counting, which takes a seventh of the time.
    narrow = nodes.max(initial=0) <= np.iinfo(np.uint16).max
    return np.argsort(nodes.astype(np.uint16) if narrow else nodes, kind="stable")


def _stretches(
    firsts: NDArray[np.int64], lengths: NDArray[np.int64] | NDArray[np.int32]
) -> Iterator[tuple[int, int]]:
    """Yield stretches (first, length), those that follow each other taken together."""
    if not len(firsts):
        return
    breaks = np.flatnonzero(firsts[1:] != firsts[:-1] + lengths[:-1]) + 1
    for part in np.split(np.arange(len(firsts)), breaks):
        yield int(firsts[part[0]]), int(lengths[part].sum())
