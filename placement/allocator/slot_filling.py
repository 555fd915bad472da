"""Placing slot by slot: what strategies share that say only which node a shard takes next.

The strategy picks; this module walks over shards and slots, keeps the view and the open nodes up
to date, and holds the user's rules and the nodes that may not lead.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from placement.allocator.choose import candidates, choose
from placement.allocator.leader_election import elect_leaders, put_in_front
from placement.allocator.lookahead import pick_ahead
from placement.allocator.view import ReplicaRequest, View
from placement.assignments import EMPTY
from placement.model import Code, Reason, StreamSpec
from placement.policy import Policy
from placement.rules import Mask, Rule, RuleSet, Strength
from placement.topology import Topology

Pick = Callable[[ReplicaRequest, Mask], int | Reason]
"""The node for a need, out of those in the mask. The mask is a new array whenever it differs."""


def fill_slots(
    spec: StreamSpec, policy: Policy, view: View, pick: Pick, rules: Sequence[Rule] = ()
) -> tuple[list[list[int]], tuple[Reason, ...]]:
    """Pick a node for every slot of every shard, leader first.

    Slots that find no node stay EMPTY, with one reason for each kind of failure. With user's rules,
    a shard that runs into a dead end is picked again, with an eye on the required ones of `rules`.
    """
    topology = view.topology
    colocated = RuleSet(policy.rules).is_colocated
    wide = RuleSet(policy.rules).spans_stream
    copies = spec.shards if colocated else 1
    mask = candidates(policy, view) & view.has_room(copies)
    shards: list[list[int]] = []
    used: list[int] = []
    reasons: dict[Code, Reason] = {}
    for shard in range(0, spec.shards, copies):
        view.turn_to(shard)
        if not view.shards_alike:
            mask = candidates(policy, view)
        need = ReplicaRequest(
            stream=spec.stream,
            shard=shard,
            slot=0,
            replication_factor=spec.replication_factor,
            kept=(),
            stream_nodes=used if wide else (),
            nodes=policy.nodes,
            token=spec.token(shard),
            fresh=True,
            shards=spec.shards,
        )
        kept, reason = _fill_shard(pick, need, mask, view, copies)
        if reason and rules and policy.rules:
            for node in kept * copies:
                view.remove(node)
            kept, reason = _fill_shard(
                partial(_pick_ahead, pick, rules, view), need, mask, view, copies
            )
        if reason:
            reasons.setdefault(reason.code, reason)
        for node in kept:
            if not _has_room(view, node):
                mask = mask.copy()
                mask[node] = False
        used.extend(kept)
        nodes = put_leader_first(kept, policy, spec.replication_factor, topology)
        if nodes:
            view.leaders[nodes[0]] += copies
        whole = nodes + [EMPTY] * (spec.replication_factor - len(nodes))
        shards.extend(list(whole) for _ in range(copies))
    return shards, tuple(reasons.values())


def _fill_shard(
    pick: Pick, need: ReplicaRequest, mask: Mask, view: View, copies: int
) -> tuple[list[int], Reason | None]:
    """Pick the nodes of a shard slot by slot, until one finds none; `copies` shards take them."""
    kept: list[int] = []
    while len(kept) < need.replication_factor:
        node = _pick(pick, need._replace(slot=len(kept), kept=kept), mask, view.topology)
        if isinstance(node, Reason):
            return kept, node
        kept.append(node)
        for _ in range(copies):
            view.add(node)
    return kept, None


def _pick_ahead(
    pick: Pick, rules: Sequence[Rule], view: View, need: ReplicaRequest, mask: Mask
) -> int | Reason:
    return pick_ahead(pick, rules, mask, need, view)


def pick_by_preferences(pick: Callable[[Policy], int | Reason], policy: Policy) -> int | Reason:
    """Pick under all of the user's rules; if they leave no node, under the required ones.

    Preferred rules come after what the strategy requires.
    """
    node = pick(policy)
    required = tuple(rule for rule in policy.rules if rule.strength is Strength.REQUIRED)
    if isinstance(node, Reason) and len(required) < len(policy.rules):
        return pick(replace(policy, rules=required))
    return node


def admitted_mask(policy: Policy, mask: Mask, need: ReplicaRequest, view: View) -> Mask | Reason:
    """Mask the nodes of `mask` that the request and the user's rules leave.

    These break no required rule, and of them they keep the preferred ones best.
    """
    if not policy.rules:
        return mask
    standing = need.rule_context(view.topology)
    left = exclude_taken(mask, need)
    for rule in policy.rules:
        if rule.strength is Strength.REQUIRED:
            left &= rule.penalty(standing) == 0
    if not left.any():
        found = choose(policy.rules, mask, need, view)
        assert isinstance(found, Reason)
        return found
    for rule in policy.rules:
        if rule.strength is Strength.PREFERRED:
            penalty = rule.penalty(standing)
            left &= penalty == penalty[left].min()
    return left


def exclude_taken(mask: Mask, need: ReplicaRequest) -> Mask:
    """Exclude the nodes that hold a replica of the shard already."""
    left = mask.copy()
    left[np.asarray([*need.kept, *need.excluded], np.int64)] = False
    return left


def put_leader_first(
    nodes: list[int], policy: Policy, factor: int, topology: Topology
) -> list[int]:
    """Put the first node that may lead, where the user's rules want the leader, in front of the
    others.

    The last slots, where a role is kept, stay as they are.
    """
    leaders = _possible_leaders(nodes, policy, factor, topology)
    return put_in_front(leaders[0], nodes) if leaders else list(nodes)


def spread_leaders(
    shards: list[list[int]], policy: Policy, factor: int, view: View
) -> list[list[int]]:
    """Put other leaders in front of whole shards if leaders are not even over the nodes.

    For strategies whose source says where replicas stand, and not which one leads.
    """
    able = [_possible_leaders(nodes, policy, factor, view.topology) for nodes in shards]
    leads = Counter(dict.fromkeys((node for nodes in able for node in nodes), 0))
    leads.update(nodes[0] for nodes in shards)
    if max(leads.values()) - min(leads.values()) <= 1:
        return shards
    elected = elect_leaders(able, view.fork(), levels=False)
    return [put_in_front(leader, nodes) for leader, nodes in zip(elected, shards, strict=True)]


def _possible_leaders(
    nodes: list[int], policy: Policy, factor: int, topology: Topology
) -> list[int]:
    """Keep the nodes that may lead and lie where the user's rules want the leader.

    If none may lead, all that stand where the rules want it.
    """
    rules = RuleSet(policy.rules)
    return rules.possible_leaders(nodes, factor, topology.can_lead, topology)


def _pick(pick: Pick, need: ReplicaRequest, mask: Mask, topology: Topology) -> int | Reason:
    """Pick a node; for the last slot one that may lead, if no other may and there is any."""
    last = need.slot == need.replication_factor - 1
    if last and not topology.can_lead[np.asarray(need.kept, np.int64)].any():
        if topology.can_lead[mask].all():
            return pick(need, mask)
        node = pick(need, mask & topology.can_lead)
        if not isinstance(node, Reason):
            return node
    return pick(need, mask)


def _has_room(view: View, node: int) -> bool:
    capacity = int(view.topology.capacity[node])
    if 0 <= capacity <= int(view.load[node]):
        return False
    return view.loads is None or bool(view.loads.fits()[node])
