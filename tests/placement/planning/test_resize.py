"""Another replication factor: who goes when it falls, where the new copies stand when it rises.

Goal: dead copies go first, then draining ones, then what the rules miss least, then from the
fullest domain, the leader last; no healthy copy goes while an unhealthy one is there; what rises is
spread by the strategy. Method: one shard's list and the order in which copies go, wave by wave.
"""

import random
from collections import Counter

import pytest

from placement.assignments import resize_slots
from placement.model import Liveness, MoveKind, NodeAttributes
from placement.planning import PlanPhase, plan_waves
from placement.topology import Topology
from tests.builders.drawn import seeds
from tests.builders.plans import fleet, stream

EVEN = {"strategy": "spread", "rules": [{"even": "az", "strength": "preferred"}]}


def gone(topology, *streams) -> list[str]:
    """Nodes that give up a copy, in order."""
    found = plan_waves(topology, streams, PlanPhase.REPAIR)
    assert found.stopped is None
    return [move.remove for move in found.whole.moves if move.kind is MoveKind.REMOVE]


@pytest.mark.parametrize(
    ("places", "listed", "factor", "order"),
    [
        # Dead, then draining, then a doubtful one, then by the rules.
        (("/a a1 a2", "/b b1! b2", "/c c1~ c2"), "a1 b1 c1 a2 b2", 2, ["b1", "c1", "a2"]),
        (("/a a1 a2", "/b b1 b2", "/c c1?"), "a1 a2 b1 c1", 3, ["c1"]),
        (("/a a1 a2~ a3 a4", "/b b1", "/c c1"), "b1 a1 a2 c1", 2, ["a2", "c1"]),
        (("/a a1 a2? a3 a4", "/b b1", "/c c1"), "b1 a1 a2 c1", 3, ["a2"]),
        # The leader last, also where it is one of the two.
        (("/a a1 a2", "/b b1", "/c c1"), "a1 a2 b1 c1", 3, ["a2"]),
        (("/a a1 a2", "/b b1 b2", "/c c1"), "a1 a2 b1 c1", 1, ["a2", "c1", "b1"]),
        # A leader that is dead or draining is no reason to keep it.
        (("/a a1! a2", "/b b1", "/c c1"), "a1 b1 c1", 2, ["a1"]),
        (("/a a1~ a2", "/b b1", "/c c1"), "a1 b1 c1", 2, ["a1"]),
    ],
)
def test_who_goes(places, listed, factor, order):
    topology = fleet(*places, levels=("az",))
    found = gone(topology, stream(topology, [listed], factor=factor, **EVEN))
    assert found == order


def test_from_the_fullest_domain_where_the_rules_do_not_mind():
    topology = fleet("/a a1 a2", "/b b1 b2", "/c c1 c2", levels=("az",))
    full = stream(topology, ["c1"] * 6, "full", 1, strategy="spread", within=["/c"])
    shard = stream(topology, ["a1 b1 c1"], factor=2, strategy="spread")
    assert gone(topology, full, shard) == ["c1"]


@pytest.mark.parametrize("seed", seeds(10))
def test_no_healthy_copy_goes_before_an_unhealthy_one(seed):
    rng = random.Random(seed)
    marks = ["", "", "!", "~", "?"]
    names = [f"{zone}{n}" for zone in "abcd" for n in range(2)]
    condition = {name: rng.choice(marks) for name in names}
    zones = (f"/{z} " + " ".join(n + condition[n] for n in names if n[0] == z) for z in "abcd")
    topology = fleet(*zones, levels=("az",))
    lists = [" ".join(rng.sample(names, 5)) for _ in range(4)]
    rank = {"!": 0, "~": 1, "?": 2, "": 3}
    found = plan_waves(topology, [stream(topology, lists, factor=2, **EVEN)], PlanPhase.REPAIR)
    held = [words.split() for words in lists]
    removed = [move for each in found.plans for move in each.moves if move.kind is MoveKind.REMOVE]
    assert Counter(move.shard for move in removed) == dict.fromkeys(range(4), 3)
    for each in found.plans:
        for move in each.moves:
            if move.kind is MoveKind.REMOVE:
                worst = min(rank[condition[node]] for node in held[move.shard])
                assert rank[condition[move.remove]] == worst
        held = [list(nodes) for nodes in each.final["s"]]
    assert [len(nodes) for nodes in held] == [2] * 4


def test_new_copies_go_where_the_strategy_wants_them():
    topology = fleet("/a a1 a2", "/b b1 b2", "/c c1 c2", "/d d1", levels=("az",))
    shards = stream(topology, ["a1 b1 c1", "b1 c1 a1"], factor=5, **EVEN)
    found = plan_waves(topology, [shards], PlanPhase.REPAIR)
    assert {move.kind for move in found.whole.moves} == {MoveKind.ADD}
    for before, nodes in zip(("a1", "b1"), found.whole.final["s"], strict=True):
        assert nodes[0] == before
        assert sorted(Counter(node[0] for node in nodes).values()) == [1, 1, 1, 2]


@pytest.mark.parametrize(
    ("listed", "before", "factor"),
    [("x11 x21 x31 y0", 3, 4), ("x11 x21 x31 y0", 3, 2), ("x11 x21 x31 x12 y0", 4, 2)],
)
def test_a_cold_copy_stays_the_cold_one(listed, before, factor):
    """It stands in the last slot and in a region of its own, whatever becomes of the voters."""
    topology = Topology(("region", "zone", "rack"))
    for region, zone, rack in (("x", z, r) for z in "123" for r in "12"):
        name = f"{region}{zone}{rack}"
        topology.upsert(name, NodeAttributes(f"/{region}/{zone}/{rack}"), Liveness.UP)
    for n in range(2):
        topology.upsert(f"y{n}", NodeAttributes(f"/y/1/{n}"), Liveness.UP)
    shards = stream(topology, [listed], factor=factor, strategy="cost")
    policy = shards.policy
    copies = policy.copies(before), policy.copies(factor)
    lists = [resize_slots(nodes, *copies, 1) for nodes in shards.shards]
    shards = type(shards)(shards.spec, policy, lists)
    found = plan_waves(topology, [shards], PlanPhase.REPAIR)
    (nodes,) = found.whole.final["s"]
    assert nodes[-1] == "y0"
    assert len(nodes) == factor + 1
    assert len(found.whole.moves) == abs(factor - before)
    assert all(node.startswith("x") for node in nodes[:-1])
