"""The view that strategies and repair place with: topology and load, as one plan sees them.

What the plan places counts at once; a fork is a plan that may be dropped.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placement.allocator.domain_loads import (
    HALF,
    DomainLoads,
    per_weight,
    sum_by_pool,
    whole_weights,
)
from placement.assignments import EMPTY, AssignmentTable
from placement.hashing import hash64
from placement.model import Reason, StreamSpec
from placement.policy import Policy
from placement.rules import ANY_ROOM, Mask, NodeLoads, RuleContext
from placement.topology import NodeFilter, Scope, Topology

# How far above its share a node counts as near the mean: the bound of `cost`, and of rebalancing
# tools (Cruise Control's `replica.count.balance.threshold` is 1.1).
_NEAR = 0.1


# Nodes of equal utilisation are told apart by their replicas: a million of them weigh less than a
# thousandth of a capacity.
_TIE = 1e-9


class View:
    """Topology and load as one plan sees them, with what the plan has placed.

    `policy_of` and `spec_of` give the policy and the spec of a stream by its index in `table`,
    `shards` what the stream under way has so far, `memory` is what strategies remember for the
    length of the plan. `loads` are the resources that the nodes bear, None where none is counted.
    """

    def __init__(
        self,
        topology: Topology,
        table: AssignmentTable,
        policy_of: Callable[[int], Policy | None] = lambda _: None,
        spec_of: Callable[[int], StreamSpec | None] = lambda _: None,
        loads: NodeLoads | None = None,
    ) -> None:
        self.topology = topology
        self.table = table
        self.policy_of, self.spec_of, self.loads = policy_of, spec_of, loads
        self.shards: Sequence[Sequence[int]] = ()
        self.memory: dict[Hashable, Any] = {}
        self._overlay: tuple[int, Sequence[int]] | None = None
        self.load = table.load(topology.size).copy()
        self.leaders = table.leaders(topology.size).copy()
        self.levels: dict[Scope, DomainLoads] = {}
        # The loads of the shards that are placed, a column each; None where all are alike.
        self._each: NDArray[np.int64] | None = None
        # Nodes that limits keep from taking one more replica for the moment.
        self.busy, self.busy_nodes = np.zeros(topology.size, bool), 0
        # The nodes by class (`node_classes`), notified of every change.
        self.class_indexes: Any = None
        self._begin = sum_by_pool(topology, self.load)
        self._weight, self._eligible = topology.weight, topology.eligible

    def fork(self) -> "View":
        """Copy the view, so that a plan can be tried and dropped."""
        made = copy(self)
        made.load, made.leaders, made.memory = self.load.copy(), self.leaders.copy(), {}
        made.class_indexes, made.busy = None, self.busy.copy()
        made.levels = {scope: level.copy() for scope, level in self.levels.items()}
        made.loads = None if self.loads is None else self.loads.copy()
        return made

    def adopt_from(self, other: "View") -> None:
        """Count what a fork of this view has counted."""
        self.load, self.leaders, self.levels = other.load, other.leaders, other.levels
        self.class_indexes, self.loads = None, other.loads

    def bear(self, amounts: NDArray[np.int64]) -> None:
        """Set the load by resource of the shard whose replicas are counted from now on."""
        if self.loads is not None:
            self.loads.shard, self._each = amounts, None

    def bear_each(self, amounts: NDArray[np.int64]) -> None:
        """Set the loads by resource of the shards of a stream, a column each, or one for all.

        Until `turn_to` says which shard is placed the least of all counts, so that no node is left
        out that has room for some of them.
        """
        self.bear(amounts.min(axis=1))
        if self.loads is not None and (amounts != amounts[:, :1]).any():
            self._each = amounts

    def turn_to(self, shard: int) -> None:
        """Set which shard of the stream is placed from now on, by its number."""
        if self.loads is not None and self._each is not None:
            self.loads.shard = self._each[:, shard]

    @property
    def shards_alike(self) -> bool:
        """Return whether all shards of the stream that is placed bear the same."""
        return self._each is None

    def order_shards(self, shards: int) -> Sequence[int]:
        """Order the numbers of a stream's shards, those that need most of the fleet first."""
        if self.loads is None or self._each is None:
            return range(shards)
        whole = np.maximum(self.loads.capacity, 0).sum(axis=1, keepdims=True)
        needs = (self._each / np.maximum(whole, 1)).max(axis=0)
        order: list[int] = np.argsort(-needs, kind="stable").tolist()
        return order

    def bear_shard(self, shard: int) -> None:
        """Set the load of a known shard as that of the replicas counted from now on."""
        if self.table.loads is not None:
            self.bear(self.table.loads.of_shard(shard))

    def recount(self, node: int, borne: NDArray[np.int64]) -> None:
        """Set what a node bears by resource, as the state has it after a write."""
        if self.loads is not None:
            self.loads.borne[:, node] = borne

    def add(self, node: int, leader: bool = False) -> None:
        """Count one more replica on the node."""
        if leader:
            self.leaders[node] += 1
        if self.loads is not None:
            self.loads.count(node, leader, 1)
        self._count(node, 1)

    def add_all(self, nodes: NDArray[np.int64]) -> None:
        """Count one more replica for every mention of a node."""
        more = np.bincount(nodes, minlength=self.topology.size)
        self.load += more
        self.class_indexes = None
        if self.loads is not None:
            self.loads.count_all(more)
        for level in self.levels.values():
            level.count_all(nodes)

    def remove(self, node: int) -> None:
        """Count one replica less on the node."""
        if self.loads is not None:
            self.loads.count(node, False, -1)
        self._count(node, -1)

    def _count(self, node: int, more: int) -> None:
        self.load[node] = self.load.item(node) + more
        if self.levels and self._eligible.item(node):
            for level in self.levels.values():
                level.count(node, more)
        self._notify(node)

    @contextmanager
    def with_row(self, shard: int, nodes: Sequence[int]) -> Iterator[None]:
        """Plan as if the shard's slots held these nodes, until the block is left.

        The table stays as it is.
        """
        assert self._overlay is None, "one row at a time"
        now = self.table.nodes(shard)
        differing = [(old, new) for old, new in zip(now, nodes, strict=True) if old != new]
        self._overlay = shard, nodes
        self._exchange(differing, -1)
        try:
            yield
        finally:
            self._overlay = None
            self._exchange(((new, old) for old, new in differing), 1)

    def _exchange(self, pairs: Iterable[tuple[int, int]], by: int) -> None:
        """Count a replica on the second node of each pair instead of the first, EMPTY on none.

        `by`: -1 where the first does not get its copy, 1 where the second gets it again. The other
        node of the two bears the shard in any case: its replica leaves when the copy is complete.
        """
        for old, new in pairs:
            copied = old if by < 0 else new
            if self.loads is not None and copied != EMPTY:
                self.loads.count(copied, False, by)
            if old != EMPTY:
                self._count(old, -1)
            if new != EMPTY:
                self._count(new, 1)

    def streams(self) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """List every stream by index with the planned nodes of its shards, one row per shard."""
        for stream, planned in self.table.streams():
            if self._overlay is None or self.table.stream_of(self._overlay[0]) != stream:
                yield stream, planned
            else:
                rows = planned.copy()
                rows[self.table.number_of(self._overlay[0])] = self._overlay[1]
                yield stream, rows

    def rows(self, shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """Look up the planned nodes of shards with equally many slots, one row each."""
        found = self.table.rows(shards)
        if self._overlay is not None:
            found[shards == self._overlay[0]] = self._overlay[1]
        return found

    def replicas(self, shard: int) -> list[int]:
        """List the planned nodes of a shard without its empty slots."""
        if self._overlay is not None and self._overlay[0] == shard:
            return [node for node in self._overlay[1] if node != EMPTY]
        return self.table.replicas(shard)

    def set_busy(self, node: int, busy: bool) -> None:
        """Set whether limits keep the node from taking one more replica."""
        self.busy_nodes += busy - int(self.busy[node])
        self.busy[node] = busy
        self._notify(node)

    def _notify(self, node: int) -> None:
        if self.class_indexes is not None:
            self.class_indexes.update(node)

    def room(self) -> NDArray[np.int64]:
        """Count the replicas that the capacities of each node still allow."""
        capacity = self.topology.capacity
        room = np.where(capacity < 0, ANY_ROOM, capacity - self.load)
        return room if self.loads is None else np.minimum(room, self.loads.room())

    def has_room(self, replicas: int = 1) -> Mask:
        """Mask the nodes whose capacities allow so many more replicas."""
        capacity = self.topology.capacity
        open_nodes = (capacity < 0) | (self.load + replicas <= capacity)
        return open_nodes if self.loads is None else open_nodes & self.loads.fits(replicas)

    @cached_property
    def near_mean(self) -> NDArray[np.float64]:
        """Compute the most replicas with which a node counts as near its share.

        The share is of the replicas at the beginning: of those on nodes with a location, if it has
        one, else of the others.
        """
        weight = np.maximum(sum_by_pool(self.topology, whole_weights(self.topology)), 1) / 1e6
        share = self.topology.weight * (self._begin / weight)
        return share + np.maximum(_NEAR * share, 1)

    def is_crowded(self, nodes: Any) -> Any:
        """Return whether one more replica lifts each of `nodes` (an index or several) above
        `near_mean`."""
        if self.loads is None:
            return self.load[nodes] + 1 > self.near_mean[nodes]
        used, usable = self.loads.utilisation(nodes), self.topology.eligible
        mean = float(self.loads.utilisation()[usable].mean()) if usable.any() else 0.0
        return used > (1 + _NEAR) * mean

    def pressure(self, nodes: Any) -> Any:
        """Compute the load per weight of a node or several, as they are compared.

        Where resources are counted, the largest utilisation after placing; replicas break its ties.
        """
        counted = per_weight(self.load[nodes], self._weight[nodes])
        if self.loads is None:
            return counted
        return self.loads.utilisation(nodes) + _TIE * counted

    def domain_pressure(
        self, scope: Scope, more: float = 0.0, nodes: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """Compute the load per weight of each node's domain, with `more` load.

        Of all nodes, or of `nodes`; a domain has the load of its eligible nodes.
        """
        level = self.level(scope)
        counted = level.pressure(level.domains if nodes is None else level.domains[nodes], more)
        if self.loads is None:
            return counted
        of = np.arange(self.topology.size) if nodes is None else nodes
        usable = self.topology.eligible
        return self.loads.domain_utilisation(level.domains, usable, of) + _TIE * counted

    def leader_pressure(self, scope: Scope | None, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Compute leaders per weight of each node's domain, or node, with half a leader more."""
        if scope is None:
            return per_weight(self.leaders[nodes], self._weight[nodes])  # type: ignore[no-any-return]
        level = DomainLoads(self.topology, scope, self.leaders)
        return level.pressure(level.domains[nodes], HALF)

    def level(self, scope: Scope) -> DomainLoads:
        """Look up the loads of a level's domains, which are kept up to date."""
        if scope not in self.levels:
            self.levels[scope] = DomainLoads(self.topology, scope, self.load)
        return self.levels[scope]


@dataclass(frozen=True, slots=True)
class Placement:
    """Nodes of every slot of every shard, leader first (EMPTY where none fits), with reasons."""

    shards: Sequence[Sequence[int]]
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[Reason, ...] = ()


class ReplicaRequest(NamedTuple):
    """One more replica of one shard: what stays, what it replaces, and who asks.

    `token` is the shard's explicit place on a ring; `fresh` says that it had no replica when the
    plan began, `kept` is what was placed since, in `slots`; `backed_off_targets` are no
    candidates.
    """

    stream: str
    shard: int
    slot: int
    replication_factor: int
    kept: Sequence[int]
    stream_nodes: Sequence[int] = ()
    nodes: NodeFilter = NodeFilter()
    replaces: int = EMPTY
    excluded: frozenset[int] = frozenset()
    token: int | str | None = None
    fresh: bool = False
    slots: Sequence[int] = ()
    shards: int = 1  # of the stream
    backed_off_targets: frozenset[int] = frozenset()
    leads: bool = False  # the first replica of a new shard, which is likely to lead

    def rule_context(self, topology: Topology) -> RuleContext:
        """Build the context in which rules judge the replica."""
        parts = self.kept, self.stream_nodes, self.nodes, self.shards, self.slots, self.slot
        return RuleContext(topology, self.replication_factor, *parts)

    @property
    def seed(self) -> int:
        """Content of the decision, for its ties."""
        return hash64(f"{self.stream}\x1f{self.shard}\x1f{self.slot}\x1f{len(self.kept)}")
