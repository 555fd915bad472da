"""Building blocks of strategies: the view of loads, the ranking of candidates, the search.

The members of a strategy, the choice of nodes one by one, by classes of equal nodes or in bulk, and
the election of leaders. Imports `policy`, `rules` and what they stand on; knows no strategy.
"""

from placement.allocator import apportion, kernels
from placement.allocator.apportion import SCALE
from placement.allocator.choose import (
    Trace,
    candidates,
    choose,
    distance,
    nodes_too_few,
    too_few,
    unmet,
)
from placement.allocator.domain_tree import DomainTree, Integers, domain_tree
from placement.allocator.leader_election import elect_leaders
from placement.allocator.lookahead import arrangements, choose_ahead, node_kinds, whole_stream
from placement.allocator.node_classes import choose_by_class, chooses
from placement.allocator.node_sets import Column, best_set
from placement.allocator.set_strategy import SetStrategy, placing_costs
from placement.allocator.slot_filling import (
    admitted_mask,
    fill_slots,
    leader_first,
    pick_by_preferences,
    spread_leaders,
    without_taken,
)
from placement.allocator.strategy import ByRules, Strategy
from placement.allocator.stream_draft import (
    Key,
    Nodes,
    StreamDraft,
    balance_leaders,
    is_colocated,
    least,
    least_leading,
    place_by,
    shortage,
    start_of,
)
from placement.allocator.token_ring import (
    VNODES,
    VNODES_MAX,
    Fits,
    OnRing,
    Positions,
    TokenRing,
    among,
    first_fitting,
    in_bulk,
    ring_of,
    unfit_tokens,
)
from placement.allocator.view import Placement, ReplicaRequest, View

__all__ = [
    "SCALE",
    "VNODES",
    "VNODES_MAX",
    "ByRules",
    "Column",
    "DomainTree",
    "Fits",
    "Integers",
    "Key",
    "Nodes",
    "OnRing",
    "Placement",
    "Positions",
    "ReplicaRequest",
    "SetStrategy",
    "Strategy",
    "StreamDraft",
    "TokenRing",
    "Trace",
    "View",
    "admitted_mask",
    "among",
    "apportion",
    "arrangements",
    "balance_leaders",
    "best_set",
    "candidates",
    "choose",
    "choose_ahead",
    "choose_by_class",
    "chooses",
    "distance",
    "domain_tree",
    "elect_leaders",
    "fill_slots",
    "first_fitting",
    "in_bulk",
    "is_colocated",
    "kernels",
    "leader_first",
    "least",
    "least_leading",
    "node_kinds",
    "nodes_too_few",
    "pick_by_preferences",
    "place_by",
    "placing_costs",
    "ring_of",
    "shortage",
    "spread_leaders",
    "start_of",
    "too_few",
    "unfit_tokens",
    "unmet",
    "whole_stream",
    "without_taken",
]
