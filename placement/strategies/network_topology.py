"""Cassandra's NetworkTopologyStrategy: replicas per datacenter, one walk over the ring."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.allocator import (
    VNODES,
    VNODES_MAX,
    ByRules,
    Fits,
    OnRing,
    Placement,
    Positions,
    ReplicaRequest,
    TokenRing,
    View,
    admitted_mask,
    explain_no_node,
    fill_slots,
    find_first_fitting,
    find_token_fault,
    find_unmet,
    is_among,
    pick_by_preferences,
    ring_of,
    walk_in_bulk,
)
from placement.assignments import first_occurrences
from placement.model import Code, Location, Reason, StreamSpec, natural_key
from placement.policy import Balance, OnInfeasible, Policy, unknown_value
from placement.rules import (
    DomainCountRule,
    Exactly,
    Mask,
    Penalties,
    Rule,
    RuleContext,
    RuleFinding,
    Strength,
)
from placement.topology import LEAF, Scope, Topology

# What a datacenter takes of a walk: nothing, the first node of a rack, any node.
_NONE, _FRESH, _ANY = range(3)

# Far above the sum that any stream may have.
_COUNT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class NetworkTopologyStrategy(ByRules):
    """Per-datacenter counts, racks of a datacenter in turn, as Cassandra and ScyllaDB (vnodes).

    Goals, in this order:
        1. Each datacenter holds its count of replicas.
        2. Within a datacenter every rack holds one before any holds two.

    Constraints:
        Distinct nodes; the user's required rules and node filters; capacity. A datacenter is the
        first level of the path, a rack the whole path. A datacenter with fewer nodes than its
        count holds one replica on each; the stream is then `partial` (Cassandra says nothing).
        A datacenter in which no node stands is refused unless its count is 0.

    Algorithm:
        `NetworkTopologyStrategy.java`: one walk from the first token at or after the shard's own.
        A node is skipped if it is taken or its datacenter is full or not asked for. The first node
        of a rack is taken; another node of a rack is taken only while the datacenter has repeats
        left, of which it has its count minus the number of its racks. The order of acceptance is
        the order of the list. Only nodes that may receive replicas count, so that a dead rack
        leaves its place to repeats in the others. `extend` goes on with the walk, given the
        replicas that stay.

        Repeats go to whichever racks the walk meets first: more replicas than racks are not spread
        evenly, and the answers of existing rings are worth more than that. Where hashing decides,
        `weight` gives a node more tokens. Rebalancing leaves replicas where the tokens put them.

    Example:
        Tokens A1=0, A2=10, B1=20 in racks A and B of dc1, replication {dc1: 3}: a shard at 0
        takes A1, then A2 by the one repeat, then B1.
    """

    name: str = "network_topology"
    aliases: tuple[str, ...] = ("cassandra",)
    parameters: tuple[str, ...] = ("replication", "vnodes")
    on_infeasible: OnInfeasible = OnInfeasible.PARTIAL
    balance: ClassVar[Balance] = Balance.NEVER
    on_shortage: ClassVar[OnInfeasible] = OnInfeasible.PARTIAL

    def compile(self, policy: Mapping[str, Any], _topology: Topology) -> Mapping[str, Any] | Reason:
        """Check `replication` (by datacenter, with or without a slash) and `vnodes` (16)."""
        given = policy.get("replication")
        if not isinstance(given, Mapping) or not given:
            message = "policy: 'replication' must give each datacenter its replicas: {dc1: 3}"
            return Reason(Code.POLICY_MALFORMED, message)
        replication: dict[str, int] = {}
        for written, count in given.items():
            name = str(written).removeprefix("/")
            if name in replication:
                message = f"policy: 'replication' names datacenter '{name}' twice"
                return Reason(Code.POLICY_MALFORMED, message)
            number = int(count) if isinstance(count, str) and count.isdecimal() else count
            if type(number) is not int or not 0 <= number <= _COUNT_MAX:
                known = ("a number of 0 or more",)
                return unknown_value("policy", f"replication.{written}", count, known)
            replication[name] = number
        vnodes = policy.get("vnodes", VNODES)
        if type(vnodes) is not int or not 1 <= vnodes <= VNODES_MAX:
            return unknown_value("policy", "vnodes", vnodes, (f"a number from 1 to {VNODES_MAX}",))
        return {"replication": replication, "vnodes": vnodes}

    def rules(self, policy: Policy, topology: Topology) -> tuple[Rule, ...]:
        """List the user's rules, then counts and racks per datacenter."""
        counts = tuple(policy.parameters["replication"].items())
        vnodes = policy.parameters["vnodes"]
        on_ring = (OnRing(vnodes),) if ring_of(topology, vnodes).explicit else ()
        own = (DatacenterCounts(counts, policy.strength), DatacenterRacks(counts))
        return (*policy.rules, *on_ring, *own)

    def find_fault(self, spec: StreamSpec, policy: Policy, topology: Topology) -> Reason | None:
        """Find an unknown datacenter, a wrong sum of counts, or tokens that form no ring."""
        replication: Mapping[str, int] = policy.parameters["replication"]
        known = {str(topology.locations[n].prefix(1)) for n in topology.index.values()} - {""}
        seen = tuple(sorted(known, key=natural_key))
        for name, count in replication.items():
            if count and f"/{name}" not in known:
                message = (
                    f"policy: replication names datacenter '{name}', in which no node stands; "
                    f"known are {', '.join(seen) or 'none'}"
                )
                return Reason(Code.DOMAIN_UNKNOWN, message, count, 0, seen=seen)
        total = sum(replication.values())
        if total != spec.replication_factor:
            message = f"replication_factor is {spec.replication_factor}, replication adds up to"
            code = Code.REPLICATION_FACTOR_OUT_OF_RANGE
            return Reason(code, f"{message} {total}", total, spec.replication_factor)
        return find_token_fault(spec, topology)

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        """Walk for each shard; slots that find no node stay empty with the reason."""
        walk = _Walk(policy, view)
        whole = walk_in_bulk(spec, policy, view, walk.ring, partial(walk.pick_all, spec))
        shards, reasons = (
            (whole, ())
            if whole
            else fill_slots(spec, policy, view, walk.pick, self.rules(policy, view.topology))
        )
        rules = self.rules(policy, view.topology)
        return Placement(shards, reasons, find_unmet(rules, shards, spec, policy, view.topology))

    def extend(self, need: ReplicaRequest, policy: Policy, mask: Mask, view: View) -> int | Reason:
        """Choose the node that the walk accepts next, given those that stay."""
        return _Walk(policy, view).pick(need, mask)


@dataclass(slots=True)
class _Walk:
    """One plan's walks over the ring."""

    policy: Policy
    view: View
    ring: TokenRing = field(init=False)
    datacenters: NDArray[np.int32] = field(init=False)
    racks: NDArray[np.int32] = field(init=False)
    counts: dict[int, int] = field(init=False)
    known: Mask | None = None
    open: Mask = field(init=False)
    offered: dict[int, set[int]] = field(init=False)

    def __post_init__(self) -> None:
        topology = self.view.topology
        self.ring = ring_of(topology, self.policy.parameters["vnodes"])
        self.datacenters = topology.domain_of(Scope(depth=1))
        self.racks = topology.domain_of(LEAF)
        self.counts = _counts_by_datacenter(self.policy.parameters["replication"], topology)

    def pick(self, need: ReplicaRequest, mask: Mask) -> int | Reason:
        """Pick the first node of the walk that its datacenter accepts."""
        return pick_by_preferences(lambda policy: self._pick(policy, need, mask), self.policy)

    def _pick(self, policy: Policy, need: ReplicaRequest, mask: Mask) -> int | Reason:
        left = admitted_mask(policy, mask, need, self.view)
        if isinstance(left, Reason):
            return left
        self._look_at(left)
        present: dict[int, list[int]] = {datacenter: [] for datacenter in self.counts}
        for node in need.kept:
            present.setdefault(int(self.datacenters[node]), []).append(int(self.racks[node]))
        used = {datacenter: set(racks) for datacenter, racks in present.items()}
        wanting = {d for d, count in self.counts.items() if len(present[d]) < count}
        repeating = {d for d in wanting if self._count_repeats(d, present[d]) > 0}
        taken = {*need.kept, *need.excluded}
        for node in self.ring.clockwise(self.ring.start(need)):
            datacenter = int(self.datacenters[node])
            if datacenter not in wanting or not self.open[node] or node in taken:
                continue
            if datacenter in repeating or int(self.racks[node]) not in used[datacenter]:
                return node
        return self._explain_too_few(need, present)

    def pick_all(self, spec: StreamSpec, starts: Positions, open_at: Mask) -> Positions | None:
        """Pick the node of every slot of every shard as `pick` does; None if a slot finds none."""
        owners, every = self.ring.owners, np.arange(spec.shards)
        wanted = [datacenter for datacenter, count in self.counts.items() if count]
        counts = np.asarray([self.counts[datacenter] for datacenter in wanted], np.int64)
        # By position the number of its datacenter in `wanted`; those not to be taken come last.
        nowhere = len(wanted)
        at = np.full(len(owners), nowhere, np.int64)
        for number, datacenter in enumerate(wanted):
            at[open_at & (self.datacenters[owners] == datacenter)] = number
        racks = self.racks[owners]
        offered = [len(np.unique(racks[at == number])) for number in range(nowhere)]
        present = np.zeros((spec.shards, nowhere), np.int64)
        repeated = np.zeros((spec.shards, nowhere), np.int64)
        allowed = np.full((spec.shards, nowhere + 1), _NONE)
        taken = np.full((spec.shards, spec.replication_factor), -1, np.int64)
        for slot in range(spec.replication_factor):
            spare = counts - np.asarray(offered, np.int64) - repeated > 0
            allowed[:, :nowhere] = np.where(present < counts, np.where(spare, _ANY, _FRESH), _NONE)
            # What the walk has passed by it would pass by again.
            begin = taken[:, slot - 1] if slot else starts
            fits = _make_fits(allowed, at, racks, owners, taken[:, :slot])
            taken[:, slot] = find_first_fitting(every, begin, len(owners), fits)
            if (taken[:, slot] < 0).any():
                return None
            new = taken[:, slot]
            again = is_among(racks[new, None], racks[taken[:, :slot]])[:, 0]
            present[every, at[new]] += 1
            repeated[every, at[new]] += again
        return taken

    def _count_repeats(self, datacenter: int, present: list[int]) -> int:
        """Count the replicas that may still stand in racks that have one already."""
        racks = set(present)
        there = len(racks | self.offered.get(datacenter, set()))
        return self.counts[datacenter] - there - (len(present) - len(racks))

    def _look_at(self, mask: Mask) -> None:
        """Mask the nodes that may be taken, and list their racks in each datacenter."""
        if self.known is mask:
            return
        self.known = mask
        self.open = mask & self.ring.members(self.view.topology) if self.ring.explicit else mask
        self.offered = {}
        racks, first = np.unique(self.racks[self.open], return_index=True)
        datacenters = self.datacenters[self.open][first]
        for rack, datacenter in zip(racks.tolist(), datacenters.tolist(), strict=True):
            self.offered.setdefault(datacenter, set()).add(rack)

    def _explain_too_few(self, need: ReplicaRequest, present: Mapping[int, list[int]]) -> Reason:
        topology = self.view.topology
        have = {str(topology.domains[d]): len(racks) for d, racks in present.items()}
        wanted = {f"/{name}": n for name, n in self.policy.parameters["replication"].items()}
        short = [name for name, count in wanted.items() if have.get(name, 0) < count]
        if not short:
            return explain_no_node(need, self.open, self.view)
        short.sort(key=natural_key)
        counts = (f"{d} has nodes for {have.get(d, 0)} of {wanted[d]} replicas" for d in short)
        message = f"no node can take replica {need.slot} of {need.stream}/{need.shard}: "
        message += ", ".join(counts)
        total, there = sum(wanted[d] for d in short), sum(have.get(d, 0) for d in short)
        return Reason(Code.NODES_TOO_FEW, message, total, there, seen=tuple(short))


def _make_fits(
    allowed: NDArray[np.int64],
    at: NDArray[np.int64],
    racks: NDArray[np.int32],
    owners: NDArray[np.int64],
    taken: Positions,
) -> Fits:
    """Make the test whether the datacenters of positions accept their nodes."""

    def can_take(shards: Positions, positions: Positions) -> Mask:
        takes, present = allowed[shards[:, None], at[positions]], taken[shards]
        fresh = (takes >= _FRESH) & ~is_among(racks[positions], racks[present])
        if not (allowed == _ANY).any():
            return fresh
        repeat: Mask = (takes == _ANY) & ~is_among(owners[positions], owners[present])
        return fresh | repeat

    return can_take


def _counts_by_datacenter(replication: Mapping[str, int], topology: Topology) -> dict[int, int]:
    """Look up the counts by the index of the datacenter, of those with a registered node."""
    registered = np.fromiter(topology.index.values(), np.int64)
    column = topology.domain_of(Scope(depth=1))[registered]
    known = {topology.domains[d]: d for d in np.unique(column).tolist()}
    named = {Location((name,)): count for name, count in replication.items()}
    return {known[place]: count for place, count in named.items() if place in known}


@dataclass(frozen=True, slots=True)
class DatacenterCounts(DomainCountRule):
    """Each datacenter holds its count of replicas, and no other holds any."""

    counts: tuple[tuple[str, int], ...]
    strength: Strength = Strength.REQUIRED
    per: Scope = field(default=Scope(depth=1, name="1"))

    @property
    def general(self) -> Exactly:
        """Write the rule as one of the user's kinds."""
        counts = ((Location((name,)), count) for name, count in self.counts)
        return Exactly(tuple(counts), self.strength)

    def __str__(self) -> str:
        return "replication " + ", ".join(f"/{name}: {count}" for name, count in self.counts)

    def penalty(self, standing: RuleContext) -> Penalties:
        """Count the replicas above the required number after one more replica on each node."""
        limits, present = self._tally(standing)
        domains = standing.topology.domain_of(self.per)
        over = np.asarray([present.get(d, 0) + 1 - limits.get(d, 0) for d in domains.tolist()])
        return np.maximum(over.astype(np.int64), 0)

    def violations(self, standing: RuleContext) -> list[RuleFinding]:
        """Report datacenters that hold more, or fewer while the shard has all its replicas."""
        limits, present = self._tally(standing)
        whole = len(standing.replicas) >= standing.replication_factor
        name = standing.topology.domains
        found = [
            RuleFinding(str(name[d]) or "(unlocated)", present.get(d, 0), limits.get(d, 0))
            for d in {*limits, *present}
            if present.get(d, 0) > limits.get(d, 0)
            or (whole and present.get(d, 0) < limits.get(d, 0))
        ]
        return sorted(found, key=lambda finding: natural_key(finding.domain or ""))

    def may_violate(self, shards: NDArray[np.int64], standing: RuleContext) -> Mask:
        """Mask the whole shards, a row of nodes each, that break the rule."""
        rows = standing.topology.domain_of(self.per)[shards]
        limits = _counts_by_datacenter(dict(self.counts), standing.topology)
        doubtful = np.full(len(rows), sum(limits.values()) != rows.shape[1])
        for datacenter, limit in limits.items():
            doubtful |= (rows == datacenter).sum(axis=1) != limit
        return doubtful

    def _tally(self, standing: RuleContext) -> tuple[dict[int, int], dict[int, int]]:
        topology = standing.topology
        column = topology.domain_of(self.per)
        present: dict[int, int] = {}
        for node in standing.replicas:
            present[int(column[node])] = present.get(int(column[node]), 0) + 1
        return _counts_by_datacenter(dict(self.counts), topology), present


@dataclass(frozen=True, slots=True)
class DatacenterRacks(DomainCountRule):
    """A shard's replicas of a datacenter stand in as many of its racks as there are."""

    counts: tuple[tuple[str, int], ...]
    strength: Strength = Strength.PREFERRED
    per: Scope = field(default=LEAF)

    def __str__(self) -> str:
        return "racks of a datacenter in turn"

    def penalty(self, standing: RuleContext) -> Penalties:
        """Return 1 for each node in a used rack whose datacenter may repeat no rack."""
        topology = standing.topology
        racks, datacenters = topology.domain_of(LEAF), topology.domain_of(Scope(depth=1))
        penalties = np.zeros(topology.size, np.int64)
        live = set(standing.live_domains(LEAF).tolist())
        for datacenter, count in _counts_by_datacenter(dict(self.counts), topology).items():
            there = datacenters == datacenter
            present = [int(racks[n]) for n in standing.replicas if there[n]]
            offered = live & set(racks[there].tolist())
            if count - len(offered | set(present)) - (len(present) - len(set(present))) <= 0:
                penalties[there & np.isin(racks, present)] = 1
        return penalties

    def violations(self, standing: RuleContext) -> list[RuleFinding]:
        """Report datacenters whose replicas could span more racks."""
        topology = standing.topology
        racks, datacenters = topology.domain_of(LEAF), topology.domain_of(Scope(depth=1))
        live = set(standing.live_domains(LEAF).tolist())
        found = []
        for datacenter in _counts_by_datacenter(dict(self.counts), topology):
            there = datacenters == datacenter
            present = [int(racks[n]) for n in standing.replicas if there[n]]
            need = min(len(present), len(live & set(racks[there].tolist()) | set(present)))
            if len(set(present)) < need:
                found.append(
                    RuleFinding(str(topology.domains[datacenter]), len(set(present)), need)
                )
        return sorted(found, key=lambda finding: natural_key(finding.domain or ""))

    def may_violate(self, shards: NDArray[np.int64], standing: RuleContext) -> Mask:
        """Mask the whole shards, a row of nodes each, that break the rule."""
        topology = standing.topology
        racks, datacenters = topology.domain_of(LEAF), topology.domain_of(Scope(depth=1))
        live = np.zeros(int(racks.max(initial=0)) + 1, bool)
        live[standing.live_domains(LEAF)] = True
        rows, above = racks[shards], datacenters[shards]
        fresh, doubtful = first_occurrences(rows), np.zeros(len(rows), bool)
        for datacenter in _counts_by_datacenter(dict(self.counts), topology):
            there = above == datacenter
            offered = np.unique(racks[datacenters == datacenter])
            more = (fresh & there & ~live[rows]).sum(axis=1)
            need = np.minimum(there.sum(axis=1), live[offered].sum() + more)
            doubtful |= (fresh & there).sum(axis=1) < need
        return doubtful
