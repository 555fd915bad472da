"""Evens out leaders: a shard puts another of its replicas first, which moves no data.

Leaders come after replicas, with the same kind of objective: the distance of all leaders from their
shares, level by level from the top, then that of each stream's leaders. Where a strategy has
streams even first, their distances come before those of all leaders on each level. A change of
leader affects the first level on which the two nodes differ and those below it. It is made only if
it lowers the objective there, or a later term and no earlier one; so the search ends.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY
from placement.rebalance.arrangement import LEADER_SLACK, Arrangement
from placement.rebalance.leader_chains import LeaderChains, Link, find_leading
from placement.rebalance.objective import Objective
from placement.rebalance.replica_moves import Budget
from placement.rebalance.rule_gate import RuleGate
from placement.rebalance.shares import FamilyCounts, Integers, Slack
from placement.rules import RuleSet

# Nodes and shards looked at from the best on before a pair of domains is given up.
_NODES = 24
_SHARDS = 48

# Kinds of families: of a stream that comes first, of all, of a stream that comes after.
FIRST, EVERY, AFTER = range(3)
GROUPS = ((FIRST, EVERY), (AFTER,))


class LeaderBalancer:
    """Finds and makes changes of leaders.

    - `steps`: each change as shard (by index in the table), slot of the new leader, old and new
      leader (by rank).
    - `chains`: by position in `steps`, for the links of a chain: number of the link, and both ends
      of the chain.
    """

    def __init__(
        self, arrangement: Arrangement, gate: RuleGate, budget: Budget, moving: set[int]
    ) -> None:
        self._arrangement, self._gate, self._budget = arrangement, gate, budget
        levels = arrangement.levels
        of, node, shard, index, free, members = [], [], [], [], [], []
        widest = max((each.rows.shape[1] for each in arrangement.streams), default=1)
        for number, each in enumerate(arrangement.streams):
            firsts = each.rows[:, 0]
            held = np.flatnonzero(firsts != EMPTY)
            held = held[arrangement.eligible[firsts[held]]]
            fixed = each.spec.stream in arrangement.kept or not each.has_leaders
            of.append(np.full(len(held), -1 if fixed else number))
            node.append(firsts[held])
            shard.append(held)
            index.append(each.shards[held])
            members.append(self._members(number, held, widest))
            free.append(np.full(len(held), not (fixed or each.unit)))
        self.stream = _join(of)
        self.node = _join(node)
        self.shard = _join(shard)
        self.members = np.concatenate(members) if members else np.zeros((0, widest), np.int64)
        self.free = _join(free).astype(bool)
        if moving and len(self.free):
            busy = np.isin(_join(index), sorted(moving))
            self.free &= ~busy
        able = arrangement.can_lead & arrangement.eligible
        by_filter, everywhere = arrangement.share_weights(leading=True)
        kinds = arrangement.kind.tolist()
        # Sources that have streams even first have every leader counted.
        exact = arrangement.leads is not None or any(
            not each.totals_first for each in arrangement.streams
        )
        slack = Slack.NONE if exact else LEADER_SLACK
        self.tallies = [
            FamilyCounts(levels, by_filter, kinds),
            FamilyCounts(levels, everywhere, [0], slack, scaled=True),
            FamilyCounts(levels, by_filter, kinds, arrangement.slack),
        ]
        here = able[self.node]
        after = np.asarray([each.totals_first for each in arrangement.streams], bool)[self.stream]
        self._family = [
            np.where(here & ~after, self.stream, EMPTY),
            np.where(here, 0, EMPTY),
            np.where(here & after, self.stream, EMPTY),
        ]
        for kind, (tally, family) in enumerate(zip(self.tallies, self._family, strict=True)):
            if kind != EVERY or arrangement.leads is None:
                tally.fill(family, self.node, np.ones(len(self.node), np.int64))
            else:
                tally.fill_nodes(0, np.where(able, arrangement.leads, 0))
        self._objective = Objective(levels, self.tallies, self._family, GROUPS)
        self.free &= here
        self._on: dict[int, set[int]] = {}
        for item in np.flatnonzero(self.free).tolist():
            self._on.setdefault(int(self.node[item]), set()).add(item)
        self._blocked: set[tuple[int, ...]] = set()
        self.steps: list[tuple[int, int, int, int]] = []
        self.chains: dict[int, tuple[int, int, int]] = {}

    def _members(self, number: int, shards: Integers, widest: int) -> Integers:
        """Find the nodes of each shard that may lead it; EMPTY in other places."""
        arrangement = self._arrangement
        each = arrangement.streams[number]
        plain = each.rows[shards][:, : RuleSet(each.rules).count_possible_leaders(each.copies)]
        able = (plain != EMPTY) & (
            arrangement.admitted[arrangement.kind[number]] & arrangement.can_lead
        )[plain]
        found = np.full((len(shards), widest), EMPTY)
        found[:, : plain.shape[1]] = np.where(able, plain, EMPTY)
        return found

    def run(self) -> None:
        """Change leaders until no change improves the objective."""
        levels, families, of = self._arrangement.levels, self._family, self._objective
        chains = LeaderChains(
            levels, self.tallies, families, self.members, self._on, self._is_allowed, of, GROUPS
        )
        while self._improve() or chains.run(self._make_chain):
            self._blocked.clear()

    def _make_chain(self, links: list[Link]) -> None:
        """Make all links of a chain."""
        ends = int(self.node[links[-1][0]]), links[0][1]
        for number, (item, heir) in enumerate(links):
            self.chains[len(self.steps)] = (number, *ends)
            self._make_leader(item, heir)

    def _improve(self) -> bool:
        changed = False
        for group in GROUPS:
            for level in range(1, self._arrangement.levels.last + 1):
                # A leader changes inside the parent, so that this stays as it is.
                led = find_leading(self._arrangement.levels.of[level - 1], self._on)
                for kind in group:
                    for family, parent in self.tallies[kind].uneven_families(level):
                        while parent in led and self._step(level, kind, family, parent):
                            changed = True
        return changed

    def _step(self, level: int, kind: int, family: int, parent: int) -> bool:
        """Move one leadership of the family between two elements inside `parent`, if one helps."""
        tally, levels = self.tallies[kind], self._arrangement.levels
        elements = levels.children(level, parent)
        elements = elements[tally.has_share(level, family, elements)]
        if len(elements) < 2:
            return False
        relief = -tally.change_of(level, family, elements, -1)
        burden = tally.change_of(level, family, elements, 1)
        held = tally.counts[level][family, elements]
        givers = np.flatnonzero((held > 0) & (relief > burden.min()))
        if not len(givers):
            return False
        pressure = self.tallies[EVERY].pressure(level, elements)
        leading = find_leading(levels.of[level], self._on)
        order = np.lexsort((elements[givers], -pressure[givers], -relief[givers]))
        for giver in givers[order].tolist():
            source = int(elements[giver])
            key = (level, kind, family, source)
            if key in self._blocked:
                continue
            if source not in leading:
                self._blocked.add(key)  # none of the shards in question is led there
                continue
            takers = elements[(burden < relief[giver]) & (elements != source)]
            if self._hand_over(level, kind, family, source, takers):
                return True
            self._blocked.add(key)
        return False

    def _hand_over(self, level: int, kind: int, family: int, source: int, takers: Integers) -> bool:
        """Move the best leadership of the source element to one of the elements `takers`."""
        levels, tally = self._arrangement.levels, self.tallies[kind]
        givers = levels.members(level, source)
        givers = givers[tally.counts[-1][family, givers] > 0]
        load = self.tallies[EVERY].pressure(levels.last, givers)
        wanted = levels.mask_inside(level, takers)
        for giver in givers[np.lexsort((givers, -load))][:_NODES].tolist():
            items = np.fromiter(self._on.get(giver, ()), np.int64)
            items = items[self._family[kind][items] == family]
            for item, heir in self._improving_changes(level, items, giver, wanted):
                if self._is_allowed(item, heir):
                    self._make_leader(item, heir)
                    return True
        return False

    def _improving_changes(
        self, level: int, items: Integers, giver: int, wanted: NDArray[np.bool_]
    ) -> Iterator[tuple[int, int]]:
        """Yield pairs of an item and its new leader that improve the level, best first.

        `wanted`: the nodes that may lead. The order is by the effect on this level, then on those
        below.
        """
        levels = self._arrangement.levels
        heirs = self.members[items]
        fits = (heirs != EMPTY) & (heirs != giver) & wanted[heirs]
        which, column = np.nonzero(fits)
        if not len(which):
            return
        found, nodes = items[which], heirs[which, column]
        first, every = self._costs(level, found, giver, nodes, GROUPS[0])
        better = (first < 0) | ((first == 0) & (every < 0))
        possible = better | ((first == 0) & (every == 0))
        if not possible.any():
            return
        found, nodes, better = found[possible], nodes[possible], better[possible]
        costs = [
            cost
            for group in GROUPS
            for below in range(level, levels.last + 1)
            for cost in self._costs(below, found, giver, nodes, group)
        ]
        order = np.lexsort([found, nodes, *costs[::-1]])[:_SHARDS]
        for each in order.tolist():
            item, heir = int(found[each]), int(nodes[each])
            if better[each] or self._objective.is_lowered_by([(item, giver, heir)]):
                yield item, heir

    def _costs(
        self, level: int, items: Integers, source: int, heirs: Integers, group: tuple[int, ...]
    ) -> list[Integers]:
        """Price each change by the leaders of each kind on a level."""
        of = self._arrangement.levels.of[level]
        one, other = np.full(len(heirs), int(of[source])), of[heirs]
        result = []
        for kind in group:
            tally, families = self.tallies[kind], self._family[kind][items]
            change = tally.change_of(level, families, one, -1)
            change += tally.change_of(level, families, other, 1)
            result.append(np.where((one == other) | (families < 0), 0, change))
        return result

    def _is_allowed(self, item: int, heir: int) -> bool:
        each = self._arrangement.streams[self.stream[item]]
        shard = int(self.shard[item])
        if not self._budget.may_change_leader(int(each.shards[shard])):
            return False
        if not self._arrangement.fits_lead(int(self.stream[item]), shard, heir):
            return False
        after = each.rows[shard].tolist()
        slot = after.index(heir)
        after[0], after[slot] = after[slot], after[0]
        return self._gate.allows_order(each, shard, after)

    def _make_leader(self, item: int, heir: int) -> None:
        each = self._arrangement.streams[self.stream[item]]
        row = each.rows[self.shard[item]]
        slot = row.tolist().index(heir)
        source, target = int(row[0]), heir
        self._arrangement.swap_leader(int(self.stream[item]), int(self.shard[item]), slot)
        for tally, family in zip(self.tallies, self._family, strict=True):
            if family[item] >= 0:
                tally.move(int(family[item]), source, target, 1)
        self.node[item] = target
        self._on[source].discard(item)
        self._on.setdefault(target, set()).add(item)
        shard = int(each.shards[self.shard[item]])
        self._budget.shards.add(shard)
        self.steps.append((shard, slot, source, target))


def _join(columns: list[Integers]) -> Integers:
    return np.concatenate(columns) if columns else np.zeros(0, np.int64)
