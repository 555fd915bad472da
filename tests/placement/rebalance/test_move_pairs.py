"""Pairs of moves where rules let no single one through: over a third node, or two replicas at once.

Goal: loads end as even with a rule as the third node allows, each move is lawful when its turn
comes, and no pair is made that does not improve. Method: a worked example, and random fleets whose
racks and power feeds cross.
"""

import random
from itertools import groupby

import pytest

from placement.model import MoveKind
from placement.rebalance.move_pairs import MovePairs
from tests.builders.arrangements import Arrangement, arrangement
from tests.builders.drawn import seeds

POWER = {"strategy": "simple", "rules": [{"at_most": 1, "per": "tag:power"}]}


def feeds(words: str, rows: list[list[str]]) -> Arrangement:
    """`words`: a power feed for n0, n1, and so on; one stream, apart by feed."""
    made = arrangement()
    for number, feed in enumerate(words):
        made.node(f"n{number}", tags=(("power", feed),))
    made.stream("s", rows, POWER)
    return made


def spread(made: Arrangement) -> int:
    """Squared distances from the share, as the planner counts them."""
    held = made.counts().values()
    least, most = sum(held) // len(held), -(-sum(held) // len(held))
    return sum(max(count - most, least - count, 0) ** 2 for count in held)


def crossing(seed: int) -> Arrangement:
    rng = random.Random(seed)
    words = [rng.choice("pqr") for _ in range(rng.randint(4, 7))] + ["p", "q"]
    rows = []
    for _ in range(rng.randint(3, 10)):
        one = rng.randrange(len(words))
        others = [node for node, feed in enumerate(words) if feed != words[one]]
        rows.append([f"n{one}", f"n{rng.choice(others)}"])
    return feeds("".join(words), rows)


def test_a_replica_comes_for_one_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found among random fleets: without a pair one node ends a replica short."""
    words = "pqqrpp"
    rows = [
        ["n4", "n3"], ["n2", "n4"], ["n1", "n3"], ["n4", "n2"], ["n3", "n1"], ["n2", "n4"],
    ]  # fmt: skip
    made = feeds(words, rows)
    plan = made.plan()
    steps = [move.step for move in plan.moves if move.kind is MoveKind.REPLACE]
    assert len(steps) - len(set(steps)) == 1
    made.apply(plan.moves)
    assert spread(made) == 0
    assert not made.plan().moves
    monkeypatch.setattr(MovePairs, "improve", lambda _: False)
    alone = feeds(words, rows)
    alone.apply(alone.plan().moves)
    assert spread(alone) == 2


def test_what_a_pair_moves_again_goes_straight_in_the_end() -> None:
    """The search sends a replica of the first shard from n1 to n0 and, in a pair, on to n3."""
    rows = [
        ["n1", "n4"], ["n3", "n2"], ["n1", "n2"], ["n1", "n2"], ["n4", "n5"], ["n5", "n2"],
    ]  # fmt: skip
    made = feeds("qrprpr", rows)
    plan = made.plan()
    replaced = [move for move in plan.moves if move.kind is MoveKind.REPLACE]
    assert len(replaced) == plan.lower_bound == 3
    made.apply(plan.moves)
    assert spread(made) == 0


@pytest.mark.parametrize("seed", seeds(40))
def test_pairs_are_lawful_and_improve(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made, alone = crossing(seed), crossing(seed)
    plan = made.plan()
    for _, step in groupby(plan.moves, lambda move: move.step):
        before = spread(made)
        for move in step:
            made.apply([move])
            assert not any(made.broken(move.shard).values())
        assert move.kind is MoveKind.LEADER or spread(made) < before
    assert not made.plan().moves
    replaced = [move for move in plan.moves if move.kind is MoveKind.REPLACE]
    assert plan.lower_bound <= len(replaced)
    monkeypatch.setattr(MovePairs, "improve", lambda _: False)
    alone.apply(alone.plan().moves)
    assert spread(made) <= spread(alone)
