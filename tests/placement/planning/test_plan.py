"""Plans as tables: fleets as they stand, and the moves that repair would make of them.

Goal: the documented cases of Kudu's fixer and the shapes that are known to trip planners. Method: a
fleet in words, `plan` once or until nothing is left, and a count of what came of it.
"""

from collections import Counter

import pytest

from placement.model import Cause, MoveKind
from placement.nodes import find_hold
from placement.planning import InFlight, Plan, PlanPhase, StreamSnapshot, plan
from tests.builders.plans import fleet, stream, ways


def repaired(topology, *streams) -> Plan:
    return plan(topology, streams, PlanPhase.REPAIR)


def settled(topology, *streams, rounds: int = 20) -> tuple[list[Plan], list[StreamSnapshot]]:
    """Plan and carry out until nothing is left; a plan that never ends is a failure."""
    plans = []
    standing = [*streams]
    for _ in range(rounds):
        found = repaired(topology, *standing)
        if not found.moves:
            return plans, standing
        plans.append(found)
        per_shard = Counter((move.stream, move.shard) for move in found.moves)
        assert set(per_shard.values()) == {1}
        standing = [
            StreamSnapshot(
                each.spec,
                each.policy,
                [[topology.index[n] for n in nodes] for nodes in found.final[each.spec.stream]],
            )
            for each in standing
        ]
    raise AssertionError(f"still moving after {rounds} plans: {ways(plans[-1])}")


def counts(topology, nodes) -> list[int]:
    """Replicas by location, most first."""
    return sorted(Counter(str(topology.locations[n]) for n in nodes).values(), reverse=True)


def test_nothing_is_done_where_all_is_well():
    topology = fleet("/a a1 a2", "/b b1", "/c c1")
    found = repaired(topology, stream(topology, ["a1 b1 c1"]))
    assert (found.moves, found.lower_bound, found.left) == ((), 0, ())
    assert found.final == {"s": (("a1", "b1", "c1"),)}


def test_kudu_the_busier_server_gives_to_the_location_without_a_replica():
    """The example of Kudu's blog: the follower on the fuller of two servers moves."""
    topology = fleet("/l0 n0 n1", "/l1 n2 n3", "/l2 n4 n5")
    fill = [stream(topology, ["n1"] * 5, "fill", 1)]
    found = repaired(topology, stream(topology, ["n0 n1 n2"]), *fill)
    (move,) = found.moves
    assert (move.remove, move.cause) == ("n1", Cause.PREFERRED_RULE)
    assert move.add in ("n4", "n5")


def test_kudu_the_leader_stays_where_a_follower_can_go():
    topology = fleet("/l0 n0 n1", "/l1 n2", "/l2 n4")
    fill = stream(topology, ["n0"] * 5, "fill", 1)
    (move,) = repaired(topology, stream(topology, ["n0 n1 n2"]), fill).moves
    assert (move.remove, move.add) == ("n1", "n4")


@pytest.mark.parametrize(
    ("places", "replicas", "factor", "lawful", "moves"),
    [
        # Two replicas have a majority wherever they are; apart is better, and then it ends.
        (("/a a1 a2", "/b b1", "/c c1"), "a1 a2", 2, [1, 1], 1),
        (("/a a1 a2", "/b b1"), "a1 b1", 2, [1, 1], 0),
        # Four over three locations: 2 + 1 + 1 stays, though half is a majority (KUDU-2688).
        (("/a a1 a2", "/b b1", "/c c1"), "a1 a2 b1 c1", 4, [2, 1, 1], 0),
        (("/a a1 a2 a3", "/b b1", "/c c1"), "a1 a2 a3 b1", 4, [2, 1, 1], 1),
        # Kudu's fixer sends this one round for ever.
        (("/a a1 a2 a3", "/b b1 b2 b3", "/c c1"), "a1 a2 a3 b1 b2 c1", 6, [3, 2, 1], 0),
        (("/a a1 a2 a3", "/b b1 b2 b3", "/c c1 c2"), "a1 a2 a3 b1 b2 c1", 6, [2, 2, 2], 1),
        (("/a a1 a2 a3", "/b b1 b2"), "a1 a2 a3", 3, [2, 1], 1),
        # One location only: there is nothing to spread.
        (("/a a1 a2 a3 a4",), "a1 a2 a3", 3, [3], 0),
    ],
)
def test_kudu_even_factors_converge(places, replicas, factor, lawful, moves):
    topology = fleet(*places)
    plans, (after,) = settled(topology, stream(topology, [replicas], factor=factor))
    assert counts(topology, after.shards[0]) == lawful
    assert sum(len(each.moves) for each in plans) == moves


def test_a_marked_replica_is_not_in_the_way_of_its_own_replacement():
    """Kudu counts it still, and may put the new copy beside another."""
    topology = fleet("/a a1 a2", "/b b1 b2", "/c c1 c2", "/d d1")
    wanted = {0: InFlight(MoveKind.REPLACE, remove="c1")}
    (move,) = repaired(topology, stream(topology, ["a1 b1 c1"], moves=wanted)).moves
    assert (move.kind, move.remove) == (MoveKind.REPLACE, "c1")
    assert move.add in ("c2", "d1")
    assert move.reason.code == "REPLACEMENT_WANTED"


def test_a_move_under_way_counts_as_done_and_its_shard_gets_no_other():
    topology = fleet("/a a1 a2", "/b b1", "/c c1")
    under_way = {0: InFlight(MoveKind.REPLACE, "a2", "c1")}
    found = repaired(topology, stream(topology, ["a1 a2 b1", "a1 a2 b1"], moves=under_way))
    assert ways(found) == ["s/1 replace a2 c1"]
    assert found.final["s"][0] == ("a1", "c1", "b1")


def test_uneven_locations_of_hundred_two_and_two_servers():
    """Seed 003: two small locations cannot carry a third each for ever, and need not."""
    topology = fleet("/big " + " ".join(f"n{i}" for i in range(100)), "/x x1 x2", "/y y1 y2!")
    shards = [f"n{i} x{1 + i % 2} y{1 + i % 2}" for i in range(40)]
    plans, (after,) = settled(topology, stream(topology, shards))
    assert [len(each.moves) for each in plans] == [20]
    assert {tuple(counts(topology, nodes)) for nodes in after.shards} == {(1, 1, 1)}
    # Without the small locations there is no rule left to keep.
    topology = fleet("/big " + " ".join(f"n{i}" for i in range(100)), "/x x1! x2!", "/y y1! y2!")
    plans, (after,) = settled(topology, stream(topology, shards))
    assert all(counts(topology, nodes) == [3] for nodes in after.shards)
    assert sum(len(each.moves) for each in plans) == 80
    held = Counter(node for nodes in after.shards for node in nodes)
    assert max(held.values()) <= 3


def test_a_location_that_is_exhausted_passes_its_share_on():
    topology = fleet("/a a1 a2 a3 a4", "/b b1", "/c c1!")
    found = repaired(topology, stream(topology, ["c1 a1 b1"]))
    (move,) = found.moves
    assert (move.remove, move.leader) == ("c1", "a1")
    assert move.add in ("a2", "a3", "a4")


def test_three_zones_one_drained():
    """PD refuses to lower the isolation, Hadoop waits for ever."""
    topology = fleet("/a a1 a2", "/b b1 b2", "/c c1~ c2~")
    lists = ["a1 b1 c1", "a2 b2 c2"]
    plans, (after,) = settled(topology, stream(topology, lists, strategy="spread"))
    assert sum(len(each.moves) for each in plans) == 2
    assert all(counts(topology, nodes) == [2, 1] for nodes in after.shards)
    rules = [{"at_most": 1, "per": "location"}]
    found = repaired(topology, stream(topology, lists, strategy="spread", rules=rules))
    assert found.moves == ()
    assert [violation.rule for violation in found.left] == ["drain", "drain"]
    assert "at_most 1 per location" in found.left[0].reason.message


def test_three_racks_shrink_to_two_and_grow_back():
    lists = ["a1 b1 c1", "b2 c2 a2", "c1 a1 b1", "a2 b2 c2"]
    outage = fleet("/a a1 a2", "/b b1 b2", "/c c1! c2!")
    plans, (after,) = settled(outage, stream(outage, lists, strategy="spread"))
    assert [len(each.moves) for each in plans] == [4]
    again = fleet("/a a1 a2", "/b b1 b2", "/c c1 c2")
    names = [" ".join(outage.ids[n] for n in nodes) for nodes in after.shards]
    plans, (after,) = settled(again, stream(again, names, strategy="spread"))
    assert [len(each.moves) for each in plans] == [4]
    assert all(counts(again, nodes) == [1, 1, 1] for nodes in after.shards)


def test_what_lacks_most_comes_first():
    topology = fleet("/a a1 a2 a3", "/b b1! b2!", "/c c1~ c2")
    lists = ["a1 a2 c1", "a1 b1 c2", "a1 b1 b2"]
    found = repaired(topology, stream(topology, lists, strategy="spread"))
    told = [(move.shard, move.cause) for move in found.moves]
    assert told[:2] == [(2, Cause.UNDER_REPLICATED), (1, Cause.UNDER_REPLICATED)]
    assert told[2:] == [(0, Cause.DRAIN)]


def test_a_surplus_loses_what_is_worst():
    topology = fleet("/a a1 a2", "/b b1 b2!", "/c c1~")
    lists = ["a1 a2 b1 b2", "a1 a2 b1 c1", "a1 a2 b1"]
    shards = stream(topology, lists, strategy="spread", factor=3)
    assert sorted(ways(repaired(topology, shards))) == ["s/0 remove b2 -", "s/1 remove c1 -"]
    lower = stream(topology, ["a1 a2 b1"], strategy="spread", factor=2)
    assert ways(repaired(topology, lower)) == ["s/0 remove a2 -"]


def test_short_and_repeated_lists_are_completed():
    topology = fleet("/a a1", "/b b1", "/c c1")
    found = repaired(topology, stream(topology, ["a1 b1", "a1 a1 b1"]))
    assert ways(found) == ["s/0 add - c1", "s/1 replace a1 c1"]


def test_a_leader_moves_no_data():
    topology = fleet("/a a1 a2", "/b b1!", "/c c1!")
    shards = stream(topology, ["b1 a1 a2 c1"], strategy="spread", factor=2)
    found = repaired(topology, shards)
    (move,) = found.moves
    assert (move.kind, move.leader) == (MoveKind.REMOVE, "a1")
    full = fleet("/a a1", "/b b1!")
    (move,) = repaired(full, stream(full, ["b1 a1"], strategy="spread", factor=2)).moves
    assert (move.kind, move.leader, move.cause) == (MoveKind.LEADER, "a1", Cause.LEADER)


def test_a_marked_replica_stays_in_its_location_rather_than_break_the_rule():
    """It leaves the location where another is below its limit; else it goes next door."""
    topology = fleet("/a a1 a2", "/b b1 b2", "/c c1 c2")
    moves = {0: InFlight(MoveKind.REPLACE, "c1", None)}
    assert ways(repaired(topology, stream(topology, ["a1 b2 c1"], moves=moves))) == [
        "s/0 replace c1 c2"
    ]
    wider = fleet("/a a1 a2", "/b b1 b2", "/c c1 c2", "/d d1")
    assert ways(repaired(wider, stream(wider, ["a1 b2 c1"], moves=moves))) == ["s/0 replace c1 d1"]


def test_a_stream_may_turn_repair_off():
    topology = fleet("/a a1 a2~", "/b b1 b2!", "/c c1")
    lists = ["a1 a2 b1", "b2 a1 a2"]
    found = repaired(topology, stream(topology, lists, repair="dead_only"))
    assert ways(found) == ["s/1 replace b2 c1"] or ways(found) == ["s/1 replace b2 b1"]


def test_bounds():
    topology = fleet("/a a1 a2", "/b b1!", "/c c1")
    shards = stream(topology, ["b1 a1"] * 6, factor=2)
    found = plan(topology, [shards], PlanPhase.REPAIR, max_moves=2)
    assert (len(found.moves), found.throttled) == (2, 4)
    found = plan(topology, [shards], PlanPhase.REPAIR, max_moves_per_node=2)
    copies = [move for move in found.moves if move.kind is not MoveKind.LEADER]
    assert set(Counter(move.add for move in copies).values()) <= {2}
    assert len(copies) + found.throttled == 6


def test_one_shard_that_nobody_can_help_blocks_no_other():
    """Kudu's fixer gives up all fixes with the first that it cannot make."""
    topology = fleet("/a a1 a2 a3", "/b b1", "/c c1!")
    hard = stream(topology, ["c1"], "hard", 1, strategy="spread", within=["/c"])
    found = repaired(topology, hard, stream(topology, ["a1 a2 c1"], "soft"))
    assert ways(found) == ["soft/0 replace c1 b1"]
    assert [violation.stream for violation in found.left] == ["hard", "soft"]


@pytest.mark.parametrize(
    ("places", "domain", "why"),
    [
        (("/a/r1 a1! a2!", "/a/r2 a3!", "/b/r1 b1"), "/a", "all 3 nodes of /a are dead"),
        # A rack has no level beneath, two nodes are few, and one that lives is no whole domain.
        (("/r1 a1! a2! a3!", "/r2 b1"), None, None),
        (("/a/r1 a1! a2!", "/b/r1 b1 b2"), None, None),
        (("/a/r1 a1! a2! a3", "/b/r1 b1"), None, None),
        (
            ("/r1 " + " ".join(f"a{i}!" for i in range(11)), "/r2 b1"),
            None,
            "11 of 12 nodes are dead, the limit is 10",
        ),
    ],
)
def test_hold(places, domain, why):
    found = find_hold(fleet(*places))
    assert (found and found.domain, found and found.reason) == (domain, why)
