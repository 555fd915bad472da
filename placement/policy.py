"""Policies: what a stream asks for, compiled to rules and the name of a strategy.

Two forms are understood. `placement_policies` is Timeplus' semicolon-separated string (its
"Rack-aware Placements" page); its presence, even empty, selects the `affinity` strategy. `policy`
is the structured form of design section 6.1. Nothing is guessed: an unknown key, value, rule or
level is a reason that names it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

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
from placement.topology import Topology


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
# Limits of rules stay in the range of the wire's counts, so that sums of them fit 64 bits.
_LIMIT_MAX = 2**31 - 1
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
    node = affinity("placement_policies", "node", values.get("node", "balanced"))
    shard = affinity("placement_policies", "shard", values.get("shard", "colocated"))
    if isinstance(node, Reason):
        return node
    if isinstance(shard, Reason):
        return shard
    listed = values.get("preferred_nodes", "").split(",")
    preferred = tuple(dict.fromkeys(name.strip() for name in listed if name.strip()))
    return PlacementPolicies(node, shard, preferred, tuple(settings.values()))


class Compiles(Protocol):
    """What the compiler asks of a strategy."""

    @property
    def name(self) -> str:
        """Canonical name."""
        ...

    @property
    def parameters(self) -> tuple[str, ...]:
        """Keys of the policy that are the strategy's own."""
        ...

    def compile(
        self, policy: Mapping[str, Any], topology: Topology, /
    ) -> Mapping[str, Any] | Reason:
        """The strategy's parameters, checked, with defaults filled in."""
        ...


def compile_policy(
    placement_policies: str | None,
    policy: Mapping[str, Any] | None,
    default: Mapping[str, Any],
    topology: Topology,
    strategies: Mapping[str, Compiles],
) -> Policy | Reason:
    """Compile what a stream gave, or the configured default policy where it gave nothing.

    `strategies` by every name they answer to.
    """
    if placement_policies is None:
        return _structured(default if policy is None else policy, topology, strategies)
    if policy is not None:
        message = "a stream takes either placement_policies or policy, this one gives both"
        return Reason(Code.POLICY_AMBIGUOUS, message)
    parsed = parse_placement_policies(placement_policies)
    if isinstance(parsed, Reason):
        return parsed
    given = {
        "strategy": "affinity",
        "node": parsed.node,
        "shard": parsed.shard,
        "preferred_nodes": parsed.preferred_nodes,
    }
    return _structured(given, topology, strategies)


def _structured(
    policy: Mapping[str, Any], topology: Topology, strategies: Mapping[str, Compiles]
) -> Policy | Reason:
    written = str(policy.get("strategy", "spread"))
    strategy = strategies.get(written)
    if strategy is None:
        known = ", ".join(sorted(strategies))
        message = f"policy: unknown strategy '{written}'; known are {known}"
        return Reason(Code.STRATEGY_UNKNOWN, message)
    for key in policy:
        if key not in (*_COMMON_KEYS, *strategy.parameters):
            known = ", ".join((*_COMMON_KEYS, *strategy.parameters))
            message = f"policy: unknown key '{key}' for strategy '{written}'; known are {known}"
            return Reason(Code.POLICY_UNKNOWN_KEY, message)
    parameters = strategy.compile(policy, topology)
    if isinstance(parameters, Reason):
        return parameters
    rules = _rules(policy.get("rules", ()), topology)
    if isinstance(rules, Reason):
        return rules
    nodes = _node_filter(policy)
    if isinstance(nodes, Reason):
        return nodes
    on_infeasible = policy.get("on_infeasible")
    if on_infeasible is not None and on_infeasible not in list(OnInfeasible):
        return unknown_value("policy", "on_infeasible", on_infeasible, OnInfeasible)
    chosen = None if on_infeasible is None else OnInfeasible(on_infeasible)
    return Policy(strategy.name, parameters, rules, nodes, chosen)


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
        return unknown_value(where, "strength", written, Strength)
    strength = Strength(written)
    if "exclusive" in rule:
        if rule["exclusive"] != "nodes":
            return unknown_value(where, "exclusive", rule["exclusive"], ("nodes",))
        return _beside(rule, where, "exclusive") or ExclusiveNodes(strength)
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
    beside = _beside(rule, where, kind, names[kind])
    if beside:
        return beside
    scope = topology.scope(str(rule[names[kind]]))
    if isinstance(scope, Reason):
        return scope
    if kind == "even":
        return Even(scope, strength)
    limit = rule[kind]
    if kind == "at_most" and limit in list(Share):
        return AtMost(Share(limit), scope, strength)
    if type(limit) is not int or not 1 <= limit <= _LIMIT_MAX:
        return unknown_value(where, kind, limit, Share if kind == "at_most" else ())
    if kind == "at_most":
        return AtMost(limit, scope, strength)
    return AtLeastDomains(limit, scope, strength)


def _beside(rule: Mapping[str, Any], where: str, *taken: str) -> Reason | None:
    """Keys that say nothing to this kind of rule are a mistake."""
    for key in rule:
        if key not in (*taken, "strength"):
            message = f"policy: {where}: '{key}' does not go with '{taken[0]}'"
            return Reason(Code.POLICY_MALFORMED, message)
    return None


def _node_filter(policy: Mapping[str, Any]) -> NodeFilter | Reason:
    parts: dict[str, tuple[Location, ...]] = {}
    for key in ("within", "avoid"):
        names = name_list(key, policy.get(key, ()))
        if isinstance(names, Reason):
            return names
        locations = [parse_location(name) for name in names]
        for location in locations:
            if isinstance(location, Reason):
                return location
        parts[key] = tuple(each for each in locations if isinstance(each, Location))
    nodes = name_list("nodes", policy.get("nodes", ()))
    if isinstance(nodes, Reason):
        return nodes
    tags = policy.get("with_tags", {})
    if not isinstance(tags, Mapping):
        return Reason(Code.POLICY_MALFORMED, "policy: 'with_tags' must be a mapping")
    pairs = tuple(sorted((str(key), str(value)) for key, value in tags.items()))
    return NodeFilter(parts["within"], parts["avoid"], nodes, pairs)


def name_list(key: str, value: Any) -> tuple[str, ...] | Reason:
    """A list of names, or names separated by commas; repeated ones count once."""
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, Sequence):
        return Reason(Code.POLICY_MALFORMED, f"policy: '{key}' must be a list of names")
    return tuple(dict.fromkeys(str(name).strip() for name in listed if str(name).strip()))


def affinity(where: str, key: str, value: Any) -> Affinity | Reason:
    """The affinity called `value`."""
    if value not in list(Affinity):
        return unknown_value(where, key, value, Affinity)
    return Affinity(value)


def unknown_value(where: str, key: str, value: Any, known: Any) -> Reason:
    """The refusal of a value, with those that are known."""
    expected = ", ".join(str(each) for each in known) or "a number of 1 or more"
    if known is Share:
        expected += ", or a number of 1 or more"
    message = f"{where}: unknown value '{value}' for '{key}'; known are {expected}"
    return Reason(Code.POLICY_UNKNOWN_VALUE, message)
