"""Diagnosis of a whole cluster: every violation with its class, health, critical domains.

The given assignments are judged by the rules that would have placed them. `placement.diagnose` has
the words for single shards that repair uses.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placement.assignments import EMPTY
from placement.diagnose import REPLICAS_RULE, colocated_unit, stray_slots
from placement.feasibility import level_name, seen_names
from placement.health import (
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
from placement.location import natural_key
from placement.model import AdministrativeState, Liveness, StreamSpec, ViolationClass
from placement.policy import Policy
from placement.prospects import Prospects, is_wide
from placement.reasons import Code, Reason
from placement.rules import (
    AtLeastDomains,
    AtMost,
    ColocateSlots,
    Even,
    ExclusiveNodes,
    Finding,
    Rule,
    SameDomain,
    Standing,
    Strength,
)
from placement.rules_span import SpanDomains
from placement.strategies import STRATEGIES
from placement.topology import Scope, Topology

# A node that a list names and nobody knows: its copy is lost.
UNKNOWN = -2

# Rules that see nothing of a shard but how many replicas stand in which domain of `per`.
_BY_DOMAIN = (AtMost, Even, AtLeastDomains, SpanDomains)
_NODE_LEVEL = "node"


@dataclass(frozen=True, slots=True)
class Examined:
    """A stream to be judged.

    `shards`: nodes by index, leader first, moves under way counted as done (UNKNOWN for a node
    that does not exist); lists may be short or long, or name a node twice. `complete`: where whole
    copies stand now. `moving`: shards with a move under way.
    """

    spec: StreamSpec
    policy: Policy
    shards: Sequence[Sequence[int]]
    complete: Sequence[Sequence[int]]
    moving: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """A rule that is not met: by a shard, by the stream (`shard` None), or, if `stream` is None
    too, by the node that `domain` names."""

    stream: str | None
    shard: int | None
    rule: str
    strength: str
    level: str | None
    domain: str | None
    count: int
    limit: int
    violation_class: ViolationClass
    reason: Reason


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a cluster; `shards` is the health of every shard by stream."""

    violations: tuple[Diagnosed, ...]
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


def examine(topology: Topology, streams: Sequence[Examined]) -> Diagnosis:
    """Judge all streams of a cluster, in their order."""
    judging = topology.judging()
    load = Counter(node for each in streams for nodes in each.shards for node in set(nodes))
    violations: list[Diagnosed] = []
    copies: list[Copies] = []
    narrow: list[UnderDiversified] = []
    health: dict[str, tuple[Health, ...]] = {}
    scopes = list(topology.tiers())
    for each in streams:
        stream = _Stream(topology, judging, each, load)
        found = list(stream.violations())
        health[each.spec.stream] = tuple(stream.health(found))
        violations.extend(found)
        copies.extend(stream.copies)
        scopes.extend(scope for scope in stream.tag_scopes() if scope not in scopes)
        narrow.extend(stream.narrow())
    violations.extend(_over_capacity(topology, load))
    critical = critical_domains(copies, topology, scopes)
    return Diagnosis(tuple(violations), health, tuple(copies), critical, tuple(narrow))


class _Stream:
    """One stream under examination."""

    def __init__(
        self, topology: Topology, judging: Topology, each: Examined, load: Counter[int]
    ) -> None:
        self._topology, self._judging, self._each = topology, judging, each
        self._spec, self._policy = each.spec, each.policy
        strategy = STRATEGIES[each.policy.strategy]
        self._rules = strategy.rules(each.policy, judging)
        self._names: dict[Scope, tuple[str, ...]] = {}
        self._prospects = Prospects(topology, judging, each.spec, each.policy, self._rules, load)
        quorum = quorum_size(each.spec.quorum, each.spec.replication_factor)
        self.copies = [
            Copies(each.spec.stream, shard, self._live(self._voters(each.complete[shard])), quorum)
            for shard in range(each.spec.shards)
        ]
        # What stands there and lives, as the rules are asked about it.
        self._load = np.zeros(topology.size, np.int64)
        for node, held in load.items():
            if node >= 0:
                self._load[node] = held
        self._held = [self._live(nodes) for nodes in each.shards]

    def health(self, violations: Iterable[Diagnosed]) -> Iterator[Health]:
        """A word for each shard; what the stream as a whole breaks degrades all of them."""
        broken = {each.shard for each in violations}
        for copies in self.copies:
            wrong = copies.shard in broken or None in broken
            moving = copies.shard in self._each.moving
            factor = self._spec.replication_factor
            yield shard_health(len(copies.nodes), factor, copies.quorum, wrong, moving)

    def tag_scopes(self) -> list[Scope]:
        """Tags that the rules count by."""
        scopes = (getattr(rule, "per", None) for rule in self._rules)
        return [s for s in scopes if isinstance(s, Scope) and s.tag is not None]

    def narrow(self) -> tuple[UnderDiversified, ...]:
        """Shards with all copies in fewer domains than could be; a stream that is to stand in one
        domain may."""
        if any(isinstance(rule, SameDomain) for rule in self._rules):
            return ()
        standing, tiers = self._standing(()), self._topology.tiers()
        live = {scope: len(standing.live_domains(scope)) for scope in tiers}
        spec = self._spec
        factor = spec.replication_factor
        return under_diversified(spec.stream, self.copies, factor, self._judging, tiers, live)

    def violations(self) -> Iterator[Diagnosed]:
        """By shard, then what concerns the whole stream."""
        by_rule = [(rule, self._broken(rule)) for rule in self._rules if not is_wide(rule)]
        for shard, nodes in enumerate(self._each.shards):
            yield from self._copies_of(shard, nodes)
            yield from self._places_of(shard, nodes)
            for rule, broken in by_rule:
                for finding in broken.get(shard, ()):
                    yield self._rule(shard, rule, finding)
        for rule in self._rules:
            if is_wide(rule):
                for finding in self._broken_by_all(rule):
                    yield self._rule(None, rule, finding)

    def _live(self, nodes: Sequence[int]) -> list[int]:
        """Distinct nodes that are not dead, in order."""
        return [n for n in dict.fromkeys(nodes) if n >= 0 and not self._topology.is_dead(n)]

    def _voters(self, nodes: Sequence[int]) -> Sequence[int]:
        """The copies that count for a quorum."""
        return nodes[: self._spec.replication_factor] if self._policy.beside else nodes

    def _standing(
        self, replicas: Sequence[int], others: Sequence[int] = (), slots: Sequence[int] = ()
    ) -> Standing:
        spec = self._spec
        return Standing(
            self._judging,
            self._policy.copies(spec.replication_factor),
            replicas,
            others,
            self._policy.nodes,
            spec.shards,
            slots,
            load=self._load,
        )

    def _prospect(self, rule: Rule | None, shard: int | None) -> Reason | None:
        return self._prospects.why_not(rule, None if shard is None else self._held[shard])

    # Copies: too few, too many, on the wrong nodes

    def _copies_of(self, shard: int, nodes: Sequence[int]) -> Iterator[Diagnosed]:
        factor = self._policy.copies(self._spec.replication_factor)
        live = self._live(self._each.complete[shard])
        if len(live) < factor:
            lost = self._lost(nodes)
            prospect = self._prospect(None, shard) or lost
            yield self._of(shard, REPLICAS_RULE, None, len(live), factor, prospect, lost)
        if len(nodes) > factor:
            message = f"{len(nodes)} replicas are listed, {factor} are asked for"
            surplus = Reason(Code.REPLICA_SURPLUS, message, factor, len(nodes))
            yield self._of(shard, "surplus", None, len(nodes), factor, surplus, surplus)

    def _places_of(self, shard: int, nodes: Sequence[int]) -> Iterator[Diagnosed]:
        topology = self._topology
        for node, times in Counter(nodes).items():
            if node < 0:
                continue
            name = topology.ids[node]
            if times > 1:
                twice = Reason(Code.REPLICA_TWICE, f"{name} is listed {times} times", 1, times)
                prospect = self._prospect(None, shard) or twice
                yield self._of(shard, "distinct nodes", name, times, 1, prospect, twice)
            if topology.is_dead(node):
                continue
            if topology.administrative[node] is AdministrativeState.DRAINING:
                drains = Reason(Code.NODE_DRAINING, f"{name} is draining", 0, times)
                prospect = self._prospect(None, shard) or drains
                yield self._of(shard, "drain", name, times, 0, prospect, drains)
            if not self._policy.nodes.passes(topology, node):
                message = f"the policy does not admit node {name}"
                outside = Reason(Code.RULE_NOT_MET, message, 0, times)
                prospect = self._prospect(None, shard) or outside
                yield self._of(shard, "nodes", name, times, 0, prospect, outside)
        leader = nodes[0] if nodes else EMPTY
        if leader >= 0 and not topology.is_dead(leader) and not topology.can_lead[leader]:
            message = f"{topology.ids[leader]} may hold copies but not lead"
            refused = Reason(Code.LEADER_NOT_ALLOWED, message, 0, 1)
            able = any(topology.can_lead[node] for node in self._held[shard])
            prospect = refused if able else self._prospect(None, shard) or refused
            yield self._of(shard, "leader", topology.ids[leader], 1, 0, prospect, refused)

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
        missing = self._policy.copies(self._spec.replication_factor) - len(nodes)
        if missing <= 0:
            return Reason(Code.REPLICA_MISSING, "a copy is on its way")
        return Reason(Code.REPLICA_MISSING, f"{missing} replicas have not been placed")

    # Rules

    def _broken(self, rule: Rule) -> dict[int, list[Finding]]:
        """Findings by shard; what a rule says of equal shards it is asked once."""
        known: dict[object, list[Finding]] = {}
        broken: dict[int, list[Finding]] = {}
        domains = None
        if isinstance(rule, _BY_DOMAIN):
            domains = self._judging.domain_of(rule.per)
        for shard, nodes in enumerate(self._held):
            if not nodes:
                continue
            slots = [self._each.shards[shard].index(node) for node in nodes]
            key: object = tuple(nodes), tuple(slots)
            if domains is not None:
                key = tuple(np.sort(domains[nodes]).tolist())
            if key not in known:
                known[key] = rule.violations(self._standing(nodes, (), slots))
            if known[key]:
                broken[shard] = known[key]
        return broken

    def _broken_by_all(self, rule: Rule) -> list[Finding]:
        """Findings of a rule on the whole stream, each domain once."""
        everything = [node for nodes in self._held for node in nodes]
        if isinstance(rule, ColocateSlots):
            unit = colocated_unit(self._held, self._judging)
            strays = sum(len(stray_slots(nodes, self._judging, unit)) for nodes in self._held)
            return [Finding(None, strays, 0)] if strays else []
        if isinstance(rule, ExclusiveNodes):
            held = sorted(Counter(everything).items())
            names = [(self._topology.ids[node], times) for node, times in held if times > 1]
            return [
                Finding(name, times, 1)
                for name, times in sorted(names, key=lambda each: natural_key(each[0]))
            ]
        if isinstance(rule, SameDomain):
            used = set(self._judging.domain_of(rule.per)[everything].tolist())
            return [Finding(None, len(used), 1)] if len(used) > 1 else []
        found: dict[str | None, Finding] = {}
        for nodes in self._held[:1]:
            others = everything[len(nodes) :]
            for finding in rule.violations(self._standing(nodes, others)):
                found.setdefault(finding.domain, finding)
        return list(found.values())

    def _seen(self, scope: Scope) -> tuple[str, ...]:
        """The domains that count, by name."""
        if scope not in self._names:
            live = self._standing(()).live_domains(scope)
            self._names[scope] = seen_names(self._judging, scope, live)
        return self._names[scope]

    def _rule(self, shard: int | None, rule: Rule, finding: Finding) -> Diagnosed:
        scope = getattr(rule, "per", None)
        level = level_name(scope) if isinstance(scope, Scope) else None
        seen: tuple[str, ...] = ()
        if isinstance(scope, Scope):
            seen = self._seen(scope)
        elif finding.domain in self._topology.index:
            level = _NODE_LEVEL
        where = f" in {finding.domain}" if finding.domain else ""
        message = f"rule '{rule}': {finding.count}{where}, limit {finding.limit}"
        broken = Reason(Code.RULE_NOT_MET, message, finding.limit, finding.count, level, seen)
        why = self._prospect(rule, shard)
        return Diagnosed(
            self._spec.stream,
            shard,
            str(rule),
            str(rule.strength),
            level,
            finding.domain,
            finding.count,
            finding.limit,
            ViolationClass.UNFIXABLE if why else ViolationClass.FIXABLE,
            why or broken,
        )

    def _of(
        self,
        shard: int,
        rule: str,
        node: str | None,
        count: int,
        limit: int,
        prospect: Reason,
        cause: Reason,
    ) -> Diagnosed:
        """A violation of what every stream asks for; it is fixable where its prospect is its
        cause."""
        fixable = prospect is cause
        return Diagnosed(
            self._spec.stream,
            shard,
            rule,
            str(Strength.REQUIRED),
            None if node is None else _NODE_LEVEL,
            node,
            count,
            limit,
            ViolationClass.FIXABLE if fixable else ViolationClass.UNFIXABLE,
            prospect,
        )


def _over_capacity(topology: Topology, load: Mapping[int, int]) -> Iterator[Diagnosed]:
    """Nodes that hold more than they say they can; mended where another node has room."""
    rooms: defaultdict[bool, int] = defaultdict(int)
    for node in range(topology.size):
        room = int(topology.capacity[node])
        rooms[room < 0] += bool(topology.eligible[node]) * max(room - load.get(node, 0), room < 0)
    order = topology.order()
    for node in sorted((n for n in load if n >= 0), key=lambda n: int(order[n])):
        room, held = int(topology.capacity[node]), load[node]
        if room < 0 or held <= room:
            continue
        name = topology.ids[node]
        reason = Reason(
            Code.CAPACITY_EXCEEDED, f"{name} holds {held} replicas of {room}", room, held
        )
        spare = rooms[True] > 0 or rooms[False] >= held - room
        kind = ViolationClass.FIXABLE if spare else ViolationClass.UNFIXABLE
        yield Diagnosed(
            None, None, "capacity", "required", _NODE_LEVEL, name, held, room, kind, reason
        )
