"""Elects leaders, even over the domains of every level, then over nodes, by weight.

The choice of one member of each shard is a semi-matching; it is best when no chain of shards can
hand leadership from a node that leads more to one that leads less (Harvey, Ladner, Lovász and
Tamir, 2006). Chains are looked for after a greedy start that leaves few.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from placement.allocator.view import View
from placement.topology import Scope, Topology

Integers = NDArray[np.int64]

# Members looked at while chains are sought; beyond, the greedy start is what it is.
_STEPS = 200_000


def elect_leaders(members: Sequence[Sequence[int]], view: View, levels: bool = True) -> list[int]:
    """Elect the leader of each shard out of its possible ones.

    These are in order of preference among equals. `view.leaders` has the leaders of other streams
    and gets the new ones. Without `levels` they are even over nodes alone.
    """
    counts = _Leaders(view, levels)
    chosen: list[int] = []
    for able in members:
        leader = min(able, key=lambda node: (counts.pressure_with_one_more(node), able.index(node)))
        counts.add(leader, 1)
        chosen.append(leader)
    _improve(chosen, members, counts)
    for leader in chosen:
        view.leaders[leader] += 1
    return chosen


def put_in_front(leader: int, nodes: Sequence[int]) -> list[int]:
    """List the nodes with the leader first, the others in their order."""
    return [leader, *(node for node in nodes if node != leader)]


class _Leaders:
    """Leaders and weights per domain of every tier and per node."""

    def __init__(self, view: View, levels: bool) -> None:
        topology = view.topology
        scopes: list[Scope | None] = [*(topology.tiers() if levels else ()), None]
        self._levels: list[tuple[Integers, Integers, Integers]] = []
        for scope in scopes:
            domains, weights = topology.derive(
                ("leader weights", scope),
                partial(_sum_weights, topology, scope),
                by_condition=True,
            )
            counts = (
                view.leaders.copy()
                if scope is None
                else np.bincount(domains, view.leaders, len(weights)).astype(np.int64)
            )
            self._levels.append((domains, counts, weights))

    def add(self, node: int, more: int) -> None:
        """Count `more` leaders on the node."""
        for domains, counts, _ in self._levels:
            counts[domains[node]] += more

    def pressure_with_one_more(self, node: int) -> tuple[Fraction, ...]:
        """Compute leaders per weight with half a leader more, top level first, the node last."""
        return tuple(
            Fraction(2 * int(counts[domains[node]]) + 1, int(weights[domains[node]]))
            for domains, counts, weights in self._levels
        )

    def can_improve(self, source: int, target: int) -> bool:
        """Return whether leaders are more even after one lead passes from source to target.

        The first level where the nodes differ decides, by the sum of squares per weight.
        """
        for domains, counts, weights in self._levels:
            one, other = domains[source], domains[target]
            if one != other:
                now = Fraction(2 * int(counts[one]) - 1, int(weights[one]))
                then = Fraction(2 * int(counts[other]) + 1, int(weights[other]))
                if now != then:
                    return then < now
        return False


def _sum_weights(topology: Topology, scope: Scope | None) -> tuple[Integers, Integers]:
    """Find the domain of each node, or the node, and the weight of those that may lead in each."""
    domains = (
        np.arange(topology.size) if scope is None else topology.domain_of(scope).astype(np.int64)
    )
    able = topology.eligible & topology.can_lead
    parts = np.where(able, np.rint(topology.weight * 1e6), 0)
    whole = np.bincount(domains, parts, int(domains.max(initial=0)) + 1).astype(np.int64)
    return domains, np.maximum(whole, 1)


def _improve(chosen: list[int], members: Sequence[Sequence[int]], counts: _Leaders) -> None:
    """Pass leadership along chains of shards until no chain makes it more even."""
    led: dict[int, list[int]] = {}
    for shard, leader in enumerate(chosen):
        led.setdefault(leader, []).append(shard)
    steps = _STEPS
    sources = list(dict.fromkeys(chosen))
    while sources and steps > 0:
        source = sources.pop()
        chain, looked = _find_chain(source, led, members, counts)
        steps -= looked
        if not chain:
            continue
        for shard, target in chain:
            led[chosen[shard]].remove(shard)
            led.setdefault(target, []).append(shard)
            chosen[shard] = target
        counts.add(source, -1)
        counts.add(chain[-1][1], 1)
        # What changed may open a way for any other.
        sources = list(dict.fromkeys(chosen))


def _find_chain(
    source: int, led: dict[int, list[int]], members: Sequence[Sequence[int]], counts: _Leaders
) -> tuple[list[tuple[int, int]], int]:
    """Find the shards and their new leaders from `source` to the nearest node that leads too few.

    Returns the number of members looked at besides.
    """
    came: dict[int, tuple[int, int]] = {}
    queue, looked = [source], 0
    for node in queue:
        for shard in led.get(node, ()):
            for member in members[shard]:
                looked += 1
                if member == source or member in came:
                    continue
                came[member] = (shard, node)
                if counts.can_improve(source, member):
                    return _trace_chain(member, source, came), looked
                queue.append(member)
    return [], looked


def _trace_chain(
    target: int, source: int, came: dict[int, tuple[int, int]]
) -> list[tuple[int, int]]:
    """List the chain's steps from end to start; each frees the node that the next step takes."""
    path: list[tuple[int, int]] = []
    node = target
    while node != source:
        shard, before = came[node]
        path.append((shard, node))
        node = before
    return path[::-1]
