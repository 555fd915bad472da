"""The reconciler's memory, how each change of it becomes a record, and how it is restored.

`ClusterState` holds the facts with `StreamCatalog`, `MoveLog` and `MemoryStore`, `Publisher` makes
records of their changes, `digest` proves a rebuild. Imports `strategies`, `moves` and what they
stand on.
"""

from placement.state.cluster_state import ClusterState, ReadModel
from placement.state.memory_store import MemoryStore
from placement.state.move_log import MoveLog
from placement.state.publisher import Keys, Publisher, Violations
from placement.state.restore import rebuild
from placement.state.stream_catalog import ShardKey, Stream, StreamCatalog, role_rules

__all__ = [
    "ClusterState",
    "Keys",
    "MemoryStore",
    "MoveLog",
    "Publisher",
    "ReadModel",
    "ShardKey",
    "Stream",
    "StreamCatalog",
    "Violations",
    "rebuild",
    "role_rules",
]
