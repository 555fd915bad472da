"""Rules about all replicas of a stream: one domain, nodes of their own, evenness, shared nodes.

Placing and repair ask them with the replicas of the stream's other shards; diagnosis asks them once
for the whole stream.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.model import natural_key
from placement.rules.rule import (
    NEVER,
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


@dataclass(frozen=True, slots=True)
class SameDomain(ScopedRule):
    """All replicas of the whole stream stand in one domain of `per` (Timeplus `colocated`)."""

    spans_stream: ClassVar[bool] = True
    sees_domains_only: ClassVar[bool] = True
    domains_interchangeable: ClassVar[bool] = True
    keeps_one_domain: ClassVar[bool] = True
    per: Scope
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return f"one domain of {self.per}"

    def penalty(self, context: RuleContext) -> Penalties:
        """Return one for every node outside the domain with most of the stream's replicas."""
        domains = context.topology.domain_of(self.per)
        counts = domain_counts(domains, [*context.stream_nodes, *context.replicas])
        if not counts.any():
            return np.where(domains == NO_DOMAIN, NEVER, 0)
        return np.where(domains == NO_DOMAIN, NEVER, counts[domains] < counts.max())

    def stream_excess(self, context: RuleContext) -> int:
        """Count the stream's replicas outside the domain that holds most."""
        held = [*context.stream_nodes, *context.replicas]
        counts = domain_counts(context.topology.domain_of(self.per), held)
        return len(held) - int(counts.max())

    def violations(self, context: RuleContext) -> list[RuleFinding]:
        """Report every domain in use, if there are several."""
        topology = context.topology
        domains = topology.domain_of(self.per)
        everywhere = domain_counts(domains, [*context.stream_nodes, *context.replicas])
        if np.count_nonzero(everywhere) < 2:
            return []
        counts = domain_counts(domains, context.replicas)
        return findings_by_domain(topology, self.per, counts, np.flatnonzero(counts), 1)

    def stream_violations(self, context: RuleContext) -> list[RuleFinding]:
        """Report one finding without a domain: the number of domains in use."""
        held = np.asarray([*context.replicas, *context.stream_nodes], np.int64)
        used = len(np.unique(context.topology.domain_of(self.per)[held]))
        return [RuleFinding(None, used, 1)] if used > 1 else []

    def is_kept_throughout(self, stream: RuleContext) -> bool:
        """Return whether the whole stream is in one domain."""
        return not self.violations(stream)

    def allows_move(
        self, context: RuleContext, source: int, target: int, _taken: Callable[[], bool]
    ) -> bool:
        """Return whether both nodes are in one domain."""
        domains = context.topology.domain_of(self.per)
        return bool(domains[source] == domains[target])


@dataclass(frozen=True, slots=True)
class ExclusiveNodes(Rule):
    """A node holds at most one replica of the stream (Timeplus `shard=exclusive`)."""

    spans_stream: ClassVar[bool] = True
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return "exclusive nodes"

    def penalty(self, context: RuleContext) -> Penalties:
        """Return one for every node that holds a replica of another shard of the stream."""
        taken = np.zeros(context.topology.size, np.int64)
        taken[np.asarray(context.stream_nodes, np.int64)] = 1
        return taken

    def violations(self, context: RuleContext) -> list[RuleFinding]:
        """Report the nodes shared with another shard of the stream."""
        shared = set(context.replicas) & set(context.stream_nodes)
        names = sorted((context.topology.ids[node] for node in shared), key=natural_key)
        return [RuleFinding(name, 2, 1) for name in names]

    def stream_violations(self, context: RuleContext) -> list[RuleFinding]:
        """Report the nodes that hold several replicas of the stream."""
        topology = context.topology
        held = np.asarray([*context.replicas, *context.stream_nodes], np.int64)
        times = np.bincount(held, minlength=topology.size)
        shared = np.flatnonzero(times > 1).tolist()
        found = [RuleFinding(topology.ids[node], int(times[node]), 1) for node in shared]
        return sorted(found, key=lambda finding: natural_key(finding.domain or ""))

    def is_kept_throughout(self, stream: RuleContext) -> bool:
        """Return whether every node appears at most once."""
        return len(set(stream.replicas)) == len(stream.replicas)

    def allows_move(
        self, _context: RuleContext, _source: int, _target: int, taken: Callable[[], bool]
    ) -> bool:
        """Return whether the target holds no replica of the stream."""
        return not taken()


@dataclass(frozen=True, slots=True)
class BalanceNodes(Rule):
    """The stream's replicas are spread over nodes as far as these suffice (Timeplus
    `shard=balanced`)."""

    spans_stream: ClassVar[bool] = True
    repairable: ClassVar[bool] = False
    strength: Strength = Strength.PREFERRED

    def __str__(self) -> str:
        return "balance nodes"

    def penalty(self, context: RuleContext) -> Penalties:
        """Count the stream's replicas on each node."""
        held = np.asarray(context.stream_nodes, np.int64)
        return np.bincount(held, minlength=context.topology.size)

    def violations(self, _context: RuleContext) -> list[RuleFinding]:
        """Report nothing: how even it can be is up to the other rules."""
        return []

    def is_kept_throughout(self, _stream: RuleContext) -> bool:
        """Return True: the rule is never broken."""
        return True

    def allows_move(
        self, _context: RuleContext, _source: int, _target: int, _taken: Callable[[], bool]
    ) -> bool:
        """Return True: rebalancing evens out streams by itself."""
        return True


@dataclass(frozen=True, slots=True)
class ColocateSlots(Rule):
    """Replica r of every shard stands on one node (Timeplus `shard=colocated`).

    Repair keeps it by planning slot by slot, so that it neither ranks nor rejects single nodes.
    """

    repairable: ClassVar[bool] = False
    colocates_slots: ClassVar[bool] = True
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return "colocate slots"

    def penalty(self, context: RuleContext) -> Penalties:
        """Return zero: the slot's node is chosen once for all shards."""
        return np.zeros(context.topology.size, np.int64)

    def violations(self, _context: RuleContext) -> list[RuleFinding]:
        """Report nothing per shard."""
        return []

    def allows_move(
        self, _context: RuleContext, _source: int, _target: int, _taken: Callable[[], bool]
    ) -> bool:
        """Return True: a slot moves as a unit."""
        return True


@dataclass(frozen=True, slots=True)
class Balance(ScopedRule):
    """The stream's replicas per live domain of `per` stay near the domain's share.

    Within a fraction of it; the share is in proportion to the weight of the domain's nodes. One
    replica more or less is always allowed, because replicas are whole.
    """

    spans_stream: ClassVar[bool] = True
    needs_whole_stream: ClassVar[bool] = True
    divides_by_weight: ClassVar[bool] = True
    fraction: float
    per: Scope
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return f"balance {self.fraction:g} per {self.per}"

    def penalty(self, context: RuleContext) -> Penalties:
        """Measure how far the node's domain would exceed its bound in the complete stream.

        Or how far the others could no longer reach theirs.
        """
        domains, live = context.topology.domain_of(self.per), context.live_domains(self.per)
        counts, share = self._counts(context, live)
        held = len(context.stream_nodes) + len(context.replicas)
        whole = max(context.shards * context.replication_factor, held + 1)
        most, least = self._bounds(share * whole)
        over = np.maximum(counts + 1 - most, 0)
        lacks = np.maximum(least - counts, 0)
        short = np.maximum(lacks.sum() - (lacks > 0) - (whole - held - 1), 0)
        by_domain = np.full(int(domains.max(initial=0)) + 2, NEVER, np.int64)
        by_domain[live] = over + short
        result: Penalties = by_domain[domains]
        return result

    def violations(self, context: RuleContext) -> list[RuleFinding]:
        """Report live domains above or below their share of the stream's replicas."""
        live = context.live_domains(self.per)
        counts, share = self._counts(context, live)
        most, least = self._bounds(share * counts.sum())
        found = []
        for position, domain in enumerate(live.tolist()):
            count, limit = int(counts[position]), int(most[position])
            limit = int(least[position]) if count < least[position] else limit
            if count > most[position] or count < least[position]:
                found.append(
                    RuleFinding(context.topology.domain_name(self.per, domain), count, limit)
                )
        return sorted(found, key=lambda finding: natural_key(finding.domain or ""))

    def is_kept_throughout(self, stream: RuleContext) -> bool:
        """Return whether the whole stream keeps the rule."""
        return not self.violations(stream)

    def _counts(
        self, context: RuleContext, live: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Count the stream's replicas in each live domain, with its part of the weight."""
        topology, domains = context.topology, context.topology.domain_of(self.per)
        held = domains[np.asarray([*context.stream_nodes, *context.replicas], np.int64)]
        size = int(domains.max(initial=0)) + 1
        counts = np.bincount(held[held != NO_DOMAIN], minlength=size)[live]
        usable = topology.eligible & (domains != NO_DOMAIN)
        if not context.nodes.everything:
            usable = usable & context.nodes.mask(topology)
        weights = np.bincount(domains[usable], topology.weight[usable], size)[live]
        return counts, weights / max(weights.sum(), np.finfo(float).tiny)

    def _bounds(self, share: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Compute most and fewest replicas for each share; the share itself is always allowed."""
        slack = np.maximum(self.fraction * share, 1)
        most = np.floor(share + slack + 1e-9).astype(np.int64)
        return most, np.maximum(np.ceil(share - slack - 1e-9), 0).astype(np.int64)
