"""The moves that even out loads and leaders of an arrangement: a pure search.

Knows neither the reconciler's state nor repair. Imports `strategies` and what it stands on.
"""

from placement.rebalance.arrangement import Replica, balance_of
from placement.rebalance.evenness import even_out_all, even_out_stream
from placement.rebalance.planner import RebalanceMove, RebalancePlan, Skew, plan_rebalance
from placement.rebalance.resource_arrangement import (
    ItemColumns,
    MoveGate,
    NodeColumns,
    ResourceArrangement,
)
from placement.rebalance.resource_bands import Bands, bands_of, movable, needs_balance
from placement.rebalance.resource_order import ResourceMove
from placement.rebalance.resource_planner import (
    ResourceRebalance,
    plan_view_resources,
)
from placement.rebalance.resource_search import ResourcePlan, plan_relief, plan_resources

__all__ = [
    "Bands",
    "ItemColumns",
    "MoveGate",
    "NodeColumns",
    "RebalanceMove",
    "RebalancePlan",
    "Replica",
    "ResourceArrangement",
    "ResourceMove",
    "ResourcePlan",
    "ResourceRebalance",
    "Skew",
    "balance_of",
    "bands_of",
    "even_out_all",
    "even_out_stream",
    "movable",
    "needs_balance",
    "plan_rebalance",
    "plan_relief",
    "plan_resources",
    "plan_view_resources",
]
