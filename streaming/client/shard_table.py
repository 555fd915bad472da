"""Holds the assignments of many shards as columns: a million of them in some tens of megabytes.

`placement_view.py` fills it from `assignments.v1`. A stream has an array of epochs and one of node
indices, both by the shard's number; node ids are held once. The arrays are those of the standard
library: one shard is read or written at a time, which numpy would not do faster.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# What stands in a column where there is no shard, or no further replica.
NONE = -1
# A stream begins with room for so many shards; the room doubles as more are seen.
SHARDS_MIN = 16


@dataclass(slots=True)
class _Stream:
    """The columns of one stream: `epochs` by shard, 64 bits, NONE where there is none; `nodes`
    `width` for each shard, 32 bits, indices of nodes with the leader's first, NONE behind the
    last."""

    width: int
    epochs: array[int]
    nodes: array[int]
    count: int = 0

    @classmethod
    def with_room(cls, shards: int, width: int) -> _Stream:
        """Make the columns of a stream without shards."""
        return cls(width, array("q", [NONE]) * shards, array("i", [NONE]) * (shards * width))

    def set_nodes(self, shard: int, nodes: Sequence[int]) -> None:
        """Write the nodes of a shard."""
        padded = [*nodes, *[NONE] * (self.width - len(nodes))]
        self.nodes[shard * self.width : (shard + 1) * self.width] = array("i", padded)


class ShardTable:
    """Knows the epoch and the replicas of each shard. Not safe for threads."""

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        self._ids: list[str] = []
        self._index: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(stream.count for stream in self._streams.values())

    @property
    def size_bytes(self) -> int:
        """Return the size of the columns."""
        return sum(
            len(column) * column.itemsize
            for stream in self._streams.values()
            for column in (stream.epochs, stream.nodes)
        )

    def shards(self, stream: str) -> list[int]:
        """Return the numbers of a stream's shards, rising; empty for one that is not known."""
        known = self._streams.get(stream)
        if known is None:
            return []
        return [shard for shard, epoch in enumerate(known.epochs) if epoch != NONE]

    def put(self, stream: str, shard: int, epoch: int, nodes: Sequence[str]) -> bool:
        """Take in an assignment; False where a newer one, or itself, is known already."""
        known = self._streams.get(stream)
        if known is None:
            known = self._streams[stream] = _Stream.with_room(SHARDS_MIN, max(1, len(nodes)))
        if shard >= len(known.epochs) or len(nodes) > known.width:
            known = self._widen(stream, known, shard + 1, len(nodes))
        if epoch <= known.epochs[shard]:
            return False
        known.count += known.epochs[shard] == NONE
        known.epochs[shard] = epoch
        known.set_nodes(shard, [self._number(node) for node in nodes])
        return True

    def drop(self, stream: str, shard: int) -> bool:
        """Forget a shard; False where it is not known."""
        known = self._streams.get(stream)
        if known is None or shard >= len(known.epochs) or known.epochs[shard] == NONE:
            return False
        known.epochs[shard] = NONE
        known.set_nodes(shard, ())
        known.count -= 1
        if not known.count:
            del self._streams[stream]
        return True

    def epoch(self, stream: str, shard: int) -> int | None:
        """Return the epoch of a shard; None where there is none."""
        known = self._streams.get(stream)
        if known is None or not 0 <= shard < len(known.epochs) or known.epochs[shard] == NONE:
            return None
        return known.epochs[shard]

    def replicas(self, stream: str, shard: int) -> tuple[str, ...]:
        """Return the nodes of a shard, leader first; none where there is no such shard."""
        if self.epoch(stream, shard) is None:
            return ()
        known = self._streams[stream]
        row = known.nodes[shard * known.width : (shard + 1) * known.width]
        return tuple(self._ids[node] for node in row if node != NONE)

    def _number(self, node_id: str) -> int:
        number = self._index.setdefault(node_id, len(self._ids))
        if number == len(self._ids):
            self._ids.append(node_id)
        return number

    def _widen(self, stream: str, known: _Stream, shards: int, replicas: int) -> _Stream:
        """Give a stream room for more shards or replicas."""
        held = len(known.epochs)
        room = held if shards <= held else max(shards, 2 * held)
        wider = self._streams[stream] = _Stream.with_room(room, max(known.width, replicas))
        wider.epochs[:held], wider.count = known.epochs, known.count
        for slot in range(known.width):
            wider.nodes[slot : held * wider.width : wider.width] = known.nodes[slot :: known.width]
        return wider
