"""Plans the moves for a view: capacities and bands of resources, under the rules of its streams.

Brings the view into the columns of the search, answers the search's questions about rules, and
names the moves. A colocated stream moves slot by slot and counts as one large shard.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from placement.allocator import View
from placement.model import Code, Reason
from placement.rebalance.arrangement import Arrangement, Replica, StreamArrangement
from placement.rebalance.planner import RebalanceMove
from placement.rebalance.resource_arrangement import (
    Integers,
    ItemColumns,
    NodeColumns,
    ResourceArrangement,
)
from placement.rebalance.resource_order import ResourceMove
from placement.rebalance.resource_search import ResourcePlan, plan_relief, plan_resources
from placement.rebalance.rule_gate import RuleGate
from placement.rules import Mask, NodeLoads, RuleSet


@dataclass(frozen=True, slots=True)
class ResourceRebalance:
    """Moves in their order, with the search's plan by numbers.

    - `waves`: the wave of each step.
    - `nodes`: the index in the topology of each of the plan's nodes.
    - `kept`: streams that stay as they are, with the reason.
    """

    moves: tuple[RebalanceMove, ...]
    waves: tuple[int, ...]
    plan: ResourcePlan
    nodes: Integers
    kept: tuple[tuple[str, Reason], ...] = ()


def plan_view_resources(
    view: View,
    *,
    moving: Collection[int] = (),
    dwelling: Collection[Replica] = (),
    forbidden: Collection[Replica] = (),
    leader_stays: Collection[int] = (),
    relief_only: bool = False,
    quick: bool = False,
) -> ResourceRebalance:
    """Plan the moves that relieve nodes and bring those that are balanced into their bands.

    - `view`: counts resources; its table has open moves as completed.
    - `moving`: shards (by index) with an open move, which get no other.
    - `dwelling`: replicas that are not moved for balance; `forbidden`: places (shard and node by
      index) that a replica has left a short time ago.
    - `leader_stays`: shards (by index) whose replicas keep their order.
    - `relief_only`: nodes above their limits are relieved, nothing is balanced.
    - `quick`: see `plan_resources`.
    """
    known = view, moving, dwelling, forbidden, leader_stays
    columns = _Columns(*known)
    plan = plan_relief(columns.found) if relief_only else plan_resources(columns.found, quick=quick)
    if plan.excess.any():
        # What fits is required: wishes give way to it where there is no other way.
        forced = _Columns(*known, required_only=True)
        relief = plan_relief(forced.found)
        if relief.excess.sum() < plan.excess.sum():
            columns, plan = forced, relief
    moves = tuple(
        named for step, move in enumerate(plan.moves) for named in columns.name(move, step)
    )
    waves = tuple(move.wave for move in plan.moves)
    kept = tuple(columns.arrangement.kept.items())
    return ResourceRebalance(moves, waves, plan, columns.arrangement.levels.nodes, kept)


class _ViewGate:
    """Answers for the rules of streams, the filters of policies and the nodes' room in replicas."""

    def __init__(
        self, arrangement: Arrangement, leader_stays: Collection[int], required_only: bool
    ) -> None:
        self._arrangement, self._leader_stays = arrangement, frozenset(leader_stays)
        self._gate = RuleGate(arrangement, required_only)

    def allows_move(self, item: int, target: int) -> bool:
        """Return whether policy, rules and the room for replicas let the item go to the node."""
        arrangement = self._arrangement
        admitted = arrangement.admitted[arrangement.kind[arrangement.stream[item]], target]
        size = int(arrangement.size[item])
        if not admitted or not arrangement.has_room(np.asarray([target]), size)[0]:
            return False
        return self._gate.allows_move(item, target)

    def allows_lead(self, item: int) -> bool:
        """Return whether the item may lead its shard."""
        arrangement = self._arrangement
        stream, node = self._stream(item), int(arrangement.node[item])
        if stream.unit or not stream.has_leaders or not arrangement.can_lead[node]:
            return False
        slot, shard = int(arrangement.slot[item]), int(arrangement.shard[item])
        if int(stream.shards[shard]) in self._leader_stays:
            return False
        if slot >= RuleSet(stream.rules).count_possible_leaders(stream.copies):
            return False
        after = stream.rows[shard].tolist()
        after[0], after[slot] = after[slot], after[0]
        return self._gate.allows_order(stream, shard, after)

    def follow_move(self, item: int, target: int) -> None:
        """Take note that the item is on the node now."""
        self._arrangement.move(item, target)

    def follow_lead(self, item: int) -> None:
        """Take note that the item leads its shard now."""
        arrangement = self._arrangement
        slot, shard = int(arrangement.slot[item]), int(arrangement.shard[item])
        arrangement.swap_leader(int(arrangement.stream[item]), shard, slot)

    def _stream(self, item: int) -> StreamArrangement:
        arrangement = self._arrangement
        return arrangement.streams[int(arrangement.stream[item])]


class _Columns:
    """The columns of a view, and the names of what is numbered there."""

    def __init__(
        self,
        view: View,
        moving: Collection[int],
        dwelling: Collection[Replica],
        forbidden: Collection[Replica],
        leader_stays: Collection[int],
        required_only: bool = False,
    ) -> None:
        assert view.loads is not None, "no resource is counted"
        self.view = view
        self.arrangement = Arrangement(view, moving)
        streams = self.arrangement.streams
        counts = [1 if each.unit else len(each.rows) for each in streams]
        self._first = np.cumsum([0, *counts])[: len(streams)]
        loads = self._loads()
        stays = self._numbers(dwelling)
        numbers = self._first[self.arrangement.stream] if len(streams) else self.arrangement.shard
        shard = numbers + self.arrangement.shard
        width = len(self.arrangement.eligible)
        keys = [number * width + node for number, node in sorted(stays)]
        dwells = np.isin(shard * width + self.arrangement.node, keys)
        arrangement = self.arrangement
        items = ItemColumns(shard, arrangement.slot, arrangement.node, arrangement.free, dwells)
        nodes = _node_columns(view, view.loads, arrangement.levels.nodes)
        self.found = ResourceArrangement(
            view.loads.resources,
            loads,
            items,
            nodes,
            _ViewGate(arrangement, leader_stays, required_only),
            self._numbers(forbidden),
        )
        # Nodes that hold more than fits as the plan begins.
        self._over: Mask = np.asarray(self.found.excess().any(axis=0))

    def _loads(self) -> Integers:
        """Read the loads of all shards, those of a colocated stream together."""
        columns, resources = self.view.table.loads, self.view.loads
        assert columns is not None
        assert resources is not None
        parts = [np.zeros((len(resources.resources), 0), np.int64)]
        for each in self.arrangement.streams:
            part = columns.of_shards(each.shards)
            parts.append(part.sum(axis=1)[:, None] if each.unit else part)
        return np.concatenate(parts, axis=1)

    def _numbers(self, replicas: Collection[Replica]) -> set[tuple[int, int]]:
        """Number replicas that are given by the table's shards and the topology's nodes."""
        if not replicas:
            return set()
        rank = self.view.topology.order()
        found, of = set(), {}
        for number, each in enumerate(self.arrangement.streams):
            of.update({shard: (number, row) for row, shard in enumerate(each.shards.tolist())})
        for shard, node in replicas:
            if shard in of:
                number, row = of[shard]
                row = 0 if self.arrangement.streams[number].unit else row
                found.add((int(self._first[number]) + row, int(rank[node])))
        return found

    def name(self, move: ResourceMove, step: int) -> Iterator[RebalanceMove]:
        """Yield the moves of table shards that a numbered move stands for."""
        number = int(np.searchsorted(self._first, move.shard, side="right")) - 1
        stream = self.arrangement.streams[number]
        row = move.shard - int(self._first[number])
        shards = stream.shards if stream.unit else stream.shards[row : row + 1]
        nodes, ids = self.arrangement.levels.nodes, self.view.topology.ids
        remove, add = int(nodes[move.remove]), int(nodes[move.add])
        if self._over[move.remove]:
            text = f"node {ids[remove]} holds more than fits, node {ids[add]} has room"
            reason = Reason(Code.OVER_CAPACITY, text)
        else:
            text = f"node {ids[remove]} is filled more than node {ids[add]}"
            reason = Reason(Code.UNBALANCED, text)
        for shard in shards.tolist():
            yield RebalanceMove(move.kind, int(shard), move.slot, remove, add, reason, step)


def _node_columns(view: View, loads: NodeLoads, nodes: Integers) -> NodeColumns:
    """Read what nodes have and bear, in the given order of nodes.

    A node that may not lead is not balanced for what leaders bear.
    """
    capacity, topology = loads.capacity[:, nodes], view.topology
    led = np.asarray([each.led for each in loads.resources], bool)
    capacity = np.where(led[:, None] & ~topology.can_lead[nodes], -1, capacity)
    return NodeColumns(
        capacity, loads.limit[:, nodes], loads.borne[:, nodes], topology.eligible[nodes]
    )
