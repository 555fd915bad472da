"""Records which replicas executors found to be out of sync, by shard.

Such a replica is on its node and not complete: the source of the stream has it catch up by itself.
Nothing is copied for it, but it counts for no quorum, and nobody takes the last complete one away.
An observation replaces what the one before it said of the shard; a replica that leaves takes its
entry along. Both are remembered, so that a restart goes on.
"""

from collections.abc import Iterable

from placement.assignments import EMPTY
from placement.state.memory_store import MemoryStore
from placement.state.stream_catalog import StreamCatalog
from placement.topology import Topology

KIND = "out_of_sync"

_NONE: frozenset[int] = frozenset()


class SyncLog:
    """Holds the nodes whose replica of a shard is out of sync, with the writes of them."""

    def __init__(self, topology: Topology, streams: StreamCatalog, memory: MemoryStore) -> None:
        self._topology, self._streams, self._memory = topology, streams, memory
        self._by_shard: dict[int, frozenset[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_shard)

    @property
    def shards(self) -> set[int]:
        """Return the shards with a replica that is out of sync."""
        return {*self._by_shard}

    def nodes_of(self, shard: int) -> frozenset[int]:
        """Return the nodes, by index, whose replica of the shard is out of sync."""
        return self._by_shard.get(shard, _NONE)

    def note(self, shard: int, nodes: Iterable[int]) -> bool:
        """Record that these replicas of a shard, and no others, are out of sync.

        Returns whether that is news.
        """
        found = frozenset(nodes) - {EMPTY}
        if found == self.nodes_of(shard):
            return False
        if found:
            self._by_shard[shard] = found
        else:
            del self._by_shard[shard]
        names = sorted(self._topology.ids[node] for node in found)
        self._memory.remember(KIND, self._name(shard), {"nodes": names} if names else None)
        return True

    def forget(self, shards: Iterable[int]) -> None:
        """Forget what was recorded of shards that are dropped."""
        for shard in shards:
            self.note(shard, ())

    def resume(self) -> None:
        """Restore what a restored memory holds. Raises KeyError for a stream or node that is not
        known, and IndexError for a shard."""
        index = self._topology.index
        for name, body in self._memory.of_kind(KIND).items():
            stream, _, number = name.rpartition("/")
            shard = self._streams[stream].shards[int(number)]
            self._by_shard[shard] = frozenset(index[node_id] for node_id in body["nodes"])

    def _name(self, shard: int) -> str:
        stream, number = self._streams.key(shard)
        return f"{stream}/{number}"
