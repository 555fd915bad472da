"""Holds the assignments of all shards as columns by stream: a million of them in some 60 MB.

A dict for each shard would take a kilobyte. What only a few shards have (an open move, roles) lies
beside the columns; shards that have the same beside them share it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Body = Mapping[str, Any]

# In a column of nodes an empty slot, in one of epochs a shard without an assignment.
NONE = -1
# Fields of an assignment that have columns or lie in the key.
_IN_COLUMNS = ("stream", "shard", "epoch", "replicas", "decided_at")
# What an assignment always has beside them, and what is empty while no move is open.
_WHILE_MOVING = ("adding", "removing")


class NodeNumbers:
    """Numbers nodes in the order in which they were seen first. One that is forgotten keeps its
    number, which costs less than to look whether a shard still names it."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.numbers: dict[str, int] = {}

    def number(self, node_id: str) -> int:
        """Return the number of a node, a new one for a node that was not seen yet."""
        found = self.numbers.get(node_id)
        if found is None:
            found = self.numbers[node_id] = len(self.ids)
            self.ids.append(node_id)
        return found


class StreamColumns:
    """The shards of one stream, by number. `nodes` has a row for each shard, the leader first."""

    __slots__ = ("decided_at", "epochs", "nodes", "rest", "rests")

    def __init__(self) -> None:
        self.epochs: NDArray[np.int64] = np.full(0, NONE, np.int64)
        self.decided_at: NDArray[np.int64] = np.zeros(0, np.int64)
        self.nodes: NDArray[np.int32] = np.full((0, 0), NONE, np.int32)
        self.rest: dict[int, tuple[tuple[str, Any], ...]] = {}
        # Equal ones at rest are kept once: the uid of a stream stands beside each of its shards.
        self.rests: dict[str, tuple[tuple[str, Any], ...]] = {}

    def reserve(self, shards: int, width: int) -> None:
        """Make room for so many shards with so many replicas each."""
        have, have_width = self.nodes.shape
        if shards <= have and width <= have_width:
            return
        # Doubling, so that shards that come one by one are not copied each time.
        size = max(shards, 2 * have) if shards > have else have
        grown = np.full((size, max(width, have_width)), NONE, np.int32)
        grown[:have, :have_width] = self.nodes
        more = size - have
        self.nodes = grown
        self.epochs = np.concatenate([self.epochs, np.full(more, NONE, np.int64)])
        self.decided_at = np.concatenate([self.decided_at, np.zeros(more, np.int64)])

    def has(self, shard: int) -> bool:
        """Return whether the shard has an assignment."""
        return 0 <= shard < len(self.epochs) and self.epochs[shard] != NONE

    @property
    def shards(self) -> NDArray[np.int64]:
        """Numbers of the shards that have an assignment, in order."""
        return np.flatnonzero(self.epochs != NONE)


class ShardColumns:
    """All shards of all streams; bodies are those of `schemas.outputs.Assignment`."""

    def __init__(self) -> None:
        self._streams: dict[str, StreamColumns] = {}
        self._nodes = NodeNumbers()

    def take(self, changed: Mapping[str, Mapping[int, Body | None]]) -> None:
        """Take in assignments by stream and shard; None takes one away. Raises KeyError, TypeError,
        ValueError for bodies that are no assignments."""
        for stream, bodies in changed.items():
            gone = [shard for shard, body in bodies.items() if body is None]
            put = {shard: body for shard, body in bodies.items() if body is not None}
            if put:
                self._put(self._streams.setdefault(stream, StreamColumns()), put)
            if gone and stream in self._streams:
                self._drop(stream, gone)

    def _put(self, columns: StreamColumns, put: Mapping[int, Body]) -> None:
        shards = np.fromiter(put, np.int64, len(put))
        bodies = put.values()
        sizes = np.fromiter((len(each["replicas"]) for each in bodies), np.int64, len(put))
        width = int(sizes.max())
        columns.reserve(int(shards.max()) + 1, width)
        number = self._nodes.number
        flat = [number(node) for each in bodies for node in each["replicas"]]
        rows = np.full((len(put), columns.nodes.shape[1]), NONE, np.int32)
        rows[np.arange(rows.shape[1]) < sizes[:, None]] = flat
        columns.nodes[shards] = rows
        columns.epochs[shards] = [each["epoch"] for each in bodies]
        columns.decided_at[shards] = [each["decided_at"] for each in bodies]
        for shard, body in put.items():
            at_rest = not (body["adding"] or body["removing"] or "move_id" in body)
            if at_rest and len(body) == len(_IN_COLUMNS) + len(_WHILE_MOVING):
                columns.rest.pop(shard, None)
                continue
            rest = tuple((name, body[name]) for name in body if name not in _IN_COLUMNS)
            # No two moves have the same; one that is kept would outlive its move.
            columns.rest[shard] = columns.rests.setdefault(repr(rest), rest) if at_rest else rest

    def _drop(self, stream: str, gone: list[int]) -> None:
        columns = self._streams[stream]
        there = [shard for shard in gone if columns.has(shard)]
        columns.epochs[there] = NONE
        columns.nodes[there] = NONE
        for shard in there:
            columns.rest.pop(shard, None)
        if not len(columns.shards):
            del self._streams[stream]

    def body(self, stream: str, shard: int) -> dict[str, Any] | None:
        """Return the assignment of a shard; None where it has none."""
        columns = self._streams.get(stream)
        if columns is None or not columns.has(shard):
            return None
        ids, row = self._nodes.ids, columns.nodes[shard].tolist()
        at_rest: dict[str, Any] = {name: [] for name in _WHILE_MOVING}
        return {
            "stream": stream,
            "shard": shard,
            "epoch": int(columns.epochs[shard]),
            "replicas": [ids[node] for node in row if node != NONE],
            "decided_at": int(columns.decided_at[shard]),
            **at_rest,
            **dict(columns.rest.get(shard, ())),
        }

    def epoch(self, stream: str, shard: int) -> int | None:
        """Return the epoch of a shard; None where it has no assignment."""
        columns = self._streams.get(stream)
        if columns is None or not columns.has(shard):
            return None
        return int(columns.epochs[shard])

    def bodies(self, stream: str) -> Iterator[dict[str, Any]]:
        """Yield the assignments of a stream by number."""
        columns = self._streams.get(stream)
        for shard in [] if columns is None else columns.shards.tolist():
            body = self.body(stream, shard)
            assert body is not None
            yield body

    def shards_on(self, node_id: str) -> dict[str, list[int]]:
        """Find the shards with a replica on a node, by stream."""
        number = self._nodes.numbers.get(node_id)
        if number is None:
            return {}
        found = {
            stream: np.flatnonzero((columns.nodes == number).any(axis=1)).tolist()
            for stream, columns in self._streams.items()
        }
        return {stream: shards for stream, shards in found.items() if shards}

    def count_live(
        self,
        stream: str,
        shards: int,
        dead: Iterable[str],
        behind: Mapping[str, frozenset[str]],
    ) -> NDArray[np.int64]:
        """Count the complete copies that count for a quorum, by shard.

        - `shards`: how many the stream has; those without an assignment have none.
        - `dead`: nodes whose copies do not count; `behind`: by shard (`orders/3`) those whose
          copies have fallen out of sync.
        """
        live = np.zeros(shards, np.int64)
        columns = self._streams.get(stream)
        if columns is None:
            return live
        known = min(shards, len(columns.epochs))
        gone = np.zeros(len(self._nodes.ids) + 1, bool)
        gone[[self._nodes.numbers[each] for each in dead if each in self._nodes.numbers]] = True
        gone[NONE] = True
        live[:known] = (~gone[columns.nodes[:known]]).sum(axis=1)
        special = {key.rpartition("/") for key in behind}
        few = {int(n) for name, _, n in special if name == stream and n.isdecimal()}
        for shard in sorted(few | {*columns.rest}):
            body = self.body(stream, shard) if shard < known else None
            if body is not None:
                roles = body.get("roles") or ["replica"] * len(body["replicas"])
                unfit = {*body["adding"], *behind.get(f"{stream}/{shard}", ())}
                live[shard] = sum(
                    role == "replica" and node not in unfit and not gone[self._nodes.numbers[node]]
                    for node, role in zip(body["replicas"], roles, strict=False)
                )
        return live

    def find_unplaced(self, stream: str, shards: int) -> NDArray[np.bool_]:
        """Mark the shards without an assignment, of as many as the stream has."""
        marks = np.ones(shards, bool)
        columns = self._streams.get(stream)
        if columns is not None:
            known = min(shards, len(columns.epochs))
            marks[:known] = columns.epochs[:known] == NONE
        return marks

    def values(self, stream: str, name: str, shards: int) -> NDArray[np.int64]:
        """The column `epoch` or `decided_at` of a stream, by shard; `NONE` where there is none."""
        found = np.full(shards, NONE, np.int64)
        columns = self._streams.get(stream)
        if columns is not None:
            column = columns.epochs if name == "epoch" else columns.decided_at
            known = min(shards, len(column))
            found[:known] = column[:known]
        return found

    def count_shards(self) -> int:
        """Count the shards that have an assignment."""
        return sum(len(each.shards) for each in self._streams.values())

    def count_replicas(self, stream: str | None = None) -> tuple[Counter[str], Counter[str]]:
        """Count the replicas on each node, and those of them that lead; `stream`: of it alone."""
        size = len(self._nodes.ids)
        held, led = np.zeros(size, np.int64), np.zeros(size, np.int64)
        for name, columns in self._streams.items():
            if stream not in (None, name):
                continue
            nodes = columns.nodes
            held += np.bincount(nodes[nodes != NONE], minlength=size)
            first = nodes[:, 0] if nodes.shape[1] else nodes.ravel()
            led += np.bincount(first[first != NONE], minlength=size)
        return self._by_id(held), self._by_id(led)

    def _by_id(self, counts: NDArray[np.int64]) -> Counter[str]:
        there = np.flatnonzero(counts).tolist()
        return Counter({self._nodes.ids[node]: int(counts[node]) for node in there})
