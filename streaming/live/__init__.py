"""Reads the state that a reconciler has published, and answers from it.

`placer status`, `describe`, the listings, `explain --live` and `suggest`. Imports `offline`,
`brokers`, `codec`, `settings`, `errors`; it never writes.
"""

from streaming.live.cell_status import (
    PLANNED_REPLICAS_MAX,
    CellStatus,
    RebalancePreview,
    preview_rebalance,
    read_status,
)
from streaming.live.describe import describe_node, describe_shard, describe_stream
from streaming.live.explain import explain_live, suggest_placement
from streaming.live.listings import LISTINGS, Listing, ListingRows
from streaming.live.published_state import PublishedState

__all__ = [
    "LISTINGS",
    "PLANNED_REPLICAS_MAX",
    "CellStatus",
    "Listing",
    "ListingRows",
    "PublishedState",
    "RebalancePreview",
    "describe_node",
    "describe_shard",
    "describe_stream",
    "explain_live",
    "preview_rebalance",
    "read_status",
    "suggest_placement",
]
