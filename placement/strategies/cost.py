"""Cost: ByteDance's placement engine as the seed describes it, the cheapest lawful arrangement.

Source: chapter 77 of the tutorial among the seeds, "ByteDance's 10,000-node case study", with the
reading of design section 6.2.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from placement.assignments import EMPTY
from placement.choice import digest64, scores
from placement.model import StreamSpec
from placement.policy import OnInfeasible, Policy, unknown_value
from placement.reasons import Code, Reason
from placement.rules import (
    STREAM_RULES,
    AtMost,
    ColocateSlots,
    Mask,
    Rule,
    Standing,
    Strength,
)
from placement.rules_load import LoadBalance, VotersAcross
from placement.rules_roles import Elsewhere
from placement.strategies.base import Need, Placement, View, candidates, choose, distance
from placement.strategies.cheapest import (
    MILLION,
    ZONES_LEAST,
    Prices,
    Shape,
    levels_of,
)
from placement.strategies.search import arrangements, node_kinds
from placement.strategies.slots import leader_first
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
# Arrangements that are compared where the user's rules forbid the cheapest one.
_COMPARED = 200

Chosen = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True, slots=True)
class CostStrategy:
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
    of load squared over weight, times the term's weight in `weights` (1 each); each zone that the
    primaries lack to three costs `weights.zones` (1000: three are preferred to any balance within
    the bound), each region beyond their first `weights.regions` (100: a quorum stays at home). The cheapest shard is found exactly by a knapsack over racks, zones and regions,
    one shard after the other; ties by a hash of the content. Where that ends in a dead end the
    stream is tried again without these two preferences, and with the bound kept after
    every shard. Under rules of the user that forbid the cheapest shard the best of a bounded
    number of lawful ones is taken. The reason `COST_TERMS` shows the terms. Levels called region,
    zone (az) and rack are these, else components 1, 2 and 3 of a path; on a shorter path the
    deepest one counts, so that in `/dc/rack` every rack is a zone too. The source's "exactly one
    primary per rack" is not one in every rack of a hundred; its claim that two zones suffice to
    lose one primary per zone holds for three only, which is why three are preferred.

    Example: rf 3 on e1 to e3 in `/eu/az1/r1` to `/eu/az3/r3` and u1 in `/us/az1/r1`: the list is
    `[e1, e2, e3, u1]`, u1 being the cold copy.
    """

    name: ClassVar[str] = "cost"
    aliases: ClassVar[tuple[str, ...]] = ("bytedance",)
    parameters: ClassVar[tuple[str, ...]] = ("weights", "cold")
    on_infeasible: ClassVar[OnInfeasible] = OnInfeasible.REJECT
    on_shortage: ClassVar[OnInfeasible] = OnInfeasible.REJECT

    def compile(self, policy: Mapping[str, Any], topology: Topology) -> Mapping[str, Any] | Reason:
        """`weights`: a number for each term, by its name or by its level's; `cold`: how many."""
        cold = policy.get("cold", 1)
        if not isinstance(cold, int) or not 0 <= cold < _COPIES_MAX:
            message = f"policy: 'cold' is {cold!r}, expected a number of copies, 0 to 63"
            return Reason(Code.POLICY_UNKNOWN_VALUE, message)
        weights = _weights(policy.get("weights", {}), topology)
        if isinstance(weights, Reason):
            return weights
        return {"weights": weights, "cold": int(cold), "beside": int(cold)}

    def unfit(self, spec: StreamSpec, policy: Policy, _: Topology) -> Reason | None:
        """More copies than a shard may have."""
        copies = policy.copies(spec.replication_factor)
        if copies <= _COPIES_MAX:
            return None
        message = f"{copies} copies with the cold ones, expected {_COPIES_MAX} at most"
        return Reason(Code.REPLICATION_FACTOR_OUT_OF_RANGE, message, _COPIES_MAX, copies)

    def rules(self, policy: Policy, topology: Topology) -> tuple[Rule, ...]:
        """The user's, racks, zones, the cold copy's region, balance."""
        levels, cold, strength = levels_of(topology), policy.beside, policy.strength
        aside = (Elsewhere("cold", cold, levels.region, strength),) if cold else ()
        scopes = dict.fromkeys(scope.depth for _, scope in levels.items())
        named = {scope.depth: scope for _, scope in levels.items()}
        return (
            *policy.rules,
            AtMost(1, levels.rack, strength),
            VotersAcross(ZONES_LEAST, levels.zone, cold, strength),
            *aside,
            *(LoadBalance(BALANCE, named[depth], strength) for depth in scopes),
        )

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        """Shard by shard, the cheapest lawful one; several ways where the first ends nowhere."""
        weights = policy.parameters["weights"]
        careless = {**weights, "zones": 0, "regions": 0}
        for paced in (False, True):
            for tried in (weights, careless):
                attempt = _Attempt(spec, policy, tried, view.fork(), BALANCE)
                shards = attempt.run(paced)
                if shards is not None and not attempt.unbalanced(shards):
                    view.take(attempt.view)
                    view.leaders = attempt.view.leaders
                    return Placement(shards, (attempt.summary(),))
        return self._why_not(spec, policy, view)

    def extend(self, need: Need, policy: Policy, mask: Mask, view: View) -> int | Reason:
        """The cheapest node that breaks no rule, and after which the rest finds a place."""
        topology, rules = view.topology, self.rules(policy, view.topology)
        standing = replace(need.standing(topology), load=view.load)
        required = [rule for rule in rules if rule.strength is Strength.REQUIRED]
        lawful = [rule for rule in required if not isinstance(rule, LoadBalance)]
        left = mask.copy()
        left[np.asarray([*need.kept, *need.excluded], np.int64)] = False
        for rule in lawful:
            left &= rule.penalty(standing) == 0
        if not left.any():
            return choose(lawful, mask, need, view)
        balanced = left.copy()
        for rule in required:
            if isinstance(rule, LoadBalance):
                balanced &= rule.penalty(standing) == 0
        if balanced.any():
            left = balanced
        elif need.replaces == EMPTY:
            return _beyond_balance(need)
        for rule in policy.rules:
            if rule.strength is Strength.PREFERRED:
                penalty = rule.penalty(standing)
                left &= penalty == penalty[left].min()
        if need.slot == 0 and (left & topology.can_lead).any():
            left &= topology.can_lead
        return self._cheapest_of(left, lawful, need, policy, view, mask)

    def _cheapest_of(
        self,
        left: Mask,
        lawful: Sequence[Rule],
        need: Need,
        policy: Policy,
        view: View,
        mask: Mask,
    ) -> int:
        """The first by cost, nearness and hash that is no dead end; the first if all are."""
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
            after = replace(
                need, kept=[*need.kept, node], slots=slots, slot=next(free, need.slot), replaces=-1
            )
            if next(arrangements(lawful, mask, after, view), None) is not None:
                return int(node)
        return int(ranked[0])

    def _why_not(self, spec: StreamSpec, policy: Policy, view: View) -> Reason:
        """The first thing that the fleet lacks."""
        levels, cold, factor = levels_of(view.topology), policy.beside, spec.replication_factor
        usable = np.flatnonzero(candidates(policy, view))
        copies = factor + cold
        if len(usable) < copies:
            message = f"{copies} nodes are needed, {len(usable)} are usable"
            return Reason(Code.NODES_TOO_FEW, message, copies, len(usable))
        zones = min(ZONES_LEAST, factor)
        wanted = [("each copy has a rack of its own", levels.rack, copies)]
        wanted.append(("the primaries stand in two zones", levels.zone, zones))
        if cold:
            wanted.append(("the cold copy stands in another region", levels.region, 2))
        for told, scope, need in wanted:
            seen = _names(view.topology, scope, usable.tolist())
            if len(seen) < need:
                message = f"{told}: {need} domains of {scope} are needed, {len(seen)} are there"
                return Reason(Code.DOMAINS_TOO_FEW, message, need, len(seen), str(scope), seen)
        one = replace(spec, shards=1)
        unbound = _Attempt(one, policy, policy.parameters["weights"], view.fork(), None)
        if unbound.run(False) is None:
            return _no_arrangement(policy, levels.rack, factor, usable.tolist(), view)
        free = _Attempt(spec, policy, policy.parameters["weights"], view.fork(), None)
        shards = free.run(False)
        if shards is None:
            message = f"no node has room for all {spec.shards} shards under the rules"
            return Reason(Code.NO_CANDIDATE, message, spec.shards, 0)
        found = free.unbalanced(shards)
        told = f": {found}" if found else ""
        message = f"no lawful placement keeps every domain within 10 % of its share{told}"
        return Reason(Code.RULE_NOT_MET, message)


class _Attempt:
    """One try at a whole stream, on a view of its own."""

    def __init__(
        self,
        spec: StreamSpec,
        policy: Policy,
        weights: Mapping[str, int],
        view: View,
        fraction: float | None,
    ) -> None:
        self.view, self._spec, self._policy = view, spec, policy
        self._levels = levels_of(view.topology)
        self._shape = Shape(spec.replication_factor, policy.beside, weights)
        usable = view.topology.eligible & policy.nodes.mask(view.topology)
        self._prices = Prices(self._levels, self._shape, usable, view, fraction)
        self._before = self._prices.total
        self._terms: Counter[str] = Counter()
        self._short = 0

    def run(self, paced: bool) -> list[list[int]] | None:
        """Nodes of every shard, leader first, cold copies last; None where one finds none."""
        spec, copies = self._spec, self._shape.copies
        colocated = any(isinstance(rule, ColocateSlots) for rule in self._policy.rules)
        times = spec.shards if colocated else 1
        self._prices.limit(self._before + spec.shards * copies)
        shards: list[list[int]] = []
        for shard in range(0, spec.shards, times):
            if paced:
                self._prices.limit(self._before + (shard + times) * copies)
            mask = candidates(self._policy, self.view) & self.view.has_room(times)
            chosen = self._shard(shard, mask, shards, times)
            if chosen is None:
                return None
            voters, cold = chosen
            for term, price in self._prices.terms(voters, cold).items():
                self._terms[term] += price * times
            self._short += times * bool(self._prices.zones_missing(voters))
            self._prices.add((*voters, *cold), times)
            nodes = self._ordered(voters, cold)
            for slot, node in enumerate(nodes):
                for _ in range(times):
                    self.view.add(node, leader=slot == 0)
            shards.extend(list(nodes) for _ in range(times))
        return shards

    def unbalanced(self, shards: Sequence[Sequence[int]]) -> str:
        """The first domain that the stream leaves out of balance, in words; empty if none."""
        everything = [node for nodes in shards for node in nodes]
        topology = self.view.topology
        standing = Standing(
            topology, self._shape.copies, everything, nodes=self._policy.nodes, load=self.view.load
        )
        for scope in (self._levels.region, self._levels.zone, self._levels.rack):
            for found in LoadBalance(BALANCE, scope).violations(standing):
                return f"{scope} {found.domain} would hold {found.count}, limit {found.limit}"
        return ""

    def summary(self) -> Reason:
        """The terms of the stream's cost."""
        told = " + ".join(f"{term} {self._terms[term] / MILLION:.3f}" for term in _WEIGHTS)
        total = sum(self._terms.values()) / MILLION
        message = f"the cheapest lawful placement costs {total:.3f}: {told}"
        if self._short:
            message += f"; {self._short} of {self._spec.shards} shards in fewer than three zones"
        return Reason(Code.COST_TERMS, message)

    def _shard(
        self, shard: int, mask: Mask, shards: Sequence[Sequence[int]], times: int
    ) -> Chosen | None:
        """Voters and cold copies of one shard."""
        seed = digest64(self._spec.stream, shard)
        found = self._prices.cheapest(mask, seed, times)
        if not self._policy.rules:
            return found
        used = [node for nodes in shards for node in nodes]
        if not any(isinstance(rule, STREAM_RULES) for rule in self._policy.rules):
            used = []
        first = None if found is None else self._judged(found, used)
        if first is not None and not any(first):
            return found
        options = [(first, 0, found)] if first is not None and found is not None else []
        best = min(
            (*options, *self._others(shard, mask, used, times)),
            key=lambda each: each[:2],
            default=None,
        )
        return None if best is None else best[2]

    def _others(
        self, shard: int, mask: Mask, used: Sequence[int], times: int
    ) -> Iterator[tuple[tuple[int, ...], int, Chosen]]:
        """Other lawful arrangements of a shard, with what they break and what they cost."""
        topology, spec = self.view.topology, self._spec
        rules = CostStrategy().rules(self._policy, topology)
        lawful = [rule for rule in rules if not isinstance(rule, LoadBalance)]
        need = Need(
            spec.stream,
            shard,
            0,
            self._shape.copies,
            [],
            used,
            self._policy.nodes,
            shards=spec.shards,
        )
        within = mask & self._prices.has_room(times)
        hard = [_required(rule) for rule in lawful[len(self._policy.rules) :]]
        found = arrangements([*self._policy.rules, *hard], within, need, self.view)
        for nodes in islice(found, _COMPARED):
            chosen = nodes[: spec.replication_factor], nodes[spec.replication_factor :]
            broken = self._judged(chosen, used)
            if broken is not None:
                price = sum(self._prices.terms(*chosen).values())
                yield broken, 1 + price, chosen

    def _judged(self, chosen: Chosen, used: Sequence[int]) -> tuple[int, ...] | None:
        """How far the user's preferred rules are broken; None if a required one is."""
        nodes = self._ordered(*chosen)
        standing = Standing(
            self.view.topology,
            self._shape.copies,
            nodes,
            used,
            self._policy.nodes,
            self._spec.shards,
        )
        broken = []
        for rule in self._policy.rules:
            found = len(rule.violations(standing))
            if rule.strength is Strength.PREFERRED:
                broken.append(found)
            elif found and not isinstance(rule, STREAM_RULES):
                return None
            elif isinstance(rule, STREAM_RULES) and found:
                broken.append(found)
        return tuple(broken)

    def _ordered(self, voters: Sequence[int], cold: Sequence[int]) -> list[int]:
        """The voter with the fewest leaders by weight in front, then by id; cold copies last."""
        topology, rank = self.view.topology, self.view.topology.order()

        def leads(node: int) -> tuple[bool, float, int]:
            pressure = float((self.view.leaders[node] + 0.5) / topology.weight[node])
            return not topology.can_lead[node], pressure, int(rank[node])

        first = min(voters, key=leads)
        rest = sorted((n for n in voters if n != first), key=lambda n: int(rank[n]))
        nodes = leader_first([first, *rest], self._policy, len(voters), topology)
        return [*nodes, *sorted(cold, key=lambda n: int(rank[n]))]


def _required(rule: Rule) -> Rule:
    """The strategy's rule as `place` keeps it, whatever becomes of it later."""
    made: Rule = replace(rule, strength=Strength.REQUIRED)  # type: ignore[type-var]
    return made


def _weights(given: Any, topology: Topology) -> Mapping[str, int] | Reason:
    """Weights of the terms in millionths."""
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


def _costs(need: Need, policy: Policy, view: View) -> np.ndarray[Any, np.dtype[np.int64]]:
    """What one more replica costs on each node; a voter in a zone without one is worth its term
    while fewer than three have one."""
    topology, cold = view.topology, policy.beside
    voters = need.replication_factor - cold
    shape = Shape(voters, cold, policy.parameters["weights"])
    usable = topology.eligible & policy.nodes.mask(topology)
    prices = Prices(levels_of(topology), shape, usable, view, None)
    cost = prices.node_prices()
    if need.slot < voters:
        slots = need.slots or range(len(need.kept))
        held = [node for node, slot in zip(need.kept, slots, strict=True) if slot < voters]
        zones = topology.domain_of(levels_of(topology).zone)
        fresh = ~np.isin(zones, zones[np.asarray(held, np.int64)])
        if prices.zones_missing(held):
            cost = cost - np.where(fresh, shape.weights["zones"], 0)
    return cost


def _beyond_balance(need: Need) -> Reason:
    message = (
        f"no node for replica {need.slot} of {need.stream}/{need.shard}: wherever the rules allow "
        "one its domain would exceed its share of the load by more than 10 %"
    )
    return Reason(Code.NO_CANDIDATE, message, 1, 0)


def _no_arrangement(
    policy: Policy, rack: Scope, factor: int, usable: Sequence[int], view: View
) -> Reason:
    """One shard finds no place, balance or not."""
    racks = _names(view.topology, rack, usable)
    aside = " leave a region for the cold copy and" if policy.beside else ""
    user = ", ".join(f"'{rule}'" for rule in policy.rules if rule.strength is Strength.REQUIRED)
    told = f" and the rules {user} hold" if user else ""
    message = f"no {factor} racks in two zones are free that{aside} keep one primary per rack{told}"
    return Reason(Code.DOMAINS_TOO_FEW, message, factor, None, str(rack), racks)


def _names(topology: Topology, scope: Scope, nodes: Sequence[int]) -> tuple[str, ...]:
    found = {int(domain) for domain in topology.domain_of(scope)[np.asarray(nodes, np.int64)]}
    return topology.domain_names(scope, found)
