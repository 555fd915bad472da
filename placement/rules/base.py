"""The one rules engine: placement, diagnosis and repair ask the same functions.

A rule is asked two things: how far a shard would break it if it took one more replica on each
node (`penalty`), and where a finished arrangement breaks it (`violations`). Both rest on the same
limit, so that the planner and the checker cannot disagree (in Kudu they did, and two endless loops
came of it).

Rules count the replicas that stay. A domain counts as live while it has an eligible node, so that
dead domains leave the denominator.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from placement.assignments import first_occurrences, max_per_domain, uneven
from placement.model import natural_key
from placement.topology import LEAF, NO_DOMAIN, NodeFilter, Scope, Topology

Mask = NDArray[np.bool_]
Penalties = NDArray[np.int64]

# Larger than any count of replicas (64 per shard, 100,000 per stream), small enough to add up.
NEVER = 1 << 20


class Strength(StrEnum):
    """`required` is never broken, `preferred` is kept as well as the topology allows."""

    REQUIRED = "required"
    PREFERRED = "preferred"


class Share(StrEnum):
    """Limits that depend on the replication factor and the number of live domains."""

    SHARE = "share"
    MINORITY = "minority"
    HALF = "half"


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """One domain where an arrangement breaks a rule."""

    domain: str | None
    count: int
    limit: int


_ALL_NODES = NodeFilter()


def scope_of(rule: object) -> Scope | None:
    """What the rule counts by, if it does."""
    scope = getattr(rule, "per", None)
    return scope if isinstance(scope, Scope) else None


@dataclass(frozen=True, slots=True)
class RuleContext:
    """What a rule is judged against: one shard's replicas, those of its stream's others, and the
    nodes that the policy admits.

    `shards` of the stream, `slots` of the replicas and the `slot` that is to be filled matter to
    rules of balance, of leaders and of roles only; `load`, the cluster's replicas by node with
    those of the stream, to rules on the cluster's balance.
    """

    topology: Topology
    replication_factor: int
    replicas: Sequence[int]
    stream_nodes: Sequence[int] = ()
    nodes: NodeFilter = _ALL_NODES
    shards: int = 1
    slots: Sequence[int] = ()
    slot: int | None = None
    load: NDArray[np.int64] | None = None

    @property
    def held_slots(self) -> Sequence[int]:
        """The slot of each replica; the first is 0 where nothing else is said."""
        return self.slots or range(len(self.replicas))

    @property
    def next_slot(self) -> int:
        """The slot that one more replica would take."""
        return len(self.replicas) if self.slot is None else self.slot

    def live_domains(self, scope: Scope) -> NDArray[np.int32]:
        """Domains with an eligible node that the policy admits: the denominator of rules."""
        if self.nodes.everything:
            return self.topology.live_domains(scope)
        domains = self.topology.domain_of(scope)
        found = np.unique(domains[self.topology.eligible & self.nodes.mask(self.topology)])
        return found[found != NO_DOMAIN]  # type: ignore[no-any-return]

    def seen(self, rule: object) -> tuple[str | None, tuple[str, ...]]:
        """What a reason says of the level that the rule counts by, if it does: its name, and the
        live domains there."""
        scope = scope_of(rule)
        if scope is None:
            return None, ()
        return scope.level, self.topology.seen(scope, self.live_domains(scope).tolist())


class RuleTraits:
    """What a rule says of itself to those that ask rules of any kind; a kind overrides what is
    different. A rule that a strategy brings inherits it, too.

    `spans_stream`: replicas of the stream's other shards matter. `needs_whole_stream`: it is judged
    once all shards are placed. `repairable`: repair moves replicas for it, unlike for wishes that
    ask for nothing definite, for slots planned as one, and for the balance of the cluster, which is
    rebalancing's. `slot_order_matters`: the same nodes in another order may break it.
    `sees_domains_only`: nodes that share their domains are equal to it.
    """

    __slots__ = ()
    spans_stream: ClassVar[bool] = False
    needs_whole_stream: ClassVar[bool] = False
    repairable: ClassVar[bool] = True
    slot_order_matters: ClassVar[bool] = False
    sees_domains_only: ClassVar[bool] = False


class DomainCountRule(RuleTraits):
    """Base of the rules that see only how many replicas stand in which domain of `per`.

    `domains_interchangeable`: domains with equally many replicas are equal to the rule."""

    __slots__ = ()
    sees_domains_only: ClassVar[bool] = True
    domains_interchangeable: ClassVar[bool] = False
    per: Scope


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
        """The limit in replicas for a shard of this size over `live` domains."""
        match self.limit:
            case Share.SHARE:
                return ceil(replication_factor / max(live, 1))
            case Share.MINORITY:
                return (replication_factor - 1) // 2
            case Share.HALF:
                return replication_factor // 2
            case number:
                return int(number)

    def penalty(self, standing: RuleContext) -> Penalties:
        """Replicas above the limit after adding one on each node; never where it has no domain."""
        domains, counts, live = _counted_domains(self, standing)
        over = counts[domains] + 1 - self.cap(standing.replication_factor, len(live))
        return np.where(domains == NO_DOMAIN, NEVER, np.maximum(over, 0))

    def violations(self, standing: RuleContext) -> list[RuleFinding]:
        """Domains that hold more replicas than the limit."""
        _, counts, live = _counted_domains(self, standing)
        cap = self.cap(standing.replication_factor, len(live))
        return _findings(standing.topology, self.per, counts, np.flatnonzero(counts > cap), cap)

    def may_violate(self, shards: NDArray[np.int64], standing: RuleContext) -> Mask:
        """Which of many whole shards, a row of nodes each, may break the rule."""
        cap = self.cap(standing.replication_factor, len(live_domains(self, standing)))
        return max_per_domain(standing.topology.domain_of(self.per)[shards]) > cap


@dataclass(frozen=True, slots=True)
class Even(DomainCountRule):
    """Counts per live domain of `per` differ by at most one. With `located`, nodes without a
    location are neither a domain nor judged while one with a location is live."""

    domains_interchangeable: ClassVar[bool] = True
    per: Scope
    strength: Strength = Strength.REQUIRED
    located: bool = False

    def __str__(self) -> str:
        return f"even per {self.per}"

    def penalty(self, standing: RuleContext) -> Penalties:
        """How many replicas the node's domain is ahead of the emptiest live one."""
        domains, counts, live = _counted_domains(self, standing)
        least = int(counts[live].min()) if len(live) else NEVER
        return np.where(domains == NO_DOMAIN, NEVER, np.maximum(counts[domains] - least, 0))

    def violations(self, standing: RuleContext) -> list[RuleFinding]:
        """Domains two or more replicas ahead of the emptiest live one."""
        _, counts, live = _counted_domains(self, standing)
        if not len(live):
            return []
        limit = int(counts[live].min()) + 1
        return _findings(standing.topology, self.per, counts, np.flatnonzero(counts > limit), limit)

    def may_violate(self, shards: NDArray[np.int64], standing: RuleContext) -> Mask:
        """Which of many whole shards, a row of nodes each, may break the rule."""
        domains = standing.topology.domain_of(self.per)
        return uneven(domains[shards], live_domains(self, standing))


@dataclass(frozen=True, slots=True)
class AtLeastDomains(DomainCountRule):
    """Replicas of a shard stand in at least `count` distinct domains of `per`."""

    domains_interchangeable: ClassVar[bool] = True
    count: int
    per: Scope
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return f"at_least {self.count} domains of {self.per}"

    def penalty(self, standing: RuleContext) -> Penalties:
        """Domains that would still be missing once the rest is placed freshly."""
        domains = standing.topology.domain_of(self.per)
        counts = _counts(domains, standing.replicas)
        fresh = (counts[domains] == 0) & (domains != NO_DOMAIN)
        left = standing.replication_factor - len(standing.replicas) - 1
        short = self.count - int((counts > 0).sum()) - fresh - max(left, 0)
        return np.maximum(short, 0)  # type: ignore[no-any-return]

    def violations(self, standing: RuleContext) -> list[RuleFinding]:
        """One finding without a domain when too few domains are used."""
        counts = _counts(standing.topology.domain_of(self.per), standing.replicas)
        have = int((counts > 0).sum())
        return [RuleFinding(None, have, self.count)] if have < self.count else []

    def may_violate(self, shards: NDArray[np.int64], standing: RuleContext) -> Mask:
        """Which of many shards, a row of nodes each, break the rule."""
        rows = standing.topology.domain_of(self.per)[shards]
        used = (first_occurrences(rows) & (rows != NO_DOMAIN)).sum(axis=1)
        return used < self.count  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class SameDomain(RuleTraits):
    """All replicas of the whole stream stand in one domain of `per` (Timeplus `colocated`)."""

    spans_stream: ClassVar[bool] = True
    sees_domains_only: ClassVar[bool] = True
    per: Scope
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return f"one domain of {self.per}"

    def penalty(self, standing: RuleContext) -> Penalties:
        """One for every node outside the domain in use, or outside those with most replicas."""
        domains = standing.topology.domain_of(self.per)
        counts = _counts(domains, [*standing.stream_nodes, *standing.replicas])
        if not counts.any():
            return np.where(domains == NO_DOMAIN, NEVER, 0)
        return np.where(domains == NO_DOMAIN, NEVER, counts[domains] < counts.max())

    def outside_main_domain(self, standing: RuleContext) -> int:
        """Replicas of the stream outside the domain that holds most."""
        held = [*standing.stream_nodes, *standing.replicas]
        counts = _counts(standing.topology.domain_of(self.per), held)
        return len(held) - int(counts.max())

    def violations(self, standing: RuleContext) -> list[RuleFinding]:
        """Every domain in use, when there are several."""
        topology = standing.topology
        domains = topology.domain_of(self.per)
        everywhere = _counts(domains, [*standing.stream_nodes, *standing.replicas])
        if np.count_nonzero(everywhere) < 2:
            return []
        counts = _counts(domains, standing.replicas)
        return _findings(topology, self.per, counts, np.flatnonzero(counts), 1)


@dataclass(frozen=True, slots=True)
class ExclusiveNodes(RuleTraits):
    """A node holds at most one replica of the stream (Timeplus `shard=exclusive`)."""

    spans_stream: ClassVar[bool] = True
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return "exclusive nodes"

    def penalty(self, standing: RuleContext) -> Penalties:
        """One for every node that holds a replica of another shard of the stream."""
        taken = np.zeros(standing.topology.size, np.int64)
        taken[np.asarray(standing.stream_nodes, np.int64)] = 1
        return taken

    def violations(self, standing: RuleContext) -> list[RuleFinding]:
        """Nodes shared with another shard of the stream."""
        shared = set(standing.replicas) & set(standing.stream_nodes)
        names = sorted((standing.topology.ids[node] for node in shared), key=natural_key)
        return [RuleFinding(name, 2, 1) for name in names]


@dataclass(frozen=True, slots=True)
class BalanceNodes(RuleTraits):
    """The stream's replicas are spread over nodes as far as these suffice (Timeplus
    `shard=balanced`)."""

    spans_stream: ClassVar[bool] = True
    repairable: ClassVar[bool] = False
    strength: Strength = Strength.PREFERRED

    def __str__(self) -> str:
        return "balance nodes"

    def penalty(self, standing: RuleContext) -> Penalties:
        """Replicas of the stream that the node holds already."""
        held = np.asarray(standing.stream_nodes, np.int64)
        return np.bincount(held, minlength=standing.topology.size)

    def violations(self, _standing: RuleContext) -> list[RuleFinding]:
        """None: how even it can be is up to the other rules."""
        return []


@dataclass(frozen=True, slots=True)
class PreferNodes(RuleTraits):
    """The listed nodes come first (Timeplus `preferred_nodes`)."""

    repairable: ClassVar[bool] = False
    nodes: tuple[str, ...]
    strength: Strength = Strength.PREFERRED

    def __str__(self) -> str:
        return f"prefer nodes {','.join(self.nodes)}"

    def penalty(self, standing: RuleContext) -> Penalties:
        """Position in the list; the rest comes after the last."""
        rank = np.full(standing.topology.size, len(self.nodes), np.int64)
        for position, node_id in reversed(list(enumerate(self.nodes))):
            node = standing.topology.index.get(node_id)
            if node is not None:
                rank[node] = position
        return rank

    def violations(self, _standing: RuleContext) -> list[RuleFinding]:
        """None: standing elsewhere is what the list allows when it does not suffice."""
        return []


@dataclass(frozen=True, slots=True)
class LocatedFirst(DomainCountRule):
    """Nodes with a location come first, as long as the stream may use one: nothing is known of what
    fails together with a node whose place nobody has told."""

    repairable: ClassVar[bool] = False
    name: ClassVar[str] = "located nodes first"
    per: Scope = LEAF
    strength: Strength = Strength.PREFERRED

    def __str__(self) -> str:
        return self.name

    def penalty(self, standing: RuleContext) -> Penalties:
        """One for every node without a location, beside live ones that have one."""
        topology = standing.topology
        unlocated = topology.domain_of(self.per) == topology.unlocated
        located = standing.live_domains(self.per) != topology.unlocated
        return (unlocated & located.any()).astype(np.int64)  # type: ignore[no-any-return]

    def violations(self, _standing: RuleContext) -> list[RuleFinding]:
        """None: a replica that stands on a node without a location stays there."""
        return []

    def may_violate(self, shards: NDArray[np.int64], _standing: RuleContext) -> Mask:
        """None of many shards breaks it."""
        return np.zeros(len(shards), bool)


@dataclass(frozen=True, slots=True)
class ColocateSlots(RuleTraits):
    """Replica r of every shard stands on one node (Timeplus `shard=colocated`).

    Repair keeps it by planning slot by slot, so that it neither ranks nor rejects single nodes.
    """

    repairable: ClassVar[bool] = False
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return "colocate slots"

    def penalty(self, standing: RuleContext) -> Penalties:
        """Nothing: the slot's node is chosen once for all shards."""
        return np.zeros(standing.topology.size, np.int64)

    def violations(self, _standing: RuleContext) -> list[RuleFinding]:
        """None per shard."""
        return []


class Rule(Protocol):
    """What every rule answers; strategies may bring kinds of their own, with `RuleTraits`."""

    spans_stream: ClassVar[bool]
    needs_whole_stream: ClassVar[bool]
    repairable: ClassVar[bool]
    slot_order_matters: ClassVar[bool]
    sees_domains_only: ClassVar[bool]

    @property
    def strength(self) -> Strength:
        """Whether it may be broken."""
        ...

    def penalty(self, standing: RuleContext, /) -> Penalties:
        """For each node, how far the shard would break the rule with one more replica on it."""
        ...

    def violations(self, standing: RuleContext, /) -> list[RuleFinding]:
        """Where the shard's replicas break the rule."""
        ...


def live_domains(rule: AtMost | Even, standing: RuleContext) -> NDArray[np.int32]:
    """The domains that the rule counts by, in the arrangement that it is asked about."""
    live = standing.live_domains(rule.per)
    located = live[live != standing.topology.unlocated] if rule.located else live
    return located if len(located) else live


def _counted_domains(
    rule: AtMost | Even, standing: RuleContext
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
    """The domain of each node, the replicas by domain, and the live domains; one that is not judged
    has fewer replicas than any limit."""
    domains, live = standing.topology.domain_of(rule.per), live_domains(rule, standing)
    counts = _counts(domains, standing.replicas)
    unlocated = standing.topology.unlocated
    if rule.located and unlocated not in live:
        counts[unlocated] = -NEVER
    return domains, counts, live


def _counts(domains: NDArray[np.int32], nodes: Sequence[int]) -> NDArray[np.int64]:
    """Replicas per domain; one spare entry so that NO_DOMAIN indexes a zero."""
    size = int(domains.max(initial=0)) + 2
    held = domains[np.asarray(nodes, np.int64)]
    return np.bincount(held[held != NO_DOMAIN], minlength=size)


def _findings(
    topology: Topology,
    scope: Scope,
    counts: NDArray[np.int64],
    domains: NDArray[np.int64],
    limit: int,
) -> list[RuleFinding]:
    """One finding per domain, in the order of their names."""
    name = topology.domain_name
    found = [RuleFinding(name(scope, d), int(counts[d]), limit) for d in domains.tolist()]
    return sorted(found, key=lambda finding: natural_key(finding.domain or ""))
