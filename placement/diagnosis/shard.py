"""Diagnosis: what is wrong with one shard, by the same rules that placed it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from placement.assignments import EMPTY
from placement.model import Code, Liveness, Reason, Violation, ViolationClass
from placement.rules import ColocateSlots, Rule, RuleContext
from placement.topology import NodeFilter, Topology

# The rule every stream has: as many live copies as its replication factor asks for.
REPLICAS_RULE = "replicas"
# What is deferred until its own nodes change: it need not be looked at with the rest of the fleet.
WAITS_FOR_NODES = (Code.REPAIR_HELD, Code.IN_MAINTENANCE)


def live_slots(nodes: Sequence[int], topology: Topology) -> list[int]:
    """Slots whose node is neither dead nor gone."""
    return [s for s, node in enumerate(nodes) if node != EMPTY and not topology.is_dead(node)]


def kept_slots(nodes: Sequence[int], topology: Topology) -> list[int]:
    """Slots whose replica is meant to stay: it lives, or its node is held or in maintenance."""
    return [s for s, node in enumerate(nodes) if node != EMPTY and not topology.is_lost(node)]


def stray_slots(nodes: Sequence[int], topology: Topology, unit: Mapping[int, int]) -> list[int]:
    """Slots with a live node that is none of the unit's."""
    return [slot for slot in live_slots(nodes, topology) if nodes[slot] not in unit]


def colocated_unit(shards: Iterable[Sequence[int]], topology: Topology) -> dict[int, int]:
    """The nodes that the shards of a colocated stream share, each with the slot it mostly has.

    While a repair is under way the shards differ: of the living nodes those belong to the unit
    that most shards hold, so that the fewest replicas follow.
    """
    lists = [*shards]
    factor = len(lists[-1]) if lists else 0
    return dict([*shared_nodes(lists, topology).items()][:factor])


def shared_nodes(shards: Iterable[Sequence[int]], topology: Topology) -> dict[int, int]:
    """The nodes of a stream that are not lost, each with the slot that it mostly has; those that
    most shards hold come first."""
    held: Counter[int] = Counter()
    standing: Counter[tuple[int, int]] = Counter()
    slots = 0
    for nodes in shards:
        kept = kept_slots(nodes, topology)
        held.update(nodes[slot] for slot in kept)
        standing.update((nodes[slot], slot) for slot in kept)
        slots = max(slots, len(nodes))
    rank = topology.order()
    ranked = sorted(held, key=lambda node: (-held[node], int(rank[node])))
    return {n: max(range(slots), key=lambda slot: standing[n, slot]) for n in ranked}


def why_needy(nodes: Sequence[int], slot: int, topology: Topology) -> Reason:
    """The cause of a repair."""
    node = nodes[slot]
    if node == EMPTY:
        return Reason(Code.REPLICA_MISSING, f"replica {slot} has never been placed")
    if not topology.is_dead(node):
        message = f"the stream's other shards do not have this replica on {topology.ids[node]}"
        return Reason(Code.RULE_NOT_MET, message)
    return why_dead(node, topology)


def why_dead(node: int, topology: Topology) -> Reason:
    """The cause of a repair of what a dead node has held."""
    unregistered = topology.liveness[node] is Liveness.UNREGISTERED
    code = Code.NODE_UNREGISTERED if unregistered else Code.NODE_DEAD
    return Reason(code, f"node {topology.ids[node]} is {topology.liveness[node]}")


def why_kept(nodes: Sequence[int], topology: Topology) -> Reason | None:
    """Why the first replica on a dead node that is meant to stay is not replaced."""
    for slot in kept_slots(nodes, topology):
        node, name = nodes[slot], topology.ids[nodes[slot]]
        if topology.is_dead(node):
            if topology.is_held(node):
                return Reason(Code.REPAIR_HELD, f"node {name} is dead, and held with many others")
            return Reason(Code.IN_MAINTENANCE, f"node {name} is dead, and in maintenance")
    return None


def missing_replicas(
    stream: str,
    shard: int,
    factor: int,
    live: int,
    reason: Reason,
    violation_class: ViolationClass,
    since: int,
) -> Violation:
    """The violation of the replicas rule for a shard with `live` copies."""
    return Violation(
        stream, shard, REPLICAS_RULE, "required", live, factor, violation_class, reason, since
    )


def split_unit(
    stream: str,
    shard: int,
    strays: int,
    reason: Reason,
    violation_class: ViolationClass,
    since: int,
) -> Violation:
    """The violation of `colocate slots` for a shard with `strays` replicas apart from the unit."""
    rule = ColocateSlots()
    return Violation(
        stream, shard, str(rule), str(rule.strength), strays, 0, violation_class, reason, since
    )


def broken_filter(
    stream: str,
    shard: int,
    nodes: NodeFilter,
    held: Iterable[int],
    topology: Topology,
    since: int,
) -> list[Violation]:
    """One violation for every node that holds a replica although the policy does not admit it:
    the node has moved, or its tags have changed."""
    outside = sorted(topology.ids[node] for node in held if not nodes.passes(topology, node))
    violations = []
    for node_id in outside:
        reason = Reason(Code.RULE_NOT_MET, f"the policy does not admit node {node_id}", 0, 1)
        deferred = ViolationClass.DEFERRED
        violations.append(
            Violation(
                stream, shard, "nodes", "required", 1, 0, deferred, reason, since, domain=node_id
            )
        )
    return violations


def broken_rules(
    stream: str, shard: int, rules: Sequence[Rule], standing: RuleContext, since: int
) -> list[Violation]:
    """Placement rules that the shard's replicas break, one violation per domain."""
    violations = []
    for rule in rules:
        scope = rule.scope
        for finding in rule.violations(standing):
            where = f" in {finding.domain}" if finding.domain else ""
            message = f"rule '{rule}': {finding.count} replicas{where}, limit {finding.limit}"
            level = scope.level if scope else None
            violations.append(
                Violation(
                    stream,
                    shard,
                    str(rule),
                    str(rule.strength),
                    finding.count,
                    finding.limit,
                    ViolationClass.DEFERRED,
                    Reason(Code.RULE_NOT_MET, message, finding.limit, finding.count, level),
                    since,
                    level,
                    finding.domain,
                )
            )
    return violations
