"""Holds the node of every slot of every shard as columns, and answers questions about many shards.

Slots and their layout, rows of shards, and the risk that an arrangement bears. Imports `model` and
`topology`.
"""

from placement.assignments.load_columns import LoadColumns
from placement.assignments.risk import (
    Risk,
    distinct_copysets,
    loss_probability,
    parse_failures,
    risk,
    scatter_width,
)
from placement.assignments.shard_matrix import (
    NodeIdLists,
    ShardLists,
    ShardRows,
    exceeds_factor,
    find_distinct,
    first_occurrences,
    group_by_size,
    max_per_domain,
    may_be_uneven,
    may_be_uneven_inside,
    stack_lists,
)
from placement.assignments.slot_layout import SlotLayout, resize_slots
from placement.assignments.table import EMPTY, AssignmentTable

__all__ = [
    "EMPTY",
    "AssignmentTable",
    "LoadColumns",
    "NodeIdLists",
    "Risk",
    "ShardLists",
    "ShardRows",
    "SlotLayout",
    "distinct_copysets",
    "exceeds_factor",
    "find_distinct",
    "first_occurrences",
    "group_by_size",
    "loss_probability",
    "max_per_domain",
    "may_be_uneven",
    "may_be_uneven_inside",
    "parse_failures",
    "resize_slots",
    "risk",
    "scatter_width",
    "stack_lists",
]
