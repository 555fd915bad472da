"""Holds the assignments of many shards as columns: a million of them in some tens of megabytes.

`placement_view.py` fills it from `assignments.v1`. A stream has an array of epochs and one of node
indices, both by the shard's number; node ids are held once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# What stands in a column where there is no shard, or no further replica.
NONE = -1
# A stream begins with room for so many shards; the room doubles as more are seen.
SHARDS_MIN = 16


@dataclass(slots=True)
class _Stream:
    """The columns of one stream: `epochs` [shards], NONE where there is none; `nodes` [shards,
    replicas], indices of nodes with the leader's first, NONE behind the last."""

    epochs: NDArray[np.int64]
    nodes: NDArray[np.int32]
    count: int = 0


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
        return sum(each.epochs.nbytes + each.nodes.nbytes for each in self._streams.values())

    def shards(self, stream: str) -> list[int]:
        """Return the numbers of a stream's shards, rising; empty for one that is not known."""
        known = self._streams.get(stream)
        return [] if known is None else [int(each) for each in np.flatnonzero(known.epochs != NONE)]

    def put(self, stream: str, shard: int, epoch: int, nodes: Sequence[str]) -> bool:
        """Take in an assignment; False where a newer one, or itself, is known already."""
        known = self._streams.get(stream)
        if known is None:
            width = max(1, len(nodes))
            known = self._streams[stream] = _Stream(*_columns(SHARDS_MIN, width))
        if shard >= len(known.epochs) or len(nodes) > known.nodes.shape[1]:
            known = self._widen(stream, known, shard + 1, len(nodes))
        if epoch <= known.epochs[shard]:
            return False
        known.count += bool(known.epochs[shard] == NONE)
        known.epochs[shard] = epoch
        known.nodes[shard] = NONE
        known.nodes[shard, : len(nodes)] = [self._number(node) for node in nodes]
        return True

    def drop(self, stream: str, shard: int) -> bool:
        """Forget a shard; False where it is not known."""
        known = self._streams.get(stream)
        if known is None or shard >= len(known.epochs) or known.epochs[shard] == NONE:
            return False
        known.epochs[shard], known.nodes[shard] = NONE, NONE
        known.count -= 1
        if not known.count:
            del self._streams[stream]
        return True

    def epoch(self, stream: str, shard: int) -> int | None:
        """Return the epoch of a shard; None where there is none."""
        known = self._streams.get(stream)
        if known is None or not 0 <= shard < len(known.epochs) or known.epochs[shard] == NONE:
            return None
        return int(known.epochs[shard])

    def replicas(self, stream: str, shard: int) -> tuple[str, ...]:
        """Return the nodes of a shard, leader first; none where there is no such shard."""
        if self.epoch(stream, shard) is None:
            return ()
        row = self._streams[stream].nodes[shard].tolist()
        return tuple(self._ids[node] for node in row if node != NONE)

    def _number(self, node_id: str) -> int:
        number = self._index.setdefault(node_id, len(self._ids))
        if number == len(self._ids):
            self._ids.append(node_id)
        return number

    def _widen(self, stream: str, known: _Stream, shards: int, replicas: int) -> _Stream:
        """Give a stream room for more shards or replicas."""
        held, width = known.nodes.shape
        epochs, nodes = _columns(
            held if shards <= held else max(shards, 2 * held), max(width, replicas)
        )
        epochs[:held], nodes[:held, :width] = known.epochs, known.nodes
        wider = self._streams[stream] = _Stream(epochs, nodes, known.count)
        return wider


def _columns(shards: int, width: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    return np.full(shards, NONE, np.int64), np.full((shards, width), NONE, np.int32)
