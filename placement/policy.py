"""Policies: what a stream asks for, compiled to rules and the name of a strategy.

Two forms are understood. `placement_policies` is Timeplus' semicolon-separated string (its
"Rack-aware Placements" page); its presence, even empty, selects the `affinity` strategy. `policy`
is the structured form of design section 6.1. Nothing is guessed: an unknown key, value, rule or
level is a reason that names it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from placement.location import Location, parse_location
from placement.reasons import Code, Reason
from placement.rules import (
    AtLeastDomains,
    AtMost,
    Even,
    ExclusiveNodes,
    NodeFilter,
    Rule,
    Share,
    Strength,
)
from placement.topology import LEAF, Scope, Topology


class Affinity(StrEnum):
    """How replicas relate to locations (`node`) or to nodes (`shard`)."""

    COLOCATED = "colocated"
    BALANCED = "balanced"
    EXCLUSIVE = "exclusive"


class OnInfeasible(StrEnum):
    """What becomes of the strategy's own rules when they cannot be met."""

    REJECT = "reject"
    WAIT = "wait"
    PARTIAL = "partial"
    DEGRADE = "degrade"


@dataclass(frozen=True, slots=True)
class PlacementPolicies:
    """The parsed Timeplus string; `settings` keeps the surviving keys as they were written."""

    node: Affinity = Affinity.BALANCED
    shard: Affinity = Affinity.COLOCATED
    preferred_nodes: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()

    def compacted(self) -> str:
        """The equivalent string in which every key appears once, at its last position."""
        return ";".join(f"{key}={value}" for key, value in self.settings)


@dataclass(frozen=True, slots=True)
class Policy:
    """A compiled policy. `rules` are the user's own; a strategy brings its rules besides."""

    strategy: str
    parameters: Mapping[str, Any]
    rules: tuple[Rule, ...] = ()
    nodes: NodeFilter = field(default_factory=NodeFilter)
    on_infeasible: OnInfeasible | None = None


_COMMON_KEYS = ("strategy", "rules", "within", "avoid", "nodes", "with_tags", "on_infeasible")
AFFINITY_KEYS = ("node", "shard", "preferred_nodes", "level")
_RULE_KEYS = ("at_most", "even", "at_least", "domains", "per", "exclusive", "strength")


def parse_placement_policies(text: str) -> PlacementPolicies | Reason:
    """Parse Timeplus' `key=value;…`: the last of a repeated key wins, and `preferred_node` is the
    same key as `preferred_nodes`."""
    settings: dict[str, tuple[str, str]] = {}
    for part in text.split(";"):
        if not part.strip():
            continue
        written, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            return Reason(
                Code.POLICY_MALFORMED, f"placement_policies: '{part.strip()}' is not key=value"
            )
        key = "preferred_nodes" if written == "preferred_node" else written
        if key not in ("node", "shard", "preferred_nodes"):
            known = "node, shard, preferred_nodes"
            message = f"placement_policies: unknown key '{written}'; known are {known}"
            return Reason(Code.POLICY_UNKNOWN_KEY, message)
        settings.pop(key, None)
        settings[key] = (written, value)
    values = {key: value for key, (_, value) in settings.items()}
    node = _affinity("placement_policies", "node", values.get("node", "balanced"))
    shard = _affinity("placement_policies", "shard", values.get("shard", "colocated"))
    if isinstance(node, Reason):
        return node
    if isinstance(shard, Reason):
        return shard
    listed = values.get("preferred_nodes", "").split(",")
    preferred = tuple(dict.fromkeys(name.strip() for name in listed if name.strip()))
    return PlacementPolicies(node, shard, preferred, tuple(settings.values()))


def compile_policy(
    placement_policies: str | None,
    policy: Mapping[str, Any] | None,
    default: Mapping[str, Any],
    topology: Topology,
) -> Policy | Reason:
    """Compile what a stream gave, or the configured default policy where it gave nothing."""
    if placement_policies is not None:
        if policy is not None:
            message = "a stream takes either placement_policies or policy, this one gives both"
            return Reason(Code.POLICY_AMBIGUOUS, message)
        parsed = parse_placement_policies(placement_policies)
        if isinstance(parsed, Reason):
            return parsed
        return Policy("affinity", _affinity_parameters(parsed.node, parsed.shard, parsed))
    return _structured(default if policy is None else policy, topology)


def _affinity_parameters(
    node: Affinity, shard: Affinity, parsed: PlacementPolicies | None, scope: Scope = LEAF
) -> dict[str, Any]:
    preferred = parsed.preferred_nodes if parsed else ()
    return {"node": node, "shard": shard, "preferred_nodes": preferred, "level": scope}


def _structured(policy: Mapping[str, Any], topology: Topology) -> Policy | Reason:
    strategy = policy.get("strategy", "spread")
    keys = {"spread": (), "affinity": AFFINITY_KEYS, "timeplus": AFFINITY_KEYS}.get(str(strategy))
    if keys is None:
        message = f"policy: unknown strategy '{strategy}'; known are affinity (timeplus), spread"
        return Reason(Code.STRATEGY_UNKNOWN, message)
    for key in policy:
        if key not in (*_COMMON_KEYS, *keys):
            known = ", ".join((*_COMMON_KEYS, *keys))
            message = f"policy: unknown key '{key}' for strategy '{strategy}'; known are {known}"
            return Reason(Code.POLICY_UNKNOWN_KEY, message)
    parameters: Mapping[str, Any] | Reason = {}
    if keys:
        parameters = _structured_affinity(policy, topology)
    rules = _rules(policy.get("rules", ()), topology)
    nodes = _node_filter(policy)
    on_infeasible = _on_infeasible(policy.get("on_infeasible"))
    for part in (parameters, rules, nodes, on_infeasible):
        if isinstance(part, Reason):
            return part
    assert not isinstance(parameters, Reason)
    assert not isinstance(rules, Reason)
    assert not isinstance(nodes, Reason)
    assert not isinstance(on_infeasible, Reason)
    name = "affinity" if keys else "spread"
    return Policy(name, parameters, rules, nodes, on_infeasible)


def _structured_affinity(policy: Mapping[str, Any], topology: Topology) -> dict[str, Any] | Reason:
    node = _affinity("policy", "node", policy.get("node", "balanced"))
    shard = _affinity("policy", "shard", policy.get("shard", "colocated"))
    scope = topology.scope(str(policy["level"])) if "level" in policy else LEAF
    preferred = _names("preferred_nodes", policy.get("preferred_nodes", ()))
    if isinstance(node, Reason):
        return node
    if isinstance(shard, Reason):
        return shard
    if isinstance(scope, Reason):
        return scope
    if isinstance(preferred, Reason):
        return preferred
    return _affinity_parameters(node, shard, PlacementPolicies(preferred_nodes=preferred), scope)


def _rules(rules: Any, topology: Topology) -> tuple[Rule, ...] | Reason:
    if not isinstance(rules, Sequence) or isinstance(rules, str):
        return Reason(Code.POLICY_MALFORMED, "policy: 'rules' must be a list")
    compiled: list[Rule] = []
    for position, rule in enumerate(rules):
        if not isinstance(rule, Mapping):
            message = f"policy: rules[{position}] must be a mapping, found {rule!r}"
            return Reason(Code.POLICY_MALFORMED, message)
        made = _rule(rule, f"rules[{position}]", topology)
        if isinstance(made, Reason):
            return made
        compiled.append(made)
    return tuple(compiled)


def _rule(rule: Mapping[str, Any], where: str, topology: Topology) -> Rule | Reason:
    for key in rule:
        if key not in _RULE_KEYS:
            message = f"policy: {where}: unknown key '{key}'; known are {', '.join(_RULE_KEYS)}"
            return Reason(Code.POLICY_UNKNOWN_KEY, message)
    written = rule.get("strength", "required")
    if written not in list(Strength):
        return _unknown_value(where, "strength", written, Strength)
    strength = Strength(written)
    if rule.get("exclusive") == "nodes":
        return ExclusiveNodes(strength)
    return _counting_rule(rule, where, strength, topology)


def _counting_rule(
    rule: Mapping[str, Any], where: str, strength: Strength, topology: Topology
) -> Rule | Reason:
    names = {"at_most": "per", "even": "even", "at_least": "domains"}
    kinds = [kind for kind in names if kind in rule]
    if len(kinds) != 1:
        message = f"policy: {where} must have exactly one of at_most, even, at_least, exclusive"
        return Reason(Code.POLICY_MALFORMED, message)
    kind = kinds[0]
    if names[kind] not in rule:
        return Reason(Code.POLICY_MALFORMED, f"policy: {where}: {kind} needs '{names[kind]}'")
    scope = topology.scope(str(rule[names[kind]]))
    if isinstance(scope, Reason):
        return scope
    if kind == "even":
        return Even(scope, strength)
    limit = rule[kind]
    if kind == "at_most" and limit in list(Share):
        return AtMost(Share(limit), scope, strength)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        return _unknown_value(where, kind, limit, Share if kind == "at_most" else ())
    if kind == "at_most":
        return AtMost(limit, scope, strength)
    return AtLeastDomains(limit, scope, strength)


def _node_filter(policy: Mapping[str, Any]) -> NodeFilter | Reason:
    parts: dict[str, tuple[Location, ...]] = {}
    for key in ("within", "avoid"):
        names = _names(key, policy.get(key, ()))
        if isinstance(names, Reason):
            return names
        locations = [parse_location(name) for name in names]
        for location in locations:
            if isinstance(location, Reason):
                return location
        parts[key] = tuple(each for each in locations if isinstance(each, Location))
    nodes = _names("nodes", policy.get("nodes", ()))
    if isinstance(nodes, Reason):
        return nodes
    tags = policy.get("with_tags", {})
    if not isinstance(tags, Mapping):
        return Reason(Code.POLICY_MALFORMED, "policy: 'with_tags' must be a mapping")
    pairs = tuple(sorted((str(key), str(value)) for key, value in tags.items()))
    return NodeFilter(parts["within"], parts["avoid"], nodes, pairs)


def _names(key: str, value: Any) -> tuple[str, ...] | Reason:
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, Sequence):
        return Reason(Code.POLICY_MALFORMED, f"policy: '{key}' must be a list of names")
    return tuple(dict.fromkeys(str(name).strip() for name in listed if str(name).strip()))


def _on_infeasible(value: Any) -> OnInfeasible | Reason | None:
    if value is None:
        return None
    if value not in list(OnInfeasible):
        return _unknown_value("policy", "on_infeasible", value, OnInfeasible)
    return OnInfeasible(value)


def _affinity(where: str, key: str, value: Any) -> Affinity | Reason:
    if value not in list(Affinity):
        return _unknown_value(where, key, value, Affinity)
    return Affinity(value)


def _unknown_value(where: str, key: str, value: Any, known: Any) -> Reason:
    expected = ", ".join(str(each) for each in known) or "a number of 1 or more"
    if known is Share:
        expected += ", or a number of 1 or more"
    message = f"{where}: unknown value '{value}' for '{key}'; known are {expected}"
    return Reason(Code.POLICY_UNKNOWN_VALUE, message)
