"""The bound on copies while a fleet settles: what keeps it passes, what does not is found.

Method: one shard on a and b, of which b has died; every case tells the moves issued for it, where
it stands in the end, and what the oracle has to say.
"""

from typing import Any

import pytest

from tests.oracle.movement import MovementBound
from tests.oracle.world import World

SHARD = ("s", 0)

# from>to, state, cause, reason; `<1` says that it supersedes the first.
CASES = [
    (["b>c completed"], "a c", None),
    (["b>c completed", "c>d completed"], "a d", "too many copies"),
    (["b>c completed", "c>d completed preferred_rule"], "a d", "too many copies"),
    (["b>c completed", "c>b completed preferred_rule"], "a b", "too many copies"),
    (["b>c issued"], "a b", None),
    (["b>c failed", "b>c expired", "b>d completed"], "a d", None),
    (["b>c cancelled", "b>d completed"], "a d", "too many copies"),
    (["b>c cancelled REQUEST_CANCELLED", "b>d completed"], "a d", None),
    (["b>c superseded", "b>d completed <1"], "a d", "too many copies"),
    (["b>c superseded REPLICA_LOST", "b>d completed <1"], "a d", None),
    (["b>c superseded", "b>c completed <1"], "a c", None),
    (["b>c superseded drain", "b>d completed <1"], "a d", None),
    (["b>c superseded balance", "b>d completed required_rule <1"], "a d", None),
    (["b>c completed", "c>d completed balance"], "a d", None),
    (["b>c completed balance", "c>d completed balance"], "a d", None),
    (["a>c completed required_rule"], "b c", "left a for c, though ['a'] is as good"),
    (["a>c completed preferred_rule"], "b c", None),
]


def move(number: int, told: str) -> dict[str, Any]:
    way, state, *more = told.split()
    remove, add = way.split(">")
    supersedes = next((word[1:] for word in more if word.startswith("<")), None)
    causes = [word for word in more if word.islower()]
    reasons = [word for word in more if word.isupper()]
    return {
        "move_id": str(number),
        "stream": "s",
        "shard": 0,
        "kind": "replace",
        "remove": remove,
        "add": add,
        "state": state,
        "cause": causes[0] if causes else "under_replicated",
        "reason": {"code": reasons[0] if reasons else "NODE_DEAD"},
        "supersedes": supersedes,
    }


def settling(
    told: list[str], final: str, policy: dict[str, Any], places: dict[str, str] | None = None
) -> MovementBound:
    world = World()
    up = {"liveness": "up", "administrative": "none", "guard": "none", "location": "", "tags": {}}
    world.nodes = {name: {**up, "liveness": "dead" if name == "b" else "up"} for name in "abcd"}
    for name, place in (places or {}).items():
        world.nodes[name] = {**world.nodes[name], "location": place}
    spec = {"policy": policy, "replication_factor": 2, "shards": 1}
    world.decisions["s"] = {"spec": spec}
    movement = MovementBound(world)
    movement.begin(SHARD, ("a", "b"))
    world.assignments[SHARD] = {"replicas": final.split(), "adding": [], "removing": []}
    for number, each in enumerate(told, 1):
        made = move(number, each)
        world.all_moves[made["move_id"]] = made
        movement.issue(SHARD, made)
    return movement


@pytest.mark.parametrize(("told", "final", "found"), CASES)
def test_copies_beyond_the_bound_are_found(told: list[str], final: str, found: str | None) -> None:
    said = [*settling(told, final, {"strategy": "simple"}).judge()]
    assert bool(said) == bool(found), said
    assert found is None or found in said[0]


WISHED = ["b>c completed", "c>d completed preferred_rule"]


@pytest.mark.parametrize(("capacity", "found"), [(1, None), (2, "too many copies")])
def test_a_wish_may_move_on_to_a_node_that_was_full(capacity: int, found: str | None) -> None:
    policy = {"strategy": "simple"}
    movement = settling([], "a c", policy)
    world = movement._world
    world.nodes["d"] = {**world.nodes["d"], "capacity": capacity}
    world.decisions["other"] = {"spec": {"policy": policy}}
    world.assignments["other", 0] = {"replicas": ["d"], "adding": [], "removing": []}
    for number, told in enumerate(WISHED, 1):
        made = world.all_moves[str(number)] = move(number, told)
        movement.issue(SHARD, made)
        world.assignments["other", 0] = {"replicas": [], "adding": [], "removing": []}
    world.assignments[SHARD] = {**world.assignments[SHARD], "replicas": ["a", "d"]}
    said = [*movement.judge()]
    assert bool(said) == bool(found), said
    assert found is None or found in said[0]


@pytest.mark.parametrize("strategy", ["copysets", "ring"])
def test_a_wish_may_move_on_what_a_strategy_s_order_chose(strategy: str) -> None:
    movement = settling(WISHED, "a d", {"strategy": strategy})
    decisions = movement._world.decisions
    decisions["s"] = {**decisions["s"], "strategy": strategy}
    assert [*movement.judge()] == []


@pytest.mark.parametrize("wish", ["preferred_rule", "balance"])
@pytest.mark.parametrize(("place", "found"), [("/x", None), ("/v", "left a for c")])
def test_a_wish_that_moves_others_later_makes_nothing_needless(
    wish: str, place: str, found: str | None
) -> None:
    policy = {"strategy": "simple", "rules": [{"at_most": 1, "per": "location"}]}
    places = {"a": "/x", "b": place, "c": "/y", "d": "/z"}
    told = ["a>c completed required_rule", f"b>d completed {wish}"]
    said = [*settling(told, "c d", policy, places).judge()]
    assert bool(said) == bool(found), said
    assert found is None or found in said[0]


def test_a_copy_that_is_lost_may_be_made_again() -> None:
    movement = settling(["b>c completed", "c>d completed"], "a d", {"strategy": "simple"})
    movement.lose(SHARD, "c")
    assert [*movement.judge()] == []


def test_what_minds_load_is_left_out() -> None:
    told = ["b>c completed", "c>d completed preferred_rule"]
    assert [*settling(told, "a d", {"strategy": "cost"}).judge()] == []


def test_a_change_of_the_fleet_begins_anew() -> None:
    movement = settling(["b>c completed"], "a c", {"strategy": "simple"})
    assert movement.end() == []
    assert (movement.copies, movement.fewest) == (1, 1)
    movement.begin(SHARD, ("a", "c"))
    movement.issue(SHARD, move(2, "c>d issued"))
    movement.end("other")
    assert (movement.copies, movement.fewest) == (1, 1)
