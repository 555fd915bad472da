"""Defines the contract of the one rules engine, which every kind of rule keeps.

A rule is asked two things: how far a shard would break it if it took one more replica on each
node (`penalty`), and where a finished arrangement breaks it (`violations`). Both rest on the same
limit, so that the planner and the checker cannot disagree (in Kudu they did, and two endless loops
came of it). Whatever else placing, diagnosis, repair and rebalancing have to know of a kind is a
member of `Rule` with a default, which the kind overrides.

Rules count the replicas that stay. A domain counts as live while it has an eligible node, so that
dead domains leave the denominator.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.model import Location, natural_key
from placement.topology import NO_DOMAIN, NodeFilter, Scope, Topology

Mask = NDArray[np.bool_]
Penalties = NDArray[np.int64]

# Larger than any count of replicas (64 per shard, 100,000 per stream), small enough to add up.
NEVER = 1 << 20


class Strength(StrEnum):
    """`required` is never broken, `preferred` is kept as well as the topology allows."""

    REQUIRED = "required"
    PREFERRED = "preferred"


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """One domain where an arrangement breaks a rule."""

    domain: str | None
    count: int
    limit: int


_ALL_NODES = NodeFilter()


@dataclass(frozen=True, slots=True)
class RuleContext:
    """Context in which a rule is judged.

    One shard's replicas, those of its stream's others, and the nodes that the policy admits.

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
        """Find the domains with an eligible node that the policy admits.

        Rules divide by their number.
        """
        if self.nodes.everything:
            return self.topology.live_domains(scope)
        domains = self.topology.domain_of(scope)
        found = np.unique(domains[self.topology.eligible & self.nodes.mask(self.topology)])
        return found[found != NO_DOMAIN]  # type: ignore[no-any-return]

    def level_and_domains(self, rule: "Rule") -> tuple[str | None, tuple[str, ...]]:
        """Return the name of the level that the rule counts by, and its live domains."""
        scope = rule.scope
        if scope is None:
            return None, ()
        return scope.level, self.topology.names_for_reason(scope, self.live_domains(scope).tolist())


class Rule(ABC):
    """Base of all kinds of rules; strategies may bring kinds of their own.

    A kind is a frozen dataclass with a `strength`. It brings `penalty`, `violations`, its text
    (`__str__`), and of the other members those that differ from the default.

    - `spans_stream`: replicas of the stream's other shards matter.
    - `needs_whole_stream`: it is judged once all shards are placed.
    - `repairable`: repair moves replicas for it. Not for wishes that ask for nothing definite, for
      slots planned as one, and for the balance of the cluster, which is rebalancing's.
    - `slot_order_matters`: the same nodes in another order may break it.
    - `sees_domains_only`: nodes that share their domains are equal to it.
    - `counts_domains`: nothing of a shard matters but the replicas in each domain of `scope`.
    - `domains_interchangeable`: domains with equally many replicas are equal to it.
    - `filters_nodes`: it says which nodes may hold a replica, wherever the others are.
    - `counts_places`: it says how many replicas stand where, which evenness gives way to.
    - `colocates_slots`: replica r of every shard stands on one node, so that a slot moves as one.
    - `keeps_one_domain`: the whole stream stands in one domain of `scope`.
    - `divides_by_weight`: any node that comes, goes or changes may break it, new domain or not.
    - `prefers_located`: nodes that have a location come first.
    - `ranks_leaders`: it says which replica leads, and nothing else.
    - `balances_cluster`: it is about what the cluster's nodes hold, not about the shard.
    """

    __slots__ = ()
    spans_stream: ClassVar[bool] = False
    needs_whole_stream: ClassVar[bool] = False
    repairable: ClassVar[bool] = True
    slot_order_matters: ClassVar[bool] = False
    sees_domains_only: ClassVar[bool] = False
    counts_domains: ClassVar[bool] = False
    domains_interchangeable: ClassVar[bool] = False
    filters_nodes: ClassVar[bool] = False
    counts_places: ClassVar[bool] = False
    colocates_slots: ClassVar[bool] = False
    keeps_one_domain: ClassVar[bool] = False
    divides_by_weight: ClassVar[bool] = False
    prefers_located: ClassVar[bool] = False
    balances_cluster: ClassVar[bool] = False
    ranks_leaders: ClassVar[bool] = False
    strength: Strength

    @abstractmethod
    def penalty(self, context: RuleContext, /) -> Penalties:
        """Measure for each node how far the shard would break the rule with a replica there."""

    @abstractmethod
    def violations(self, context: RuleContext, /) -> list[RuleFinding]:
        """Report where the shard's replicas break the rule."""

    def may_violate(self, shards: NDArray[np.int64], _context: RuleContext, /) -> Mask:
        """Mask the whole shards, a row of nodes each, that may break the rule.

        All, unless a kind can tell at less cost than by asking about each.
        """
        return np.ones(len(shards), bool)

    @property
    def scope(self) -> Scope | None:
        """The level or tag whose domains the rule counts by, if it does."""
        return None

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """All levels and tags that tell nodes apart for the rule."""
        return () if self.scope is None else (self.scope,)

    @property
    def leaves_out_unlocated(self) -> bool:
        """True if nodes without a location form no domain while a node with a location is live."""
        return False

    @property
    def places(self) -> tuple[Location, ...]:
        """Places in which the rule wants a replica."""
        return ()

    def least_within(self, _domain: Location, /) -> int:
        """Count the replicas of a shard that the rule wants within a domain at least."""
        return 0

    @property
    def needed_tags(self) -> tuple[tuple[str, str], ...]:
        """Tags that a node must carry."""
        return ()

    @property
    def general(self) -> "Rule":
        """The rule of the general kinds that asks for the same; a strategy's own may have one."""
        return self

    def rule_while_incomplete(self) -> "Rule":
        """Return the rule that applies while the shard lacks replicas.

        Its penalty never falls again as replicas are added.
        """
        return self

    def domain_cap(self, _context: RuleContext, /) -> int | None:
        """Return the most replicas of a shard in a domain of `scope`, if the rule says no more.

        None if it says more than that.
        """
        return None

    def node_fault(self, _topology: Topology, _node: int, /) -> str:
        """Describe what keeps the node itself from being used; empty if nothing does."""
        return ""

    def leader_rank(self, topology: Topology, /) -> NDArray[np.int64]:
        """Rank each node as a leader, lower is better; all alike if the rule ignores leaders."""
        return np.zeros(topology.size, np.int64)

    def allows_move(
        self, _context: RuleContext, _source: int, _target: int, _taken: Callable[[], bool], /
    ) -> bool | None:
        """Return whether a replica may move from source to target, judged by the two nodes alone.

        None if the arrangements before and after have to be compared. `context` has no replicas;
        `taken` says whether the target holds any of the stream.
        """
        return None

    def is_kept_throughout(self, _stream: RuleContext, /) -> bool:
        """Return whether a look at a stream's replicas proves that no shard breaks the rule."""
        return False

    def stream_excess(self, _context: RuleContext, /) -> int | None:
        """Count the stream's replicas that break the rule.

        For rules where a shard that keeps it better may make others keep it worse; None if each
        shard is judged by itself.
        """
        return None

    def stream_violations(self, context: RuleContext, /) -> list[RuleFinding]:
        """Report where a stream as a whole breaks the rule, each domain once.

        `context` has the replicas of one shard, and those of the others beside.
        """
        found: dict[str | None, RuleFinding] = {}
        for finding in self.violations(context):
            found.setdefault(finding.domain, finding)
        return [*found.values()]


class ScopedRule(Rule):
    """Base of the rules that count by the domains of `per`."""

    __slots__ = ()
    per: Scope

    @property
    def scope(self) -> Scope:
        """The level or tag whose domains the rule counts by."""
        return self.per


class DomainCountRule(ScopedRule):
    """Base of the rules that see only how many replicas stand in each domain of `per`."""

    __slots__ = ()
    sees_domains_only: ClassVar[bool] = True
    counts_domains: ClassVar[bool] = True


def domain_counts(domains: NDArray[np.int32], nodes: Sequence[int]) -> NDArray[np.int64]:
    """Count the nodes by domain; one spare entry so that NO_DOMAIN indexes a zero."""
    size = int(domains.max(initial=0)) + 2
    held = domains[np.asarray(nodes, np.int64)]
    return np.bincount(held[held != NO_DOMAIN], minlength=size)


def findings_by_domain(
    topology: Topology,
    scope: Scope,
    counts: NDArray[np.int64],
    domains: NDArray[np.int64],
    limit: int,
) -> list[RuleFinding]:
    """Make one finding per domain, in the order of their names."""
    name = topology.domain_name
    found = [RuleFinding(name(scope, d), int(counts[d]), limit) for d in domains.tolist()]
    return sorted(found, key=lambda finding: natural_key(finding.domain or ""))
