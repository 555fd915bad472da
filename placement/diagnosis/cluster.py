"""Diagnoses a whole cluster: every violation with its class, health, critical domains.

The given assignments are judged by the rules that would have placed them. Streams of one policy
and replication factor are judged together, as arrays; only shards with a breach are looked at one
by one (`ShardFindings`). `placement.diagnosis.shard` has the sentences, which repair uses, too.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY, ShardRows, by_size, first_occurrences
from placement.diagnosis.findings import UNKNOWN, Diagnosed, Diagnosis, StreamToDiagnose
from placement.diagnosis.fixability import FixabilityChecker, is_wide
from placement.diagnosis.health import (
    Copies,
    Health,
    UnderDiversified,
    critical_domains,
    quorum_size,
    shard_health,
    under_diversified,
)
from placement.diagnosis.shard import REPLICAS_RULE, colocated_unit, stray_slots
from placement.model import (
    AdministrativeState,
    Code,
    Liveness,
    Reason,
    StreamSpec,
    ViolationClass,
)
from placement.policy import Policy
from placement.rules import (
    Even,
    Rule,
    RuleContext,
    RuleFinding,
    RuleSet,
    Strength,
    broken_rows,
    live_domains,
)
from placement.strategies import STRATEGIES
from placement.topology import Topology
from placement.wording import are, counted

NODE_LEVEL = "node"


@dataclass(frozen=True, slots=True)
class SuspectShard:
    """A shard with something wrong: its list, where whole copies are, and its distinct living
    nodes. For a stream as a whole `shard` is None."""

    spec: StreamSpec
    shard: int | None = None
    nodes: Sequence[int] = ()
    complete: Sequence[int] = ()
    held: Sequence[int] | None = None


class ShardFindings:
    """The faults of shards whose streams share a policy and a replication factor. `everywhere` is
    what their rules are asked about, without a shard."""

    def __init__(
        self,
        topology: Topology,
        policy: Policy,
        everywhere: RuleContext,
        prospects: FixabilityChecker,
    ) -> None:
        self._topology, self._policy = topology, policy
        self._factor = everywhere.replication_factor
        self._everywhere, self._prospects = everywhere, prospects
        self._levels: dict[int, tuple[str | None, tuple[str, ...]]] = {}
        self._told: dict[tuple[int, RuleFinding], Reason] = {}

    def copies_of(self, suspect: SuspectShard) -> Iterator[Diagnosed]:
        """Copies that are missing, or too many."""
        factor, nodes = self._factor, suspect.nodes
        live = len({n for n in suspect.complete if n >= 0 and not self._topology.is_dead(n)})
        if live < factor:
            lost = self._lost(nodes)
            prospect = self._prospect(None, suspect) or lost
            yield _of(suspect, REPLICAS_RULE, None, live, factor, prospect, lost)
        if len(nodes) > factor:
            listed = counted(len(nodes), "replica is", "replicas are")
            message = f"{listed} listed, {factor} {are(factor)} asked for"
            surplus = Reason(Code.REPLICA_SURPLUS, message, factor, len(nodes))
            yield _of(suspect, "surplus", None, len(nodes), factor, surplus, surplus)

    def places_of(self, suspect: SuspectShard) -> Iterator[Diagnosed]:
        """Nodes that should not hold a replica, or not lead."""
        topology, nodes = self._topology, suspect.nodes
        for node, times in Counter(nodes).items():
            if node < 0:
                continue
            name = topology.ids[node]
            if times > 1:
                twice = Reason(Code.REPLICA_TWICE, f"{name} is listed {times} times", 1, times)
                prospect = self._prospect(None, suspect) or twice
                yield _of(suspect, "distinct nodes", name, times, 1, prospect, twice)
            if topology.is_dead(node):
                continue
            if topology.administrative[node] is AdministrativeState.DRAINING:
                drains = Reason(Code.NODE_DRAINING, f"{name} is draining", 0, times)
                prospect = self._prospect(None, suspect) or drains
                yield _of(suspect, "drain", name, times, 0, prospect, drains)
            if not self._policy.nodes.passes(topology, node):
                message = f"the policy does not admit node {name}"
                outside = Reason(Code.RULE_NOT_MET, message, 0, times)
                prospect = self._prospect(None, suspect) or outside
                yield _of(suspect, "nodes", name, times, 0, prospect, outside)
        leader = nodes[0] if nodes else EMPTY
        if leader >= 0 and not topology.is_dead(leader) and not topology.can_lead[leader]:
            message = f"{topology.ids[leader]} may hold copies but not lead"
            refused = Reason(Code.LEADER_NOT_ALLOWED, message, 0, 1)
            able = any(topology.can_lead[node] for node in suspect.held or ())
            prospect = refused if able else self._prospect(None, suspect) or refused
            yield _of(suspect, "leader", topology.ids[leader], 1, 0, prospect, refused)

    def rule(self, suspect: SuspectShard, rule: Rule, finding: RuleFinding) -> Diagnosed:
        """A rule that the shard, or the stream, breaks. A rule is known by its identity."""
        if id(rule) not in self._levels:
            self._levels[id(rule)] = self._everywhere.seen(rule)
        level, seen = self._levels[id(rule)]
        if level is None and finding.domain in self._topology.index:
            level = NODE_LEVEL
        broken = self._told.get((id(rule), finding))
        if broken is None:
            where = f" in {finding.domain}" if finding.domain else ""
            message = f"rule '{rule}': {finding.count}{where}, limit {finding.limit}"
            broken = Reason(Code.RULE_NOT_MET, message, finding.limit, finding.count, level, seen)
            self._told[id(rule), finding] = broken
        why = self._prospect(rule, suspect)
        return Diagnosed(
            suspect.spec.stream,
            suspect.shard,
            str(rule),
            str(rule.strength),
            level,
            finding.domain,
            finding.count,
            finding.limit,
            ViolationClass.UNFIXABLE if why else ViolationClass.FIXABLE,
            why or broken,
        )

    def _prospect(self, rule: Rule | None, suspect: SuspectShard) -> Reason | None:
        return self._prospects.why_not(suspect.spec, rule, suspect.held)

    def _lost(self, nodes: Sequence[int]) -> Reason:
        """Why copies are missing."""
        topology = self._topology
        gone = [node for node in dict.fromkeys(nodes) if node >= 0 and topology.is_dead(node)]
        if gone:
            left = all(topology.liveness[n] is Liveness.UNREGISTERED for n in gone)
            code = Code.NODE_UNREGISTERED if left else Code.NODE_DEAD
            said = ", ".join(f"{topology.ids[n]} is {topology.liveness[n]}" for n in gone)
            return Reason(code, said, seen=tuple(topology.ids[n] for n in gone))
        if UNKNOWN in nodes:
            return Reason(Code.NODE_UNREGISTERED, "a listed node is not registered")
        if len(set(nodes)) < len(nodes):
            return Reason(Code.REPLICA_TWICE, "a node that is listed twice holds one copy")
        missing = self._factor - len(nodes)
        if missing <= 0:
            return Reason(Code.REPLICA_MISSING, "a copy is on its way")
        return Reason(
            Code.REPLICA_MISSING,
            f"{counted(missing, 'replica has', 'replicas have')} not been placed",
        )


def _of(
    suspect: SuspectShard,
    rule: str,
    node: str | None,
    count: int,
    limit: int,
    prospect: Reason,
    cause: Reason,
) -> Diagnosed:
    """A violation of what every stream asks for; it is fixable where its prospect is its cause."""
    return Diagnosed(
        suspect.spec.stream,
        suspect.shard,
        rule,
        str(Strength.REQUIRED),
        None if node is None else NODE_LEVEL,
        node,
        count,
        limit,
        ViolationClass.FIXABLE if prospect is cause else ViolationClass.UNFIXABLE,
        prospect,
    )


def over_capacity(topology: Topology, load: NDArray[np.int64]) -> Iterator[Diagnosed]:
    """Nodes that hold more than they say they can; mended where another node has room."""
    capacity, eligible = topology.capacity, topology.eligible
    boundless = bool((eligible & (capacity < 0)).any())
    rooms = int(np.maximum(capacity - load, 0)[eligible & (capacity >= 0)].sum())
    over = np.flatnonzero((capacity >= 0) & (load > capacity))
    for node in sorted(over.tolist(), key=topology.order().__getitem__):
        room, held, name = int(capacity[node]), int(load[node]), topology.ids[node]
        message = f"{name} holds {counted(held, 'replica')} of {room}"
        reason = Reason(Code.CAPACITY_EXCEEDED, message, room, held)
        spare = boundless or rooms >= held - room
        kind = ViolationClass.FIXABLE if spare else ViolationClass.UNFIXABLE
        yield Diagnosed(
            None, None, "capacity", "required", NODE_LEVEL, name, held, room, kind, reason
        )


# What rules say of rows that break them.
_Broken = Mapping[int, Sequence[tuple[Rule, RuleFinding]]]


def diagnose_cluster(topology: Topology, streams: Sequence[StreamToDiagnose]) -> Diagnosis:
    """Judge all streams of a cluster, in their order."""
    groups = [_Group(topology, [streams[at] for at in places]) for places in _alike(streams)]
    load = sum((group.load for group in groups), np.zeros(topology.size, np.int64))
    judging = topology.for_diagnosis()
    found: dict[str, _Judged] = {}
    scopes = list(topology.tiers())
    for group in groups:
        found |= group.judged(judging, load)
        counted = [rule.scope for rule in group.rules]
        tags = (scope for scope in counted if scope is not None and scope.tag is not None)
        scopes.extend(scope for scope in tags if scope not in scopes)
    judged = [found[each.spec.stream] for each in streams]
    copies = tuple(each.copies for each in judged)
    violations = [violation for each in judged for violation in each.violations]
    return Diagnosis(
        (*violations, *over_capacity(topology, load)),
        {each.copies.stream: each.health for each in judged},
        copies,
        critical_domains(copies, topology, scopes),
        tuple(narrow for each in judged for narrow in each.narrow),
    )


def _alike(streams: Sequence[StreamToDiagnose]) -> list[list[int]]:
    """Places of the streams that are judged alike, in the order of their first."""
    spelled: dict[int, str] = {}
    groups: defaultdict[object, list[int]] = defaultdict(list)
    for place, each in enumerate(streams):
        policy = id(each.policy)
        if policy not in spelled:
            spelled[policy] = repr(each.policy)
        groups[spelled[policy], each.spec.replication_factor, each.spec.quorum].append(place)
    return list(groups.values())


@dataclass(frozen=True, slots=True)
class _Judged:
    """What was found about one stream."""

    violations: list[Diagnosed]
    health: tuple[Health, ...]
    copies: Copies
    narrow: tuple[UnderDiversified, ...]


class _Group:
    """Streams of one policy, replication factor and quorum; their shards are rows, one stream below
    the other."""

    def __init__(self, topology: Topology, streams: Sequence[StreamToDiagnose]) -> None:
        self._topology, self._streams = topology, streams
        self._policy, self._spec = streams[0].policy, streams[0].spec
        self._factor = self._policy.copies(self._spec.replication_factor)
        # Two more entries for the numbers of what is no node: EMPTY and UNKNOWN.
        self._alive = np.zeros(topology.size + 2, bool)
        self._alive[:-2] = [not topology.is_dead(node) for node in range(topology.size)]
        self._rows = self._whole = ShardRows.of([each.shards for each in streams])
        self._holds = self._whole_holds = self._rows.holders(self._alive)
        if any(each.complete is not each.shards for each in streams):
            self._whole = ShardRows.of([each.complete for each in streams])
            self._whole_holds = self._whole.holders(self._alive)
        self._sizes = [len(each.shards) for each in streams]
        self.rules: tuple[Rule, ...] = ()

    @property
    def load(self) -> NDArray[np.int64]:
        """Replicas by node, whether it lives or not."""
        nodes = self._rows.nodes
        named = nodes[first_occurrences(nodes) & (nodes >= 0)]
        return np.bincount(named, minlength=self._topology.size)

    def judged(self, judging: Topology, load: NDArray[np.int64]) -> dict[str, _Judged]:
        """What is wrong with each stream, by its name."""
        policy, factor = self._policy, self._spec.replication_factor
        self.rules = STRATEGIES[policy.strategy].rules(policy, judging)
        self._everywhere = RuleContext(judging, self._factor, (), (), policy.nodes, load=load)
        prospects = FixabilityChecker(self._topology, judging, policy, factor, self.rules, load)
        self._faults = ShardFindings(self._topology, policy, self._everywhere, prospects)
        broken = self._broken()
        odd = self._odd()
        copies = self._copies()
        tiers = self._topology.tiers()
        located = RuleSet(self.rules).prefers_located
        counted = (Even(scope, located=located) for scope in tiers)
        live = {rule.per: len(live_domains(rule, self._everywhere)) for rule in counted}
        # A stream that is to stand in one domain may.
        together = RuleSet(self.rules).keeps_one_domain
        narrow = not together and under_diversified(copies, factor, judging, live)
        found, first = {}, 0
        for each, size in zip(self._streams, self._sizes, strict=True):
            rows = slice(first, first + size)
            own = Copies(each.spec.stream, copies.nodes[rows], copies.live[rows], copies.quorum)
            violations = list(self._of_shards(each, first, odd[rows], broken))
            violations += self._of_stream(each, rows)
            told = under_diversified(own, factor, judging, live) if narrow else ()
            health = _health(each, own, violations)
            found[each.spec.stream] = _Judged(violations, health, own, told)
            first += size
        return found

    def _copies(self) -> Copies:
        """The complete, living copies that count for a quorum."""
        spec, whole = self._spec, self._whole
        voters = spec.replication_factor if self._policy.extra_copies else None
        nodes = np.where(self._whole_holds, whole.nodes, EMPTY)[:, :voters]
        quorum = quorum_size(spec.quorum, spec.replication_factor)
        return Copies(spec.stream, nodes, (nodes != EMPTY).sum(axis=1), quorum)

    def _odd(self) -> NDArray[np.bool_]:
        """Rows that break what every stream asks for: so many copies, each on a node of its own
        that is admitted and stays, led by one that may."""
        topology, nodes = self._topology, self._rows.nodes
        odd: NDArray[np.bool_] = self._whole_holds.sum(axis=1) < self._factor
        odd |= self._rows.lengths > self._factor
        odd |= ((nodes >= 0) & ~first_occurrences(nodes)).any(axis=1)
        drains = [each is AdministrativeState.DRAINING for each in topology.administrative]
        unwanted, follower = self._alive.copy(), self._alive.copy()
        unwanted[:-2] &= np.asarray(drains, bool) | ~self._policy.nodes.mask(topology)
        follower[:-2] &= ~topology.can_lead
        odd |= unwanted[nodes].any(axis=1)
        return odd | follower[nodes[:, :1]].any(axis=1)

    def _broken(self) -> _Broken:
        """Rows that break a rule on shards, with what is found there, in the order of rules."""
        shards = np.repeat([each.spec.shards for each in self._streams], self._sizes)
        sizes = list(by_size(self._rows.nodes, self._holds))
        broken: defaultdict[int, list[tuple[Rule, RuleFinding]]] = defaultdict(list)
        for rule in self.rules:
            if is_wide(rule):
                continue
            for rows, nodes, slots in sizes:
                found = broken_rows(rule, nodes, slots, shards[rows], self._everywhere)
                for at, findings in found.items():
                    broken[int(rows[at])].extend((rule, finding) for finding in findings)
        return broken

    def _of_shards(
        self, each: StreamToDiagnose, first: int, odd: NDArray[np.bool_], broken: _Broken
    ) -> Iterator[Diagnosed]:
        """By shard: copies, places, rules."""
        faults, nodes = self._faults, self._rows.nodes
        for shard, is_odd in enumerate(odd.tolist()):
            row = first + shard
            if not is_odd and row not in broken:
                continue
            listed, complete = self._rows.listed(row), self._whole.listed(row)
            held = nodes[row, self._holds[row]].tolist()
            looked_at = SuspectShard(each.spec, shard, listed, complete, held)
            if is_odd:
                yield from faults.copies_of(looked_at)
                yield from faults.places_of(looked_at)
            for rule, finding in broken.get(row, ()):
                yield faults.rule(looked_at, rule, finding)

    def _of_stream(self, each: StreamToDiagnose, rows: slice) -> Iterator[Diagnosed]:
        """What the stream as a whole breaks."""
        for rule in self.rules:
            if is_wide(rule):
                for finding in self._broken_by_all(rule, each, rows):
                    yield self._faults.rule(SuspectShard(each.spec), rule, finding)

    def _broken_by_all(self, rule: Rule, each: StreamToDiagnose, rows: slice) -> list[RuleFinding]:
        """Findings of a rule on the whole stream, each domain once."""
        topology = self._everywhere.topology
        nodes, holds = self._rows.nodes[rows], self._holds[rows]
        everything = nodes[holds]
        if rule.colocates_slots:
            if holds.all() and (nodes == nodes[:1]).all():
                return []
            held = [row[kept].tolist() for row, kept in zip(nodes, holds, strict=True)]
            unit = colocated_unit(held, topology)
            strays = sum(len(stray_slots(each, topology, unit)) for each in held)
            return [RuleFinding(None, strays, 0)] if strays else []
        if not len(nodes):
            return []
        own, all_nodes = int(holds[0].sum()), everything.tolist()
        standing = replace(
            self._everywhere,
            replicas=all_nodes[:own],
            stream_nodes=all_nodes[own:],
            shards=each.spec.shards,
        )
        return rule.stream_violations(standing)


def _health(
    each: StreamToDiagnose, copies: Copies, violations: Sequence[Diagnosed]
) -> tuple[Health, ...]:
    """A word for each shard; what the stream as a whole breaks degrades all of them."""
    wrong = {violation.shard for violation in violations}
    broken = np.full(len(copies.live), None in wrong)
    broken[[shard for shard in wrong if shard is not None]] = True
    moving = np.zeros(len(copies.live), bool)
    moving[list(each.moving)] = True
    factor = each.spec.replication_factor
    return shard_health(copies.live, factor, copies.quorum, broken, moving)
