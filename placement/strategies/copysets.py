"""Copysets: few sets of nodes hold all copies of anything, so that few coincidences lose data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.allocator import (
    ByRules,
    Placement,
    ReplicaRequest,
    View,
    candidates,
    choose,
    count_with_room,
    find_unmet,
    put_in_front,
)
from placement.assignments import EMPTY, distinct_copysets, loss_probability, scatter_width
from placement.hashing import digest64, scores
from placement.model import Code, Reason, StreamSpec
from placement.policy import Balance, OnInfeasible, Policy, unknown_value
from placement.rules import Even, Mask, Rule, RuleContext, RuleSet, Strength, supply
from placement.strategies.copyset_pool import Copysets, Terms
from placement.topology import Topology

_Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CopysetsStrategy(ByRules):
    """Copyset replication with rack rules, kept incrementally.

    Goals, in this order:
        1. Shards stand on as few different sets of nodes as the scatter width allows: N nodes in
           sets of R need about N * S / (R * (R - 1)) of them. Random placement has almost as many
           as it has shards, and each of them is a way to lose data.
        2. A set is even over the domains of every level; load per weight is even over sets, then
           leaders over nodes.

    Constraints:
        The user's required rules and node filters hold within each set. `scatter_width` S (by
        default 2 * (R - 1), two permutations): every node shares sets with at least S others, out
        of which it is rebuilt; where that cannot be reached the stream is rejected. The width of a
        set, R - 1, is the least. Not rebalanced: a move would make a new set.

    Algorithm:
        Cidon et al. 2013 for the first sets (ceil(S / (R - 1)) permutations, cut into groups that
        keep the rules), Tiered Replication's greedy (2015) for nodes that join or lack partners.
        Sets in use by any stream with an equal policy and replication factor are known and stay;
        who joins gets new sets, who leaves is replaced in each of its sets, once for all shards.
        A shard takes the set whose fullest member is least loaded. ElasticCopyset and Curve hold
        the same ground; neither has levels of domains, or tells the loss probability.
        Rebalancing leaves replicas where they are.

    Example:
        Nine nodes, three copies, scatter width 4: two permutations, six sets, four partners for
        every node. 5,000 nodes at scatter width 10 use 8,334 sets: if 50 nodes fail at once, data
        is lost with probability 0.78 %; random placement in windows of 10 has 22.8 %.
    """

    name: str = "copysets"
    aliases: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ("scatter_width",)
    on_infeasible: OnInfeasible = OnInfeasible.REJECT
    balance: ClassVar[Balance] = Balance.NEVER
    on_shortage: ClassVar[OnInfeasible] = OnInfeasible.REJECT

    def compile(self, policy: Mapping[str, Any], _topology: Topology) -> Mapping[str, Any] | Reason:
        """Check `scatter_width`: a number of nodes, at least 1; None if absent."""
        width = policy.get("scatter_width")
        if width is not None and (type(width) is not int or width < 1):
            return unknown_value("policy", "scatter_width", width, ())
        return {"scatter_width": width}

    def rules(self, policy: Policy, topology: Topology) -> tuple[Rule, ...]:
        """List the user's rules, then evenness at every level, preferred."""
        return (*policy.rules, *(Even(tier, Strength.PREFERRED) for tier in topology.tiers()))

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        """Choose a set for every shard, the least loaded first."""
        factor = spec.replication_factor
        wanting = _explain_too_few(factor, policy, view)
        if wanting:
            return wanting
        copysets = self._find_copysets(policy, factor, view)
        short = self._explain_short(copysets, policy)
        if short and policy.strength is Strength.REQUIRED:
            return short
        sets = copysets.usable_sets(view.topology.eligible)
        if not len(sets):
            return _explain_no_set(spec, policy, view)
        shards: list[list[int]] = []
        used: list[int] = []
        uses = np.zeros(len(sets), np.int64)
        for shard in range(spec.shards):
            view.turn_to(shard)
            rows = _open_rows(sets, policy, used, view)
            if not len(rows):
                return _explain_no_room(spec, shard, sets, policy, view)
            rows = rows[_keep_least_loaded(sets[rows], view)]
            rows = rows[uses[rows] == uses[rows].min()]
            chosen = rows[_choose_row(sets[rows], digest64(spec.stream, shard), view)]
            uses[chosen] += 1
            ordered = _put_leader_first(sets[chosen].tolist(), policy, view)
            for slot, node in enumerate(ordered):
                view.add(node, leader=slot == 0)
            used.extend(ordered)
            shards.append(ordered)
        rules = self.rules(policy, view.topology)
        warnings = find_unmet(rules, shards, spec, policy, view.topology)
        notes = (*([short] if short else []), *warnings)
        return Placement(shards, (self._summarise(copysets, shards, policy, view),), notes)

    def extend(self, need: ReplicaRequest, policy: Policy, mask: Mask, view: View) -> int | Reason:
        """Choose the member that the remaining ones lack.

        It is of the set that replaced theirs, of another set they are in, or of a new one around
        them. Sets that break a preferred rule more than others do come last, since repair would
        leave them again.
        """
        copysets = self._find_copysets(policy, need.replication_factor, view)
        mask = mask & _allowed_nodes(need, self.rules(policy, view.topology), view)
        mask[list(need.excluded)] = False
        sets = copysets.usable_sets(mask, need.kept)
        if need.kept:
            sets = copysets.keep_preferred(sets)
        if len(sets):
            seed = _content_seed(need, view)
            if len(need.kept) < need.replication_factor - 1:
                sets, seed = sets[_keep_least_loaded(sets, view)], need.seed
            members = sets[_choose_row(sets, seed, view)].tolist()
            missing = [node for node in members if node not in need.kept]
            return missing[0] if need.kept else _put_leader_first(missing, policy, view)[0]
        near = need.replaces if need.replaces != EMPTY else None
        # With a surplus that may not go yet the shard is no set.
        part = 0 < len(need.kept) < need.replication_factor
        grown = copysets.complete(need.kept, mask, near) if part else None
        if grown is not None:
            copysets.add(grown)
            fresh = [node for node in grown if node not in need.kept]
            return fresh[0]
        return choose(self.rules(policy, view.topology), mask, need, view)

    def _find_copysets(self, policy: Policy, factor: int, view: View) -> Copysets:
        """Find the sets of this policy, once for each plan."""
        key = (self.name, id(policy), factor)
        if key not in view.memory:
            width = policy.parameters["scatter_width"] or 2 * (factor - 1)
            pool = view.topology.eligible & policy.nodes.mask(view.topology)
            if policy.parameters["scatter_width"] is None:
                width = min(width, int(pool.sum()) - 1)
            rules = self.rules(policy, view.topology)
            terms = Terms(view.topology, factor, max(width, factor - 1), rules, policy.nodes)
            # The policy is kept with its sets, so that its id stays its own.
            view.memory[key] = policy, Copysets(terms, _sets_in_use(policy, factor, view))
        _, found = view.memory[key]
        assert isinstance(found, Copysets)
        return found

    def _explain_short(self, copysets: Copysets, policy: Policy) -> Reason | None:
        """Explain why the requested scatter width cannot be reached."""
        if not copysets.short or policy.parameters["scatter_width"] is None:
            return None
        topology = copysets.terms.topology
        node, reach = min(copysets.short, key=lambda each: (each[1], topology.ids[each[0]]))
        more = f" (and {len(copysets.short) - 1} more nodes)" if len(copysets.short) > 1 else ""
        message = (
            f"scatter_width {copysets.terms.width} cannot be reached: under the rules node "
            f"{topology.ids[node]} can share copysets with {reach} other nodes only{more}"
        )
        return Reason(Code.NODES_TOO_FEW, message, copysets.terms.width, reach)

    def _summarise(
        self, copysets: Copysets, shards: Sequence[Sequence[int]], policy: Policy, view: View
    ) -> Reason:
        """Summarise the stream's sets: their number, scatter width and probability of loss."""
        factor = copysets.terms.factor
        mine = distinct_copysets(shards)
        width = scatter_width(mine)
        used = len(mine[factor])
        nodes = int((view.topology.eligible & policy.nodes.mask(view.topology)).sum())
        # One in a hundred is what the paper reckons with; fewer than a set cannot lose anything.
        failed = max(nodes // 100, factor)
        loss = loss_probability(nodes, failed, {factor: used})
        message = (
            f"{used} of {len(copysets.sets)} copysets of {factor} over {nodes} nodes; scatter "
            f"width {width.min} to {width.max}, mean {width.mean:.1f}; if {failed} nodes failed at "
            f"once, data would be lost with probability {100 * loss:.3g} %"
        )
        return Reason(Code.COPYSETS_USED, message, copysets.terms.width, width.min)


def _sets_in_use(policy: Policy, factor: int, view: View) -> list[tuple[int, ...]]:
    """Find the whole sets of streams with an equal policy, and of the stream being placed."""
    found: set[tuple[int, ...]] = set()
    for index, rows in view.streams():
        other, spec = view.policy_of(index), view.spec_of(index)
        if other is None or spec is None or not _is_same(other, policy):
            continue
        if other.copies(spec.replication_factor) == factor:
            # A lowered replication factor has left slots behind, and maybe what is too much.
            block = rows[(rows[:, factor:] == EMPTY).all(axis=1), :factor]
            whole = block[(block != EMPTY).all(axis=1)]
            found.update(map(tuple, np.unique(np.sort(whole, axis=1), axis=0).tolist()))
    found.update(tuple(nodes) for nodes in view.shards if EMPTY not in nodes)
    return list(found)


def _is_same(one: Policy, other: Policy) -> bool:
    if one.strategy != other.strategy:
        return False
    return (one.parameters, one.rules, one.nodes) == (other.parameters, other.rules, other.nodes)


def _open_rows(sets: _Rows, policy: Policy, used: Sequence[int], view: View) -> _Rows:
    """Find the sets whose members have room and keep the rules on other shards."""
    mask = candidates(policy, view)
    wide = [rule for rule in policy.rules if rule.spans_stream]
    standing = RuleContext(view.topology, sets.shape[1], (), used, policy.nodes)
    for rule in wide:
        if rule.strength is Strength.REQUIRED:
            mask = mask & (rule.penalty(standing) == 0)
    rows = np.flatnonzero(mask[sets].all(axis=1))
    for rule in wide:
        if rule.strength is Strength.PREFERRED and len(rows):
            cost = rule.penalty(standing)[sets[rows]].sum(axis=1)
            rows = rows[cost == cost.min()]
    return rows


def _keep_least_loaded(sets: _Rows, view: View) -> _Rows:
    """Keep the sets whose fullest member, then whose sum, has the least load per weight."""
    pressure = ((view.load + 1) / view.topology.weight)[sets]
    worst = pressure.max(axis=1)
    rows = np.flatnonzero(worst == worst.min())
    total = pressure[rows].sum(axis=1)
    least: _Rows = rows[total == total.min()]
    return least


def _choose_row(sets: _Rows, seed: int, view: View) -> int:
    """Choose the set whose content has the first hash for this seed."""
    return int(np.argmin(scores(seed, _digests(sets, view))))


def _digests(sets: _Rows, view: View) -> NDArray[np.uint64]:
    """Hash each set, whatever the order of its members."""
    mixed = scores(sets.shape[1], view.topology.digests)[sets]
    summed: NDArray[np.uint64] = mixed.sum(axis=1, dtype=np.uint64)
    return summed


def _put_leader_first(members: Sequence[int], policy: Policy, view: View) -> list[int]:
    """Put the member with the fewest leaders per weight in front.

    It can lead, and stands where the user's rules want the leader.
    """
    topology, rank = view.topology, view.topology.order()
    able = RuleSet(policy.rules).best_leaders(members, topology.can_lead, topology)
    leader = min(able, key=lambda n: (view.leaders[n] / topology.weight[n], int(rank[n])))
    return put_in_front(leader, members)


def _allowed_nodes(need: ReplicaRequest, rules: Sequence[Rule], view: View) -> Mask:
    """Mask the nodes that break no required rule as the next replica."""
    standing = RuleContext(
        view.topology, need.replication_factor, need.kept, need.stream_nodes, need.nodes
    )
    allowed = np.ones(view.topology.size, bool)
    for rule in rules:
        if rule.strength is Strength.REQUIRED:
            allowed &= rule.penalty(standing) == 0
    return allowed


def _content_seed(need: ReplicaRequest, view: View) -> int:
    """Hash the members that stay, so that all shards of a set replace a node alike."""
    return digest64("copyset", *sorted(view.topology.ids[node] for node in need.kept))


def _explain_too_few(factor: int, policy: Policy, view: View) -> Reason | None:
    have = int((view.topology.eligible & policy.nodes.mask(view.topology)).sum())
    if have >= factor:
        return None
    found = supply(view.topology, policy.nodes)
    message = f"a copyset takes {factor} nodes: {found.describe()}"
    return Reason(found.code, message, factor, have)


def _explain_no_set(spec: StreamSpec, policy: Policy, view: View) -> Reason:
    """Explain why there is no set: name the required rule with too few domains, if any."""
    required = [str(rule) for rule in policy.rules if rule.strength is Strength.REQUIRED]
    for rule in policy.rules:
        scope = rule.scope
        if rule.strength is Strength.REQUIRED and scope is not None:
            standing = RuleContext(view.topology, spec.replication_factor, (), nodes=policy.nodes)
            live = standing.live_domains(scope)
            level, seen = standing.level_and_domains(rule)
            message = f"no set of {spec.replication_factor} nodes keeps the rule '{rule}'"
            factor = spec.replication_factor
            return Reason(Code.DOMAINS_TOO_FEW, message, factor, len(live), level, seen)
    message = f"no set of {spec.replication_factor} nodes keeps the rules {', '.join(required)}"
    return Reason(Code.NO_CANDIDATE, message, 1, 0)


def _explain_no_room(
    spec: StreamSpec, shard: int, sets: _Rows, policy: Policy, view: View
) -> Reason:
    message = (
        f"no copyset can take shard {shard} of {spec.stream}: none of {len(sets)} has free "
        "capacity on all members within the rules of the stream"
    )
    if view.loads is not None:
        nodes = supply(view.topology, policy.nodes)
        message += f" ({nodes.describe(count_with_room(nodes.mask, view))})"
    return Reason(Code.NO_CANDIDATE, message, 1, 0)
