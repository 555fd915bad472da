"""One try at placing a stream by `cost`: the cheapest lawful shard, one after the other."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from placement.allocator import ReplicaRequest, View, arrangements, candidates, put_leader_first
from placement.hashing import digest64
from placement.model import Code, Reason, StreamSpec
from placement.policy import Policy
from placement.rules import (
    Mask,
    Penalties,
    Rule,
    RuleContext,
    RuleFinding,
    RuleSet,
    Strength,
)
from placement.strategies.cost_prices import MILLION, Prices, Shape, levels_of

# Arrangements that are compared where the user's rules forbid the cheapest one.
_COMPARED = 200

Chosen = tuple[Sequence[int], Sequence[int]]


class Attempt:
    """One try at a whole stream, on a view of its own.

    `own`: the strategy's rules; `fraction`: the bound on balance, None for none.
    """

    def __init__(
        self,
        spec: StreamSpec,
        policy: Policy,
        own: Sequence[Rule],
        weights: Mapping[str, int],
        view: View,
        fraction: float | None,
    ) -> None:
        self.view, self._spec, self._policy, self._own = view, spec, policy, own
        self._shape = Shape(spec.replication_factor, policy.extra_copies, weights)
        usable = view.topology.eligible & policy.nodes.mask(view.topology)
        self._prices = Prices(levels_of(view.topology), self._shape, usable, view, fraction)
        self._before = self._prices.total
        self._terms: Counter[str] = Counter()
        self._short = 0

    def run(self, paced: bool) -> list[list[int]] | None:
        """Choose nodes of every shard, leader first, cold copies last; None after a dead end."""
        spec, copies = self._spec, self._shape.copies
        colocated = RuleSet(self._policy.rules).is_colocated
        times = spec.shards if colocated else 1
        self._prices.limit(self._before + spec.shards * copies)
        shards: list[list[int]] = []
        for shard in range(0, spec.shards, times):
            if paced:
                self._prices.limit(self._before + (shard + times) * copies)
            self.view.turn_to(shard)
            mask = candidates(self._policy, self.view) & self.view.has_room(times)
            chosen = self._choose_shard(shard, mask, shards, times)
            if chosen is None:
                return None
            voters, cold = chosen
            for term, price in self._prices.terms(voters, cold).items():
                self._terms[term] += price * times
            self._short += times * bool(self._prices.zones_missing(voters))
            self._prices.add((*voters, *cold), times)
            nodes = self._order_nodes(voters, cold)
            for slot, node in enumerate(nodes):
                for _ in range(times):
                    self.view.add(node, leader=slot == 0)
            shards.extend(list(nodes) for _ in range(times))
        return shards

    def find_imbalance(self, shards: Sequence[Sequence[int]]) -> str:
        """Describe the first domain that the stream leaves out of balance; empty if none."""
        everything = [node for nodes in shards for node in nodes]
        topology = self.view.topology
        standing = RuleContext(
            topology, self._shape.copies, everything, nodes=self._policy.nodes, load=self.view.load
        )
        balance = [rule for rule in self._own if rule.balances_cluster]
        for rule in balance:
            for found in rule.violations(standing):
                bound = "limit" if found.count > found.limit else "its share asks for"
                where = f"{rule.scope} {found.domain} would hold {found.count}"
                return f"{where}, {bound} {found.limit}"
        return ""

    def summary(self) -> Reason:
        """Summarise the terms of the stream's cost."""
        terms = " + ".join(
            f"{term} {self._terms[term] / MILLION:.3f}" for term in self._shape.weights
        )
        total = sum(self._terms.values()) / MILLION
        message = f"the cheapest placement within the rules costs {total:.3f}: {terms}"
        if self._short:
            message += f"; {self._short} of {self._spec.shards} shards in fewer than three zones"
        return Reason(Code.COST_TERMS, message)

    def _choose_shard(
        self, shard: int, mask: Mask, shards: Sequence[Sequence[int]], times: int
    ) -> Chosen | None:
        """Choose voters and cold copies of one shard."""
        seed = digest64(self._spec.stream, shard)
        found = self._prices.find_cheapest(mask, seed, times)
        if not self._policy.rules:
            return found
        used = [node for nodes in shards for node in nodes]
        if not RuleSet(self._policy.rules).spans_stream:
            used = []
        first = None if found is None else self._count_broken(found, used)
        if first is not None and not any(first):
            return found
        options = [(first, 0, found)] if first is not None and found is not None else []
        best = min(
            (*options, *self._other_arrangements(shard, mask, used, times)),
            key=lambda each: each[:2],
            default=None,
        )
        return None if best is None else best[2]

    def _other_arrangements(
        self, shard: int, mask: Mask, used: Sequence[int], times: int
    ) -> Iterator[tuple[tuple[int, ...], int, Chosen]]:
        """List other lawful arrangements of a shard, with broken preferences and cost."""
        spec = self._spec
        need = ReplicaRequest(
            spec.stream,
            shard,
            0,
            self._shape.copies,
            [],
            used,
            self._policy.nodes,
            shards=spec.shards,
        )
        lawful = [rule for rule in self._own if not rule.balances_cluster]
        rules = [*self._policy.rules, *lawful, _Room(self._prices, times)]
        found = arrangements(rules, mask, need, self.view)
        for nodes in islice(found, _COMPARED):
            chosen = nodes[: spec.replication_factor], nodes[spec.replication_factor :]
            broken = self._count_broken(chosen, used)
            if broken is not None:
                price = sum(self._prices.terms(*chosen).values())
                yield broken, 1 + price, chosen

    def _count_broken(self, chosen: Chosen, used: Sequence[int]) -> tuple[int, ...] | None:
        """Count how far the user's preferred rules are broken; None if a required one is."""
        nodes = self._order_nodes(*chosen)
        standing = RuleContext(
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
            elif found and not rule.spans_stream:
                return None
            elif rule.spans_stream and found:
                broken.append(found)
        return tuple(broken)

    def _order_nodes(self, voters: Sequence[int], cold: Sequence[int]) -> list[int]:
        """Put the voter with the fewest leaders by weight first, then by id; cold copies last."""
        topology, rank = self.view.topology, self.view.topology.order()

        def leads(node: int) -> tuple[bool, float, int]:
            pressure = float((self.view.leaders[node] + 0.5) / topology.weight[node])
            return not topology.can_lead[node], pressure, int(rank[node])

        first = min(voters, key=leads)
        rest = sorted((n for n in voters if n != first), key=lambda n: int(rank[n]))
        nodes = put_leader_first([first, *rest], self._policy, len(voters), topology)
        return [*nodes, *sorted(cold, key=lambda n: int(rank[n]))]


@dataclass(frozen=True, slots=True)
class _Room(Rule):
    """No domain takes more copies of a shard than its bound of balance leaves."""

    prices: Prices
    copies: int
    strength: Strength = Strength.REQUIRED

    def penalty(self, standing: RuleContext) -> Penalties:
        """Return one for nodes with a full domain."""
        return 1 - self.prices.has_room(standing.replicas, self.copies).astype(np.int64)

    def violations(self, _: RuleContext) -> list[RuleFinding]:
        """Return none: the rule is asked before every choice."""
        return []
