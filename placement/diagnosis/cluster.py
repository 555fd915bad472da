"""Diagnoses a whole cluster: every violation with its class, health, critical domains.

Asks the rules that placed the replicas. Streams of one policy, replication factor and quorum form a
group, whose shards are rows of one array; only rows with a breach are diagnosed one by one
(`placement.diagnosis.shard`). `placer check` calls this; the stream diagnoses shard by shard.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from placement.assignments import (
    EMPTY,
    ShardLists,
    ShardRows,
    first_occurrences,
    group_by_size,
    stack_lists,
)
from placement.diagnosis.fixability import FixabilityChecker, is_wide
from placement.diagnosis.health import (
    Copies,
    CriticalDomain,
    Health,
    UnderDiversified,
    critical_domains,
    find_under_diversified,
    quorum_size,
    shard_health,
    worst_of,
)
from placement.diagnosis.resources import resource_violations
from placement.diagnosis.shard import (
    CAPACITY_RULE,
    NODE_LEVEL,
    ShardDiagnosis,
    ShardToDiagnose,
    colocated_unit,
    stray_slots,
)
from placement.diagnosis.shortage import Demand
from placement.model import (
    AdministrativeState,
    Code,
    Reason,
    StreamSpec,
    Violation,
    ViolationClass,
)
from placement.policy import Policy
from placement.rules import (
    Even,
    NodeLoads,
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
from placement.wording import format_count


@dataclass(frozen=True, slots=True)
class StreamToDiagnose:
    """Holds a stream with its replicas, to be diagnosed.

    - `shards`: node indexes by shard, leader first, as if the moves under way were done. UNKNOWN
      stands for a node that does not exist. Lists may be shorter or longer than the replication
      factor, or name a node twice.
    - `complete`: the same for the complete copies only; the same object as `shards` where every
      copy is complete.
    - `moving`: numbers of the shards with a move under way.
    - `out_of_sync`: by number of the shard the nodes of complete copies that have fallen behind.
      They count for no quorum; nothing is copied for them, so no rule is broken by them.
    - `unobserved`: numbers of the shards whose replicas are not known, of which nothing is said.
    - `loads`: what each shard needs, a row for each resource; None where no resource is counted.
    """

    spec: StreamSpec
    policy: Policy
    shards: ShardLists
    complete: ShardLists
    moving: frozenset[int] = frozenset()
    out_of_sync: Mapping[int, frozenset[int]] = field(default_factory=dict)
    unobserved: frozenset[int] = frozenset()
    loads: NDArray[np.int64] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Holds the violations and the health of a cluster.

    `violations`: by stream in the given order, then those of nodes over capacity. `shards`: health
    of every shard, by stream. `copies`: the live complete copies, one entry for each stream.
    """

    violations: tuple[Violation, ...]
    shards: Mapping[str, tuple[Health, ...]]
    copies: tuple[Copies, ...]
    critical: tuple[CriticalDomain, ...]
    under_diversified: tuple[UnderDiversified, ...]

    @property
    def streams(self) -> dict[str, Health]:
        """Map each stream to the health of its worst shard."""
        return {name: worst_of(each) for name, each in self.shards.items()}

    @property
    def worst(self) -> Health:
        """Return the health of the worst stream."""
        return worst_of(self.streams.values())


def capacity_violations(topology: Topology, load: NDArray[np.int64]) -> Iterator[Violation]:
    """Yield a violation for each node that holds more replicas than its capacity.

    `load`: replicas by node index. A violation is fixable where the other nodes have room for the
    excess.
    """
    capacity, eligible = topology.capacity, topology.eligible
    boundless = bool((eligible & (capacity < 0)).any())
    rooms = int(np.maximum(capacity - load, 0)[eligible & (capacity >= 0)].sum())
    over = np.flatnonzero((capacity >= 0) & (load > capacity))
    for node in sorted(over.tolist(), key=topology.order().__getitem__):
        room, replicas, name = int(capacity[node]), int(load[node]), topology.ids[node]
        message = f"node {name} holds {format_count(replicas, 'replica')}, its capacity is {room}"
        reason = Reason(Code.CAPACITY_EXCEEDED, message, room, replicas)
        spare = boundless or rooms >= replicas - room
        kind = ViolationClass.FIXABLE if spare else ViolationClass.UNFIXABLE
        required = str(Strength.REQUIRED)
        yield Violation(
            None, None, CAPACITY_RULE, required, replicas, room, kind, reason, 0, NODE_LEVEL, name
        )


# What rules say of rows that break them.
_Broken = Mapping[int, Sequence[tuple[Rule, RuleFinding]]]


def diagnose_cluster(
    topology: Topology,
    streams: Sequence[StreamToDiagnose],
    loads: NodeLoads | None = None,
) -> Diagnosis:
    """Diagnose all streams of a cluster.

    The streams' nodes are indexes of `topology`. Violations come in the order of `streams`; in a
    stream by shard, then those of the stream as a whole; then those of nodes. `loads`: the
    resources that the nodes bear, where any is counted.
    """
    groups = [_Group(topology, [streams[at] for at in places]) for places in _group_alike(streams)]
    load = sum((group.load for group in groups), np.zeros(topology.size, np.int64))
    judging = topology.for_diagnosis()
    found: dict[str, _StreamFindings] = {}
    scopes = list(topology.tiers())
    for group in groups:
        found |= group.diagnose(judging, load)
        used = [rule.scope for rule in group.rules]
        tags = (scope for scope in used if scope is not None and scope.tag is not None)
        scopes.extend(scope for scope in tags if scope not in scopes)
    findings = [found[each.spec.stream] for each in streams]
    copies = tuple(each.copies for each in findings)
    demands = [_demand(each, each.loads) for each in streams if each.loads is not None]
    resources = () if loads is None else resource_violations(topology, loads, demands)
    violations = [violation for each in findings for violation in each.violations]
    return Diagnosis(
        (*violations, *capacity_violations(topology, load), *resources),
        {each.copies.stream: each.health for each in findings},
        copies,
        critical_domains(copies, topology, scopes),
        tuple(narrow for each in findings for narrow in each.narrow),
    )


def _demand(stream: StreamToDiagnose, amounts: NDArray[np.int64]) -> Demand:
    copies = stream.policy.copies(stream.spec.replication_factor)
    return Demand(stream.policy, copies, stack_lists(stream.shards)[0], amounts)


def _group_alike(streams: Sequence[StreamToDiagnose]) -> list[list[int]]:
    """Group streams by policy, replication factor and quorum.

    Returns the positions of each group's streams; groups are in the order of their first stream.
    """
    spelled: dict[int, str] = {}
    groups: defaultdict[object, list[int]] = defaultdict(list)
    for place, each in enumerate(streams):
        policy = id(each.policy)
        if policy not in spelled:
            spelled[policy] = repr(each.policy)
        groups[spelled[policy], each.spec.replication_factor, each.spec.quorum].append(place)
    return list(groups.values())


@dataclass(frozen=True, slots=True)
class _StreamFindings:
    """Holds the findings about one stream."""

    violations: list[Violation]
    health: tuple[Health, ...]
    copies: Copies
    narrow: tuple[UnderDiversified, ...]


class _Group:
    """Diagnoses streams of one policy, replication factor and quorum.

    Their shards are the rows of one array, the streams one below the other.
    """

    def __init__(self, topology: Topology, streams: Sequence[StreamToDiagnose]) -> None:
        self._topology, self._streams = topology, streams
        self._policy, self._spec = streams[0].policy, streams[0].spec
        self._factor = self._policy.copies(self._spec.replication_factor)
        # Two more entries for the numbers of what is no node: EMPTY and UNKNOWN.
        self._alive = np.zeros(topology.size + 2, bool)
        self._alive[:-2] = [not topology.is_dead(node) for node in range(topology.size)]
        self._rows = self._whole = ShardRows.stack([each.shards for each in streams])
        self._holds = self._whole_holds = self._rows.holders(self._alive)
        if any(each.complete is not each.shards for each in streams):
            self._whole = ShardRows.stack([each.complete for each in streams])
            self._whole_holds = self._whole.holders(self._alive)
        self._sizes = [len(each.shards) for each in streams]
        self._firsts = np.cumsum([0, *self._sizes])[:-1].tolist()
        self._unobserved = np.zeros(sum(self._sizes), bool)
        for each, first in zip(streams, self._firsts, strict=True):
            self._unobserved[[first + shard for shard in each.unobserved]] = True
        self.rules: tuple[Rule, ...] = ()

    @property
    def load(self) -> NDArray[np.int64]:
        """Count the replicas of these streams by node, dead nodes included."""
        nodes = self._rows.nodes
        named = nodes[first_occurrences(nodes) & (nodes >= 0)]
        return np.bincount(named, minlength=self._topology.size)

    def diagnose(self, judging: Topology, load: NDArray[np.int64]) -> dict[str, _StreamFindings]:
        """Diagnose each stream; returns the findings by its name.

        `judging`: the topology as rules see it (`Topology.for_diagnosis`). `load`: replicas by node
        in the whole cluster.
        """
        policy, factor = self._policy, self._spec.replication_factor
        self.rules = STRATEGIES[policy.strategy].rules(policy, judging)
        self._everywhere = RuleContext(judging, self._factor, (), (), policy.nodes, load=load)
        fixability = FixabilityChecker(self._topology, judging, policy, factor, self.rules, load)
        self._judge = ShardDiagnosis(self._topology, policy, self._everywhere, fixability)
        broken = self._find_broken_rows()
        odd = self._find_odd_rows()
        copies = self._live_copies()
        tiers = self._topology.tiers()
        located = RuleSet(self.rules).prefers_located
        even_rules = (Even(scope, located=located) for scope in tiers)
        live = {rule.per: len(live_domains(rule, self._everywhere)) for rule in even_rules}
        # A stream that is to stand in one domain may.
        together = RuleSet(self.rules).keeps_one_domain
        narrow = not together and find_under_diversified(copies, factor, judging, live)
        found, first = {}, 0
        for each, size in zip(self._streams, self._sizes, strict=True):
            rows = slice(first, first + size)
            own = Copies(each.spec.stream, copies.nodes[rows], copies.live[rows], copies.quorum)
            violations = list(self._shard_violations(each, first, odd[rows], broken))
            violations += self._stream_violations(each, rows)
            narrow_shards = find_under_diversified(own, factor, judging, live) if narrow else ()
            health = _shards_health(each, own, violations)
            found[each.spec.stream] = _StreamFindings(violations, health, own, narrow_shards)
            first += size
        return found

    def _live_copies(self) -> Copies:
        """List the complete copies on nodes that are not dead, where they count for the quorum.

        Those that have fallen out of sync do not.
        """
        spec, whole = self._spec, self._whole
        voters = spec.replication_factor if self._policy.extra_copies else None
        nodes = np.where(self._whole_holds, whole.nodes, EMPTY)[:, :voters]
        for each, first in zip(self._streams, self._firsts, strict=True):
            for shard, behind in each.out_of_sync.items():
                row = nodes[first + shard]
                row[np.isin(row, [*behind])] = EMPTY
        live = np.where(self._unobserved, spec.replication_factor, (nodes != EMPTY).sum(axis=1))
        quorum = quorum_size(spec.quorum, spec.replication_factor)
        return Copies(spec.stream, nodes, live, quorum)

    def _find_odd_rows(self) -> NDArray[np.bool_]:
        """Mask the rows that break a rule of every stream.

        That is a row with
        - fewer copies than the replication factor, or more replicas;
        - a node twice, a draining node, or one that the policy does not admit;
        - a leader on a node that may not lead.
        """
        topology, nodes = self._topology, self._rows.nodes
        odd: NDArray[np.bool_] = self._whole_holds.sum(axis=1) < self._factor
        odd |= self._rows.lengths > self._factor
        odd |= ((nodes >= 0) & ~first_occurrences(nodes)).any(axis=1)
        drains = [each is AdministrativeState.DRAINING for each in topology.administrative]
        unwanted, follower = self._alive.copy(), self._alive.copy()
        unwanted[:-2] &= np.asarray(drains, bool) | ~self._policy.nodes.mask(topology)
        follower[:-2] &= ~topology.can_lead
        odd |= unwanted[nodes].any(axis=1)
        return (odd | follower[nodes[:, :1]].any(axis=1)) & ~self._unobserved

    def _find_broken_rows(self) -> _Broken:
        """Find the rows that break a rule on shards: findings by row, in the order of the rules."""
        shards = np.repeat([each.spec.shards for each in self._streams], self._sizes)
        sizes = list(group_by_size(self._rows.nodes, self._holds))
        broken: defaultdict[int, list[tuple[Rule, RuleFinding]]] = defaultdict(list)
        for rule in self.rules:
            if is_wide(rule):
                continue
            for rows, nodes, slots in sizes:
                found = broken_rows(rule, nodes, slots, shards[rows], self._everywhere)
                for at, findings in found.items():
                    broken[int(rows[at])].extend((rule, finding) for finding in findings)
        return broken

    def _shard_violations(
        self, each: StreamToDiagnose, first: int, odd: NDArray[np.bool_], broken: _Broken
    ) -> Iterator[Violation]:
        """Yield the violations of each shard: of its copies, its nodes, its rules."""
        judge, nodes = self._judge, self._rows.nodes
        for shard, is_odd in enumerate(odd.tolist()):
            row = first + shard
            if self._unobserved[row] or not (is_odd or row in broken):
                continue
            listed, complete = self._rows.nodes_of(row), self._whole.nodes_of(row)
            live = nodes[row, self._holds[row]].tolist()
            asked = ShardToDiagnose(each.spec, shard, listed, complete, live)
            if is_odd:
                of_every_stream = (*judge.copy_violations(asked), *judge.place_violations(asked))
                for violation in of_every_stream:
                    yield judge.classify(asked, violation)
            for rule, finding in broken.get(row, ()):
                yield judge.classify(asked, judge.rule_violation(asked, rule, finding), rule)

    def _stream_violations(self, each: StreamToDiagnose, rows: slice) -> Iterator[Violation]:
        """Yield the violations of rules on the stream as a whole."""
        stream = ShardToDiagnose(each.spec)
        for rule in self.rules:
            if is_wide(rule):
                for finding in self._stream_findings(rule, each, rows):
                    breach = self._judge.rule_violation(stream, rule, finding)
                    yield self._judge.classify(stream, breach, rule)

    def _stream_findings(
        self, rule: Rule, each: StreamToDiagnose, rows: slice
    ) -> list[RuleFinding]:
        """Ask a rule about the whole stream; report each domain once."""
        topology = self._everywhere.topology
        nodes, holds = self._rows.nodes[rows], self._holds[rows]
        everything = nodes[holds]
        if rule.colocates_slots:
            if holds.all() and (nodes == nodes[:1]).all():
                return []
            kept_lists = [row[kept].tolist() for row, kept in zip(nodes, holds, strict=True)]
            unit = colocated_unit(kept_lists, topology)
            strays = sum(len(stray_slots(each, topology, unit)) for each in kept_lists)
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


def _shards_health(
    each: StreamToDiagnose, copies: Copies, violations: Sequence[Violation]
) -> tuple[Health, ...]:
    """Compute the health of each shard; a violation of the whole stream degrades every shard."""
    wrong = {violation.shard for violation in violations}
    broken = np.full(len(copies.live), None in wrong)
    broken[[shard for shard in wrong if shard is not None]] = True
    moving = np.zeros(len(copies.live), bool)
    moving[list(each.moving)] = True
    factor = each.spec.replication_factor
    steps = shard_health(copies.live, factor, copies.quorum, broken, moving)
    return tuple(map([*Health].__getitem__, steps.tolist()))
