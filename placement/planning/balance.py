"""Plans one wave of a rebalance: by resources where any asks for moves, else by replicas.

The search for resources orders its moves so that no node is overfilled on the way; of its waves a
plan has the first, and the next plan the rest.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby

from placement.allocator import View
from placement.model import MoveKind
from placement.rebalance import (
    RebalanceMove,
    RebalancePlan,
    ResourceRebalance,
    plan_rebalance,
    plan_view_resources,
)


@dataclass(frozen=True, slots=True)
class Balance:
    """Moves of one wave; `bytes_lower_bound`: the fewest bytes that do as much as all waves.

    None where resources ask for nothing.
    """

    plan: RebalancePlan
    bytes_lower_bound: int | None = None


def plan_balance(
    view: View,
    moving: Collection[int],
    max_moves: int | None,
    max_moves_per_node: int | None,
) -> Balance:
    """Plan the moves that relieve nodes and even out what a view counts, at most one a shard.

    The bounds are those of `plan_rebalance`.
    """
    resources = () if view.loads is None else view.loads.resources
    balanced = any(each.balance is not None for each in resources)
    if balanced or any(each.capacity is not None for each in resources):
        found = plan_view_resources(view, moving=moving)
        if found.moves or balanced:
            moves = select_steps(first_wave(found), max_moves, max_moves_per_node)
            limited = len(moves) < len(found.moves)
            copies = sum(move.kind is not MoveKind.LEADER for move in moves)
            plan = RebalancePlan(tuple(moves), copies, (), (), found.kept, limited)
            return Balance(plan, found.plan.lower_bound)
    return Balance(
        plan_rebalance(
            view,
            moving=moving,
            max_moves=max_moves,
            max_moves_per_node=max_moves_per_node,
            one_per_shard=True,
            leads_along=True,
        )
    )


def first_wave(found: ResourceRebalance) -> list[RebalanceMove]:
    """List the moves that may be made at once; others may need the room that these make."""
    return [move for move in found.moves if found.waves[move.step] == found.waves[0]]


def select_steps(
    moves: Sequence[RebalanceMove],
    max_moves: int | None = None,
    max_moves_per_node: int | None = None,
) -> list[RebalanceMove]:
    """Select the steps that limits allow, one for each shard; changes of leaders copy nothing."""
    kept: list[RebalanceMove] = []
    touched, shards, copies = Counter[int](), set[int](), 0
    for _, group in groupby(moves, key=lambda move: move.step):
        step = [*group]
        copied = [move for move in step if move.kind is not MoveKind.LEADER]
        ends = Counter(node for move in copied for node in (move.remove, move.add))
        fits = max_moves is None or copies + len(copied) <= max_moves
        if max_moves_per_node is not None:
            fits &= all(touched[node] + ends[node] <= max_moves_per_node for node in ends)
        if not fits or not shards.isdisjoint(move.shard for move in step):
            continue
        touched += ends
        copies += len(copied)
        shards.update(move.shard for move in step)
        kept += step
    return kept
