"""Holds the arrangement that rebalancing works on: items that may move, and counts of them.

An item is a replica, or a slot of a colocated stream: a slot holds a replica of every shard and
moves as one. Nodes are numbered by rank throughout; `LevelShares.nodes` translates ranks to indexes
in the topology.
"""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.allocator import View
from placement.assignments import EMPTY
from placement.model import Code, Reason, RepairMode, StreamSpec, natural_key
from placement.policy import Balance, Policy
from placement.rebalance.shares import FamilyCounts, Integers, ShareWeights, Slack, levels_of
from placement.rules import Rule, RuleSet, has_space
from placement.strategies import STRATEGIES

# Families of replicas: of a stream or range that its strategy has even before all are, of a
# dimension of such streams, of all, and of a stream that comes after these (`Balance`). A range is
# counted over all streams of its dimension, if it has one.
OWN, DIMENSION, ALL, LATER = range(4)

# Totals come first, so that a stream can be placed unevenly, and be even once others have come:
# nothing is copied for a stream alone that is near enough. Cruise Control copies for a topic beyond
# three times its mean (`topic.replica.count.balance.threshold`). A shard is led by one of its own
# replicas, so that leaders can be placed one off.
STREAM_SLACK, LEADER_SLACK = Slack.DOUBLE, Slack.ONE

# A replica, as its shard and its node by index.
Replica = tuple[int, int]

# Whether it is a dimension's, the dimension or stream, the filter's number, the range's label.
_FamilyKey = tuple[bool, str, int, str]


@dataclass(slots=True)
class StreamArrangement:
    """Stores a stream's shards in the table, and their nodes by rank.

    - `rows`: one row per shard, one column per slot, EMPTY where there is no node;
      `Arrangement.move` and `Arrangement.swap_leader` keep it up to date.
    - `unit`: whether the slots of the stream move as one.
    """

    spec: StreamSpec
    policy: Policy
    rules: tuple[Rule, ...]
    shards: Integers
    rows: Integers
    unit: bool = False

    @property
    def copies(self) -> int:
        """Number of slots that each shard should have."""
        return self.policy.copies(self.spec.replication_factor)

    @property
    def has_leaders(self) -> bool:
        """True if the first replica of a shard leads it."""
        return STRATEGIES[self.policy.strategy].has_leaders

    @property
    def totals_first(self) -> bool:
        """True if the nodes' totals are evened out before the replicas of this stream."""
        return balance_of(self.policy) is Balance.TOTALS_FIRST


class Arrangement:
    """Items as columns, counts of their families, and the nodes that hold them.

    `dwelling`: replicas, as shard and node by index, that stay where they are.

    With `only`, the replicas of one stream that has just been placed are the items. Everything else
    that the view counts is load that stays, and the stream's own counts get no slack.
    """

    def __init__(
        self,
        view: View,
        moving: Collection[int] = (),
        only: StreamArrangement | None = None,
        dwelling: Collection[Replica] = (),
    ) -> None:
        self.topology = view.topology
        self.judged_topology = view.topology.for_diagnosis()
        self.streams = _stream_arrangements(view) if only is None else [only]
        fixed = ((each.spec.stream, _why_fixed(each, moving)) for each in self.streams)
        self.kept: dict[str, Reason] = {name: why for name, why in fixed if why is not None}
        self.levels = levels_of(view.topology, self._separates_unlocated())
        nodes = self.levels.nodes
        self.eligible = view.topology.eligible[nodes]
        self.capacity = view.topology.capacity[nodes]
        self.can_lead = view.topology.can_lead[nodes]
        load = view.table.load(view.topology.size) if only is None else view.load
        self.load = load[nodes].copy()
        self.leads = None if only is None else view.leaders[nodes].copy()
        self.slack = STREAM_SLACK if only is None else Slack.NONE
        self._fill_columns(set(moving), dwelling)
        self._fill_counts()
        self.start = self.node.copy()
        self._fill_loads(view)

    def _separates_unlocated(self) -> bool:
        """Return whether nodes without a location share no load with the others.

        True if all streams that may move prefer nodes with a location.
        """
        prefer = {each.spec.stream for each in self.streams if RuleSet(each.rules).prefers_located}
        movable = {each.spec.stream for each in self.streams} - self.kept.keys()
        return bool(prefer) and movable <= prefer

    def _fill_columns(self, moving: set[int], dwelling: Collection[Replica]) -> None:
        """Fill the columns of items: one entry per item."""
        columns: list[tuple[Integers, ...]] = []
        self.filters: dict[Hashable, int] = {}
        dimensions: dict[str, int] = {}
        # Families of streams first, and of those after, by what they belong to: a stream, or the
        # dimension whose streams share their ranges; the filter of nodes; the label of the range.
        names: tuple[dict[_FamilyKey, int], ...] = ({}, {})
        for number, each in enumerate(self.streams):
            kind = self.filters.setdefault(each.policy.nodes, len(self.filters))
            rows = each.rows[:1] if each.unit else each.rows
            shard, slot = np.nonzero(rows != EMPTY)
            node = rows[shard, slot]
            size = np.full(len(node), len(each.rows) if each.unit else 1)
            own, later = np.full(len(node), EMPTY), np.full(len(node), EMPTY)
            fixed = each.spec.stream in self.kept
            dimension, counted = each.spec.dimension, EMPTY
            if dimension is not None and not each.totals_first:
                counted = dimensions.setdefault(dimension, len(dimensions))
            labels = _range_labels(each)
            shares_ranges = counted != EMPTY and bool(labels)
            if not each.unit and (shares_ranges or not fixed):
                owner = (True, str(dimension)) if shares_ranges else (False, each.spec.stream)
                known = names[each.totals_first]
                keys = [(*owner, kind, label) for label in labels or [""]]
                numbers = np.asarray([known.setdefault(key, len(known)) for key in keys])
                family = numbers[shard if labels else np.zeros_like(shard)]
                own, later = (own, family) if each.totals_first else (family, later)
            free = np.full(len(node), not fixed)
            if moving:
                index = each.shards[shard].tolist()
                under_way = np.fromiter((s in moving for s in index), bool, len(shard))
                free &= ~under_way
            if dwelling:
                free &= ~self._dwelling_slots(each, dwelling)[shard, slot]
            of = np.full(len(node), number)
            pools = np.full(len(node), counted)
            columns.append((node, size, of, shard, slot, own, pools, later, free))
        empty = tuple(np.zeros(0, np.int64) for _ in range(9))
        joined = [np.concatenate(c) for c in zip(*(columns or [empty]), strict=True)]
        self.node, self.size, self.stream, self.shard, self.slot = joined[:5]
        own, pool, later, free = *joined[5:8], joined[8].astype(bool)
        admitted = np.ones((len(self.filters), len(self.eligible)), bool)
        for each in self.streams:
            nodes = each.policy.nodes
            admitted[self.filters[nodes]] = nodes.mask(self.topology)[self.levels.nodes]
        self.admitted = admitted & self.eligible
        self.kind = np.asarray([self.filters[each.policy.nodes] for each in self.streams], np.int64)
        here = self.admitted[self.kind[self.stream], self.node]
        self.free = free & here
        up = self.eligible[self.node]
        self.family = [
            np.where(here, own, EMPTY),
            np.where(up, pool, EMPTY),
            np.where(up, 0, EMPTY),
            np.where(here, later, EMPTY),
        ]
        self._filter_of_family = [[key[2] for key in known] for known in names]
        self._dimensions = len(dimensions)
        self.moved = np.zeros(len(self.node), bool)

    def _dwelling_slots(
        self, stream: StreamArrangement, dwelling: Collection[Replica]
    ) -> NDArray[np.bool_]:
        """Mask the replicas of the stream that stay, by row and slot.

        A slot of a unit stays if one of its replicas does.
        """
        width, rank = len(self.eligible), self.topology.order()
        keys = [shard * width + int(rank[node]) for shard, node in dwelling]
        found: NDArray[np.bool_] = np.isin(stream.shards[:, None] * width + stream.rows, keys)
        found &= stream.rows != EMPTY
        if stream.unit:
            found[:] = found.any(axis=0)
        return found

    def _fill_counts(self) -> None:
        """Count the families by domain, and list the items by node."""
        levels = self.levels
        by_filter, everywhere = self.share_weights()
        first, after = self._filter_of_family
        self.tallies = [
            FamilyCounts(levels, by_filter, first),
            FamilyCounts(levels, everywhere, [0] * self._dimensions),
            FamilyCounts(levels, everywhere, [0], scaled=True),
            FamilyCounts(levels, by_filter, after, self.slack),
        ]
        for kind, (tally, family) in enumerate(zip(self.tallies, self.family, strict=True)):
            if kind != ALL or self.leads is None:
                tally.fill(family, self.node, self.size)
            else:
                tally.fill_nodes(0, np.where(self.eligible, self.load, 0))
        order = np.argsort(self.node, kind="stable")
        bounds = np.cumsum(np.bincount(self.node + 1, minlength=len(self.eligible) + 1))
        self._order, self._bounds = order, bounds
        self._came: dict[int, list[int]] = {}

    def share_weights(self, leading: bool = False) -> tuple[ShareWeights, ShareWeights]:
        """Weights of the nodes that each filter admits, and of all that are eligible.

        `leading`: of those alone that may lead.
        """
        levels, able = self.levels, self.can_lead if leading else np.ones_like(self.eligible)
        # The same for all streams without a filter, so that creating one does not sum up the fleet.
        everywhere = self.topology.derive(
            ("share weights", levels.apart, leading),
            lambda: ShareWeights(levels, [self.eligible & able]),
            by_condition=True,
        )
        if all(each.policy.nodes.everything for each in self.streams):
            return everywhere, everywhere
        return ShareWeights(levels, [mask & able for mask in self.admitted]), everywhere

    def _fill_loads(self, view: View) -> None:
        """Fill the loads by resource of items and nodes, where resources are counted."""
        self._borne: Integers | None = None
        columns, loads = view.table.loads, view.loads
        if columns is None or loads is None:
            return
        nodes = self.levels.nodes
        self._borne, self._limit = loads.borne[:, nodes].copy(), loads.limit[:, nodes]
        parts = [columns.of_shards(each.shards) for each in self.streams]
        led = np.asarray([[each.led] for each in loads.resources], bool)
        self._led_loads = [np.where(led, part, 0) for part in parts]
        whole = [
            np.repeat(part.sum(axis=1)[:, None], each.rows.shape[1], axis=1) if each.unit else part
            for part, each in zip(parts, self.streams, strict=True)
        ]
        self._item_loads = np.zeros((len(self._borne), len(self.node)), np.int64)
        for number, (part, each) in enumerate(zip(whole, self.streams, strict=True)):
            mine = np.flatnonzero(self.stream == number)
            self._item_loads[:, mine] = part[:, (self.slot if each.unit else self.shard)[mine]]

    def fits(self, item: int, target: int) -> bool:
        """Return whether the item's load fits into the node, while those that leave still count."""
        if self._borne is None:
            return True
        more, limit = self._item_loads[:, item], self._limit[:, target]
        return bool(has_space(self._borne[:, target], more, limit).all())

    def fits_lead(self, number: int, shard: int, node: int) -> bool:
        """Return whether what the shard's leader bears fits into the node."""
        if self._borne is None:
            return True
        more, limit = self._led_loads[number][:, shard], self._limit[:, node]
        return bool(has_space(self._borne[:, node], more, limit).all())

    def _move_load(self, item: int, source: int, target: int) -> None:
        """Count the item's load on its new node; its first one bears it until all is done."""
        if self._borne is None:
            return
        first = int(self.start[item])
        if target != first:
            self._borne[:, target] += self._item_loads[:, item]
        if source != first:
            self._borne[:, source] -= self._item_loads[:, item]

    def items_on(self, node: int) -> Integers:
        """Find the items on a node, as ascending item numbers."""
        there = self._order[self._bounds[node] : self._bounds[node + 1]]
        came = self._came.get(node)
        if came:
            there = np.union1d(there, np.asarray(came, np.int64))
        here: Integers = there[self.node[there] == node]
        return here

    def has_room(self, nodes: Integers, size: Integers | int) -> NDArray[np.bool_]:
        """Mask the nodes that may hold `size` more replicas."""
        capacity = self.capacity[nodes]
        found: NDArray[np.bool_] = (capacity < 0) | (self.load[nodes] + size <= capacity)
        return found

    def acceptable_items(self, items: Integers, node: int) -> Integers:
        """Find the items whose policy admits the node and whose shard has no replica on it."""
        items = items[self.admitted[self.kind[self.stream[items]], node]]
        if not len(items):
            return items
        held = self.items_on(node)
        width = np.int64(
            max(int(self.shard[items].max()), int(self.shard[held].max(initial=0))) + 1
        )
        here = self.stream[held] * width + self.shard[held]
        found: Integers = items[~np.isin(self.stream[items] * width + self.shard[items], here)]
        return found

    def row(self, item: int) -> list[int]:
        """Return the nodes of the item's shard by slot; of a unit, those of any shard."""
        row: list[int] = self.streams[self.stream[item]].rows[self.shard[item]].tolist()
        return row

    def table_shards(self, item: int) -> list[int]:
        """Return the shards that move with the item, by index in the table."""
        stream = self.streams[self.stream[item]]
        if stream.unit:
            return [int(shard) for shard in stream.shards]
        return [int(stream.shards[self.shard[item]])]

    def move(self, item: int, target: int) -> None:
        """Move the item to another node, and count it there."""
        source, size = int(self.node[item]), int(self.size[item])
        for tally, family in zip(self.tallies, self.family, strict=True):
            if family[item] >= 0:
                tally.move(int(family[item]), source, target, size)
        stream = self.streams[self.stream[item]]
        if stream.unit:
            stream.rows[:, self.slot[item]] = target
        else:
            stream.rows[self.shard[item], self.slot[item]] = target
        self.node[item] = target
        self._move_load(item, source, target)
        self.load[source] -= size
        self.load[target] += size
        self._came.setdefault(target, []).append(item)
        self.moved[item] = True

    def swap_leader(self, number: int, shard: int, slot: int) -> None:
        """Exchange the shard's replica in `slot` with the one in the first slot, which leads."""
        row = self.streams[number].rows[shard]
        for node, place in ((int(row[0]), slot), (int(row[slot]), 0)):
            items = self.items_on(node)
            mine = items[(self.stream[items] == number) & (self.shard[items] == shard)]
            self.slot[mine] = place
        if self._borne is not None:
            loads = self._led_loads[number][:, shard]
            self._borne[:, row[0]] -= loads
            self._borne[:, row[slot]] += loads
        row[0], row[slot] = row[slot], row[0]


def balance_of(policy: Policy) -> Balance:
    """Return the order in which a policy's streams become even."""
    return STRATEGIES[policy.strategy].balance


def _stream_arrangements(view: View) -> list[StreamArrangement]:
    """List the placed streams that have a policy, in natural order of their names."""
    rank = np.append(view.topology.order(), EMPTY)  # so that EMPTY stays what it is
    judging = view.topology.for_diagnosis()
    found = []
    for index, nodes in view.table.streams():
        spec, policy = view.spec_of(index), view.policy_of(index)
        if spec is not None and policy is not None:
            rules = STRATEGIES[policy.strategy].rules(policy, judging)
            shards = np.asarray(view.table.shards_of(index), np.int64)
            found.append(
                StreamArrangement(spec, policy, rules, shards, rank[nodes].astype(np.int64))
            )
    return sorted(found, key=lambda each: natural_key(each.spec.stream))


def _why_fixed(stream: StreamArrangement, moving: Collection[int]) -> Reason | None:
    """Explain why no replica of the stream may move, or return None.

    Marks a colocated stream whose shards share their nodes as a unit.
    """
    name, strategy = stream.spec.stream, stream.policy.strategy
    if stream.spec.repair == RepairMode.DEAD_ONLY:
        return Reason(
            Code.KEPT_AS_IS, f"the repair mode of {name} allows moves from dead nodes only"
        )
    if balance_of(stream.policy) is Balance.NEVER:
        return Reason(Code.KEPT_AS_IS, f"strategy '{strategy}' is not balanced by load")
    if not RuleSet(stream.rules).is_colocated:
        return None
    under_way = any(shard in moving for shard in stream.shards.tolist())
    if under_way or (stream.rows != stream.rows[:1]).any():
        return Reason(
            Code.KEPT_AS_IS, f"the colocated shards of {name} are not on the same nodes yet"
        )
    stream.unit = True
    return None


def _range_labels(stream: StreamArrangement) -> Sequence[str]:
    """Return the range label of each shard; empty if the stream has no ranges."""
    ranges: Sequence[str] = stream.spec.ranges or ()
    aware = stream.policy.parameters.get("range_aware")
    return ranges if aware and len(ranges) == len(stream.rows) else ()
