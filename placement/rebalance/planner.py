"""Rebalancing: the moves that even out what is placed, without breaking what places it.

A pure planner: what it returns is a function of the arrangement, and nothing when that is balanced.
Only eligible nodes give and take. Repair comes first: call it when nothing that can be repaired is
waiting.

The goal is that of placing with `spread`: on every level all replicas lie within one of their
shares by weight, as far as the diversity of each shard allows; then, as far as that allows, those
of each stream are near theirs; then leaders. Strategies that follow a source with another order say
so in `balance` (`placement.policy.Balance`): their streams are even before all replicas are, which
is Kudu's order, or stay where they are. Kudu moves between locations only where a table's replicas
*per server* differ by more than 1.0, which leaves a location of 100 servers a hundred replicas too
many, and never looks at the total there; it picks servers by their total, which may hold nothing of
the table, and gives up when the worst table cannot be moved. Here a share lies between two whole
numbers on every level, and each stream is looked at by itself; Kudu's own cases agree with it.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from placement.allocator import View
from placement.model import Code, MoveKind, Reason
from placement.rebalance.arrangement import ALL, LATER, OWN, Arrangement, Replica
from placement.rebalance.leader_moves import EVERY, LeaderBalancer
from placement.rebalance.merge_moves import merge_moves
from placement.rebalance.move_pairs import search_moves
from placement.rebalance.replica_moves import Budget, ReplicaBalancer
from placement.rebalance.rule_gate import RuleGate


@dataclass(frozen=True, slots=True)
class RebalanceMove:
    """A move of a replica or of leadership; shards and nodes by index.

    - `kind` REPLACE: the replica in `slot` goes from node `remove` to node `add`.
    - `kind` LEADER: the replica on `add`, in `slot`, changes places with the one on `remove`, which
      leads. No data moves.
    - `step`: moves with the same number improve only together: those of a slot of a colocated
      stream, an exchange of two replicas, the links of a chain of leaders.
    """

    kind: MoveKind
    shard: int
    slot: int
    remove: int
    add: int
    reason: Reason
    step: int = 0


@dataclass(frozen=True, slots=True)
class Skew:
    """Unevenness of one level inside the worst domain of the level above; at most 1 if balanced.

    Between domains of equal weight the largest difference in replicas, otherwise the largest
    distance from the share by weight, rounded up.

    - `stream`: of one stream's (or range's) replicas.
    - `total`: of all replicas.
    - `leaders`: of all leaders.
    """

    level: str
    stream: int
    total: int
    leaders: int


@dataclass(frozen=True, slots=True)
class RebalancePlan:
    """The moves in the order in which they are made, leaders last, with their effect.

    - `lower_bound`: the fewest replicas that have to move between the loads before and after,
      stream by stream.
    - `before`, `after`: one `Skew` per level, top first, nodes last.
    - `kept`: streams that stay as they are, with the reason.
    - `limited`: whether a limit kept moves out of the plan, so that the next plan has more.
    """

    moves: tuple[RebalanceMove, ...]
    lower_bound: int
    before: tuple[Skew, ...]
    after: tuple[Skew, ...]
    kept: tuple[tuple[str, Reason], ...] = ()
    limited: bool = False


def plan_rebalance(
    view: View,
    *,
    moving: Collection[int] = (),
    dwelling: Collection[Replica] = (),
    max_moves: int | None = None,
    max_moves_per_node: int | None = None,
    one_per_shard: bool = False,
    leads_along: bool = False,
    leader_stays: Collection[int] = (),
) -> RebalancePlan:
    """Plan the moves that make the view's arrangement balanced.

    - `view`: its table has open moves as completed.
    - `moving`: shards (by index) with an open move, which get no other.
    - `dwelling`: replicas (shard and node by index) that stay; other replicas of the shard may
      move, and who leads it may change.
    - `max_moves`, `max_moves_per_node` (in plus out): limits on moves of replicas; a change of
      leader copies nothing and is not limited.
    - `one_per_shard`: a shard gets one move of any kind; the next plan has the rest.
    - `leads_along`: if all streams have totals first, a shard's leader may change with its move.
    - `leader_stays`: shards (by index) whose replicas keep their order.
    """
    arrangement = Arrangement(view, moving, dwelling=dwelling)
    gate = RuleGate(arrangement)
    before = _skews(arrangement, LeaderBalancer(arrangement, gate, Budget(), set()))
    leads_along = leads_along and all(each.totals_first for each in arrangement.streams)
    budget = Budget(max_moves, max_moves_per_node, one_per_shard, leads_along)
    moves: list[RebalanceMove] = []
    while True:
        for number, step in _improvements(arrangement, gate, budget):
            first = moves[-1].step + 1 if moves else 0
            moves += _replica_moves(arrangement, *step, first - number)
        leaders = LeaderBalancer(arrangement, gate, budget, {*moving, *leader_stays})
        # While replicas are to follow, leaders wait for them.
        if leads_along or not (budget.reached and moves):
            leaders.run()
        for index, change in enumerate(leaders.steps):
            link = leaders.chains.get(index)
            first = moves[-1].step + (not link or not link[0]) if moves else 0
            moves.append(_leader_move(arrangement, *change, first, link and link[1:]))
        if not (leaders.steps and gate.leader_matters):
            break
    return RebalancePlan(
        tuple(moves),
        _fewest_moves(arrangement),
        before,
        _skews(arrangement, leaders),
        tuple(arrangement.kept.items()),
        budget.reached,
    )


def _improvements(
    arrangement: Arrangement, gate: RuleGate, budget: Budget
) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Generate the moves of items, merged where that is shorter.

    The first value is 1 for a move that belongs to the move before it, else 0.
    """
    search = ReplicaBalancer(arrangement, gate, budget)
    search_moves(search)
    steps = merge_moves(arrangement, search)
    swaps = search.swaps
    if steps is not search.steps:
        again = ReplicaBalancer(arrangement, gate, budget)
        search_moves(again)
        swaps = {len(steps) + index for index in again.swaps}
        steps = steps + again.steps
    for index, step in enumerate(steps):
        yield int(index - 1 in swaps), step


def _replica_moves(
    arrangement: Arrangement, item: int, source: int, target: int, step: int
) -> Iterator[RebalanceMove]:
    """Yield the moves of an item, one for each of its shards."""
    ids, nodes = arrangement.topology.ids, arrangement.levels.nodes
    remove, add = int(nodes[source]), int(nodes[target])
    message = f"node {ids[remove]} holds more than its share, node {ids[add]} less"
    reason = Reason(Code.LOAD_UNEVEN, message)
    for shard in arrangement.table_shards(item):
        slot = int(arrangement.slot[item])
        yield RebalanceMove(MoveKind.REPLACE, shard, slot, remove, add, reason, step)


def _fewest_moves(arrangement: Arrangement) -> int:
    """Count the fewest replicas that have to move: each family's surplus on each node."""
    result, size = 0, len(arrangement.eligible)
    for kind in (OWN, LATER):
        families = arrangement.family[kind]
        for family in np.unique(families[arrangement.moved & (families >= 0)]).tolist():
            items = np.flatnonzero(families == family)
            surplus = np.bincount(arrangement.start[items], minlength=size)
            surplus -= np.bincount(arrangement.node[items], minlength=size)
            result += int(surplus[surplus > 0].sum())
    return result


def _leader_move(
    arrangement: Arrangement,
    shard: int,
    slot: int,
    source: int,
    target: int,
    step: int,
    ends: tuple[int, int] | None,
) -> RebalanceMove:
    """Make the move for a change of leader; `ends` are those of its chain, if any."""
    ids, nodes = arrangement.topology.ids, arrangement.levels.nodes
    remove, add = int(nodes[source]), int(nodes[target])
    most, least = (remove, add) if ends is None else (int(nodes[end]) for end in ends)
    message = f"node {ids[most]} leads more than its share, node {ids[least]} less"
    if ends is not None:
        message += f"; {ids[remove]} passes the lead on to {ids[add]}"
    reason = Reason(Code.LOAD_UNEVEN, message)
    return RebalanceMove(MoveKind.LEADER, shard, slot, remove, add, reason, step)


def _skews(arrangement: Arrangement, leaders: LeaderBalancer) -> tuple[Skew, ...]:
    names = arrangement.levels.names[1:]
    first, after, every, leads = (
        tally.skews()
        for tally in (*(arrangement.tallies[k] for k in (OWN, LATER, ALL)), leaders.tallies[EVERY])
    )
    rows = zip(names, map(max, first, after), every, leads, strict=True)
    return tuple(Skew(*row) for row in rows)
