"""What every strategy shares: the view it is given, the protocol, and the choice of one node.

A strategy proposes; the rules engine disposes. `choose` is the single ranking of candidates that
whole-stream placement and repair both use.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY, AssignmentTable
from placement.choice import digest64, scores
from placement.location import DEPTH_MAX
from placement.model import StreamSpec
from placement.policy import Compiles, OnInfeasible, Policy
from placement.reasons import Code, Reason
from placement.rules import Mask, NodeFilter, Rule, Standing, Strength
from placement.topology import LEAF, NO_DOMAIN, Scope, Topology


class View:
    """Topology and load as one plan sees them; what the plan places counts at once."""

    def __init__(self, topology: Topology, table: AssignmentTable) -> None:
        self.topology = topology
        self.load = table.load(topology.size).copy()
        self.leaders = table.leaders(topology.size).copy()
        self._domain_load: dict[Scope, NDArray[np.float64]] = {}
        self._domain_weight: dict[Scope, NDArray[np.float64]] = {}

    def add(self, node: int, leader: bool = False) -> None:
        """Count one more replica on the node."""
        self.load[node] += 1
        self.leaders[node] += leader
        for scope, loads in self._domain_load.items():
            loads[self.topology.domain_of(scope)[node]] += 1

    def remove(self, node: int) -> None:
        """Count one replica less on the node."""
        self.load[node] -= 1
        for scope, loads in self._domain_load.items():
            loads[self.topology.domain_of(scope)[node]] -= self.topology.eligible[node]

    def has_room(self, replicas: int = 1) -> Mask:
        """Nodes whose capacity allows so many more."""
        capacity = self.topology.capacity
        return (capacity < 0) | (self.load + replicas <= capacity)

    def domain_pressure(self, scope: Scope) -> NDArray[np.float64]:
        """For each node, load per weight of its domain's eligible nodes."""
        domains = self.topology.domain_of(scope)
        if scope not in self._domain_load:
            size = int(domains.max(initial=0)) + 2  # one spare, so that NO_DOMAIN has an entry
            live = self.topology.eligible & (domains != NO_DOMAIN)
            held = self.load[live].astype(np.float64)
            self._domain_load[scope] = np.bincount(domains[live], held, size).astype(np.float64)
            weight = np.bincount(domains[live], self.topology.weight[live], size)
            self._domain_weight[scope] = np.maximum(weight, np.finfo(float).tiny)
        return (self._domain_load[scope] / self._domain_weight[scope])[domains]


@dataclass(frozen=True, slots=True)
class Placement:
    """Nodes of every slot of every shard, leader first (EMPTY where none fits), with reasons."""

    shards: Sequence[Sequence[int]]
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Need:
    """One more replica of one shard: what stays, what it replaces, and who asks."""

    stream: str
    shard: int
    slot: int
    replication_factor: int
    kept: Sequence[int]
    stream_nodes: Sequence[int] = ()
    nodes: NodeFilter = field(default_factory=NodeFilter)
    replaces: int = EMPTY
    excluded: frozenset[int] = field(default=frozenset())

    @property
    def seed(self) -> int:
        """Content of the decision, for its ties."""
        return digest64(self.stream, self.shard, self.slot, len(self.kept))


class Strategy(Compiles, Protocol):
    """A placement system. `place` answers for a whole stream, `rules` for every later replica."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names, those of the systems it follows."""
        ...

    @property
    def on_infeasible(self) -> OnInfeasible:
        """What becomes of a stream when the strategy's own rules cannot be met."""
        ...

    def rules(self, policy: Policy, topology: Topology, /) -> tuple[Rule, ...]:
        """The strategy's own rules for this policy; the user's come before them."""
        ...

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        """Place a whole stream, or say why it cannot be placed."""
        ...

    def extend(self, need: Need, policy: Policy, mask: Mask, view: View) -> int | Reason:
        """The node for one more replica, out of those in `mask`, or why none serves."""
        ...


class ByRules:
    """`extend` of a strategy that says all it asks for in its rules."""

    def extend(self: Strategy, need: Need, policy: Policy, mask: Mask, view: View) -> int | Reason:
        """The best candidate by the strategy's rules, load and nearness."""
        return choose(self.rules(policy, view.topology), mask, need, view)


def candidates(policy: Policy, view: View) -> Mask:
    """Nodes that may receive a replica of the stream at all."""
    mask = view.topology.eligible & view.has_room()
    return mask if policy.nodes.everything else mask & policy.nodes.mask(view.topology)


def choose(rules: Sequence[Rule], mask: Mask, need: Need, view: View) -> int | Reason:
    """The best node for one more replica.

    Required rules remove candidates; preferred rules in their order, nearness to the replaced
    replica, load per weight level by level, and a content-seeded hash choose among the rest.
    """
    topology = view.topology
    standing = Standing(topology, need.replication_factor, need.kept, need.stream_nodes, need.nodes)
    open_nodes = mask.copy()
    open_nodes[np.asarray([*need.kept, *need.excluded], np.int64)] = False
    found = np.flatnonzero(open_nodes)
    if not len(found):
        return Reason(
            Code.NODES_TOO_FEW,
            f"no node is left for replica {need.slot} of {need.stream}/{need.shard}: "
            f"{int(mask.sum())} may hold one, {len(need.kept)} of them hold the others",
            need=need.replication_factor,
            have=int(mask.sum()),
        )
    for rule in rules:
        if rule.strength is Strength.REQUIRED:
            passing = found[rule.penalty(standing)[found] == 0]
            if not len(passing):
                return _no_candidate(rule, found, need, standing)
            found = passing
    for rule in rules:
        if rule.strength is Strength.PREFERRED:
            found = _least(found, rule.penalty(standing))
    if need.replaces != EMPTY:
        found = _least(found, _distance(topology, need.replaces))
    for scope in topology.tiers():
        found = _least(found, view.domain_pressure(scope))
    found = _least(found, (view.load + 1) / topology.weight)
    if len(found) == 1:
        return int(found[0])
    return int(found[np.argmin(scores(need.seed, topology.digests[found]))])


def unmet(
    rules: Sequence[Rule],
    shards: Sequence[Sequence[int]],
    spec: StreamSpec,
    policy: Policy,
    topology: Topology,
) -> tuple[Reason, ...]:
    """One warning for every preferred rule that some shard does not meet."""
    warnings: list[Reason] = []
    held = Counter(node for nodes in shards for node in nodes)
    everywhere = Standing(topology, spec.replication_factor, (), nodes=policy.nodes)
    for rule in rules:
        if rule.strength is not Strength.PREFERRED:
            continue
        broken = 0
        for nodes in shards:
            kept = [node for node in nodes if node != EMPTY]
            shared = [node for node in kept if held[node] > 1]
            standing = replace(everywhere, replicas=kept, stream_nodes=shared)
            broken += bool(rule.violations(standing))
        if broken:
            scope = getattr(rule, "per", None)
            seen: tuple[str, ...] = ()
            if isinstance(scope, Scope):
                live = everywhere.live_domains(scope)
                seen = topology.domain_names(scope, map(int, live))
            message = f"{broken} of {spec.shards} shards do not meet the preferred rule '{rule}'"
            level = str(scope) if scope else None
            met = spec.shards - broken
            warnings.append(Reason(Code.RULE_NOT_MET, message, spec.shards, met, level, seen))
    return tuple(warnings)


def _least(found: NDArray[np.int64], key: NDArray[np.generic]) -> NDArray[np.int64]:
    if len(found) == 1:
        return found
    values = key[found]
    least: NDArray[np.int64] = found[values == values.min()]
    return least


def _distance(topology: Topology, replaced: int) -> NDArray[np.int64]:
    """Levels to climb from each node to a domain shared with the replaced one: same leaf domain
    first, then same parent, then any (need N13)."""
    place = topology.locations[replaced]
    shared = np.zeros(topology.size, np.int64)
    for depth in range(1, place.depth + 1):
        domains = topology.domain_of(Scope(depth=depth))
        shared[domains == domains[replaced]] = depth
    leaf = topology.domain_of(LEAF)
    shared[leaf == leaf[replaced]] = DEPTH_MAX
    climbs = place.depth - shared
    climbs[climbs < 1] = 1
    climbs[shared == DEPTH_MAX] = 0
    return climbs


def _no_candidate(rule: Rule, found: NDArray[np.int64], need: Need, standing: Standing) -> Reason:
    topology = standing.topology
    scope = getattr(rule, "per", None)
    seen: tuple[str, ...] = ()
    if isinstance(scope, Scope):
        seen = topology.domain_names(scope, map(int, standing.live_domains(scope)))
    return Reason(
        Code.NO_CANDIDATE,
        f"no node for replica {need.slot} of {need.stream}/{need.shard}: all {len(found)} "
        f"candidates break the required rule '{rule}'",
        need=1,
        have=0,
        level=str(scope) if scope else None,
        seen=seen,
    )
