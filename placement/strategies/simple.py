"""Kafka's rack-unaware round robin: `AdminUtils`, and KIP-879's `forceSimplePlacement`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.allocator import (
    ByRules,
    Key,
    Placement,
    StreamDraft,
    View,
    find_shortage,
    parse_start,
    place_by,
)
from placement.assignments import EMPTY
from placement.hashing import digest64, scores
from placement.model import Reason, StreamSpec
from placement.policy import Balance, OnInfeasible, Policy
from placement.rules import Rule
from placement.topology import Topology


@dataclass(frozen=True, slots=True)
class SimpleStrategy(ByRules):
    """Round robin over nodes, as Kafka places where it does not look at racks.

    Goals, in this order:
        1. Leaders are even over nodes, and so are replicas.
        2. The followers of one node's shards are spread over the other nodes.
        3. On a cluster that holds other streams, the nodes used are the less loaded ones.

    Constraints:
        Distinct nodes, no more. Without enough of them the stream is rejected, as in Kafka
        ("Replication factor: 3 larger than available brokers: 2").

    Algorithm:
        With nodes in the order of their ids, shard p is led by node (start + p) mod n; its
        followers are the next ones at a distance that grows by one with every full round. Kafka
        draws start and distance at random. Here both are `start` if it is given, 0 on an empty
        cluster (the table in Kafka's documentation), and otherwise those that put least on loaded
        nodes. Shards added to a stream, and replicas to a shard, go on with the start and the
        distance that its first shard shows. Rebalancing evens out each stream before all replicas.

    Example:
        Five nodes, three replicas: 0 1 2 · 1 2 3 · 2 3 4 · 3 4 0 · 4 0 1 and, in the second round,
        0 2 3 · 1 3 4 · 2 4 0 · 3 0 1 · 4 1 2.
    """

    name: str = "simple"
    aliases: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ("start",)
    on_infeasible: OnInfeasible = OnInfeasible.REJECT
    balance: ClassVar[Balance] = Balance.STREAMS_FIRST

    def compile(self, policy: Mapping[str, Any], _topology: Topology) -> Mapping[str, Any] | Reason:
        """Check `start`: the position where Kafka starts at random, at least 0."""
        start = parse_start(policy.get("start"))
        return start if isinstance(start, Reason) else {"start": start}

    def rules(self, policy: Policy, _topology: Topology) -> tuple[Rule, ...]:
        """List the user's rules; distinct nodes is all the strategy asks for."""
        return policy.rules

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        """Place round robin, or say how many nodes are missing."""
        mask = view.topology.eligible & policy.nodes.mask(view.topology) & view.has_room()
        shortage = find_shortage(spec, policy, mask, view)
        return shortage or place_by(self, spec, policy, view, place_round_robin)

    def resume(
        self, spec: StreamSpec, policy: Policy, shards: list[list[int]], view: View
    ) -> tuple[Reason, ...]:
        """Continue the round robin of the stream's first shard."""
        draft = StreamDraft(spec, policy, shards, view)
        circle = _Circle(draft)

        def order(shard: int, kept: Sequence[int]) -> list[Key]:
            return [*draft.wishes(shard, kept), circle.distances(shard, kept).__getitem__]

        return tuple(draft.fill(order))


def place_round_robin(draft: StreamDraft) -> bool:
    """Place all shards at once; False if nodes are too few or one could get full."""
    room = draft.view.room()[draft.usable]
    if len(room) < draft.spec.replication_factor or (room < draft.spec.shards).any():
        return False
    draft.enter(_Circle(draft).rounds())
    return True


class _Circle:
    """The usable nodes in the order of their ids, and where on it a stream starts."""

    def __init__(self, draft: StreamDraft) -> None:
        topology = draft.view.topology
        nodes = np.flatnonzero(draft.usable)
        self._nodes = nodes[np.argsort(topology.order()[nodes])]
        self._size = len(nodes)
        self._leaders = np.flatnonzero(topology.can_lead[self._nodes])
        self._place = np.full(topology.size, self._size)
        self._place[self._nodes] = np.arange(self._size)
        self._draft = draft
        self._start, self._shift = self._begin()

    def distances(self, shard: int, kept: Sequence[int]) -> NDArray[np.int64]:
        """Compute for each node how late the shard comes to it."""
        late = np.full(len(self._place), self._size)
        if not kept:
            turns = np.roll(self._leaders, -((self._start + shard) % max(len(self._leaders), 1)))
            late[self._nodes[turns]] = np.arange(len(turns))
        elif self._size > 1:
            first = int(self._place[kept[0]]) % self._size
            steps = np.arange(self._size - 1)
            ahead = 1 + (self._shift + shard // self._size + steps) % (self._size - 1)
            late[self._nodes[(first + ahead) % self._size]] = steps
        return late

    def rounds(self) -> NDArray[np.int64]:
        """Compute the nodes of all shards as `distances` ranks them, if all may lead."""
        factor, size = self._draft.spec.replication_factor, self._size
        shards = np.arange(self._draft.spec.shards)
        steps = np.arange(factor) - 1
        steps = 1 + ((self._shift + shards // size)[:, None] + steps) % max(size - 1, 1)
        steps[:, 0] = 0
        places = ((self._start + shards)[:, None] + steps) % size
        nodes: NDArray[np.int64] = self._nodes[places].ravel()
        return nodes

    def _begin(self) -> tuple[int, int]:
        """Choose the first leader, and the distance of its first follower."""
        draft, given = self._draft, self._draft.policy.parameters.get("start")
        if given is not None or self._size < 2:
            return given or 0, given or 0
        for shard, nodes in enumerate(draft.shards):
            shown = [int(self._place[node]) for node in nodes if node != EMPTY]
            if shown and shown[0] in self._leaders:
                start = int(np.searchsorted(self._leaders, shown[0])) - shard
                distance = shown[1] - shown[0] - 1 - shard // self._size if shown[1:] else start
                return start, distance % (self._size - 1)
        return self._choose_least_loaded() if draft.foreign.any() and len(self._leaders) else (0, 0)

    def _choose_least_loaded(self) -> tuple[int, int]:
        """Choose the start whose leaders, then the distance whose followers meet the least load.

        Equals by a hash of the stream and the node.
        """
        draft, size, topology = self._draft, self._size, self._draft.view.topology
        weight, span = topology.weight[self._nodes], min(draft.spec.shards, size)
        chance = scores(digest64("start", draft.spec.stream), topology.digests[self._nodes])
        leads = _sum_windows(draft.foreign_leads[self._nodes] / weight, span)[self._leaders]
        loads = _sum_windows(draft.foreign[self._nodes] / weight, span)
        start = np.lexsort((chance[self._leaders], loads[self._leaders], leads))[0]
        ahead = np.arange(1, size) + self._leaders[start]
        met = _sum_windows(loads[ahead % size], min(draft.spec.replication_factor - 1, size - 1))
        return int(start), int(np.lexsort((chance[ahead % size], met))[0])


def _sum_windows(values: NDArray[np.float64], span: int) -> NDArray[np.float64]:
    """Sum `span` neighbours on a circle, by the first of them."""
    total = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values]))])
    sums: NDArray[np.float64] = total[span : span + len(values)] - total[: len(values)]
    return sums
