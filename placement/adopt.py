"""Adoption: a stream that already has replicas keeps them; what is missing is placed around them.

Used for streams created with `replicas`, and by the offline tool for files that list a placement.
Nothing given is moved or dropped; where it breaks a rule, diagnosis says so.
"""

from collections import Counter
from collections.abc import Sequence

from placement.assignments import EMPTY
from placement.model import StreamSpec
from placement.policy import Policy
from placement.reasons import Code, Reason
from placement.rules import ColocateSlots, Rule, Standing, Strength
from placement.strategies import STRATEGIES
from placement.strategies.base import Need, Placement, View, candidates, unmet
from placement.topology import Topology


def adopt(
    spec: StreamSpec, policy: Policy, given: Sequence[Sequence[str]], view: View
) -> Placement | Reason:
    """The given replicas, leader first, with the missing ones added where the rules allow.

    A required rule that only the given replicas break is a warning; one that keeps a missing
    replica from being placed leaves its slot empty with the reason.
    """
    topology = view.topology
    wrong = _malformed(spec, given, topology)
    if wrong:
        return wrong
    kept = [[topology.index[node_id] for node_id in nodes] for nodes in given]
    kept += [[] for _ in range(spec.shards - len(kept))]
    for nodes in kept:
        for node in nodes:
            view.add(node, leader=node == nodes[0])
    rules = STRATEGIES[policy.strategy].rules(policy, topology)
    shards = [list(nodes) for nodes in kept]
    reasons = _complete(spec, policy, rules, shards, view)
    broken = _broken(rules, shards, spec, policy, topology)
    warnings = (*broken, *unmet(rules, shards, spec, policy, topology))
    empty = [[EMPTY] * (spec.replication_factor - len(nodes)) for nodes in shards]
    whole = [[*nodes, *rest] for nodes, rest in zip(shards, empty, strict=True)]
    return Placement(whole, reasons, warnings)


def _complete(
    spec: StreamSpec,
    policy: Policy,
    rules: Sequence[Rule],
    shards: list[list[int]],
    view: View,
) -> tuple[Reason, ...]:
    """Add what is missing to `shards`; one reason for each kind of failure."""
    strategy = STRATEGIES[policy.strategy]
    colocated = any(isinstance(rule, ColocateSlots) for rule in rules)
    reasons: dict[Code, Reason] = {}
    for shard, nodes in enumerate(shards):
        for slot in range(len(nodes), spec.replication_factor):
            others = [node for s, held in enumerate(shards) if s != shard for node in held]
            mask = candidates(policy, view)
            node = _same_slot(shards, slot, nodes) if colocated else None
            if node is None or not mask[node]:
                factor = spec.replication_factor
                need = Need(spec.stream, shard, slot, factor, nodes, others, policy.nodes)
                chosen = strategy.extend(need, policy, mask, view)
                if isinstance(chosen, Reason):
                    reasons.setdefault(chosen.code, chosen)
                    break
                node = chosen
            view.add(node, leader=slot == 0)
            nodes.append(node)
    return tuple(reasons.values())


def _same_slot(shards: Sequence[Sequence[int]], slot: int, nodes: Sequence[int]) -> int | None:
    """In a colocated stream, the node that another shard has in this slot."""
    held = (other[slot] for other in shards if len(other) > slot)
    return next((node for node in held if node not in nodes), None)


def _malformed(
    spec: StreamSpec, given: Sequence[Sequence[str]], topology: Topology
) -> Reason | None:
    if len(given) > spec.shards:
        message = f"replicas lists {len(given)} shards, the stream has {spec.shards}"
        return Reason(Code.SHARDS_OUT_OF_RANGE, message, spec.shards, len(given))
    for shard, nodes in enumerate(given):
        if len(nodes) > spec.replication_factor:
            message = f"shard {shard} lists {len(nodes)} replicas of {spec.replication_factor}"
            return Reason(Code.REPLICAS_OUT_OF_RANGE, message, spec.replication_factor, len(nodes))
        if len(set(nodes)) < len(nodes):
            message = f"shard {shard} lists a node twice: {', '.join(nodes)}"
            return Reason(Code.POLICY_MALFORMED, message)
        for node_id in nodes:
            if node_id not in topology.index:
                message = f"shard {shard} lists node '{node_id}', which is not registered"
                return Reason(Code.NODE_UNKNOWN, message)
    return None


def _broken(
    rules: Sequence[Rule],
    shards: Sequence[Sequence[int]],
    spec: StreamSpec,
    policy: Policy,
    topology: Topology,
) -> tuple[Reason, ...]:
    """One warning per required rule that the given replicas break."""
    warnings = []
    held = Counter(node for nodes in shards for node in nodes)
    for rule in rules:
        if rule.strength is not Strength.REQUIRED:
            continue
        broken = [
            shard
            for shard, nodes in enumerate(shards)
            if rule.violations(
                Standing(
                    topology,
                    spec.replication_factor,
                    nodes,
                    [node for node in nodes if held[node] > 1],
                    policy.nodes,
                )
            )
        ]
        if broken:
            listed = ", ".join(map(str, broken[:10]))
            message = f"the given replicas of shards {listed} break the required rule '{rule}'"
            met = spec.shards - len(broken)
            warnings.append(Reason(Code.RULE_NOT_MET, message, spec.shards, met))
    return tuple(warnings)
