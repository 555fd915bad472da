"""Searches for moves of replicas: level by level from the top, family by family, move by move.

The objective is a list of whole numbers, compared from the first: for each level, top first, the
distance of all replicas from their shares; then, for each level again, that of each stream. Streams
whose strategy has them even first (`Balance`), and their dimensions, come before all replicas on
each level. A move inside an element changes nothing on the levels above it. It is made only if it
lowers the objective on its own level, or if it changes nothing there and lowers a later term. The
numbers are not negative, so that the list cannot fall for ever: the search ends where none of the
moves that it tries helps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from placement.rebalance.arrangement import ALL, DIMENSION, LATER, OWN, Arrangement
from placement.rebalance.objective import Objective
from placement.rebalance.rule_gate import RuleGate
from placement.rebalance.shares import Integers
from placement.rules import Mask

# Domains, nodes and replicas looked at from the best on before a pair is given up: a replica that
# may not move is rare where rules leave room, and where they leave none looking at all is no help.
_PAIRS = 12
_NODES = 12
_REPLICAS = 24
# Moves for a later term that are tried in vain, for the families of one level: each is compared in
# every earlier term.
_CHECKS = 400
KINDS = (OWN, DIMENSION, ALL)
# Groups of kinds: the second is compared once the first is as good as it can be on all levels.
GROUPS = (KINDS, (LATER,))


@dataclass(slots=True)
class Budget:
    """The moves that a plan may still make.

    - `moves`, `per_node`: moves left, and most moves per node; None: no limit.
    - `one_per_shard`: a shard gets one move of any kind.
    - `leads_along`: the move of a shard may change its leader too.
    - `reached`: whether a limit kept a move out of the plan.
    - `touched`: moves by node; `shards`: shards that have a move.
    """

    moves: int | None = None
    per_node: int | None = None
    one_per_shard: bool = False
    leads_along: bool = False
    reached: bool = False
    touched: dict[int, int] = field(default_factory=dict)
    shards: set[int] = field(default_factory=set)

    def has_node_room(self, node: int, size: int) -> bool:
        """Return whether the node may take part in `size` more moves; sets `reached` if not."""
        if self.per_node is None or self.touched.get(node, 0) + size <= self.per_node:
            return True
        self.reached = True
        return False

    def has_room_for(self, shards: Sequence[int]) -> bool:
        """Return whether each of these shards may have one more move; sets `reached` if not."""
        if self.moves is not None and len(shards) > self.moves:
            self.reached = True
            return False
        if self.one_per_shard and not self.shards.isdisjoint(shards):
            self.reached = True
            return False
        return True

    def may_change_leader(self, shard: int) -> bool:
        """Return whether the shard's leader may change; sets `reached` if not.

        A change of leader copies nothing, and takes only the shard's one move.
        """
        taken = self.one_per_shard and not self.leads_along and shard in self.shards
        self.reached |= taken
        return not taken

    def spend(self, shards: Sequence[int], *nodes: int) -> None:
        """Count one move of each shard between two nodes."""
        if self.moves is not None:
            self.moves -= len(shards)
        self.shards.update(shards)
        for node in nodes:
            self.touched[node] = self.touched.get(node, 0) + len(shards)


class ReplicaBalancer:
    """Finds and makes single moves.

    - `steps`: each move as item, source and target.
    - `swaps`: positions in `steps` of moves that belong together with the next one.
    """

    def __init__(self, arrangement: Arrangement, gate: RuleGate, budget: Budget) -> None:
        self.arrangement, self._gate, self.budget = arrangement, gate, budget
        self._levels = arrangement.levels
        self.objective = Objective(
            arrangement.levels, arrangement.tallies, arrangement.family, GROUPS, arrangement.size
        )
        self._checks = 0
        self._blocked: set[tuple[int, ...]] = set()
        self.steps: list[tuple[int, int, int]] = []
        self.swaps: set[int] = set()

    def improve(self) -> bool:
        """Make moves until no single move improves; returns whether one was made."""
        self._blocked.clear()
        changed = False
        for group in GROUPS:
            for level in range(1, self._levels.last + 1):
                movable = self.find_movable(level - 1)
                for kind in group:
                    self._checks = _CHECKS
                    for family, parent in self.arrangement.tallies[kind].uneven_families(level):
                        while (movable[parent] or self.budget.moves == 0) and self._step(
                            level, kind, family, parent
                        ):
                            changed = True
        return changed

    def _step(self, level: int, kind: int, family: int, parent: int) -> bool:
        """Make one move of the family between two elements inside `parent`, if one helps."""
        tally = self.arrangement.tallies[kind]
        elements = self._levels.children(level, parent)
        elements = elements[tally.has_share(level, family, elements)]
        if len(elements) < 2 or self.budget.moves == 0:
            self.budget.reached |= len(elements) >= 2
            return False
        held, movable = tally.counts[level][family, elements], self.find_movable(level)
        able = elements[(held > 0) & movable[elements]]
        burden = tally.change_of(level, family, elements, 1)
        if (-tally.change_of(level, family, able, -1)).max(initial=0) <= burden.min():
            return False  # what may move gives less relief than it is a burden anywhere
        relief = -tally.change_of(level, family, elements, -1)
        pressure = self._pressure(level, elements)
        givers = np.lexsort((elements, -pressure, -relief))
        givers = givers[held[givers] > 0][:_PAIRS]
        takers = np.lexsort((elements, pressure, burden))[:_PAIRS]
        if kind == ALL and level == self._levels.last:
            givers, takers = self._order_equals(
                elements, givers, takers, (relief, pressure), (burden, pressure)
            )
        for giver in givers.tolist():
            if not movable[elements[giver]]:
                continue
            for taker in takers.tolist():
                if relief[giver] <= burden[taker]:
                    break
                pair = int(elements[giver]), int(elements[taker])
                key = (level, kind, family, *pair)
                if key not in self._blocked:
                    if self._move(level, kind, family, *pair):
                        return True
                    self._blocked.add(key)
        return False

    def find_movable(self, level: int) -> Mask:
        """Mask the elements of a level that have an item which may move. What moves inside an
        element changes nothing of it."""
        arrangement, of = self.arrangement, self._levels.of[level]
        found = np.zeros(self._levels.size(level), bool)
        found[of[arrangement.node[arrangement.free]]] = True
        return found

    def _order_equals(
        self,
        elements: Integers,
        givers: Integers,
        takers: Integers,
        give: tuple[np.ndarray, np.ndarray],
        take: tuple[np.ndarray, np.ndarray],
    ) -> tuple[Integers, Integers]:
        """Put the pair of nodes in front between which a stream becomes most even.

        Only nodes that give, and take, as well as the first of their order.
        """
        if not len(givers) or not len(takers):
            return givers, takers
        alike = [
            ranked[np.logical_and.reduce([key[ranked] == key[ranked[0]] for key in keys])]
            for ranked, keys in ((givers, give), (takers, take))
        ]
        pair = self._find_evenest_pair(self._levels.last, elements[alike[0]], elements[alike[1]])
        if pair is None:
            return givers, takers
        giver, taker = (int(np.flatnonzero(elements == node)[0]) for node in pair)
        return _put_in_front(givers, giver), _put_in_front(takers, taker)

    def _move(self, level: int, kind: int, family: int, source: int, target: int) -> bool:
        """Move one item of the family from one element to the other, if allowed."""
        arrangement = self.arrangement
        givers = self._levels.members(level, source)
        givers = givers[arrangement.tallies[kind].counts[-1][family, givers] > 0]
        takers = self._levels.members(level, target)
        takers = takers[arrangement.eligible[takers] & arrangement.has_room(takers, 1)]
        givers = self.rank_nodes(level, kind, family, givers, -1)
        takers = self.rank_nodes(level, kind, family, takers, 1)
        if not len(givers) or not len(takers):
            return False
        if kind == ALL:
            givers, takers = self._order_by_stream(level, givers, takers)
        first, best = int(givers[0]), int(takers[0])
        if self._transfer(level, self.items_of(kind, family, first), first, best):
            return True
        possible = self._possible_items(level, kind, family, source, target)
        if not possible.any():
            return False
        for giver in givers[:_NODES].tolist():
            items = self.items_of(kind, family, giver)
            items = items[possible[items]]
            for taker in takers[:_NODES].tolist() if len(items) else ():
                if self._transfer(level, items, giver, taker):
                    return True
        return False

    def _order_by_stream(
        self, level: int, givers: Integers, takers: Integers
    ) -> tuple[Integers, Integers]:
        """Order givers and takers: of equal ones those first that make a stream most even."""
        pair = self._find_evenest_pair(
            level, self._equals_of_first(level, givers, -1), self._equals_of_first(level, takers, 1)
        )
        if pair is None:
            return givers, takers
        return _put_in_front(givers, pair[0]), _put_in_front(takers, pair[1])

    def _find_evenest_pair(
        self, level: int, givers: Integers, takers: Integers
    ) -> tuple[int, int] | None:
        """Find the nodes between which a move gains most for its stream on this level.

        None if nothing distinguishes them.
        """
        arrangement = self.arrangement
        one_stream = len(arrangement.tallies[LATER].kinds) < 2
        if one_stream or (len(givers) < 2 and len(takers) < 2):
            return None
        items = np.concatenate([self.items_of(ALL, 0, node) for node in givers.tolist()])
        items = items[arrangement.family[LATER][items] >= 0]
        if not len(items):
            return None
        families, sizes, here = (
            arrangement.family[LATER][items],
            arrangement.size[items],
            arrangement.node[items],
        )
        of, tally = self._levels.of[level], arrangement.tallies[LATER]
        leaves = tally.change_of(level, families, of[here], -sizes, strict=True)
        costs = np.stack(
            [
                leaves
                + tally.change_of(level, families, np.full(len(items), e), sizes, strict=True)
                for e in of[takers].tolist()
            ]
        )
        taker, which = divmod(int(np.argmin(costs)), len(items))
        return int(here[which]), int(takers[taker])

    def _equals_of_first(self, level: int, nodes: Integers, more: int) -> Integers:
        """Select the first of ranked nodes and those that give or take as well."""
        nodes = nodes[:_NODES]
        if len(nodes) < 2:
            return nodes
        tally, family = self.arrangement.tallies[ALL], np.zeros(len(nodes), np.int64)
        equal = np.ones(len(nodes), bool)
        for m in self._levels_from(level + 1):
            elements = self._levels.of[m][nodes]
            for key in (tally.change_of(m, family, elements, more), self._pressure(m, elements)):
                equal &= key == key[0]
        return nodes[equal]

    def items_of(self, kind: int, family: int, node: int) -> Integers:
        """Find the items of the family on a node that may move."""
        items = self.arrangement.items_on(node)
        found: Integers = items[
            self.arrangement.free[items] & (self.arrangement.family[kind][items] == family)
        ]
        return found

    def _possible_items(self, level: int, kind: int, family: int, source: int, target: int) -> Mask:
        """Mask the items that the rules may let go from one element to the other."""
        arrangement = self.arrangement
        inside = self._levels.of[level][arrangement.node] == source
        mask: Mask = inside & arrangement.free & (arrangement.family[kind] == family)
        items = np.flatnonzero(mask)
        takers = self._levels.members(level, target)
        mask[items] = self._gate.may_pass(items, takers)
        return mask

    def _transfer(self, level: int, items: Integers, source: int, target: int) -> bool:
        """Make the best move of one of the items that improves the level and is allowed."""
        arrangement, budget = self.arrangement, self.budget
        for item in self._improving_items(level, items, source, target)[:_REPLICAS].tolist():
            shards = arrangement.table_shards(item)
            fits = budget.has_node_room(source, len(shards)) and budget.has_node_room(
                target, len(shards)
            )
            if not fits or not budget.has_room_for(shards) or not self.is_allowed(item, target):
                continue
            if not self._lowers_objective(level, item, source, target):
                continue
            arrangement.move(item, target)
            budget.spend(shards, source, target)
            self.steps.append((item, source, target))
            return True
        return False

    def _lowers_objective(self, level: int, item: int, source: int, target: int) -> bool:
        """Return whether an improving move lowers the whole objective.

        A move that changes its own level does; else all earlier terms are compared, `_CHECKS` times
        at most.
        """
        one = np.asarray([item])
        if any(self.change_of(level, kind, one, source, target)[0] for kind in KINDS):
            return True
        self._checks -= 1
        return self._checks >= 0 and self.objective.is_lowered_by([(item, source, target)])

    def is_allowed(self, item: int, target: int) -> bool:
        """Return whether policy and rules let the item go to the node; its room is not checked."""
        arrangement = self.arrangement
        admitted = arrangement.admitted[arrangement.kind[arrangement.stream[item]], target]
        fits = bool(admitted) and arrangement.fits(item, target)
        return fits and self._gate.allows_move(item, target)

    def is_improvement(self, item: int, target: int) -> bool:
        """Return whether the item's move is allowed and improves the objective, regardless of the
        budget."""
        source, of = int(self.arrangement.node[item]), self._levels.of
        level = next(m for m, each in enumerate(of) if each[source] != each[target])
        better = self._improving_items(level, np.asarray([item]), source, target)
        self._checks = 1
        return (
            len(better) > 0
            and self.is_allowed(item, target)
            and self._lowers_objective(level, item, source, target)
        )

    def _improving_items(self, level: int, items: Integers, source: int, target: int) -> Integers:
        """Find the items whose move lowers the objective, best first.

        By the effect on this level, then on those below; then followers before leaders, and items
        that have not moved yet.
        """
        arrangement = self.arrangement
        items = arrangement.acceptable_items(items, target)
        changes = [self.change_of(level, kind, items, source, target) for kind in KINDS]
        own, dimension, everything = changes
        better = (own < 0) | (
            (own == 0) & ((dimension < 0) | ((dimension == 0) & (everything < 0)))
        )
        same = (own == 0) & (dimension == 0) & (everything == 0)
        for m in self._levels_from(level) if same.any() else ():
            later = self.change_of(m, LATER, items, source, target)
            better |= same & (later < 0)
            same &= later == 0
        better &= arrangement.has_room(np.full(len(items), target), arrangement.size[items])
        keep = np.flatnonzero(better)
        if len(keep) < 2:
            return items[keep]
        items = items[keep]
        deeper = [
            self.change_of(below, kind, items, source, target)
            for below in self._levels_from(level + 1)
            for kind in KINDS
        ]
        deeper += [
            self.change_of(below, LATER, items, source, target, strict=True)
            for below in self._levels_from(level)
        ]
        last = [arrangement.moved[items], arrangement.slot[items] == 0, items]
        keys = [*(change[keep] for change in changes), *deeper, *last]
        return items[np.lexsort(keys[::-1])]

    def _levels_from(self, level: int) -> range:
        return range(level, self._levels.last + 1)

    def change_of(
        self,
        level: int,
        kind: int,
        items: Integers,
        source: int,
        target: int,
        strict: bool = False,
    ) -> Integers:
        """Compute the effect of each item's move on its family of one kind on one level.

        Negative numbers are improvements; `strict`: without slack.
        """
        arrangement = self.arrangement
        result = np.zeros(len(items), np.int64)
        one, other = (int(self._levels.of[level][node]) for node in (source, target))
        known = np.flatnonzero(arrangement.family[kind][items] >= 0)
        if one == other or not len(known):
            return result
        families, sizes = arrangement.family[kind][items[known]], arrangement.size[items[known]]
        tally = arrangement.tallies[kind]
        leaves = tally.change_of(level, families, np.full(len(known), one), -sizes, strict)
        comes = tally.change_of(level, families, np.full(len(known), other), sizes, strict)
        result[known] = leaves + comes
        return result

    def rank_nodes(
        self, level: int, kind: int, family: int, nodes: Integers, more: int
    ) -> Integers:
        """Rank nodes as givers (`more` is -1) or takers (`more` is 1), best first.

        By the effect on the levels below; then givers from the most loaded, takers from the least
        loaded.
        """
        arrangement = self.arrangement
        if len(nodes) < 2:
            return nodes
        kinds = {ALL: [(ALL, 0)], LATER: [(ALL, 0), (LATER, family)]}.get(
            kind, [(kind, family), (ALL, 0)]
        )
        below = range(level + 1, self._levels.last + 1)
        keys = [
            arrangement.tallies[k].change_of(
                m, np.full(len(nodes), f), self._levels.of[m][nodes], more
            )
            for m in below
            for k, f in kinds
        ]
        keys += [more * self._pressure(m, self._levels.of[m][nodes]) for m in below]
        keys.append(nodes)
        return nodes[np.lexsort(keys[::-1])]

    def _pressure(self, level: int, elements: Integers) -> np.ndarray:
        """Compute the replicas per weight of each element."""
        return self.arrangement.tallies[ALL].pressure(level, elements)


def _put_in_front(nodes: Integers, first: int) -> Integers:
    """Put one of the nodes before all others."""
    return np.concatenate([nodes[nodes == first], nodes[nodes != first]])
