"""The one rules engine: what a rule costs when placing, and where it is broken.

Placement, repair, rebalancing and diagnosis ask the same rules, over one shard or many, and whether
an arrangement exists that keeps them. Imports `model`, `topology` and `assignments`.
"""

from placement.rules.domains import (
    AtLeastDomains,
    AtMost,
    Even,
    EvenWithinCapacity,
    Share,
    SpanDomains,
    live_domains,
)
from placement.rules.evaluate import broken_rows, find_breaches
from placement.rules.feasibility import FeasibilityQuery, why_not
from placement.rules.fits import (
    ANY_ROOM,
    BOUNDLESS,
    UNSTATED,
    NodeLoads,
    Overload,
    band_edges,
    capacities,
    has_space,
    limits,
)
from placement.rules.load import (
    Counts,
    LoadBalance,
    VotersSpan,
    bounds,
    domain_loads,
    domain_weights,
)
from placement.rules.places import (
    AtLeastIn,
    Exactly,
    LocatedFirst,
    PreferNodes,
    WithTags,
    missing_count,
)
from placement.rules.roles import LeaderPreference, RoleApart
from placement.rules.rule import (
    NEVER,
    DomainCountRule,
    Mask,
    Penalties,
    Rule,
    RuleContext,
    RuleFinding,
    ScopedRule,
    Strength,
)
from placement.rules.rule_set import RuleSet
from placement.rules.streams import (
    Balance,
    BalanceNodes,
    ColocateSlots,
    ExclusiveNodes,
    SameDomain,
)
from placement.rules.supply import (
    Supply,
    SupplyStep,
    allowed_step,
    distinct_node_step,
    location_step,
    room_step,
    rule_step,
    supply,
    why_not_admitted,
)

__all__ = [
    "ANY_ROOM",
    "BOUNDLESS",
    "NEVER",
    "UNSTATED",
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
    "NodeLoads",
    "Overload",
    "Penalties",
    "PreferNodes",
    "RoleApart",
    "Rule",
    "RuleContext",
    "RuleFinding",
    "RuleSet",
    "SameDomain",
    "ScopedRule",
    "Share",
    "SpanDomains",
    "Strength",
    "Supply",
    "SupplyStep",
    "VotersSpan",
    "WithTags",
    "allowed_step",
    "band_edges",
    "bounds",
    "broken_rows",
    "capacities",
    "distinct_node_step",
    "domain_loads",
    "domain_weights",
    "find_breaches",
    "has_space",
    "limits",
    "live_domains",
    "location_step",
    "missing_count",
    "room_step",
    "rule_step",
    "supply",
    "why_not",
    "why_not_admitted",
]
