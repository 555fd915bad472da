"""Checks changes against the rules: no change may break a shard's rules more than before.

Every rule that applies is evaluated before and after the change, as diagnosis evaluates it. Rules
that depend on counts by domain only are evaluated once for every pattern of counts. Rules of the
stream that only compare two nodes are answered without the rest of the stream.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from placement.assignments import EMPTY
from placement.rebalance.arrangement import Arrangement, StreamArrangement
from placement.rebalance.shares import Integers
from placement.rules import (
    Mask,
    Rule,
    RuleContext,
    RuleSet,
    Strength,
)
from placement.topology import NO_DOMAIN, Scope

_Pattern = tuple[tuple[int, ...], tuple[int, ...], int, int]


class RuleGate:
    """Evaluates the rules of the arrangement's streams for changes.

    `required_only`: preferred ones may be broken, for what is required itself.
    """

    def __init__(self, arrangement: Arrangement, required_only: bool = False) -> None:
        self._arrangement, self._required_only = arrangement, required_only
        self._columns: dict[Scope, list[int]] = {}
        self._live: dict[tuple[Scope, int], set[int]] = {}
        self._known: dict[tuple[int, int, _Pattern], int] = {}

    @cached_property
    def _nodes(self) -> list[int]:
        """List the nodes by rank; a search that finds nothing to do asks for none."""
        nodes: list[int] = self._arrangement.levels.nodes.tolist()
        return nodes

    @property
    def leader_matters(self) -> bool:
        """True if a replica's move may depend on which replica leads."""
        arrangement = self._arrangement
        if not arrangement.can_lead[arrangement.eligible].all():
            return True
        return any(RuleSet(each.rules).orders_slots for each in arrangement.streams)

    def allows_move(self, item: int, target: int) -> bool:
        """Return whether the rules of its shard let the item go to the node."""
        arrangement = self._arrangement
        number = int(arrangement.stream[item])
        stream, row = arrangement.streams[number], arrangement.row(item)
        if target in row:
            return False
        slot, source = int(arrangement.slot[item]), int(arrangement.node[item])
        if slot == 0 and not arrangement.can_lead[target] and arrangement.can_lead[source]:
            return False
        after = list(row)
        after[slot] = target
        before = [node for node in row if node != EMPTY]
        changed = [node for node in after if node != EMPTY]
        for place, rule in enumerate(stream.rules):
            if self._required_only and rule.strength is Strength.PREFERRED:
                continue
            if _counts_decide(rule):
                if not self._counts_allow(number, place, rule, before, changed, source, target):
                    return False
            elif not self._rule_allows(stream, rule, item, row, after):
                return False
        return True

    def may_pass(self, items: Integers, takers: Integers) -> Mask:
        """Mask the items that rules by counts let go to the `takers`.

        Only rules that see all of these nodes in one domain are evaluated, so that True is not yet
        a permission.
        """
        result = np.ones(len(items), bool)
        of = self._arrangement.stream[items]
        for number in np.unique(of).tolist():
            stream = self._arrangement.streams[number]
            where = np.flatnonzero(of == number)
            for place, rule in enumerate(stream.rules):
                counts = _counts_decide(rule)
                if not counts or not len(where):
                    continue
                column = np.asarray([*self._domains_by_rank(_scope_of(rule)), NO_DOMAIN])
                if len(np.unique(column[takers])) == 1:
                    allowed = self._may_pass_rule(number, place, rule, items[where], int(takers[0]))
                    result[where[~allowed]] = False
                    where = where[allowed]
        return result

    def _may_pass_rule(
        self, number: int, place: int, rule: Rule, items: Integers, target: int
    ) -> Mask:
        """Mask the items of one stream that one rule lets go to the target's domain.

        Evaluates the rule once for all shards with the same pattern of counts.
        """
        arrangement = self._arrangement
        shards, slots = arrangement.shard[items], arrangement.slot[items]
        rows = arrangement.streams[number].rows[shards]
        domains = np.asarray([*self._domains_by_rank(_scope_of(rule)), NO_DOMAIN])[rows]
        sources = domains[np.arange(len(items)), slots]
        patterns = np.column_stack([sources, np.sort(domains, axis=1)])
        _, first, which = np.unique(patterns, axis=0, return_index=True, return_inverse=True)
        allowed = np.zeros(len(first), bool)
        for position, item in enumerate(first.tolist()):
            row = rows[item].tolist()
            source = row[int(slots[item])]
            before = [node for node in row if node != EMPTY]
            after = [target if node == source else node for node in before]
            allowed[position] = self._counts_allow(
                number, place, rule, before, after, source, target
            )
        mask: Mask = allowed[which.ravel()]
        return mask

    def allows_order(self, stream: StreamArrangement, shard: int, after: Sequence[int]) -> bool:
        """Return whether the shard's replicas may stand in this order."""
        row = stream.rows[shard].tolist()
        for rule in stream.rules:
            if rule.ranks_leaders:
                rank = rule.leader_rank(self._arrangement.topology)
                if rank[self._nodes[after[0]]] > rank[self._nodes[row[0]]]:
                    return False
            elif rule.slot_order_matters and (
                self._shard_excess(stream, rule, after) > self._shard_excess(stream, rule, row)
            ):
                return False
        return True

    def _counts_allow(
        self,
        number: int,
        place: int,
        rule: Rule,
        before: Sequence[int],
        after: Sequence[int],
        source: int,
        target: int,
    ) -> bool:
        column = self._domains_by_rank(_scope_of(rule))
        if column[source] == column[target]:
            return True
        if column[target] == NO_DOMAIN:
            return False
        then = self._penalty(number, place, rule, [column[node] for node in after], after)
        if not then:
            return True
        return then <= self._penalty(number, place, rule, [column[node] for node in before], before)

    def _penalty(
        self, number: int, place: int, rule: Rule, domains: Sequence[int], nodes: Sequence[int]
    ) -> int:
        """Compute by how much a shard with replicas in these domains breaks the rule."""
        live = self._live_domains(_scope_of(rule), number)
        counts = Counter(domains)
        nowhere = counts.pop(NO_DOMAIN, 0)
        unlocated = self._arrangement.judged_topology.unlocated
        aside = counts.pop(unlocated, 0) if rule.leaves_out_unlocated else 0
        alive = tuple(sorted(count for domain, count in counts.items() if domain in live))
        others = tuple(sorted(count for domain, count in counts.items() if domain not in live))
        key = (number, place, (alive, others, nowhere, aside))
        if key not in self._known:
            stream = self._arrangement.streams[number]
            self._known[key] = self._excess(rule, self._rule_context(stream, nodes))
        return self._known[key]

    def _rule_allows(
        self, stream: StreamArrangement, rule: Rule, item: int, row: list[int], after: list[int]
    ) -> bool:
        """Return whether a rule that looks at more than counts allows the move."""
        arrangement, shard = self._arrangement, int(self._arrangement.shard[item])
        slot = int(arrangement.slot[item])
        source, target = row[slot], after[slot]
        told = rule.allows_move(
            self._rule_context(stream, ()),
            self._nodes[source],
            self._nodes[target],
            lambda: bool((stream.rows == target).any()),
        )
        if told is not None:
            return told
        if rule.needs_whole_stream:
            return self._stream_allows(stream, rule, shard, row, after, int(arrangement.size[item]))
        then = self._shard_excess(stream, rule, after)
        return not then or then <= self._shard_excess(stream, rule, row)

    def _stream_allows(
        self,
        stream: StreamArrangement,
        rule: Rule,
        shard: int,
        row: list[int],
        after: list[int],
        size: int,
    ) -> bool:
        """Return whether a rule on the whole stream, or on the cluster's load, allows the move."""
        others = np.delete(stream.rows, shard, axis=0)
        source = next(node for node, other in zip(row, after, strict=True) if node != other)
        target = next(node for node, other in zip(after, row, strict=True) if node != other)
        moved = np.where(others == source, target, others) if stream.unit else others
        load = self._arrangement.load.copy()
        before = self._stream_excess(stream, rule, row, others, load)
        load[source] -= size
        load[target] += size
        return self._stream_excess(stream, rule, after, moved, load) <= before

    def _stream_excess(
        self,
        stream: StreamArrangement,
        rule: Rule,
        row: Sequence[int],
        others: np.ndarray,
        load: np.ndarray,
    ) -> int:
        elsewhere = [self._nodes[node] for node in others.ravel().tolist() if node != EMPTY]
        by_index = np.zeros(len(load), np.int64)
        by_index[self._arrangement.levels.nodes] = load
        return self._excess(rule, self._rule_context(stream, row, elsewhere, by_index))

    def _shard_excess(self, stream: StreamArrangement, rule: Rule, row: Sequence[int]) -> int:
        return self._excess(rule, self._rule_context(stream, row))

    def _excess(self, rule: Rule, context: RuleContext) -> int:
        return sum(
            max(abs(finding.count - finding.limit), 1) for finding in rule.violations(context)
        )

    def _rule_context(
        self,
        stream: StreamArrangement,
        row: Sequence[int],
        elsewhere: Sequence[int] = (),
        load: np.ndarray | None = None,
    ) -> RuleContext:
        return RuleContext(
            self._arrangement.judged_topology,
            stream.copies,
            [self._nodes[node] for node in row if node != EMPTY],
            elsewhere,
            stream.policy.nodes,
            stream.spec.shards,
            [slot for slot, node in enumerate(row) if node != EMPTY],
            load=load,
        )

    def _domains_by_rank(self, scope: Scope) -> list[int]:
        """Return the domain of each node, by rank."""
        if scope not in self._columns:
            domains = self._arrangement.judged_topology.domain_of(scope)[
                self._arrangement.levels.nodes
            ]
            self._columns[scope] = domains.tolist()
        return self._columns[scope]

    def _live_domains(self, scope: Scope, number: int) -> set[int]:
        stream = self._arrangement.streams[number]
        key = scope, int(self._arrangement.kind[number])
        if key not in self._live:
            self._live[key] = set(self._rule_context(stream, ()).live_domains(scope).tolist())
        return self._live[key]


def _counts_decide(rule: Rule) -> bool:
    """Return whether the number of replicas in each domain decides the rule.

    A preferred rule of this kind ranks nodes and has no violations.
    """
    return rule.counts_domains and rule.repairable


def _scope_of(rule: Rule) -> Scope:
    """Return the scope of a rule that counts by domain."""
    assert rule.scope is not None
    return rule.scope
