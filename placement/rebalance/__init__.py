"""The moves that even out loads and leaders of an arrangement: a pure search.

Knows neither the reconciler's state nor repair. Imports `strategies` and what it stands on.
"""

from placement.rebalance.arrangement import balance_of
from placement.rebalance.evenness import even_out_all, even_out_stream
from placement.rebalance.planner import RebalanceMove, RebalancePlan, Skew, plan_rebalance

__all__ = [
    "RebalanceMove",
    "RebalancePlan",
    "Skew",
    "balance_of",
    "even_out_all",
    "even_out_stream",
    "plan_rebalance",
]
