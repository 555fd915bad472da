"""Puts changes into an order in which no node is overfilled on the way.

A wave's moves may be under way at the same time: each counts on its target from the wave's begin
and on its source until its end. The next wave begins when the wave is completed. Where moves wait
for each other in a circle, one makes a detour over a third node; those for which there is none are
left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placement.model import MoveKind
from placement.rebalance.resource_arrangement import Integers, ResourceArrangement

# Detours of one plan: circles are rare, and each detour copies a replica twice.
_DETOURS = 4


@dataclass(frozen=True, slots=True)
class ResourceMove:
    """A move of a replica (REPLACE) or of leadership (LEADER), by numbers of shard and nodes.

    `slot` is that of the replica when the wave begins; `bytes` is 0 for a change of leader.
    """

    kind: MoveKind
    shard: int
    slot: int
    remove: int
    add: int
    bytes: int
    wave: int


@dataclass(frozen=True, slots=True)
class OrderedMoves:
    """Moves by wave; `peak` is the most each node holds on the way, by resource.

    `left_out`: changes that would overfill a node whatever comes first.
    """

    moves: tuple[ResourceMove, ...]
    peak: Integers
    left_out: int


class _Order:
    """Makes the changes of an arrangement again from the start, wave by wave."""

    def __init__(self, arrangement: ResourceArrangement, copied: int) -> None:
        self._arrangement, self._copied = arrangement, copied
        leads = [
            (arrangement.leader_of(shard), shard) for shard in sorted(arrangement.led_at_first)
        ]
        targets = {item: int(arrangement.node[item]) for item in arrangement.changed}
        arrangement.restore()
        self._leads = leads
        self._targets = self._by_urgency(targets)
        self._moves: list[ResourceMove] = []
        self._leaving = np.zeros_like(arrangement.totals)
        self.peak = arrangement.totals.copy()
        self._wave, self._shards = 0, set[int]()

    def _by_urgency(self, targets: dict[int, int]) -> dict[int, int]:
        """Order moves: off nodes above their limit first, then the largest."""
        arrangement = self._arrangement
        items = np.asarray(sorted(targets), np.int64)
        over = arrangement.excess().sum(axis=0)[arrangement.node[items]] > 0
        size = arrangement.bytes_of(items, self._copied)
        return {int(items[p]): targets[int(items[p])] for p in np.lexsort((items, -size, ~over))}

    def run(self) -> OrderedMoves:
        """Make all waves."""
        detours = 0
        while self._targets or self._leads:
            if not self._make_wave():
                if detours == _DETOURS or not self._detour():
                    break
                detours += 1
            self._end_wave()
        left = len(self._targets) + len(self._leads)
        return OrderedMoves(tuple(self._moves), self.peak, left)

    def _make_wave(self) -> bool:
        """Make the changes that are possible at once; returns whether there were any."""
        before = len(self._moves)
        for item, shard in list(self._leads):
            if shard not in self._shards and self._lead(item, shard):
                self._leads.remove((item, shard))
        for item, target in list(self._targets.items()):
            if self._move(item, target):
                del self._targets[item]
        return len(self._moves) > before

    def _end_wave(self) -> None:
        self._wave += 1
        self._shards.clear()
        self.peak = np.maximum(self.peak, self._arrangement.totals + self._leaving)
        self._leaving[:] = 0

    def _has_room(self, loads: Integers, target: int) -> bool:
        arrangement = self._arrangement
        held = arrangement.totals[:, target] + self._leaving[:, target]
        return bool(((held + loads <= arrangement.limit[:, target]) | (loads == 0)).all())

    def _move(self, item: int, target: int) -> bool:
        arrangement, shard = self._arrangement, int(self._arrangement.shard[item])
        loads = arrangement.borne(np.asarray([item]))[:, 0]
        if shard in self._shards or not self._has_room(loads, target):
            return False
        if not arrangement.may_move(item, target):
            return False
        source, size = (
            int(arrangement.node[item]),
            arrangement.bytes_of(np.asarray([item]), self._copied),
        )
        arrangement.move(item, target)
        self._leaving[:, source] += loads
        self._shards.add(shard)
        ends = source, target, int(size[0]), self._wave
        self._moves.append(
            ResourceMove(MoveKind.REPLACE, shard, int(arrangement.slot[item]), *ends)
        )
        return True

    def _lead(self, item: int, shard: int) -> bool:
        arrangement = self._arrangement
        loads = arrangement.led_loads(np.asarray([shard]))[:, 0]
        target, before = int(arrangement.node[item]), arrangement.leader_of(shard)
        if before < 0 or not self._has_room(loads, target) or not arrangement.may_lead(item):
            return False
        source, slot = int(arrangement.node[before]), int(arrangement.slot[item])
        arrangement.lead(item)
        self._leaving[:, source] += loads
        self._shards.add(shard)
        ends = source, target, 0, self._wave
        self._moves.append(ResourceMove(MoveKind.LEADER, shard, slot, *ends))
        return True

    def _detour(self) -> bool:
        """Move one of the waiting replicas, the smallest first, to a third node."""
        arrangement = self._arrangement
        for item in reversed(self._targets):
            loads = arrangement.borne(np.asarray([item]))[:, 0]
            held = (arrangement.totals + loads[:, None]) / np.maximum(arrangement.limit, 1)
            for node in np.argsort(held.max(axis=0), kind="stable").tolist():
                if node != self._targets[item] and self._move(item, node):
                    return True
        return False


def order_moves(arrangement: ResourceArrangement, copied: int) -> OrderedMoves:
    """Order the changes that the search has made of the arrangement since its start.

    The arrangement has what the ordered moves make of it afterwards.
    """
    return _Order(arrangement, copied).run()


def total_bytes(moves: Sequence[ResourceMove]) -> int:
    """Sum up the bytes that moves copy."""
    return sum(each.bytes for each in moves)
