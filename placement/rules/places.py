"""Rules about what a policy names or a node has: places with a number, tags, nodes, a location."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.model import Location, natural_key
from placement.rules.rule import (
    NEVER,
    DomainCountRule,
    Mask,
    Penalties,
    Rule,
    RuleContext,
    RuleFinding,
    Strength,
)
from placement.rules.supply import describe_tag
from placement.topology import LEAF, Scope, Topology

Counts = tuple[tuple[Location, int], ...]


@dataclass(frozen=True, slots=True)
class Exactly(Rule):
    """Every listed domain holds exactly its number of a shard's replicas, and no other holds any.

    As Cassandra's `NetworkTopologyStrategy` counts per datacenter.
    """

    counts_places: ClassVar[bool] = True
    counts: Counts
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return f"exactly {_format_counts(self.counts)}"

    @property
    def places(self) -> tuple[Location, ...]:
        """The domains that are to hold a replica."""
        return tuple(domain for domain, count in self.counts if count)

    def least_within(self, domain: Location) -> int:
        """Count the replicas of a shard that the listed domains inside this one want."""
        return missing_count(tuple(c for c in self.counts if c[0].is_within(domain)), {})

    def penalty(self, context: RuleContext) -> Penalties:
        """Count the replicas above the domain's number with one more; NEVER outside all domains."""
        result = np.full(context.topology.size, NEVER, np.int64)
        for inside, have, want in _count_replicas(self.counts, context):
            result[inside] = max(have + 1 - want, 0)
        return result

    def violations(self, context: RuleContext) -> list[RuleFinding]:
        """Report the listed domains with more or fewer replicas than their number."""
        found = zip(self.counts, _count_replicas(self.counts, context), strict=True)
        return [
            RuleFinding(str(d), have, want) for (d, want), (_, have, _) in found if have != want
        ]

    def may_violate(self, shards: NDArray[np.int64], context: RuleContext) -> Mask:
        """Mask the shards, a row of nodes each, that break the rule."""
        return _find_wrong_rows(self.counts, shards, context, np.not_equal)


@dataclass(frozen=True, slots=True)
class AtLeastIn(Rule):
    """Every listed domain holds at least so many replicas of a shard; domains may be nested."""

    counts_places: ClassVar[bool] = True
    counts: Counts
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return f"at_least {_format_counts(self.counts)}"

    @property
    def places(self) -> tuple[Location, ...]:
        """The domains that are to hold a replica."""
        return tuple(domain for domain, count in self.counts if count)

    def least_within(self, domain: Location) -> int:
        """Count the replicas of a shard that the listed domains inside this one want."""
        return missing_count(tuple(c for c in self.counts if c[0].is_within(domain)), {})

    def penalty(self, context: RuleContext) -> Penalties:
        """Count the replicas that the listed domains still lack beyond those left to place."""
        have = {
            d: n
            for (d, _), (_, n, _) in zip(
                self.counts, _count_replicas(self.counts, context), strict=True
            )
        }
        left = max(context.replication_factor - len(context.replicas) - 1, 0)
        nowhere = max(missing_count(self.counts, have) - left, 0)
        result = np.full(context.topology.size, nowhere, np.int64)
        for domain, _ in sorted(self.counts, key=lambda each: each[0].depth):
            more = {d: n + domain.is_within(d) for d, n in have.items()}
            inside = context.topology.inside(domain)
            result[inside] = max(missing_count(self.counts, more) - left, 0)
        return result

    def violations(self, context: RuleContext) -> list[RuleFinding]:
        """Report the listed domains with fewer replicas than their number."""
        found = zip(self.counts, _count_replicas(self.counts, context), strict=True)
        return [RuleFinding(str(d), have, want) for (d, want), (_, have, _) in found if have < want]

    def may_violate(self, shards: NDArray[np.int64], context: RuleContext) -> Mask:
        """Mask the shards, a row of nodes each, that break the rule."""
        return _find_wrong_rows(self.counts, shards, context, np.less)


def missing_count(counts: Counts, have: dict[Location, int]) -> int:
    """Count the replicas that are missing at least, so that every listed domain gets its own.

    A replica that is missing in a nested domain counts for the outer one too.
    """

    def missing_in(domain: Location, want: int) -> int:
        within = [(d, w) for d, w in counts if d != domain and d.is_within(domain)]
        top = [(d, w) for d, w in within if not any(d != o and d.is_within(o) for o, _ in within)]
        return max(want - have.get(domain, 0), sum(missing_in(d, w) for d, w in top), 0)

    outermost = [c for c in counts if not any(c[0] != o and c[0].is_within(o) for o, _ in counts)]
    return sum(missing_in(domain, want) for domain, want in outermost)


@dataclass(frozen=True, slots=True)
class WithTags(Rule):
    """Replicas stand on nodes that carry all of these tags."""

    filters_nodes: ClassVar[bool] = True
    tags: tuple[tuple[str, str], ...]
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return f"with_tags {', '.join(f'{key}={value}' for key, value in self.tags)}"

    def penalty(self, context: RuleContext) -> Penalties:
        """Return one for every node that lacks a tag."""
        return np.where(self._nodes_with_tags(context.topology), 0, 1)

    def violations(self, context: RuleContext) -> list[RuleFinding]:
        """Report the nodes that lack a tag."""
        carried, ids = self._nodes_with_tags(context.topology), context.topology.ids
        names = sorted((ids[n] for n in context.replicas if not carried[n]), key=natural_key)
        return [RuleFinding(name, 1, 0) for name in names]

    def may_violate(self, shards: NDArray[np.int64], context: RuleContext) -> Mask:
        """Mask the shards, a row of nodes each, that break the rule."""
        doubtful: Mask = np.any(~self._nodes_with_tags(context.topology)[shards], axis=1)
        return doubtful

    @property
    def needed_tags(self) -> tuple[tuple[str, str], ...]:
        """The tags."""
        return self.tags

    def node_fault(self, topology: Topology, node: int) -> str:
        """Name the node's value of the first tag that it lacks."""
        carried = dict(topology.attributes[node].tags)
        wrong = [key for key, value in self.tags if carried.get(key) != value]
        return describe_tag(wrong[0], carried) if wrong else ""

    def _nodes_with_tags(self, topology: Topology) -> Mask:
        return topology.derive(self, lambda: self._find_nodes_with_tags(topology))

    def _find_nodes_with_tags(self, topology: Topology) -> Mask:
        wanted = set(self.tags)
        return np.fromiter((wanted <= set(a.tags) for a in topology.attributes), bool)


@dataclass(frozen=True, slots=True)
class PreferNodes(Rule):
    """The listed nodes come first (Timeplus `preferred_nodes`)."""

    repairable: ClassVar[bool] = False
    nodes: tuple[str, ...]
    strength: Strength = Strength.PREFERRED

    def __str__(self) -> str:
        return f"prefer nodes {','.join(self.nodes)}"

    def penalty(self, context: RuleContext) -> Penalties:
        """Return the node's position in the list; the rest comes after the last."""
        rank = np.full(context.topology.size, len(self.nodes), np.int64)
        for position, node_id in reversed(list(enumerate(self.nodes))):
            node = context.topology.index.get(node_id)
            if node is not None:
                rank[node] = position
        return rank

    def violations(self, _context: RuleContext) -> list[RuleFinding]:
        """Report nothing: a replica may stand elsewhere if the listed nodes do not suffice."""
        return []

    def allows_move(
        self, context: RuleContext, source: int, target: int, _taken: Callable[[], bool]
    ) -> bool:
        """Return whether the target ranks at least as high as the source."""
        rank = self.penalty(context)
        return bool(rank[target] <= rank[source])


@dataclass(frozen=True, slots=True)
class LocatedFirst(DomainCountRule):
    """Nodes with a location come first, as long as the stream may use one.

    Nothing is known of what fails together with a node without a location.
    """

    repairable: ClassVar[bool] = False
    prefers_located: ClassVar[bool] = True
    name: ClassVar[str] = "located nodes first"
    per: Scope = LEAF
    strength: Strength = Strength.PREFERRED

    def __str__(self) -> str:
        return self.name

    def penalty(self, context: RuleContext) -> Penalties:
        """Return one for every node without a location, while one with a location is live."""
        topology = context.topology
        unlocated = topology.domain_of(self.per) == topology.unlocated
        located = context.live_domains(self.per) != topology.unlocated
        return (unlocated & located.any()).astype(np.int64)  # type: ignore[no-any-return]

    def violations(self, _context: RuleContext) -> list[RuleFinding]:
        """Report nothing: a replica on a node without a location stays there."""
        return []

    def may_violate(self, shards: NDArray[np.int64], _context: RuleContext) -> Mask:
        """Mask no shard: none breaks the rule."""
        return np.zeros(len(shards), bool)

    def allows_move(
        self, context: RuleContext, source: int, target: int, _taken: Callable[[], bool]
    ) -> bool:
        """Return whether the target ranks at least as high as the source."""
        rank = self.penalty(context)
        return bool(rank[target] <= rank[source])


def _format_counts(counts: Counts) -> str:
    return ", ".join(f"{domain}: {count}" for domain, count in counts)


def _count_replicas(counts: Counts, context: RuleContext) -> list[tuple[Mask, int, int]]:
    """Return for each listed domain its nodes, the replicas it holds, and those it wants."""
    replicas = np.asarray(context.replicas, np.int64)
    masks = [(context.topology.inside(domain), want) for domain, want in counts]
    return [(inside, int(inside[replicas].sum()), want) for inside, want in masks]


def _find_wrong_rows(
    counts: Counts, shards: NDArray[np.int64], context: RuleContext, wrong: np.ufunc
) -> Mask:
    """Mask the rows in which a listed domain holds a wrong number of replicas."""
    found = np.zeros(len(shards), bool)
    for domain, want in counts:
        found |= wrong(context.topology.inside(domain)[shards].sum(axis=1), want)
    return found
