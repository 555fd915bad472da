"""The cheapest lawful shard of the `cost` strategy, found exactly.

A domain's price of one more replica is (2n + 1) / w, n being what it holds and w its weight as a
multiple of the mean domain's: what the replica adds to the sum of n squared over w, which is least
where every domain holds its share. Prices are whole millionths, so that sums do not depend on
their order. Racks lie in zones and zones in regions, so that the choice is a knapsack over a tree.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from placement.allocator import View
from placement.hashing import digest64, scores
from placement.rules import Counts, Mask, bounds, domain_loads, domain_weights
from placement.topology import Scope, Topology

MILLION = 1_000_000
# A quorum of three survives the loss of one of three zones; more zones are no better.
ZONES_WANTED = 3
ZONES_LEAST = 2
# Of a domain that weighs next to nothing; far from the limits of 64 bits with loads of 10 million.
_PRICE_MAX = 1 << 38
_NO_BOUND = 1 << 40

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class DomainLevels:
    """The levels that the strategy calls region, zone and rack."""

    region: Scope
    zone: Scope
    rack: Scope

    def items(self) -> tuple[tuple[str, Scope], ...]:
        """List the levels by the name of their cost term."""
        return ("region", self.region), ("zone", self.zone), ("rack", self.rack)


@dataclass(frozen=True, slots=True)
class Shape:
    """Copies of a shard, and the weights of the cost terms in millionths."""

    voters: int
    cold: int
    weights: Mapping[str, int]

    @property
    def copies(self) -> int:
        """Count the slots of the shard."""
        return self.voters + self.cold


# Voters, zones they use (no more than are wanted), whether one of them can lead, cold copies.
_State = tuple[int, int, bool, int]
# Price, voters and cold copies that lead to a state.
_Found = tuple[int, tuple[int, ...], tuple[int, ...]]
_Table = dict[_State, _Found]
_NOTHING: _Table = {(0, 0, False, 0): (0, (), ())}


class Prices:
    """Prices and room of every domain, kept up to date while a stream is placed.

    `usable`: nodes whose load and weight count. `fraction`: the bound on balance; None for none.
    """

    def __init__(
        self,
        levels: DomainLevels,
        shape: Shape,
        usable: Mask,
        view: View,
        fraction: float | None,
    ) -> None:
        topology = view.topology
        self._topology, self._levels, self._shape = topology, levels, shape
        self._usable, self._fraction = usable, fraction
        self._domains: dict[str, list[int]] = {}
        self._loads: dict[str, list[int]] = {}
        self._factors: dict[str, list[int]] = {}
        self._weights: dict[str, Counts] = {}
        self._room: dict[str, list[int]] = {}
        for term, scope in levels.items():
            weights = domain_weights(topology, scope, usable)
            self._weights[term] = weights
            self._domains[term] = topology.domain_of(scope).tolist()
            self._loads[term] = domain_loads(topology, scope, usable, view.load).tolist()
            self._factors[term] = _factors(weights, shape.weights[term]).tolist()
        node_weights = np.where(usable, np.rint(topology.weight * 1e6), 0).astype(np.int64)
        self._node_factors = _factors(node_weights, shape.weights["node"])
        self._node_loads = view.load.copy()
        self.total = sum(self._loads["region"])
        self.limit(self.total)

    def limit(self, total: int) -> None:
        """Limit each domain to its bound of `total` replicas."""
        for term, weights in self._weights.items():
            loads = np.asarray(self._loads[term], np.int64)
            most = np.full(len(weights), _NO_BOUND, np.int64)
            if self._fraction is not None:
                most, _ = bounds(weights, total, self._fraction)
            self._room[term] = (most - loads).tolist()

    def add(self, nodes: Iterable[int], copies: int = 1) -> None:
        """Count replicas."""
        for node in nodes:
            for term, domains in self._domains.items():
                self._loads[term][domains[node]] += copies
                self._room[term][domains[node]] -= copies
            self._node_loads[node] += copies
            self.total += copies

    def has_room(self, placed: Sequence[int] = (), copies: int = 1) -> Mask:
        """Mask the nodes all of whose domains may take `copies` more, beside those of `placed`."""
        mask, nodes = self._usable.copy(), np.asarray(placed, np.int64)
        for term, scope in self._levels.items():
            domains, room = self._topology.domain_of(scope), np.asarray(self._room[term], np.int64)
            taken = np.bincount(domains[nodes], minlength=len(room)) * copies
            mask &= (room - taken)[domains] >= copies
        return mask

    def node_prices(self) -> Counts:
        """Price one replica on each node."""
        prices = (2 * self._node_loads + 1) * self._node_factors
        for term, scope in self._levels.items():
            loads = np.asarray(self._loads[term], np.int64)
            by_domain = (2 * loads + 1) * np.asarray(self._factors[term], np.int64)
            prices = prices + by_domain[self._topology.domain_of(scope)]
        return prices

    def zones_missing(self, voters: Sequence[int]) -> int:
        """Count the zones that the voters lack to the wanted number."""
        zones = len({self._domains["zone"][node] for node in voters})
        return max(min(ZONES_WANTED, self._shape.voters) - zones, 0)

    def terms(self, voters: Sequence[int], cold: Sequence[int]) -> dict[str, int]:
        """Compute the cost of an arrangement by term."""
        found = dict.fromkeys(self._shape.weights, 0)
        for term, domains in self._domains.items():
            counts = Counter(domains[node] for node in (*voters, *cold))
            for domain, count in counts.items():
                found[term] += sum(self._price(term, domain, more) for more in range(count))
        for node in (*voters, *cold):
            found["node"] += int((2 * self._node_loads[node] + 1) * self._node_factors[node])
        regions = {self._domains["region"][node] for node in voters}
        found["regions"] = self._shape.weights["regions"] * (len(regions) - 1)
        found["zones"] = self._shape.weights["zones"] * self.zones_missing(voters)
        return found

    def find_cheapest(
        self, mask: Mask, seed: int, copies: int = 1
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Find the cheapest voters and cold copies on nodes of `mask`.

        None if no arrangement keeps the rules.
        """
        shape, table = self._shape, _NOTHING
        for zones in self._order("region", self._price_zones(mask, seed, copies), seed):
            table = _join(table, self._price_region(zones, seed, copies), shape)
        best: tuple[bool, int, tuple[int, ...], tuple[int, ...]] | None = None
        for (voters, used, can_lead, cold), (base, *nodes) in table.items():
            if (voters, cold) != (shape.voters, shape.cold):
                continue
            if used < min(ZONES_LEAST, shape.voters):
                continue
            lacks = min(ZONES_WANTED, shape.voters) - used
            price = base + shape.weights["zones"] * max(lacks, 0) - shape.weights["regions"]
            if best is None or (not can_lead, price) < best[:2]:
                best = not can_lead, price, nodes[0], nodes[1]
        return None if best is None else best[2:]

    def _price(self, term: str, domain: int, more: int) -> int:
        return (2 * (self._loads[term][domain] + more) + 1) * self._factors[term][domain]

    def _order(self, term: str, found: Mapping[int, _T], seed: int) -> Iterator[_T]:
        """Order domains by a hash of their names.

        Ties so fall differently for every shard, and alike whatever the order of nodes.
        """
        names = {domain: str(self._topology.domains[domain]) for domain in found}
        for domain in sorted(found, key=lambda d: (digest64(seed, term, names[d]), names[d])):
            yield found[domain]

    def _price_region(self, zones: Mapping[int, _Table], seed: int, copies: int) -> _Table:
        """Price voters, or cold copies, in one region, by their number."""
        most = max(self._shape.voters, self._shape.cold)
        table = _NOTHING
        for zone in self._order("zone", zones, seed):
            table = _join(table, zone, Shape(most, 0, {}))
        made: _Table = dict(_NOTHING)
        for (count, used, can_lead, _), (base, nodes, _) in table.items():
            if not count:
                continue
            domain = self._domains["region"][nodes[0]]
            if count * copies > self._room["region"][domain]:
                continue
            price = base + sum(self._price("region", domain, more) for more in range(count))
            if count <= self._shape.voters:
                across = price + self._shape.weights["regions"]
                _keep(made, (count, used, can_lead, 0), (across, nodes, ()))
            if count <= self._shape.cold:
                _keep(made, (0, 0, False, count), (price, (), nodes))
        return made

    def _price_zones(self, mask: Mask, seed: int, copies: int) -> dict[int, dict[int, _Table]]:
        """Price replicas in each zone, by region, one in a rack."""
        offers: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        able: dict[int, tuple[int, int]] = {}
        open_nodes = mask & self._usable
        for node, score in self._find_best_of_racks(open_nodes, seed):
            if self._room["rack"][self._domains["rack"][node]] >= copies:
                offers[self._domains["zone"][node]].append((self._price_alone(node), score, node))
        if not self._topology.can_lead[open_nodes].all():
            for node, _ in self._find_best_of_racks(open_nodes & self._topology.can_lead, seed):
                able[self._domains["rack"][node]] = self._price_alone(node), node
        found: defaultdict[int, dict[int, _Table]] = defaultdict(dict)
        for zone, listed in offers.items():
            region = self._domains["region"][listed[0][2]]
            most = min(max(self._shape.voters, self._shape.cold), len(listed))
            most = min(most, self._room["zone"][zone] // copies)
            found[region][zone] = self._price_zone(zone, sorted(listed), able, most)
        return found

    def _price_zone(
        self,
        zone: int,
        offers: Sequence[tuple[int, int, int]],
        able: Mapping[int, tuple[int, int]],
        most: int,
    ) -> _Table:
        """Price the cheapest racks of a zone by number, with and without a possible leader."""
        table: _Table = dict(_NOTHING)
        racks = self._domains["rack"]
        base = 0
        for count in range(1, most + 1):
            base += self._price("zone", zone, count - 1)
            nodes = tuple(node for _, _, node in offers[:count])
            price = base + sum(each for each, _, _ in offers[:count])
            led = bool(self._topology.can_lead[list(nodes)].any())
            _keep(table, (count, 1, led, 0), (price, nodes, ()))
            if led:
                continue
            for _, _, node in offers:
                if racks[node] in able:
                    price, leader = able[racks[node]]
                    rest = [offer for offer in offers if offer[2] != node][: count - 1]
                    price += base + sum(each for each, _, _ in rest)
                    chosen = (leader, *(other for _, _, other in rest))
                    _keep(table, (count, 1, True, 0), (price, chosen, ()))
        return table

    def _price_alone(self, node: int) -> int:
        """Price the node and its rack."""
        own = int((2 * self._node_loads[node] + 1) * self._node_factors[node])
        return own + self._price("rack", self._domains["rack"][node], 0)

    def _find_best_of_racks(self, mask: Mask, seed: int) -> list[tuple[int, int]]:
        """Find the cheapest node of each rack, ties by content, with its score."""
        nodes = np.flatnonzero(mask)
        if not len(nodes):
            return []
        racks = self._topology.domain_of(self._levels.rack)[nodes]
        prices = (2 * self._node_loads[nodes] + 1) * self._node_factors[nodes]
        score = scores(seed, self._topology.digests[nodes])
        order = np.lexsort((score, prices, racks))
        _, first = np.unique(racks[order], return_index=True)
        chosen = order[first]
        return list(zip(nodes[chosen].tolist(), score[chosen].tolist(), strict=True))


def _factors(weights: Counts, term: int) -> Counts:
    """Compute the price of a first replica by domain.

    It is the term's weight over the domain's, as a multiple of the mean.
    """
    live = weights > 0
    mean = int(weights.sum()) / max(int(live.sum()), 1)
    share = np.where(live, weights, 1) / max(mean, 1.0)
    factors: Counts = np.minimum(np.rint(term / share), _PRICE_MAX).astype(np.int64)
    return np.where(live, factors, _PRICE_MAX if term else 0)


def _join(one: _Table, other: _Table, shape: Shape) -> _Table:
    """Combine two tables: the cheapest way to each state with copies of both."""
    made: _Table = {}
    for (voters, zones, can_lead, cold), (price, nodes, cold_nodes) in one.items():
        for (more, used, leads, colder), (costs, others, more_cold) in other.items():
            if voters + more > shape.voters or cold + colder > shape.cold:
                continue
            state = voters + more, min(zones + used, ZONES_WANTED), can_lead or leads, cold + colder
            _keep(made, state, (price + costs, nodes + others, cold_nodes + more_cold))
    return made


def _keep(table: _Table, state: _State, found: _Found) -> None:
    known = table.get(state)
    if known is None or found[0] < known[0]:
        table[state] = found


def levels_of(topology: Topology) -> DomainLevels:
    """Find region, zone and rack by the names of levels.

    Without such names they are the first, second and third component of a path. On a path shorter
    than a level the deepest component counts.
    """
    depths = []
    for at, names in enumerate((("region",), ("zone", "az", "availability_zone"), ("rack",))):
        named = [topology.levels.index(name) for name in names if name in topology.levels]
        depths.append(named[0] + 1 if named else at + 1)
    rack = depths[2] if "rack" in topology.levels else max(depths)
    zone = min(depths[1], rack)
    region = min(depths[0], zone)
    return DomainLevels(
        _scope(topology, region, "region"),
        _scope(topology, zone, "zone"),
        _scope(topology, rack, "rack"),
    )


def _scope(topology: Topology, depth: int, name: str) -> Scope:
    known = topology.levels[depth - 1] if depth <= len(topology.levels) else name
    return Scope(depth=depth, name=known)
