"""Rules about what a replica is for: which one leads, and which one is kept aside.

Slot 0 of a shard leads; the last slots hold the role. The protocol is that of `placement.rules`.
"""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.assignments import max_per_domain
from placement.model import Location, natural_key
from placement.rules.rule import (
    NEVER,
    Mask,
    Penalties,
    Rule,
    RuleContext,
    RuleFinding,
    ScopedRule,
    Strength,
)
from placement.topology import NO_DOMAIN, Scope, Topology


@dataclass(frozen=True, slots=True)
class LeaderPreference(Rule):
    """The leader stands in one of the listed domains, in the earliest that holds a replica
    (CockroachDB's lease preferences)."""

    slot_order_matters: ClassVar[bool] = True
    ranks_leaders: ClassVar[bool] = True
    domains: tuple[Location, ...]
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return f"leader_in {', '.join(str(domain) or '/' for domain in self.domains)}"

    @property
    def places(self) -> tuple[Location, ...]:
        """The domains of the list."""
        return self.domains

    def leader_rank(self, topology: Topology) -> NDArray[np.int64]:
        """Rank each node by the position of its domain in the list.

        Behind the last if it is in none, or may not lead.
        """
        return topology.derive(self, lambda: self._rank_nodes(topology))

    def _rank_nodes(self, topology: Topology) -> NDArray[np.int64]:
        ranks = np.full(topology.size, len(self.domains), np.int64)
        for position in reversed(range(len(self.domains))):
            inside = topology.inside(self.domains[position]) & topology.can_lead
            ranks[inside] = position
        return ranks

    def leader_delay(self, context: RuleContext) -> Penalties:
        """Count how much later in the list the shard's leader stands than it could."""
        rank, held = self.leader_rank(context.topology), np.asarray(context.replicas, np.int64)
        wish: Penalties = np.minimum(rank, rank[held].min(initial=len(self.domains)))
        return wish

    def penalty(self, context: RuleContext) -> Penalties:
        """Return one where the last replica to place would leave no possible leader."""
        rank, none = self.leader_rank(context.topology), len(self.domains)
        left = context.replication_factor - len(context.replicas) - 1
        if left > 0 or (rank[np.asarray(context.replicas, np.int64)] < none).any():
            return np.zeros(context.topology.size, np.int64)
        return np.where(rank < none, 0, 1)

    def violations(self, context: RuleContext) -> list[RuleFinding]:
        """Report the domain of a leader that is not in the list.

        Or, while the rule is preferred, later in it than another replica.
        """
        if not context.replicas or context.held_slots[0] != 0:
            return []
        rank, leader = self.leader_rank(context.topology), context.replicas[0]
        best = int(rank[np.asarray(context.replicas, np.int64)].min())
        limit = best if self.strength is Strength.PREFERRED else len(self.domains) - 1
        if rank[leader] < len(self.domains) and rank[leader] <= limit:
            return []
        return [RuleFinding(str(context.topology.locations[leader]) or "(unlocated)", 1, 0)]

    def may_violate(self, shards: NDArray[np.int64], context: RuleContext) -> Mask:
        """Mask the shards, a row of nodes each, that may break the rule.

        The first of a row leads, if any does.
        """
        rank = self.leader_rank(context.topology)[shards]
        preferred = self.strength is Strength.PREFERRED
        best = rank.min(axis=1) if preferred else len(self.domains) - 1
        doubtful: Mask = (rank[:, 0] == len(self.domains)) | (rank[:, 0] > best)
        return doubtful


@dataclass(frozen=True, slots=True)
class RoleApart(ScopedRule):
    """The last `count` replicas of a shard hold a role and share no domain of `per` with the
    others.

    For instance a cold copy in another region.
    """

    slot_order_matters: ClassVar[bool] = True
    counts_places: ClassVar[bool] = True
    role: str
    count: int
    per: Scope
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return f"role {self.role}: {self.count} in another {self.per}"

    def penalty(self, context: RuleContext) -> Penalties:
        """Count the replicas of the other kind in the node's domain.

        One for the last domain that the role could still have; never without a domain.
        """
        domains = context.topology.domain_of(self.per)
        plain, kept = self._domains(context)
        mine, theirs = (kept, plain) if self._holds(context, context.next_slot) else (plain, kept)
        result = np.zeros(len(domains), np.int64)
        for domain, count in theirs.items():
            result[domains == domain] = count
        if mine is plain and not kept:
            free = set(context.live_domains(self.per).tolist()) - plain.keys()
            if len(free) == 1:
                result[np.isin(domains, sorted(free))] = 1
        return np.where(domains == NO_DOMAIN, NEVER, result)

    def violations(self, context: RuleContext) -> list[RuleFinding]:
        """Report the domains that hold replicas of both kinds."""
        plain, kept = self._domains(context)
        both = plain.keys() & kept.keys()
        names = (context.topology.domain_name(self.per, domain) for domain in both)
        return [RuleFinding(name, 1, 0) for name in sorted(names, key=natural_key)]

    def may_violate(self, shards: NDArray[np.int64], context: RuleContext) -> Mask:
        """Mask the shards, a row of nodes each, that may break the rule.

        Some domain of theirs holds two replicas, of whatever kind.
        """
        return max_per_domain(context.topology.domain_of(self.per)[shards]) > 1

    def _holds(self, context: RuleContext, slot: int) -> bool:
        return slot >= context.replication_factor - self.count

    def _domains(self, context: RuleContext) -> tuple[Counter[int], Counter[int]]:
        """Count the replicas by domain, without and with the role."""
        domains = context.topology.domain_of(self.per)
        plain: Counter[int] = Counter()
        kept: Counter[int] = Counter()
        for node, slot in zip(context.replicas, context.held_slots, strict=True):
            (kept if self._holds(context, slot) else plain)[int(domains[node])] += 1
        del plain[NO_DOMAIN], kept[NO_DOMAIN]
        return plain, kept
