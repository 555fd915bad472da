"""Adopts streams that have replicas: these stay, and missing ones are placed around them.

Used for streams created with `replicas`, and by the offline tool for files that list a placement.
No given replica is moved or dropped, surplus ones included. Diagnosis reports the rules that given
replicas break.
"""

from collections.abc import Sequence

from placement.allocator import (
    Placement,
    ReplicaRequest,
    View,
    candidates,
    choose,
    find_unmet,
    put_leader_first,
)
from placement.assignments import EMPTY
from placement.diagnosis import colocated_unit, stray_slots
from placement.model import Code, Reason, StreamSpec
from placement.policy import Policy
from placement.rules import ColocateSlots, Rule, RuleSet, Strength, find_breaches
from placement.strategies import STRATEGIES
from placement.topology import Topology


def adopt(
    spec: StreamSpec, policy: Policy, given: Sequence[Sequence[str]], view: View
) -> Placement | Reason:
    """Place the missing replicas of a stream around the given ones.

    `given`: node ids by shard, leader first. `view`: replicas and leaders by node; those of the
    stream are added to it. A required rule that only the given replicas break is a warning. One
    that keeps a missing replica from being placed leaves its slot EMPTY, with the reason. Returns a
    Reason where `given` itself is wrong.
    """
    topology = view.topology
    wrong = _why_malformed(spec, given, topology)
    if wrong:
        return wrong
    kept = [[topology.index[node_id] for node_id in nodes] for nodes in given]
    kept += [[] for _ in range(spec.shards - len(kept))]
    for shard, nodes in enumerate(kept):
        view.turn_to(shard)
        for node in nodes:
            view.add(node, leader=node == nodes[0])
    copies = policy.copies(spec.replication_factor)
    empty = [[EMPTY] * max(copies - len(nodes), 0) for nodes in kept]
    shards = [[*nodes, *rest] for nodes, rest in zip(kept, empty, strict=True)]
    return place_missing(spec, policy, shards, view, "the given replicas")


def place_missing(
    spec: StreamSpec, policy: Policy, shards: list[list[int]], view: View, called: str
) -> Placement:
    """Fill the EMPTY slots of the shards where the rules allow.

    `view` counts the replicas in the other slots. `called` names these in the warning about a rule
    that they break.
    """
    strategy = STRATEGIES[policy.strategy]
    rules = strategy.rules(policy, view.topology)
    if not RuleSet(rules).is_colocated:
        strategy.resume(spec, policy, shards, view)
    reasons = complete_shards(spec, policy, shards, view)
    return Placement(shards, reasons, rule_warnings(shards, spec, policy, view, called))


def rule_warnings(
    shards: Sequence[Sequence[int]], spec: StreamSpec, policy: Policy, view: View, called: str
) -> tuple[Reason, ...]:
    """Make one warning for every rule that the live replicas break, required ones first.

    `called` names the replicas in the message.
    """
    topology = view.topology
    rules = STRATEGIES[policy.strategy].rules(policy, topology)
    live = [[EMPTY if _is_lost(node, topology) else node for node in nodes] for nodes in shards]
    broken = _required_rule_warnings(rules, live, spec, policy, view, called)
    return (*broken, *find_unmet(rules, live, spec, policy, topology))


def complete_shards(
    spec: StreamSpec, policy: Policy, shards: list[list[int]], view: View
) -> tuple[Reason, ...]:
    """Fill the EMPTY slots of `shards`, in place, where the strategy finds a node for them.

    Where the strategy's own rules may be broken (`degrade`), by the rules of the policy alone.
    Returns one reason for each kind of failure.
    """
    strategy, factor = STRATEGIES[policy.strategy], policy.copies(spec.replication_factor)
    rules = strategy.rules(policy, view.topology)
    colocated = RuleSet(rules).is_colocated
    wide = RuleSet(rules).spans_stream
    reasons: dict[Code, Reason] = {}
    view.shards = shards
    for shard, nodes in enumerate(shards):
        view.turn_to(shard)
        fresh = all(node == EMPTY for node in nodes)
        for slot in (slot for slot, node in enumerate(nodes) if node == EMPTY):
            kept = [node for node in nodes if node != EMPTY]
            mask = candidates(policy, view)
            node = _node_in_same_slot(shards, slot, nodes) if colocated else None
            if node is None or not mask[node]:
                others = _other_nodes(shards, shard) if wide else []
                need = ReplicaRequest(spec.stream, shard, slot, factor, kept, others, policy.nodes)
                filled = [s for s, each in enumerate(nodes) if each != EMPTY]
                need = need._replace(
                    token=spec.token(shard), fresh=fresh, slots=filled, shards=spec.shards
                )
                chosen = strategy.extend(need, policy, mask, view)
                if isinstance(chosen, Reason) and policy.strength is Strength.PREFERRED:
                    chosen = choose(rules, mask, need, view)
                if isinstance(chosen, Reason):
                    reasons.setdefault(chosen.code, chosen)
                    break
                node = chosen
            view.add(node, leader=slot == 0)
            nodes[slot] = node
        if fresh and not (colocated and shard):
            _elect(nodes, policy, spec.replication_factor, view)
    return tuple(reasons.values())


def _elect(nodes: list[int], policy: Policy, factor: int, view: View) -> None:
    """Put a node that may lead first, in a shard that had no replica."""
    placed = [node for node in nodes if node != EMPTY]
    ordered = put_leader_first(placed, policy, factor, view.topology)
    if ordered[:1] != placed[:1]:
        view.leaders[[placed[0], ordered[0]]] += (-1, 1)
        nodes[: len(ordered)] = ordered


def _is_lost(node: int, topology: Topology) -> bool:
    """Return whether a slot's node is dead: no rule counts it, as in diagnosis."""
    return node != EMPTY and topology.is_dead(node)


def _other_nodes(shards: Sequence[Sequence[int]], shard: int) -> list[int]:
    """List the nodes of a stream's other shards."""
    everyone = (nodes for s, nodes in enumerate(shards) if s != shard)
    return [node for nodes in everyone for node in nodes if node != EMPTY]


def _node_in_same_slot(
    shards: Sequence[Sequence[int]], slot: int, nodes: Sequence[int]
) -> int | None:
    """Find the node that another shard of a colocated stream has in this slot."""
    same_slot = (other[slot] for other in shards if other[slot] != EMPTY)
    return next((node for node in same_slot if node not in nodes), None)


def _why_malformed(
    spec: StreamSpec, given: Sequence[Sequence[str]], topology: Topology
) -> Reason | None:
    """Return why the given lists make no sense, or None."""
    if len(given) > spec.shards:
        message = f"replicas lists {len(given)} shards, the stream has {spec.shards}"
        return Reason(Code.SHARDS_OUT_OF_RANGE, message, spec.shards, len(given))
    for shard, nodes in enumerate(given):
        if len(set(nodes)) < len(nodes):
            message = f"shard {shard} lists a node twice: {', '.join(nodes)}"
            return Reason(Code.POLICY_MALFORMED, message)
        for node_id in nodes:
            if node_id not in topology.index:
                message = f"shard {shard} lists node '{node_id}', which is not registered"
                return Reason(Code.NODE_UNKNOWN, message)
    return None


def _required_rule_warnings(
    rules: Sequence[Rule],
    shards: Sequence[Sequence[int]],
    spec: StreamSpec,
    policy: Policy,
    view: View,
    called: str,
) -> tuple[Reason, ...]:
    """Make one warning for each required rule that the replicas break."""
    warnings = []
    everywhere = policy.rule_context(spec, view.topology, view.load)
    for rule, broken, _ in find_breaches(rules, Strength.REQUIRED, shards, everywhere):
        listed = ", ".join(map(str, broken[:10]))
        message = f"{called} of shards {listed} break the required rule '{rule}'"
        met = spec.shards - len(broken)
        level, seen = everywhere.level_and_domains(rule)
        reason = Reason(Code.RULE_NOT_MET, message, spec.shards, met, level, seen, str(rule))
        warnings.append(reason)
    if RuleSet(rules).is_colocated:
        unit = colocated_unit(shards, view.topology)
        strays = [s for s, nodes in enumerate(shards) if stray_slots(nodes, view.topology, unit)]
        if strays:
            listed = ", ".join(map(str, strays[:10]))
            broken_rule = str(ColocateSlots())
            message = f"{called} of shards {listed} break the rule '{broken_rule}'"
            met = spec.shards - len(strays)
            warnings.append(Reason(Code.RULE_NOT_MET, message, spec.shards, met, rule=broken_rule))
    return tuple(warnings)
