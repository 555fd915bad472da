"""Derives the health of shards and streams, and finds the critical domains.

The ladder, from best to worst: healthy, rebalancing, degraded, under_replicated, at_risk (one live
replica), unavailable (no quorum). The stream's spec names its quorum. A copy counts once it is
complete, on a node that is not dead.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY, find_distinct, first_occurrences, max_per_domain
from placement.model import natural_key
from placement.topology import NO_DOMAIN, Scope, Topology


class Health(StrEnum):
    """Names the rungs of health, from best to worst.

    A stream is as healthy as its worst shard.
    """

    HEALTHY = "healthy"
    REBALANCING = "rebalancing"
    DEGRADED = "degraded"
    UNDER_REPLICATED = "under_replicated"
    AT_RISK = "at_risk"
    UNAVAILABLE = "unavailable"


_LADDER = {health: step for step, health in enumerate(Health)}


def worst_of(found: Iterable[Health]) -> Health:
    """Return the worst health of several, `healthy` of none."""
    return max(set(found), key=lambda each: _LADDER[each], default=Health.HEALTHY)


def count_by_rung(found: Iterable[Health]) -> dict[str, int]:
    """Count how many stand on each rung, the worst first; rungs with none are left out."""
    counts = Counter(found)
    return {str(rung): counts[rung] for rung in reversed(Health) if counts[rung]}


def quorum_size(quorum: str | int, replication_factor: int) -> int:
    """Compute how many live copies a shard needs to be available.

    `quorum`: `one`, `majority` or a number, as the stream's spec has it.
    """
    if quorum == "one":
        return 1
    if quorum == "majority":
        return replication_factor // 2 + 1
    return int(quorum)


def shard_health(
    live: NDArray[np.int64],
    factor: int,
    quorum: int,
    broken: NDArray[np.bool_],
    moving: NDArray[np.bool_],
) -> NDArray[np.int8]:
    """Compute the health of many shards: the place of each in `Health`.

    Arrays by shard: `live` copies, whether it breaks a rule (`broken`), whether a move is under way
    (`moving`). `factor` and `quorum` are the same for all.
    """
    short = live < factor
    steps: NDArray[np.int64] = np.select(
        [live < quorum, short & (live == 1), short, broken, moving],
        [
            _LADDER[Health.UNAVAILABLE],
            _LADDER[Health.AT_RISK],
            _LADDER[Health.UNDER_REPLICATED],
            _LADDER[Health.DEGRADED],
            _LADDER[Health.REBALANCING],
        ],
        _LADDER[Health.HEALTHY],
    )
    return steps.astype(np.int8)


@dataclass(frozen=True, slots=True)
class CriticalDomain:
    """Names a domain whose loss alone would make `shards` unavailable that are available now.

    A node is a domain of the level `node`.
    """

    level: str
    domain: str
    shards: int
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Copies:
    """Holds the complete, live copies of a stream's shards.

    `nodes`: node indexes, a row for each shard, EMPTY where a copy is lost. `live`: copies by
    shard. `quorum`: copies that a shard needs.
    """

    stream: str
    nodes: NDArray[np.int64]
    live: NDArray[np.int64]
    quorum: int

    @property
    def below_quorum(self) -> list[int]:
        """List the shards without a quorum."""
        shards: list[int] = np.flatnonzero(self.live < self.quorum).tolist()
        return shards

    def to_lists(self) -> list[list[int]]:
        """List the nodes of each shard, without gaps."""
        return [[node for node in row if node != EMPTY] for row in self.nodes.tolist()]


def critical_domains(
    streams: Sequence[Copies], topology: Topology, scopes: Sequence[Scope]
) -> tuple[CriticalDomain, ...]:
    """Find the critical domains of each scope, then the critical nodes.

    The result follows `scopes`; domains of a scope come in natural order of their names.
    """
    tables = _tables(streams)
    found: list[CriticalDomain] = []
    for scope in scopes:
        domains = topology.domain_of(scope)
        found.extend(_critical(tables, domains, scope.level, partial(topology.domain_name, scope)))
    nodes = np.arange(topology.size)
    return (*found, *_critical(tables, nodes, "node", topology.ids.__getitem__))


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """Holds available shards of equal width and quorum.

    `streams`: for each row the position of its stream's name in `names`.
    """

    nodes: NDArray[np.int64]
    live: NDArray[np.int64]
    quorum: int
    streams: NDArray[np.int64]
    names: Sequence[str]


def _tables(streams: Sequence[Copies]) -> list[_Table]:
    """Join the streams of equal width and quorum into tables of their available shards."""
    alike: defaultdict[tuple[int, int], list[Copies]] = defaultdict(list)
    for each in streams:
        alike[each.nodes.shape[1], each.quorum].append(each)
    tables = []
    for (_, quorum), listed in alike.items():
        live = np.concatenate([each.live for each in listed])
        nodes = np.concatenate([each.nodes for each in listed])
        numbers = np.repeat(np.arange(len(listed)), [len(each.live) for each in listed])
        names = [each.stream for each in listed]
        there = live >= quorum
        tables.append(_Table(nodes[there], live[there], quorum, numbers[there], names))
    return tables


def _critical(
    tables: Sequence[_Table],
    domain_of: NDArray[np.integer],
    level: str,
    name: Callable[[int], str],
) -> list[CriticalDomain]:
    """Find the domains of one scope whose loss takes a quorum; `domain_of`: domain by node."""
    shards = np.zeros(int(domain_of.max(initial=0)) + 1, np.int64)
    streams: defaultdict[int, set[str]] = defaultdict(set)
    for table in tables:
        rows = np.where(table.nodes == EMPTY, NO_DOMAIN, domain_of[table.nodes])
        # Only rows with enough copies in one domain are looked at domain by domain.
        tight = np.flatnonzero(table.live - max_per_domain(rows) < table.quorum)
        rows, left = rows[tight], table.live[tight] - table.quorum
        fresh = first_occurrences(rows) & (rows != NO_DOMAIN)
        for column in np.flatnonzero(fresh.any(axis=0)).tolist():
            lost = (rows == rows[:, [column]]).sum(axis=1)
            hit = np.flatnonzero(fresh[:, column] & (lost > left))
            shards += np.bincount(rows[hit, column], minlength=len(shards))
            pairs = np.stack([rows[hit, column], table.streams[tight[hit]]], axis=1)
            for domain, stream in pairs[find_distinct(pairs)[0]].tolist():
                streams[domain].add(table.names[stream])
    made = [
        CriticalDomain(
            level,
            name(domain),
            int(shards[domain]),
            tuple(sorted(streams[domain], key=natural_key)),
        )
        for domain in np.flatnonzero(shards).tolist()
    ]
    return sorted(made, key=lambda each: natural_key(each.domain))


@dataclass(frozen=True, slots=True)
class UnderDiversified:
    """Names shards of a stream with all their copies in fewer domains of a level than possible.

    `domains`: the fewest that one of the shards uses. `possible`: as many as the policy allows.
    """

    stream: str
    level: str
    shards: tuple[int, ...]
    domains: int
    possible: int


def find_under_diversified(
    copies: Copies,
    factor: int,
    topology: Topology,
    live: Mapping[Scope, int],
) -> tuple[UnderDiversified, ...]:
    """Find the shards with all their copies, but in fewer domains than possible.

    `live`: for each scope the number of live domains that the policy admits. One result for each
    scope with such shards.
    """
    whole = np.flatnonzero(copies.live >= factor)
    nodes = copies.nodes[whole]
    found = []
    for scope, offered in live.items():
        possible = min(factor, offered)
        rows = np.where(nodes == EMPTY, NO_DOMAIN, topology.domain_of(scope)[nodes])
        used = (first_occurrences(rows) & (rows != NO_DOMAIN)).sum(axis=1)
        narrow = used < possible
        if narrow.any():
            shards, fewest = tuple(whole[narrow].tolist()), int(used[narrow].min())
            found.append(UnderDiversified(copies.stream, scope.level, shards, fewest, possible))
    return tuple(found)
