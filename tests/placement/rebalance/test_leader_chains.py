"""Leaders that are evened out over nodes between, where no single change helps.

Goal: leaders end as even as the replicas allow, and a chain is one step that improves. Method:
worked examples, and tiny fleets against every way to choose leaders.
"""

import random
from collections import Counter
from itertools import groupby, product

import pytest

from placement.model import MoveKind
from tests.builders.arrangements import Arrangement, arrangement
from tests.builders.drawn import seeds


def leaders(made: Arrangement, name: str | None = None) -> Counter[str]:
    """Shards that each node leads."""
    found = Counter(dict.fromkeys(made.topology.ids, 0))
    for spec, shards in zip(made.specs, made.shards, strict=True):
        for shard in shards:
            if name in (None, spec.stream):
                found[made.topology.ids[made.table.nodes(shard)[0]]] += 1
    return found


def test_a_chain_is_one_step_and_says_what_it_is_for() -> None:
    made = arrangement([(name, "") for name in "abcd"])
    made.stream("s", [["a", "b"], ["a", "b"], ["b", "c"], ["c", "d"]])
    plan = made.plan(max_moves=0)
    links = [move for move in plan.moves if move.kind is MoveKind.LEADER]
    ids = made.topology.ids
    assert [(ids[move.remove], ids[move.add]) for move in links] == [
        ("c", "d"), ("b", "c"), ("a", "b"),
    ]  # fmt: skip
    assert len({move.step for move in links}) == 1
    assert links[1].reason.message == (
        "node a leads more than its share, node d less; b passes the lead on to c"
    )
    made.apply(plan.moves)
    assert set(leaders(made, "s").values()) == {1}
    assert not made.plan(max_moves=0).moves


def test_a_chain_asks_the_rules_of_every_link() -> None:
    """c may not lead s: there is no other way from a to d."""
    made = arrangement([(name, f"/{name}") for name in "abcd"])
    policy = {"strategy": "simple", "rules": [{"leader_in": ["/a", "/b", "/d"]}]}
    made.stream("s", [["a", "b"], ["a", "b"], ["b", "c"], ["c", "d"]], policy)
    before = leaders(made)
    made.apply(made.plan(max_moves=0).moves)
    assert leaders(made)["c"] <= before["c"]
    barred = arrangement([(name, "") for name in "abd"])
    barred.node("c", leader=False)
    barred.stream("s", [["a", "b"], ["a", "b"], ["b", "c"], ["d", "c"]])
    barred.apply(barred.plan(max_moves=0).moves)
    assert leaders(barred) == {"a": 2, "b": 1, "c": 0, "d": 1}


@pytest.mark.parametrize("seed", seeds(30))
def test_leaders_are_as_even_as_the_replicas_allow(seed: int) -> None:
    rng = random.Random(seed)
    names = "abcdef"[: rng.randint(3, 6)]
    made = arrangement([(name, "") for name in names])
    factor = rng.randint(2, 3)
    rows = [rng.sample(names, factor) for _ in range(rng.randint(2, 7))]
    made.stream("s", rows)
    before = leaders(made)
    plan = made.plan(max_moves=0)
    for _, step in groupby(plan.moves, lambda move: move.step):
        made.apply(step)
        after = leaders(made)
        assert _spread(after, names) < _spread(before, names)
        before = after
    best = min(
        _spread(Counter(chosen), names) for chosen in product(*(sorted(row) for row in rows))
    )
    assert _spread(before, names) == best


def _spread(led: Counter[str], names: str) -> int:
    """Squared distances from the share, as the planner counts them."""
    least, most = sum(led.values()) // len(names), -(-sum(led.values()) // len(names))
    return sum(max(led[name] - most, least - led[name], 0) ** 2 for name in names)


def test_a_chain_in_total_makes_no_stream_less_even() -> None:
    """Over two streams: each has its leaders even, and all together they are not."""
    made = arrangement([(name, "") for name in "abc"])
    for name, row in (("s", ["a", "b"]), ("t", ["a", "b"]), ("u", ["b", "c"])):
        made.stream(name, [row])
    made.apply(made.plan(max_moves=0).moves)
    assert set(leaders(made).values()) == {1}
    for name in "stu":
        assert max(leaders(made, name).values()) == 1
