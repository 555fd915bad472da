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
    CountsDomains,
    Even,
    ExclusiveNodes,
    Finding,
    LocatedFirst,
    Mask,
    Penalties,
    PreferNodes,
    Rule,
    RuleTraits,
    SameDomain,
    Share,
    Standing,
    Strength,
    live_domains,
    scope_of,
)
from placement.rules.domains import EvenAsFits, SpanDomains
from placement.rules.evaluate import broken_rows, judged
from placement.rules.feasibility import Question, why_not
from placement.rules.load import (
    Counts,
    LoadBalance,
    VotersAcross,
    bounds,
    domain_loads,
    domain_weights,
)
from placement.rules.places import AtLeastIn, Balance, Exactly, WithTags, owed
from placement.rules.roles import Elsewhere, LeaderIn
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
    "CountsDomains",
    "Elsewhere",
    "Even",
    "EvenAsFits",
    "Exactly",
    "ExclusiveNodes",
    "Finding",
    "LeaderIn",
    "LoadBalance",
    "LocatedFirst",
    "Mask",
    "Part",
    "Penalties",
    "PreferNodes",
    "Question",
    "Rule",
    "RuleSet",
    "RuleTraits",
    "SameDomain",
    "Share",
    "SpanDomains",
    "Standing",
    "Strength",
    "Supply",
    "VotersAcross",
    "WithTags",
    "allowed",
    "apart",
    "bounds",
    "broken_rows",
    "domain_loads",
    "domain_weights",
    "judged",
    "keeping",
    "live_domains",
    "located",
    "owed",
    "room",
    "scope_of",
    "supply",
    "tagged",
    "why_not",
    "why_not_admitted",
]
