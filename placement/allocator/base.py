"""What every strategy shares: the view it is given, the protocol, and the choice of one node.

A strategy proposes; the rules engine disposes. `choose` is the single ranking of candidates that
whole-stream placement and repair both use.
"""

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from placement.allocator.domain_loads import HALF, DomainLoads, per_weight, pooled
from placement.assignments import EMPTY, AssignmentTable
from placement.hashing import hash64, lowest
from placement.model import DEPTH_MAX, Code, Reason, StreamSpec
from placement.policy import Balance, Compiles, OnInfeasible, Policy
from placement.rules import (
    Mask,
    Part,
    Rule,
    RuleSet,
    Standing,
    Strength,
    Supply,
    allowed,
    apart,
    judged,
    keeping,
    room,
    supply,
)
from placement.topology import LEAF, NodeFilter, Scope, Topology

# How far above its share a node counts as near the mean: the bound of `cost`, and of rebalancing
# tools (Cruise Control's `replica.count.balance.threshold` is 1.1).
_NEAR = 0.1

# More than any node can be asked to hold.
_UNLIMITED = 1 << 40


class View:
    """Topology and load as one plan sees them; what the plan places counts at once.

    `policy_of` and `spec_of` give the policy and the spec of a stream by its index in `table`,
    `shards` what the stream under way has so far, `memory` is what strategies remember for the
    length of the plan.
    """

    def __init__(
        self,
        topology: Topology,
        table: AssignmentTable,
        policy_of: Callable[[int], Policy | None] = lambda _: None,
        spec_of: Callable[[int], StreamSpec | None] = lambda _: None,
    ) -> None:
        self.topology = topology
        self.table = table
        self.policy_of, self.spec_of = policy_of, spec_of
        self.shards: Sequence[Sequence[int]] = ()
        self.memory: dict[Hashable, Any] = {}
        self.load = table.load(topology.size).copy()
        self.leaders = table.leaders(topology.size).copy()
        self.levels: dict[Scope, DomainLoads] = {}
        # Nodes that limits keep from taking one more replica for the moment.
        self.busy, self.busy_nodes = np.zeros(topology.size, bool), 0
        # What is known of the nodes by class, to be told of every change; see `by_class`.
        self.fields: Any = None
        self._begin = pooled(topology, self.load)
        self._weight = topology.weight

    def fork(self) -> "View":
        """A view of the same moment, in which other things can be tried."""
        made = copy(self)
        made.load, made.leaders, made.memory = self.load.copy(), self.leaders.copy(), {}
        made.fields, made.busy = None, self.busy.copy()
        made.levels = {scope: level.copy() for scope, level in self.levels.items()}
        return made

    def take(self, other: "View") -> None:
        """Count what a fork of this view has counted."""
        self.load, self.leaders, self.levels = other.load, other.leaders, other.levels
        self.fields = None

    def add(self, node: int, leader: bool = False) -> None:
        """Count one more replica on the node."""
        self.leaders[node] += leader
        self._count(node, 1)

    def add_all(self, nodes: NDArray[np.int64]) -> None:
        """Count one more replica for every mention of a node."""
        more = np.bincount(nodes, minlength=self.topology.size)
        self.load += more
        self.fields = None
        for level in self.levels.values():
            level.count_all(nodes)

    def remove(self, node: int) -> None:
        """Count one replica less on the node."""
        self._count(node, -1)

    def _count(self, node: int, more: int) -> None:
        self.load[node] += more
        if self.levels and self.topology.eligible[node]:
            for level in self.levels.values():
                level.count(node, more)
        self._tell(node)

    def occupy(self, node: int, busy: bool) -> None:
        """Limits keep the node from taking one more replica, or no more."""
        self.busy_nodes += busy - int(self.busy[node])
        self.busy[node] = busy
        self._tell(node)

    def _tell(self, node: int) -> None:
        if self.fields is not None:
            self.fields.changed(node)

    def room(self) -> NDArray[np.int64]:
        """How many more replicas the capacity of each node allows."""
        capacity = self.topology.capacity
        return np.where(capacity < 0, _UNLIMITED, capacity - self.load)

    def has_room(self, replicas: int = 1) -> Mask:
        """Nodes whose capacity allows so many more."""
        capacity = self.topology.capacity
        return (capacity < 0) | (self.load + replicas <= capacity)

    @cached_property
    def _millionths(self) -> NDArray[np.float64]:
        """Weights of the eligible nodes in whole millionths, 0 for others."""
        return np.rint(self._weight * 1e6) * self.topology.eligible

    @cached_property
    def near_mean(self) -> NDArray[np.float64]:
        """The most a node may hold and count as near its share of the replicas of the beginning:
        of those on nodes with a location, if it has one, else of the others."""
        weight = np.maximum(pooled(self.topology, self._millionths), 1) / 1e6  # of no node at all
        share = self.topology.weight * (self._begin / weight)
        return share + np.maximum(_NEAR * share, 1)

    def crowded(self, nodes: Any) -> Any:
        """Whether a node, or which of several, would hold too many to be near with one more."""
        return self.load[nodes] + 1 > self.near_mean[nodes]

    def pressure(self, nodes: Any) -> Any:
        """Load per weight of a node, or of several, as they are compared."""
        return per_weight(self.load[nodes], self._weight[nodes])

    def domain_pressure(
        self, scope: Scope, more: float = 0.0, nodes: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """For each node, or for `nodes`, load per weight of its domain's eligible nodes, had it
        `more` load."""
        level = self.level(scope)
        return level.pressure(level.domains if nodes is None else level.domains[nodes], more)

    def leads(self, scope: Scope | None, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Leaders per weight of each node's domain, or of the node, had it half a leader more."""
        if scope is None:
            return per_weight(self.leaders[nodes], self._weight[nodes])  # type: ignore[no-any-return]
        level = DomainLoads(self.topology, scope, self.leaders, self._millionths)
        return level.pressure(level.domains[nodes], HALF)

    def level(self, scope: Scope) -> DomainLoads:
        """What the domains of a level carry; kept up to date."""
        if scope not in self.levels:
            self.levels[scope] = DomainLoads(self.topology, scope, self.load, self._millionths)
        return self.levels[scope]


@dataclass(frozen=True, slots=True)
class Placement:
    """Nodes of every slot of every shard, leader first (EMPTY where none fits), with reasons."""

    shards: Sequence[Sequence[int]]
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[Reason, ...] = ()


class Need(NamedTuple):
    """One more replica of one shard: what stays, what it replaces, and who asks.

    `token` is the shard's explicit place on a ring; `fresh` says that it had no replica when the
    plan began, `kept` is what was placed since, in `slots`; `shunned` nodes are left alone.
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
    shunned: frozenset[int] = frozenset()
    leads: bool = False  # the first replica of a new shard, which is likely to lead

    def standing(self, topology: Topology) -> Standing:
        """What the rules are asked about."""
        parts = self.kept, self.stream_nodes, self.nodes, self.shards, self.slots, self.slot
        return Standing(topology, self.replication_factor, *parts)

    @property
    def seed(self) -> int:
        """Content of the decision, for its ties."""
        return hash64(f"{self.stream}\x1f{self.shard}\x1f{self.slot}\x1f{len(self.kept)}")


class Strategy(Compiles, Protocol):
    """A placement system. `place` answers for a whole stream, `rules` for every later replica.

    All four values of `on_infeasible` come from `placement.streams.decision`, for every strategy,
    if it keeps to this:

    - Rules that are subject to `on_infeasible` carry `policy.strength`: required, unless the mode
      is `degrade`. What is never more than a wish is `Strength.PREFERRED` in any case.
    - `place` returns a Reason, or a Placement with EMPTY slots and reasons, where it finds no
      lawful arrangement. `streams` then rejects, keeps the stream waiting, fills what `extend` can
      (`partial`), or fills the rest by the preferred rules, with the reason as a warning
      (`degrade`); what is still missing then is up to `on_shortage`.
    - A strategy that knows a better fallback takes it in `place` and `extend` while
      `policy.strength` is preferred, and says so in `warnings`.
    - `streams` judges what was placed: an arrangement that breaks a required rule of `rules()`, the
      user's or its own, counts as not found.
    """

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names, those of the systems it follows."""
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

    def unfit(self, spec: StreamSpec, policy: Policy, topology: Topology, /) -> Reason | None:
        """What is wrong with the request as such, such as an unknown name: the stream is rejected,
        also if it brings its replicas."""
        ...

    def advice(self, spec: StreamSpec, policy: Policy, topology: Topology, /) -> tuple[Reason, ...]:
        """Warnings for a stream that is placed, which change nothing."""
        ...

    def resume(
        self, spec: StreamSpec, policy: Policy, shards: list[list[int]], view: View, /
    ) -> tuple[Reason, ...]:
        """Fill the EMPTY slots of given shards as `place` would have gone on; those that find no
        node stay EMPTY, with reasons. `extend` fills what is left."""
        ...

    @property
    def balance(self) -> Balance:
        """What rebalancing evens out first for the strategy's streams, if anything."""
        ...

    @property
    def has_leaders(self) -> bool:
        """Whether the first replica leads, so that leaders are evened out."""
        ...

    @property
    def places_by_choice(self) -> bool:
        """Whether a shard's last replica goes where `choose` says, so that `explain` names the
        step of it that decided instead of an order of the strategy's own."""
        ...

    @property
    def followers_on_suspect(self) -> bool:
        """Whether followers may be placed on suspect nodes where nothing else is left."""
        ...


class ByRules:
    """Base of a strategy that says all it asks for in its rules; has a default for every member
    that a strategy need not bring."""

    on_shortage: ClassVar[OnInfeasible] = OnInfeasible.REJECT
    balance: ClassVar[Balance] = Balance.TOTALS_FIRST
    has_leaders: ClassVar[bool] = True
    places_by_choice: ClassVar[bool] = False
    followers_on_suspect: ClassVar[bool] = False

    def unfit(self, _spec: StreamSpec, _policy: Policy, _topology: Topology, /) -> Reason | None:
        """Nothing."""
        return None

    def advice(
        self, _spec: StreamSpec, _policy: Policy, _topology: Topology, /
    ) -> tuple[Reason, ...]:
        """None."""
        return ()

    def resume(
        self, _spec: StreamSpec, _policy: Policy, _shards: list[list[int]], _view: View, /
    ) -> tuple[Reason, ...]:
        """Leave all to `extend`."""
        return ()

    def extend(self: Strategy, need: Need, policy: Policy, mask: Mask, view: View) -> int | Reason:
        """The best candidate by the strategy's rules, load and nearness."""
        return choose(self.rules(policy, view.topology), mask, need, view)


def candidates(policy: Policy, view: View) -> Mask:
    """Nodes that may receive a replica of the stream at all."""
    mask = view.topology.eligible & view.has_room()
    return mask if policy.nodes.everything else mask & policy.nodes.mask(view.topology)


# What each step of `choose` left over: a name for people, and the nodes.
Trace = list[tuple[str, NDArray[np.int64]]]


def choose(
    rules: Sequence[Rule], mask: Mask, need: Need, view: View, trace: Trace | None = None
) -> int | Reason:
    """The best node for one more replica.

    Required rules remove candidates; preferred rules in their order, nearness to the replaced
    replica, load per weight level by level, and a content-seeded hash choose among the rest.
    `trace`, if given, is filled with what each step left over.
    """
    steps: Trace = [] if trace is None else trace
    topology = view.topology
    standing = need.standing(topology)
    open_nodes = mask.copy()
    open_nodes[np.asarray([*need.kept, *need.excluded], np.int64)] = False
    found = np.flatnonzero(open_nodes)
    if not len(found):
        return nodes_too_few(need, mask, view)
    distinct = found
    for rule in rules:
        if rule.strength is Strength.REQUIRED:
            passing = found[rule.penalty(standing)[found] == 0]
            if not len(passing):
                return _no_candidate(rule, rules, mask, distinct, need, view)
            found = passing
            steps.append((f"the required rule '{rule}'", found))
    leads = RuleSet(rules).leader_preferences
    wishes = [(f"the order of '{rule}'", rule.wish(standing)) for rule in leads]
    soft = (rule for rule in rules if rule.strength is Strength.PREFERRED)
    wishes += [(f"the preferred rule '{rule}'", rule.penalty(standing)) for rule in soft]
    for name, wish in wishes:
        found = least(found, wish[found])
        steps.append((name, found))
    if need.replaces != EMPTY:
        idle = found[~view.busy[found]]
        found = idle if len(idle) else found
        found = _near(found, distance(topology, need.replaces), view)
        steps.append(("nearness to the replaced replica", found))
    return _settled(found, need, view, steps)


def _settled(found: NDArray[np.int64], need: Need, view: View, steps: Trace) -> int:
    """Of equal nodes the one whose domains carry least, level by level, then the least loaded, then
    one by lot."""
    for scope in view.topology.tiers():
        if len(found) == 1:
            break
        found = least(found, view.domain_pressure(scope, HALF, found))
        steps.append((f"the least loaded domain of level {scope.level}", found))
    found = least(found, view.pressure(found))
    steps.append(("the least loaded node", found))
    if need.leads and len(found) > 1:
        for level in (*view.topology.tiers(), None):
            found = least(found, view.leads(level, found))
        steps.append(("the node that leads least", found))
    if len(found) > 1:
        found = found[[by_lot(found, need, view.topology)]]
        steps.append(("a hash of shard and node, which breaks ties", found))
    return int(found[0])


def by_lot(found: Any, need: Need, topology: Topology) -> int:
    """The place of one of equal nodes, by a hash of shard and node."""
    return lowest(need.seed, topology.digests[found])


def _near(found: NDArray[np.int64], climbs: NDArray[np.int64], view: View) -> NDArray[np.int64]:
    """The nearest nodes among those near the mean; all where only the farthest are left."""
    levels = np.unique(climbs[found])
    for level in levels[:-1].tolist():
        nodes = found[climbs[found] == level]
        near: NDArray[np.int64] = nodes[~view.crowded(nodes)]
        if len(near):
            return near
    return found


def unmet(
    rules: Sequence[Rule],
    shards: Sequence[Sequence[int]],
    spec: StreamSpec,
    policy: Policy,
    topology: Topology,
) -> tuple[Reason, ...]:
    """One warning for every preferred rule that some shard does not meet."""
    warnings: list[Reason] = []
    everywhere = policy.standing(spec, topology)
    for rule, broken, _ in judged(rules, Strength.PREFERRED, shards, everywhere):
        message = f"{len(broken)} of {spec.shards} shards do not meet the preferred rule '{rule}'"
        level, seen = everywhere.seen(rule)
        numbers = spec.shards, spec.shards - len(broken)
        warnings.append(Reason(Code.RULE_NOT_MET, message, *numbers, level, seen))
    return tuple(warnings)


def least(found: NDArray[np.int64], key: NDArray[np.generic]) -> NDArray[np.int64]:
    """Those with the least key, of which there is one for each."""
    if len(found) == 1:
        return found
    return found[key == key.min()]  # type: ignore[no-any-return]


def distance(topology: Topology, replaced: int) -> NDArray[np.int64]:
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


def nodes_too_few(need: Need, mask: Mask, view: View) -> Reason:
    """No node in `mask` is without a replica of the shard: what took the others away."""
    found = supply(view.topology, need.nodes, fenced=_fenced(mask, view))
    told = found.told(*_left(found, need, mask, view))
    shard = f"{need.stream}/{need.shard}"
    message = f"no node is left for replica {need.slot} of {shard}: {told}"
    return Reason(found.code, message, need.replication_factor, int(mask.sum()))


def too_few(needed: int, policy: Policy, mask: Mask, view: View, wanted: str) -> Reason:
    """Fewer nodes may hold a replica than are needed: what took the others away. `wanted` is the
    clause that says what needs them."""
    found = supply(view.topology, policy.nodes, fenced=_fenced(mask, view))
    with_room = int((found.mask & view.has_room()).sum())
    more = (room(with_room), allowed(int((found.mask & mask).sum())))
    return Reason(found.code, f"{wanted}: {found.told(*more)}", needed, int(mask.sum()))


def _fenced(mask: Mask, view: View) -> bool:
    """Whether suspect nodes may hold replicas, too."""
    return bool((mask & view.topology.fenced).any())


def _left(found: Supply, need: Need, mask: Mask, view: View) -> list[Part]:
    """What is left of the nodes that the policy admits when capacity, limits, and the shard's
    other replicas have taken theirs."""
    has_room = found.mask & view.has_room()
    now = has_room & mask
    others = now.copy()
    others[np.asarray([*need.kept, *need.excluded], np.int64)] = False
    return [
        room(int(has_room.sum())),
        allowed(int(now.sum())),
        apart(int(others.sum())),
    ]


def _no_candidate(
    broken: Rule,
    rules: Sequence[Rule],
    mask: Mask,
    distinct: NDArray[np.int64],
    need: Need,
    view: View,
) -> Reason:
    """The required rule that no node keeps which was left by those before it."""
    standing = need.standing(view.topology)
    level, seen = standing.seen(broken)
    found = supply(view.topology, need.nodes, fenced=_fenced(mask, view))
    parts, left = _left(found, need, mask, view), distinct
    for rule in rules:
        if rule.strength is Strength.REQUIRED:
            left = left[rule.penalty(standing)[left] == 0]
            parts.append(keeping(rule, len(left)))
        if rule is broken:
            break
    shard = f"{need.stream}/{need.shard}"
    message = f"no node for replica {need.slot} of {shard}: {found.told(*parts)}"
    return Reason(Code.NO_CANDIDATE, message, need=1, have=0, level=level, seen=seen)
