"""Filters of nodes that a policy admits: strict locality, exclusions, a list of ids, tags."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.model import Location
from placement.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """Filter of candidate nodes; never broken, not even in an emergency."""

    within: tuple[Location, ...] = ()
    avoid: tuple[Location, ...] = ()
    nodes: tuple[str, ...] = ()
    with_tags: tuple[tuple[str, str], ...] = ()

    def mask(self, topology: Topology) -> NDArray[np.bool_]:
        """Mark every node that passes, whatever its liveness; the array is not to be changed."""
        return topology.derive(
            self,
            lambda: np.fromiter((self.passes(topology, n) for n in range(topology.size)), bool),
        )

    @property
    def everything(self) -> bool:
        """True if every node passes the filter."""
        return not (self.within or self.avoid or self.nodes or self.with_tags)

    def passes(self, topology: Topology, node: int) -> bool:
        """Return whether one node passes."""
        location = topology.locations[node]
        if self.within and not any(location.is_within(domain) for domain in self.within):
            return False
        if any(location.is_within(domain) for domain in self.avoid):
            return False
        if self.nodes and topology.ids[node] not in self.nodes:
            return False
        tags = dict(topology.attributes[node].tags)
        return all(tags.get(key) == value for key, value in self.with_tags)
