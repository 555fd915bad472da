"""Roles: copies that a policy keeps aside, and what each replica of a shard is for."""

from collections.abc import Sequence

from placement.assignments import EMPTY
from placement.policy import Policy
from placement.rules import Elsewhere, RuleSet
from placement.strategies import STRATEGIES
from placement.topology import Topology

# What a replica is for that has no role of its own.
PLAIN_ROLE = "replica"


def role_rules(policy: Policy, topology: Topology) -> tuple[Elsewhere, ...]:
    """The rules that keep copies aside; no strategy is asked where the policy has none."""
    if not (policy.beside or RuleSet(policy.rules).roles):
        return ()
    return RuleSet(STRATEGIES[policy.strategy].rules(policy, topology)).roles


def role_names(
    policy: Policy | None, copies: int, nodes: Sequence[int], topology: Topology
) -> tuple[str, ...] | None:
    """What each replica is for, by the slots of a shard; None where none has a role."""
    rules = () if policy is None else role_rules(policy, topology)
    if not rules:
        return None
    names = [PLAIN_ROLE] * max(len(nodes), copies)
    for rule in rules:
        names[copies - rule.count : copies] = [rule.role] * rule.count
    return tuple(name for name, node in zip(names, nodes, strict=False) if node != EMPTY)
