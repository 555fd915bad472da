"""Risk: copysets, scatter width and the probability of loss, against published figures."""

import random
from itertools import combinations
from math import comb

import pytest

from placement.assignments import loss_probability, parse_failures, risk
from placement.assignments.risk import ScatterWidth
from tests.builders.drawn import seeds


@pytest.mark.parametrize(
    ("copysets", "percent"),
    [
        (5000 // 3, 0.16),  # scatter width 2: one permutation
        (5000 * 5 // 3, 0.78),  # scatter width 10: five permutations
        (5000 * comb(11, 2), 22.8),  # random placement in windows of 10
    ],
)
def test_published_figures(copysets, percent):
    """Cidon et al.: 5,000 nodes, three copies, 1 % of the nodes fail."""
    probability = 100 * loss_probability(5000, parse_failures("1%", 5000), {3: copysets})
    assert float(f"{probability:.2g}" if percent < 1 else f"{probability:.3g}") == percent


def test_tiny_probabilities_are_not_rounded_away():
    assert loss_probability(10**6, 3, {3: 1}) == pytest.approx(1 / comb(10**6, 3), rel=1e-9)
    assert loss_probability(100, 2, {3: 1000}) == 0
    assert loss_probability(10, 10, {3: 1}) == 1


@pytest.mark.parametrize("seed", seeds(5))
def test_one_copyset_agrees_with_counting(seed):
    """Oracle: every way in which F of N nodes can fail, counted."""
    rng = random.Random(seed)
    nodes, factor = rng.randint(4, 9), rng.randint(1, 3)
    failed = rng.randint(factor, nodes)
    one = set(rng.sample(range(nodes), factor))
    ways = [one <= set(down) for down in combinations(range(nodes), failed)]
    expected = sum(ways) / len(ways)
    assert risk([sorted(one)], nodes, failed).loss_probability == pytest.approx(expected)


def test_sets_are_counted_once_and_sizes_mix():
    shards = [[0, 1, 2], [2, 1, 0], [3, 4, 4], [5]]
    found = risk(shards, 10, 2)
    assert found.copysets == 3
    # 0, 1 and 2 share with two others, 3 and 4 with one, 5 with none.
    assert found.scatter_width == ScatterWidth(0, (2 + 2 + 2 + 1 + 1 + 0) / 6, 2)
    expected = 1 - (1 - 1 / comb(10, 2)) * (1 - 2 / 10)
    assert found.loss_probability == pytest.approx(expected)


def test_scatter_width_is_what_counting_neighbours_gives():
    rng = random.Random(1)
    shards = [rng.sample(range(40), rng.randint(1, 4)) for _ in range(60)]
    near = {n: {m for s in shards if n in s for m in s} - {n} for s in shards for n in s}
    widths = [len(each) for each in near.values()]
    found = risk(shards, 40, 1).scatter_width
    assert (found.min, found.max) == (min(widths), max(widths))
    assert found.mean == pytest.approx(sum(widths) / len(widths))


def test_nothing_placed_and_everything_lost():
    assert risk([], 10, 3) == risk([], 10, 3).__class__(3, 0, ScatterWidth(), 0.0)
    assert risk([[]], 10, 0).loss_probability == 1


@pytest.mark.parametrize(
    ("text", "nodes", "expected"),
    [
        ("1%", 5000, 50),
        ("1%", 199, 1),
        ("1%", 99, 0),
        ("0.1%", 5000, 5),
        ("29%", 100, 29),
        ("100 %", 7, 7),
        ("3", 10, 3),
        ("30", 10, 10),
        ("101%", 10, None),
        ("-1", 10, None),
        ("1.5", 10, None),
        ("all", 10, None),
        ("", 10, None),
        ("nan%", 10, None),
    ],
)
def test_failures_round_down(text, nodes, expected):
    assert parse_failures(text, nodes) == expected
