"""Which node holds which slot of which shard, as columns, and questions to many shards at once.

Slots and their layout, rows of shards, and the risk that an arrangement bears. Imports `model` and
`topology`.
"""

from placement.assignments.risk import (
    Risk,
    distinct_copysets,
    failures,
    loss_probability,
    risk,
    scatter_width,
)
from placement.assignments.shard_matrix import (
    Layout,
    ShardLists,
    ShardRows,
    by_size,
    distinct,
    first_mentions,
    fullest,
    matrix,
    out_of_place,
    uneven,
    uneven_inside,
)
from placement.assignments.slot_layout import SlotLayout, resized
from placement.assignments.table import EMPTY, AssignmentTable

__all__ = [
    "EMPTY",
    "AssignmentTable",
    "Layout",
    "Risk",
    "ShardLists",
    "ShardRows",
    "SlotLayout",
    "by_size",
    "distinct",
    "distinct_copysets",
    "failures",
    "first_mentions",
    "fullest",
    "loss_probability",
    "matrix",
    "out_of_place",
    "resized",
    "risk",
    "scatter_width",
    "uneven",
    "uneven_inside",
]
