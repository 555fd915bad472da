"""Exact search for the best set of nodes for one shard under independent attributes.

Choosing node by node can miss a set that exists as soon as two attributes interact (Kafka's
standby assignor does). `find_best_set` looks at whole sets: as many replicas as the limits admit,
then the evenest spread over the values of each attribute in turn, then the user's preferred rules,
then the lowest cost. Strategies with independent attributes share it.

Method: depth first over the candidates in order of cost, deepening by evenness, with bounds that
take every attribute by itself, and a maximum flow over every two limited attributes, which leaves
nothing to try out where there are no more. Three and more are a hard problem (three-dimensional
matching): `_STEPS_MAX` bounds the work, and a greedy set answers beyond it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from placement.allocator.view import ReplicaRequest, View
from placement.rules import Mask, Rule, Strength
from placement.topology import NO_DOMAIN

# Candidates looked at before the greedy set is taken: about a quarter of a second.
_STEPS_MAX = 400_000

# Costs of load are integers, so that their sums do not depend on the order of summation.
_COST_UNIT = 1 << 20

Pairs = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """An attribute of nodes that limits a set.

    It has the domain of every node, the most replicas that a domain may take, and whether evenness
    over its domains is wanted. A node without a domain shares it with none.
    """

    domains: NDArray[np.int32]
    cap: int | None = None
    even: bool = True


def load_costs(view: View) -> list[int]:
    """Price one more replica on each node by the growth of the sum of load²/weight over the nodes.

    The set with the least sum makes load by weight the evenest.
    """
    shares = zip(view.load.tolist(), view.topology.weight.tolist(), strict=True)
    return [round((2 * load + 1) / weight * _COST_UNIT) for load, weight in shares]


def find_best_set(
    need: ReplicaRequest,
    columns: Sequence[Column],
    mask: Mask,
    view: View,
    rules: Sequence[Rule],
    costs: Sequence[int],
    ranks: Sequence[int],
) -> list[int]:
    """Find the nodes that complete the shard best, cheapest first.

    Fewer than it lacks if the limits of the columns and the required ones of `rules` admit no more.

    By node: `costs`, whose least sum wins, and `ranks`, which order nodes of one cost.
    """
    return _Search(need, columns, mask, view, rules, costs, ranks).run()


class _Search:
    """One search. Candidates are numbered in the order of cost and rank."""

    def __init__(
        self,
        need: ReplicaRequest,
        columns: Sequence[Column],
        mask: Mask,
        view: View,
        rules: Sequence[Rule],
        costs: Sequence[int],
        ranks: Sequence[int],
    ) -> None:
        self._need, self._topology = need, view.topology
        self._required = [rule for rule in rules if rule.strength is Strength.REQUIRED]
        self._wishes = [rule for rule in rules if rule.strength is Strength.PREFERRED]
        columns = [*columns, *self._rule_limits()]
        self._caps = [column.cap for column in columns]
        self._even = [index for index, column in enumerate(columns) if column.even]
        kept = list(need.kept)
        self._counts = [_count_domains(column.domains[kept].tolist()) for column in columns]
        lacking = max(need.replication_factor - len(kept), 0)
        order = self._order_candidates(mask, columns, costs, ranks, lacking)
        self._nodes = order
        self._costs = [costs[node] for node in order]
        self._domains = [column.domains[order].tolist() for column in columns]
        self._wanted = min(lacking, len(order))
        able = view.topology.can_lead
        self._able: list[bool] = able[order].tolist()
        self._leads = bool(able[kept].any()) or not any(self._able)
        self._steps = _STEPS_MAX
        self._goal: Pairs = ()
        self._next: Pairs | None = None
        self._best: tuple[Pairs, int] | None = None
        self._found: list[int] = []

    def _rule_limits(self) -> list[Column]:
        """List the limits per domain of the user's rules, so that bounds end vain tries early."""
        need, topology = self._need, self._topology
        standing = need.rule_context(topology)
        limits = []
        for rule in self._required:
            cap = rule.domain_cap(standing)
            if cap is not None and rule.scope is not None:
                limits.append(Column(topology.domain_of(rule.scope), cap, even=False))
        return limits

    def _order_candidates(
        self,
        mask: Mask,
        columns: Sequence[Column],
        costs: Sequence[int],
        ranks: Sequence[int],
        lacking: int,
    ) -> list[int]:
        """Order the candidates by cost and rank.

        Of nodes that differ in cost only, as many are kept as one set can use.
        """
        open_nodes = mask.copy()
        open_nodes[np.asarray([*self._need.kept, *self._need.excluded], np.int64)] = False
        nodes = sorted(np.flatnonzero(open_nodes).tolist(), key=lambda n: (costs[n], ranks[n]))
        if self._required or self._wishes:
            return nodes
        able = self._topology.can_lead
        vectors = [column.domains[nodes].tolist() for column in columns]
        alike = zip(able[nodes].tolist(), *vectors, strict=True)
        counts: dict[tuple[int, ...], int] = {}
        kept = []
        for node, vector in zip(nodes, alike, strict=True):
            if counts.setdefault(vector, 0) < lacking:
                counts[vector] += 1
                kept.append(node)
        return kept

    def run(self) -> list[int]:
        """Find the best set, or a greedy one where the search takes too long."""
        for count in range(self._wanted, 0, -1):
            found = self._search(count)
            if not (found or self._leads):
                # A set without a possible leader is better than a smaller set.
                self._leads = True
                found = self._search(count)
                self._leads = False
            if found:
                return found
        return []

    def _search(self, count: int) -> list[int]:
        """Find the best set of `count` candidates; empty if there is none."""
        bound = self._bound_cost(0, count)
        if bound is None:
            return []
        self._goal = bound[0]
        while self._steps > 0:
            less_even = self._try(count)
            if self._best is not None or less_even is None:
                break
            self._goal = less_even
        if self._best is not None:
            return [self._nodes[position] for position in self._found]
        return self._search_greedily() if self._steps <= 0 else []

    def _try(self, count: int) -> Pairs | None:
        """Search for sets as even as the goal; return the evenness to try next."""
        self._next = None
        self._descend(0, count, (0,) * len(self._wishes), 0, [])
        return self._next

    def _descend(
        self, start: int, left: int, wishes: tuple[int, ...], cost: int, chosen: list[int]
    ) -> None:
        """Try all sets that add `left` candidates from `start` on to those chosen."""
        if left == 0:
            pairs = tuple(_count_pairs(self._counts[index]) for index in self._even)
            if pairs > self._goal:
                self._next = pairs if self._next is None else min(self._next, pairs)
            elif self._best is None or (wishes, cost) < self._best:
                self._best, self._found = (wishes, cost), list(chosen)
            return
        allowed, wished = self._apply_rules(chosen)
        for position in range(start, len(self._nodes)):
            bound = self._bound_cost(position, left)
            if bound is None or self._steps <= 0:
                return
            pairs, rest = bound
            if pairs > self._goal:
                self._next = pairs if self._next is None else min(self._next, pairs)
                return
            if self._best is not None and (wishes, cost + rest) >= self._best:
                return
            node = self._nodes[position]
            if not self._can_take(position) or not (allowed is None or allowed[node]):
                continue
            if left == 1 and not (self._leads or self._able[position] or self._has_leader(chosen)):
                continue
            self._count(position, 1)
            chosen.append(position)
            broken = tuple(w + each[node] for w, each in zip(wishes, wished, strict=True))
            self._descend(position + 1, left - 1, broken, cost + self._costs[position], chosen)
            chosen.pop()
            self._count(position, -1)

    def _bound_cost(self, start: int, left: int) -> tuple[Pairs, int] | None:
        """Bound the cost of `left` more candidates from `start` on.

        It is the fewest pairs of replicas in one domain, by column, and the least cost; None if so
        many cannot be placed.
        """
        total = len(self._nodes)
        self._steps -= (total - start) * max(len(self._caps), 1)
        if total - start < left:
            return None
        cost = sum(self._costs[start : start + left])
        pairs: list[int] = []
        for index, cap in enumerate(self._caps):
            counts = self._counts[index]
            taken: dict[int, int] = {}
            added: list[int] = []
            spent, usable = 0, 0
            for position in range(start, total):
                domain = self._domains[index][position]
                count = 0
                if domain != NO_DOMAIN:
                    count = taken.get(domain, counts.get(domain, 0))
                    if cap is not None and count >= cap:
                        continue
                    taken[domain] = count + 1
                if usable < left:
                    spent += self._costs[position]
                usable += 1
                added.append(count)
            if usable < left:
                return None
            cost = max(cost, spent)
            if index in self._even:
                pairs.append(_count_pairs(counts) + sum(sorted(added)[:left]))
        return (tuple(pairs), cost) if self._has_flow(start, left) else None

    def _has_flow(self, start: int, left: int) -> bool:
        """Return whether every two limited columns together leave room for `left` more replicas."""
        limited = [index for index, cap in enumerate(self._caps) if cap is not None]
        return left == 1 or all(
            self._count_flow(one, other, start, left) >= left
            for one, other in combinations(limited, 2)
        )

    def _count_flow(self, one: int, other: int, start: int, enough: int) -> int:
        """Count the candidates from `start` on that two columns admit, up to `enough`.

        It is a maximum flow from the domains of one column to those of the other, one candidate an
        edge.
        """
        edges: dict[int, dict[int, list[int]]] = {}
        free: dict[int, int] = {}
        for position in range(start, len(self._nodes)):
            left, right = self._domains[one][position], self._domains[other][position]
            edges.setdefault(left, {}).setdefault(right, []).append(position)
        self._steps -= len(self._nodes) - start
        room_left = {domain: self._room(one, domain) for domain in edges}
        for rights in edges.values():
            free |= {domain: self._room(other, domain) for domain in rights}
        used: dict[int, dict[int, int]] = {domain: {} for domain in free}
        flow = 0

        def augment(domain: int, seen: set[int]) -> bool:
            for right, candidates in edges[domain].items():
                if right in seen or used[right].get(domain, 0) >= len(candidates):
                    continue
                seen.add(right)
                taken = used[right]
                if sum(taken.values()) >= free[right]:
                    back = next((o for o in taken if taken[o] and augment(o, seen)), None)
                    if back is None:
                        continue
                    taken[back] -= 1
                taken[domain] = taken.get(domain, 0) + 1
                return True
            return False

        for domain in sorted(edges):
            while flow < enough and room_left[domain] > 0 and augment(domain, set()):
                room_left[domain] -= 1
                flow += 1
        return flow

    def _room(self, index: int, domain: int) -> int:
        """Count the replicas that a domain may still take; without a domain nothing limits them."""
        cap = self._caps[index]
        if cap is None or domain == NO_DOMAIN:
            return self._wanted
        return max(cap - self._counts[index].get(domain, 0), 0)

    def _can_take(self, position: int) -> bool:
        return all(
            self._room(index, domains[position]) > 0 for index, domains in enumerate(self._domains)
        )

    def _count(self, position: int, change: int) -> None:
        for counts, domains in zip(self._counts, self._domains, strict=True):
            domain = domains[position]
            if domain != NO_DOMAIN:
                counts[domain] = counts.get(domain, 0) + change

    def _has_leader(self, chosen: Iterable[int]) -> bool:
        return any(self._able[position] for position in chosen)

    def _apply_rules(self, chosen: Sequence[int]) -> tuple[Mask | None, list[list[int]]]:
        """Mask the nodes that the user's required rules leave, and rank them by the others."""
        if not (self._required or self._wishes):
            return None, []
        need = self._need
        nodes = [*need.kept, *(self._nodes[position] for position in chosen)]
        slots = [*(need.slots or range(len(need.kept)))]
        slots += range(need.slot, need.slot + len(chosen))
        now = need._replace(kept=nodes, slots=slots, slot=need.slot + len(chosen))
        standing = now.rule_context(self._topology)
        allowed = np.ones(self._topology.size, bool)
        for rule in self._required:
            allowed &= rule.penalty(standing) == 0
        return allowed, [rule.penalty(standing).tolist() for rule in self._wishes]

    def _search_greedily(self) -> list[int]:
        """Take one candidate after the other: the one that shares its values with the fewest."""
        chosen: list[int] = []
        while len(chosen) < self._wanted:
            allowed, wished = self._apply_rules(chosen)
            open_positions = [
                position
                for position in range(len(self._nodes))
                if position not in chosen
                and self._can_take(position)
                and (allowed is None or allowed[self._nodes[position]])
            ]
            if not open_positions:
                break
            best = min(
                open_positions,
                key=lambda p: (
                    [self._counts[i].get(self._domains[i][p], 0) for i in self._even],
                    [each[self._nodes[p]] for each in wished],
                    p,
                ),
            )
            self._count(best, 1)
            chosen.append(best)
        return [self._nodes[position] for position in sorted(chosen)]


def _count_pairs(counts: dict[int, int]) -> int:
    """Count the pairs of replicas that share a domain: the fewer, the evener."""
    return sum(count * (count - 1) // 2 for count in counts.values())


def _count_domains(domains: Iterable[int]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for domain in domains:
        if domain != NO_DOMAIN:
            counts[domain] = counts.get(domain, 0) + 1
    return counts
