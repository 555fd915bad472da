"""The fleet as a tree: domains at every level, who may receive replicas.

Columns of nodes with the domains they stand in, and filters of nodes. Imports `hashing`, `model`.
"""

from placement.topology.equal_nodes import classify_nodes
from placement.topology.node_filter import NodeFilter
from placement.topology.topology import LEAF, NO_DOMAIN, Scope, Topology

__all__ = [
    "LEAF",
    "NO_DOMAIN",
    "NodeFilter",
    "Scope",
    "Topology",
    "classify_nodes",
]
