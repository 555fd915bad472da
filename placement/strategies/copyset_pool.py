"""Copysets: the few sets of nodes on which the shards of one policy may stand.

`placement.strategies.copysets` asks for them; `placement.assignments.risk` says what they are
worth. They are derived from the sets in use and the topology alone, so that a rebuild finds the
same ones.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from placement.hashing import digest64, scores
from placement.model import DEPTH_MAX
from placement.rules import Rule, RuleContext, RuleSet, Strength
from placement.topology import LEAF, NodeFilter, Scope, Topology

Copyset = tuple[int, ...]
# On a small fleet a permutation may repeat pairs or leave nodes over; it is then drawn again. On a
# large one that costs less than a hundredth of the sets, and a draw takes long.
_DRAWS_MAX = 16
_DRAWN_AGAIN_MAX = 100

_Found = NDArray[np.int64]
_Keys = list[NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of the sets: `factor` nodes that `nodes` admits and that keep `rules`.

    Every node shares sets with at least `width` others. Any member may lead that the rules let.
    """

    topology: Topology
    factor: int
    width: int
    rules: tuple[Rule, ...]
    nodes: NodeFilter

    def rule_context(self, members: Sequence[int]) -> RuleContext:
        """Build the context in which rules judge the members as one shard."""
        return RuleContext(
            topology=self.topology,
            replication_factor=self.factor,
            replicas=members,
            nodes=self.nodes,
        )

    def is_lawful(self, members: Sequence[int]) -> bool:
        """Return whether a complete set keeps the required rules."""
        standing = self.rule_context(members)
        required = [rule for rule in self.rules if rule.strength is Strength.REQUIRED]
        orders = RuleSet(required).leader_preferences
        return all(
            rule.leader_rank(self.topology)[list(members)].min() < len(rule.domains)
            for rule in orders
        ) and not any(rule.violations(standing) for rule in required if rule not in orders)

    def first_members(self) -> NDArray[np.bool_]:
        """Mask the nodes that break no required rule as the first member of a set."""
        standing, allowed = self.rule_context(()), np.ones(self.topology.size, bool)
        for rule in self.rules:
            if rule.strength is Strength.REQUIRED:
                allowed &= rule.penalty(standing) == 0
        return allowed


class Copysets:
    """The sets in use, their replacements, and new ones.

    A set that lost a member is replaced; new ones come until the scatter width is reached.

    Method: Cidon et al. (USENIX ATC 2013) for the first sets: random permutations cut into groups,
    here with groups that break a rule passed over; Cidon et al., "Tiered Replication" (USENIX ATC
    2015) for what is missing after that and for nodes that join: while a node shares sets with too
    few others, a set starts at it and takes the candidates that share with the fewest. A node that
    leaves is replaced once in each of its sets. `short` lists nodes that no rule excludes and that
    yet reach too few others, with what they reach.
    """

    def __init__(self, terms: Terms, known: Iterable[Sequence[int]] = ()) -> None:
        topology = terms.topology
        self.terms = terms
        self.short: list[tuple[int, int]] = []
        self._order = topology.order()
        admitted = terms.nodes.mask(topology)
        self._pool = topology.eligible & admitted & terms.first_members()
        self._stays = (
            np.asarray([_stays(topology, n) for n in range(topology.size)], bool) & admitted
        )
        self._partners: defaultdict[int, set[int]] = defaultdict(set)
        self._reach = np.zeros(topology.size, np.int64)
        self._memberships = np.zeros(topology.size, np.int64)
        self._sets: dict[Copyset, None] = {}
        self._lawful: dict[Copyset, bool] = {}
        self._of: defaultdict[int, list[Copyset]] = defaultdict(list)
        self._replace_leavers({self._sort_members(members) for members in known})
        if terms.factor == 1:
            self._add_singles()
        else:
            self._permute(max(1, ceil(terms.width / (terms.factor - 1))))
            self._top_up()

    @property
    def sets(self) -> list[Copyset]:
        """List all sets, members in the natural order of their ids."""
        return list(self._sets)

    def reach(self, node: int) -> int:
        """Count the other nodes with which the node shares sets."""
        return int(self._reach[node])

    def usable_sets(self, mask: NDArray[np.bool_], kept: Sequence[int] = ()) -> NDArray[np.int64]:
        """List the lawful sets around `kept` whose other members are all in `mask`, one per row."""
        sets = self._of[kept[0]] if kept else self.sets
        found = np.asarray(sets, np.int64).reshape(-1, self.terms.factor)
        for node in kept[1:]:
            found = found[(found == node).any(axis=1)]
        open_nodes = mask.copy()
        open_nodes[list(kept)] = True
        found = found[open_nodes[found].all(axis=1)]
        lawful = [self._is_lawful(members) for members in map(tuple, found.tolist())]
        usable: NDArray[np.int64] = found[np.asarray(lawful, bool)]
        return usable

    def keep_preferred(self, sets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Keep the sets (rows) that break the preferred rules least."""
        wishes = (r for r in self.terms.rules if r.strength is Strength.PREFERRED)
        for rule in wishes:
            # The leader of a set is chosen later.
            if len(sets) > 1 and not rule.ranks_leaders:
                broken = [self._excess(rule, row) for row in sets.tolist()]
                sets = sets[np.asarray(broken) == min(broken)]
        return sets

    def complete(
        self, kept: Sequence[int], mask: NDArray[np.bool_], near: int | None
    ) -> Copyset | None:
        """Grow a new set around the members that stay, near the replaced member."""
        rank = scores(self._seed("replace", kept), self.terms.topology.digests)
        return self._grow(list(kept), mask, rank, near=near)

    def add(self, members: Sequence[int]) -> None:
        """Add a set."""
        named = self._sort_members(members)
        if named in self._sets:
            return
        self._sets[named] = None
        for node in named:
            self._partners[node].update(named)
            self._partners[node].discard(node)
            self._reach[node] = len(self._partners[node])
            self._memberships[node] += 1
            self._of[node].append(named)

    def _is_lawful(self, members: Copyset) -> bool:
        if members not in self._lawful:
            self._lawful[members] = self.terms.is_lawful(members)
        return self._lawful[members]

    def _excess(self, rule: Rule, members: Sequence[int]) -> int:
        found = rule.violations(self.terms.rule_context(members))
        return sum(abs(each.count - each.limit) for each in found)

    def _sort_members(self, members: Iterable[int]) -> Copyset:
        return tuple(sorted(set(members), key=lambda node: int(self._order[node])))

    def _seed(self, what: str, members: Iterable[int]) -> int:
        ids = (self.terms.topology.ids[node] for node in self._sort_members(members))
        return digest64("copysets", what, self.terms.factor, *ids)

    def _replace_leavers(self, known: set[Copyset]) -> None:
        """Keep the sets in use, with a new member in place of each lost one.

        A set may also continue as the set that others of its shards have already moved to.
        """
        by_name = sorted(known, key=lambda members: [int(self._order[node]) for node in members])
        broken = []
        for members in by_name:
            if len(members) != self.terms.factor:
                continue
            if any(not self._stays[node] for node in members):
                broken.append(members)
            else:
                self.add(members)
        for members in broken:
            kept = [node for node in members if self._stays[node]]
            if not kept or any(set(kept) <= set(each) for each in self._of[kept[0]]):
                continue
            gone = next(node for node in members if not self._stays[node])
            grown = self.complete(kept, self._pool, gone)
            if grown is not None:
                self.add(grown)

    def _add_singles(self) -> None:
        for node in np.flatnonzero(self._pool).tolist():
            if self.terms.is_lawful([node]):
                self.add([node])

    def _permute(self, rounds: int) -> None:
        """Cut permutations of the nodes into sets, one permutation a round."""
        for number in range(rounds):
            free = self._pool & (self._memberships <= number)
            draws = _DRAWS_MAX if int(free.sum()) <= _DRAWN_AGAIN_MAX else 1
            best, least = [], (free.size + 1, 0)
            for attempt in range(draws):
                groups = self._draw(number, attempt, free)
                left = int(free.sum()) - len(groups) * self.terms.factor
                repeated = sum(int(self._count_shared(each)[list(each)].sum()) for each in groups)
                if (left, repeated) < least:
                    best, least = groups, (left, repeated)
                if left < self.terms.factor and not repeated:
                    break
            for group in best:
                self.add(group)

    def _draw(self, number: int, attempt: int, free: NDArray[np.bool_]) -> list[Copyset]:
        """Draw one permutation of the free nodes and cut it into groups."""
        seed = digest64("copysets", number, attempt, self.terms.factor)
        rank = scores(seed, self.terms.topology.digests)
        free = free.copy()
        starts = np.flatnonzero(free)
        groups = []
        for node in starts[np.argsort(rank[starts])].tolist():
            if not free[node]:
                continue
            grown = self._grow([node], self._pool, rank, free=free)
            if grown is not None:
                groups.append(grown)
                free[list(grown)] = False
        return groups

    def _top_up(self) -> None:
        """Add sets for the nodes that share sets with too few others, the fewest first."""
        topology = self.terms.topology
        rank = scores(digest64("copysets", "greedy", self.terms.factor), topology.digests)
        nodes = np.flatnonzero(self._pool).tolist()
        for node in sorted(nodes, key=lambda n: (self.reach(n), int(rank[n]))):
            while self.reach(node) < self.terms.width:
                before = self.reach(node)
                grown = self._grow([node], self._pool, rank, start=node)
                if grown is not None:
                    self.add(grown)
                if self.reach(node) == before:
                    if before:
                        self.short.append((node, before))
                    break

    def _grow(
        self,
        members: list[int],
        pool: NDArray[np.bool_],
        rank: NDArray[np.uint64],
        free: NDArray[np.bool_] | None = None,
        start: int | None = None,
        near: int | None = None,
    ) -> Copyset | None:
        """Complete the set of these members; None if the rules leave no candidate.

        Required rules, then preferred ones, decide who is a candidate. Of these come first: the
        `free` ones, those that `start` has no set with, those `near` a node; then those that no
        member has a set with, then those that share with the fewest, then the first by rank.
        """
        topology = self.terms.topology
        while len(members) < self.terms.factor:
            found = self._allowed_members(members, pool)
            if start is not None:
                found = _keep_least(found, self._count_shared([start]))
            standing = self.terms.rule_context(members)
            for rule in self.terms.rules:
                if rule.strength is Strength.PREFERRED:
                    found = _keep_least(found, rule.penalty(standing))
            if free is not None:
                found = found[free[found]]
            if not len(found):
                return None
            keys: _Keys = [] if near is None else [_count_climbs(topology, near)]
            keys.append(self._count_shared(members))
            if free is None:
                keys.append(self._reach)
            for key in (*keys, rank):
                found = _keep_least(found, key)
            members = [*members, int(found[0])]
        return self._sort_members(members)

    def _allowed_members(self, members: Sequence[int], pool: NDArray[np.bool_]) -> _Found:
        """Find the candidates for one more member that break no required rule.

        The last member can lead if no other can.
        """
        topology = self.terms.topology
        open_nodes = pool.copy()
        open_nodes[list(members)] = False
        if len(members) == self.terms.factor - 1 and not topology.can_lead[list(members)].any():
            open_nodes &= topology.can_lead
        found = np.flatnonzero(open_nodes)
        standing = self.terms.rule_context(members)
        for rule in self.terms.rules:
            if rule.strength is Strength.REQUIRED and len(found):
                found = found[rule.penalty(standing)[found] == 0]
        return found

    def _count_shared(self, members: Iterable[int]) -> NDArray[np.int64]:
        """Count for each node the members with which it shares a set."""
        shared = np.zeros(self.terms.topology.size, np.int64)
        for member in members:
            shared[list(self._partners[member])] += 1
        return shared


def _stays(topology: Topology, node: int) -> bool:
    return not topology.is_draining(node) and not topology.is_dead(node)


def _keep_least(found: _Found, key: NDArray[np.generic]) -> _Found:
    if len(found) < 2:
        return found
    values = key[found]
    least: _Found = found[values == values.min()]
    return least


def _count_climbs(topology: Topology, node: int) -> NDArray[np.int64]:
    """Count the levels of `node`'s path that each node does not share."""
    place = topology.locations[node]
    climbs = np.full(topology.size, place.depth + 1, np.int64)
    for depth in range(1, place.depth + 1):
        domains = topology.domain_of(Scope(depth=min(depth, DEPTH_MAX)))
        climbs[domains == domains[node]] = place.depth + 1 - depth
    leaf = topology.domain_of(LEAF)
    climbs[leaf == leaf[node]] = 0
    return climbs
