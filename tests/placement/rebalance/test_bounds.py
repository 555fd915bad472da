"""What rebalancing leaves alone or keeps together, its limits, and leaders."""

from collections import Counter

import pytest

from placement.model import Code, MoveKind
from tests.builders.arrangements import arrangement, tables


def test_a_colocated_stream_moves_slot_by_slot() -> None:
    """Both streams share a; the slot that goes takes all its shards along."""
    made = arrangement([(name, f"/{name}") for name in "abcd"])
    made.stream("s", [["a", "b"]] * 3, policies="")
    made.stream("t", [["a", "c"]] * 3, policies="")
    plan = made.plan()
    moves = [move for move in plan.moves if move.kind is MoveKind.REPLACE]
    assert len({(move.slot, move.remove, move.add) for move in moves}) == 1
    assert len(moves) == 3
    made.apply(plan.moves)
    assert set(made.counts().values()) == {3}
    assert not made.plan().moves


def test_a_colocated_stream_is_never_cut_by_a_limit() -> None:
    made = arrangement([(name, f"/{name}") for name in "abcd"])
    made.stream("s", [["a", "b"]] * 3, policies="")
    made.stream("t", [["a", "c"]] * 3, policies="")
    plan = made.plan(max_moves=2)
    assert (plan.moves, plan.limited) == ((), True)


def test_a_colocated_stream_that_stands_apart_is_left_to_repair() -> None:
    made = arrangement([(name, f"/{name}") for name in "abcd"])
    made.stream("s", [["a", "b"], ["a", "c"], ["a", "b"]], policies="")
    plan = made.plan()
    assert not plan.moves
    assert [(name, reason.code) for name, reason in plan.kept] == [("s", Code.KEPT_AS_IS)]


def test_an_exclusive_stream_keeps_one_replica_per_node() -> None:
    made = arrangement([(name, f"/{name}") for name in "abc"])
    made.stream("s", [["a"], ["b"]], policies="shard=exclusive")
    made.stream("t", [["a"]] * 2)
    made.apply(made.plan().moves)
    assert max(made.counts("s").values()) == 1
    assert max(made.counts().values()) - min(made.counts().values()) <= 1


@pytest.mark.parametrize(
    "policy", [{"strategy": "ring"}, {"strategy": "copysets"}, {"strategy": "client_tags"}]
)
def test_strategies_that_are_not_balanced_by_load_stay(policy: dict[str, str]) -> None:
    if policy["strategy"] == "client_tags":
        policy = {**policy, "rack_aware_tags": ["zone"]}
    made = arrangement()
    for name in "abc":
        made.node(name, tags=(("zone", name),))
    made.stream("fixed", [["a", "b"]] * 4, policy)
    made.stream("free", [["a"]] * 4)
    plan = made.plan()
    made.apply(plan.moves)
    assert made.counts("fixed") == {"a": 4, "b": 4, "c": 0}
    assert [name for name, _ in plan.kept] == ["fixed"]
    # What stays counts: the free stream is as even as it can be by itself first.
    assert made.counts("free")["c"] == 2


def test_streams_that_only_lose_dead_replicas_stay() -> None:
    made = arrangement([("a", ""), ("b", "")])
    made.stream("s", [["a"]] * 4, repair="dead_only")
    plan = made.plan()
    assert not plan.moves
    assert plan.kept[0][0] == "s"


def test_shards_with_a_move_under_way_get_no_other() -> None:
    made = arrangement([("a", ""), ("b", "")])
    made.stream("s", [["a"]] * 4)
    plan = made.plan(moving={0, 1, 2})
    assert made.words(plan.moves) == ["s/3 0: a>b"]


def test_limits_cut_the_plan_short_and_the_next_goes_on() -> None:
    made = tables({"A": (9, 0, 0)})
    plan = made.plan(max_moves=2)
    assert plan.limited
    assert made.words(plan.moves) == made.words(made.plan().moves)[:2]
    made.apply(plan.moves)
    assert sum(len(made.plan(max_moves=n).moves) for n in (4,)) == 4
    plan = tables({"A": (9, 0, 0)}).plan(max_moves_per_node=3)
    assert (len(plan.moves), plan.limited) == (3, True)


def test_one_move_per_shard() -> None:
    made = arrangement((f"n{n}", f"/r{n}") for n in range(6))
    made.stream("s", [["n0", "n1", "n2"]] * 6, {"strategy": "spread"})
    waves = 0
    while True:
        plan = made.plan(one_per_shard=True)
        if not plan.moves:
            break
        shards = [move.shard for move in plan.moves]
        assert len(shards) == len(set(shards))
        made.apply(plan.moves)
        waves += 1
    assert 2 <= waves <= 4
    assert set(made.counts().values()) == {3}
    assert not made.plan().moves


def test_a_dimension_is_even_by_itself() -> None:
    made = arrangement([("a", ""), ("b", "")])
    made.stream("s", [["a"]], dimension="d")
    made.stream("t", [["a"]], dimension="d")
    made.stream("u", [["b"]])
    made.stream("v", [["b"]])
    made.apply(made.plan().moves)
    assert sorted(made.counts("s").values()) == [0, 1]
    assert made.counts("s") != made.counts("t")
    assert made.counts() == {"a": 2, "b": 2}


def test_a_range_is_even_over_the_streams_of_its_dimension() -> None:
    """Each stream is even by itself, and so are both together; the ranges are not."""
    aware = {"strategy": "location_majority", "range_aware": True}
    made = arrangement([("a", ""), ("b", "")])
    made.stream("s", [["a"], ["b"]], aware, ranges=("hot", "cold"), dimension="d")
    made.stream("t", [["a"], ["b"]], aware, ranges=("hot", "cold"), dimension="d")
    made.stream("u", [["a"], ["b"]], aware, ranges=("hot", "cold"), dimension="other")
    moves = made.plan().moves
    assert len(moves) == 2
    made.apply(moves)
    for shard in (0, 1):
        assert made.table.nodes(made.shards[0][shard]) != made.table.nodes(made.shards[1][shard])


def test_followers_go_before_leaders() -> None:
    made = arrangement([("a", ""), ("b", ""), ("c", "")])
    made.stream("s", [["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"]])
    moves = [move for move in made.plan().moves if move.kind is MoveKind.REPLACE]
    assert len(moves) == 4
    assert {move.slot for move in moves} == {1}


def test_leaders_are_evened_out_last_and_by_order_alone() -> None:
    made = arrangement([("a", ""), ("b", ""), ("c", "")])
    made.stream("s", [["a", "b", "c"]] * 6)
    plan = made.plan()
    assert {move.kind for move in plan.moves} == {MoveKind.LEADER}
    assert (len(plan.moves), plan.lower_bound) == (4, 0)
    made.apply(plan.moves)
    led = Counter(made.table.nodes(shard)[0] for shard in made.shards[0])
    assert set(led.values()) == {2}
    assert not made.plan().moves


def test_nodes_that_may_not_lead_are_given_no_leadership() -> None:
    made = arrangement([("a", ""), ("b", "")])
    made.node("c", leader=False)
    made.stream("s", [["a", "b", "c"]] * 4)
    made.apply(made.plan().moves)
    led = Counter(made.topology.ids[made.table.nodes(shard)[0]] for shard in made.shards[0])
    assert led == {"a": 2, "b": 2}


def test_leaders_stay_where_the_policy_wants_them() -> None:
    made = arrangement([("a", "/x"), ("b", "/x"), ("c", "/y")])
    policy = {"strategy": "simple", "rules": [{"leader_in": ["/x"]}]}
    made.stream("s", [["a", "b", "c"]] * 4, policy)
    made.apply(made.plan().moves)
    led = Counter(made.topology.ids[made.table.nodes(shard)[0]] for shard in made.shards[0])
    assert led == {"a": 2, "b": 2}


def test_nothing_to_balance_is_balanced() -> None:
    assert not arrangement().plan().moves
    made = arrangement([("a", ""), ("b", "")])
    assert not made.plan().moves
    made.stream("s", [["a"]])
    made.table.set(0, 0, -1)
    assert not made.plan().moves
