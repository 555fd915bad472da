"""Rules by how many replicas stand in each domain: limits, evenness, how many domains.

`Even` calls a domain that is too small for its share a violation. `EvenWithinCapacity` is evenness
as far as nodes suffice, as Kafka's placers keep it at a rack or a level: a small rack is filled and
the others take the rest, and only a replica that could stand in an emptier domain breaks the rule.

`AtLeastDomains` asks for a number of domains, `SpanDomains` for as many as the fleet has, up to a
number: it asks a fleet of one rack for no second one (HDFS: satisfied = racks >= min(2, R, racks in
the cluster)).
"""

from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.assignments import (
    first_occurrences,
    max_per_domain,
    may_be_uneven,
    may_be_uneven_inside,
)
from placement.model import natural_key
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
    domain_counts,
    findings_by_domain,
)
from placement.topology import NO_DOMAIN, Scope


class Share(StrEnum):
    """Limits that depend on the replication factor and the number of live domains."""

    SHARE = "share"
    MINORITY = "minority"
    HALF = "half"


@dataclass(frozen=True, slots=True)
class AtMost(DomainCountRule):
    """At most `limit` replicas of a shard per domain of `per`; `located` as for `Even`."""

    domains_interchangeable: ClassVar[bool] = True
    limit: int | Share
    per: Scope
    strength: Strength = Strength.REQUIRED
    located: bool = False

    def __str__(self) -> str:
        return f"at_most {self.limit} per {self.per}"

    def cap(self, replication_factor: int, live: int) -> int:
        """Compute the limit in replicas for a shard of this size over `live` domains."""
        match self.limit:
            case Share.SHARE:
                return ceil(replication_factor / max(live, 1))
            case Share.MINORITY:
                return (replication_factor - 1) // 2
            case Share.HALF:
                return replication_factor // 2
            case number:
                return int(number)

    def penalty(self, context: RuleContext) -> Penalties:
        """Count the replicas above the limit with one more on each node; NEVER without a domain."""
        domains, counts, live = _count_domains(self, context)
        over = counts[domains] + 1 - self.cap(context.replication_factor, len(live))
        return np.where(domains == NO_DOMAIN, NEVER, np.maximum(over, 0))

    def violations(self, context: RuleContext) -> list[RuleFinding]:
        """Report the domains with more replicas than the limit."""
        _, counts, live = _count_domains(self, context)
        cap = self.cap(context.replication_factor, len(live))
        over = np.flatnonzero(counts > cap)
        return findings_by_domain(context.topology, self.per, counts, over, cap)

    def may_violate(self, shards: NDArray[np.int64], context: RuleContext) -> Mask:
        """Mask the whole shards, a row of nodes each, that may break the rule."""
        cap = self.cap(context.replication_factor, len(live_domains(self, context)))
        return max_per_domain(context.topology.domain_of(self.per)[shards]) > cap

    def domain_cap(self, context: RuleContext) -> int:
        """Return the limit in replicas."""
        return self.cap(context.replication_factor, len(live_domains(self, context)))

    @property
    def leaves_out_unlocated(self) -> bool:
        """As `located` says."""
        return self.located


@dataclass(frozen=True, slots=True)
class Even(DomainCountRule):
    """Counts per live domain of `per` differ by at most one.

    With `located`, nodes without a location are no domain while a node with one is live, and
    replicas on them are not compared.
    """

    domains_interchangeable: ClassVar[bool] = True
    per: Scope
    strength: Strength = Strength.REQUIRED
    located: bool = False

    def __str__(self) -> str:
        return f"even per {self.per}"

    def penalty(self, context: RuleContext) -> Penalties:
        """Count the replicas by which the node's domain leads the emptiest live one."""
        domains, counts, live = _count_domains(self, context)
        least = int(counts[live].min()) if len(live) else NEVER
        return np.where(domains == NO_DOMAIN, NEVER, np.maximum(counts[domains] - least, 0))

    def violations(self, context: RuleContext) -> list[RuleFinding]:
        """Report the domains two or more replicas ahead of the emptiest live one."""
        _, counts, live = _count_domains(self, context)
        if not len(live):
            return []
        limit = int(counts[live].min()) + 1
        over = np.flatnonzero(counts > limit)
        return findings_by_domain(context.topology, self.per, counts, over, limit)

    def may_violate(self, shards: NDArray[np.int64], context: RuleContext) -> Mask:
        """Mask the whole shards, a row of nodes each, that may break the rule."""
        domains = context.topology.domain_of(self.per)
        return may_be_uneven(domains[shards], live_domains(self, context))

    def rule_while_incomplete(self) -> Rule:
        """Forbid that any domain holds more than a share.

        A shard that is even in the end need not be so on the way.
        """
        return AtMost(Share.SHARE, self.per, located=self.located)

    @property
    def leaves_out_unlocated(self) -> bool:
        """As `located` says."""
        return self.located


@dataclass(frozen=True, slots=True)
class AtLeastDomains(DomainCountRule):
    """Replicas of a shard stand in at least `count` distinct domains of `per`."""

    domains_interchangeable: ClassVar[bool] = True
    count: int
    per: Scope
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return f"at_least {self.count} domains of {self.per}"

    def penalty(self, context: RuleContext) -> Penalties:
        """Count the domains still missing once the rest is placed into new ones."""
        domains = context.topology.domain_of(self.per)
        counts = domain_counts(domains, context.replicas)
        fresh = (counts[domains] == 0) & (domains != NO_DOMAIN)
        left = context.replication_factor - len(context.replicas) - 1
        short = self.count - int((counts > 0).sum()) - fresh - max(left, 0)
        return np.maximum(short, 0)  # type: ignore[no-any-return]

    def violations(self, context: RuleContext) -> list[RuleFinding]:
        """Report one finding without a domain if too few domains are used."""
        counts = domain_counts(context.topology.domain_of(self.per), context.replicas)
        have = int((counts > 0).sum())
        return [RuleFinding(None, have, self.count)] if have < self.count else []

    def may_violate(self, shards: NDArray[np.int64], context: RuleContext) -> Mask:
        """Mask the shards, a row of nodes each, that break the rule."""
        rows = context.topology.domain_of(self.per)[shards]
        used = (first_occurrences(rows) & (rows != NO_DOMAIN)).sum(axis=1)
        return used < self.count  # type: ignore[no-any-return]


def live_domains(rule: AtMost | Even, context: RuleContext) -> NDArray[np.int32]:
    """Return the live domains that the rule counts by."""
    live = context.live_domains(rule.per)
    located = live[live != context.topology.unlocated] if rule.located else live
    return located if len(located) else live


def _count_domains(
    rule: AtMost | Even, context: RuleContext
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
    """Find the domain of each node, the replicas by domain, and the live domains.

    A domain that is not judged has fewer replicas than any limit.
    """
    domains, live = context.topology.domain_of(rule.per), live_domains(rule, context)
    counts = domain_counts(domains, context.replicas)
    unlocated = context.topology.unlocated
    if rule.located and unlocated not in live:
        counts[unlocated] = -NEVER
    return domains, counts, live


@dataclass(frozen=True, slots=True)
class SpanDomains(DomainCountRule):
    """A shard's replicas stand in as many domains of `per` as there are, or in `count` of them."""

    domains_interchangeable: ClassVar[bool] = True
    per: Scope
    count: int | None = None
    strength: Strength = Strength.PREFERRED

    def __str__(self) -> str:
        return f"span {'all' if self.count is None else self.count} domains of {self.per}"

    def penalty(self, context: RuleContext) -> Penalties:
        """Count the domains still missing once the rest is placed into new ones."""
        domains, used = self._used_domains(context)
        fresh = ~np.isin(domains, list(used)) & (domains != NO_DOMAIN)
        left = max(context.replication_factor - len(context.replicas) - 1, 0)
        need = self._required_count(context, used, context.replication_factor)
        penalties: Penalties = np.maximum(need - len(used) - fresh.astype(np.int64) - left, 0)
        return penalties

    def violations(self, context: RuleContext) -> list[RuleFinding]:
        """Report one finding without a domain if the replicas could span more domains."""
        _, used = self._used_domains(context)
        need = self._required_count(context, used, len(context.replicas))
        return [RuleFinding(None, len(used), need)] if len(used) < need else []

    def may_violate(self, shards: NDArray[np.int64], context: RuleContext) -> Mask:
        """Mask the whole shards, a row of nodes each, that break the rule."""
        domains = context.topology.domain_of(self.per)
        live = np.zeros(int(domains.max(initial=0)) + 2, bool)
        live[context.live_domains(self.per)] = True
        rows = domains[shards]
        fresh = first_occurrences(rows) & (rows != NO_DOMAIN)
        there = live.sum() + (fresh & ~live[rows]).sum(axis=1)
        size = shards.shape[1]
        need = np.minimum(there, size if self.count is None else min(size, self.count))
        doubtful: Mask = fresh.sum(axis=1) < need
        return doubtful

    def _used_domains(self, context: RuleContext) -> tuple[np.ndarray, set[int]]:
        domains = context.topology.domain_of(self.per)
        held = domains[np.asarray(context.replicas, np.int64)]
        return domains, set(held.tolist()) - {NO_DOMAIN}

    def _required_count(self, context: RuleContext, used: set[int], replicas: int) -> int:
        there = len(used | set(context.live_domains(self.per).tolist()))
        return min(replicas, there, replicas if self.count is None else self.count)


# No domain holds as many replicas of one shard.
_FULL = 1 << 20


@dataclass(frozen=True, slots=True)
class EvenWithinCapacity(ScopedRule):
    """Domains of `per` inside one of `inside` stay even as far as nodes are free.

    None is two replicas ahead of one that still has a free node; `inside` None: anywhere. With
    `fenced`, suspect nodes are free.
    """

    sees_domains_only: ClassVar[bool] = True
    domains_interchangeable: ClassVar[bool] = True
    per: Scope
    inside: Scope | None = None
    strength: Strength = Strength.REQUIRED
    fenced: bool = False

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The level that is even, and the one inside which it is."""
        return (self.per,) if self.inside is None else (self.per, self.inside)

    def __str__(self) -> str:
        within = "" if self.inside is None else f" in each {self.inside}"
        return f"even per {self.per}{within} as far as nodes suffice"

    def penalty(self, context: RuleContext) -> Penalties:
        """Count the replicas by which the node's domain leads the emptiest that has a free node."""
        counts, domains, least, parents = self._count_levels(context)
        ahead: Penalties = np.maximum(counts[domains] - least[parents], 0)
        return ahead

    def violations(self, context: RuleContext) -> list[RuleFinding]:
        """Report the domains two or more replicas ahead of one with a free node."""
        counts, domains, least, parents = self._count_levels(context)
        ahead = [n for n in context.replicas if counts[domains[n]] > least[parents[n]] + 1]
        topology, found = context.topology, {int(domains[n]): int(parents[n]) for n in ahead}
        findings = [
            RuleFinding(topology.domain_name(self.per, d), int(counts[d]), int(least[parent]) + 1)
            for d, parent in found.items()
        ]
        return sorted(findings, key=lambda finding: natural_key(finding.domain or ""))

    def may_violate(self, shards: NDArray[np.int64], context: RuleContext) -> Mask:
        """Mask the whole shards, a row of nodes each, that may break the rule."""
        domains, parents = self._domains(context)
        free = self._free_nodes(context)
        size = int(domains.max(initial=0)) + 1
        live = np.bincount(domains[free], minlength=size) > 0
        parent_of = np.zeros(size, np.int64)
        parent_of[domains[free]] = parents[free]
        children = np.bincount(parent_of[live], minlength=int(parents.max(initial=0)) + 1)
        return may_be_uneven_inside(domains[shards], parents[shards], live, children)

    def _domains(self, context: RuleContext) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return each node's domain, and its domain of `inside`."""
        topology = context.topology
        nowhere = np.zeros(topology.size, np.int32)
        parents = nowhere if self.inside is None else topology.domain_of(self.inside)
        return topology.domain_of(self.per), parents

    def _free_nodes(self, context: RuleContext) -> Mask:
        """Mask the nodes that may take a replica of a shard that has none."""
        topology = context.topology
        free = topology.eligible | topology.fenced if self.fenced else topology.eligible.copy()
        return free if context.nodes.everything else free & context.nodes.mask(topology)

    def _count_levels(
        self, context: RuleContext
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
        """Count replicas by domain, and the fewest of a domain with a free node.

        Returns replicas by domain, each node's domain, the fewest replicas of a domain with a free
        node by domain of `inside`, and each node's domain there.
        """
        held = np.asarray(context.replicas, np.int64)
        domains, parents = self._domains(context)
        counts = np.bincount(domains[held], minlength=int(domains.max(initial=0)) + 1)
        free = self._free_nodes(context)
        if context.load is not None:
            capacity = context.topology.capacity
            free &= (capacity < 0) | (context.load < capacity)
        free[held] = False
        least = np.full(int(parents.max(initial=0)) + 1, _FULL)
        np.minimum.at(least, parents[free], counts[domains[free]])
        return counts, domains, least, parents
