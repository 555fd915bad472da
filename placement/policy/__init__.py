"""Policies: what a stream asks for, compiled to rules and the name of a strategy.

Both written forms are parsed here, and policies that contradict themselves refused. Imports `rules`
and what it stands on.
"""

from placement.policy.contradictions import find_contradiction
from placement.policy.policy import (
    Affinity,
    Balance,
    Compiles,
    OnInfeasible,
    Policy,
    compile_policy,
    name_list,
    parse_affinity,
    parse_placement_policies,
    unknown_value,
)
from placement.policy.rule_parser import RULE_KINDS

__all__ = [
    "RULE_KINDS",
    "Affinity",
    "Balance",
    "Compiles",
    "OnInfeasible",
    "Policy",
    "compile_policy",
    "find_contradiction",
    "name_list",
    "parse_affinity",
    "parse_placement_policies",
    "unknown_value",
]
