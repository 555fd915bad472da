"""Cost: ByteDance's placement engine as the seed describes it, the cheapest lawful arrangement.

Source: chapter 77 of the tutorial among the seeds, "ByteDance's 10,000-node case study". What the
source leaves open is decided in the docstring of `CostStrategy`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from placement.allocator import (
    ByRules,
    Placement,
    ReplicaRequest,
    View,
    arrangements,
    candidates,
    choose,
    distance,
    explain_shortage,
    node_kinds,
)
from placement.assignments import EMPTY
from placement.hashing import scores
from placement.model import Code, Reason, StreamSpec
from placement.policy import Balance, OnInfeasible, Policy, unknown_value
from placement.rules import AtMost, LoadBalance, Mask, RoleApart, Rule, Strength, VotersSpan
from placement.strategies.cost_prices import MILLION, ZONES_LEAST, Prices, Shape, levels_of
from placement.strategies.cost_search import Attempt
from placement.topology import Scope, Topology

BALANCE = 0.10
_COPIES_MAX = 64
# A zone less than three outweighs what any spread of load within the bound could gain, until
# domains differ by hundreds of replicas; a quorum across regions, which waits for a round trip of
# 50 to 200 ms at every write, outweighs differences of dozens.
_WEIGHTS = {
    "region": 1.0,
    "zone": 1.0,
    "rack": 1.0,
    "node": 1.0,
    "zones": 1000.0,
    "regions": 100.0,
}
_WEIGHT_MAX = 100_000


@dataclass(frozen=True, slots=True)
class CostStrategy(ByRules):
    """`cost` (alias `bytedance`): one primary per rack, two zones, a cold copy far away, balance.

    Goals: survive a rack, a zone and a region; use the fleet evenly. Of all lawful placements the
    one that pushes the cluster least away from balance is taken, not the first.

    Constraints, all required (`on_infeasible: reject`, also when nodes run out):
    `replication_factor` primaries, each in a rack of its own; they stand in at least two zones.
    Beside them `cold` copies (1) in the last slots of the list, in a region without a primary:
    they follow asynchronously and count for no quorum. Every region, zone and rack stays within
    max(10 % of its share of the cluster's load by weight, one replica). What was unbalanced before
    does not block a stream: an overfull domain gets nothing, and one that lacks load gets the
    stream's own share at least. Repair puts a lost copy into balance where it can, and into a
    domain beyond its bound rather than nowhere.

    Algorithm: the cost of a copy is, for its region, zone, rack and node, what it adds to the sum
    of load squared over weight, times the term's weight in `weights` (1 each). Each zone that the
    primaries lack to three costs `weights.zones` (1000: three are preferred to any balance within
    the bound), each region beyond their first `weights.regions` (100: a quorum stays at home). The
    cheapest shard is found exactly by a knapsack over racks, zones and regions, one shard after
    the other; ties by a hash of the content. Where that ends in a dead end the stream is tried
    again without these two preferences, and with the bound kept after every shard. Under rules of
    the user that forbid the cheapest shard the best of a bounded number of lawful ones is taken.
    The reason `COST_TERMS` shows the terms. Levels called region,
    zone (az) and rack are these, else components 1, 2 and 3 of a path; on a shorter path the
    deepest one counts, so that in `/dc/rack` every rack is a zone too. The source's "exactly one
    primary per rack" is not one in every rack of a hundred; its claim that two zones suffice to
    lose one primary per zone holds for three only, which is why three are preferred.
    Rebalancing evens out each stream before all replicas.

    Example: rf 3 on e1 to e3 in `/eu/az1/r1` to `/eu/az3/r3` and u1 in `/us/az1/r1`: the list is
    `[e1, e2, e3, u1]`, u1 being the cold copy.
    """

    name: ClassVar[str] = "cost"
    aliases: ClassVar[tuple[str, ...]] = ("bytedance",)
    parameters: ClassVar[tuple[str, ...]] = ("weights", "cold")
    on_infeasible: ClassVar[OnInfeasible] = OnInfeasible.REJECT
    balance: ClassVar[Balance] = Balance.STREAMS_FIRST
    on_shortage: ClassVar[OnInfeasible] = OnInfeasible.REJECT

    def compile(self, policy: Mapping[str, Any], topology: Topology) -> Mapping[str, Any] | Reason:
        """Check `weights` (a number for each term or level, by name) and `cold` (the number of cold
        copies)."""
        cold = policy.get("cold", 1)
        if not isinstance(cold, int) or not 0 <= cold < _COPIES_MAX:
            message = f"policy: 'cold' is {cold!r}, expected a number of copies, 0 to 63"
            return Reason(Code.POLICY_UNKNOWN_VALUE, message)
        weights = _parse_weights(policy.get("weights", {}), topology)
        if isinstance(weights, Reason):
            return weights
        return {"weights": weights, "cold": int(cold), "extra_copies": int(cold)}

    def find_fault(self, spec: StreamSpec, policy: Policy, _: Topology) -> Reason | None:
        """Find a request for more copies than a shard may have."""
        copies = policy.copies(spec.replication_factor)
        if copies <= _COPIES_MAX:
            return None
        message = f"{copies} copies with the cold ones, expected {_COPIES_MAX} at most"
        return Reason(Code.REPLICATION_FACTOR_OUT_OF_RANGE, message, _COPIES_MAX, copies)

    def rules(self, policy: Policy, topology: Topology) -> tuple[Rule, ...]:
        """List the user's rules, then racks, zones, the cold copy's region, balance."""
        return (*policy.rules, *self._own_rules(policy, topology, policy.strength))

    def _own_rules(
        self, policy: Policy, topology: Topology, strength: Strength = Strength.REQUIRED
    ) -> tuple[Rule, ...]:
        levels, cold = levels_of(topology), policy.extra_copies
        apart = (RoleApart("cold", cold, levels.region, strength),) if cold else ()
        # Levels that are the same on short paths have one rule.
        scopes = {scope.depth: scope for _, scope in levels.items()}.values()
        return (
            AtMost(1, levels.rack, strength),
            VotersSpan(ZONES_LEAST, levels.zone, cold, strength),
            *apart,
            *(LoadBalance(BALANCE, scope, strength) for scope in scopes),
        )

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        """Place shard by shard, the cheapest lawful one; try other ways after a dead end."""
        weights, own = policy.parameters["weights"], self._own_rules(policy, view.topology)
        careless = {**weights, "zones": 0, "regions": 0}
        for paced in (False, True):
            for tried in (weights, careless):
                attempt = Attempt(spec, policy, own, tried, view.fork(), BALANCE)
                shards = attempt.run(paced)
                if shards is not None and not attempt.find_imbalance(shards):
                    view.adopt_from(attempt.view)
                    view.leaders = attempt.view.leaders
                    return Placement(shards, (attempt.summary(),))
        return self._explain_failure(spec, policy, view)

    def extend(self, need: ReplicaRequest, policy: Policy, mask: Mask, view: View) -> int | Reason:
        """Choose the cheapest node that breaks no rule and after which the rest finds a place."""
        topology, rules = view.topology, self.rules(policy, view.topology)
        standing = replace(need.rule_context(topology), load=view.load)
        required = [rule for rule in rules if rule.strength is Strength.REQUIRED]
        lawful = [rule for rule in required if not rule.balances_cluster]
        left = mask.copy()
        left[np.asarray([*need.kept, *need.excluded], np.int64)] = False
        for rule in lawful:
            left &= rule.penalty(standing) == 0
        if not left.any():
            return choose(lawful, mask, need, view)
        balanced = left.copy()
        for rule in required:
            if rule.balances_cluster:
                balanced &= rule.penalty(standing) == 0
        if balanced.any():
            left = balanced
        elif need.replaces == EMPTY:
            return _explain_beyond_balance(need)
        for rule in rules:
            if rule.strength is Strength.PREFERRED and not rule.balances_cluster:
                penalty = rule.penalty(standing)
                left &= penalty == penalty[left].min()
        if need.slot == 0 and (left & topology.can_lead).any():
            left &= topology.can_lead
        return self._choose_cheapest(left, lawful, need, policy, view, mask)

    def _choose_cheapest(
        self,
        left: Mask,
        lawful: Sequence[Rule],
        need: ReplicaRequest,
        policy: Policy,
        view: View,
        mask: Mask,
    ) -> int:
        """Choose the first by cost, nearness and hash that is no dead end; the first if all are."""
        topology, found = view.topology, np.flatnonzero(left)
        cost = _costs(need, policy, view)
        near = np.zeros(topology.size, np.int64)
        if need.replaces != EMPTY:
            near = distance(topology, need.replaces)
        score = scores(need.seed, topology.digests[found])
        ranked = found[np.lexsort((score, near[found], cost[found]))].tolist()
        if len(need.kept) + 1 >= need.replication_factor:
            return int(ranked[0])
        kinds, seen = node_kinds(topology), set[int]()
        for node in ranked:
            if kinds[node] in seen:
                continue
            seen.add(int(kinds[node]))
            slots = [*(need.slots or range(len(need.kept))), need.slot]
            free = (s for s in range(need.replication_factor) if s not in slots)
            after = need._replace(
                kept=[*need.kept, node], slots=slots, slot=next(free, need.slot), replaces=-1
            )
            if next(arrangements(lawful, mask, after, view), None) is not None:
                return int(node)
        return int(ranked[0])

    def _explain_failure(self, spec: StreamSpec, policy: Policy, view: View) -> Reason:
        """Explain the first thing that the fleet lacks."""
        levels, cold, factor = (
            levels_of(view.topology),
            policy.extra_copies,
            spec.replication_factor,
        )
        usable = np.flatnonzero(candidates(policy, view))
        copies = factor + cold
        if len(usable) < copies:
            wanted_nodes = f"{copies} replicas of a shard need {copies} nodes"
            return explain_shortage(copies, policy, candidates(policy, view), view, wanted_nodes)
        zones = min(ZONES_LEAST, factor)
        wanted = [("each copy has a rack of its own", levels.rack, copies)]
        wanted.append(("the primaries stand in two zones", levels.zone, zones))
        if cold:
            wanted.append(("the cold copy stands in another region", levels.region, 2))
        for condition, scope, need in wanted:
            seen = _domain_names(view.topology, scope, usable.tolist())
            if len(seen) < need:
                message = (
                    f"{condition}: {need} domains of {scope} are needed, {len(seen)} are there"
                )
                return Reason(Code.DOMAINS_TOO_FEW, message, need, len(seen), scope.level, seen)
        weights, own = policy.parameters["weights"], self._own_rules(policy, view.topology)
        one = replace(spec, shards=1)
        unbound = Attempt(one, policy, own, weights, view.fork(), None)
        if unbound.run(False) is None:
            return _explain_no_arrangement(policy, levels.rack, factor, usable.tolist(), view)
        free = Attempt(spec, policy, own, weights, view.fork(), None)
        shards = free.run(False)
        if shards is None:
            message = f"the nodes have no capacity for all {spec.shards} shards within the rules"
            return Reason(Code.NO_CANDIDATE, message, spec.shards, 0)
        found = free.find_imbalance(shards)
        condition = f": {found}" if found else ""
        message = "no placement within the rules keeps every domain within 10 % of its share"
        return Reason(Code.RULE_NOT_MET, f"{message}{condition}")


def _parse_weights(given: Any, topology: Topology) -> Mapping[str, int] | Reason:
    """Parse the weights of the terms, in millionths."""
    if not isinstance(given, Mapping):
        message = f"policy: 'weights' is {given!r}, expected a number for each cost term"
        return Reason(Code.POLICY_MALFORMED, message)
    names = {scope.name: term for term, scope in levels_of(topology).items()}
    weights = {term: round(weight * MILLION) for term, weight in _WEIGHTS.items()}
    for key, value in given.items():
        term = key if key in weights else names.get(str(key))
        if term is None:
            return unknown_value("policy", "weights", key, _WEIGHTS)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= _WEIGHT_MAX:
            message = f"policy: weight of '{key}' is {value!r}, expected 0 to {_WEIGHT_MAX}"
            return Reason(Code.POLICY_UNKNOWN_VALUE, message)
        weights[term] = round(value * MILLION)
    return weights


def _costs(need: ReplicaRequest, policy: Policy, view: View) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Price one more replica on each node.

    A voter in a zone without one is worth its term while fewer than three have one.
    """
    topology, cold = view.topology, policy.extra_copies
    voters = need.replication_factor - cold
    shape = Shape(voters, cold, policy.parameters["weights"])
    usable = topology.eligible & policy.nodes.mask(topology)
    prices = Prices(levels_of(topology), shape, usable, view, None)
    cost = prices.node_prices()
    if need.slot < voters:
        slots = need.slots or range(len(need.kept))
        placed = [node for node, slot in zip(need.kept, slots, strict=True) if slot < voters]
        zones = topology.domain_of(levels_of(topology).zone)
        fresh = ~np.isin(zones, zones[np.asarray(placed, np.int64)])
        if prices.zones_missing(placed):
            cost = cost - np.where(fresh, shape.weights["zones"], 0)
    return cost


def _explain_beyond_balance(need: ReplicaRequest) -> Reason:
    message = (
        f"no node can take replica {need.slot} of {need.stream}/{need.shard}: wherever the rules "
        "allow it, the domain would exceed its share of the load by more than 10 %"
    )
    return Reason(Code.NO_CANDIDATE, message, 1, 0)


def _explain_no_arrangement(
    policy: Policy, rack: Scope, factor: int, usable: Sequence[int], view: View
) -> Reason:
    """Explain why one shard alone finds no place, whatever the balance."""
    racks = _domain_names(view.topology, rack, usable)
    region = " leave a region for the cold copy and" if policy.extra_copies else ""
    user = ", ".join(f"'{rule}'" for rule in policy.rules if rule.strength is Strength.REQUIRED)
    kept = f" and the rules {user} hold" if user else ""
    message = (
        f"no {factor} racks in two zones are free that{region} keep one primary per rack{kept}"
    )
    return Reason(Code.DOMAINS_TOO_FEW, message, factor, None, rack.level, racks)


def _domain_names(topology: Topology, scope: Scope, nodes: Sequence[int]) -> tuple[str, ...]:
    found = {int(domain) for domain in topology.domain_of(scope)[np.asarray(nodes, np.int64)]}
    return topology.domain_names(scope, found)
