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
    count_with_room,
    distance,
    explain_no_node,
    explain_shortage,
    find_unmet,
)
from placement.allocator.domain_tree import DomainTree, Integers, domain_tree
from placement.allocator.leader_election import elect_leaders, put_in_front
from placement.allocator.lookahead import arrange_stream, arrangements, choose_ahead, node_kinds
from placement.allocator.node_classes import can_choose_by_class, choose_by_class
from placement.allocator.node_sets import Column, find_best_set
from placement.allocator.set_strategy import SetStrategy, placing_costs
from placement.allocator.slot_filling import (
    admitted_mask,
    exclude_taken,
    fill_slots,
    pick_by_preferences,
    put_leader_first,
    spread_leaders,
)
from placement.allocator.strategy import ByRules, Strategy
from placement.allocator.stream_draft import (
    Key,
    Nodes,
    StreamDraft,
    balance_leaders,
    find_shortage,
    is_colocated,
    keep_best,
    make_leader_choice,
    parse_start,
    place_by,
)
from placement.allocator.token_ring import (
    VNODES,
    VNODES_MAX,
    Fits,
    OnRing,
    Positions,
    TokenRing,
    find_first_fitting,
    find_token_fault,
    is_among,
    ring_of,
    walk_in_bulk,
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
    "apportion",
    "arrange_stream",
    "arrangements",
    "balance_leaders",
    "can_choose_by_class",
    "candidates",
    "choose",
    "choose_ahead",
    "choose_by_class",
    "count_with_room",
    "distance",
    "domain_tree",
    "elect_leaders",
    "exclude_taken",
    "explain_no_node",
    "explain_shortage",
    "fill_slots",
    "find_best_set",
    "find_first_fitting",
    "find_shortage",
    "find_token_fault",
    "find_unmet",
    "is_among",
    "is_colocated",
    "keep_best",
    "kernels",
    "make_leader_choice",
    "node_kinds",
    "parse_start",
    "pick_by_preferences",
    "place_by",
    "placing_costs",
    "put_in_front",
    "put_leader_first",
    "ring_of",
    "spread_leaders",
    "walk_in_bulk",
]
