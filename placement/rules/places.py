"""Rules about named places: how many replicas stand in which domain, tags, and balance.

They follow the protocol of `placement.rules`, which every caller asks.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.model import Location, natural_key
from placement.rules.base import (
    NEVER,
    Mask,
    Penalties,
    RuleContext,
    RuleFinding,
    RuleTraits,
    Strength,
)
from placement.topology import NO_DOMAIN, Scope, Topology

Counts = tuple[tuple[Location, int], ...]


@dataclass(frozen=True, slots=True)
class Exactly(RuleTraits):
    """Every listed domain holds exactly so many replicas of a shard, and no other holds any
    (Cassandra's `NetworkTopologyStrategy` counts per datacenter in this way)."""

    counts: Counts
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return f"exactly {_listed(self.counts)}"

    def penalty(self, standing: RuleContext) -> Penalties:
        """Replicas above the domain's number after adding one; never outside all of them."""
        result = np.full(standing.topology.size, NEVER, np.int64)
        for inside, have, want in _have(self.counts, standing):
            result[inside] = max(have + 1 - want, 0)
        return result

    def violations(self, standing: RuleContext) -> list[RuleFinding]:
        """Domains that hold more or fewer."""
        found = zip(self.counts, _have(self.counts, standing), strict=True)
        return [
            RuleFinding(str(d), have, want) for (d, want), (_, have, _) in found if have != want
        ]

    def may_violate(self, shards: NDArray[np.int64], standing: RuleContext) -> Mask:
        """Which of many shards, a row of nodes each, break the rule."""
        return _of_many(self.counts, shards, standing, np.not_equal)


@dataclass(frozen=True, slots=True)
class AtLeastIn(RuleTraits):
    """Every listed domain holds at least so many replicas of a shard; domains may be nested."""

    counts: Counts
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return f"at_least {_listed(self.counts)}"

    def penalty(self, standing: RuleContext) -> Penalties:
        """Replicas that would still be owed to the listed domains beyond those left to place."""
        have = {
            d: n
            for (d, _), (_, n, _) in zip(self.counts, _have(self.counts, standing), strict=True)
        }
        left = max(standing.replication_factor - len(standing.replicas) - 1, 0)
        nowhere = max(missing_count(self.counts, have) - left, 0)
        result = np.full(standing.topology.size, nowhere, np.int64)
        for domain, _ in sorted(self.counts, key=lambda each: each[0].depth):
            more = {d: n + domain.within(d) for d, n in have.items()}
            inside = standing.topology.inside(domain)
            result[inside] = max(missing_count(self.counts, more) - left, 0)
        return result

    def violations(self, standing: RuleContext) -> list[RuleFinding]:
        """Domains that hold fewer."""
        found = zip(self.counts, _have(self.counts, standing), strict=True)
        return [RuleFinding(str(d), have, want) for (d, want), (_, have, _) in found if have < want]

    def may_violate(self, shards: NDArray[np.int64], standing: RuleContext) -> Mask:
        """Which of many shards, a row of nodes each, break the rule."""
        return _of_many(self.counts, shards, standing, np.less)


def missing_count(counts: Counts, have: dict[Location, int]) -> int:
    """Replicas that have to come at least, so that every listed domain gets its own: what is owed
    to the domains within another counts for that one too."""

    def of(domain: Location, want: int) -> int:
        within = [(d, w) for d, w in counts if d != domain and d.within(domain)]
        top = [(d, w) for d, w in within if not any(d != o and d.within(o) for o, _ in within)]
        return max(want - have.get(domain, 0), sum(of(d, w) for d, w in top), 0)

    outermost = [c for c in counts if not any(c[0] != o and c[0].within(o) for o, _ in counts)]
    return sum(of(domain, want) for domain, want in outermost)


@dataclass(frozen=True, slots=True)
class WithTags(RuleTraits):
    """Replicas stand on nodes that carry all of these tags."""

    tags: tuple[tuple[str, str], ...]
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return f"with_tags {', '.join(f'{key}={value}' for key, value in self.tags)}"

    def penalty(self, standing: RuleContext) -> Penalties:
        """One for every node that lacks a tag."""
        return np.where(self._carried(standing.topology), 0, 1)

    def violations(self, standing: RuleContext) -> list[RuleFinding]:
        """Nodes that lack a tag."""
        carried, ids = self._carried(standing.topology), standing.topology.ids
        names = sorted((ids[n] for n in standing.replicas if not carried[n]), key=natural_key)
        return [RuleFinding(name, 1, 0) for name in names]

    def may_violate(self, shards: NDArray[np.int64], standing: RuleContext) -> Mask:
        """Which of many shards, a row of nodes each, break the rule."""
        doubtful: Mask = np.any(~self._carried(standing.topology)[shards], axis=1)
        return doubtful

    def _carried(self, topology: Topology) -> Mask:
        known: Mask | None = topology.attribute_cache.get(self)
        if known is None:
            wanted = set(self.tags)
            known = np.fromiter((wanted <= set(a.tags) for a in topology.attributes), bool)
            topology.attribute_cache[self] = known
        return known


@dataclass(frozen=True, slots=True)
class Balance(RuleTraits):
    """The stream's replicas per live domain of `per` stay within a fraction of the domain's share,
    which is in proportion to the weight of its nodes; one replica more or less is always allowed,
    because replicas are whole."""

    spans_stream: ClassVar[bool] = True
    needs_whole_stream: ClassVar[bool] = True
    fraction: float
    per: Scope
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return f"balance {self.fraction:g} per {self.per}"

    def penalty(self, standing: RuleContext) -> Penalties:
        """How far the node's domain would exceed its bound in the complete stream, or the others
        could no longer reach theirs."""
        domains, live = standing.topology.domain_of(self.per), standing.live_domains(self.per)
        counts, share = self._counts(standing, live)
        held = len(standing.stream_nodes) + len(standing.replicas)
        whole = max(standing.shards * standing.replication_factor, held + 1)
        most, least = self._bounds(share * whole)
        over = np.maximum(counts + 1 - most, 0)
        lacks = np.maximum(least - counts, 0)
        short = np.maximum(lacks.sum() - (lacks > 0) - (whole - held - 1), 0)
        by_domain = np.full(int(domains.max(initial=0)) + 2, NEVER, np.int64)
        by_domain[live] = over + short
        result: Penalties = by_domain[domains]
        return result

    def violations(self, standing: RuleContext) -> list[RuleFinding]:
        """Live domains above or below their share of what the stream holds."""
        live = standing.live_domains(self.per)
        counts, share = self._counts(standing, live)
        most, least = self._bounds(share * counts.sum())
        found = []
        for position, domain in enumerate(live.tolist()):
            count, limit = int(counts[position]), int(most[position])
            limit = int(least[position]) if count < least[position] else limit
            if count > most[position] or count < least[position]:
                found.append(
                    RuleFinding(standing.topology.domain_name(self.per, domain), count, limit)
                )
        return sorted(found, key=lambda finding: natural_key(finding.domain or ""))

    def _counts(
        self, standing: RuleContext, live: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Replicas of the stream in each live domain, and the domain's part of the weight."""
        topology, domains = standing.topology, standing.topology.domain_of(self.per)
        held = domains[np.asarray([*standing.stream_nodes, *standing.replicas], np.int64)]
        size = int(domains.max(initial=0)) + 1
        counts = np.bincount(held[held != NO_DOMAIN], minlength=size)[live]
        usable = topology.eligible & (domains != NO_DOMAIN)
        if not standing.nodes.everything:
            usable = usable & standing.nodes.mask(topology)
        weights = np.bincount(domains[usable], topology.weight[usable], size)[live]
        return counts, weights / max(weights.sum(), np.finfo(float).tiny)

    def _bounds(self, share: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Most and fewest replicas for each share; rounded so that the share itself is allowed."""
        slack = np.maximum(self.fraction * share, 1)
        most = np.floor(share + slack + 1e-9).astype(np.int64)
        return most, np.maximum(np.ceil(share - slack - 1e-9), 0).astype(np.int64)


def _listed(counts: Counts) -> str:
    return ", ".join(f"{domain}: {count}" for domain, count in counts)


def _have(counts: Counts, standing: RuleContext) -> list[tuple[Mask, int, int]]:
    """For each listed domain its nodes, how many replicas it holds, and how many are wanted."""
    replicas = np.asarray(standing.replicas, np.int64)
    masks = [(standing.topology.inside(domain), want) for domain, want in counts]
    return [(inside, int(inside[replicas].sum()), want) for inside, want in masks]


def _of_many(
    counts: Counts, shards: NDArray[np.int64], standing: RuleContext, wrong: np.ufunc
) -> Mask:
    """Rows in which a listed domain holds a number of replicas that is wrong."""
    found = np.zeros(len(shards), bool)
    for domain, want in counts:
        found |= wrong(standing.topology.inside(domain)[shards].sum(axis=1), want)
    return found
