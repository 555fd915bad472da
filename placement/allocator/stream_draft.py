"""Base of strategies that place shard by shard in an order of their own: Kafka's and Kudu's.

A `StreamDraft` knows what the stream under placement and all others hold, which nodes the user's
rules leave open, and searches the strategy's order for a shard's replicas. The first of the order
is taken; others are tried only where the user's rules lead into a dead end.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from placement.allocator import kernels
from placement.allocator.choose import choose, explain_shortage, find_unmet
from placement.allocator.leader_election import put_in_front
from placement.allocator.strategy import Strategy
from placement.allocator.view import Placement, ReplicaRequest, View
from placement.assignments import EMPTY
from placement.hashing import digest64
from placement.model import Code, Reason, StreamSpec
from placement.policy import OnInfeasible, Policy
from placement.rules import Mask, RuleContext, RuleSet, Strength

Nodes = NDArray[np.int64]
# Ranks the candidates it is given; the least is best, the next key decides among equals.
Key = Callable[[Nodes], NDArray[np.generic]]
# The keys for the next replica of a shard beside those it has.
Order = Callable[[int, Sequence[int]], list[Key]]

# Dead ends tried per shard. The user's rules are few and count domains: what is not found among so
# many arrangements, best first, has in practice no solution.
_TRIES_MAX = 500


class StreamDraft:
    """A stream being placed.

    `counts` and `leads` are its own replicas and leaders by node, `foreign` and `foreign_leads`
    those of all other streams; `usable` are the nodes that may hold a replica, `fenced` those that
    may hold a follower where nothing else does.
    """

    def __init__(
        self,
        spec: StreamSpec,
        policy: Policy,
        shards: list[list[int]],
        view: View,
        fenced: bool = False,
    ) -> None:
        topology = view.topology
        self.spec, self.policy, self.shards, self.view = spec, policy, shards, view
        self.counts = np.zeros(topology.size, np.int64)
        self.leads = np.zeros(topology.size, np.int64)
        self._by_range: dict[str, NDArray[np.int64]] = {}
        for shard, nodes in enumerate(shards):
            present = np.asarray([node for node in nodes if node != EMPTY], np.int64)
            for counts in (self.counts, self.range_counts(shard)):
                np.add.at(counts, present, 1)
            self.leads[present[:1]] += 1
        self.foreign = view.load - self.counts
        self.foreign_leads = view.leaders - self.leads
        admitted = policy.nodes.mask(topology)
        self.usable: Mask = topology.eligible & admitted
        self.fenced: Mask = topology.fenced & admitted & fenced
        self._required = [rule for rule in policy.rules if rule.strength is Strength.REQUIRED]
        self._preferred = [rule for rule in policy.rules if rule.strength is Strength.PREFERRED]
        self._wide = RuleSet(policy.rules).spans_stream
        # Replicas in the order in which they were taken; a shard's leader need not be the first.
        self.taken = [node for nodes in shards for node in nodes if node != EMPTY]
        # In a colocated stream a node takes a replica of every shard at once.
        self.unit = spec.shards if is_colocated(policy) else 1

    @property
    def start(self) -> int:
        """Choose the position at which Kafka starts at random.

        The policy's `start`; else 0, as in Kafka's documents, on an empty cluster; else a hash of
        the stream's name.
        """
        given = self.policy.parameters.get("start")
        if given is not None:
            return int(given)
        return digest64("start", self.spec.stream) % 2**31 if self.foreign.any() else 0

    def range_counts(self, shard: int) -> NDArray[np.int64]:
        """Count replicas by node of the shards that have the range label of this one."""
        labels = self.spec.ranges or ()
        label = labels[shard] if shard < len(labels) else ""
        return self._by_range.setdefault(label, np.zeros(self.view.topology.size, np.int64))

    def open_nodes(self, shard: int, kept: Sequence[int]) -> Nodes:
        """List the nodes that may take the shard's next replica."""
        mask = (self.usable | self.fenced) & self.view.has_room(self.unit)
        mask[np.asarray(kept, np.int64)] = False
        left = self.spec.replication_factor - len(kept)
        able = self.usable & self.view.topology.can_lead
        if left == 1 and not able[np.asarray(kept, np.int64)].any():
            mask &= able
        if self._required:
            standing = self.rule_context(shard, kept)
            for rule in self._required:
                mask &= rule.penalty(standing) == 0
        return np.flatnonzero(mask)

    def rule_context(self, shard: int, kept: Sequence[int]) -> RuleContext:
        """Build the context in which rules judge the shard."""
        others: list[int] = []
        if self._wide:
            rest = (nodes for s, nodes in enumerate(self.shards) if s != shard)
            others = [node for nodes in rest for node in nodes if node != EMPTY]
        factor = self.spec.replication_factor
        topology, shards = self.view.topology, self.spec.shards
        return RuleContext(topology, factor, kept, others, self.policy.nodes, shards)

    def wishes(self, shard: int, kept: Sequence[int]) -> list[Key]:
        """List the user's preferences: leader preferences, then the preferred rules as written."""
        keys: list[Key] = []
        if not kept:
            topology = self.view.topology
            leads = RuleSet(self.policy.rules).leader_preferences
            keys += [rule.leader_rank(topology).__getitem__ for rule in leads]
        if self._preferred:
            standing = self.rule_context(shard, kept)
            keys += [rule.penalty(standing).__getitem__ for rule in self._preferred]
        return keys

    def fill(self, order: Order, leader: Callable[[list[int]], int] | None = None) -> list[Reason]:
        """Fill the EMPTY slots of every shard, or as many as possible for `partial` streams.

        `leader` names the node that is to lead a shard that had no replica; by default the first
        one placed.
        """
        reasons: dict[Code, Reason] = {}
        for shard, nodes in enumerate(self.shards):
            kept = [node for node in nodes if node != EMPTY]
            if len(kept) == len(nodes):
                continue
            self.view.turn_to(shard)
            whole = self._search(shard, kept, order, [_TRIES_MAX])
            if whole is None:
                reason, whole = self._explain_dead_end(shard, kept, order)
                reasons.setdefault(reason.code, reason)
                if self.policy.on_shortage is not OnInfeasible.PARTIAL or not whole:
                    continue
            self.taken += whole[len(kept) :]
            if not kept and leader:
                first = leader(whole)
                whole = [first, *(node for node in whole if node != first)]
            self.put(shard, kept, whole)
        return list(reasons.values())

    def put(self, shard: int, kept: Sequence[int], whole: list[int]) -> None:
        """Store the new replicas of a shard, those that are not among `kept`."""
        missing = self.spec.replication_factor - len(whole)
        self.shards[shard][:] = whole + [EMPTY] * missing
        for slot, node in enumerate(whole):
            if node not in kept:
                self.counts[node] += 1
                self.range_counts(shard)[node] += 1
                self.leads[node] += slot == 0
                for copy in range(self.unit):
                    self.view.add(node, leader=slot == 0 and copy == 0)

    def put_leaders_first(self, nodes: Nodes) -> Nodes:
        """Put the node that leads least in front of each shard; `nodes` are those of all shards."""
        factor, weight = self.spec.replication_factor, self.view.topology.weight
        *_, ordered = kernels.run(kernels.put_leaders_first, len(nodes), weight, factor, nodes)
        return np.asarray(ordered)

    def enter(self, nodes: Nodes) -> None:
        """Store the nodes of all shards, leaders first."""
        factor, size = self.spec.replication_factor, self.view.topology.size
        self.shards = nodes.reshape(-1, factor).tolist()
        self.counts = np.bincount(nodes, minlength=size)
        self.leads = np.bincount(nodes[::factor], minlength=size)
        self.view.add_all(nodes)
        self.view.leaders += self.leads

    def _search(
        self, shard: int, kept: list[int], order: Order, tries: list[int]
    ) -> list[int] | None:
        """Find the best arrangement of the shard: the first without a dead end."""
        if len(kept) == self.spec.replication_factor:
            return kept
        for node in _rank(self.open_nodes(shard, kept), order(shard, kept)):
            whole = self._search(shard, [*kept, node], order, tries)
            tries[0] -= 1
            if whole is not None or tries[0] <= 0 or not (self._required or self.fenced.any()):
                return whole
        return None

    def _explain_dead_end(
        self, shard: int, kept: list[int], order: Order
    ) -> tuple[Reason, list[int]]:
        """Explain why the shard finds no node, and return the slots filled so far.

        The reason is the first dead end of the order.
        """
        reached = list(kept)
        while len(found := self.open_nodes(shard, reached)):
            reached.append(next(_rank(found, order(shard, reached))))
            if len(reached) == self.spec.replication_factor:
                break
        name, factor, slot = self.spec.stream, self.spec.replication_factor, len(reached)
        others = self.rule_context(shard, reached).stream_nodes
        need = ReplicaRequest(name, shard, slot, factor, reached, others, self.policy.nodes)
        mask = (self.usable | self.fenced) & self.view.has_room(self.unit)
        reason = choose(self.policy.rules, mask, need, self.view)
        if isinstance(reason, Reason):
            return reason, reached
        message = f"no arrangement of {name}/{shard} has a node that may lead and keeps the rules"
        return Reason(Code.NO_CANDIDATE, message, 1, 0), reached[: factor - 1]


AtOnce = Callable[[StreamDraft], bool]
"""Fills a draft that has no shards yet by `enter`; or says no and leaves it as it is, where some
slot finds no node or more has to be weighed than can be at once."""


def place_by(
    strategy: Strategy, spec: StreamSpec, policy: Policy, view: View, at_once: AtOnce | None = None
) -> Placement | Reason:
    """Place a whole stream, by `at_once` if the user has no rules and it finds nodes for all.

    Otherwise by the strategy's `resume`, with nothing to continue from.
    """
    rules = strategy.rules(policy, view.topology)
    if at_once and not policy.rules and view.shards_alike:
        draft = StreamDraft(spec, policy, [], view)
        if view.topology.can_lead[draft.usable].all() and at_once(draft):
            warnings = find_unmet(rules, draft.shards, spec, policy, view.topology)
            return Placement(draft.shards, (), warnings)
    shards = [[EMPTY] * spec.replication_factor for _ in range(spec.shards)]
    if is_colocated(policy):
        reasons = strategy.resume(spec, policy, shards[:1], view)
        shards = [list(shards[0]) for _ in shards]
    else:
        reasons = strategy.resume(spec, policy, shards, view)
    return Placement(shards, reasons, find_unmet(rules, shards, spec, policy, view.topology))


def is_colocated(policy: Policy) -> bool:
    """Return whether the policy keeps replica r of all shards on one node."""
    return RuleSet(policy.rules).is_colocated


def find_shortage(spec: StreamSpec, policy: Policy, mask: Mask, view: View) -> Reason | None:
    """Explain, by counting alone, why there cannot be enough nodes, unless some will do."""
    factor, have = spec.replication_factor, int(mask.sum())
    if have >= factor or (have and policy.on_shortage is OnInfeasible.PARTIAL):
        return None
    wanted = f"{factor} replicas of a shard need {factor} nodes"
    return explain_shortage(factor, policy, mask, view, wanted)


def parse_start(policy_start: object) -> int | Reason | None:
    """Parse the parameter `start`: a number of 0 or more, or nothing."""
    if policy_start is None:
        return None
    if type(policy_start) is not int or not 0 <= policy_start < 2**31:
        message = f"policy: unknown value '{policy_start}' for 'start'; expected a number from 0 on"
        return Reason(Code.POLICY_UNKNOWN_VALUE, message)
    return policy_start


def keep_best(found: Nodes, keys: Sequence[Key]) -> Nodes:
    """Keep the candidates that are best by every key in turn."""
    for key in keys:
        if len(found) == 1:
            break
        values = key(found)
        found = found[values == values.min()]
    return found


def _rank(found: Nodes, keys: Sequence[Key]) -> Iterator[int]:
    """Rank candidates, best first; the rest is ordered only if the first is not enough."""
    if not len(found):
        return
    best = int(keep_best(found, keys)[0])
    yield best
    rest = found[found != best]
    if len(rest):
        columns = [key(rest) for key in reversed(keys)]
        yield from rest[np.lexsort(columns)].tolist()


def make_leader_choice(draft: StreamDraft) -> Callable[[list[int]], int]:
    """Make the function that chooses a shard's leader: the node that leads least by weight.

    Only nodes that the user's rules let lead; among equals the first one.
    """
    topology, rules = draft.view.topology, RuleSet(draft.policy.rules)
    able = draft.usable & topology.can_lead

    def leader(nodes: list[int]) -> int:
        may = rules.possible_leaders(nodes, len(nodes), able, topology)
        return min(may, key=lambda n: (draft.leads[n] + 1) / topology.weight[n])

    return leader


def balance_leaders(draft: StreamDraft, shards: Sequence[int]) -> None:
    """Even out the leaders of these shards along chains of shards that share nodes.

    The lead passes from a node that leads two more than another to that one. Leaders stay where
    nodes differ in weight, and where the user has rules for leaders.
    """
    topology = draft.view.topology
    able = draft.usable & topology.can_lead & (draft.counts > 0)
    ruled = RuleSet(draft.policy.rules).names_leaders
    if ruled or not able.any() or np.ptp(topology.weight[able]) > 0:
        return
    if draft.leads[able].max() < draft.leads[able].min() + 2:
        return
    led: dict[int, list[int]] = {}
    for shard in shards:
        led.setdefault(draft.shards[shard][0], []).append(shard)
    rank = topology.order()
    for _ in range(len(shards)):
        most = int(draft.leads[able].min()) + 2
        sources = [node for node in led if draft.leads[node] >= most and led[node]]
        sources.sort(key=lambda n: (-draft.leads[n], int(rank[n])))
        chains = (_find_chain(draft, led, able, node) for node in sources)
        chain = next((chain for chain in chains if chain), None)
        if chain is None:
            return
        for shard, node in chain:
            nodes = draft.shards[shard]
            led[nodes[0]].remove(shard)
            led.setdefault(node, []).append(shard)
            draft.leads[[nodes[0], node]] += (-1, 1)
            draft.view.leaders[[nodes[0], node]] += (-1, 1)
            nodes[:] = put_in_front(node, nodes)


def _find_chain(
    draft: StreamDraft, led: dict[int, list[int]], able: Mask, source: int
) -> list[tuple[int, int]] | None:
    """Find the shortest chain from `source` to a node that leads at least two fewer.

    Returns shards with their new leaders.
    """
    before: dict[int, tuple[int, int]] = {source: (EMPTY, EMPTY)}
    queue = [source]
    for node in queue:
        for shard in led.get(node, ()):
            for other in draft.shards[shard][1:]:
                if other in before or not able[other]:
                    continue
                before[other] = (node, shard)
                if draft.leads[other] <= draft.leads[source] - 2:
                    return _trace_chain(before, source, other)
                queue.append(other)
    return None


def _trace_chain(
    before: dict[int, tuple[int, int]], source: int, target: int
) -> list[tuple[int, int]]:
    way: list[tuple[int, int]] = []
    while target != source:
        leader, shard = before[target]
        way.append((shard, target))
        target = leader
    return way
