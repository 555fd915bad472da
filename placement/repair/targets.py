"""Finds the target of a replica, and the replica of a shard whose move keeps rules better.

The strategy proposes the target, with the leaving replica left out of its counts. It proposes a
single node, by its own order and by loads; that node may keep a rule no better although another
would. Whether a shard can be repaired must not depend on loads, which change without an event for
the shard, nor on which nodes are full. So if the proposal does not help, one node of each kind that
the rules distinguish is tried.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.allocator import (
    ReplicaRequest,
    View,
    can_choose_by_class,
    candidates,
    choose,
    choose_by_class,
    distance,
)
from placement.assignments import EMPTY
from placement.model import Code, Reason, StreamSpec
from placement.policy import Balance, Policy
from placement.repair.shard_case import RuleScore, ShardCase, score
from placement.rules import (
    NEVER,
    Mask,
    Rule,
    RuleContext,
    RuleSet,
    Strength,
)
from placement.strategies import STRATEGIES
from placement.topology import NO_DOMAIN, Scope, Topology
from placement.wording import format_wait

# Kinds are numbered by what tells them apart as long as that fits, then anew.
_NUMBERS_MAX = 1 << 62

_NO_NODE = frozenset([EMPTY])


def find_alternatives(
    rules: Sequence[Rule],
    most: Sequence[int],
    context: RuleContext,
    old: int,
    mask: Mask,
    view: View,
) -> list[int]:
    """Find nodes for the replica on `old`: from `mask`, the best of each kind.

    - `context`: the other replicas of the shard.
    - `most`: by rule, the highest penalty that a node may have.

    Of a kind, the node comes first that limits leave free, then the nearest, the least loaded, the
    first by id. Two nodes are of one kind if both may lead or neither may, if every rule has the
    same penalty for them, and if at every level and tag they share the domains of the same
    replicas, and each is, or each is not, the last free node of its domain.
    """
    topology, found = context.topology, np.flatnonzero(mask)
    minded = [rule.penalty(context) for rule in rules]
    for penalties, limit in zip(minded, most, strict=True):
        found = found[penalties[found] <= limit]
    if not len(found):
        return []
    pressure = view.load[found] / topology.weight[found]
    keys = (topology.order()[found], pressure, distance(topology, old)[found], view.busy[found])
    found = found[np.lexsort(keys)]
    scopes = dict.fromkeys((*topology.tiers(), *filter(None, (rule.scope for rule in rules))))
    places = (column for scope in scopes for column in _domain_columns(topology, scope, context))
    kinds = np.zeros(len(found), np.int64)
    numbers = 1
    for told_apart in (topology.can_lead, *minded, *places):
        column = told_apart[found].astype(np.int64)
        size = int(column.max()) + 1
        if numbers * size > _NUMBERS_MAX:
            _, kinds = np.unique(kinds, return_inverse=True)
            numbers = len(kinds)
        kinds, numbers = kinds * size + column, numbers * size
    _, first = np.unique(kinds, return_index=True)
    ordered: list[int] = found[np.sort(first)].tolist()
    return ordered


def _domain_columns(
    topology: Topology, scope: Scope, context: RuleContext
) -> Iterable[NDArray[np.bool_]]:
    """Yield masks that compare each node's domain with those of the replicas.

    One mask per replica: whether the node shares its domain; then whether the node is the last one
    in its domain that could take a replica.
    """
    domains = topology.domain_of(scope)
    yield from (domains == domains[node] for node in context.replicas)
    free = topology.eligible & context.nodes.mask(topology)
    free[np.asarray(context.replicas, np.int64)] = False
    free &= domains != NO_DOMAIN
    yield np.bincount(domains[free], minlength=int(domains.max()) + 2)[domains] == 1


# A move among others: its rank, its slot, its target.
_Ranked = tuple[tuple[Any, ...], int, int]


def find_target(case: ShardCase, slot: int, view: View, may_stay: bool = False) -> int | Reason:
    """Find the target of a slot's replica, or the reason why there is none.

    The replica in the slot is left out of all counts. With `may_stay` its node is a candidate like
    others, and the answer if the strategy would choose it again. Backed-off targets are no
    candidates; if only they would do, the reason is BACKING_OFF.
    """
    found = _find_candidate(case, slot, view, may_stay)
    if isinstance(found, Reason) and case.backed_off_targets:
        again = _find_candidate(case._replace(backed_off_targets=frozenset()), slot, view, may_stay)
        return found if isinstance(again, Reason) else why_backing_off(case, again, view.topology)
    return found


def why_backing_off(case: ShardCase, node: int, topology: Topology) -> Reason:
    """Explain why a move to a node is not tried again yet."""
    move = f"a move of {case.spec.stream}/{case.shard} to node {topology.ids[node]}"
    message = format_wait(f"{move} was not completed, and its backoff has not ended")
    return Reason(Code.BACKING_OFF, message)


def _find_candidate(case: ShardCase, slot: int, view: View, may_stay: bool) -> int | Reason:
    """Find the target of a slot's replica among all but backed-off targets."""
    topology, policy, old = view.topology, case.policy, case.nodes[slot]
    need = None if may_stay else ask_classes(case, slot, topology)
    chosen = None if need is None else choose_by_class(case.rules, policy, need, view)
    if chosen is not None:
        return chosen
    kept = [s for s in case.live(topology) if s != slot]
    held = _nodes_held(case)
    mask = candidates(policy, view)
    if case.backed_off_targets:
        mask = mask.copy()
        mask[[*case.backed_off_targets]] = False
    if case.room > 1:
        mask = mask & view.has_room(case.room)
    if may_stay and topology.eligible[old] and policy.nodes.passes(topology, old):
        mask = mask.copy()
        mask[old] = True
        held -= {old}
    found = _extend(case, slot, kept, held, mask, view)
    leaving = [s for s in kept if not topology.counts_for_rules[case.nodes[s]]]
    if isinstance(found, Reason) and leaving:
        # What is going to leave too must not be in the way, where there is no other way.
        staying = [s for s in kept if s not in leaving]
        again = _extend(case, slot, staying, held, mask, view)
        found = found if isinstance(again, Reason) else again
    return found


def ask_classes(case: ShardCase, slot: int, topology: Topology) -> ReplicaRequest | None:
    """Make the request for a slot's replica if a choice among classes of nodes can answer it.

    That is `choose_by_class`, which has no answer for some views.
    """
    if case.room > 1 or case.backed_off_targets:
        return None
    kept = [s for s in case.live(topology) if s != slot]
    need = _request(case, slot, kept, _nodes_held(case))
    return need if can_choose_by_class(STRATEGIES[case.policy.strategy], need) else None


def ask_alike(
    need: ReplicaRequest, spec: StreamSpec, shard: int, nodes: Sequence[int]
) -> ReplicaRequest:
    """Make the request of `ask_classes` for another shard of its policy that has lost the replicas
    in the same slots."""
    return need._replace(
        stream=spec.stream,
        shard=shard,
        kept=[nodes[slot] for slot in need.slots],
        replaces=nodes[need.slot],
        excluded=frozenset(nodes) - _NO_NODE,
        token=spec.token(shard),
        shards=spec.shards,
    )


def _nodes_held(case: ShardCase) -> frozenset[int]:
    return frozenset(case.nodes) - _NO_NODE


def _extend(
    case: ShardCase, slot: int, kept: list[int], held: frozenset[int], mask: Mask, view: View
) -> int | Reason:
    """Ask the strategy for a target; if its rules are preferred, fall back to the rules alone."""
    need = _request(case, slot, kept, held)
    found = STRATEGIES[case.policy.strategy].extend(need, case.policy, mask, view)
    if isinstance(found, Reason) and case.policy.strength is Strength.PREFERRED:
        rules = [rule for rule in case.rules if not rule.balances_cluster]
        again = choose(rules, mask, need, view)
        return found if isinstance(again, Reason) else again
    return found


def _request(
    case: ShardCase, slot: int, kept: Sequence[int], held: frozenset[int]
) -> ReplicaRequest:
    """Make the request for a node for the slot; the replicas in the slots `kept` stay."""
    return ReplicaRequest(
        case.spec.stream,
        case.shard,
        slot,
        case.factor,
        [case.nodes[s] for s in kept],
        case.others,
        case.policy.nodes,
        case.nodes[slot],
        held,
        case.spec.token(case.shard),
        slots=kept,
        shards=case.spec.shards,
        backed_off_targets=case.backed_off_targets,
    )


def best_improving_move(
    case: ShardCase, strength: Strength, view: View, judging: Topology
) -> tuple[int, int] | Reason:
    """Find the slot and the target of the move that keeps rules of this strength best.

    Returns a Reason if no single move helps. In this order, first:

    - the best score
    - the node with the fewest shards of a colocated stream
    - a node that does not count for rules
    - a node above its share, if rebalancing would even out totals first
    - a follower
    - the nearest target
    - from the fullest node to the emptiest
    """
    before = score(case, judging)
    reasons: list[Reason] = []
    found: list[_Ranked] = []
    for slot in case.live(view.topology):
        node = case.nodes[slot]
        if view.topology.is_dead(node):
            continue  # held, or in maintenance: it may return
        trial = view.fork()
        trial.remove(node)
        target = find_target(case, slot, trial, may_stay=True)
        if isinstance(target, Reason) or target == node:
            waits = isinstance(target, Reason) and target.code is Code.BACKING_OFF
            # No other rule is broken for a wish, nor for what leaves anyway, which is the drain's.
            steps = strength is Strength.REQUIRED and view.topology.counts_for_rules[node]
            blocked = isinstance(target, Reason) and not waits
            soft = _find_least_violating(case, slot, trial) if blocked and steps else None
            reasons += [target] if isinstance(target, Reason) else []
            if soft is None:
                continue
            target = soft
        after = score(case.with_node(slot, target), judging)
        if (
            after.is_better_than(before, strength)
            and _allowed_targets(case, node, strength, view)[target]
        ):
            found.append(_rank_move(case, slot, target, after, view))
    found = found or [*_find_other_moves(case, strength, before, view, judging)]
    if found:
        _, slot, target = min(found)
        return slot, target
    if case.backed_off_targets:
        again = best_improving_move(
            case._replace(backed_off_targets=frozenset()), strength, view, judging
        )
        if not isinstance(again, Reason):
            return why_backing_off(case, again[1], view.topology)
    if reasons:
        return reasons[0]
    shard = f"{case.spec.stream}/{case.shard}"
    message = f"no move of a single replica of {shard} improves the rules that are broken"
    return Reason(Code.NO_CANDIDATE, message, 1, 0)


def _rank_move(case: ShardCase, slot: int, target: int, after: RuleScore, view: View) -> _Ranked:
    """Return a move with its rank in front, as `best_improving_move` compares it."""
    topology, node = view.topology, case.nodes[slot]
    pressure = -float(view.load[node] / topology.weight[node])
    near = int(distance(topology, node)[target])
    rank, held = topology.order(), case.held.get(node, 0)
    doubted = not topology.counts_for_rules[node]
    wrong, wishes = after.key
    located = wrong, bool(_unlocated_mask(case, topology)[target]), wishes
    full = _is_above_share(case.policy, node, view)
    order = (held, not doubted, not full, slot == 0, near, pressure, int(rank[node]), slot)
    filled = float(view.load[target] / topology.weight[target])
    filling = (bool(view.busy[target]), filled, int(rank[target]))
    return (*located, *order, *filling), slot, target


def _is_above_share(policy: Policy, node: int, view: View) -> bool:
    """Return whether rebalancing would take a replica off the node, so that repair takes it first.

    What comes to the node and goes on from there would be copied twice.
    """
    if STRATEGIES[policy.strategy].balance is not Balance.TOTALS_FIRST:
        return False
    weight = np.where(view.topology.eligible, view.topology.weight, 0)
    share = view.load[weight > 0].sum() * weight[node] / max(weight.sum(), 1e-9)
    return bool(view.load[node] > np.ceil(share))


def _find_other_moves(
    case: ShardCase, strength: Strength, before: RuleScore, view: View, judging: Topology
) -> Iterator[_Ranked]:
    """Yield moves that keep rules of this strength better and that no strategy proposes."""
    topology = view.topology
    rules = RuleSet(case.rules).repairable
    most = _penalty_limits(rules, strength, before)
    mask = candidates(case.policy, view) & view.has_room(case.room)
    mask[[*case.backed_off_targets, *(node for node in case.nodes if node != EMPTY)]] = False
    live = case.live(topology)
    for slot in live:
        node = case.nodes[slot]
        if topology.is_dead(node) or topology.is_draining(node):
            continue
        others = [each for each in live if each != slot]
        context = case.rule_context(judging, others, slot)
        open_to = mask & _allowed_targets(case, node, strength, view)
        if strength is Strength.PREFERRED:
            # What required rules keep free, by the domains that may receive replicas now, stays so.
            now = case.rule_context(topology, others, slot)
            kept = [rule.penalty(now) == 0 for rule in rules if _is_required(rule)]
            open_to = np.logical_and.reduce([open_to, *kept])
        for target in find_alternatives(rules, most, context, node, open_to, view):
            after = score(case.with_node(slot, target), judging)
            if after.is_better_than(before, strength):
                yield _rank_move(case, slot, target, after, view)


def _unlocated_mask(case: ShardCase, topology: Topology) -> Mask:
    """Mask nodes without a location, if the case's rules prefer nodes with one."""
    context = case.rule_context(topology, (), None)
    first = [rule.penalty(context) > 0 for rule in case.rules if rule.prefers_located]
    return first[0] if first else np.zeros(topology.size, bool)


def _allowed_targets(case: ShardCase, node: int, strength: Strength, view: View) -> Mask:
    """Mask the targets of a replica on the node, for rules of this strength.

    For a preferred rule a replica does not leave a node with a location for one without.
    """
    last = _unlocated_mask(case, view.topology)
    everywhere: Mask = ~last
    return everywhere | (strength is Strength.REQUIRED or last[node])


def _penalty_limits(rules: Sequence[Rule], strength: Strength, before: RuleScore) -> list[int]:
    """Compute by rule the highest penalty of a single replica with which the score can fall.

    For a preferred rule no required rule may be broken at all.
    """
    wishing = strength is Strength.PREFERRED
    required = iter(before.required[len(before.required) - sum(map(_is_required, rules)) :])
    wishes = iter(before.preferred[: 1 if wishing else 0])
    most = (
        (0 if wishing else next(required)) if _is_required(rule) else next(wishes, NEVER)
        for rule in rules
    )
    return [min(limit, NEVER - 1) for limit in most]


def _is_required(rule: Rule) -> bool:
    return rule.strength is Strength.REQUIRED


def _find_least_violating(case: ShardCase, slot: int, view: View) -> int | None:
    """Find the node that breaks required rules least, if no node keeps them all.

    Brings an arrangement that is far from its rules nearer, step by step.
    """
    asked = [rule for rule in case.rules if rule.repairable or rule.prefers_located]
    rules = [_soften(rule) for rule in sorted(asked, key=lambda rule: not _is_required(rule))]
    kept = [s for s in case.live(view.topology) if s != slot]
    held = frozenset([node for node in case.nodes if node != EMPTY])
    need = _request(case, slot, kept, held)
    mask = candidates(case.policy, view) & view.has_room(case.room)
    mask[[*case.backed_off_targets]] = False
    found = choose(rules, mask, need, view)
    if isinstance(found, Reason):
        return None
    # A node that no rule may ever use stays out.
    context = need.rule_context(view.topology)
    never = any(int(np.max(rule.penalty(context)[found])) >= NEVER for rule in case.rules)
    return None if never else found


def _soften(rule: Any) -> Rule:
    """Copy the rule with preferred strength."""
    if rule.strength is Strength.PREFERRED:
        return rule  # type: ignore[no-any-return]
    return replace(rule, strength=Strength.PREFERRED)  # type: ignore[no-any-return]
