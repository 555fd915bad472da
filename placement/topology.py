"""The fleet as columns: nodes, their domains at every level, and who may receive replicas.

A node keeps its index for the life of the process; nothing decided may depend on it, because a
rebuild numbers nodes anew. Ids are ordered by `natural_key`, which `order` caches as a rank.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.choice import digest64
from placement.location import DEPTH_MAX, UNLOCATED, Location, natural_key, parse_location
from placement.model import Liveness, NodeAttributes
from placement.reasons import Code, Reason

# Columns grow by doubling from here: small enough for the offline tool.
_CAPACITY_FIRST = 64

NO_DOMAIN = -1


@dataclass(frozen=True, slots=True)
class Scope:
    """What a rule counts by: the domains of a level (a depth), or the values of a tag."""

    depth: int | None = None
    tag: str | None = None
    name: str = ""

    def __str__(self) -> str:
        return self.name or (f"tag:{self.tag}" if self.tag else str(self.depth))


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
        self.domains: list[Location] = []
        self._domain_index: dict[Location, int] = {}
        self._capacity = _CAPACITY_FIRST
        self._weight = np.ones(self._capacity)
        self._room = np.full(self._capacity, -1, np.int64)
        self._leader = np.zeros(self._capacity, bool)
        self._eligible = np.zeros(self._capacity, bool)
        self._digest = np.zeros(self._capacity, np.uint64)
        self._domain_of = np.zeros((DEPTH_MAX + 1, self._capacity), np.int32)
        self._order: NDArray[np.int64] | None = None
        self._deepest: int | None = None
        self._tag_domains: dict[str, tuple[NDArray[np.int32], list[str]]] = {}
        self._live: dict[Scope, NDArray[np.int32]] = {}

    @property
    def size(self) -> int:
        """Number of nodes ever seen by this process."""
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
        """Whether a node may hold leaders."""
        return self._leader[: self.size]

    @property
    def eligible(self) -> NDArray[np.bool_]:
        """Whether a node may receive replicas."""
        return self._eligible[: self.size]

    @property
    def digests(self) -> NDArray[np.uint64]:
        """Hash of each node's id, for content-seeded ties."""
        return self._digest[: self.size]

    def order(self) -> NDArray[np.int64]:
        """Rank of each node by the natural order of ids: the only order of nodes there is."""
        if self._order is None or len(self._order) != self.size:
            by_id = sorted(range(self.size), key=lambda node: natural_key(self.ids[node]))
            self._order = np.empty(self.size, np.int64)
            self._order[by_id] = np.arange(self.size)
        return self._order

    def domain_of(self, scope: Scope) -> NDArray[np.int32]:
        """Domain index of each node at `scope`; NO_DOMAIN for a node without the tag."""
        if scope.tag is not None:
            return self._tag_column(scope.tag)[0]
        return self._domain_of[scope.depth or 0, : self.size]

    def domain_name(self, scope: Scope, domain: int) -> str:
        """The domain's full path, or `key=value` for a tag."""
        if scope.tag is not None:
            return f"{scope.tag}={self._tag_column(scope.tag)[1][domain]}"
        return str(self.domains[domain]) or "(unlocated)"

    def live_domains(self, scope: Scope) -> NDArray[np.int32]:
        """Indexes of the domains with at least one eligible node: the denominator of rules."""
        live = self._live.get(scope)
        if live is None:
            found = np.unique(self.domain_of(scope)[self.eligible])
            live = found[found != NO_DOMAIN]
            self._live[scope] = live
        return live

    def domain_names(self, scope: Scope, domains: Iterable[int]) -> tuple[str, ...]:
        """Names in natural order, for reasons."""
        return tuple(sorted((self.domain_name(scope, d) for d in domains), key=natural_key))

    def scope(self, name: str) -> Scope | Reason:
        """The scope called `name`: a tier's name, a depth, `location`, or `tag:KEY`."""
        if name == LEAF.name:
            return LEAF
        if name.startswith("tag:") and len(name) > len("tag:"):
            return Scope(tag=name.removeprefix("tag:"))
        if name in self.levels:
            return Scope(depth=self.levels.index(name) + 1, name=name)
        if name.isdecimal() and 1 <= int(name) <= DEPTH_MAX:
            return Scope(depth=int(name), name=name)
        known = ", ".join((*self.levels, LEAF.name, "tag:KEY"))
        return Reason(
            Code.LEVEL_UNKNOWN, f"level '{name}' is not known; known are {known} or a depth"
        )

    def tiers(self) -> tuple[Scope, ...]:
        """Scopes of all levels that distinguish nodes, top first, the whole path last."""
        if self._deepest is None:
            known = self.index.values()
            self._deepest = max((self.locations[node].depth for node in known), default=0)
        names = (*self.levels, *map(str, range(len(self.levels) + 1, DEPTH_MAX + 1)))
        return (*(Scope(depth=d, name=names[d - 1]) for d in range(1, self._deepest)), LEAF)

    def put(self, node_id: str, attributes: NodeAttributes, liveness: Liveness) -> int:
        """Add a node or replace what is known of it; returns its index."""
        node = self.index.get(node_id)
        if node is None:
            node = self._append(node_id, attributes)
        elif attributes.tags != self.attributes[node].tags:
            self._tag_domains.clear()
        location = parse_location(attributes.location)
        if isinstance(location, Reason):
            raise ValueError(location.message)
        self.attributes[node] = attributes
        self.locations[node] = location
        self._deepest = None
        self._weight[node] = attributes.weight
        self._room[node] = -1 if attributes.capacity is None else attributes.capacity
        self._leader[node] = attributes.leader
        for depth in range(DEPTH_MAX + 1):
            self._domain_of[depth, node] = self._intern(location.prefix(depth) if depth else None)
        self.set_liveness(node, liveness)
        return node

    def forget(self, node_id: str) -> None:
        """The name is free again; the index of a node that is gone stays unused."""
        del self.index[node_id]
        self._deepest = None

    def set_liveness(self, node: int, liveness: Liveness) -> None:
        """Record what the failure detector says; only `up` nodes are eligible."""
        self.liveness[node] = liveness
        self._eligible[node] = liveness is Liveness.UP
        self._live.clear()

    def is_dead(self, node: int) -> bool:
        """Whether replicas on the node have to be replaced."""
        return self.liveness[node] in (Liveness.DEAD, Liveness.UNREGISTERED)

    def _append(self, node_id: str, attributes: NodeAttributes) -> int:
        node = len(self.ids)
        if node == self._capacity:
            self._grow()
        self.ids.append(node_id)
        self.index[node_id] = node
        self.attributes.append(attributes)
        self.locations.append(UNLOCATED)
        self.liveness.append(Liveness.DEAD)
        self._digest[node] = digest64("node", node_id)
        self._tag_domains.clear()
        return node

    def _grow(self) -> None:
        more = self._capacity
        self._weight = np.concatenate([self._weight, np.ones(more)])
        self._room = np.concatenate([self._room, np.full(more, -1, np.int64)])
        self._leader = np.concatenate([self._leader, np.zeros(more, bool)])
        self._eligible = np.concatenate([self._eligible, np.zeros(more, bool)])
        self._digest = np.concatenate([self._digest, np.zeros(more, np.uint64)])
        added = np.zeros((DEPTH_MAX + 1, more), np.int32)
        self._domain_of = np.concatenate([self._domain_of, added], axis=1)
        self._capacity += more

    def _intern(self, location: Location | None) -> int:
        key = UNLOCATED if location is None else location
        domain = self._domain_index.get(key)
        if domain is None:
            domain = len(self.domains)
            self.domains.append(key)
            self._domain_index[key] = domain
        return domain

    def _tag_column(self, key: str) -> tuple[NDArray[np.int32], list[str]]:
        column = self._tag_domains.get(key)
        if column is None:
            values: dict[str, int] = {}
            domains = np.full(self.size, NO_DOMAIN, np.int32)
            for node, attributes in enumerate(self.attributes):
                value = dict(attributes.tags).get(key)
                if value is not None:
                    domains[node] = values.setdefault(value, len(values))
            column = (domains, list(values))
            self._tag_domains[key] = column
        return column
