"""Kudu's placement policy: no location holds a majority of a tablet's replicas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.allocator import (
    ByRules,
    Key,
    Nodes,
    Placement,
    ReplicaRequest,
    StreamDraft,
    View,
    choose,
    domain_tree,
    find_shortage,
    keep_best,
    kernels,
    make_leader_choice,
    place_by,
)
from placement.assignments import EMPTY
from placement.hashing import digest64, digests64, mix31, scores31
from placement.model import Code, Reason, StreamSpec
from placement.policy import Balance, OnInfeasible, Policy
from placement.rules import (
    AtMost,
    DomainCountRule,
    Mask,
    Penalties,
    Rule,
    RuleContext,
    RuleFinding,
    Share,
    Strength,
)
from placement.topology import LEAF, NO_DOMAIN, Scope, Topology

# Groups of the location step: below its limit, or at its limit; each time behind them the location
# that a replica is to leave although its node is well (Kudu's REPLACE mark).
_MAIN, _LEFT, _OVERFLOW, _LEFT_OVERFLOW = range(4)

# Servers looked at for one replica: those drawn, and as a rule none that holds another.
_LOOKED_AT = 3


@dataclass(frozen=True, slots=True)
class NoMajority(DomainCountRule):
    """No location holds a majority of a shard's replicas.

    Half of an even number counts as one. The rule asks nothing of one replica, or if there is one
    live location.
    """

    domains_interchangeable: ClassVar[bool] = True
    per: Scope = LEAF
    strength: Strength = Strength.PREFERRED

    def __str__(self) -> str:
        return f"at_most {Share.MINORITY} per {self.per}"

    def penalty(self, standing: RuleContext) -> Penalties:
        """Count the replicas above the limit after adding one on each node."""
        return self._limit(standing).penalty(standing)

    def violations(self, standing: RuleContext) -> list[RuleFinding]:
        """List the locations that hold more than the limit."""
        return self._limit(standing).violations(standing)

    def may_violate(self, shards: NDArray[np.int64], standing: RuleContext) -> Mask:
        """Mask the whole shards that break the rule."""
        return self._limit(standing).may_violate(shards, standing)

    def _limit(self, standing: RuleContext) -> AtMost:
        factor = standing.replication_factor
        spread = factor > 1 and len(standing.live_domains(self.per)) > 1
        return AtMost(Share.MINORITY if spread else factor, self.per, self.strength)


@dataclass(frozen=True, slots=True)
class LocationMajorityStrategy(ByRules):
    """Two steps, a location and then a server in it, as Kudu's master places tablets.

    Goals, in this order:
        1. With more than two locations none holds a majority of a tablet's replicas; with two, the
           larger part is as small as it can be.
        2. Locations carry equal loads (replicas per server), then servers do.

    Constraints:
        Distinct servers. A location is the whole path, compared as one name. The location rule is
        kept as well as the servers allow: where it cannot be, the stream is `degraded`, or what
        `on_infeasible` says. Fewer live servers than replicas reject the stream. As many as
        replicas is a warning: a failure could not be repaired.

    Algorithm:
        Location step, replica by replica: a location whose servers all hold one is skipped. It is
        at its limit when one more would make it hold over half (two locations), or half or more
        (more than two); a location without any is never at its limit. Of the locations below their
        limit, or else of those at it, the least loaded is taken. Server step: the less loaded of
        two servers; with `range_aware` the one with fewest replicas of the shard's range, then of
        the stream, then of all; where the stream has a `dimension`, both the range and the stream
        are counted over all streams of it. Where Kudu draws lots a hash decides: of the location
        and what it holds, for servers of the replica. Without rules of the user whole streams go
        through both steps at once. A `dimension` limits the count of the server step to its
        streams.
        Kudu's location loads do not see the tablets of the same batch, so that many tablets go to
        one location; here each counts at once. A replica to be replaced does not count for its
        location, and its location comes last while its server is well: Kudu may put the new one
        beside another.
        Rebalancing keeps Kudu's order: each table (range) is even before all replicas are.

    Example:
        /a and /b with two servers, /c with one, all empty: three replicas stand 1 + 1 + 1, five
        2 + 2 + 1, and six are rejected. Without /c three stand 2 + 1 and are `degraded`.
    """

    name: str = "location_majority"
    aliases: tuple[str, ...] = ("kudu",)
    parameters: tuple[str, ...] = ("range_aware",)
    on_infeasible: OnInfeasible = OnInfeasible.DEGRADE
    balance: ClassVar[Balance] = Balance.STREAMS_FIRST

    def compile(self, policy: Mapping[str, Any], _topology: Topology) -> Mapping[str, Any] | Reason:
        """Check `range_aware`: true or false."""
        aware = policy.get("range_aware", False)
        if type(aware) is not bool:
            message = f"policy: unknown value '{aware}' for 'range_aware'; known are true, false"
            return Reason(Code.POLICY_UNKNOWN_VALUE, message)
        return {"range_aware": aware}

    def rules(self, policy: Policy, _topology: Topology) -> tuple[Rule, ...]:
        """List the user's rules, then the majority rule."""
        return (*policy.rules, NoMajority(LEAF, policy.strength))

    def find_fault(self, spec: StreamSpec, policy: Policy, _topology: Topology) -> Reason | None:
        """Find labels of ranges that do not match the shards."""
        ranges = spec.ranges
        if not policy.parameters["range_aware"] or ranges is None or len(ranges) == spec.shards:
            return None
        message = f"ranges lists {len(ranges)} labels, the stream has {spec.shards} shards"
        return Reason(Code.SHARDS_OUT_OF_RANGE, message, spec.shards, len(ranges))

    def advice(self, spec: StreamSpec, policy: Policy, topology: Topology) -> tuple[Reason, ...]:
        """Warn if no live server is left to repair with."""
        live = int((topology.eligible & policy.nodes.mask(topology)).sum())
        if live != spec.replication_factor:
            return ()
        message = f"{live} live nodes for {live} replicas: none is left to replace a lost one"
        return (Reason(Code.NO_SPARE_NODE, message, live + 1, live),)

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        """Place tablet by tablet, or say how many servers are missing."""
        mask = view.topology.eligible & policy.nodes.mask(view.topology) & view.has_room()
        shortage = find_shortage(spec, policy, mask, view)
        return shortage or place_by(self, spec, policy, view, _place_in_bulk)

    def resume(
        self, spec: StreamSpec, policy: Policy, shards: list[list[int]], view: View
    ) -> tuple[Reason, ...]:
        """Add the replicas that are missing."""
        draft = StreamDraft(spec, policy, shards, view)
        steps = Steps(policy, view, spec.stream)
        elsewhere = _ReplicaCounts(view, spec) if spec.dimension is not None else None

        def order(shard: int, kept: Sequence[int]) -> list[Key]:
            need = ReplicaRequest(spec.stream, shard, len(kept), spec.replication_factor, kept)
            own, in_range = draft.counts, draft.range_counts(shard)
            if elsewhere is not None:
                own, in_range = elsewhere.dimension + own, elsewhere.count_range(shard) + in_range
            scoped = view.load if elsewhere is None else own
            loads = (in_range, own, view.load)
            return steps.keys(need, draft.wishes(shard, kept), scoped, loads)

        return tuple(draft.fill(order, make_leader_choice(draft)))

    def extend(self, need: ReplicaRequest, policy: Policy, mask: Mask, view: View) -> int | Reason:
        """Choose the node of one more replica by the two steps."""
        topology = view.topology
        rules = self.rules(policy, topology)
        standing = RuleContext(
            topology,
            need.replication_factor,
            need.kept,
            need.stream_nodes,
            need.nodes,
            slot=need.slot,
        )
        left = mask.copy()
        left[np.asarray([*need.kept, *need.excluded], np.int64)] = False
        wishes: list[Key] = []
        for rule in rules:
            if rule.strength is Strength.REQUIRED:
                left &= rule.penalty(standing) == 0
            elif not isinstance(rule, NoMajority):
                wishes.append(rule.penalty(standing).__getitem__)
        if not left.any():
            return choose(rules, mask, need, view)
        counts = _find_counts(view, need)
        scoped = view.load if counts.spec.dimension is None else counts.dimension
        own = counts.stream if counts.spec.dimension is None else counts.dimension
        loads = (counts.count_range(need.shard), own, view.load)
        keys = Steps(policy, view, need.stream).keys(need, wishes, scoped, loads)
        node = int(keep_best(np.flatnonzero(left), keys)[0])
        counts.add(need.shard, node)
        return node


def _place_in_bulk(draft: StreamDraft) -> bool:
    """Place all shards at once by both steps."""
    view, spec = draft.view, draft.spec
    scoped = view.load if spec.dimension is None else _ReplicaCounts(view, spec).dimension
    return Steps(draft.policy, view, spec.stream).place(draft, scoped)


class Steps:
    """The location step and the server step.

    They are here twice, because the user's rules may ask for the second best node and so on: as
    keys for one replica, and as kernels for a whole stream without such rules. A test compares the
    two.
    """

    def __init__(self, policy: Policy, view: View, stream: str) -> None:
        topology = view.topology
        self._view = view
        self._stream = stream
        self._aware = bool(policy.parameters["range_aware"])
        self._usable = topology.eligible & policy.nodes.mask(topology)
        self._locations = topology.domain_of(LEAF)
        self._size = int(self._locations.max(initial=0)) + 1
        self._tree = domain_tree(topology, self._usable)
        leaves, of = self._tree.leaves, self._locations[self._tree.leaves]
        # In whole millionths, so that a sum does not depend on the order of nodes.
        weight = np.bincount(of, np.rint(topology.weight[leaves] * 1e6), self._size) / 1e6
        self._weight = np.where(weight > 0, weight, 1.0)  # without servers nothing goes there
        self._servers = np.bincount(of, minlength=self._size)
        # Domains that no node stands in any more are still known to the topology.
        known = _location_digests(topology)[: self._size]
        self._ties = scores31(digest64(stream, "locations"), known)
        self._place = np.zeros(topology.size, np.int64)
        fresh = np.diff(of, prepend=NO_DOMAIN) != 0
        ordinal = np.arange(len(of))
        self._place[leaves] = ordinal - np.maximum.accumulate(np.where(fresh, ordinal, 0))

    def keys(
        self,
        need: ReplicaRequest,
        wishes: list[Key],
        scoped: NDArray[np.int64],
        loads: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    ) -> list[Key]:
        """Rank the candidates for the next replica.

        By group, the user's preferences and load of the location, then the server by `scoped` load
        or, range-aware, by all `loads` in turn.
        """
        view, of = self._view, self._locations
        alive = [n for n in need.kept if n != need.replaces and not view.topology.is_dead(n)]
        copies = np.bincount(of[np.asarray(alive, np.int64)], minlength=self._size)
        live = np.bincount(of[self._usable], view.load[self._usable], self._size)
        total = live.astype(np.int64) + copies
        load, group = total / self._weight, self._groups(need, copies)
        place = mix31(self._ties + total)
        weight = view.topology.weight
        first = mix31(self._seeds(np.array([need.shard])) + need.slot)

        def count_behind(found: Nodes, lot: NDArray[np.int64]) -> NDArray[np.int64]:
            """Count how far each server comes behind the one drawn."""
            return (self._place[found] - lot) % np.maximum(self._servers, 1)[of[found]]

        def rank_drawn(found: Nodes) -> NDArray[np.generic]:
            """Rank two servers drawn by lot by load, and all others behind them."""
            order = count_behind(found, first)
            drawn = [int(order.argmin())]
            order = count_behind(found, mix31(first))
            order[drawn] = self._servers.max()
            drawn.append(int(order.argmin()))
            values = np.full(len(found), np.inf)
            values[drawn] = (scoped / weight)[found[drawn]]
            return values

        server: list[Key] = [rank_drawn]
        if self._aware:
            server = [(counts / weight).__getitem__ for counts in loads]
        location: list[Key] = [
            lambda found: group[of[found]],
            *wishes,
            lambda found: load[of[found]],
            lambda found: place[of[found]],
        ]
        return [*location, *server, lambda found: count_behind(found, first)]

    def place(self, draft: StreamDraft, scoped: NDArray[np.int64]) -> bool:
        """Place all shards of an empty stream in both steps, ranked as by `keys`.

        False if that takes more: range-aware, or a server can be full.
        """
        tree, spec, topology = self._tree, draft.spec, self._view.topology
        if (self._view.room()[tree.leaves] < spec.shards).any():
            return False
        if self._aware or (self._view.room()[tree.leaves] < spec.shards).any():
            return False
        factor, wanted = spec.replication_factor, spec.shards * spec.replication_factor
        first, end, above = tree.elements[:3]
        at = above[tree.domains :] - above[tree.domains]
        here = np.arange(above[tree.domains], tree.domains)
        domains = np.zeros(len(here), np.int64)
        domains[at] = self._locations[tree.leaves]
        *_, locations = kernels.run(
            kernels.choose_locations,
            (len(here) + wanted) * len(here).bit_length(),
            end[here] - first[here],
            np.bincount(at, self._view.load[tree.leaves]).astype(np.int64),
            self._weight[domains],
            self._ties[domains],
            self._cap(factor),
            factor,
            np.full(wanted, EMPTY, np.int64),
        )
        if (locations == EMPTY).any():
            return False
        *_, servers = kernels.run(
            kernels.draw_servers,
            wanted * _LOOKED_AT,
            np.append(first[here], len(first)) - tree.domains,
            scoped[tree.leaves],
            topology.weight[tree.leaves],
            self._seeds(np.arange(spec.shards)),
            locations,
            factor,
            np.full(wanted, EMPTY, np.int64),
        )
        draft.enter(draft.put_leaders_first(tree.leaves[servers]))
        return True

    def _seeds(self, shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """Hash each shard for its lots."""
        return scores31(digest64(self._stream, "lots"), shards.astype(np.uint64))

    def _cap(self, factor: int) -> int:
        """Compute the replicas of a shard from which on a location is at its limit."""
        live = int((self._servers > 0).sum())
        most = factor // 2 if live == 2 else (factor + 1) // 2 - 1
        return max(most, 1) if live > 1 else factor

    def _groups(self, need: ReplicaRequest, copies: NDArray[np.int64]) -> NDArray[np.int64]:
        """Group the locations: below the limit or at it, then left by a replaced replica."""
        over = copies >= self._cap(need.replication_factor)
        groups = np.where(over, _OVERFLOW, _MAIN)
        if need.replaces != EMPTY and self._view.topology.eligible[need.replaces]:
            groups[self._locations[need.replaces]] += 1
        return groups


def _location_digests(topology: Topology) -> NDArray[np.uint64]:
    """Hash every domain's path; cached in the topology."""
    return topology.derive(
        "digests of locations", lambda: digests64(("location",), map(str, topology.domains))
    )


class _ReplicaCounts:
    """Replicas by node: of the stream, of its dimension, and of each of its ranges.

    Ranges count over all streams of the dimension, if there is one.
    """

    def __init__(self, view: View, spec: StreamSpec) -> None:
        size = view.topology.size
        self.spec = spec
        self.stream = np.zeros(size, np.int64)
        self.dimension = np.zeros(size, np.int64)
        # Streams whose shards are counted by range, with the nodes of each shard.
        self._parted: list[tuple[StreamSpec, NDArray[np.int32]]] = []
        for index, nodes in view.streams():
            other = view.spec_of(index)
            if other is None:
                continue
            kin = spec.dimension is not None and other.dimension == spec.dimension
            if kin:
                self.dimension += _count_by_node(nodes, size)
            if other.stream == spec.stream:
                self.stream += _count_by_node(nodes, size)
            if other.stream == spec.stream or (kin and spec.ranges and other.ranges):
                self._parted.append((other, nodes))

    def count_range(self, shard: int) -> NDArray[np.int64]:
        """Count the replicas by node of the shards with this shard's range label."""
        size = len(self.stream)
        return self._ranges.setdefault(_range_label(self.spec, shard), np.zeros(size, np.int64))

    @cached_property
    def _ranges(self) -> dict[str, NDArray[np.int64]]:
        """Count the replicas by node of each range."""
        found: dict[str, NDArray[np.int64]] = {}
        for spec, nodes in self._parted:
            shards: dict[str, list[int]] = {}
            for shard in range(len(nodes)):
                shards.setdefault(_range_label(spec, shard), []).append(shard)
            for label, members in shards.items():
                counts = _count_by_node(nodes[members], len(self.stream))
                found[label] = found[label] + counts if label in found else counts
        return found

    def add(self, shard: int, node: int) -> None:
        """Count one more replica of the stream."""
        for counts in (self.stream, self.dimension, self.count_range(shard)):
            counts[node] += 1


def _range_label(spec: StreamSpec, shard: int) -> str:
    """Find the range that a shard belongs to; one for all without a label."""
    labels = spec.ranges or ()
    return labels[shard] if shard < len(labels) else ""


def _count_by_node(nodes: NDArray[np.int32], size: int) -> NDArray[np.int64]:
    return np.bincount(nodes[nodes != EMPTY], minlength=size)


def _find_counts(view: View, need: ReplicaRequest) -> _ReplicaCounts:
    """Find the replica counts of the stream, once for each plan."""
    key = (_ReplicaCounts, need.stream)
    if key not in view.memory:
        specs = (view.spec_of(index) for index, _ in view.streams())
        blank = StreamSpec(need.stream, 0, need.replication_factor, {})
        spec = next((s for s in specs if s is not None and s.stream == need.stream), blank)
        view.memory[key] = _ReplicaCounts(view, spec)
    counts: _ReplicaCounts = view.memory[key]
    return counts
