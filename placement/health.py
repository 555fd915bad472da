"""Health: one word for each shard and stream, and which domains must not go.

The ladder of design section 6.4. A quorum is what the stream's spec says; copies count once they
are complete, on nodes that are not dead.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from placement.location import natural_key
from placement.topology import NO_DOMAIN, Scope, Topology


class Health(StrEnum):
    """From best to worst; a stream is as healthy as its worst shard."""

    HEALTHY = "healthy"
    REBALANCING = "rebalancing"
    DEGRADED = "degraded"
    UNDER_REPLICATED = "under_replicated"
    AT_RISK = "at_risk"
    UNAVAILABLE = "unavailable"


_LADDER = {health: step for step, health in enumerate(Health)}


def worst(found: Iterable[Health]) -> Health:
    """The worst of several, `healthy` where there is none."""
    return max(found, key=lambda each: _LADDER[each], default=Health.HEALTHY)


def quorum_size(quorum: str | int, replication_factor: int) -> int:
    """Copies that a shard needs to be available."""
    if quorum == "one":
        return 1
    if quorum == "majority":
        return replication_factor // 2 + 1
    return int(quorum)


def shard_health(live: int, factor: int, quorum: int, broken: bool, moving: bool) -> Health:
    """The word for a shard with `live` copies; `broken`: it breaks a rule, `moving`: a move is
    under way."""
    if live < quorum:
        return Health.UNAVAILABLE
    if live < factor:
        return Health.AT_RISK if live == 1 else Health.UNDER_REPLICATED
    if broken:
        return Health.DEGRADED
    return Health.REBALANCING if moving else Health.HEALTHY


@dataclass(frozen=True, slots=True)
class CriticalDomain:
    """A domain whose loss alone would make shards unavailable that are available now; a node is a
    domain of the level `node`."""

    level: str
    domain: str
    shards: int
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Copies:
    """Nodes that hold a shard's complete, living copies, and how many of them it needs."""

    stream: str
    shard: int
    nodes: Sequence[int]
    quorum: int


def critical_domains(
    shards: Iterable[Copies], topology: Topology, scopes: Sequence[Scope]
) -> tuple[CriticalDomain, ...]:
    """For each level, then for nodes: what must not be lost. Levels top first, domains by name."""
    listed = list(shards)
    found: list[CriticalDomain] = []
    for scope in scopes:
        domains = topology.domain_of(scope)
        hit = _critical(listed, {n: int(d) for n, d in enumerate(domains) if d != NO_DOMAIN})
        level = scope.tag if scope.tag is not None else str(scope)
        found.extend(_named(hit, level, {d: topology.domain_name(scope, d) for d in hit}))
    hit = _critical(listed, {node: node for node in range(topology.size)})
    found.extend(_named(hit, "node", {node: topology.ids[node] for node in hit}))
    return tuple(found)


def _critical(shards: Iterable[Copies], domain_of: Mapping[int, int]) -> dict[int, list[Copies]]:
    hit: defaultdict[int, list[Copies]] = defaultdict(list)
    for copies in shards:
        if len(copies.nodes) < copies.quorum:
            continue
        held = [domain_of[node] for node in copies.nodes if node in domain_of]
        for domain in set(held):
            if len(copies.nodes) - held.count(domain) < copies.quorum:
                hit[domain].append(copies)
    return hit


def _named(
    hit: Mapping[int, Sequence[Copies]], level: str, names: Mapping[int, str]
) -> list[CriticalDomain]:
    made = [
        CriticalDomain(
            level,
            names[domain],
            len(shards),
            tuple(sorted({copies.stream for copies in shards}, key=natural_key)),
        )
        for domain, shards in hit.items()
    ]
    return sorted(made, key=lambda each: natural_key(each.domain))


@dataclass(frozen=True, slots=True)
class UnderDiversified:
    """Shards of a stream with all their copies in fewer domains of a level than could be."""

    stream: str
    level: str
    shards: tuple[int, ...]
    domains: int
    possible: int


def under_diversified(
    stream: str,
    shards: Iterable[Copies],
    factor: int,
    topology: Topology,
    scopes: Sequence[Scope],
    live: Mapping[Scope, int],
) -> tuple[UnderDiversified, ...]:
    """Right count, wrong spread. `live`: the domains that the policy leaves, by level; `domains` is
    the fewest that one of the shards uses."""
    whole = [copies for copies in shards if len(copies.nodes) >= factor]
    found = []
    for scope in scopes:
        possible = min(factor, live[scope])
        domains = topology.domain_of(scope)
        used = {c.shard: len({int(domains[n]) for n in c.nodes} - {NO_DOMAIN}) for c in whole}
        narrow = {shard: count for shard, count in used.items() if count < possible}
        if narrow:
            level, fewest = str(scope), min(narrow.values())
            found.append(UnderDiversified(stream, level, tuple(sorted(narrow)), fewest, possible))
    return tuple(found)
