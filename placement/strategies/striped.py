"""Kafka's rack striping: `StripedReplicaPlacer` of KRaft."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    choose,
    find_shortage,
    parse_start,
    place_by,
)
from placement.assignments import EMPTY
from placement.hashing import digest64, scores
from placement.model import Code, Reason, StreamSpec, natural_key
from placement.policy import Balance, OnInfeasible, Policy
from placement.rules import EvenWithinCapacity, Mask, Rule
from placement.topology import LEAF, Scope, Topology


@dataclass(frozen=True, slots=True)
class StripedStrategy(ByRules):
    """Stripes over racks, as Kafka's controller places new partitions.

    Goals, in this order:
        1. A shard's replicas are even over racks, as far as a rack has nodes.
        2. Leaders are even over nodes, then replicas are.
        3. No replica stands on a fenced (suspect) node.
        4. On a cluster that holds other streams, less loaded nodes come first among equals.

    Constraints:
        Distinct nodes; a leader that is neither fenced nor barred from leading. A rack is a whole
        location, compared as one name, as `broker.rack` is, unless `level` names the tier that is
        the rack; nodes without a location are one unnamed rack. A follower
        stands on a fenced node where its rack has no other and the first goal needs that rack, or
        where no other node is left at all. Otherwise the stream is rejected.

    Algorithm:
        Shard by shard: the leader is, of the nodes that lead least of this stream, the next one in
        the rack after the last leader's. Followers go rack by rack from there, each into the rack
        that has fewest of the shard, to the node that holds least of the stream. The first round
        follows the order of names, from `start` on if it is given; later rounds are shuffled by a
        hash, as Kafka shuffles, so that nodes do not always meet the same partners.
        Kafka's leaders are even per rack (of racks with 10, 10 and 1 nodes the lone node leads a
        third), it forgets what exists when shards are added, and now and then it takes a fenced
        node while another is free; here leaders are even per node, existing shards count, and a
        fenced node is the last resort. Rebalancing evens out each stream before all replicas.

    Example:
        Racks A, B and C of three nodes, three replicas: A0 B0 C0 · B1 C1 A1 · C2 A2 B2.
    """

    name: str = "striped"
    aliases: tuple[str, ...] = ("kafka",)
    parameters: tuple[str, ...] = ("start", "level")
    on_infeasible: OnInfeasible = OnInfeasible.REJECT
    balance: ClassVar[Balance] = Balance.STREAMS_FIRST
    followers_on_suspect: ClassVar[bool] = True

    def compile(self, policy: Mapping[str, Any], topology: Topology) -> Mapping[str, Any] | Reason:
        """Check `start` (the position where Kafka starts at random, at least 0) and `level`. The
        domains of the tier `level` are the racks (default: the whole location)."""
        start = parse_start(policy.get("start"))
        if isinstance(start, Reason):
            return start
        scope = topology.scope(str(policy.get("level", LEAF.name)))
        if isinstance(scope, Reason):
            return scope
        if scope.tag is not None:
            message = f"policy: 'level' is '{scope}', and racks are a tier of the locations"
            return Reason(Code.POLICY_UNKNOWN_VALUE, message)
        return {"start": start, "level": scope}

    def rules(self, policy: Policy, _topology: Topology) -> tuple[Rule, ...]:
        """List the user's rules, then even racks."""
        rack: Scope = policy.parameters["level"]
        return (*policy.rules, EvenWithinCapacity(rack, None, policy.strength, fenced=True))

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        """Place in stripes, or say what is missing."""
        topology = view.topology
        mask = policy.nodes.mask(topology) & view.has_room()
        too_few = find_shortage(spec, policy, mask & (topology.eligible | topology.fenced), view)
        if too_few is None and not (mask & topology.eligible & topology.can_lead).any():
            message = (
                "no node may lead: all nodes that may hold a replica are fenced or may not lead"
            )
            too_few = Reason(Code.NODES_TOO_FEW, message, 1, 0)
        return too_few or place_by(self, spec, policy, view)

    def resume(
        self, spec: StreamSpec, policy: Policy, shards: list[list[int]], view: View
    ) -> tuple[Reason, ...]:
        """Continue striping behind the shards that have replicas."""
        stripes = _Stripes(StreamDraft(spec, policy, shards, view, fenced=True))
        return tuple(stripes.draft.fill(stripes.order))

    def extend(self, need: ReplicaRequest, policy: Policy, mask: Mask, view: View) -> int | Reason:
        """Choose the best candidate by the rules; a fenced follower if nothing else serves."""
        rules, topology = self.rules(policy, view.topology), view.topology
        found = choose(rules, mask, need, view)
        if need.slot == 0 or not isinstance(found, Reason):
            return found
        more = topology.fenced & policy.nodes.mask(topology) & view.has_room()
        more[[*need.backed_off_targets]] = False
        fallback = choose(rules, mask | more, need, view)
        return found if isinstance(fallback, Reason) else fallback


class _Stripes:
    """Racks in the order of their names, their nodes in that of ids, and where both start."""

    def __init__(self, draft: StreamDraft) -> None:
        topology, rank = draft.view.topology, draft.view.topology.order()
        self.draft = draft
        scope: Scope = draft.policy.parameters["level"]
        self._racks = topology.domain_of(scope)
        nodes = np.flatnonzero(draft.usable | draft.fenced).tolist()
        nodes.sort(key=lambda node: int(rank[node]))
        members: dict[int, list[int]] = {}
        for node in nodes:
            members.setdefault(int(self._racks[node]), []).append(node)
        order = sorted(members, key=lambda rack: natural_key(topology.domain_name(scope, rack)))
        self._count = max(len(order), 1)
        self._rack_at = np.zeros(int(self._racks.max(initial=0)) + 1, np.int64)
        self._rack_at[order] = np.arange(len(order))
        self._place = np.zeros(topology.size, np.int64)
        for nodes in members.values():
            self._place[nodes] = (np.arange(len(nodes)) - draft.start) % len(nodes)

    def order(self, shard: int, kept: Sequence[int]) -> list[Key]:
        """Rank the nodes for the shard's next replica by the class's goals and algorithm."""
        draft = self.draft
        if not kept:
            return self._leader_order(shard)
        weight = draft.view.topology.weight
        copies = np.bincount(self._racks[list(kept)], minlength=len(self._rack_at))
        turn = (self._rack_at - self._rack_at[self._racks[kept[0]]]) % self._count
        return [
            lambda found: copies[self._racks[found]],
            draft.fenced.__getitem__,
            *draft.wishes(shard, kept),
            ((draft.counts + 1) / weight).__getitem__,
            lambda found: -draft.leads[found] / weight[found],
            (draft.foreign / weight).__getitem__,
            lambda found: turn[self._racks[found]],
            self._next_node(shard, len(kept)),
        ]

    def _leader_order(self, shard: int) -> list[Key]:
        draft, topology = self.draft, self.draft.view.topology
        barred = ~(draft.usable & topology.can_lead)
        turn = (self._rack_at - self._rack_after(shard)) % self._count
        return [
            barred.__getitem__,
            *draft.wishes(shard, ()),
            ((draft.leads + 1) / topology.weight).__getitem__,
            (draft.foreign_leads / topology.weight).__getitem__,
            lambda found: turn[self._racks[found]],
            ((draft.counts + 1) / topology.weight).__getitem__,
            (draft.foreign / topology.weight).__getitem__,
            self._next_node(shard, 0),
        ]

    def _rack_after(self, shard: int) -> int:
        """Find the rack behind that of the nearest shard before this one."""
        for nodes in reversed(self.draft.shards[:shard]):
            if nodes[0] != EMPTY:
                return int(self._rack_at[self._racks[nodes[0]]]) + 1
        return self.draft.start

    def _next_node(self, shard: int, slot: int) -> Key:
        """Rank the rack's nodes: in turn in the first round, later by a hash of the replica."""
        draft, digests = self.draft, self.draft.view.topology.digests
        seed = digest64(draft.spec.stream, shard, slot)

        def key(found: Nodes) -> NDArray[np.generic]:
            fresh = not draft.counts[found].any()
            return self._place[found] if fresh else scores(seed, digests[found])

        return key
