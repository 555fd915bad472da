"""The search that evens out resources, over drawn fleets and beside every possible outcome.

Rules are kept, no node is overfilled on the way, capacity never gets worse, balanced resources do
not leave their bands, bytes are near the least, and what is balanced is left alone.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from placement.model import MoveKind, Resource
from placement.rebalance import (
    ResourcePlan,
    bands_of,
    needs_balance,
    plan_relief,
    plan_resources,
)
from tests.builders.drawn import seeds
from tests.builders.resource_fleets import Fleet, large_fleet, small_fleet
from tests.builders.resource_replay import replay


def over(fleet: Fleet, totals: np.ndarray) -> np.ndarray:
    """What nodes hold above their limits."""
    limits = fleet.limits()
    return np.where(limits < 0, 0, np.maximum(totals - limits, 0))


def check(fleet: Fleet) -> tuple[ResourcePlan, np.ndarray]:
    """A plan whose promises are kept, and the rows after it."""
    before, bands = fleet.totals(), bands_of(fleet.arrangement())
    full = over(fleet, before).any()
    plan = plan_resources(fleet.arrangement())
    rows = replay(fleet, plan)
    after = replace(fleet, rows=rows).totals()
    assert (over(fleet, after) <= over(fleet, before)).all()
    assert over(fleet, after).tolist() == plan.excess.tolist()
    if not full:
        assert (after <= bands.ceiling).all()
        assert (after >= bands.floor).all()
    distance = (bands.over(after) + bands.under(after))[bands.active]
    assert bool(distance.any()) == bool(plan.outside.any())
    if not plan.excess.any() and not plan.outside.any():
        assert plan.bytes >= plan.lower_bound
        assert not plan_resources(fleet.arrangement(rows)).moves
    if not bands.active.any() and not full:
        assert not plan.moves
    assert plan.lower_bound == max(plan.bounds)
    return plan, rows


@pytest.mark.parametrize("seed", seeds(5, first=1_000))
def test_plans_of_small_fleets_keep_their_promises(seed: int) -> None:
    check(small_fleet(seed, led=seed % 2 == 0))


@pytest.mark.parametrize("seed", seeds(4))
def test_plans_of_larger_fleets_keep_their_promises(seed: int) -> None:
    fleet = large_fleet(40, 1_600, 3, seed, empty=4 * (seed % 2), led=seed % 3 == 0)
    plan, rows = check(fleet)
    assert plan.moves
    assert not plan.excess.any() or (fleet.loads.max(axis=1) > fleet.limits().min(axis=1)).any()
    again = plan_resources(fleet.arrangement(rows))
    assert again.bytes <= plan.bytes // 10


def tiny_fleet(seed: int) -> Fleet:
    """Seven shards of one replica on three nodes, each in a rack of its own."""
    rng = np.random.default_rng([seed, 7])
    loads = rng.integers(20, 200, (2, 7))
    rows = rng.choice(3, (7, 1), p=[0.6, 0.3, 0.1])
    resources = (Resource("disk_bytes", 0.9, 0.6), Resource("requests", 0.9, 0.8))
    capacity = np.repeat((loads.sum(axis=1) // 2)[:, None], 3, axis=1)
    return Fleet(resources, loads, rows, np.arange(3), capacity)


def fewest_bytes(fleet: Fleet) -> int | None:
    """The least bytes for the same bands, by trying every outcome; None if there is none."""
    bands, best = bands_of(fleet.arrangement()), None
    for nodes in product(range(3), repeat=len(fleet.rows)):
        rows = np.asarray(nodes)[:, None]
        after = replace(fleet, rows=rows).totals()
        outside = bands.over(after) + bands.under(after) + over(fleet, after)
        if not outside.any():
            spent = int(fleet.loads[0][(rows != fleet.rows).ravel()].sum())
            best = spent if best is None else min(best, spent)
    return best


def test_plans_of_tiny_fleets_are_near_the_fewest_bytes() -> None:
    shares = []
    for seed in seeds(12):
        fleet = tiny_fleet(seed)
        best = fewest_bytes(fleet)
        plan, _ = check(fleet)
        if best:
            assert not plan.outside.any(), seed
            assert plan.bytes <= best * 1.2, seed
            shares.append(plan.bytes / best)
    assert shares
    assert sum(shares) / len(shares) <= 1.05


def racked(
    rows: list[list[int]],
    loads: list[list[int]],
    capacity: list[list[int]],
    *resources: Resource,
    racks: list[int] | None = None,
) -> Fleet:
    """A fleet by hand; every node is a rack of its own unless they are given."""
    given = resources or (Resource("disk_bytes", 1.0),)
    width = len(capacity[0])
    where = np.arange(width) if racks is None else np.asarray(racks)
    return Fleet(given, np.asarray(loads), np.asarray(rows), where, np.asarray(capacity))


def words(plan: ResourcePlan) -> list[str]:
    """Moves as `wave: shard from>to`, those of leaders with a `!`."""
    lead = {MoveKind.LEADER: "!"}
    return [f"{m.wave}: {m.shard}{lead.get(m.kind, '')} {m.remove}>{m.add}" for m in plan.moves]


def test_a_replica_that_covers_the_excess_alone_goes() -> None:
    fleet = racked([[0]] * 4, [[50, 30, 20, 12]], [[100, 100, 80]])
    plan = plan_relief(fleet.arrangement())
    assert (words(plan), plan.bytes, plan.lower_bound) == (["0: 3 0>1"], 12, 12)


def test_several_replicas_go_if_they_cover_the_excess_with_less() -> None:
    fleet = racked([[0]] * 5, [[90, 60, 8, 5, 40]], [[190, 200, 200]])
    plan = plan_relief(fleet.arrangement())
    assert sorted(words(plan)) == ["0: 2 0>1", "0: 3 0>2"]
    assert plan.bytes == plan.lower_bound == 13


def test_large_replicas_do_not_all_go_to_one_node() -> None:
    fleet = racked([[0]] * 3, [[60, 60, 60]], [[70, 200, 190]])
    plan = plan_relief(fleet.arrangement())
    assert sorted(move.add for move in plan.moves) == [1, 2]


def test_a_node_makes_room_where_no_other_is_lawful() -> None:
    """Shard 0 may leave node 0 for node 2 only, which is too full for it at first."""
    fleet = racked(
        [[0, 1], [2, 3], [0, 3]],
        [[40, 30, 20]],
        [[50, 60, 60, 200, 100]],
        racks=[0, 1, 2, 1, 1],
    )
    plan = plan_relief(fleet.arrangement())
    replay(fleet, plan)
    assert not plan.excess.any()


def test_relief_waits_for_the_room_that_another_move_makes() -> None:
    fleet = racked([[0], [0], [1]], [[50, 60, 70]], [[80, 100, 75]], racks=[0, 0, 0])
    plan = plan_relief(fleet.arrangement())
    rows = replay(fleet, plan)
    assert not over(fleet, replace(fleet, rows=rows).totals()).any()


def test_what_no_node_can_take_stays_and_is_told() -> None:
    fleet = racked([[0], [0]], [[50, 60]], [[80, 40]])
    plan = plan_relief(fleet.arrangement())
    assert (plan.moves, plan.excess.tolist()) == ((), [[30, 0]])


def test_leadership_relieves_without_a_copy() -> None:
    fleet = racked(
        [[0, 1], [0, 1], [0, 1]],
        [[10, 10, 10], [40, 30, 20]],
        [[100, 100], [60, 100]],
        Resource("disk_bytes", 1.0, 0.1),
        Resource("requests", 1.0, None, led=True),
    )
    plan = plan_relief(fleet.arrangement())
    assert (words(plan), plan.bytes) == (["0: 1! 0>1"], 0)


BALANCED = Resource("disk_bytes", None, 0.2)


def test_balance_begins_outside_the_band_and_ends_well_inside() -> None:
    sizes = [[6, 6, 6, 6, 1, 1, 1, 1, 6, 6, 6]]
    wavering = racked([[0]] * 6 + [[1]] * 5, sizes, [[100, 100]], BALANCED)
    held = wavering.totals()[0]
    assert held.tolist() == [26, 20]
    assert needs_balance(wavering.arrangement()) == ()
    assert not plan_resources(wavering.arrangement()).moves
    outside = racked(
        [[0]] * 7 + [[1]] * 4, [[6, 6, 6, 6, 1, 1, 1, 1, 6, 6, 6]], [[100, 100]], BALANCED
    )
    outside.rows[8] = 0
    assert needs_balance(outside.arrangement()) == (0,)
    plan, rows = check(outside)
    after = replace(outside, rows=rows).totals()[0]
    assert abs(after - 23).max() <= 2
    assert plan.bytes == plan.lower_bound or plan.bytes <= plan.lower_bound + 2


def test_small_shards_are_not_moved_for_balance() -> None:
    sizes = [[1] * 30 + [9] * 6]
    rows = [[0]] * 36
    fleet = racked(rows, sizes, [[5_000, 5_000]], BALANCED)
    moved = {move.shard for move in plan_resources(fleet.arrangement()).moves}
    assert moved
    assert min(moved) >= 30


def test_dwelling_replicas_stay_and_none_goes_back() -> None:
    fleet = racked([[0]] * 6 + [[1]] * 2, [[10] * 8], [[100, 100]], BALANCED)
    free = plan_resources(fleet.arrangement())
    assert len(free.moves) == 2
    moved = [move.shard for move in free.moves]
    dwelling = [(shard, 0) for shard in moved]
    again = plan_resources(fleet.arrangement(dwelling=dwelling))
    assert not {move.shard for move in again.moves} & set(moved)
    back = plan_resources(fleet.arrangement(forbidden=[(shard, 1) for shard in range(6)]))
    assert not back.moves


def test_dwelling_replicas_leave_an_overfull_node_where_nothing_else_helps() -> None:
    fleet = racked([[0]] * 2, [[50, 60]], [[80, 100]])
    plan = plan_relief(fleet.arrangement(dwelling=[(0, 0), (1, 0)]))
    assert not plan.excess.any()


def test_nodes_without_a_capacity_take_any_amount_and_are_not_balanced() -> None:
    fleet = racked([[0]] * 4, [[50, 30, 20, 12]], [[100, -1]])
    assert words(plan_relief(fleet.arrangement())) == ["0: 3 0>1"]
    alone = racked([[0]] * 4, [[50, 30, 20, 12]], [[100, -1]], BALANCED)
    assert not plan_resources(alone.arrangement()).moves


def test_nothing_to_plan_is_planned() -> None:
    none = Fleet(
        (), np.zeros((0, 2), int), np.asarray([[0], [1]]), np.arange(2), np.zeros((0, 2), int)
    )
    assert not plan_resources(none.arrangement()).moves
