"""Diagnoses one shard: each breach as a violation, with its class and reason.

The stream (`placement.repair.violations`) and `placer check` (`placement.diagnosis.cluster`) both
diagnose a shard here. A violation is `fixable` where the fleet admits an arrangement that keeps the
broken rule and every required one, else `unfixable` with the reason of the proof. The stream adds
what an arrangement does not show: a hold, an open move, a limit, a search without a result.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from placement.assignments import EMPTY
from placement.diagnosis.fixability import FixabilityChecker
from placement.model import (
    Code,
    Liveness,
    Reason,
    StreamSpec,
    Violation,
    ViolationClass,
)
from placement.policy import Policy
from placement.rules import Rule, RuleContext, RuleFinding, Strength
from placement.topology import Topology
from placement.wording import format_count

# Rules of every stream, and of every node, besides those of its policy; names on the wire.
REPLICAS_RULE = "replicas"
SURPLUS_RULE = "surplus"
DISTINCT_NODES_RULE = "distinct nodes"
DRAIN_RULE = "drain"
NODES_RULE = "nodes"
LEADER_RULE = "leader"
CAPACITY_RULE = "capacity"

# The level of a violation whose domain is a node.
NODE_LEVEL = "node"
# A node that a list names and nobody knows: its copy is lost.
UNKNOWN = -2
# What is deferred until its own nodes change: it need not be looked at with the rest of the fleet.
WAITS_FOR_NODES = (Code.REPAIR_HELD, Code.IN_MAINTENANCE)

_REQUIRED = str(Strength.REQUIRED)


class ShardToDiagnose(NamedTuple):
    """Holds a shard to be diagnosed, or with `shard` None a stream as a whole.

    Nodes are indexes; UNKNOWN stands for a node that does not exist.
    - `nodes`: leader first, as if the moves under way were done.
    - `complete`: the nodes of complete copies.
    - `live`: the distinct nodes of `nodes` that are not dead; None for a stream.
    """

    spec: StreamSpec
    shard: int | None = None
    nodes: Sequence[int] = ()
    complete: Sequence[int] = ()
    live: Sequence[int] | None = None


class ShardDiagnosis:
    """Diagnoses shards whose streams share a policy and a replication factor.

    `everywhere`: the context in which their rules are asked, without a shard. `since`: when the
    violations begin, in ms since the epoch, UTC.
    """

    def __init__(
        self,
        topology: Topology,
        policy: Policy,
        everywhere: RuleContext,
        fixability: FixabilityChecker,
        since: int = 0,
    ) -> None:
        self._topology, self._policy, self._since = topology, policy, since
        self._factor = everywhere.replication_factor
        self._everywhere, self._fixability = everywhere, fixability
        # A rule is known by its identity: hashing its fields would cost more than the answer.
        self._levels: dict[int, tuple[str | None, tuple[str, ...]]] = {}
        self._reasons: dict[tuple[int, RuleFinding], Reason] = {}

    def copy_violations(self, shard: ShardToDiagnose) -> Iterator[Violation]:
        """Yield a violation for missing copies, and one for surplus replicas."""
        factor, nodes = self._factor, shard.nodes
        live = len({n for n in shard.complete if n >= 0 and not self._topology.is_dead(n)})
        if live < factor:
            lost = self._why_lost(nodes)
            yield self._violation(shard, REPLICAS_RULE, None, live, factor, lost)
        if len(nodes) > factor:
            surplus = why_surplus(len(nodes), factor)
            yield self._violation(shard, SURPLUS_RULE, None, len(nodes), factor, surplus)

    def place_violations(self, shard: ShardToDiagnose) -> Iterator[Violation]:
        """Yield a violation for each node that should not hold a replica, or not lead."""
        topology, nodes = self._topology, shard.nodes
        for node in dict.fromkeys(nodes):
            if node < 0:
                continue
            times = nodes.count(node)
            if times > 1:
                name = topology.ids[node]
                twice = Reason(Code.REPLICA_TWICE, f"node {name} is listed {times} times", 1, times)
                yield self._violation(shard, DISTINCT_NODES_RULE, node, times, 1, twice)
            if topology.is_dead(node):
                continue
            if topology.is_draining(node):
                yield self.drain_violation(shard, node, why_draining(node, topology), times)
            if not self._policy.nodes.passes(topology, node):
                yield self.admission_violation(shard, node, times)
        leader = nodes[0] if nodes else EMPTY
        if leader >= 0 and not topology.is_dead(leader) and not topology.can_lead[leader]:
            refused = replace(why_barred_leader(leader, topology), need=0, have=1)
            yield self._violation(shard, LEADER_RULE, leader, 1, 0, refused)

    def drain_violation(
        self, shard: ShardToDiagnose, node: int, why: Reason, times: int = 1
    ) -> Violation:
        """Make the violation of a replica that has to leave its node.

        `why`: the reason. `times`: how often the list names the node.
        """
        return self._violation(shard, DRAIN_RULE, node, times, 0, _with_count(why, times))

    def admission_violation(self, shard: ShardToDiagnose, node: int, times: int = 1) -> Violation:
        """Make the violation of a replica on a node that the policy does not admit."""
        outside = why_inadmissible(node, self._topology)
        return self._violation(shard, NODES_RULE, node, times, 0, _with_count(outside, times))

    def rule_violation(self, shard: ShardToDiagnose, rule: Rule, finding: RuleFinding) -> Violation:
        """Make the violation of a rule of the policy from the rule's finding."""
        if id(rule) not in self._levels:
            self._levels[id(rule)] = self._everywhere.level_and_domains(rule)
        level, seen = self._levels[id(rule)]
        if level is None and finding.domain in self._topology.index:
            level = NODE_LEVEL
        broken = self._reasons.get((id(rule), finding))
        if broken is None:
            where = f" in {finding.domain}" if finding.domain else ""
            message = f"rule '{rule}': {finding.count}{where}, limit {finding.limit}"
            broken = Reason(Code.RULE_NOT_MET, message, finding.limit, finding.count, level, seen)
            self._reasons[id(rule), finding] = broken
        return Violation(
            shard.spec.stream,
            shard.shard,
            str(rule),
            str(rule.strength),
            finding.count,
            finding.limit,
            ViolationClass.FIXABLE,
            broken,
            self._since,
            level,
            finding.domain,
        )

    def classify(
        self, shard: ShardToDiagnose, violation: Violation, rule: Rule | None = None
    ) -> Violation:
        """Return the violation as unfixable with the reason, where that is proved; else unchanged.

        `rule`: the broken rule of the policy, None for a rule of every stream.
        """
        why = self._why_unfixable(shard, violation, rule)
        if why is None:
            return violation
        return violation._replace(violation_class=ViolationClass.UNFIXABLE, reason=why)

    def _why_unfixable(
        self, shard: ShardToDiagnose, violation: Violation, rule: Rule | None
    ) -> Reason | None:
        if violation.rule == SURPLUS_RULE:
            return None
        if violation.rule == LEADER_RULE and self._can_be_led(shard):
            return None
        return self._fixability.why_not(shard.spec, rule, shard.live)

    def _can_be_led(self, shard: ShardToDiagnose) -> bool:
        """Return whether a live replica may lead.

        Copies with a role, in the last slots, never do. A list may be longer than asked for, until
        its surplus is removed.
        """
        slots, can_lead = max(self._factor, len(shard.nodes)), self._topology.can_lead
        plain = shard.nodes[: self._fixability.rule_set.count_possible_leaders(slots)]
        return any(can_lead[node] for node in shard.live or () if node in plain)

    def _violation(
        self,
        shard: ShardToDiagnose,
        rule: str,
        node: int | None,
        count: int,
        limit: int,
        reason: Reason,
    ) -> Violation:
        """Make the violation of a rule of every stream; `node`: where it is broken."""
        return Violation(
            shard.spec.stream,
            shard.shard,
            rule,
            _REQUIRED,
            count,
            limit,
            ViolationClass.FIXABLE,
            reason,
            self._since,
            None if node is None else NODE_LEVEL,
            None if node is None else self._topology.ids[node],
        )

    def _why_lost(self, nodes: Sequence[int]) -> Reason:
        """Return why copies are missing: their nodes are gone, or they were never made."""
        topology = self._topology
        gone = [node for node in dict.fromkeys(nodes) if node >= 0 and topology.is_dead(node)]
        if gone:
            return why_dead(gone, topology, tuple(topology.ids[node] for node in gone))
        if UNKNOWN in nodes:
            return Reason(
                Code.NODE_UNREGISTERED, "the list of replicas names a node that is not registered"
            )
        if len(set(nodes)) < len(nodes):
            return Reason(
                Code.REPLICA_TWICE, "the list of replicas names a node twice, which is one copy"
            )
        missing = self._factor - len(nodes)
        if missing <= 0:
            return Reason(Code.REPLICA_MISSING, "a move is adding the missing replica")
        message = f"{format_count(missing, 'replica has', 'replicas have')} not been placed yet"
        return Reason(Code.REPLICA_MISSING, message)


def _with_count(why: Reason, replicas: int) -> Reason:
    """Return the reason with the number of replicas, of which there should be 0."""
    return replace(why, need=0, have=replicas)


def is_stuck(violation: Violation) -> bool:
    """Return whether repair goes on only after a change of the fleet or of the stream.

    That is `unfixable` by proof, or `deferred` with NO_CANDIDATE: the search found no move.
    """
    found_nothing = violation.reason.code is Code.NO_CANDIDATE
    return violation.violation_class is ViolationClass.UNFIXABLE or found_nothing


def why_dead(nodes: Sequence[int], topology: Topology, seen: tuple[str, ...] = ()) -> Reason:
    """Return the reason for the loss of the replicas on dead nodes; `seen`: the reason's `seen`."""
    gone = [topology.liveness[node] for node in nodes]
    unregistered = all(each is Liveness.UNREGISTERED for each in gone)
    states = (f"node {topology.ids[n]} is {each}" for n, each in zip(nodes, gone, strict=True))
    code = Code.NODE_UNREGISTERED if unregistered else Code.NODE_DEAD
    return Reason(code, ", ".join(states), seen=seen)


def why_draining(node: int, topology: Topology) -> Reason:
    """Return the reason for moving a replica off a draining node."""
    return Reason(Code.NODE_DRAINING, f"node {topology.ids[node]} is draining")


def why_inadmissible(node: int, topology: Topology) -> Reason:
    """Return the reason for moving a replica off a node that the policy does not admit."""
    return Reason(Code.RULE_NOT_MET, f"the policy does not admit node {topology.ids[node]}")


def why_barred_leader(node: int, topology: Topology) -> Reason:
    """Return the reason for taking the lead from a node that may not have it."""
    message = f"node {topology.ids[node]} may hold replicas but may not lead"
    return Reason(Code.LEADER_NOT_ALLOWED, message)


def why_surplus(listed: int, factor: int) -> Reason:
    """Return the reason for removing replicas beyond the number that the stream needs."""
    message = f"the shard has {format_count(listed, 'replica')}, its stream needs {factor}"
    return Reason(Code.REPLICA_SURPLUS, message, factor, listed)


def why_stray(node: int, topology: Topology) -> Reason:
    """Return the reason for moving a replica that stands apart from its colocated stream."""
    name = topology.ids[node]
    message = f"the replica on node {name} is apart from those of the stream's other shards"
    return Reason(Code.RULE_NOT_MET, message)


def why_kept(nodes: Sequence[int], topology: Topology) -> Reason | None:
    """Return why the first replica on a dead node is not replaced; None where none is kept."""
    for slot in kept_slots(nodes, topology):
        node, name = nodes[slot], topology.ids[nodes[slot]]
        if topology.is_dead(node):
            if topology.held[node]:
                message = f"node {name} is dead, and repair is held because many nodes failed"
                return Reason(Code.REPAIR_HELD, message)
            message = f"node {name} is dead, and repair waits for the end of its maintenance"
            return Reason(Code.IN_MAINTENANCE, message)
    return None


def live_slots(nodes: Sequence[int], topology: Topology) -> list[int]:
    """Return the slots whose node is neither dead nor unregistered."""
    return [s for s, node in enumerate(nodes) if node != EMPTY and not topology.is_dead(node)]


def kept_slots(nodes: Sequence[int], topology: Topology) -> list[int]:
    """Return the slots that keep their replica.

    Their node lives, is under a hold, or is in maintenance.
    """
    return [s for s, node in enumerate(nodes) if node != EMPTY and not topology.is_lost(node)]


def stray_slots(nodes: Sequence[int], topology: Topology, unit: Mapping[int, int]) -> list[int]:
    """Return the slots with a live node that is not in the colocated unit."""
    return [slot for slot in live_slots(nodes, topology) if nodes[slot] not in unit]


def colocated_unit(shards: Iterable[Sequence[int]], topology: Topology) -> dict[int, int]:
    """Return the nodes that the shards of a colocated stream share, each with its usual slot.

    While a repair is under way the shards differ: the unit is the nodes that most shards hold, as
    many as a shard has slots, so that the fewest replicas follow.
    """
    lists = [*shards]
    factor = len(lists[-1]) if lists else 0
    return dict([*shared_nodes(lists, topology).items()][:factor])


def shared_nodes(shards: Iterable[Sequence[int]], topology: Topology) -> dict[int, int]:
    """Map a stream's nodes that are not lost to their usual slots, the most shared node first.

    Nodes that equally many shards hold come in natural order.
    """
    shard_counts: Counter[int] = Counter()
    standing: Counter[tuple[int, int]] = Counter()
    slots = 0
    for nodes in shards:
        kept = kept_slots(nodes, topology)
        shard_counts.update(nodes[slot] for slot in kept)
        standing.update((nodes[slot], slot) for slot in kept)
        slots = max(slots, len(nodes))
    rank = topology.order()
    ranked = sorted(shard_counts, key=lambda node: (-shard_counts[node], int(rank[node])))
    return {n: max(range(slots), key=lambda slot: standing[n, slot]) for n in ranked}
