"""Reads the state that a reconciler has published, and answers from it.

`placer status`, `describe`, the listings, `explain --live` and `suggest`. Imports `offline`,
`brokers`, `codec`, `settings`, `errors`; it never writes.
"""

from streaming.live.cell_status import (
    PLANNED_REPLICAS_MAX,
    CellStatus,
    CellSummary,
    RebalancePreview,
    condition_text,
    preview_rebalance,
    read_status,
    summarize_cell,
)
from streaming.live.describe import describe_node, describe_shard, describe_stream, next_steps
from streaming.live.explain import NotInLiveState, explain_live, suggest_placement
from streaming.live.listings import LISTINGS, Listing, ListingRows, policy_text
from streaming.live.order_progress import blocked_lines, drain_text
from streaming.live.published_state import ALERTS_KEPT, PublishedState, StateRecords

__all__ = [
    "ALERTS_KEPT",
    "LISTINGS",
    "PLANNED_REPLICAS_MAX",
    "CellStatus",
    "CellSummary",
    "Listing",
    "ListingRows",
    "NotInLiveState",
    "PublishedState",
    "RebalancePreview",
    "StateRecords",
    "blocked_lines",
    "condition_text",
    "describe_node",
    "describe_shard",
    "describe_stream",
    "drain_text",
    "explain_live",
    "next_steps",
    "policy_text",
    "preview_rebalance",
    "read_status",
    "suggest_placement",
    "summarize_cell",
]
