"""Waves: plans under limits, carried out one after the other, to a fixpoint.

Goal: whatever the limits, the waves end, do what one plan after the other does, and prove it; a
planner that goes round is stopped and says so. Method: small fleets, with the bound beside each.
"""

import random
from collections import Counter
from dataclasses import replace

import pytest

from placement.model import Band, Code, MoveKind
from placement.planning import InFlight, PlanPhase, Waves, plan, plan_waves
from placement.planning import waves as module
from tests.builders.drawn import seeds
from tests.builders.plans import fleet, stream, ways

EVEN = {"strategy": "spread", "rules": [{"even": "az", "strength": "preferred"}]}


def copies(found: Waves) -> int:
    return sum(move.add is not None for move in found.whole.moves)


def touched(each) -> Counter[str]:
    return Counter(node for move in each.moves for node in (move.remove, move.add) if node)


def test_a_dead_node_then_balance_under_a_limit():
    topology = fleet("/a a1 a2", "/b b1! b2", "/c c1", levels=("az",))
    shards = stream(topology, ["a1 b1 c1"] * 6, **EVEN)
    found = plan_waves(topology, [shards], max_moves=2)
    assert found.stopped is None
    assert [len(each.moves) for each in found.plans][:3] == [2, 2, 2]
    assert {move.cause for each in found.plans[:3] for move in each.moves} == {"under_replicated"}
    assert {move.cause for each in found.plans[3:] for move in each.moves} == {"balance"}
    assert copies(found) == found.lower_bound == 9
    assert found.last.moves == ()
    # The proof: what stands at the end wants nothing, planned anew and without limits.
    whole = found.whole
    end = replace(shards, shards=[[topology.index[n] for n in held] for held in whole.final["s"]])
    assert plan(topology, [end]).moves == ()


def test_a_limit_per_node_holds_in_every_wave():
    topology = fleet("/a a1 a2", "/b b1 b2", "/c c1 c2", levels=("az",))
    shards = stream(topology, ["a1 b1 c1"] * 8, **EVEN)
    found = plan_waves(topology, [shards], max_moves_per_node=1)
    assert found.stopped is None
    assert all(max(touched(each).values(), default=0) <= 1 for each in found.plans)
    assert copies(found) == found.lower_bound == 12


def test_one_wave_is_the_plan():
    topology = fleet("/a a1", "/b b1! b2", "/c c1")
    shards = stream(topology, ["a1 b1 c1"])
    found = plan_waves(topology, [shards], PlanPhase.REPAIR)
    assert len(found.plans) == 1
    assert ways(found.whole) == ways(plan(topology, [shards], PlanPhase.REPAIR))


def test_nothing_to_do_is_no_wave():
    topology = fleet("/a a1", "/b b1", "/c c1")
    found = plan_waves(topology, [stream(topology, ["a1 b1 c1"])])
    assert (found.plans, found.lower_bound, found.stopped) == ((), 0, None)
    assert found.whole.final == {"s": (("a1", "b1", "c1"),)}


@pytest.mark.parametrize("bounds", [{"max_moves": 0}])
def test_a_limit_that_leaves_no_room_is_told(bounds):
    topology = fleet("/a a1", "/b b1! b2", "/c c1")
    found = plan_waves(topology, [stream(topology, ["a1 b1 c1"])], **bounds)
    assert (found.plans, found.stopped.code) == ((), Code.LIMIT_REACHED)
    full = fleet("/a a1 a2", "/b b1 b2")
    found = plan_waves(full, [stream(full, ["a1", "a1"], factor=1)], **bounds)
    assert (found.plans, found.stopped.code) == ((), Code.LIMIT_REACHED)


def test_balance_that_waits_for_repair_is_told():
    topology = fleet("/a a1", "/b b1! b2", "/c c1")
    found = plan_waves(topology, [stream(topology, ["a1 b1 c1"])], PlanPhase.REBALANCE)
    assert (found.plans, found.stopped.code) == ((), Code.REPAIR_FIRST)


def test_moves_under_way_count_as_done_and_wishes_stay():
    topology = fleet("/a a1 a2", "/b b1! b2", "/c c1 c2")
    moves = {
        0: InFlight(MoveKind.REPLACE, "b1", "b2"),
        1: InFlight(MoveKind.REPLACE, "c1", None),
        2: InFlight(MoveKind.REPLACE, "c1", None),
    }
    shards = stream(topology, ["a1 b1 c1", "a1 b2 c1", "a2 b2 c1"], moves=moves)
    found = plan_waves(topology, [shards], PlanPhase.REPAIR, max_moves=1)
    assert [way.split()[:3] for way in ways(found.whole)] == [
        ["s/1", "replace", "c1"],
        ["s/2", "replace", "c1"],
    ]
    assert found.whole.final["s"][0] == ("a1", "b2", "c1")
    assert found.lower_bound == 2


def test_a_planner_that_goes_round_is_stopped(monkeypatch):
    topology = fleet("/a a1 a2", "/b b1", "/c c1")
    one, other = stream(topology, ["b1 a1 c1"]), stream(topology, ["b1 a2 c1"])
    there = plan(fleet("/a a1! a2", "/b b1", "/c c1"), [one], PlanPhase.REPAIR)
    back = plan(fleet("/a a1 a2!", "/b b1", "/c c1"), [other], PlanPhase.REPAIR)
    plans = iter([there, back])
    monkeypatch.setattr(module, "plan", lambda *_: next(plans))
    found = plan_waves(topology, [one])
    assert (found.stopped.code, found.stopped.band) == (Code.PLANS_REPEAT, Band.BUG)
    assert [ways(each) for each in found.plans] == [["s/0 replace a1 a2"]]
    assert found.whole.final == {"s": (("b1", "a2", "c1"),)}


@pytest.mark.parametrize("seed", seeds(12))
def test_random_fleets_come_to_rest(seed):
    """With the same end as without limits as far as loads go, and never below the bound."""
    rng = random.Random(seed)
    zones = [[f"{zone}{n}" for n in range(rng.randint(2, 4))] for zone in "abcd"]
    names = [name for zone in zones for name in zone]
    marks = {name: rng.choice(["", "", "", "", "!", "~"]) for name in names}
    topology = fleet(
        *(f"/{zone[0][0]} " + " ".join(name + marks[name] for name in zone) for zone in zones),
        levels=("az",),
    )
    lists = [" ".join(rng.choice(zone) for zone in rng.sample(zones, 3)) for _ in range(14)]
    streams = [
        stream(topology, lists[:7], "s", **EVEN),
        stream(topology, lists[7:], "t", factor=rng.choice([2, 3, 4]), **EVEN),
    ]
    bound = rng.choice([{"max_moves": 3}, {"max_moves_per_node": 2}, {}])
    found = plan_waves(topology, streams, **bound)
    assert found.stopped is None
    assert copies(found) >= found.lower_bound
    held = Counter(node for lists in found.whole.final.values() for ids in lists for node in ids)
    assert not any(held[name] for name, mark in marks.items() if mark == "!")
    for each in found.plans:
        per_shard = Counter((move.stream, move.shard) for move in each.moves)
        assert set(per_shard.values()) == {1}
        most = bound.get("max_moves_per_node", len(lists))
        assert not [name for name, n in touched(each).items() if n > most and marks[name] != "!"]


@pytest.mark.parametrize("seed", seeds(8))
def test_n9_a_location_that_appears_costs_one_move_for_each_shard_that_improves(seed):
    """Need N9: from two locations to three; FoundationDB and YugabyteDB have no bounded plan."""
    rng = random.Random(seed)
    old = [f"{zone}{n}" for zone in "ab" for n in range(3)]
    fleet_of = ("/a a0 a1 a2", "/b b0 b1 b2")
    lists = [" ".join(rng.sample(old, 3)) for _ in range(12)]
    for policy in ({"strategy": "location_majority"}, EVEN):
        two = fleet(*fleet_of, levels=("az",))
        found = plan_waves(two, [stream(two, lists, **policy)], PlanPhase.REPAIR)
        three = fleet(*fleet_of, "/c c0 c1", levels=("az",))
        settled = [" ".join(nodes) for nodes in found.whole.final["s"]]
        grown = plan_waves(three, [stream(three, settled, **policy)], PlanPhase.REPAIR)
        assert grown.stopped is None
        moved = Counter(move.shard for move in grown.whole.moves)
        improved = [
            shard
            for shard, nodes in enumerate(settled)
            if len({node[0] for node in nodes.split()}) < 3
        ]
        assert sorted(moved) == improved
        assert copies(grown) == grown.lower_bound == len(improved)
        assert {move.add[0] for move in grown.whole.moves} == {"c"}
