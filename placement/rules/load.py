"""Rules of the `cost` strategy that others do not have: balance of the cluster, zones of voters.

Balance counts what the cluster holds, not what the stream does; the protocol is that of
`placement.rules`. The last `extra_copies` slots of a shard hold copies that do not vote.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.assignments import first_occurrences
from placement.model import natural_key
from placement.rules.rule import (
    NEVER,
    Mask,
    Penalties,
    RuleContext,
    RuleFinding,
    ScopedRule,
    Strength,
)
from placement.topology import NO_DOMAIN, Scope, Topology

Counts = NDArray[np.int64]

# Weights and fractions are floats; a bound that is a whole number must not be missed by the last
# bit, and ten thousand nodes add up errors of less than this.
_ROUNDING = 1e-9


def bounds(weights: Counts, total: int, fraction: float, slack: int = 1) -> tuple[Counts, Counts]:
    """Compute the most and fewest of `total` replicas for domains of these weights.

    The weighted share, give or take `fraction` of it, or `slack` replicas where that is more.
    """
    share = weights * (total / max(int(weights.sum()), 1))
    room = np.maximum(fraction * share, slack)
    most = np.floor(share + room + _ROUNDING).astype(np.int64)
    least: Counts = np.maximum(np.ceil(share - room - _ROUNDING), 0).astype(np.int64)
    return most, least


def domain_weights(topology: Topology, scope: Scope, usable: NDArray[np.bool_]) -> Counts:
    """Sum the weight of the usable nodes of each domain.

    In whole millionths, so that the sum does not depend on the order of nodes.
    """
    domains = topology.domain_of(scope)
    live = usable & (domains != NO_DOMAIN)
    parts = np.rint(topology.weight[live] * 1e6)
    size = int(domains.max(initial=0)) + 1
    weights: Counts = np.bincount(domains[live], parts, size).astype(np.int64)
    return weights


def domain_loads(
    topology: Topology, scope: Scope, usable: NDArray[np.bool_], load: Counts
) -> Counts:
    """Sum the load of the usable nodes of each domain."""
    domains = topology.domain_of(scope)
    live = usable & (domains != NO_DOMAIN)
    size = int(domains.max(initial=0)) + 1
    loads: Counts = np.bincount(domains[live], load[live], size).astype(np.int64)
    return loads


@dataclass(frozen=True, slots=True)
class LoadBalance(ScopedRule):
    """Every live domain of `per` holds its weighted share of the cluster's replicas.

    Give or take a fraction of it or one replica.

    A stream is answerable for its part only: an overfull domain holds none of its replicas, and a
    domain that lacks some holds the stream's own share at least. Where nothing but the stream
    stands on the cluster that is the bound itself.
    """

    spans_stream: ClassVar[bool] = True
    needs_whole_stream: ClassVar[bool] = True
    repairable: ClassVar[bool] = False
    balances_cluster: ClassVar[bool] = True
    fraction: float
    per: Scope
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return f"load balance {self.fraction:g} per {self.per}"

    def penalty(self, context: RuleContext) -> Penalties:
        """Measure how far the node's domain would exceed its bound with one more replica."""
        own, load, weights = self._counts(context)
        left = context.shards * context.replication_factor - int(own.sum())
        most, _ = bounds(weights, int(load.sum()) + max(left, 1), self.fraction)
        domains = context.topology.domain_of(self.per)
        over = np.where(weights > 0, np.maximum(load + 1 - most, 0), NEVER)
        return np.where(domains == NO_DOMAIN, NEVER, over[domains])

    def violations(self, context: RuleContext) -> list[RuleFinding]:
        """Report overfull domains in which the stream stands, and empty ones it leaves out."""
        own, load, weights = self._counts(context)
        most, least = bounds(weights, int(load.sum()), self.fraction)
        _, due = bounds(weights, int(own.sum()), self.fraction)
        high = (load > most) & (own > 0) & (weights > 0)
        low = (load < least) & (own < due)
        topology = context.topology
        found = [
            RuleFinding(
                topology.domain_name(self.per, domain),
                int(load[domain]),
                int(most[domain] if high[domain] else least[domain]),
            )
            for domain in np.flatnonzero(high | low).tolist()
        ]
        return sorted(found, key=lambda finding: natural_key(finding.domain or ""))

    def _counts(self, context: RuleContext) -> tuple[Counts, Counts, Counts]:
        """Sum by domain the stream's replicas, the cluster's, and the weights."""
        topology = context.topology
        usable = topology.eligible
        if not context.nodes.everything:
            usable = usable & context.nodes.mask(topology)
        held = np.asarray([*context.stream_nodes, *context.replicas], np.int64)
        mine = np.bincount(held, minlength=topology.size)
        load = mine if context.load is None else context.load
        return (
            domain_loads(topology, self.per, usable, mine),
            domain_loads(topology, self.per, usable, load),
            domain_weights(topology, self.per, usable),
        )


@dataclass(frozen=True, slots=True)
class VotersSpan(ScopedRule):
    """The replicas of a shard that vote stand in at least `count` distinct domains of `per`.

    Or each in its own, if they are fewer.
    """

    slot_order_matters: ClassVar[bool] = True
    count: int
    per: Scope
    extra_copies: int
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return f"voters in at_least {self.count} domains of {self.per}"

    def penalty(self, context: RuleContext) -> Penalties:
        """Count the domains still missing once the other voters are placed into new ones."""
        domains, voters = context.topology.domain_of(self.per), self._voters(context)
        if context.next_slot >= context.replication_factor - self.extra_copies:
            return np.zeros(context.topology.size, np.int64)
        used = sorted({int(domains[node]) for node in voters})
        fresh = ~np.isin(domains, used) & (domains != NO_DOMAIN)
        left = context.replication_factor - self.extra_copies - len(voters) - 1
        short = self._required_count(context) - len(used) - fresh.astype(np.int64) - max(left, 0)
        penalties: Penalties = np.maximum(short, 0)
        return penalties

    def violations(self, context: RuleContext) -> list[RuleFinding]:
        """Report one finding without a domain if too few domains are used."""
        domains = context.topology.domain_of(self.per)
        have = len({int(domains[node]) for node in self._voters(context)})
        need = self._required_count(context)
        return [RuleFinding(None, have, need)] if have < need else []

    def may_violate(self, shards: NDArray[np.int64], context: RuleContext) -> Mask:
        """Mask the shards, a row of nodes each, that may break the rule.

        As many of their domains as there are copies that do not vote may be those of such copies.
        """
        used = first_occurrences(context.topology.domain_of(self.per)[shards]).sum(axis=1)
        doubtful: Mask = used - self.extra_copies < self._required_count(context)
        return doubtful

    def _required_count(self, context: RuleContext) -> int:
        return min(self.count, context.replication_factor - self.extra_copies)

    def _voters(self, context: RuleContext) -> list[int]:
        last = context.replication_factor - self.extra_copies
        pairs = zip(context.replicas, context.held_slots, strict=True)
        return [node for node, slot in pairs if slot < last]
