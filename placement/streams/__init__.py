"""The answer to a stream event: a new stream, one that brings replicas, another spec.

Imports `state`, `diagnosis`, `rebalance` (a stream just placed is gone over by its search) and what
they stand on; knows nothing of repair.
"""

from placement.streams.alteration import (
    Alteration,
    alteration,
    counted,
    is_mended,
    is_pointless,
    judged,
    laid_out,
)
from placement.streams.decision import (
    SHARDS_MAX,
    Answer,
    asked,
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
    "alteration",
    "asked",
    "counted",
    "decide",
    "is_mended",
    "is_pointless",
    "judged",
    "laid_out",
    "out_of_range",
    "place",
    "spec_of",
    "unknown_repair",
]
