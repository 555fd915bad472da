"""Examples of every kind of rule, for fleets whose first level is called `site`.

What has to hold for every kind is tried with these. Kinds that users write have their examples with
the oracle; those that strategies bring are listed here, and
`tests/placement/rules/test_kinds.py` fails for one that is missing.
"""

import sys
from collections.abc import Iterator, Mapping

from placement.allocator import OnRing
from placement.model import Location, parse_location
from placement.policy import Policy, compile_policy
from placement.rules import (
    AtLeastDomains,
    AtLeastIn,
    AtMost,
    BalanceNodes,
    Even,
    EvenWithinCapacity,
    Exactly,
    LeaderPreference,
    LoadBalance,
    LocatedFirst,
    PreferNodes,
    Rule,
    SameDomain,
    Share,
    SpanDomains,
    VotersSpan,
)
from placement.strategies import STRATEGIES
from placement.strategies.awareness import AwareOf
from placement.strategies.client_tags import DistinctTags
from placement.strategies.hdfs import UpgradeDomains
from placement.strategies.location_majority import NoMajority
from placement.strategies.network_topology import DatacenterCounts, DatacenterRacks
from placement.topology import LEAF, Scope, Topology
from tests.oracle.policy import KINDS

SITE, RACK, DISK = Scope(depth=1, name="site"), Scope(depth=2, name="2"), Scope(tag="disk")


def _place(path: str) -> Location:
    location = parse_location(path)
    assert isinstance(location, Location)
    return location


S1, S2 = _place("/s1"), _place("/s2")

_CHOSEN: Mapping[type[Rule], tuple[Rule, ...]] = {
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
    BalanceNodes: (BalanceNodes(),),
    PreferNodes: (PreferNodes(("n2", "n0")),),
    LocatedFirst: (LocatedFirst(),),
    Exactly: (Exactly(((S1, 1), (S2, 1))), Exactly(((S1, 2), (S2, 1)))),
    AtLeastIn: (AtLeastIn(((S1, 1), (S2, 1))), AtLeastIn(((S1, 1), (_place("/s1/r1"), 1)))),
    LeaderPreference: (LeaderPreference((S2, S1)), LeaderPreference((S1,))),
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


def _examples() -> Mapping[type[Rule], tuple[Rule, ...]]:
    """The examples above, and of kinds that users write those of the oracle."""
    found = dict(_CHOSEN)
    for examples in KINDS.values():
        policy = compile_policy(None, {"rules": examples}, {}, Topology(("site",)), STRATEGIES)
        assert isinstance(policy, Policy), policy
        for rule in policy.rules:
            if type(rule) not in _CHOSEN:
                found[type(rule)] = (*found.get(type(rule), ()), rule)
    return found


# Of every kind that there is, those that strategies bring included.
EXAMPLES = _examples()


def size_of(rule: Rule) -> int | None:
    """Replicas of a shard that the rule is for; None where it is for any."""
    if isinstance(rule, Exactly | DatacenterCounts):
        return sum(count for _, count in rule.counts)
    return None


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
