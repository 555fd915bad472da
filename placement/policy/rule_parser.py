"""The written form of rules, compiled to those of `placement.rules`.

Reading what people write in a policy: names, paths and counts, and the refusal of what is not.

Nothing is guessed; a reason names the place and what would be understood there.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from placement.model import UNLOCATED, Code, Location, Reason, parse_location
from placement.rules import (
    AtLeastDomains,
    AtLeastIn,
    AtMost,
    Balance,
    ColocateSlots,
    Even,
    Exactly,
    ExclusiveNodes,
    LeaderPreference,
    RoleApart,
    Rule,
    Share,
    Strength,
    WithTags,
)
from placement.topology import Topology

# Limits of rules stay in the range of the wire's counts, so that sums of them fit 64 bits.
LIMIT_MAX = 2**31 - 1

COUNT = "a number of 1 or more"

# YAML reads `1` and `1.5` as numbers where a name is meant; null, yes and no are mistakes.
_NAME_TYPES = (str, int, float)


def name_list(key: str, value: Any) -> tuple[str, ...] | Reason:
    """Parse a list of names, or names separated by commas; repeated ones count once."""
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, Sequence):
        message = f"policy: '{key}' must be a list of names, it is '{value}'"
        return Reason(Code.POLICY_MALFORMED, message)
    for name in listed:
        if type(name) not in _NAME_TYPES:
            return unknown_value("policy", key, name, "names")
    return tuple(dict.fromkeys(str(name).strip() for name in listed if str(name).strip()))


def location_list(key: str, value: Any) -> tuple[Location, ...] | Reason:
    """Parse a list of paths, or paths separated by commas."""
    names = name_list(key, value)
    if isinstance(names, Reason):
        return names
    found: list[Location] = []
    for name in names:
        location = parse_location(name)
        if isinstance(location, Reason):
            return location
        found.append(location)
    return tuple(found)


def location_counts(
    where: str, key: str, value: Mapping[Any, Any], least: int
) -> tuple[tuple[Location, int], ...] | Reason:
    """Parse a mapping from paths to numbers of replicas, each `least` or more."""
    found: dict[Location, int] = {}
    for path, count in value.items():
        location = parse_location(str(path))
        if isinstance(location, Reason):
            return location
        if location == UNLOCATED:
            message = f"policy: {where}: '{key}' names an empty location"
            return Reason(Code.POLICY_MALFORMED, message)
        if type(count) is not int or not least <= count <= LIMIT_MAX:
            return unknown_value(f"policy: {where}", str(path), count, f"a number from {least}")
        found[location] = count
    if not any(found.values()):
        return Reason(Code.POLICY_MALFORMED, f"policy: {where}: '{key}' names no domain")
    return tuple(found.items())


def tag_pairs(where: str, value: Any) -> tuple[tuple[str, str], ...] | Reason:
    """Convert a mapping of tags to sorted pairs of strings."""
    if not isinstance(value, Mapping):
        return Reason(Code.POLICY_MALFORMED, f"{where}: 'with_tags' must be a mapping")
    return tuple(sorted((str(key), str(each)) for key, each in value.items()))


def unknown_value(where: str, key: str, value: Any, known: Any) -> Reason:
    """Make the reason for an unknown value; `known`: the known ones, or a sentence."""
    expected = known if isinstance(known, str) else ", ".join(map(str, known))
    message = f"{where}: unknown value '{value}' for '{key}'; known are {expected or COUNT}"
    return Reason(Code.POLICY_UNKNOWN_VALUE, message)


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
RULE_KINDS = tuple(_KINDS)
_KEYS = (*dict.fromkeys(key for kind, more in _KINDS.items() for key in (kind, *more)), "strength")
# No system in the sources keeps more copies of a shard than this.
_ROLE_MAX = 63


def compile_rules(rules: Any, topology: Topology) -> tuple[Rule, ...] | Reason:
    """Compile the list `rules` of a policy; a reason names the first part not understood."""
    if not isinstance(rules, Sequence) or isinstance(rules, str):
        return Reason(Code.POLICY_MALFORMED, "policy: 'rules' must be a list")
    compiled: list[Rule] = []
    for position, rule in enumerate(rules):
        if not isinstance(rule, Mapping):
            message = f"policy: rules[{position}] must be a mapping, found {rule!r}"
            return Reason(Code.POLICY_MALFORMED, message)
        made = _parse_rule(rule, f"rules[{position}]", topology)
        if isinstance(made, Reason):
            return made
        compiled.append(made)
    return tuple(compiled)


def _parse_rule(rule: Mapping[str, Any], where: str, topology: Topology) -> Rule | Reason:
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


def _parse_at_most(
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


def _parse_even(
    rule: Mapping[str, Any], _where: str, strength: Strength, topology: Topology
) -> Rule | Reason:
    scope = topology.scope(str(rule["even"]))
    return scope if isinstance(scope, Reason) else Even(scope, strength)


def _parse_at_least(
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


def _parse_exactly(
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
        if inner.is_within(outer):
            message = f"policy: {where}: 'exactly {outer}' contains 'exactly {inner}'"
            return Reason(Code.POLICY_AMBIGUOUS, message)
    return Exactly(counts, strength)


def _parse_with_tags(
    rule: Mapping[str, Any], where: str, strength: Strength, _topology: Topology
) -> Rule | Reason:
    pairs = tag_pairs(f"policy: {where}", rule["with_tags"])
    return pairs if isinstance(pairs, Reason) else WithTags(pairs, strength)


def _parse_balance(
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


def _parse_role(
    rule: Mapping[str, Any], where: str, strength: Strength, topology: Topology
) -> Rule | Reason:
    name, count = rule["role"], rule.get("count", 1)
    if not isinstance(name, str) or not name.strip():
        return unknown_value(where, "role", name, "the name of a role")
    if type(count) is not int or not 1 <= count <= _ROLE_MAX:
        return unknown_value(where, "count", count, f"a number from 1 to {_ROLE_MAX}")
    scope = topology.scope(str(rule["other"]))
    return scope if isinstance(scope, Reason) else RoleApart(name.strip(), count, scope, strength)


def _parse_leader_in(
    rule: Mapping[str, Any], where: str, strength: Strength, _topology: Topology
) -> Rule | Reason:
    domains = location_list(f"{where}.leader_in", rule["leader_in"])
    if isinstance(domains, Reason):
        return domains
    if not domains:
        return Reason(Code.POLICY_MALFORMED, f"policy: {where}: 'leader_in' names no domain")
    return LeaderPreference(domains, strength)


def _parse_colocate(
    rule: Mapping[str, Any], where: str, strength: Strength, _topology: Topology
) -> Rule | Reason:
    if rule["colocate"] != "slots":
        return unknown_value(where, "colocate", rule["colocate"], ("slots",))
    return ColocateSlots(strength)


def _parse_exclusive(
    rule: Mapping[str, Any], where: str, strength: Strength, _topology: Topology
) -> Rule | Reason:
    if rule["exclusive"] != "nodes":
        return unknown_value(where, "exclusive", rule["exclusive"], ("nodes",))
    return ExclusiveNodes(strength)


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= LIMIT_MAX


_COMPILERS: Mapping[str, _Compiler] = {
    "at_most": _parse_at_most,
    "even": _parse_even,
    "at_least": _parse_at_least,
    "exactly": _parse_exactly,
    "with_tags": _parse_with_tags,
    "balance": _parse_balance,
    "role": _parse_role,
    "leader_in": _parse_leader_in,
    "colocate": _parse_colocate,
    "exclusive": _parse_exclusive,
}
