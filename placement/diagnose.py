"""Diagnosis: what is wrong with one shard, by the same rules that placed it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from placement.assignments import EMPTY
from placement.model import Liveness, Violation, ViolationClass
from placement.node_filter import NodeFilter
from placement.reasons import Code, Reason
from placement.rules import ColocateSlots, Rule, Standing, scope_of
from placement.topology import Topology

# The rule every stream has: as many live copies as its replication factor asks for.
REPLICAS_RULE = "replicas"


def live_slots(nodes: Sequence[int], topology: Topology) -> list[int]:
    """Slots whose node is neither dead nor gone."""
    return [s for s, node in enumerate(nodes) if node != EMPTY and not topology.is_dead(node)]


def needy_slots(
    nodes: Sequence[int], topology: Topology, factor: int, unit: Mapping[int, int] | None = None
) -> list[int]:
    """Slots that repair has to fill until `factor` replicas live: on a dead node first, then empty
    ones, then those that stand apart from the unit of a colocated stream."""
    dead = [s for s, node in enumerate(nodes) if node != EMPTY and topology.is_dead(node)]
    empty = [s for s, node in enumerate(nodes) if node == EMPTY]
    missing = max(factor - len(live_slots(nodes, topology)), 0)
    strays = [] if unit is None else stray_slots(nodes, topology, unit)
    return (dead + empty)[:missing] + strays


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
    """The living nodes of a stream, each with the slot that it mostly has; those that most shards
    hold come first."""
    held: Counter[int] = Counter()
    standing: Counter[tuple[int, int]] = Counter()
    slots = 0
    for nodes in shards:
        live = live_slots(nodes, topology)
        held.update(nodes[slot] for slot in live)
        standing.update((nodes[slot], slot) for slot in live)
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
    unregistered = topology.liveness[node] is Liveness.UNREGISTERED
    code = Code.NODE_UNREGISTERED if unregistered else Code.NODE_DEAD
    return Reason(code, f"node {topology.ids[node]} is {topology.liveness[node]}")


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
    stream: str, shard: int, rules: Sequence[Rule], standing: Standing, since: int
) -> list[Violation]:
    """Placement rules that the shard's replicas break, one violation per domain."""
    violations = []
    for rule in rules:
        scope = scope_of(rule)
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
