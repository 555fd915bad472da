"""Diagnosis: what is wrong with one shard, by the same rules that placed it."""

from collections.abc import Sequence

from placement.assignments import EMPTY
from placement.model import Liveness, Violation, ViolationClass
from placement.reasons import Code, Reason
from placement.rules import Rule, Standing
from placement.topology import Topology

# The rule every stream has: as many live copies as its replication factor asks for.
REPLICAS_RULE = "replicas"


def live_slots(nodes: Sequence[int], topology: Topology) -> list[int]:
    """Slots whose node is neither dead nor gone."""
    return [s for s, node in enumerate(nodes) if node != EMPTY and not topology.is_dead(node)]


def needy_slots(nodes: Sequence[int], topology: Topology) -> list[int]:
    """Slots that repair has to fill: on a dead node first, then empty ones."""
    dead = [s for s, node in enumerate(nodes) if node != EMPTY and topology.is_dead(node)]
    return dead + [s for s, node in enumerate(nodes) if node == EMPTY]


def why_needy(nodes: Sequence[int], slot: int, topology: Topology) -> Reason:
    """The cause of a repair."""
    node = nodes[slot]
    if node == EMPTY:
        return Reason(Code.REPLICA_MISSING, f"replica {slot} has never been placed")
    unregistered = topology.liveness[node] is Liveness.UNREGISTERED
    code = Code.NODE_UNREGISTERED if unregistered else Code.NODE_DEAD
    return Reason(code, f"node {topology.ids[node]} is {topology.liveness[node]}")


def missing_replicas(
    stream: str,
    shard: int,
    nodes: Sequence[int],
    live: int,
    reason: Reason,
    violation_class: ViolationClass,
    since: int,
) -> Violation:
    """The violation of the replicas rule for a shard with `live` copies."""
    return Violation(
        stream, shard, REPLICAS_RULE, "required", live, len(nodes), violation_class, reason, since
    )


def broken_rules(
    stream: str, shard: int, rules: Sequence[Rule], standing: Standing, since: int
) -> list[Violation]:
    """Placement rules that the shard's replicas break, one violation per domain."""
    violations = []
    for rule in rules:
        for finding in rule.violations(standing):
            where = f" in {finding.domain}" if finding.domain else ""
            message = f"rule '{rule}': {finding.count} replicas{where}, limit {finding.limit}"
            scope = getattr(rule, "per", None)
            violations.append(
                Violation(
                    stream,
                    shard,
                    str(rule),
                    str(rule.strength),
                    finding.count,
                    finding.limit,
                    ViolationClass.DEFERRED,
                    Reason(Code.RULE_NOT_MET, message, finding.limit, finding.count),
                    since,
                    str(scope) if scope else None,
                    finding.domain,
                )
            )
    return violations
