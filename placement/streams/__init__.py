"""The answer to a stream event: a new stream, one that brings replicas, another spec.

Imports `state`, `diagnosis`, `rebalance` (a stream just placed is gone over by its search) and what
they stand on; knows nothing of repair.
"""

from placement.streams.alteration import (
    Alteration,
    count_whole_shards,
    is_obsolete,
    is_resolved,
    judged,
    laid_out,
    plan_alteration,
)
from placement.streams.decision import (
    SHARDS_MAX,
    Answer,
    compile_request,
    decide,
    out_of_range,
    place,
    spec_of,
    unknown_repair,
)

__all__ = [
    "SHARDS_MAX",
    "Alteration",
    "Answer",
    "compile_request",
    "count_whole_shards",
    "decide",
    "is_obsolete",
    "is_resolved",
    "judged",
    "laid_out",
    "out_of_range",
    "place",
    "plan_alteration",
    "spec_of",
    "unknown_repair",
]
