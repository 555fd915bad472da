"""Holds what shards use of their nodes as columns, for the search that evens out resources.

Items are replicas, ordered by shard; nodes, shards and resources are numbered, and ties go to the
lower number, so that the caller numbers them by content. Loads are whole numbers. Of a `led`
resource the replica in slot 0 alone bears the load.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from placement.model import COPIED_RESOURCE, Resource
from placement.rules import BOUNDLESS, Mask

Integers = NDArray[np.int64]

# Items of so many nodes are found by looking through all; more are looked up in an index.
_SCANS = 24


class MoveGate(Protocol):
    """The rules beside capacities, as the search asks them about one change at a time.

    `follow_move` and `follow_lead` tell of changes that the search has made or taken back.
    """

    def allows_move(self, item: int, target: int) -> bool:
        """Return whether the rules let the item go to the node."""

    def allows_lead(self, item: int) -> bool:
        """Return whether the rules let the item lead its shard instead of the one that does."""

    def follow_move(self, item: int, target: int) -> None:
        """Take note that the item is on the node now."""

    def follow_lead(self, item: int) -> None:
        """Take note that the item leads its shard now."""


@dataclass(frozen=True, slots=True)
class ItemColumns:
    """Replicas: their shard (ascending), slot and node.

    - `free`: may move at all; `dwelling`: were moved for balance and are not moved for it again.
    """

    shard: Integers
    slot: Integers
    node: Integers
    free: Mask
    dwelling: Mask


@dataclass(frozen=True, slots=True)
class NodeColumns:
    """Nodes, resources as rows.

    - `capacity`: -1 where a node states none; `limit`: the most it may hold, -1 for any load.
    - `totals`: what it holds by now, including replicas that are no items.
    - `eligible`: gives and takes replicas.
    """

    capacity: Integers
    limit: Integers
    totals: Integers
    eligible: Mask


class ResourceArrangement:
    """Items, nodes and loads, with the changes that a search makes.

    `loads` has a row for each resource and a column for each shard. `forbidden` are shards with
    nodes that they left a short time ago.
    """

    def __init__(
        self,
        resources: Sequence[Resource],
        loads: Integers,
        items: ItemColumns,
        nodes: NodeColumns,
        gate: MoveGate,
        forbidden: Collection[tuple[int, int]] = (),
    ) -> None:
        self.resources, self.loads, self.gate = tuple(resources), loads, gate
        self.shard, self.free, self.dwelling = items.shard, items.free, items.dwelling
        self.slot, self.node = items.slot.copy(), items.node.copy()
        self.capacity, self.eligible = nodes.capacity, nodes.eligible
        self.limit = np.where(nodes.limit < 0, BOUNDLESS, nodes.limit)
        self.totals, self.start_totals = nodes.totals.copy(), nodes.totals
        self.led = np.asarray([each.led for each in resources], bool)
        self.changed: dict[int, int] = {}
        self._forbidden = frozenset(forbidden)
        # Who led a shard before, one after the other: changes are taken back in reverse, so that
        # all replicas are in their slots again.
        self._leaders: dict[int, list[int]] = {}
        self._bounds = items.shard[:0]
        self._scans, self._order, self._ends = 0, items.shard[:0], items.shard[:0]
        self._came: dict[int, list[int]] = {}

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.eligible)

    def bytes_of(self, items: Integers, instead: int) -> Integers:
        """Look up what a copy of each item transfers.

        The load of the copied resource if it is configured, else that of the resource `instead`.
        """
        names = [each.name for each in self.resources]
        row = names.index(COPIED_RESOURCE) if COPIED_RESOURCE in names else instead
        found: Integers = self.loads[row, self.shard[items]]
        return found

    def borne(self, items: Integers) -> Integers:
        """Look up what each item uses of its node, one row for each resource."""
        found: Integers = self.loads[:, self.shard[items]]
        if self.led.any():
            found = np.where(self.led[:, None] & (self.slot[items] != 0), 0, found)
        return found

    def led_loads(self, shards: Integers) -> Integers:
        """Look up what the leaders of shards bear by leading."""
        found: Integers = np.where(self.led[:, None], self.loads[:, shards], 0)
        return found

    def items_on(self, node: int) -> Integers:
        """Find the items on a node, in their order."""
        if not len(self._ends):
            if self._scans < _SCANS:
                self._scans += 1
                return np.flatnonzero(self.node == node)
            self._order = np.argsort(self.node, kind="stable")
            self._ends = np.searchsorted(self.node[self._order], np.arange(self.size + 1))
            self._came.clear()
        found = self._order[self._ends[node] : self._ends[node + 1]]
        came = self._came.get(node)
        if came:
            found = np.union1d(found, np.asarray(came))
        here: Integers = found[self.node[found] == node]
        return here

    def items_of(self, shard: int) -> range:
        """Return the items of a shard."""
        first, end = np.searchsorted(self.shard, [shard, shard + 1]).tolist()
        return range(first, end)

    def leader_of(self, shard: int) -> int:
        """Return the item that leads the shard, -1 if none does."""
        return next((item for item in self.items_of(shard) if self.slot[item] == 0), -1)

    def successions(self, items: Integers) -> tuple[Integers, Integers]:
        """List the changes of leaders in which items gain or lose the lead of their shards.

        The first array has the items that lead now, the second those that may lead instead.
        """
        if not len(self._bounds):
            shards = np.arange(self.loads.shape[1] + 1)
            self._bounds = np.searchsorted(self.shard, shards)
        first, copies = self._bounds[self.shard[items]], np.diff(self._bounds)[self.shard[items]]
        copies = np.where(copies > 0, copies, 0)
        ends = np.cumsum(copies)
        others = np.arange(int(copies.sum())) - np.repeat(ends - copies - first, copies)
        asked = np.repeat(items, copies)
        leads, other_leads = self.slot[asked] == 0, self.slot[others] == 0
        before = np.where(leads, asked, others)
        after = np.where(leads, others, asked)
        pairs = leads != other_leads
        pairs &= self.eligible[self.node[before]] & self.eligible[self.node[after]]
        return before[pairs], after[pairs]

    def may_move(self, item: int, target: int) -> bool:
        """Return whether the item may go to the node; its room is not checked."""
        shard = int(self.shard[item])
        if not self.eligible[target] or (shard, target) in self._forbidden:
            return False
        if any(self.node[other] == target for other in self.items_of(shard)):
            return False
        return self.gate.allows_move(item, target)

    def may_lead(self, item: int) -> bool:
        """Return whether the item may lead its shard; its node's room is not checked."""
        return bool(self.eligible[self.node[item]]) and self.gate.allows_lead(item)

    def move(self, item: int, target: int) -> None:
        """Move the item; back home it counts as not moved."""
        source, borne = int(self.node[item]), self.borne(np.asarray([item]))[:, 0]
        self.totals[:, source] -= borne
        self.totals[:, target] += borne
        self.node[item] = target
        if len(self._ends):
            self._came.setdefault(target, []).append(item)
        home = self.changed.setdefault(item, source)
        if home == target:
            del self.changed[item]
        self.gate.follow_move(item, target)

    def lead(self, item: int) -> None:
        """Let the item lead its shard; it changes slots with the one that does."""
        shard = int(self.shard[item])
        before = self.leader_of(shard)
        loads = self.led_loads(np.asarray([shard]))[:, 0]
        self.totals[:, int(self.node[before])] -= loads
        self.totals[:, int(self.node[item])] += loads
        self.slot[before], self.slot[item] = self.slot[item], 0
        leaders = self._leaders.setdefault(shard, [])
        if leaders and leaders[-1] == item:
            leaders.pop()
        else:
            leaders.append(before)
        self.gate.follow_lead(item)

    @property
    def led_at_first(self) -> dict[int, int]:
        """The items that led at the start, by shards that others lead now."""
        firsts = ((shard, leaders[0]) for shard, leaders in self._leaders.items() if leaders)
        return {shard: item for shard, item in firsts if self.slot[item] != 0}

    def restore(self) -> None:
        """Take back all changes."""
        for leaders in self._leaders.values():
            while leaders:
                self.lead(leaders[-1])
        for item, home in [*self.changed.items()]:
            self.move(item, home)

    def home(self, item: int) -> int:
        """Return the node on which the item was at the start."""
        return self.changed.get(item, int(self.node[item]))

    def fits(self, items: Integers, targets: Integers) -> Mask:
        """Mask which item (row) has room on which node (column) while its source keeps it."""
        borne = self.borne(items)[:, :, None]
        room = (self.limit - self.totals)[:, None, targets]
        allowed: Mask = ((borne <= room) | (borne == 0)).all(axis=0)
        return allowed

    def excess(self) -> Integers:
        """Compute what each eligible node holds above its limit."""
        over: Integers = np.where(self.eligible, np.maximum(self.totals - self.limit, 0), 0)
        return over
