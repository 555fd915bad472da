"""Walks for many shards at once: the answer is the one of walking shard by shard.

Goal: no list, no reason and no count differs, whatever the fleet. Method: seeded random fleets with
uneven racks, mixed depth, dead, small and weighted nodes and both kinds of tokens, answered twice.
"""

import random
from typing import Any

import numpy as np
import pytest

from placement.allocator import find_first_fitting, is_among, token_ring
from placement.hashing import digest64, digests64
from placement.model import AdministrativeState
from placement.policy import Policy, compile_policy
from placement.rules import RuleContext
from placement.strategies import STRATEGIES
from placement.topology import Topology
from tests.builders.drawn import seeds
from tests.builders.placements import ask, node, random_nodes, stream

NEVER = 1 << 30
NONE = AdministrativeState.NONE


def random_policy(rng):
    if rng.random() < 0.5:
        given = {"strategy": "ring", "vnodes": rng.choice([1, 3, 16]), "strict": rng.random() < 0.3}
        levels = rng.choice([None, [], ["1"], ["1", "location"], "tag:power"])
        return given if levels is None else given | {"levels": levels}, rng.randint(1, 4)
    counts = {"a": rng.randint(0, 4), "b": rng.randint(0, 2)}
    counts["a"] += not sum(counts.values())
    asked = {"strategy": "network_topology", "replication": counts, "vnodes": rng.choice([1, 16])}
    return asked, sum(counts.values())


def random_fleet(rng):
    nodes = random_nodes(rng, most=20)
    if rng.random() < 0.5:
        return nodes
    explicit = rng.random() < 0.8
    places = ["/a/z1/r1", "/a/z1/r2", "/a/z2/r1", "/a/z2/r1/x", "/b/z1", "/b", ""]
    return [
        node(
            f"n{n}",
            rng.choice(places),
            rng.sample(range(60), rng.randint(0, 3)) if explicit else None,
            rng.choice(["up"] * 8 + ["dead", "draining"]),
            {"power": rng.choice("xyz")} if rng.random() < 0.9 else None,
            weight=rng.choice([1.0, 1.0, 2.5]),
            capacity=rng.choice([None, None, None, 40]),
        )
        for n in range(rng.randint(1, 16))
    ]


def answers(nodes, asked, monkeypatch, bulk_from):
    """Two streams, the second of which finds the load of the first."""
    monkeypatch.setattr(token_ring, "BULK_FROM", bulk_from)
    policy, factor, tokens = asked
    streams = [stream(policy, factor, 12, name, tokens) for name in "st"]
    return {
        name: (each.outcome, each.replicas, each.decision.reasons, each.decision.warnings)
        for name, each in ask(nodes, *streams).items()
    }


@pytest.mark.parametrize("seed", seeds(150))
def test_many_at_once_are_as_one_by_one(seed, monkeypatch):
    rng = random.Random(seed)
    nodes = random_fleet(rng)
    policy, factor = random_policy(rng)
    tokens = [rng.randrange(70) for _ in range(12)] if rng.random() < 0.3 else None
    one_by_one = answers(nodes, (policy, factor, tokens), monkeypatch, NEVER)
    assert answers(nodes, (policy, factor, tokens), monkeypatch, 1) == one_by_one


def test_a_stream_of_thousands_is_as_one_by_one(monkeypatch):
    nodes = [node(f"n{n}", f"/r{n % 4}/z{n % 12}/k{n % 40}") for n in range(120)]
    for policy in (
        {"strategy": "ring"},
        {"strategy": "network_topology", "replication": {"r0": 2, "r3": 1}},
    ):
        asked = stream(policy, shards=2_000)
        fast = ask(nodes, asked)["s"].replicas
        monkeypatch.setattr(token_ring, "BULK_FROM", NEVER)
        assert ask(nodes, asked)["s"].replicas == fast
        monkeypatch.undo()


def test_a_walk_visits_every_token_once():
    starts = np.array([3, 990, 500])
    fits = {0: 2, 1: 989, 2: -5}

    def fit(shards, positions):
        assert positions.min() >= 0
        assert positions.max() < 1_000
        wanted = np.array([fits[shard] for shard in shards.tolist()])
        return positions == wanted[:, None]

    assert find_first_fitting(np.arange(3), starts, 1_000, fit).tolist() == [2, 989, -1]


def test_among_compares_row_by_row():
    values, held = np.array([[1, 2], [1, 2]]), np.array([[2, 3], [1, 9]])
    assert is_among(values, held).tolist() == [[False, True], [True, False]]
    assert not is_among(values, held[:, :0]).any()


def test_digests_of_many_are_those_of_each():
    parts = ["orders", 0, 17, "é"]
    assert digests64(("shard", 5), parts).tolist() == [digest64("shard", 5, p) for p in parts]
    assert digests64(("shard",), []).tolist() == []


@pytest.mark.parametrize("seed", seeds(60))
def test_columns_find_exactly_the_shards_that_break_a_ring_rule(seed):
    """The sifts of the rules that these strategies bring are exact: what they pass is not asked."""
    rng = random.Random(seed)
    topology = Topology()
    for each in random_fleet(rng):
        topology.upsert(each.node_id, each.attributes, each.liveness, each.administrative or NONE)
    counts = {"a": rng.randint(0, 3), "b": rng.randint(0, 3)}
    rows = np.array([[rng.randrange(topology.size) for _ in range(3)] for _ in range(40)])
    policies: list[dict[str, Any]] = [
        {"strategy": "ring"},
        {"strategy": "ring", "levels": ["1", "location"]},
        {"strategy": "network_topology", "replication": counts},
    ]
    for given in policies:
        strategy = STRATEGIES[given["strategy"]]
        rules = rules_of(strategy, given, topology)
        assert rules
        for rule in rules:
            broken = [bool(rule.violations(RuleContext(topology, 3, row.tolist()))) for row in rows]
            assert rule.may_violate(rows, RuleContext(topology, 3, ())).tolist() == broken, rule


def rules_of(strategy, given, topology):
    policy = compile_policy(None, given, {}, topology, STRATEGIES)
    assert isinstance(policy, Policy)
    return strategy.rules(policy, topology)
