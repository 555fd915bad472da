"""Holds the node of every slot of every shard as columns, and answers questions about many shards.

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
    exceeds_factor,
    first_occurrences,
    matrix,
    max_per_domain,
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
    "exceeds_factor",
    "failures",
    "first_occurrences",
    "loss_probability",
    "matrix",
    "max_per_domain",
    "resized",
    "risk",
    "scatter_width",
    "uneven",
    "uneven_inside",
]
