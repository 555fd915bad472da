"""Holds the nodes of one liveness table as columns, a row for each node.

A batch reads and writes the whole table: it is kept as arrays in as few bytes as possible. Names
seldom change; they are written once and carried on as bytes.
"""

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from placement.liveness.clocks import NO_PARTITION
from placement.liveness.incarnations import Mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# The clocks of partitions begin at 0.
_UNSAMPLED = -1


class NodeColumns:
    """Holds what is known of each node, by row; rows from `len` on are spare.

    - `seen`: reading of the clock of `partition` at the node's last statement.
    - `sampled`: reading at the last tick, if it was in this life and partition.
    - `usual`: ms between two heartbeats, 0 while that is not known.
    """

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.index: dict[str, int] = {}
        self.incarnations: list[str] = []
        self.hashes: list[str] = []
        self.seen = np.zeros(64, np.int64)
        self.sequence = np.zeros(64, np.int64)
        self.status = np.zeros(64, np.int8)
        self.partition = np.full(64, NO_PARTITION, np.int32)
        self.sampled = np.zeros(64, np.int64)
        self.usual = np.zeros(64, np.int32)
        self._names: bytes | None = None
        self._free: int | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def _columns(self) -> "tuple[NDArray[Any], ...]":
        """List all arrays, in the order in which they are written as bytes."""
        return self.seen, self.sequence, self.status, self.partition, self.sampled, self.usual

    def _set_columns(self, columns: "Sequence[NDArray[Any]]") -> None:
        """Replace all arrays, given in the order of `_columns`."""
        self.seen, self.sequence, self.status = columns[:3]
        self.partition, self.sampled, self.usual = columns[3:]

    def append(self, node_id: str) -> int:
        """Add a row for a node, reusing the row of a forgotten node; return the row."""
        self._names = None
        if self._free is not None:
            node, self._free = self._free, None
            self.ids[node], self.index[node_id] = node_id, node
            self.status[node], self.usual[node] = 0, 0
            return node
        node = len(self.ids)
        if node == len(self.seen):
            self._set_columns([np.concatenate([c, np.zeros_like(c)]) for c in self._columns()])
        self.ids.append(node_id)
        self.index[node_id] = node
        self.incarnations.append("")
        self.hashes.append("")
        self.partition[node] = NO_PARTITION
        return node

    def rename(self) -> None:
        """Note that names, or the lives that are kept with them, have changed."""
        self._names = None

    def release(self, node: int) -> None:
        """Forget the node: the next one gets its row."""
        del self.index[self.ids[node]]
        self._free = node

    def name(self, node: int, incarnation: str, body_hash: str) -> None:
        """Record the life that holds the node's name, and the hash of its last statement about
        itself."""
        if (self.incarnations[node], self.hashes[node]) != (incarnation, body_hash):
            self.incarnations[node], self.hashes[node] = incarnation, body_hash
            self._names = None

    def touch(self, node: int, sequence: int, at: Mark, *, anew: bool = False) -> None:
        """Record a statement of the node; `anew`: of a new life, or the node's first."""
        if anew or self.partition[node] != at.partition:
            self.sampled[node] = _UNSAMPLED
        self.sequence[node], self.seen[node] = sequence, at.reading
        self.partition[node] = at.partition

    def record_heartbeats(
        self, nodes: "NDArray[np.int64]", sequences: "NDArray[np.int64]", readings: Any, home: int
    ) -> None:
        """Record heartbeats of many nodes, at most one of each."""
        moved = self.partition[nodes] != home
        self.sampled[nodes[moved]] = _UNSAMPLED
        self.sequence[nodes], self.seen[nodes] = sequences, readings
        self.partition[nodes] = home

    def mark(self, node: int) -> Mark:
        """Return the mark of the node's last record."""
        return Mark(int(self.partition[node]), int(self.seen[node]))

    def sample(self, partition: int, longest_ms: int) -> None:
        """Measure at a tick of a partition how often its nodes send heartbeats.

        A silence of `longest_ms` or more is no pause between two heartbeats. Each new pause counts
        for an eighth of the average, as in TCP (RFC 6298).
        """
        size = len(self.ids)
        before = self.sampled[:size].copy()
        pause = self.seen[:size] - before
        spoke = np.flatnonzero((self.partition[:size] == partition) & (pause > 0))
        self.sampled[spoke] = self.seen[spoke]
        spoke = spoke[(pause[spoke] < longest_ms) & (before[spoke] != _UNSAMPLED)]
        known, pause = self.usual[spoke], pause[spoke]
        self.usual[spoke] = np.where(known == 0, pause, known + (pause - known) // 8)

    def to_bytes(self, header: bytes, earlier: Any) -> bytes:
        """Write all columns behind a header; `earlier` is kept with the names."""
        if self._names is None:
            names = [self.ids, self.incarnations, self.hashes, earlier]
            self._names = json.dumps(names, separators=(",", ":")).encode()
        size = len(self.ids)
        columns = (column[:size].tobytes() for column in self._columns())
        lengths = (len(header).to_bytes(4, "big"), len(self._names).to_bytes(4, "big"))
        return b"".join([*lengths, header, self._names, *columns])

    @classmethod
    def from_bytes(cls, blob: bytes) -> tuple["NodeColumns", bytes, Any]:
        """Read the bytes of `to_bytes`, with the header, and `earlier`."""
        found = cls()
        place = 8 + int.from_bytes(blob[:4], "big")
        header, start = blob[8:place], place
        place += int.from_bytes(blob[4:8], "big")
        found._names = blob[start:place]
        found.ids, found.incarnations, found.hashes, earlier = json.loads(found._names)
        found.index = {node_id: node for node, node_id in enumerate(found.ids)}
        size = len(found.ids)
        columns = []
        for empty in found._columns():
            column = np.frombuffer(blob, empty.dtype, size, place)
            place += column.nbytes
            spare = np.zeros(max(64, size) - size, empty.dtype)
            columns.append(np.concatenate([column, spare]))
        found._set_columns(columns)
        return found, header, earlier
