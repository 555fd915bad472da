"""The one rules engine: what a rule costs when placing, and where it is broken.

Placement, repair, rebalancing and diagnosis ask the same rules, over one shard or many, and whether
an arrangement exists that keeps them. Imports `model`, `topology` and `assignments`.
"""

from placement.rules.base import (
    NEVER,
    AtLeastDomains,
    AtMost,
    BalanceNodes,
    ColocateSlots,
    DomainCountRule,
    Even,
    ExclusiveNodes,
    LocatedFirst,
    Mask,
    Penalties,
    PreferNodes,
    Rule,
    RuleContext,
    RuleFinding,
    RuleTraits,
    SameDomain,
    Share,
    Strength,
    live_domains,
    scope_of,
)
from placement.rules.domains import EvenWithinCapacity, SpanDomains
from placement.rules.evaluate import broken_rows, find_breaches
from placement.rules.feasibility import FeasibilityQuery, why_not
from placement.rules.load import (
    Counts,
    LoadBalance,
    VotersSpan,
    bounds,
    domain_loads,
    domain_weights,
)
from placement.rules.places import AtLeastIn, Balance, Exactly, WithTags, missing_count
from placement.rules.roles import LeaderPreference, RoleApart
from placement.rules.rule_set import RuleSet
from placement.rules.supply import (
    Part,
    Supply,
    allowed,
    apart,
    keeping,
    located,
    room,
    supply,
    tagged,
    why_not_admitted,
)

__all__ = [
    "NEVER",
    "AtLeastDomains",
    "AtLeastIn",
    "AtMost",
    "Balance",
    "BalanceNodes",
    "ColocateSlots",
    "Counts",
    "DomainCountRule",
    "Even",
    "EvenWithinCapacity",
    "Exactly",
    "ExclusiveNodes",
    "FeasibilityQuery",
    "LeaderPreference",
    "LoadBalance",
    "LocatedFirst",
    "Mask",
    "Part",
    "Penalties",
    "PreferNodes",
    "RoleApart",
    "Rule",
    "RuleContext",
    "RuleFinding",
    "RuleSet",
    "RuleTraits",
    "SameDomain",
    "Share",
    "SpanDomains",
    "Strength",
    "Supply",
    "VotersSpan",
    "WithTags",
    "allowed",
    "apart",
    "bounds",
    "broken_rows",
    "domain_loads",
    "domain_weights",
    "find_breaches",
    "keeping",
    "live_domains",
    "located",
    "missing_count",
    "room",
    "scope_of",
    "supply",
    "tagged",
    "why_not",
    "why_not_admitted",
]
