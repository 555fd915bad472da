"""The written form of rules (design section 6.1), compiled to those of `placement.rules`."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from placement.model import Code, Reason
from placement.rules import (
    AtLeastDomains,
    AtLeastIn,
    AtMost,
    Balance,
    ColocateSlots,
    Elsewhere,
    Even,
    Exactly,
    ExclusiveNodes,
    LeaderIn,
    Rule,
    Share,
    Strength,
    WithTags,
)
from placement.topology import Topology
from placement.written import (
    COUNT,
    LIMIT_MAX,
    location_counts,
    location_list,
    tag_pairs,
    unknown_value,
)

# The key that says what kind of rule it is, and the keys that go with it.
_KINDS: Mapping[str, tuple[str, ...]] = {
    "at_most": ("per",),
    "even": (),
    "at_least": ("domains",),
    "exactly": (),
    "with_tags": (),
    "balance": ("per",),
    "role": ("count", "other"),
    "leader_in": (),
    "colocate": (),
    "exclusive": (),
}
_KEYS = (*dict.fromkeys(key for kind, more in _KINDS.items() for key in (kind, *more)), "strength")
# No system in the sources keeps more copies of a shard than this.
_ROLE_MAX = 63


def compile_rules(rules: Any, topology: Topology) -> tuple[Rule, ...] | Reason:
    """The list `rules` of a policy, or the first thing in it that is not understood."""
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
        if key not in _KEYS:
            message = f"policy: {where}: unknown key '{key}'; known are {', '.join(_KEYS)}"
            return Reason(Code.POLICY_UNKNOWN_KEY, message)
    written = rule.get("strength", "required")
    if written not in list(Strength):
        return unknown_value(where, "strength", written, Strength)
    kinds = [kind for kind in _KINDS if kind in rule]
    if len(kinds) != 1:
        message = f"policy: {where} must have exactly one of {', '.join(_KINDS)}"
        return Reason(Code.POLICY_MALFORMED, message)
    kind = kinds[0]
    needed = _KINDS[kind]
    if kind == "at_least" and isinstance(rule[kind], Mapping):
        needed = ()
    for key in needed:
        if key not in rule and key != "count":
            return Reason(Code.POLICY_MALFORMED, f"policy: {where}: {kind} needs '{key}'")
    for key in rule:
        if key not in (kind, *needed, "strength"):
            message = f"policy: {where}: '{key}' does not go with '{kind}'"
            return Reason(Code.POLICY_MALFORMED, message)
    return _COMPILERS[kind](rule, where, Strength(written), topology)


_Compiler = Callable[[Mapping[str, Any], str, Strength, Topology], Rule | Reason]


def _at_most(
    rule: Mapping[str, Any], where: str, strength: Strength, topology: Topology
) -> Rule | Reason:
    scope = topology.scope(str(rule["per"]))
    if isinstance(scope, Reason):
        return scope
    limit = rule["at_most"]
    if limit in list(Share):
        return AtMost(Share(limit), scope, strength)
    if _is_count(limit):
        return AtMost(limit, scope, strength)
    return unknown_value(where, "at_most", limit, f"{', '.join(Share)}, or {COUNT}")


def _even(
    rule: Mapping[str, Any], _where: str, strength: Strength, topology: Topology
) -> Rule | Reason:
    scope = topology.scope(str(rule["even"]))
    return scope if isinstance(scope, Reason) else Even(scope, strength)


def _at_least(
    rule: Mapping[str, Any], where: str, strength: Strength, topology: Topology
) -> Rule | Reason:
    limit = rule["at_least"]
    if isinstance(limit, Mapping):
        counts = location_counts(where, "at_least", limit, 1)
        return counts if isinstance(counts, Reason) else AtLeastIn(counts, strength)
    scope = topology.scope(str(rule["domains"]))
    if isinstance(scope, Reason):
        return scope
    if _is_count(limit):
        return AtLeastDomains(limit, scope, strength)
    return unknown_value(where, "at_least", limit, COUNT)


def _exactly(
    rule: Mapping[str, Any], where: str, strength: Strength, _topology: Topology
) -> Rule | Reason:
    if not isinstance(rule["exactly"], Mapping):
        message = f"policy: {where}: 'exactly' must map locations to numbers"
        return Reason(Code.POLICY_MALFORMED, message)
    counts = location_counts(where, "exactly", rule["exactly"], 0)
    if isinstance(counts, Reason):
        return counts
    domains = sorted((domain for domain, _ in counts), key=lambda each: each.components)
    for outer, inner in pairwise(domains):
        if inner.within(outer):
            message = f"policy: {where}: 'exactly {outer}' contains 'exactly {inner}'"
            return Reason(Code.POLICY_AMBIGUOUS, message)
    return Exactly(counts, strength)


def _with_tags(
    rule: Mapping[str, Any], where: str, strength: Strength, _topology: Topology
) -> Rule | Reason:
    pairs = tag_pairs(f"policy: {where}", rule["with_tags"])
    return pairs if isinstance(pairs, Reason) else WithTags(pairs, strength)


def _balance(
    rule: Mapping[str, Any], where: str, strength: Strength, topology: Topology
) -> Rule | Reason:
    scope = topology.scope(str(rule["per"]))
    if isinstance(scope, Reason):
        return scope
    fraction = rule["balance"]
    number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
    if not number or not 0 <= fraction <= 1:
        return unknown_value(where, "balance", fraction, "a fraction from 0 to 1")
    return Balance(float(fraction), scope, strength)


def _role(
    rule: Mapping[str, Any], where: str, strength: Strength, topology: Topology
) -> Rule | Reason:
    name, count = rule["role"], rule.get("count", 1)
    if not isinstance(name, str) or not name.strip():
        return unknown_value(where, "role", name, "the name of a role")
    if type(count) is not int or not 1 <= count <= _ROLE_MAX:
        return unknown_value(where, "count", count, f"a number from 1 to {_ROLE_MAX}")
    scope = topology.scope(str(rule["other"]))
    return scope if isinstance(scope, Reason) else Elsewhere(name.strip(), count, scope, strength)


def _leader_in(
    rule: Mapping[str, Any], where: str, strength: Strength, _topology: Topology
) -> Rule | Reason:
    domains = location_list(f"{where}.leader_in", rule["leader_in"])
    if isinstance(domains, Reason):
        return domains
    if not domains:
        return Reason(Code.POLICY_MALFORMED, f"policy: {where}: 'leader_in' names no domain")
    return LeaderIn(domains, strength)


def _colocate(
    rule: Mapping[str, Any], where: str, strength: Strength, _topology: Topology
) -> Rule | Reason:
    if rule["colocate"] != "slots":
        return unknown_value(where, "colocate", rule["colocate"], ("slots",))
    return ColocateSlots(strength)


def _exclusive(
    rule: Mapping[str, Any], where: str, strength: Strength, _topology: Topology
) -> Rule | Reason:
    if rule["exclusive"] != "nodes":
        return unknown_value(where, "exclusive", rule["exclusive"], ("nodes",))
    return ExclusiveNodes(strength)


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= LIMIT_MAX


_COMPILERS: Mapping[str, _Compiler] = {
    "at_most": _at_most,
    "even": _even,
    "at_least": _at_least,
    "exactly": _exactly,
    "with_tags": _with_tags,
    "balance": _balance,
    "role": _role,
    "leader_in": _leader_in,
    "colocate": _colocate,
    "exclusive": _exclusive,
}
