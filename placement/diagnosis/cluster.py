"""Diagnoses a whole cluster: every violation with its class, health, critical domains.

The given assignments are judged by the rules that would have placed them. Streams of one policy
and replication factor are judged together, as arrays; only shards with a breach are looked at one
by one (`placement.diagnosis.shard`).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY, ShardLists, ShardRows, by_size, first_occurrences
from placement.diagnosis.fixability import FixabilityChecker, is_wide
from placement.diagnosis.health import (
    Copies,
    CriticalDomain,
    Health,
    UnderDiversified,
    critical_domains,
    quorum_size,
    shard_health,
    under_diversified,
    worst,
)
from placement.diagnosis.shard import (
    CAPACITY_RULE,
    NODE_LEVEL,
    ShardDiagnosis,
    ShardToDiagnose,
    colocated_unit,
    stray_slots,
)
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
    """A stream to be judged.

    `shards`: nodes by index, leader first, moves under way counted as done (UNKNOWN for a node
    that does not exist); lists may be short or long, or name a node twice. `complete`: where whole
    copies stand now, the same object where that is everywhere. `moving`: shards with a move under
    way.
    """

    spec: StreamSpec
    policy: Policy
    shards: ShardLists
    complete: ShardLists
    moving: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a cluster; `shards` is the health of every shard by stream."""

    violations: tuple[Violation, ...]
    shards: Mapping[str, tuple[Health, ...]]
    copies: tuple[Copies, ...]
    critical: tuple[CriticalDomain, ...]
    under_diversified: tuple[UnderDiversified, ...]

    @property
    def streams(self) -> dict[str, Health]:
        """Each stream's worst shard."""
        return {name: worst(each) for name, each in self.shards.items()}

    @property
    def worst(self) -> Health:
        """The worst stream."""
        return worst(self.streams.values())


def over_capacity(topology: Topology, load: NDArray[np.int64]) -> Iterator[Violation]:
    """Yield a violation for each node above its capacity; fixable where other nodes have room."""
    capacity, eligible = topology.capacity, topology.eligible
    boundless = bool((eligible & (capacity < 0)).any())
    rooms = int(np.maximum(capacity - load, 0)[eligible & (capacity >= 0)].sum())
    over = np.flatnonzero((capacity >= 0) & (load > capacity))
    for node in sorted(over.tolist(), key=topology.order().__getitem__):
        room, held, name = int(capacity[node]), int(load[node]), topology.ids[node]
        message = f"node {name} holds {format_count(held, 'replica')}, its capacity is {room}"
        reason = Reason(Code.CAPACITY_EXCEEDED, message, room, held)
        spare = boundless or rooms >= held - room
        kind = ViolationClass.FIXABLE if spare else ViolationClass.UNFIXABLE
        required = str(Strength.REQUIRED)
        yield Violation(
            None, None, CAPACITY_RULE, required, held, room, kind, reason, 0, NODE_LEVEL, name
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

    violations: list[Violation]
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
        fixability = FixabilityChecker(self._topology, judging, policy, factor, self.rules, load)
        self._judge = ShardDiagnosis(self._topology, policy, self._everywhere, fixability)
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
    ) -> Iterator[Violation]:
        """By shard: copies, places, rules."""
        judge, nodes = self._judge, self._rows.nodes
        for shard, is_odd in enumerate(odd.tolist()):
            row = first + shard
            if not is_odd and row not in broken:
                continue
            listed, complete = self._rows.listed(row), self._whole.listed(row)
            held = nodes[row, self._holds[row]].tolist()
            suspect = ShardToDiagnose(each.spec, shard, listed, complete, held)
            if is_odd:
                for violation in (*judge.copies(suspect), *judge.places(suspect)):
                    yield judge.classified(suspect, violation)
            for rule, finding in broken.get(row, ()):
                yield judge.classified(suspect, judge.breach(suspect, rule, finding), rule)

    def _of_stream(self, each: StreamToDiagnose, rows: slice) -> Iterator[Violation]:
        """What the stream as a whole breaks."""
        stream = ShardToDiagnose(each.spec)
        for rule in self.rules:
            if is_wide(rule):
                for finding in self._broken_by_all(rule, each, rows):
                    breach = self._judge.breach(stream, rule, finding)
                    yield self._judge.classified(stream, breach, rule)

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
    each: StreamToDiagnose, copies: Copies, violations: Sequence[Violation]
) -> tuple[Health, ...]:
    """A word for each shard; what the stream as a whole breaks degrades all of them."""
    wrong = {violation.shard for violation in violations}
    broken = np.full(len(copies.live), None in wrong)
    broken[[shard for shard in wrong if shard is not None]] = True
    moving = np.zeros(len(copies.live), bool)
    moving[list(each.moving)] = True
    factor = each.spec.replication_factor
    return shard_health(copies.live, factor, copies.quorum, broken, moving)
