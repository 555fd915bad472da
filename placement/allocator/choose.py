"""Chooses one node: the single ranking of candidates for placing and for repair.

The reasons count what keeps the other nodes from being candidates.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from placement.allocator.domain_loads import HALF
from placement.allocator.view import ReplicaRequest, View
from placement.assignments import EMPTY
from placement.hashing import lowest
from placement.model import DEPTH_MAX, Code, Reason, StreamSpec
from placement.policy import Policy
from placement.rules import (
    Mask,
    Rule,
    RuleSet,
    Strength,
    Supply,
    SupplyStep,
    allowed_step,
    distinct_node_step,
    find_breaches,
    room_step,
    rule_step,
    supply,
)
from placement.topology import LEAF, Scope, Topology


def candidates(policy: Policy, view: View) -> Mask:
    """Mask the nodes that may receive a replica of the stream: admitted, eligible, with room."""
    mask = view.topology.eligible & view.has_room()
    return mask if policy.nodes.everything else mask & policy.nodes.mask(view.topology)


# What each step of `choose` left over: a name for people, and the nodes.
Trace = list[tuple[str, NDArray[np.int64]]]


def choose(
    rules: Sequence[Rule], mask: Mask, need: ReplicaRequest, view: View, trace: Trace | None = None
) -> int | Reason:
    """Choose the best node for one more replica.

    Required rules remove candidates; preferred rules in their order, nearness to the replaced
    replica, load per weight level by level, and a content-seeded hash choose among the rest.
    `trace`, if given, is filled with what each step left over.
    """
    steps: Trace = [] if trace is None else trace
    topology = view.topology
    standing = need.rule_context(topology)
    open_nodes = mask.copy()
    open_nodes[np.asarray([*need.kept, *need.excluded], np.int64)] = False
    found = np.flatnonzero(open_nodes)
    if not len(found):
        return explain_no_node(need, mask, view)
    distinct = found
    for rule in rules:
        if rule.strength is Strength.REQUIRED:
            passing = found[rule.penalty(standing)[found] == 0]
            if not len(passing):
                return _explain_no_candidate(rule, rules, mask, distinct, need, view)
            found = passing
            steps.append((f"the required rule '{rule}'", found))
    leads = RuleSet(rules).leader_preferences
    wishes = [(f"the order of '{rule}'", rule.leader_delay(standing)) for rule in leads]
    soft = (rule for rule in rules if rule.strength is Strength.PREFERRED)
    wishes += [(f"the preferred rule '{rule}'", rule.penalty(standing)) for rule in soft]
    for name, wish in wishes:
        found = keep_least(found, wish[found])
        steps.append((name, found))
    if need.replaces != EMPTY:
        idle = found[~view.busy[found]]
        found = idle if len(idle) else found
        found = _keep_nearest(found, distance(topology, need.replaces), view)
        steps.append(("proximity to the replaced replica", found))
    return _choose_least_loaded(found, need, view, steps)


def _choose_least_loaded(
    found: NDArray[np.int64], need: ReplicaRequest, view: View, steps: Trace
) -> int:
    """Choose the node whose domains carry least, level by level; then the least loaded; then one by
    lot."""
    for scope in view.topology.tiers():
        if len(found) == 1:
            break
        found = keep_least(found, view.domain_pressure(scope, HALF, found))
        steps.append((f"the least loaded domain of level {scope.level}", found))
    found = keep_least(found, view.pressure(found))
    steps.append(("the least loaded node", found))
    if need.leads and len(found) > 1:
        found = keep_fewest_leaders(found, view)
        steps.append(("the node with the fewest leaders", found))
    if len(found) > 1:
        found = found[[break_tie(found, need, view.topology)]]
        steps.append(("a hash of shard and node, which breaks ties", found))
    return int(found[0])


def keep_fewest_leaders(found: NDArray[np.int64], view: View) -> NDArray[np.int64]:
    """Keep the nodes whose domains have fewest leaders, level by level; then those that have."""
    for scope in view.topology.tiers():
        domains = view.topology.domain_of(scope)[found]
        if (domains != domains[0]).any():
            found = keep_least(found, view.leader_pressure(scope, found))
    return keep_least(found, view.leader_pressure(None, found))


def break_tie(
    found: Sequence[int] | NDArray[np.int64], need: ReplicaRequest, topology: Topology
) -> int:
    """Choose one of equal nodes by a hash of shard and node; returns its index in `found`."""
    return lowest(need.seed, topology.digests, found)


def _keep_nearest(
    found: NDArray[np.int64], climbs: NDArray[np.int64], view: View
) -> NDArray[np.int64]:
    """Keep the nearest nodes among those near the mean load; keep all where only the farthest are
    left."""
    levels = np.unique(climbs[found])
    for level in levels[:-1].tolist():
        nodes = found[climbs[found] == level]
        near: NDArray[np.int64] = nodes[~view.is_crowded(nodes)]
        if len(near):
            return near
    return found


def find_unmet(
    rules: Sequence[Rule],
    shards: Sequence[Sequence[int]],
    spec: StreamSpec,
    policy: Policy,
    topology: Topology,
) -> tuple[Reason, ...]:
    """Find the preferred rules that some shard does not meet; one warning for each."""
    warnings: list[Reason] = []
    everywhere = policy.rule_context(spec, topology)
    for rule, broken, _ in find_breaches(rules, Strength.PREFERRED, shards, everywhere):
        message = f"{len(broken)} of {spec.shards} shards do not meet the preferred rule '{rule}'"
        level, seen = everywhere.level_and_domains(rule)
        numbers = spec.shards, spec.shards - len(broken)
        warnings.append(Reason(Code.RULE_NOT_MET, message, *numbers, level, seen, str(rule)))
    return tuple(warnings)


def keep_least(found: NDArray[np.int64], key: NDArray[np.generic]) -> NDArray[np.int64]:
    """Keep the nodes (or classes) with the least `key`, which has one value for each of them."""
    if len(found) == 1:
        return found
    return found[key == key.min()]  # type: ignore[no-any-return]


def distance(topology: Topology, replaced: int) -> NDArray[np.int64]:
    """Count the levels from each node up to a domain that it shares with the replaced one.

    The same leaf domain comes first, then the same parent, then any.
    """
    place = topology.locations[replaced]
    shared = np.zeros(topology.size, np.int64)
    for depth in range(1, place.depth + 1):
        domains = topology.domain_of(Scope(depth=depth))
        shared[domains == domains[replaced]] = depth
    leaf = topology.domain_of(LEAF)
    shared[leaf == leaf[replaced]] = DEPTH_MAX
    climbs = place.depth - shared
    climbs[climbs < 1] = 1
    climbs[shared == DEPTH_MAX] = 0
    return climbs


def explain_no_node(need: ReplicaRequest, mask: Mask, view: View) -> Reason:
    """Explain why no node of `mask` can take one more replica of the shard.

    The message counts the nodes that each condition excludes.
    """
    found = supply(view.topology, need.nodes, fenced=_may_use_suspect(mask, view))
    counts = found.describe(*_count_left(found, need, mask, view))
    shard = f"{need.stream}/{need.shard}"
    message = f"no node can take replica {need.slot} of {shard}: {counts}"
    return Reason(found.code, message, need.replication_factor, int(mask.sum()))


def count_with_room(nodes: Mask, view: View, copies: int = 1) -> SupplyStep:
    """Count the nodes that have room for so many more replicas, and name what others lack."""
    left = int((nodes & view.has_room(copies)).sum())
    if view.loads is None:
        return room_step(left)
    capacity = view.topology.capacity
    full = nodes & (capacity >= 0) & (view.load + copies > capacity)
    return room_step(left, view.loads.find_lacks(nodes, copies), bool(full.any()))


def explain_shortage(
    needed: int, policy: Policy, mask: Mask, view: View, wanted: str, copies: int = 1
) -> Reason:
    """Explain why fewer nodes may hold a replica than are needed.

    `wanted` is the clause of the message that says what needs them; `copies`: how many replicas a
    node would take at once.
    """
    found = supply(view.topology, policy.nodes, fenced=_may_use_suspect(mask, view))
    allowed = allowed_step(int((found.mask & mask).sum()))
    more = (count_with_room(found.mask, view, copies), allowed)
    return Reason(found.code, f"{wanted}: {found.describe(*more)}", needed, int(mask.sum()))


def _may_use_suspect(mask: Mask, view: View) -> bool:
    """Return whether suspect nodes may also hold replicas."""
    return bool((mask & view.topology.fenced).any())


def _count_left(found: Supply, need: ReplicaRequest, mask: Mask, view: View) -> list[SupplyStep]:
    """Mask the admitted nodes that capacity, limits, and the shard's other replicas leave."""
    has_room = found.mask & view.has_room()
    now = has_room & mask
    others = now.copy()
    others[np.asarray([*need.kept, *need.excluded], np.int64)] = False
    return [
        count_with_room(found.mask, view),
        allowed_step(int(now.sum())),
        distinct_node_step(int(others.sum())),
    ]


def _explain_no_candidate(
    broken: Rule,
    rules: Sequence[Rule],
    mask: Mask,
    distinct: NDArray[np.int64],
    need: ReplicaRequest,
    view: View,
) -> Reason:
    """Name the first required rule that leaves no node."""
    standing = need.rule_context(view.topology)
    level, seen = standing.level_and_domains(broken)
    found = supply(view.topology, need.nodes, fenced=_may_use_suspect(mask, view))
    parts, left = _count_left(found, need, mask, view), distinct
    for rule in rules:
        if rule.strength is Strength.REQUIRED:
            left = left[rule.penalty(standing)[left] == 0]
            parts.append(rule_step(rule, len(left)))
        if rule is broken:
            break
    shard = f"{need.stream}/{need.shard}"
    message = f"no node can take replica {need.slot} of {shard}: {found.describe(*parts)}"
    return Reason(Code.NO_CANDIDATE, message, need=1, have=0, level=level, seen=seen)
