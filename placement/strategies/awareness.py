"""Elasticsearch' shard allocation awareness: independent attributes, each with a hard cap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.allocator import (
    Column,
    ReplicaRequest,
    SetStrategy,
    View,
    exclude_taken,
    explain_no_node,
    find_best_set,
    placing_costs,
)
from placement.assignments import max_per_domain
from placement.hashing import scores
from placement.model import Code, Reason, natural_key
from placement.policy import Balance, OnInfeasible, Policy, name_list
from placement.rules import (
    DomainCountRule,
    Mask,
    Penalties,
    Rule,
    RuleContext,
    RuleFinding,
    Strength,
)
from placement.topology import NO_DOMAIN, Scope, Topology

# More than any count of replicas: a node without the attribute is never taken.
_NEVER = 1 << 20
# Above every other cost: where the caps may be broken, nodes without an attribute still come last.
_LAST_RESORT = 1 << 120


@dataclass(frozen=True, slots=True)
class AwareOf(DomainCountRule):
    """At most ceil(copies / values) replicas of a shard on each value of an attribute.

    Values are those of the usable nodes and the forced ones. A node without the attribute holds
    none.
    """

    domains_interchangeable: ClassVar[bool] = True
    per: Scope
    forced: tuple[str, ...] = ()
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        forced = f", forced {' '.join(self.forced)}" if self.forced else ""
        return f"aware of {self.name}{forced}"

    @property
    def name(self) -> str:
        """Name the attribute: the tag's key or the level's name."""
        return self.per.tag or str(self.per)

    def values(self, standing: RuleContext) -> tuple[list[str], list[str]]:
        """List the values of usable nodes, and the forced values that none of them has."""
        live = standing.live_domains(self.per).tolist()
        names = [standing.topology.domain_name(self.per, domain) for domain in live]
        seen = [name.removeprefix(f"{self.per.tag}=") for name in names]
        known = set(seen)
        if self.per.tag is None:  # the last component of a path names it too
            known |= {value.rpartition("/")[2] for value in seen}
        absent = [value for value in self.forced if value not in known]
        return sorted(seen, key=natural_key), absent

    def cap(self, standing: RuleContext) -> int:
        """Compute the limit in replicas."""
        seen, absent = self.values(standing)
        return -(-standing.replication_factor // max(len(seen) + len(absent), 1))

    def penalty(self, standing: RuleContext) -> Penalties:
        """Count the replicas above the cap after adding one on each node."""
        domains = standing.topology.domain_of(self.per)
        used = domains[np.asarray(standing.replicas, np.int64)]
        counts = np.bincount(used[used != NO_DOMAIN], minlength=int(domains.max(initial=0)) + 2)
        over = np.maximum(counts[domains] + 1 - self.cap(standing), 0)
        return np.where(domains == NO_DOMAIN, _NEVER, over)

    def violations(self, standing: RuleContext) -> list[RuleFinding]:
        """List values above the cap, and replicas on nodes without the attribute."""
        topology, cap = standing.topology, self.cap(standing)
        used = topology.domain_of(self.per)[np.asarray(standing.replicas, np.int64)]
        domains, counts = np.unique(used, return_counts=True)
        found = []
        for domain, count in zip(domains.tolist(), counts.tolist(), strict=True):
            if domain == NO_DOMAIN:
                found.append(RuleFinding(None, count, 0))
            elif count > cap:
                found.append(RuleFinding(topology.domain_name(self.per, domain), count, cap))
        return sorted(found, key=lambda finding: natural_key(finding.domain or ""))

    def may_violate(self, shards: NDArray[np.int64], standing: RuleContext) -> Mask:
        """Mask the shards, a row of nodes each, that break the rule."""
        used = standing.topology.domain_of(self.per)[shards]
        doubtful: Mask = (max_per_domain(used) > self.cap(standing)) | (used == NO_DOMAIN).any(
            axis=1
        )
        return doubtful


@dataclass(frozen=True, slots=True)
class AwarenessStrategy(SetStrategy):
    """Allocation awareness of Elasticsearch and OpenSearch (`AwarenessAllocationDecider`).

    Goals, in this order:
        1. As many copies as the caps admit.
        2. Copies are even over the values of each attribute, in the order of the attributes.
        3. Load per weight is even over nodes, leaders too.

    Constraints:
        For every attribute of `attributes` by itself: at most ceil(copies / values) copies of a
        shard on one value, where values = those of usable nodes together with those of `forced`,
        and no copy on a node without the attribute. Both hold for what is placed and for what
        stands. Forced values that are absent keep the others from being overfilled. Copies that
        do not fit stay unplaced while the rest is placed; the user's required rules and node
        filters are never broken.

    Algorithm:
        The best set of nodes for the whole shard, see `node_sets`. The source takes node by node
        and may so leave copies unplaced although a set for all exists as soon as two attributes
        interact; it may also stack 2/2/1/0 copies over four values where 2/1/1/1 is possible.
        An attribute is a tag, or, where no node has such a tag, a level of the location.
        Rebalancing evens out each stream before all replicas.

    Example:
        Five copies, five nodes in zone a, one in zone b: the cap is 3, so that three copies stand
        in a, one in b, and one is missing. Two copies over zone a with `forced: {zone: [a, b]}`:
        one copy in a, the other waits for b.
    """

    name: str = "awareness"
    aliases: tuple[str, ...] = ("elasticsearch",)
    parameters: tuple[str, ...] = ("attributes", "forced")
    on_infeasible: OnInfeasible = OnInfeasible.PARTIAL
    balance: ClassVar[Balance] = Balance.STREAMS_FIRST
    on_shortage: ClassVar[OnInfeasible] = OnInfeasible.PARTIAL

    def compile(self, policy: Mapping[str, Any], _topology: Topology) -> Mapping[str, Any] | Reason:
        """Check `attributes` (names of tags or levels, at least one) and `forced` (values by
        attribute)."""
        attributes = name_list("attributes", policy.get("attributes", ()))
        if isinstance(attributes, Reason):
            return attributes
        if not attributes:
            message = "policy: strategy 'awareness' needs 'attributes', a list of tags or levels"
            return Reason(Code.POLICY_MALFORMED, message)
        given = policy.get("forced", {})
        if not isinstance(given, Mapping):
            message = "policy: 'forced' must map attributes to lists of values"
            return Reason(Code.POLICY_MALFORMED, message)
        forced = []
        for attribute, listed in given.items():
            if attribute not in attributes:
                known = ", ".join(attributes)
                message = f"policy: 'forced' names '{attribute}'; the attributes are {known}"
                return Reason(Code.POLICY_UNKNOWN_VALUE, message)
            values = name_list("forced", [listed] if isinstance(listed, int) else listed)
            if isinstance(values, Reason):
                return values
            forced.append((attribute, values))
        return {"attributes": attributes, "forced": tuple(forced)}

    def rules(self, policy: Policy, topology: Topology) -> tuple[Rule, ...]:
        """List the user's rules, then the cap of every attribute."""
        return (*policy.rules, *self._caps(policy, topology))

    def plan(
        self, need: ReplicaRequest, policy: Policy, mask: Mask, view: View
    ) -> list[int] | Reason:
        """Plan the nodes that complete the shard best, or explain why it gets no copy."""
        topology, caps = view.topology, self._caps(policy, view.topology)
        standing = need.rule_context(topology)
        columns = [Column(topology.domain_of(rule.per), rule.cap(standing)) for rule in caps]
        aware = np.ones(topology.size, bool)
        for column in columns:
            aware &= column.domains != NO_DOMAIN
        costs = placing_costs(need, view)
        ranks = scores(need.seed, topology.digests).tolist()
        found = find_best_set(need, columns, mask & aware, view, policy.rules, costs, ranks)
        lacking = need.replication_factor - len(need.kept)
        if len(found) < lacking and policy.strength is Strength.PREFERRED:
            columns = [Column(column.domains) for column in columns]
            costs = [
                cost + _LAST_RESORT * (not has)
                for cost, has in zip(costs, aware.tolist(), strict=True)
            ]
            found = find_best_set(need, columns, mask, view, policy.rules, costs, ranks)
        return found or _explain_missing(need, caps, mask, policy.rules, standing, view)

    def _caps(self, policy: Policy, topology: Topology) -> list[AwareOf]:
        forced = dict(policy.parameters["forced"])
        return [
            AwareOf(_scope(name, topology), forced.get(name, ()), policy.strength)
            for name in policy.parameters["attributes"]
        ]


def _scope(name: str, topology: Topology) -> Scope:
    """Find the tag of that name; the level if no node has such a tag."""
    tagged = any(key == name for each in topology.attributes for key, _ in each.tags)
    scope = Scope(tag=name) if tagged else topology.scope(name)
    return Scope(tag=name) if isinstance(scope, Reason) else scope


def _explain_missing(
    need: ReplicaRequest,
    caps: Sequence[AwareOf],
    mask: Mask,
    rules: Sequence[Rule],
    standing: RuleContext,
    view: View,
) -> Reason:
    """Explain what keeps the shard from one more copy.

    With the numbers of Elasticsearch' explain, because nobody could find a mistyped or stale forced
    value otherwise.
    """
    topology = standing.topology
    bare = [rule for rule in caps if (topology.domain_of(rule.per)[mask] == NO_DOMAIN).all()]
    if mask.any() and bare:
        message = f"none of the {int(mask.sum())} usable nodes has the attribute {bare[0].name}"
        return Reason(Code.DOMAINS_TOO_FEW, message, 1, 0, bare[0].name)
    usable = mask.copy()
    for rule in caps:
        usable &= topology.domain_of(rule.per) != NO_DOMAIN
    left = exclude_taken(usable, need)
    if not left.any():
        return explain_no_node(need, usable, view)
    for rule in caps:
        if (rule.penalty(standing)[left] > 0).all():
            return _explain_full(rule, need, standing)
    shard = f"{need.stream}/{need.shard}"
    message = (
        f"no node can take another copy of {shard}: on each of {int(left.sum())} it would break "
    )
    listed = ", ".join(f"'{rule}'" for rule in (*rules, *caps))
    return Reason(Code.NO_CANDIDATE, f"{message} one of {listed}", 1, 0, caps[0].name)


def _explain_full(rule: AwareOf, need: ReplicaRequest, standing: RuleContext) -> Reason:
    """Explain that every value with a node holds as many copies as the cap admits."""
    seen, absent = rule.values(standing)
    copies, cap = need.replication_factor, rule.cap(standing)
    message = (
        f"attribute {rule.name}: {copies} copies over {len(seen) + len(absent)} values allow {cap} "
        f"on each; values of usable nodes are {', '.join(seen) or 'none'}"
    )
    if absent:
        message += f", forced and absent are {', '.join(absent)}"
        every = len(seen) + len(absent)
        return Reason(Code.DOMAINS_TOO_FEW, message, every, len(seen), rule.name, tuple(seen))
    message += f"; no node is left on a value that holds fewer, {len(need.kept)} copies are placed"
    return Reason(Code.DOMAIN_TOO_SMALL, message, copies, len(need.kept), rule.name, tuple(seen))
