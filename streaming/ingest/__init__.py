"""Reads the input on Spark's Python workers and decides there which nodes are alive.

`source` packs each partition's stretch of a micro-batch, `node_lifecycle` judges silence in a
stateful operator; `load_reports` and `load_filter` do the same for loads, beside them. Workers load
this sub-package, so it imports `codec` only.
"""

from streaming.ingest.load_filter import LOAD_STATE_SCHEMA, LoadFilter, initial_node_loads
from streaming.ingest.load_reports import LoadPacking, pack_load_stream
from streaming.ingest.node_lifecycle import (
    OUTPUT_SCHEMA,
    STATE_SCHEMA,
    NodeLifecycle,
    ShardOutput,
    initial_liveness_tables,
    pass_records,
)
from streaming.ingest.source import UNKNOWN_FIELD, make_packing_plan, pack_stream, subscribe

__all__ = [
    "LOAD_STATE_SCHEMA",
    "OUTPUT_SCHEMA",
    "STATE_SCHEMA",
    "UNKNOWN_FIELD",
    "LoadFilter",
    "LoadPacking",
    "NodeLifecycle",
    "ShardOutput",
    "initial_liveness_tables",
    "initial_node_loads",
    "make_packing_plan",
    "pack_load_stream",
    "pack_stream",
    "pass_records",
    "subscribe",
]
