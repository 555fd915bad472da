"""Uneven families are found at once, and kept up to date while replicas move."""

import random

import numpy as np
import pytest

from placement.model import Liveness, NodeAttributes
from placement.rebalance.shares import FamilyCounts, LevelShares, ShareWeights, Slack
from placement.topology import Topology
from tests.builders.drawn import seeds


def levels(rng: random.Random) -> LevelShares:
    topology = Topology(("zone", "rack"))
    for number in range(rng.randint(2, 14)):
        place = rng.choice(("", "/a/r0", "/a/r1", "/b/r2", "/b/r3"))
        attributes = NodeAttributes(place, weight=rng.choice((0.5, 1.0, 3.0)))
        topology.upsert(f"n{number}", attributes, Liveness.UP)
    return LevelShares(topology, apart=rng.random() < 0.5)


def uneven(tally: FamilyCounts, level: int) -> list[tuple[int, int]]:
    """The same, asked for every family and every element one by one."""
    above = tally.levels.of[level - 1]
    found = {
        (family, element): tally.distance_around(
            level, np.asarray([family]), [int(np.flatnonzero(above == element)[0])]
        )
        for family in range(len(tally.kinds))
        for element in np.unique(above).tolist()
    }
    return sorted((key for key in found if found[key]), key=lambda key: (-found[key], key))


@pytest.mark.parametrize("seed", seeds(60))
def test_uneven_families_follow_the_moves(seed: int) -> None:
    rng = random.Random(seed)
    shares = levels(rng)
    nodes = len(shares.nodes)
    masks = [np.asarray([rng.random() < 0.8 for _ in range(nodes)]) for _ in range(2)]
    weights = ShareWeights(shares, masks)
    tally = FamilyCounts(shares, weights, [0, 1, 1], rng.choice([*Slack]), rng.random() < 0.5)
    size = rng.randint(1, 60)
    tally.fill(
        np.asarray(rng.choices(range(-1, 3), k=size)),
        np.asarray(rng.choices(range(nodes), k=size)),
        np.asarray(rng.choices((1, 2, 5), k=size)),
    )
    every = range(1, shares.last + 1)
    seen = 0
    for _ in range(8):
        for level in every:
            expected = uneven(tally, level)
            assert tally.uneven_families(level) == expected
            seen += len(expected)
        for _ in range(rng.randint(0, 3)):
            family, source = rng.randrange(3), rng.randrange(nodes)
            if tally.counts[-1][family, source]:
                tally.move(family, source, rng.randrange(nodes), 1)
    if size > 30:
        assert seen
