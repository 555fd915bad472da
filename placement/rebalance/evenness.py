"""Evens out streams that have just been placed, as rebalancing would do later.

A strategy that chooses one node after the other can end where one replica more or less on a node
would be more even. The search of rebalancing goes over the new stream's replicas, then over its
leaders, by the same objective, so that rebalancing finds nothing to do later. Streams placed in
bulk are exact already (`placement.allocator.apportion`).

Streams placed one after the other can still be uneven together: with one node in /a and five in /b,
a stream with one copy puts a sixth of its shards into /a, and a later stream with two copies fills
/a. A caller that places many streams at once calls `even_out_all` for all of them; a stream that
has been published stays where it is.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from placement.allocator import Placement, View
from placement.assignments import EMPTY, stack_lists
from placement.model import MoveKind, StreamSpec
from placement.policy import Balance, Policy
from placement.rebalance.arrangement import Arrangement, StreamArrangement, balance_of
from placement.rebalance.leader_moves import LeaderBalancer
from placement.rebalance.move_pairs import search_moves
from placement.rebalance.planner import plan_rebalance
from placement.rebalance.replica_moves import Budget, ReplicaBalancer
from placement.rebalance.rule_gate import RuleGate
from placement.strategies import STRATEGIES

# Replicas up to which a stream is gone over: a search over more takes longer than placing them did.
REPLICAS_MAX = 3_000


def even_out_stream(placed: Placement, spec: StreamSpec, policy: Policy, view: View) -> Placement:
    """Even out a placement among the nodes of a view that already counts it.

    Updates the loads and leaders of the view. Returns the placement unchanged if its strategy has
    another order of balance, if it has more than `REPLICAS_MAX` replicas, or if resources are
    counted, which decide about evenness then.
    """
    rows, _ = stack_lists(placed.shards)
    balanced = balance_of(policy) is Balance.TOTALS_FIRST and view.loads is None
    if not balanced or rows.size > REPLICAS_MAX or not (rows != EMPTY).any():
        return placed
    ranks = np.append(view.topology.order(), EMPTY)
    rules = STRATEGIES[policy.strategy].rules(policy, view.topology.for_diagnosis())
    fresh = replace(spec, repair=None)  # nothing is copied yet
    stream = StreamArrangement(
        fresh, policy, rules, np.arange(len(rows)), ranks[rows].astype(np.int64)
    )
    arrangement = Arrangement(view, only=stream)
    gate, budget = RuleGate(arrangement), Budget()
    search = ReplicaBalancer(arrangement, gate, budget)
    search_moves(search)
    leaders = LeaderBalancer(arrangement, gate, budget, set())
    leaders.run()
    if not search.steps and not leaders.steps:
        return placed
    found = np.append(arrangement.levels.nodes, EMPTY)[stream.rows]
    _recount(rows, found, view)
    return Placement(_to_lists(found, placed.shards), placed.reasons, placed.warnings)


def even_out_all(view: View, kept: Collection[int]) -> set[int]:
    """Even out all streams of a view, except the shards `kept` (by index).

    For streams of which nothing has been copied yet. Changes the view's table; returns the indexes
    of the changed shards: none where resources are counted.
    """
    changed: set[int] = set()
    if view.loads is not None:
        return changed
    while moves := plan_rebalance(view, moving=kept).moves:
        for move in moves:
            if move.kind is MoveKind.LEADER:
                view.table.swap(move.shard, 0, move.slot)
            else:
                view.table.set(move.shard, move.slot, move.add)
        changed.update(move.shard for move in moves)
    return changed


def _recount(before: np.ndarray, after: np.ndarray, view: View) -> None:
    """Update the view's loads and leaders from the rows before to the rows after."""
    for rows, more in ((before, -1), (after, 1)):
        for node in rows[(before != after) & (rows != EMPTY)].tolist():
            view.add(node) if more > 0 else view.remove(node)
        leads = rows[:, 0][rows[:, 0] != EMPTY]
        view.leaders = view.leaders + more * np.bincount(leads, minlength=len(view.leaders))


def _to_lists(found: np.ndarray, shape: Sequence[Sequence[int]]) -> list[list[int]]:
    return [row[: len(nodes)] for row, nodes in zip(found.tolist(), shape, strict=True)]
