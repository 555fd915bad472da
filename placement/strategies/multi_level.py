"""KIP-879's multi-level rack awareness: a ring in every node of the location tree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.allocator import (
    ByRules,
    Key,
    Nodes,
    Placement,
    ReplicaRequest,
    StreamDraft,
    View,
    balance_leaders,
    domain_tree,
    find_shortage,
    is_colocated,
    keep_best,
    kernels,
    make_leader_choice,
    parse_start,
    place_by,
)
from placement.assignments import EMPTY
from placement.model import Reason, StreamSpec
from placement.policy import Balance, OnInfeasible, Policy
from placement.rules import EvenWithinCapacity, Mask, Rule, Strength
from placement.strategies.simple import SimpleStrategy, place_round_robin
from placement.topology import Topology

_SIMPLE = SimpleStrategy()


@dataclass(frozen=True, slots=True)
class MultiLevelStrategy(ByRules):
    """Round robin at every level of `/dc/rack/…`, as proposed in KIP-879.

    Goals, in this order:
        1. A shard's replicas are even over the children of every node of the tree, as far as a
           child has nodes: first over data centers, then within each over its racks, and so on.
        2. The stream's replicas are even over the same children.
        3. Leaders are even over nodes.
        4. On a cluster that holds other streams, the less loaded child comes first among equals.

    Constraints:
        Distinct nodes. Every location starts with `/`; paths may differ in depth, and a node that
        stands higher than others is, with its neighbours, a child like any other. Nodes without a
        location are one child of the root; if no node has any, the stream is left to `simple`,
        as KIP-879's placer defers by returning null. What cannot be met rejects the stream.

    Algorithm:
        Each node of the tree has a ring over its children, each leaf one over its nodes. A replica
        goes down from the root to the child whose turn it is, which is the one that has fewest of
        the shard, then fewest of the stream, then comes next on the ring. Rings start where they
        would after `start` replicas: 0 on an empty cluster, else by the stream's name. For replicas
        that are there already a ring stands behind the child of the last one, so that a raised
        replication factor and new shards go on where the last replica was taken: the last of the
        replicas that all shards have, or of those that some have gained since. What all shards
        gain takes turns only among nodes that hold equally many, as turns alone would bring it to
        the same nodes. Of the nodes picked the one that leads least leads. A replica that takes the
        place of another one goes near it, by the rules.
        The vendor's implementation skips nodes that are used already, which makes uneven trees
        uneven at the top, and forgets where it ended; counting at every level does neither.
        Rebalancing evens out each stream before all replicas.

    Example:
        Three data centers of two racks with one node each, three replicas: the first shard stands
        in the first rack of each, the second in the second rack of each.
    """

    name: str = "multi_level"
    aliases: tuple[str, ...] = ("kip879",)
    parameters: tuple[str, ...] = ("start",)
    on_infeasible: OnInfeasible = OnInfeasible.REJECT
    balance: ClassVar[Balance] = Balance.STREAMS_FIRST

    def compile(self, policy: Mapping[str, Any], _topology: Topology) -> Mapping[str, Any] | Reason:
        """Check `start`: the number of replicas that the rings dealt out before, at least 0."""
        start = parse_start(policy.get("start"))
        return start if isinstance(start, Reason) else {"start": start}

    def rules(self, policy: Policy, topology: Topology) -> tuple[Rule, ...]:
        """List the user's rules, then evenness at every level inside each parent domain."""
        if _is_unlocated(policy, topology):
            return _SIMPLE.rules(policy, topology)
        return (*policy.rules, *_level_rules(policy, topology))

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        """Deal the replicas out, or say how many nodes are missing."""
        mask = view.topology.eligible & policy.nodes.mask(view.topology) & view.has_room()
        at_once = place_round_robin if _is_unlocated(policy, view.topology) else _deal_in_bulk
        shortage = find_shortage(spec, policy, mask, view)
        return shortage or place_by(self, spec, policy, view, at_once)

    def extend(self, need: ReplicaRequest, policy: Policy, mask: Mask, view: View) -> int | Reason:
        """Choose the next in turn that the rules admit, for a replica that replaces none."""
        topology = view.topology
        found = ByRules.extend(self, need, policy, mask, view)
        replaces = need.replaces != EMPTY or is_colocated(policy) or _is_unlocated(policy, topology)
        dealt = (
            None
            if replaces or isinstance(found, Reason)
            else _find_stream_rings(need, policy, view)
        )
        if dealt is None:
            return found
        admitted, standing = mask.copy(), need.rule_context(topology)
        admitted[[*need.kept, *need.excluded]] = False
        for rule in self.rules(policy, topology):
            if rule.strength is Strength.REQUIRED:
                admitted &= rule.penalty(standing) == 0
        return int(keep_best(np.flatnonzero(admitted), dealt.order(need))[0])

    def resume(
        self, spec: StreamSpec, policy: Policy, shards: list[list[int]], view: View
    ) -> tuple[Reason, ...]:
        """Continue dealing behind the last replica that is there."""
        if _is_unlocated(policy, view.topology):
            return _SIMPLE.resume(spec, policy, shards, view)
        draft = StreamDraft(spec, policy, shards, view)
        fresh = [shard for shard, nodes in enumerate(shards) if nodes[0] == EMPTY]
        reasons = draft.fill(_Rings(draft).order, make_leader_choice(draft))
        balance_leaders(draft, [shard for shard in fresh if shards[shard][0] != EMPTY])
        return tuple(reasons)


def _deal_in_bulk(draft: StreamDraft) -> bool:
    """Deal all shards out at once."""
    nodes = _Rings(draft).deal()
    if (nodes == EMPTY).any():
        return False
    draft.enter(draft.put_leaders_first(nodes))
    balance_leaders(draft, range(draft.spec.shards))
    return True


def _level_rules(policy: Policy, topology: Topology) -> list[EvenWithinCapacity]:
    tiers = topology.tiers()
    levels = zip(tiers, (None, *tiers), strict=False)
    return [EvenWithinCapacity(tier, above, policy.strength) for tier, above in levels]


def _is_unlocated(policy: Policy, topology: Topology) -> bool:
    """Return whether no node that the policy admits has a location."""

    def find() -> bool:
        admitted = policy.nodes.mask(topology)
        located = (topology.locations[n].depth for n in topology.index.values() if admitted[n])
        return not any(located)

    return topology.derive((MultiLevelStrategy, policy.nodes), find)


class _Rings:
    """The rings of every tier: the children's places, and whose turn is next.

    The nodes of a leaf are the last tier.
    """

    def __init__(self, draft: StreamDraft) -> None:
        topology = draft.view.topology
        self._draft = draft
        self._scopes = topology.tiers()
        tiers = [topology.domain_of(tier) for tier in self._scopes]
        self._tiers = [*tiers, np.arange(topology.size, dtype=np.int32)]
        self._parents = [np.zeros(topology.size, np.int32), *tiers]
        sizes = [int(of.max(initial=0)) + 1 for of in self._tiers]
        self._place = [np.full(size, -1) for size in sizes]
        self._next = [np.zeros(size, np.int64) for size in (1, *sizes)]
        self._siblings = [np.ones(size, np.int64) for size in sizes]
        self._tree = domain_tree(topology, draft.usable)
        self._set_up(draft.start)
        self._passed = 0
        self._pressure = []
        nodes = np.flatnonzero(draft.usable)
        # In whole millionths, so that a sum does not depend on the order of nodes.
        parts = np.rint(topology.weight * 1e6)
        for of, size in zip(self._tiers, sizes, strict=True):
            load = np.bincount(of[nodes], draft.foreign[nodes], size)
            weight = np.bincount(of[nodes], parts[nodes], size) / 1e6
            self._pressure.append(load / np.maximum(weight, np.finfo(float).tiny))

    def order(self, shard: int, kept: Sequence[int]) -> list[Key]:
        """Rank tier by tier: by shard, stream, other streams, then by turn."""
        draft, present = self._draft, np.asarray(kept, np.int64)
        self._advance(self._next, draft.taken[self._passed :])
        self._passed = len(draft.taken)
        turns = [turn.copy() for turn in self._next]
        self._advance(turns, [node for node in kept if node not in draft.shards[shard]])
        keys = draft.wishes(shard, kept)
        if keys:
            standing = draft.rule_context(shard, kept)
            rules = _level_rules(draft.policy, draft.view.topology)
            keys = [*(rule.penalty(standing).__getitem__ for rule in rules), *keys]
        # Turns alone would send what every shard of a stream gains to the same nodes.
        gains = draft.shards[shard][0] != EMPTY
        later: list[Key] = []
        for depth, of in enumerate(self._tiers):
            size = len(self._place[depth])
            mine = np.bincount(of[present], minlength=size)
            whole = np.bincount(of, draft.counts, size).astype(np.float64)
            if depth == len(self._tiers) - 1:
                whole = (whole + 1) / draft.view.topology.weight
            keys += [
                partial(_values_at, values, of) for values in (mine, whole, self._pressure[depth])
            ]
            (later if gains else keys).append(partial(self._count_ahead, turns[depth], depth))
        return [*keys, *later]

    def _count_ahead(self, turns: NDArray[np.int64], depth: int, found: Nodes) -> NDArray[np.int64]:
        """Count the other children of the parent that come before each candidate's."""
        of = self._tiers[depth][found]
        ahead: NDArray[np.int64] = self._place[depth][of] - turns[self._parents[depth][found]]
        return ahead % self._siblings[depth][of]

    def _advance(self, turns: list[NDArray[np.int64]], nodes: Sequence[int]) -> None:
        """Move the rings of these nodes' domains behind the children that were taken."""
        if not len(nodes):
            return
        passed = np.asarray(nodes, np.int64)
        for depth, of in enumerate(self._tiers):
            place = self._place[depth][of[passed]]
            on_ring = place >= 0
            # Of several that went through one parent the last counts.
            turns[depth][self._parents[depth][passed[on_ring]]] = place[on_ring] + 1

    def _set_up(self, start: int) -> None:
        """Set up the rings of all tree nodes, after `start` replicas went through the root."""
        tree = self._tree
        first, end, above = tree.elements[:3]
        place, size = np.arange(len(first)) - first[above], (end - first)[above]
        passed = np.zeros(len(first), np.int64)
        passed[0] = start
        for depth, level in enumerate(tree.levels):
            children, parents = self._tiers[depth][tree.leaves], self._parents[depth][tree.leaves]
            before, turns = passed[above[level]], size[level]
            passed[level] = before // turns + (place[level] < before % turns)
            self._place[depth][children] = place[level]
            self._siblings[depth][children] = turns
            self._next[depth][parents] = before

    def deal(self) -> NDArray[np.int64]:
        """Deal nodes to every shard of an empty stream; all EMPTY after the last that fits."""
        draft, tree = self._draft, self._tree
        size = tree.elements.shape[1]
        pressure, weight, room = np.zeros(size), np.ones(size), np.zeros(size, np.int64)
        turn = np.zeros(size, np.int64)
        for depth, level in enumerate(tree.levels):
            above = tree.elements[2][level]
            turn[above] = self._next[depth][self._parents[depth][tree.leaves]]
            pressure[level] = self._pressure[depth][self._tiers[depth][tree.leaves]]
        turn %= np.maximum(tree.elements[1] - tree.elements[0], 1)
        weight[tree.domains :] = draft.view.topology.weight[tree.leaves]
        room[tree.domains :] = draft.view.room()[tree.leaves]
        out = np.full(draft.spec.shards * draft.spec.replication_factor, EMPTY, np.int64)
        *_, out = kernels.run(
            kernels.deal_shards,
            len(out) * tree.looked_at,
            tree.elements,
            turn,
            pressure,
            weight,
            room,
            draft.spec.replication_factor,
            out,
        )
        leaves = tree.leaves[np.maximum(out - tree.domains, 0)]
        return np.where(out == EMPTY, EMPTY, leaves)


class _StreamRings:
    """A placed stream and its rings, as one plan goes on with them."""

    def __init__(self, index: int, spec: StreamSpec, policy: Policy, view: View) -> None:
        self._shards = np.asarray(view.table.shards_of(index), np.int64)
        self.shards = len(self._shards)
        self._spec, self._policy, self._view = spec, policy, view
        self._begin(view.rows(self._shards))

    def _begin(self, rows: NDArray[np.int64]) -> None:
        """Advance the rings over placed replicas: those of all shards shard by shard, then the
        rest."""
        filled, nodes = rows != EMPTY, self._view.topology.size
        self._rows, self._whole = rows, int(filled.sum(axis=1).min())
        place, shard = filled.cumsum(axis=1)[filled] - 1, np.nonzero(filled)[0]
        order = np.lexsort((place, shard, np.where(place < self._whole, -1, place)))
        self._draft = draft = StreamDraft(self._spec, self._policy, [], self._view)
        draft.shards, draft.taken = rows.tolist(), rows[filled][order].tolist()
        draft.counts = np.bincount(rows[filled], minlength=nodes)
        draft.foreign = self._view.load - draft.counts
        self._rings = _Rings(draft)

    def order(self, need: ReplicaRequest) -> list[Key]:
        """Order the keys for one more replica, counting the replicas planned so far."""
        rows, draft = self._view.rows(self._shards), self._draft
        if (rows != EMPTY).sum(axis=1).min() != self._whole:
            self._begin(rows)
            return self._rings.order(need.shard, need.kept)
        for shard, slot in np.argwhere(rows != self._rows).tolist():
            before, node = self._rows[shard, slot], rows[shard, slot]
            draft.shards[shard][slot] = int(node)
            draft.counts[before] -= before != EMPTY
            if node != EMPTY:
                draft.counts[node] += 1
                draft.taken.append(int(node))
        self._rows = rows
        return self._rings.order(need.shard, need.kept)


def _find_stream_rings(need: ReplicaRequest, policy: Policy, view: View) -> _StreamRings | None:
    """Find the rings of a placed stream, once for each plan; None for a new shard."""
    key = (_StreamRings, need.stream)
    if key not in view.memory:
        known = ((index, view.spec_of(index)) for index, _ in view.streams())
        mine = ((index, spec) for index, spec in known if spec and spec.stream == need.stream)
        view.memory[key] = next((_StreamRings(*each, policy, view) for each in mine), None)
    found: _StreamRings | None = view.memory[key]
    return found if found is not None and need.shard < found.shards else None


def _values_at(
    values: NDArray[np.generic], domains: NDArray[np.int32], found: Nodes
) -> NDArray[np.generic]:
    return values[domains[found]]
