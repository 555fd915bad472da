"""The search of `cost` against every arrangement there is, on small fleets."""

import random
from itertools import combinations

import numpy as np
import pytest

from placement.allocator import View
from placement.assignments import AssignmentTable
from placement.model import Liveness
from placement.strategies.cost_prices import MILLION, Prices, Shape, levels_of
from placement.topology import Topology
from tests.builders.drawn import seeds
from tests.builders.placements import random_nodes

WEIGHTS = dict.fromkeys(("region", "zone", "rack", "node"), MILLION)
WEIGHTS |= {"zones": 1000 * MILLION, "regions": 100 * MILLION}


def by_force(prices, topology, voters, cold, mask):
    """The least cost of any lawful shard."""
    levels = levels_of(topology)
    region, zone, rack = (topology.domain_of(scope) for _, scope in levels.items())
    room = [node for node in range(topology.size) if mask[node]]
    best = None
    for primaries in combinations(room, voters):
        if len({zone[n] for n in primaries}) < min(2, voters):
            continue
        for aside in combinations(room, cold):
            held = (*primaries, *aside)
            if len({rack[n] for n in held}) < voters + cold:
                continue
            if {region[n] for n in primaries} & {region[n] for n in aside}:
                continue
            if not topology.can_lead[list(primaries)].any():
                continue
            cost = sum(prices.terms(primaries, aside).values())
            best = cost if best is None else min(best, cost)
    return best


@pytest.mark.parametrize("seed", seeds(60))
def test_the_search_finds_the_least_cost(seed):
    rng = random.Random(seed)
    topology = Topology()
    for each in random_nodes(rng, 11):
        topology.upsert(each.node_id, each.attributes, Liveness.UP)
    view = View(topology, AssignmentTable())
    view.load[:] = [rng.choice([0, 0, 1, 2, 5]) for _ in range(topology.size)]
    shape = Shape(rng.choice([1, 2, 3]), rng.choice([0, 1, 1, 2]), WEIGHTS)
    if seed % 3 == 0:
        shape = Shape(shape.voters, shape.cold, WEIGHTS | {"zones": 3 * MILLION, "regions": 0})
    everything = np.ones(topology.size, bool)
    prices = Prices(levels_of(topology), shape, everything, view, None)
    found = prices.find_cheapest(everything, seed)
    least = by_force(prices, topology, shape.voters, shape.cold, everything)
    if found is None or not topology.can_lead[list(found[0])].any():
        assert least is None
    else:
        assert sum(prices.terms(*found).values()) == least
