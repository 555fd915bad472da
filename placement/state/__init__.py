"""Holds the state of record, makes a record of each change, and restores it.

`ClusterState` holds the facts with `StreamCatalog`, `MoveLog` and `MemoryStore`, `Publisher` makes
records of their changes, `digest` proves a rebuild. Imports `strategies`, `moves` and the parts
below them.
"""

from placement.state import digest_v1
from placement.state.cluster_state import ClusterState, ReadModel
from placement.state.digest import DIGEST_VERSION
from placement.state.load_log import LoadLog
from placement.state.memory_store import MemoryStore
from placement.state.move_log import MoveLog
from placement.state.publisher import Publisher, Violations
from placement.state.restore import rebuild
from placement.state.stream_catalog import ShardKey, Stream, StreamCatalog, role_rules

__all__ = [
    "DIGEST_VERSION",
    "ClusterState",
    "LoadLog",
    "MemoryStore",
    "MoveLog",
    "Publisher",
    "ReadModel",
    "ShardKey",
    "Stream",
    "StreamCatalog",
    "Violations",
    "digest_v1",
    "rebuild",
    "role_rules",
]
