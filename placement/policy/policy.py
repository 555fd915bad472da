"""Policies: what a stream asks for, compiled to rules and the name of a strategy.

Two forms are understood. `placement_policies` is Timeplus' semicolon-separated string (its
"Rack-aware Placements" page); its presence, even empty, selects the `affinity` strategy. `policy`
is the structured form, which `placement/README.md` describes. Nothing is guessed: an unknown key,
value, rule or level is a reason that names it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from placement.model import Code, Reason, StreamSpec
from placement.policy.rule_parser import (
    compile_rules,
    location_list,
    name_list,
    tag_pairs,
    unknown_value,
)
from placement.rules import Rule, RuleContext, Strength
from placement.topology import NodeFilter, Topology

# Strategies read their parameters with these.
__all__ = [
    "Affinity",
    "Compiles",
    "NodeFilter",
    "OnInfeasible",
    "PlacementPolicies",
    "Policy",
    "compile_policy",
    "name_list",
    "parse_affinity",
    "parse_placement_policies",
    "unknown_value",
]


class Affinity(StrEnum):
    """Relation of replicas to locations (`node`) or to nodes (`shard`)."""

    COLOCATED = "colocated"
    BALANCED = "balanced"
    EXCLUSIVE = "exclusive"


class Balance(StrEnum):
    """Order in which rebalancing evens out the streams of a strategy.

    All replicas, then those of each stream, as `spread` places them; each stream, then all, as
    sources with an order of their own do; or nothing, if the strategy itself says where everything
    stands.
    """

    TOTALS_FIRST = "totals_first"
    STREAMS_FIRST = "streams_first"
    NEVER = "never"


class OnInfeasible(StrEnum):
    """Treatment of a stream that cannot be placed as its policy asks.

    Refused for good, kept and retried as a whole, placed as far as possible, or placed with a
    broken rule.
    """

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

    def compact(self) -> str:
        """Format the equivalent string with each key once, at its last position."""
        return ";".join(f"{key}={value}" for key, value in self.settings)


@dataclass(frozen=True, slots=True)
class Policy:
    """A compiled policy. `rules` are the user's own; a strategy brings its rules besides.

    `on_infeasible` says what becomes of a stream when the strategy's own rules cannot be met,
    `on_shortage` when nodes run out, or the user's required rules leave none: the two columns of
    the table in `placement/policy/README.md`. What the user gave holds for both, except
    `degrade`, which softens the strategy's own rules only.
    """

    strategy: str
    parameters: Mapping[str, Any]
    rules: tuple[Rule, ...] = ()
    nodes: NodeFilter = field(default_factory=NodeFilter)
    on_infeasible: OnInfeasible = OnInfeasible.REJECT
    on_shortage: OnInfeasible = OnInfeasible.REJECT

    @property
    def strength(self) -> Strength:
        """Strength of the strategy's own rules: preferred if they may be broken."""
        soft = self.on_infeasible is OnInfeasible.DEGRADE
        return Strength.PREFERRED if soft else Strength.REQUIRED

    @property
    def extra_copies(self) -> int:
        """Copies that the strategy keeps beside the replication factor, in a shard's last slots;
        no quorum counts them."""
        return int(self.parameters.get("extra_copies", 0))

    def copies(self, replication_factor: int) -> int:
        """Return the number of slots of a shard, extra copies included."""
        return replication_factor + self.extra_copies

    def rule_context(
        self, spec: StreamSpec, topology: Topology, load: NDArray[np.int64] | None = None
    ) -> RuleContext:
        """Make the context of rules for a stream, without its replicas.

        `load`: replicas by node.
        """
        factor = self.copies(spec.replication_factor)
        return RuleContext(topology, factor, (), nodes=self.nodes, shards=spec.shards, load=load)


_COMMON_KEYS = ("strategy", "rules", "within", "avoid", "nodes", "with_tags", "on_infeasible")


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
    node = parse_affinity("placement_policies", "node", values.get("node", "balanced"))
    shard = parse_affinity("placement_policies", "shard", values.get("shard", "colocated"))
    if isinstance(node, Reason):
        return node
    if isinstance(shard, Reason):
        return shard
    listed = values.get("preferred_nodes", "").split(",")
    preferred = tuple(dict.fromkeys(name.strip() for name in listed if name.strip()))
    return PlacementPolicies(node, shard, preferred, tuple(settings.values()))


class Compiles(Protocol):
    """Members of a strategy that the compiler asks."""

    @property
    def name(self) -> str:
        """Canonical name."""
        ...

    @property
    def parameters(self) -> tuple[str, ...]:
        """Keys of the policy that are the strategy's own."""
        ...

    @property
    def on_infeasible(self) -> OnInfeasible:
        """Treatment of a stream when the strategy's own rules cannot be met."""
        ...

    @property
    def on_shortage(self) -> OnInfeasible:
        """Treatment of a stream when nodes run out."""
        ...

    def compile(
        self, policy: Mapping[str, Any], topology: Topology, /
    ) -> Mapping[str, Any] | Reason:
        """Check the strategy's parameters and fill in defaults. A parameter that decides how the
        strategy's rules are enforced (`strict`) adds `on_infeasible`."""
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
        return _compile_structured(default if policy is None else policy, topology, strategies)
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
    return _compile_structured(given, topology, strategies)


def _compile_structured(
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
    rules = compile_rules(policy.get("rules", ()), topology)
    if isinstance(rules, Reason):
        return rules
    nodes = _node_filter(policy)
    if isinstance(nodes, Reason):
        return nodes
    on_infeasible = policy.get("on_infeasible")
    if on_infeasible is not None and on_infeasible not in list(OnInfeasible):
        return unknown_value("policy", "on_infeasible", on_infeasible, OnInfeasible)
    own = parameters.get("on_infeasible", strategy.on_infeasible)
    shortage = strategy.on_shortage
    if on_infeasible is not None:
        own = OnInfeasible(on_infeasible)
        shortage = shortage if own is OnInfeasible.DEGRADE else own
    return Policy(strategy.name, parameters, rules, nodes, own, shortage)


def _node_filter(policy: Mapping[str, Any]) -> NodeFilter | Reason:
    within = location_list("within", policy.get("within", ()))
    if isinstance(within, Reason):
        return within
    avoid = location_list("avoid", policy.get("avoid", ()))
    if isinstance(avoid, Reason):
        return avoid
    nodes = name_list("nodes", policy.get("nodes", ()))
    if isinstance(nodes, Reason):
        return nodes
    tags = tag_pairs("policy", policy.get("with_tags", {}))
    return tags if isinstance(tags, Reason) else NodeFilter(within, avoid, nodes, tags)


def parse_affinity(where: str, key: str, value: Any) -> Affinity | Reason:
    """Parse the name of an affinity; a reason names the known ones."""
    if value not in list(Affinity):
        return unknown_value(where, key, value, Affinity)
    return Affinity(value)
