"""Reads the state that a reconciler has published, and answers from it.

`placer status`, `describe`, the listings, `explain --live` and `suggest`. Imports `offline`,
`brokers`, `codec`, `settings`, `errors`; it never writes.
"""

from streaming.live.cell_status import PLANNED_REPLICAS_MAX, Balance, Status, balance, status
from streaming.live.describe import describe_node, describe_shard, describe_stream
from streaming.live.explain import explain_live, suggest_placement
from streaming.live.listings import LISTINGS, Listing, Rows
from streaming.live.published_state import Live

__all__ = [
    "LISTINGS",
    "PLANNED_REPLICAS_MAX",
    "Balance",
    "Listing",
    "Live",
    "Rows",
    "Status",
    "balance",
    "describe_node",
    "describe_shard",
    "describe_stream",
    "explain_live",
    "status",
    "suggest_placement",
]
