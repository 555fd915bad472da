"""Answers stream events: a new stream, one that brings replicas, another spec.

Imports `state`, `diagnosis`, `rebalance` (which evens out a stream that was just placed) and the
parts below them; does not know `repair`.
"""

from placement.streams.alteration import (
    Alteration,
    awaited_reasons,
    count_whole_shards,
    is_obsolete,
    is_resolved,
    plan_alteration,
    reassess,
    slots_for_spec,
)
from placement.streams.decision import (
    SHARDS_MAX,
    Answer,
    check_counts,
    check_repair_mode,
    compile_request,
    decide,
    place,
    spec_of,
)

__all__ = [
    "SHARDS_MAX",
    "Alteration",
    "Answer",
    "awaited_reasons",
    "check_counts",
    "check_repair_mode",
    "compile_request",
    "count_whole_shards",
    "decide",
    "is_obsolete",
    "is_resolved",
    "place",
    "plan_alteration",
    "reassess",
    "slots_for_spec",
    "spec_of",
]
