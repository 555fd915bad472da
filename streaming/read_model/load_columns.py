"""Holds what is known of the loads of shards as columns by stream and resource."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.read_model.shard_columns import NONE, NodeNumbers

Body = Mapping[str, Any]
_Column = NDArray[np.int64]


class LoadColumns:
    """Loads of shards; bodies are those of `schemas.loads.ShardLoad`. Amounts are never below 0, so
    that -1 stands for one that is not known."""

    def __init__(self) -> None:
        # By stream: the time of each load and its node's number, and one column for a resource.
        self._at: dict[str, _Column] = {}
        self._by_node: dict[str, _Column] = {}
        self._amounts: dict[str, dict[str, _Column]] = {}
        self._nodes = NodeNumbers()

    def take(self, changed: Mapping[str, Mapping[int, Body | None]]) -> None:
        """Take in loads by stream and shard; None takes one away. Raises KeyError, TypeError,
        ValueError for bodies that are no loads."""
        for stream, bodies in changed.items():
            size = max(bodies) + 1
            at = self._at[stream] = _grown(self._at.get(stream), size)
            nodes = self._by_node[stream] = _grown(self._by_node.get(stream), size)
            amounts = self._amounts.setdefault(stream, {})
            named = {name for body in bodies.values() if body for name in body["amounts"]}
            for name in {*amounts, *named}:
                amounts[name] = _grown(amounts.get(name), size)
            for shard, body in bodies.items():
                known = {} if body is None else body["amounts"]
                for name, column in amounts.items():
                    column[shard] = known.get(name, NONE)
                at[shard] = NONE if body is None else body["at"]
                nodes[shard] = NONE if body is None else self._nodes.number(body["node_id"])
            if (at == NONE).all():
                for columns in (self._at, self._by_node, self._amounts):
                    del columns[stream]

    def body(self, stream: str, shard: int) -> dict[str, Any] | None:
        """Return what is known of the load of a shard; None where nothing is."""
        at = self._at.get(stream)
        if at is None or not 0 <= shard < len(at) or at[shard] == NONE:
            return None
        columns = self._amounts[stream]
        amounts = {name: int(each[shard]) for name, each in columns.items() if each[shard] != NONE}
        return {
            "stream": stream,
            "shard": shard,
            "amounts": dict(sorted(amounts.items())),
            "node_id": self._nodes.ids[self._by_node[stream][shard]],
            "at": int(at[shard]),
        }

    def bodies(self, stream: str) -> list[dict[str, Any]]:
        """List what is known of the shards of a stream."""
        shards = np.flatnonzero(self._at.get(stream, np.full(0, NONE)) != NONE).tolist()
        found = (self.body(stream, shard) for shard in shards)
        return [body for body in found if body is not None]


def _grown(column: _Column | None, size: int) -> _Column:
    """The column with room for `size` shards at least; nothing is known of the new ones."""
    have = np.full(0, NONE, np.int64) if column is None else column
    if size <= len(have):
        return have
    # Doubling, so that shards that come one by one are not copied each time.
    return np.concatenate([have, np.full(max(size, 2 * len(have)) - len(have), NONE, np.int64)])
