"""The fleet as columns: nodes, their domains at every level, and who may receive replicas.

A node keeps its index as long as it is known; then another gets it, so that nodes that come and go
take no room. No decision may depend on indexes, as a rebuild numbers nodes anew: nodes are ordered
by the `natural_key` of their ids, as ranks by index.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from placement.hashing import digest64
from placement.model import (
    DEPTH_MAX,
    UNLOCATED,
    AdministrativeState,
    Code,
    Guard,
    Liveness,
    Location,
    NodeAttributes,
    Reason,
    natural_key,
    parse_location,
    status_of,
)

# Columns grow by doubling from here: small enough for the offline tool.
_CAPACITY_FIRST = 64

# The columns but for domains, and what they hold of an index without a node.
_COLUMNS = {"_weight": 1, "_room": -1, "_digest": 0, "_leader": 0, "_eligible": 0, "_fenced": 0}
_COLUMNS |= {"_counts_for_rules": 0, "_dead": 0, "_held": 0, "_lost": 0}
_LISTS = ("ids", "attributes", "locations", "liveness", "administrative", "guard", "domains")

NO_DOMAIN = -1

_T = TypeVar("_T")


class NodeOrder:
    """Ids in order, each with its node's index; every index has one."""

    def __init__(self) -> None:
        self._ids: list[tuple[tuple[tuple[int, int, str], ...], int]] = []
        self._ranks: NDArray[np.int64] | None = None

    def insert(self, node: int, node_id: str, before: str | None = None) -> None:
        """Insert a node at the index, in place of the one called `before`."""
        if before is not None:
            del self._ids[bisect_left(self._ids, (natural_key(before), node))]
        insort(self._ids, (natural_key(node_id), node))
        self._ranks = None

    def copy(self) -> "NodeOrder":
        """Copy the order; neither sees what the other does from then on."""
        made = NodeOrder()
        made._ids, made._ranks = [*self._ids], self._ranks
        return made

    def ranks(self) -> NDArray[np.int64]:
        """Compute the rank of each node by its index."""
        if self._ranks is None:
            self._ranks = np.empty(len(self._ids), np.int64)
            self._ranks[[node for _, node in self._ids]] = np.arange(len(self._ids))
        return self._ranks


@dataclass(frozen=True, slots=True)
class Scope:
    """Scope that a rule counts by: the domains of a level (a depth), or the values of a tag."""

    depth: int | None = None
    tag: str | None = None
    name: str = ""

    def __str__(self) -> str:
        numbered = self.tag is None and self.level.isdecimal()
        return f"level {self.level}" if numbered else self.name or f"tag:{self.tag}"

    @property
    def level(self) -> str:
        """The scope's name in reasons and violations: a tag's bare key, a depth's number."""
        return (self.name or str(self.depth)) if self.tag is None else self.tag


# The node's whole path, whatever its depth: what Timeplus and Kudu call a location.
LEAF = Scope(depth=DEPTH_MAX, name="location")


class Topology:
    """Nodes and domains; all arrays are indexed by node and cut to `size` by their readers."""

    def __init__(self, levels: Iterable[str] = ()) -> None:
        self.levels = tuple(levels)
        self.ids: list[str] = []
        self.index: dict[str, int] = {}
        self.attributes: list[NodeAttributes] = []
        self.locations: list[Location] = []
        self.liveness: list[Liveness] = []
        self.administrative: list[AdministrativeState] = []
        self.guard: list[Guard] = []
        self.domains: list[Location] = []
        self._domain_index: dict[Location, int] = {}
        self._capacity = _CAPACITY_FIRST
        self._weight = np.ones(self._capacity)
        self._room = np.full(self._capacity, -1, np.int64)
        self._leader = np.zeros(self._capacity, bool)
        self._eligible = np.zeros(self._capacity, bool)
        self._counts_for_rules = np.zeros(self._capacity, bool)
        self._fenced = np.zeros(self._capacity, bool)
        self._dead = np.zeros(self._capacity, bool)
        self._held = np.zeros(self._capacity, bool)
        self._lost = np.zeros(self._capacity, bool)
        self._digest = np.zeros(self._capacity, np.uint64)
        self._domain_of = np.zeros((DEPTH_MAX + 1, self._capacity), np.int32)
        # Indexes of nodes that are gone, and those of them that nothing refers to any more.
        self.forgotten: set[int] = set()
        self._free: list[int] = []
        self._order = NodeOrder()
        self._at_depth = [0] * (DEPTH_MAX + 1)
        self._tag_domains: dict[str, tuple[NDArray[np.int32], dict[str, int]]] = {}
        self._live: dict[Scope, NDArray[np.int32]] = {}
        # What `derive` has made; empty when a node's attributes, or its condition, have changed.
        self._attribute_cache: dict[Hashable, Any] = {}
        self._condition_cache: dict[Hashable, Any] = {}

    @property
    def size(self) -> int:
        """Number of indexes: nodes that are known, and such as are gone."""
        return len(self.ids)

    @property
    def weight(self) -> NDArray[np.float64]:
        """Share of load each node should carry."""
        return self._weight[: self.size]

    @property
    def capacity(self) -> NDArray[np.int64]:
        """Replicas a node may hold at most; -1 where it did not say."""
        return self._room[: self.size]

    @property
    def can_lead(self) -> NDArray[np.bool_]:
        """True for each node that may hold leaders."""
        return self._leader[: self.size]

    @property
    def eligible(self) -> NDArray[np.bool_]:
        """True for each node that may receive replicas."""
        return self._eligible[: self.size]

    @property
    def counts_for_rules(self) -> NDArray[np.bool_]:
        """True for each node whose domains count when an arrangement is judged.

        Not those of lost, draining or quarantined nodes. Those of suspect nodes, and of nodes that
        are held or in maintenance, count, because their replicas are meant to stay.
        """
        return self._counts_for_rules[: self.size]

    @property
    def lost(self) -> NDArray[np.bool_]:
        """True for each node whose replicas must be replaced.

        The node is gone, or dead without being held or in maintenance.
        """
        return self._lost[: self.size]

    @property
    def fenced(self) -> NDArray[np.bool_]:
        """True for each suspect node that is otherwise eligible, like Kafka's fenced brokers."""
        return self._fenced[: self.size]

    @property
    def dead(self) -> NDArray[np.bool_]:
        """True for each node that is dead or gone, so that no replica on it is live."""
        return self._dead[: self.size]

    @property
    def held(self) -> NDArray[np.bool_]:
        """True for each node whose replicas are meant to stay although it is dead."""
        return self._held[: self.size]

    @property
    def digests(self) -> NDArray[np.uint64]:
        """Hash of each node's id, for content-seeded ties."""
        return self._digest[: self.size]

    def derive(self, key: Hashable, make: Callable[[], _T], by_condition: bool = False) -> _T:
        """Make something of the nodes' attributes, once until one of these changes.

        `by_condition`: of their conditions, too. `key` is the maker's own; what is made is shared
        and not to be changed.
        """
        cache = self._condition_cache if by_condition else self._attribute_cache
        known: _T | None = cache.get(key)
        if known is None:
            known = cache[key] = make()
        return known

    def order(self) -> NDArray[np.int64]:
        """Rank nodes by the natural order of their ids: the only order of nodes there is."""
        return self._order.ranks()

    def domain_of(self, scope: Scope) -> NDArray[np.int32]:
        """Read the domain index of each node at `scope`; NO_DOMAIN for a node without the tag."""
        if scope.tag is not None:
            return self._tag_column(scope.tag)[0][: self.size]
        return self._domain_of[scope.depth or 0, : self.size]

    def inside(self, location: Location) -> NDArray[np.bool_]:
        """Mark the nodes that stand in the domain that a path names."""
        domain = self._domain_index.get(location, NO_DOMAIN)
        found: NDArray[np.bool_] = self._domain_of[location.depth, : self.size] == domain
        return found

    @property
    def mixes_located(self) -> bool:
        """True if some known nodes have a location and others have none."""
        return bool(self._at_depth[0] and any(self._at_depth[1:]))

    @property
    def unlocated(self) -> int:
        """The domain, at every level, of nodes without a location."""
        return self._domain_index.get(UNLOCATED, NO_DOMAIN)

    def domain_name(self, scope: Scope, domain: int) -> str:
        """Name a domain by its full path, or by `key=value` for a tag."""
        if scope.tag is not None:
            return f"{scope.tag}={list(self._tag_column(scope.tag)[1])[domain]}"
        return str(self.domains[domain]) or "(unlocated)"

    def live_domains(self, scope: Scope) -> NDArray[np.int32]:
        """List the domains with at least one eligible node: the denominator of rules."""
        live = self._live.get(scope)
        if live is None:
            live = self._live[scope] = self._domains_of(scope, self.eligible)
        return live

    def domain_names(self, scope: Scope, domains: Iterable[int]) -> tuple[str, ...]:
        """Name domains in natural order, for sentences."""
        return tuple(sorted((self.domain_name(scope, d) for d in domains), key=natural_key))

    def names_for_reason(self, scope: Scope, domains: Iterable[int]) -> tuple[str, ...]:
        """Name domains for a reason's `seen`, in natural order: paths, or a tag's values."""
        names = self.domain_names(scope, domains)
        if scope.tag is None:
            return names
        return tuple(name.removeprefix(f"{scope.tag}=") for name in names)

    def scope(self, name: str) -> Scope | Reason:
        """Find the scope called `name`: a tier's name, a depth, `location`, or `tag:KEY`."""
        if name == LEAF.name:
            return LEAF
        if name.startswith("tag:") and len(name) > len("tag:"):
            return Scope(tag=name.removeprefix("tag:"))
        if name in self.levels:
            return Scope(depth=self.levels.index(name) + 1, name=name)
        if name.isdecimal() and 1 <= int(name) <= DEPTH_MAX:
            return Scope(depth=int(name), name=name)
        known = ", ".join((*self.levels, LEAF.name, "tag:KEY"))
        told = f"level '{name}' is not known; known are {known} or a depth. Name the tiers with"
        return Reason(Code.LEVEL_UNKNOWN, f"{told} `levels` in the cluster file or the settings")

    def tiers(self) -> tuple[Scope, ...]:
        """List the scopes of all levels that distinguish nodes, top first, the whole path last."""
        names = (*self.levels, *map(str, range(len(self.levels) + 1, DEPTH_MAX + 1)))
        return (*(Scope(depth=d, name=names[d - 1]) for d in range(1, self._deepest)), LEAF)

    def upsert(
        self,
        node_id: str,
        attributes: NodeAttributes,
        liveness: Liveness,
        administrative: AdministrativeState = AdministrativeState.NONE,
        guard: Guard = Guard.NONE,
    ) -> int:
        """Add a node or replace what is known of it; returns its index."""
        location = parse_location(attributes.location)
        if isinstance(location, Reason):
            raise ValueError(location.message)
        node = self.index.get(node_id)
        if node is None:
            node = self._append(node_id, attributes)
        elif attributes != self.attributes[node]:
            self._attribute_cache.clear()
            self._live.clear()
            self._at_depth[self.locations[node].depth] -= 1
        else:
            self.set_condition(node, liveness, administrative, guard)
            return node
        self.attributes[node] = attributes
        self._at_depth[location.depth] += 1
        for key, (domains, values) in self._tag_domains.items():
            value = dict(attributes.tags).get(key)
            domains[node] = NO_DOMAIN if value is None else values.setdefault(value, len(values))
        self._weight[node] = attributes.weight
        self._room[node] = -1 if attributes.capacity is None else attributes.capacity
        self._leader[node] = attributes.leader
        for depth in range(DEPTH_MAX + 1):
            self._domain_of[depth, node] = self._intern(location.prefix(depth) if depth else None)
        self.locations[node] = self.domains[self._domain_of[DEPTH_MAX, node]]
        self.set_condition(node, liveness, administrative, guard)
        return node

    def forget(self, node_id: str) -> None:
        """Free a node's name; its index stays unused until it is released."""
        node = self.index.pop(node_id)
        self.forgotten.add(node)
        self._attribute_cache.clear()
        self._condition_cache.clear()
        self._at_depth[self.locations[node].depth] -= 1

    def release(self, node: int) -> None:
        """Free a forgotten node's index, which has no references left."""
        self.forgotten.remove(node)
        self._free.append(node)

    def set_condition(
        self, node: int, liveness: Liveness, administrative: AdministrativeState, guard: Guard
    ) -> None:
        """Record what failure detector, operator and guard say of a node.

        It is eligible only where it is `up` and neither of the others objects.
        """
        self._condition_cache.clear()
        self.liveness[node], self.guard[node] = liveness, guard
        self.administrative[node] = administrative
        unopposed = administrative is AdministrativeState.NONE and guard is Guard.NONE
        eligible = liveness is Liveness.UP and unopposed
        if eligible != self._eligible[node]:
            self._live.clear()
        self._eligible[node] = eligible
        self._lost[node] = liveness is Liveness.UNREGISTERED or (
            liveness is Liveness.DEAD
            and administrative is not AdministrativeState.MAINTENANCE
            and not self._held[node]
        )
        self._counts_for_rules[node] = (
            not self._lost[node]
            and administrative is not AdministrativeState.DRAINING
            and guard is not Guard.QUARANTINED
        )
        self._fenced[node] = liveness is Liveness.SUSPECT and unopposed
        self._dead[node] = liveness.is_gone

    def set_held(self, node: int, held: bool) -> None:
        """Record whether the node's replicas are meant to stay although it is dead."""
        self._held[node] = held
        self.set_condition(node, self.liveness[node], self.administrative[node], self.guard[node])

    def occupied_domains(self, scopes: Iterable[Scope]) -> dict[Scope, frozenset[int]]:
        """List the domains of each scope in which a node counts for rules."""
        return {scope: self._occupied(scope) for scope in scopes}

    def _occupied(self, scope: Scope) -> frozenset[int]:
        # Below the longest path no level has other domains.
        at = Scope(depth=self._deepest) if (scope.depth or 0) > self._deepest else scope
        domains, there = self._domains_of, self.counts_for_rules
        return self.derive(("occupied", at), lambda: frozenset(domains(at, there).tolist()), True)

    def _domains_of(self, scope: Scope, nodes: NDArray[np.bool_]) -> NDArray[np.int32]:
        """List the domains in which any of the nodes stands, ascending."""
        there = self.domain_of(scope)[nodes]
        # NO_DOMAIN is the only number below zero.
        return np.flatnonzero(np.bincount(there[there >= 0])).astype(np.int32)

    @property
    def _deepest(self) -> int:
        """Components of the longest path of a known node."""
        return max((depth for depth, nodes in enumerate(self._at_depth) if nodes), default=0)

    def for_diagnosis(self) -> "Topology":
        """Make a view of the same nodes in which those are eligible that count for rules."""
        return self.with_eligible(self._counts_for_rules)

    def with_eligible(self, eligible: NDArray[np.bool_]) -> "Topology":
        """Make a view of the same nodes of which others are eligible.

        It shares the rest and stays as it is.
        """
        made: Topology = copy(self)
        made._eligible, made._live = eligible, {}
        made._attribute_cache, made._condition_cache = {}, {}
        return made

    def sample(self, nodes: NDArray[np.int64]) -> "Topology":
        """Copy some of the nodes, numbered anew, as a read-only topology of their domains."""
        sampled: Topology = self.with_eligible(self._eligible[nodes])
        sampled.ids = [self.ids[node] for node in nodes]
        sampled.locations = [self.locations[node] for node in nodes]
        sampled._domain_of = self._domain_of[:, nodes]
        columns = self._tag_domains.items()
        sampled._tag_domains = {key: (column[nodes], known) for key, (column, known) in columns}
        return sampled

    def overlay(self) -> "Topology":
        """Copy the topology, to try nodes out: neither sees what the other does from then on.

        Indexes of nodes and domains are those of the original. It costs a copy of the columns.
        """
        made: Topology = self.with_eligible(self._eligible)
        for name in _COLUMNS:
            setattr(made, name, getattr(self, name).copy())
        for name in _LISTS:
            setattr(made, name, [*getattr(self, name)])
        made.index, made._domain_index = {**self.index}, {**self._domain_index}
        made._domain_of = self._domain_of.copy()
        made.forgotten, made._free = {*self.forgotten}, [*self._free]
        made._order, made._at_depth = self._order.copy(), [*self._at_depth]
        columns = self._tag_domains.items()
        made._tag_domains = {key: (column.copy(), {**known}) for key, (column, known) in columns}
        return made

    def status(self, node: int) -> str:
        """Name the node's condition in one word."""
        return status_of(self.liveness[node], self.administrative[node], self.guard[node])

    def is_dead(self, node: int) -> bool:
        """Return whether nothing lives on the node."""
        return bool(self._dead.item(node))

    def is_lost(self, node: int) -> bool:
        """Return whether replicas on the node have to be replaced; see `lost`."""
        return bool(self._lost.item(node))

    def is_draining(self, node: int) -> bool:
        """Return whether replicas leave the node because an operator drains it."""
        return self.administrative[node] is AdministrativeState.DRAINING

    def _append(self, node_id: str, attributes: NodeAttributes) -> int:
        if self._free:
            node = self._free.pop()
            self._order.insert(node, node_id, before=self.ids[node])
            self.ids[node] = node_id
            self.locations[node] = UNLOCATED
            self._held[node] = False
        else:
            node = self._extend(node_id, attributes)
        self.index[node_id] = node
        self._digest[node] = digest64("node", node_id)
        self._attribute_cache.clear()
        return node

    def _extend(self, node_id: str, attributes: NodeAttributes) -> int:
        """Make a new index, at the end of all columns."""
        node = len(self.ids)
        if node == self._capacity:
            self._grow()
        self._order.insert(node, node_id)
        self.ids.append(node_id)
        self.attributes.append(attributes)
        self.locations.append(UNLOCATED)
        self.liveness.append(Liveness.DEAD)
        self.administrative.append(AdministrativeState.NONE)
        self.guard.append(Guard.NONE)
        return node

    def _grow(self) -> None:
        more = self._capacity
        for name, empty in _COLUMNS.items():
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.full(more, empty, column.dtype)]))
        added = np.zeros((DEPTH_MAX + 1, more), np.int32)
        self._domain_of = np.concatenate([self._domain_of, added], axis=1)
        for key, (domains, values) in self._tag_domains.items():
            none = np.full(more, NO_DOMAIN, np.int32)
            self._tag_domains[key] = (np.concatenate([domains, none]), values)
        self._capacity += more

    def _intern(self, location: Location | None) -> int:
        key = UNLOCATED if location is None else location
        domain = self._domain_index.get(key)
        if domain is None:
            domain = len(self.domains)
            self.domains.append(key)
            self._domain_index[key] = domain
        return domain

    def _tag_column(self, key: str) -> tuple[NDArray[np.int32], dict[str, int]]:
        """Return the domain of every index, and the number of every value ever seen.

        The column is made when a rule first asks for the tag, and kept up to date from then on.
        """
        column = self._tag_domains.get(key)
        if column is None:
            values: dict[str, int] = {}
            domains = np.full(self._capacity, NO_DOMAIN, np.int32)
            for node, attributes in enumerate(self.attributes):
                value = dict(attributes.tags).get(key)
                if value is not None:
                    domains[node] = values.setdefault(value, len(values))
            column = self._tag_domains[key] = (domains, values)
        return column
