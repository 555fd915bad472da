"""Timeplus' `placement_policies`: node and shard affinity over locations."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.allocator import (
    ByRules,
    Placement,
    View,
    candidates,
    explain_shortage,
    find_unmet,
    put_leader_first,
    spread_leaders,
)
from placement.assignments import EMPTY
from placement.model import Code, Reason, StreamSpec, natural_key
from placement.policy import Affinity, Balance, OnInfeasible, Policy, name_list, parse_affinity
from placement.rules import (
    AtMost,
    BalanceNodes,
    ColocateSlots,
    Even,
    ExclusiveNodes,
    PreferNodes,
    Rule,
    SameDomain,
    Strength,
    find_breaches,
    supply,
)
from placement.strategies.spread import SpreadStrategy
from placement.topology import LEAF, NO_DOMAIN, Scope, Topology
from placement.wording import format_amount, format_share


@dataclass(frozen=True, slots=True)
class AffinityStrategy(ByRules):
    """Two-step placement as documented in Timeplus' "Rack-aware Placements".

    Goals, in this order:
        1. `node=balanced` spreads replicas over locations; `shard=balanced` spreads the stream's
           replicas over nodes.
        2. Preferred nodes come first, in their order.
        3. Among equals the less loaded location and node come first.

    Constraints:
        `node=exclusive`: no two replicas of a shard in one location. `node=colocated`: all
        replicas of the stream in one location. `shard=exclusive`: a node holds one replica of the
        stream. `shard=colocated`: replica r of every shard stands on one node. A constraint that
        cannot be kept rejects the stream, as the source does. Required constraints outrank the
        zig-zag position where another order satisfies them.

    Algorithm:
        Step one orders the candidates zig-zag over the locations: one node of each in turn. Step
        two assigns positions of that order: replica r of every shard on position r (colocated),
        or replica r of shard s on position s * rf + r (exclusive; balanced wraps around). With
        `shard=colocated` one node so leads all shards, as the source has it; with `shard=balanced`,
        where it says nothing of leaders, others lead if those by position are not even over nodes
        and no `preferred_nodes` order them. Where that order does not keep the user's own rules,
        `spread` arranges the stream by these and the affinities together.
        Rebalancing evens out each stream before all replicas.

    Example:
        Sites 1, 2, 3 with nodes {0x1, 0x2}, {0x3, 0x4}, {0x5, 0x6}: the order is 0x1, 0x3, 0x5,
        0x2, 0x4, 0x6. Two shards of three replicas stand on 0x1, 0x3, 0x5 both; with
        `shard=exclusive` the second shard stands on 0x2, 0x4, 0x6.
    """

    name: str = "affinity"
    aliases: tuple[str, ...] = ("timeplus",)
    parameters: tuple[str, ...] = ("node", "shard", "preferred_nodes", "level")
    on_infeasible: OnInfeasible = OnInfeasible.REJECT
    balance: ClassVar[Balance] = Balance.STREAMS_FIRST

    def compile(self, policy: Mapping[str, Any], topology: Topology) -> Mapping[str, Any] | Reason:
        """Check `node`, `shard`, `preferred_nodes` and `level` (default: the whole path)."""
        node = parse_affinity("policy", "node", policy.get("node", Affinity.BALANCED))
        if isinstance(node, Reason):
            return node
        shard = parse_affinity("policy", "shard", policy.get("shard", Affinity.COLOCATED))
        if isinstance(shard, Reason):
            return shard
        scope = topology.scope(str(policy.get("level", LEAF.name)))
        if isinstance(scope, Reason):
            return scope
        preferred = name_list("preferred_nodes", policy.get("preferred_nodes", ()))
        if isinstance(preferred, Reason):
            return preferred
        return {"node": node, "shard": shard, "preferred_nodes": preferred, "level": scope}

    def rules(self, policy: Policy, _topology: Topology) -> tuple[Rule, ...]:
        """List the user's rules, then the affinities as rules."""
        scope: Scope = policy.parameters["level"]
        rules: list[Rule] = list(policy.rules)
        match policy.parameters["node"]:
            case Affinity.EXCLUSIVE:
                rules.append(AtMost(1, scope, policy.strength))
            case Affinity.COLOCATED:
                rules.append(SameDomain(scope, policy.strength))
            case _:
                rules.append(Even(scope, Strength.PREFERRED))
        match policy.parameters["shard"]:
            case Affinity.EXCLUSIVE:
                rules.append(ExclusiveNodes(policy.strength))
            case Affinity.COLOCATED:
                rules.append(ColocateSlots(policy.strength))
            case _:
                rules.append(BalanceNodes())
        if policy.parameters["preferred_nodes"]:
            rules.append(PreferNodes(policy.parameters["preferred_nodes"]))
        return tuple(rules)

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        """Place by position in the zig-zag order, or reject with what is missing."""
        topology = view.topology
        for node_id in policy.parameters["preferred_nodes"]:
            if node_id not in topology.index:
                return Reason(Code.NODE_UNKNOWN, f"preferred node '{node_id}' is not registered")
        scope: Scope = policy.parameters["level"]
        groups = _group_by_domain(spec, policy, scope, view)
        shortage = _find_shortage(spec, policy, scope, groups, view)
        if shortage:
            return shortage
        if policy.parameters["node"] is Affinity.COLOCATED:
            groups = [_choose_location(groups, spec, policy, topology)]
        order = zigzag(groups, _preferred_nodes(policy, groups, topology))
        shards = self._assign(spec, policy, scope, order, view)
        leads_by_order = policy.parameters["preferred_nodes"] or not self._may_wrap(policy)
        if not isinstance(shards, Reason) and not leads_by_order:
            shards = spread_leaders(shards, policy, spec.replication_factor, view)
        if policy.rules and _count_unmet(shards, spec, policy, view):
            shards = self._arrange_by_rules(shards, spec, policy, view)
        if isinstance(shards, Reason):
            return shards
        for shard, nodes in enumerate(shards):
            view.turn_to(shard)
            for slot, node in enumerate(nodes):
                view.add(node, leader=slot == 0)
        return Placement(
            shards,
            warnings=find_unmet(self.rules(policy, topology), shards, spec, policy, topology),
        )

    @staticmethod
    def _may_wrap(policy: Policy) -> bool:
        """Return whether nodes may hold several replicas of the stream, in any order."""
        return policy.parameters["shard"] is Affinity.BALANCED

    def _arrange_by_rules(
        self, zigzag: list[list[int]] | Reason, spec: StreamSpec, policy: Policy, view: View
    ) -> list[list[int]] | Reason:
        """Arrange the stream by `spread` if that keeps more of the user's rules than zig-zag."""
        rules, soft = self.rules(policy, view.topology), OnInfeasible.DEGRADE
        theirs = replace(policy, strategy="spread", rules=rules, on_infeasible=soft)
        placed = SpreadStrategy(located_first=False).place(spec, theirs, view.fork())
        if isinstance(placed, Reason) or any(EMPTY in nodes for nodes in placed.shards):
            return zigzag
        found = _check([list(nodes) for nodes in placed.shards], spec, self, policy, view)
        kept = _count_unmet(found, spec, policy, view) < _count_unmet(zigzag, spec, policy, view)
        return found if kept else zigzag

    def _assign(
        self, spec: StreamSpec, policy: Policy, scope: Scope, order: list[int], view: View
    ) -> list[list[int]] | Reason:
        factor = spec.replication_factor
        exclusive_nodes = policy.parameters["node"] is Affinity.EXCLUSIVE
        if policy.parameters["shard"] is Affinity.COLOCATED:
            order = _put_distinct_first(order, scope, view) if exclusive_nodes else order
            return _check([order[:factor]] * spec.shards, spec, self, policy, view)
        wraps = self._may_wrap(policy)
        positions = [[s * factor + r for r in range(factor)] for s in range(spec.shards)]
        shards = [[order[p % len(order)] for p in shard] for shard in positions]
        checked = _check(shards, spec, self, policy, view)
        if not isinstance(checked, Reason) and wraps:
            return self._even_out(checked, spec, policy, order, view)
        if not isinstance(checked, Reason) or not exclusive_nodes:
            return checked
        filled = fill_by_domain(spec, order, scope, view.topology)
        if filled is None and wraps:
            filled = rotate(spec, order, view.topology.domain_of(scope))
        return checked if filled is None else _check(filled, spec, self, policy, view)

    def _even_out(
        self,
        shards: list[list[int]],
        spec: StreamSpec,
        policy: Policy,
        order: list[int],
        view: View,
    ) -> list[list[int]]:
        """Take the locations in turn if wrapping around put replicas into one location."""
        topology, rules = view.topology, self.rules(policy, view.topology)
        if not find_unmet(rules, shards, spec, policy, topology):
            return shards
        turned = rotate(spec, order, topology.domain_of(policy.parameters["level"]))
        if turned is None or isinstance(_check(turned, spec, self, policy, view), Reason):
            return shards
        return shards if find_unmet(rules, turned, spec, policy, topology) else turned


def _count_unmet(
    shards: list[list[int]] | Reason, spec: StreamSpec, policy: Policy, view: View
) -> float:
    """Count the user's preferred rules that the arrangement breaks; infinite if there is none."""
    if isinstance(shards, Reason):
        return inf
    return len(find_unmet(policy.rules, shards, spec, policy, view.topology))


def zigzag(groups: Sequence[Sequence[int]], preferred: Sequence[int] = ()) -> list[int]:
    """Order nodes: preferred ones first, then one node of each group in turn.

    Groups of which the fewest were taken come first.
    """
    taken = [sum(node in group for node in preferred) for group in groups]
    queues = [[node for node in group if node not in preferred] for group in groups]
    order = list(preferred)
    while any(queues):
        least = min(taken[g] for g, queue in enumerate(queues) if queue)
        group = next(g for g, queue in enumerate(queues) if queue and taken[g] == least)
        order.append(queues[group].pop(0))
        taken[group] += 1
    return order


def fill_by_domain(
    spec: StreamSpec, order: Sequence[int], scope: Scope, topology: Topology
) -> list[list[int]] | None:
    """Arrange each shard over different domains with every node used at most once, if possible.

    Each domain offers at most as many nodes as there are shards. Dealing the nodes out domain by
    domain, largest first, shard by shard in turn, never gives a shard two of one domain
    (McNaughton's wrap-around rule, 1959).
    """
    domains = topology.domain_of(scope)
    wanted = spec.shards * spec.replication_factor
    offered: dict[int, list[int]] = {}
    for node in order:
        nodes = offered.setdefault(int(domains[node]), [])
        if len(nodes) < spec.shards:
            nodes.append(node)
    if sum(map(len, offered.values())) < wanted:
        return None
    while sum(map(len, offered.values())) > wanted:
        max(offered.values(), key=len).pop()
    shards: list[list[int]] = [[] for _ in range(spec.shards)]
    dealt = (node for nodes in sorted(offered.values(), key=len, reverse=True) for node in nodes)
    for position, node in enumerate(dealt):
        shards[position % spec.shards].append(node)
    return shards


def rotate(
    spec: StreamSpec, order: Sequence[int], domains: NDArray[np.int32]
) -> list[list[int]] | None:
    """Arrange nodes that do not suffice for one replica each.

    Shards take the domains in turn, and within a domain its nodes in turn.
    """
    groups: dict[int, list[int]] = {}
    for node in order:
        groups.setdefault(int(domains[node]), []).append(node)
    columns, factor = list(groups.values()), spec.replication_factor
    if len(columns) < factor:
        return None
    turns = [
        [divmod(s * factor + r, len(columns)) for r in range(factor)] for s in range(spec.shards)
    ]
    return [[columns[c][turn % len(columns[c])] for turn, c in shard] for shard in turns]


def _group_by_domain(spec: StreamSpec, policy: Policy, scope: Scope, view: View) -> list[list[int]]:
    """Group the candidates by location, the less loaded location and node first.

    Then the one that leads less (of locations: whose first node does), then natural order.
    """
    topology = view.topology
    domains, rank = topology.domain_of(scope), topology.order()
    mask = candidates(policy, view) & (domains != NO_DOMAIN)
    if policy.parameters["shard"] is Affinity.COLOCATED:
        mask &= view.has_room(spec.shards)
    nodes = np.flatnonzero(mask)
    pressure = view.domain_pressure(scope)
    by_domain: dict[int, list[int]] = {}
    for node in nodes.tolist():
        by_domain.setdefault(int(domains[node]), []).append(node)
    load, leads = view.load / topology.weight, view.leaders / topology.weight
    for group in by_domain.values():
        group.sort(key=lambda n: (load[n], leads[n], int(rank[n])))
    return sorted(
        by_domain.values(),
        key=lambda group: (
            pressure[group[0]],
            leads[group[0]],
            view.leaders[group].sum() / topology.weight[group].sum(),
            natural_key(topology.domain_name(scope, int(domains[group[0]]))),
        ),
    )


def _find_shortage(
    spec: StreamSpec,
    policy: Policy,
    scope: Scope,
    groups: list[list[int]],
    view: View,
) -> Reason | None:
    """Explain, by counting alone, why the stream cannot be placed."""
    topology = view.topology
    factor, nodes = spec.replication_factor, sum(map(len, groups))
    domains = [int(topology.domain_of(scope)[group[0]]) for group in groups]
    names, seen = topology.domain_names(scope, domains), topology.names_for_reason(scope, domains)
    if policy.parameters["node"] is Affinity.EXCLUSIVE and len(groups) < factor:
        message = (
            f"node=exclusive puts the {factor} replicas of a shard in {factor} different "
            f"locations, only {len(groups)} have a node that may hold one: {', '.join(names)}"
            if groups
            else f"node=exclusive puts the {factor} replicas of a shard in {factor} different "
            f"locations: {supply(topology, policy.nodes).describe()}"
        )
        return Reason(Code.DOMAINS_TOO_FEW, message, factor, len(groups), scope.level, seen)
    exclusive_shards = policy.parameters["shard"] is Affinity.EXCLUSIVE
    need = spec.shards * factor if exclusive_shards else factor
    if nodes < need:
        copies = spec.shards if policy.parameters["shard"] is Affinity.COLOCATED else 1
        why = f"shard=exclusive with {spec.shards} shards of " if exclusive_shards else ""
        wanted = f"{why}{factor} replicas need {need} nodes"
        mask = candidates(policy, view) & view.has_room(copies)
        return replace(explain_shortage(need, policy, mask, view, wanted, copies), seen=seen)
    if exclusive_shards and policy.parameters["node"] is Affinity.EXCLUSIVE:
        offered = sum(min(len(group), spec.shards) for group in groups)
        if offered < need:
            message = (
                f"node=exclusive;shard=exclusive needs {need} nodes, of one location at most "
                f"{spec.shards}, as many as shards; there are {offered} in {', '.join(names)}"
            )
            return Reason(Code.NODES_TOO_FEW, message, need, offered, scope.level, seen)
    largest = max(map(len, groups), default=0)
    if policy.parameters["node"] is Affinity.COLOCATED and largest < need:
        message = (
            f"node=colocated needs {need} nodes in one location, the largest of "
            f"{', '.join(names)} has {largest}"
        )
        return Reason(Code.DOMAIN_TOO_SMALL, message, need, largest, scope.level, seen)
    return None


def _choose_location(
    groups: list[list[int]], spec: StreamSpec, policy: Policy, topology: Topology
) -> list[int]:
    """Choose a location with enough nodes: most preferred nodes, then least loaded."""
    exclusive = policy.parameters["shard"] is Affinity.EXCLUSIVE
    need = spec.replication_factor * (spec.shards if exclusive else 1)
    enough = [group for group in groups if len(group) >= need]
    return max(enough, key=lambda group: len(_preferred_nodes(policy, [group], topology)))


def _preferred_nodes(policy: Policy, groups: list[list[int]], topology: Topology) -> list[int]:
    known = {node for group in groups for node in group}
    listed = (topology.index[node_id] for node_id in policy.parameters["preferred_nodes"])
    return [node for node in listed if node in known]


def _put_distinct_first(order: list[int], scope: Scope, view: View) -> list[int]:
    """Put the first node of each domain in front of the order."""
    first = _first_per_domain(order, view.topology.domain_of(scope))
    return first + [node for node in order if node not in first]


def _first_per_domain(order: Sequence[int], domains: NDArray[np.int32]) -> list[int]:
    seen: set[int] = set()
    first: list[int] = []
    for node in order:
        if int(domains[node]) not in seen:
            seen.add(int(domains[node]))
            first.append(node)
    return first


def _check(
    shards: list[list[int]],
    spec: StreamSpec,
    strategy: AffinityStrategy,
    policy: Policy,
    view: View,
) -> list[list[int]] | Reason:
    """Put leaders in front of the arrangement, or name the first required rule that it breaks.

    In a colocated stream all shards have the same leader.
    """
    topology, factor = view.topology, spec.replication_factor
    shards = [put_leader_first(nodes, policy, factor, topology) for nodes in shards]
    rules = strategy.rules(policy, topology)
    everywhere = policy.rule_context(spec, topology)
    for rule, broken, first in find_breaches(rules, Strength.REQUIRED, shards, everywhere):
        where = f" in {first.domain}" if first.domain else ""
        message = f"shard {broken[0]} cannot keep the required rule '{rule}': "
        message += f"{first.count} replicas{where}, limit {first.limit}"
        return Reason(Code.NO_CANDIDATE, message, first.limit, first.count)
    return _check_capacity(shards, view)


def _check_capacity(shards: list[list[int]], view: View) -> list[list[int]] | Reason:
    topology = view.topology
    replicas = Counter(node for nodes in shards for node in nodes)
    for node in sorted(replicas, key=lambda n: natural_key(topology.ids[n])):
        room = int(topology.capacity[node] - view.load[node])
        if topology.capacity[node] >= 0 and room < replicas[node]:
            message = (
                f"node {topology.ids[node]} would hold {replicas[node]} more, its free capacity is"
            )
            return Reason(Code.NO_CANDIDATE, f"{message} {room}", replicas[node], room)
    return _check_loads(shards, view)


def _check_loads(shards: list[list[int]], view: View) -> list[list[int]] | Reason:
    """Return the arrangement, or name a node that would hold more of a resource than fits."""
    after = view.fork()
    if after.loads is None:
        return shards
    for shard, nodes in enumerate(shards):
        after.turn_to(shard)
        for slot, node in enumerate(nodes):
            after.add(node, leader=slot == 0)
    ids, used = view.topology.ids, {node for nodes in shards for node in nodes}
    over = [each for each in after.loads.overloads() if each.node in used]
    if not over:
        return shards
    first = min(over, key=lambda each: (natural_key(ids[each.node]), each.resource.name))
    name = first.resource.name
    load, limit = format_share(first.load, name), format_amount(first.limit, name)
    message = f"node {ids[first.node]} would hold {load}, at most {limit} may be filled"
    return Reason(Code.NO_CANDIDATE, message, first.limit, first.load)
