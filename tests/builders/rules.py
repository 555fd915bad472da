"""Every kind of rule in its written form, for fleets whose first level is called `site`.

A new kind is entered here once; the tests that have to hold for every kind take them from here, and
`tests/placement/rules/test_kinds.py` fails for a kind that is missing.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from placement.allocator import OnRing
from placement.model import Location, parse_location
from placement.rules import (
    AtLeastDomains,
    AtLeastIn,
    AtMost,
    Balance,
    BalanceNodes,
    ColocateSlots,
    Even,
    EvenWithinCapacity,
    Exactly,
    ExclusiveNodes,
    LeaderPreference,
    LoadBalance,
    LocatedFirst,
    PreferNodes,
    RoleApart,
    Rule,
    SameDomain,
    Share,
    SpanDomains,
    VotersSpan,
    WithTags,
)
from placement.strategies.awareness import AwareOf
from placement.strategies.client_tags import DistinctTags
from placement.strategies.hdfs import UpgradeDomains
from placement.strategies.location_majority import NoMajority
from placement.strategies.network_topology import DatacenterCounts, DatacenterRacks
from placement.topology import LEAF, Scope

Written = Mapping[str, Any]

# By kind; locations are those of `tests/simulation/fleets.py`.
RULES: Mapping[str, tuple[Written, ...]] = {
    "at_most": (
        {"at_most": 1, "per": "site"},
        {"at_most": "share", "per": "tag:disk"},
        {"at_most": "minority", "per": "location"},
    ),
    "even": ({"even": "site"}, {"even": "tag:disk"}),
    "at_least": ({"at_least": 2, "domains": "site"}, {"at_least": {"/s1": 1, "/s2": 1}}),
    "exactly": ({"exactly": {"/s1": 1, "/s2": 1}},),
    "with_tags": ({"with_tags": {"disk": "ssd"}},),
    "balance": ({"balance": 0.1, "per": "site"},),
    "role": ({"role": "cold", "count": 1, "other": "site"},),
    "leader_in": ({"leader_in": ["/s2", "/s1"]},),
    "colocate": ({"colocate": "slots"},),
    "exclusive": ({"exclusive": "nodes"},),
}

SITE, RACK, DISK = Scope(depth=1, name="site"), Scope(depth=2, name="2"), Scope(tag="disk")


def _place(path: str) -> Location:
    location = parse_location(path)
    assert isinstance(location, Location)
    return location


S1, S2 = _place("/s1"), _place("/s2")

# Examples of every kind that there is, those that strategies bring included.
EXAMPLES: Mapping[type[Rule], tuple[Rule, ...]] = {
    AtMost: (
        *(AtMost(limit, SITE) for limit in (1, 2, *Share)),
        AtMost(1, DISK),
        AtMost(1, LEAF, located=True),
    ),
    Even: (Even(SITE), Even(DISK), Even(LEAF, located=True)),
    AtLeastDomains: (AtLeastDomains(2, SITE), AtLeastDomains(2, DISK)),
    SpanDomains: (SpanDomains(LEAF), SpanDomains(SITE, 2)),
    EvenWithinCapacity: (
        EvenWithinCapacity(SITE),
        EvenWithinCapacity(LEAF, SITE),
        EvenWithinCapacity(LEAF, None, fenced=True),
    ),
    SameDomain: (SameDomain(SITE), SameDomain(DISK)),
    ExclusiveNodes: (ExclusiveNodes(),),
    BalanceNodes: (BalanceNodes(),),
    ColocateSlots: (ColocateSlots(),),
    Balance: (Balance(0.1, SITE),),
    PreferNodes: (PreferNodes(("n2", "n0")),),
    LocatedFirst: (LocatedFirst(),),
    Exactly: (Exactly(((S1, 1), (S2, 1))), Exactly(((S1, 2), (S2, 1)))),
    AtLeastIn: (AtLeastIn(((S1, 1), (S2, 1))), AtLeastIn(((S1, 1), (_place("/s1/r1"), 1)))),
    WithTags: (WithTags((("disk", "ssd"),)),),
    LeaderPreference: (LeaderPreference((S2, S1)), LeaderPreference((S1,))),
    RoleApart: (RoleApart("cold", 1, SITE),),
    VotersSpan: (VotersSpan(2, SITE, 1),),
    LoadBalance: (LoadBalance(0.1, SITE),),
    OnRing: (OnRing(),),
    AwareOf: (AwareOf(DISK), AwareOf(DISK, ("tape",))),
    DistinctTags: (DistinctTags(1, DISK),),
    UpgradeDomains: (UpgradeDomains(DISK),),
    NoMajority: (NoMajority(),),
    DatacenterCounts: (DatacenterCounts((("s1", 1), ("s2", 1))),),
    DatacenterRacks: (DatacenterRacks((("s1", 1), ("s2", 2))),),
}


def size_of(rule: Rule) -> int | None:
    """Replicas of a shard that the rule is for; None where it is for any."""
    fixed = isinstance(rule, Exactly | DatacenterCounts)
    return sum(count for _, count in rule.counts) if fixed else None


def kinds(of: type[Rule] = Rule) -> Iterator[type[Rule]]:
    """Every kind of rule that the core has: ways to search, whose names begin with an underscore,
    are none."""
    for kind in of.__subclasses__():
        yield from kinds(kind)
        own = kind.__module__.startswith("placement.") and not kind.__name__.startswith("_")
        # A dataclass with slots leaves the class behind that it was made from.
        current = getattr(sys.modules[kind.__module__], kind.__name__, None) is kind
        if own and current and not kind.__abstractmethods__:
            yield kind
