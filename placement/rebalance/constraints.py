"""Decides which changes the rules allow: none may break a shard's rules more than they are broken.

Every rule is asked before and after, as diagnosis asks it. What a rule says of counts by domain is
asked once for every pattern of counts; rules of the stream that only compare nodes are answered
without looking at the whole stream.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from placement.assignments import EMPTY
from placement.rebalance.arrangement import Arrangement, StreamArrangement
from placement.rebalance.shares import Integers
from placement.rules import (
    Mask,
    Rule,
    RuleContext,
    RuleSet,
)
from placement.topology import NO_DOMAIN, Scope

_Pattern = tuple[tuple[int, ...], tuple[int, ...], int, int]


class RuleGate:
    """Asks the rules of the board's streams."""

    def __init__(self, board: Arrangement) -> None:
        self._board = board
        self._nodes = board.levels.nodes.tolist()
        self._columns: dict[Scope, list[int]] = {}
        self._live: dict[tuple[Scope, int], set[int]] = {}
        self._known: dict[tuple[int, int, _Pattern], int] = {}

    @property
    def minds_order(self) -> bool:
        """Whether it may matter to a replica's move which one leads."""
        board = self._board
        if not board.can_lead[board.eligible].all():
            return True
        return any(RuleSet(each.rules).orders_slots for each in board.streams)

    def allows(self, item: int, target: int) -> bool:
        """Whether the item may go to the node, as far as its shard's rules are concerned."""
        board = self._board
        number = int(board.stream[item])
        stream, row = board.streams[number], board.row(item)
        if target in row:
            return False
        slot, source = int(board.slot[item]), int(board.node[item])
        if slot == 0 and not board.can_lead[target] and board.can_lead[source]:
            return False
        after = list(row)
        after[slot] = target
        before = [node for node in row if node != EMPTY]
        changed = [node for node in after if node != EMPTY]
        for place, rule in enumerate(stream.rules):
            if _judged_by_counts(rule):
                if not self._counts_allow(number, place, rule, before, changed, source, target):
                    return False
            elif not self._allows(stream, rule, item, row, after):
                return False
        return True

    def may_pass(self, items: Integers, takers: Integers) -> Mask:
        """Mask the items that rules by counts would let go to one of the nodes.

        Only rules by which all of these nodes are one are asked, so that a yes is not yet a
        permission.
        """
        result = np.ones(len(items), bool)
        of = self._board.stream[items]
        for number in np.unique(of).tolist():
            stream = self._board.streams[number]
            where = np.flatnonzero(of == number)
            for place, rule in enumerate(stream.rules):
                counts = _judged_by_counts(rule)
                if not counts or not len(where):
                    continue
                column = np.asarray([*self._column(_scope(rule)), NO_DOMAIN])
                if len(np.unique(column[takers])) == 1:
                    allowed = self._pass_one(number, place, rule, items[where], int(takers[0]))
                    result[where[~allowed]] = False
                    where = where[allowed]
        return result

    def _pass_one(self, number: int, place: int, rule: Rule, items: Integers, target: int) -> Mask:
        """Mask the items of one stream that one rule lets go to the target's domain.

        Items whose shards have the same pattern are asked about once.
        """
        board = self._board
        shards, slots = board.shard[items], board.slot[items]
        rows = board.streams[number].rows[shards]
        domains = np.asarray([*self._column(_scope(rule)), NO_DOMAIN])[rows]
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
        """Whether the shard's replicas may stand in this order."""
        row = stream.rows[shard].tolist()
        for rule in stream.rules:
            if rule.ranks_leaders:
                rank = rule.leader_rank(self._board.topology)
                if rank[self._nodes[after[0]]] > rank[self._nodes[row[0]]]:
                    return False
            elif rule.slot_order_matters and (
                self._broken(stream, rule, after) > self._broken(stream, rule, row)
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
        column = self._column(_scope(rule))
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
        """Count how much is wrong with a shard whose replicas stand in these domains."""
        live = self._live_of(_scope(rule), number)
        counts = Counter(domains)
        nowhere = counts.pop(NO_DOMAIN, 0)
        unlocated = self._board.judging.unlocated
        aside = counts.pop(unlocated, 0) if rule.leaves_out_unlocated else 0
        alive = tuple(sorted(count for domain, count in counts.items() if domain in live))
        others = tuple(sorted(count for domain, count in counts.items() if domain not in live))
        key = (number, place, (alive, others, nowhere, aside))
        if key not in self._known:
            stream = self._board.streams[number]
            self._known[key] = self._ask(rule, self._standing(stream, nodes))
        return self._known[key]

    def _allows(
        self, stream: StreamArrangement, rule: Rule, item: int, row: list[int], after: list[int]
    ) -> bool:
        """Rules that look at more than counts."""
        board, shard = self._board, int(self._board.shard[item])
        slot = int(board.slot[item])
        source, target = row[slot], after[slot]
        told = rule.allows_move(
            self._standing(stream, ()),
            self._nodes[source],
            self._nodes[target],
            lambda: bool((stream.rows == target).any()),
        )
        if told is not None:
            return told
        if rule.needs_whole_stream:
            return self._stream_allows(stream, rule, shard, row, after, int(board.size[item]))
        then = self._broken(stream, rule, after)
        return not then or then <= self._broken(stream, rule, row)

    def _stream_allows(
        self,
        stream: StreamArrangement,
        rule: Rule,
        shard: int,
        row: list[int],
        after: list[int],
        size: int,
    ) -> bool:
        """A rule on the whole stream, and on the load of the cluster."""
        others = np.delete(stream.rows, shard, axis=0)
        source = next(node for node, other in zip(row, after, strict=True) if node != other)
        target = next(node for node, other in zip(after, row, strict=True) if node != other)
        moved = np.where(others == source, target, others) if stream.unit else others
        load = self._board.load.copy()
        before = self._wide(stream, rule, row, others, load)
        load[source] -= size
        load[target] += size
        return self._wide(stream, rule, after, moved, load) <= before

    def _wide(
        self,
        stream: StreamArrangement,
        rule: Rule,
        row: Sequence[int],
        others: np.ndarray,
        load: np.ndarray,
    ) -> int:
        elsewhere = [self._nodes[node] for node in others.ravel().tolist() if node != EMPTY]
        by_index = np.zeros(len(load), np.int64)
        by_index[self._board.levels.nodes] = load
        return self._ask(rule, self._standing(stream, row, elsewhere, by_index))

    def _broken(self, stream: StreamArrangement, rule: Rule, row: Sequence[int]) -> int:
        return self._ask(rule, self._standing(stream, row))

    def _ask(self, rule: Rule, standing: RuleContext) -> int:
        return sum(
            max(abs(finding.count - finding.limit), 1) for finding in rule.violations(standing)
        )

    def _standing(
        self,
        stream: StreamArrangement,
        row: Sequence[int],
        elsewhere: Sequence[int] = (),
        load: np.ndarray | None = None,
    ) -> RuleContext:
        return RuleContext(
            self._board.judging,
            stream.copies,
            [self._nodes[node] for node in row if node != EMPTY],
            elsewhere,
            stream.policy.nodes,
            stream.spec.shards,
            [slot for slot, node in enumerate(row) if node != EMPTY],
            load=load,
        )

    def _column(self, scope: Scope) -> list[int]:
        """Domain of each node by rank."""
        if scope not in self._columns:
            domains = self._board.judging.domain_of(scope)[self._board.levels.nodes]
            self._columns[scope] = domains.tolist()
        return self._columns[scope]

    def _live_of(self, scope: Scope, number: int) -> set[int]:
        stream = self._board.streams[number]
        key = scope, int(self._board.kind[number])
        if key not in self._live:
            self._live[key] = set(self._standing(stream, ()).live_domains(scope).tolist())
        return self._live[key]


def _judged_by_counts(rule: Rule) -> bool:
    """Whether the number of replicas in each domain decides all of the rule.

    A preferred rule of this kind ranks nodes and has no violations.
    """
    return rule.counts_domains and rule.repairable


def _scope(rule: Rule) -> Scope:
    """The scope of a rule that counts by domain."""
    assert rule.scope is not None
    return rule.scope
