"""Traffic: which copies leave their top-level domain, where bytes cost money (need N26).

A copy is taken from the nearest live replica, as the running reconciler suggests to the executor.
"""

from collections.abc import Sequence

from placement.assignments import EMPTY
from placement.topology import Scope, Topology

TOP = Scope(depth=1)


def top_level(topology: Topology) -> str:
    """What the top level is called."""
    return topology.levels[0] if topology.levels else topology.tiers()[0].level


def crosses(topology: Topology, holders: Sequence[int], target: int) -> bool:
    """Whether no live holder of a complete copy (by index, EMPTY is none) stands in the target's
    domain of the top level. Where none lives there is nothing to copy."""
    domain = topology.domain_of(TOP)
    live = [node for node in holders if node != EMPTY and not topology.is_dead(node)]
    return bool(live) and all(domain[node] != domain[target] for node in live)
