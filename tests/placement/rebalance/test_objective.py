"""One objective for placing and for rebalancing, over random fleets, seeded.

Goal: what `spread` has just placed is not moved where all streams may use all nodes; where some are
pinned only totals become more even, no step makes an earlier term worse, and a plan leaves nothing
to the next. A node that joins or leaves moves no more replicas than it has to.
"""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from placement.assignments import EMPTY
from placement.model import Liveness, MoveKind, Outcome, StreamSpec
from placement.planning import PlanPhase, StreamSnapshot, plan
from placement.policy import Policy, compile_policy
from placement.rebalance import RebalanceMove
from placement.strategies import STRATEGIES
from placement.streams.decision import place_in
from tests.builders.arrangements import Arrangement, arrangement
from tests.builders.drawn import seeds
from tests.builders.naive_objective import objective, steps

SHARDS = (1, 2, 3, 5, 8, 13, 21, 40, 150)


def places(rng: random.Random, tiers: int, even: bool) -> list[str]:
    """The location of every node, over so many tiers."""
    found = [""]
    for tier in range(tiers):
        width = rng.randint(2, 4 - (tier > 1))
        found = [
            f"{place}/{tier}{n}"
            for place in found
            for n in range(width if even else rng.randint(1, 3))
        ]
    per = rng.randint(1, 3)
    return [place for place in found for _ in range(per if even else rng.randint(1, 4))]


def fleet(rng: random.Random, even: bool, weights: bool) -> Arrangement:
    made = arrangement()
    for number, place in enumerate(places(rng, rng.randint(1, 3), even)):
        weight = rng.choice((1.0, 1.0, 2.0, 3.0)) if weights else 1.0
        disk = rng.choice(("ssd", "hdd"))
        made.node(f"n{number}", place, tags=(("disk", disk),), weight=weight)
    return made


def pinned(rng: random.Random, made: Arrangement) -> dict[str, Any]:
    """A policy that admits some nodes only, as often as not."""
    ids = [*made.topology.ids]
    tops = sorted({f"/{str(place).split('/')[1]}" for place in made.topology.locations})
    nodes = rng.sample(ids, min(len(ids), rng.randint(3, 8)))
    where = {"within": [rng.choice(tops)]}, {"avoid": [rng.choice(tops)]}, {"nodes": nodes}
    pin = rng.choice((*where, {"with_tags": {"disk": "ssd"}}))
    return {"strategy": "spread", **(pin if rng.random() < 0.6 else {})}


def place(made: Arrangement, name: str, shards: int, factor: int, asked: dict[str, Any]) -> None:
    """Place one more stream, if the fleet has room for all of it."""
    policy = compile_policy(None, asked, asked, made.topology, STRATEGIES)
    assert isinstance(policy, Policy), policy
    answer = place_in(made.view, StreamSpec(name, shards, factor, asked), policy)
    if answer.outcome in (Outcome.PLACED, Outcome.DEGRADED):
        ids = made.topology.ids
        rows = [[ids[node] for node in nodes] for nodes in answer.shards]
        assert all(EMPTY not in nodes for nodes in answer.shards)
        made.stream(name, rows, asked)


def filled(seed: int, even: bool = True, weights: bool = False, pins: bool = False) -> Arrangement:
    """A fleet and what was placed on it, stream after stream."""
    rng = random.Random(f"{seed} {even} {weights} {pins}")
    made = fleet(rng, even, weights)
    for number in range(rng.randint(1, 5)):
        asked = pinned(rng, made) if pins else {"strategy": "spread"}
        place(made, f"s{number}", rng.choice(SHARDS), rng.randint(1, 5), asked)
    return made


def copies(moves: tuple[RebalanceMove, ...]) -> int:
    return sum(move.kind is MoveKind.REPLACE for move in moves)


@pytest.mark.parametrize("seed", seeds(40))
def test_what_was_just_placed_is_not_moved(seed: int) -> None:
    made = filled(seed)
    assert copies(made.plan().moves) == 0, made.words(made.plan().moves)


def totals(terms: list[int]) -> list[int]:
    """Of the objective's terms those of all replicas together, level by level."""
    levels = len(terms) // 4
    return [terms[3 * level + 2] for level in range(levels)]


KINDS = ((False, False, False), (True, True, False), (True, False, True), (False, True, True))


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("kind", KINDS)
def test_pins_weights_and_uneven_tiers_move_only_what_makes_totals_more_even(
    seed: int, kind: tuple[bool, bool, bool]
) -> None:
    made = filled(seed, *kind)
    found = made.plan()
    before = objective(made)
    for step in steps(found.moves):
        if step[0].kind is MoveKind.LEADER:
            break
        broken = {move.shard: made.broken(move.shard) for move in step}
        made.apply(step)
        now = objective(made)
        assert now < before, made.words(step)
        assert totals(now) <= totals(before), made.words(step)
        before = now
        for move in step:
            after = made.broken(move.shard)
            assert all(after[place] <= broken[move.shard][place] for place in after)
    rest = [move for move in found.moves if move.kind is MoveKind.LEADER]
    made.apply(rest)
    assert not made.plan().moves, made.words(made.plan().moves)


def joined(made: Arrangement, rng: random.Random) -> None:
    """A node comes to where others stand."""
    place = str(rng.choice(made.topology.locations))
    made.node("new", place, tags=(("disk", "ssd"),))


@pytest.mark.parametrize("seed", seeds(30))
def test_a_join_moves_no_more_than_the_new_loads_take(seed: int) -> None:
    made = filled(seed)
    before = Counter(made.counts())
    joined(made, random.Random(seed))
    found = made.plan()
    made.apply(found.moves)
    more = Counter(made.counts())
    more.subtract(before)
    fewest = sum(count for count in more.values() if count > 0)
    assert copies(found.moves) == fewest
    assert not copies(made.plan().moves)


def standings(made: Arrangement) -> Iterator[StreamSnapshot]:
    for spec, policy, shards in zip(made.specs, made.policies, made.shards, strict=True):
        yield StreamSnapshot(spec, policy, [made.table.nodes(shard) for shard in shards])


@pytest.mark.parametrize("seed", seeds(15))
def test_a_leave_copies_what_was_lost(seed: int) -> None:
    made = filled(seed)
    topology = made.topology
    gone = random.Random(seed).randrange(topology.size)
    topology.upsert(topology.ids[gone], topology.attributes[gone], Liveness.DEAD)
    lost = made.counts()[topology.ids[gone]]
    found = plan(topology, [*standings(made)], PlanPhase.REPAIR)
    added = sum(move.add is not None for move in found.moves)
    left = {(violation.stream, violation.shard) for violation in found.left}
    assert added == lost - len(left)
