"""The fleet as a tree: domains at every level, who may receive replicas.

Columns of nodes with the domains they stand in, filters of nodes, and the choice of the replica to
read from. Imports `model` only.
"""

from placement.topology.equal_nodes import classify_nodes
from placement.topology.node_filter import NodeFilter
from placement.topology.replica_selector import (
    Choice,
    Client,
    Freshness,
    is_own_node,
    select_exact_rack,
    select_nearest,
)
from placement.topology.topology import LEAF, NO_DOMAIN, Scope, Topology

__all__ = [
    "LEAF",
    "NO_DOMAIN",
    "Choice",
    "Client",
    "Freshness",
    "NodeFilter",
    "Scope",
    "Topology",
    "classify_nodes",
    "is_own_node",
    "select_exact_rack",
    "select_nearest",
]
