"""What strategies require by themselves, as rules that the oracle can count.

They are written as users write theirs; kinds that users cannot ask for have names of their own:
`even_within` (as far as nodes suffice, inside each domain of `inside`), `span`, `datacenters`,
`voters`. What is only preferred is nobody's breach.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Value = Mapping[str, Any]
Rules = Iterator[Value]
# A level of which every path is a domain by itself.
LEAF = "location"
# Voters of `cost` stand in so many zones.
_ZONES = 3

ALIASES: Mapping[str, str] = {
    "timeplus": "affinity",
    "elasticsearch": "awareness",
    "bytedance": "cost",
    "kudu": "location_majority",
    "kafka_streams": "client_tags",
    "cassandra": "network_topology",
    "kip879": "multi_level",
    "kafka": "striped",
}
# Strategies whose own rules give way unless the policy says otherwise.
DEGRADES = ("spread", "location_majority", "hdfs", "client_tags", "ring")
# Strategies that require nothing of which a list of nodes could be short, and why.
REQUIRES_NOTHING: Mapping[str, str] = {
    "simple": "distinct nodes are all it asks for",
    "copysets": "evenness is a wish; how few sets there are no later move could keep, so that "
    "`test_copysets` counts them when streams are placed",
}
# Parts of what a strategy requires that are judged elsewhere, and why.
JUDGED_ELSEWHERE: Mapping[str, str] = {
    "affinity": "its affinities are settings, not rules: `Judge._affinity`",
    "awareness": "values of an attribute may be forced: `Judge._awareness`",
    "cost": "the balance of the cluster moves with every other stream: `test_cost` judges it when "
    "a stream is placed",
    "ring": "no record tells which nodes have tokens: `test_ring` walks the ring",
    "network_topology": "no record tells which nodes have tokens, and racks are a wish: "
    "`test_network_topology` walks the ring",
}


def strategy_of(spec: Value) -> str:
    """The strategy's own name."""
    name = str(spec["policy"].get("strategy", "spread"))
    return ALIASES.get(name, name)


def is_required(spec: Value) -> bool:
    """Whether the strategy's own rules may not be broken."""
    policy, name = spec["policy"], strategy_of(spec)
    mode = policy.get("on_infeasible")
    if mode is None and name == "ring":
        return bool(policy.get("strict"))
    return mode != "degrade" if mode is not None else name not in DEGRADES


def own_rules(spec: Value, levels: Sequence[str], deepest: int) -> Rules:
    """The required rules of the stream's strategy. `levels` are the names of tiers, `deepest` the
    components of the longest path."""
    find = _OWN.get(strategy_of(spec))
    if find is not None and is_required(spec):
        yield from find(spec["policy"], [*map(str, range(1, deepest)), LEAF], levels)


def _spread(policy: Value, tiers: Sequence[str], _levels: Sequence[str]) -> Rules:
    rules = [rule for rule in policy.get("rules", ()) if rule.get("strength") != "preferred"]
    by_place = [r for r in rules if "role" in r or isinstance(r.get("at_least"), Mapping)]
    if not by_place and not any("exactly" in rule for rule in rules):
        yield from ({"even": tier, "located_first": True} for tier in tiers)


def _location_majority(_policy: Value, _tiers: Sequence[str], _levels: Sequence[str]) -> Rules:
    yield {"at_most": "minority", "per": LEAF, "if_several": True}


def _client_tags(policy: Value, _tiers: Sequence[str], _levels: Sequence[str]) -> Rules:
    for key in policy["rack_aware_tags"]:
        yield {"at_most": 1, "per": f"tag:{key}", "without": "allowed"}


def _hdfs(policy: Value, _tiers: Sequence[str], _levels: Sequence[str]) -> Rules:
    tolerant = policy.get("variant") == "rack_fault_tolerant"
    yield {"span": None if tolerant else 2, "per": LEAF}


def _ring(policy: Value, tiers: Sequence[str], _levels: Sequence[str]) -> Rules:
    scopes = policy.get("levels", tiers)
    if scopes:
        yield {"at_most": 1, "per": str(scopes[-1])}


def _network_topology(policy: Value, _tiers: Sequence[str], _levels: Sequence[str]) -> Rules:
    yield {"datacenters": policy["replication"], "per": "1"}


def _striped(policy: Value, _tiers: Sequence[str], _levels: Sequence[str]) -> Rules:
    yield {"even_within": str(policy.get("level", LEAF)), "inside": None}


def _multi_level(_policy: Value, tiers: Sequence[str], _levels: Sequence[str]) -> Rules:
    for tier, above in zip(tiers, (None, *tiers), strict=False):
        yield {"even_within": tier, "inside": above, "if_located": True}


def _cost(policy: Value, _tiers: Sequence[str], levels: Sequence[str]) -> Rules:
    named = (("region",), ("zone", "az", "availability_zone"), ("rack",))
    depths = [
        next((levels.index(name) + 1 for name in names if name in levels), at)
        for at, names in enumerate(named, start=1)
    ]
    rack = depths[2] if "rack" in levels else max(depths)
    zone = min(depths[1], rack)
    cold = int(policy.get("cold", 1))
    yield {"at_most": 1, "per": str(rack)}
    yield {"voters": _ZONES, "per": str(zone), "cold": cold}
    if cold:
        yield {"role": "cold", "count": cold, "other": str(min(depths[0], zone))}


_OWN: Mapping[str, Callable[[Value, Sequence[str], Sequence[str]], Rules]] = {
    "spread": _spread,
    "location_majority": _location_majority,
    "client_tags": _client_tags,
    "hdfs": _hdfs,
    "ring": _ring,
    "network_topology": _network_topology,
    "striped": _striped,
    "multi_level": _multi_level,
    "cost": _cost,
}
# Every strategy that is known to the oracle.
KNOWN = _OWN.keys() | REQUIRES_NOTHING.keys() | JUDGED_ELSEWHERE.keys()
