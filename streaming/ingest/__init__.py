"""Reads the input on Spark's Python workers and decides there which nodes are alive.

`source` packs each partition's stretch of a micro-batch, `node_lifecycle` judges silence in a
stateful operator. Workers load this sub-package, so it imports `codec` only.
"""

from streaming.ingest.node_lifecycle import (
    OUTPUT_SCHEMA,
    STATE_SCHEMA,
    NodeLifecycle,
    ShardOutput,
    initial_liveness_tables,
)
from streaming.ingest.source import UNKNOWN_FIELD, make_packing_plan, pack_stream, subscribe

__all__ = [
    "OUTPUT_SCHEMA",
    "STATE_SCHEMA",
    "UNKNOWN_FIELD",
    "NodeLifecycle",
    "ShardOutput",
    "initial_liveness_tables",
    "make_packing_plan",
    "pack_stream",
    "subscribe",
]
