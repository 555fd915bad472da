"""Proves that a place has less room for a resource than the shards need that must stand there.

A node that holds more than fits is unfixable where such a proof exists: for a domain it stands in,
for the nodes that a policy admits, for one shard that is larger than every node, or for the fleet.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.model import Location
from placement.policy import Policy
from placement.rules import (
    UNSTATED,
    FeasibilityQuery,
    Mask,
    NodeLoads,
    Overload,
    Strength,
    why_not,
)
from placement.strategies import STRATEGIES
from placement.topology import Topology

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Demand:
    """The shards of one stream, and what they need.

    - `copies`: of each shard.
    - `rows`: the nodes of each shard by slot, the leader first, -1 in an empty slot.
    - `amounts`: the load of each shard, a row for each resource.
    """

    policy: Policy
    copies: int
    rows: Integers
    amounts: Integers


@dataclass(frozen=True, slots=True)
class Shortage:
    """How much more of a resource is needed; `place`: where, in words that follow the amount."""

    amount: int
    place: str


@dataclass(frozen=True, slots=True)
class _Place:
    """Nodes that shards may have to stand on; `domain`: the one that they are, if they are one."""

    mask: Mask
    words: str
    domain: Location | None = None


class ShortageProver:
    """Answers for the nodes that hold more than fits, as the fleet is now."""

    def __init__(self, topology: Topology, loads: NodeLoads, demands: Sequence[Demand]) -> None:
        self._topology, self._loads, self._demands = topology, loads, demands
        self._judging = topology.for_diagnosis()
        self._known: dict[object, int] = {}

    def find(self, over: Overload) -> Shortage | None:
        """Find the narrowest place that has too little room, whatever is moved; None if unknown."""
        row = self._loads.resources.index(over.resource)
        for place in self._places(over.node):
            missing = self._missing(row, place)
            if missing:
                return Shortage(missing, place.words)
        return self._too_large(over.node, row) or self._missing_everywhere(row)

    def _places(self, node: int) -> Iterator[_Place]:
        """List the places of a node: its domains, the narrowest first, then what policies admit."""
        topology, here = self._topology, self._topology.locations[node]
        for depth in range(here.depth, 0, -1):
            domain = here.prefix(depth)
            yield _Place(topology.inside(domain), f"in {domain}", domain)
        everyone = [*topology.index.values()]
        for nodes in dict.fromkeys(each.policy.nodes for each in self._demands):
            mask = nodes.mask(topology)
            if mask[node] and not mask[everyone].all():
                yield _Place(mask, f"on the {int(mask.sum())} nodes that the policy admits")

    def _missing(self, row: int, place: _Place) -> int:
        """Compute by how much the shards that must stand in a place exceed its room."""
        limit = self._loads.limit[row, place.mask & self._topology.eligible]
        if (limit == UNSTATED).any():
            return 0
        led = self._loads.resources[row].led
        needed = 0
        for each in self._demands:
            copies = self._least_copies(each, place)
            if led:
                copies = int(copies == each.copies)
            needed += copies * int(each.amounts[row].sum())
        return max(needed - int(limit.sum()), 0)

    def _least_copies(self, demand: Demand, place: _Place) -> int:
        """Count the copies of each shard of a stream that must stand in a place, or fewer."""
        key = repr(demand.policy), demand.copies, place.mask.tobytes()
        if key not in self._known:
            least = self._count_least(demand.policy, demand.copies, place)
            self._known[key] = min(least, int((place.mask & self._topology.eligible).sum()))
        return self._known[key]

    def _count_least(self, policy: Policy, copies: int, place: _Place) -> int:
        topology = self._topology
        outside = policy.nodes.mask(topology) & topology.eligible & ~place.mask
        if not outside.any():
            return copies
        rules = STRATEGIES[policy.strategy].rules(policy, topology)
        required = [rule for rule in rules if rule.strength is Strength.REQUIRED]
        if place.domain is not None:
            named = max((rule.least_within(place.domain) for rule in required), default=0)
            if named:
                return min(named, copies)
        kept = tuple(rule for rule in required if rule.repairable and not rule.spans_stream)
        question = FeasibilityQuery(self._judging, copies, policy.nodes, kept, outside)
        return int(why_not(question) is not None)

    def _too_large(self, node: int, row: int) -> Shortage | None:
        """Find a shard on the node that fits into no node at all."""
        limit = self._loads.limit[row, self._topology.eligible]
        if (limit == UNSTATED).any() or not len(limit):
            return None
        led = self._loads.resources[row].led
        largest = 0
        for each in self._demands:
            held = each.rows[:, :1] if led else each.rows
            there = (held == node).any(axis=1)
            largest = max(largest, int(each.amounts[row, there].max(initial=0)))
        missing = largest - int(limit.max())
        return Shortage(missing, "on one node, for its largest shard") if missing > 0 else None

    def _missing_everywhere(self, row: int) -> Shortage | None:
        """Compute how much room all nodes together lack."""
        loads, usable = self._loads, self._topology.eligible
        limit, borne = loads.limit[row], loads.borne[row]
        if (limit[usable] == UNSTATED).any():
            return None
        excess = int(np.maximum(borne - limit, 0)[limit != UNSTATED].sum())
        missing = excess - int(np.maximum(limit - borne, 0)[usable].sum())
        return Shortage(missing, "on other nodes") if missing > 0 else None
