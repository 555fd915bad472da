"""What a plan copies: bytes by wave and link, how long that takes, and what nodes bear meanwhile.

All moves of a wave run at once: until the wave is complete their sources and their targets bear
the shard. A wave takes as long as the node that sends or receives most.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from placement.diagnosis import UNKNOWN, StreamToDiagnose
from placement.model import COPIED_RESOURCE
from placement.planning import InFlight, Plan
from placement.rules import NodeLoads
from placement.topology import Scope, Topology
from streaming.offline.loads import Integers, led_mask

_TOP = Scope(depth=1)

_Shard = tuple[str, int]


@dataclass(frozen=True, slots=True)
class WaveTraffic:
    """The bytes that a wave copies, and those of the node that sends or receives most."""

    bytes: int
    busiest: int

    def seconds(self, rate: int) -> int:
        """Compute how long it takes where each node sends and receives so many bytes a second."""
        return -(-self.busiest // rate)


@dataclass(frozen=True, slots=True)
class PlanTraffic:
    """What the waves of a plan copy.

    - `links`: bytes from one top-level domain to another.
    - `peak`: the most that each node bears on the way, by resource and node.
    """

    waves: tuple[WaveTraffic, ...]
    links: Mapping[tuple[str, str], int]
    peak: Integers

    @property
    def bytes(self) -> int:
        """Return the bytes of all waves."""
        return sum(each.bytes for each in self.waves)

    def body(self, rate: int | None) -> dict[str, Any]:
        """Write what is copied; with a rate, in how many seconds."""
        links = [
            {"from": source, "to": target, "bytes": count}
            for (source, target), count in sorted(self.links.items())
        ]
        body: dict[str, Any] = {"bytes": self.bytes, "links": links}
        if rate is not None:
            body["rate_bytes_per_second"] = rate
            body["seconds"] = sum(each.seconds(rate) for each in self.waves)
        return body


def count_traffic(
    plans: Sequence[Plan],
    topology: Topology,
    streams: Sequence[StreamToDiagnose],
    under_way: Mapping[_Shard, InFlight],
    loads: NodeLoads,
) -> PlanTraffic:
    """Count what plans copy that are carried out one after the other.

    `under_way`: moves that end with the first of them; `loads`: what the nodes bear without them.
    """
    links: Counter[tuple[str, str]] = Counter()
    for plan in plans:
        for source, target, size in _copies(plan):
            ends = (_top_domain(topology, source), _top_domain(topology, target))
            if ends[0] != ends[1]:
                links[ends] += size
    peak = _Peak(topology, streams, loads)
    peak.begin(under_way)
    for number, plan in enumerate(plans):
        changed = {(move.stream, move.shard) for move in plan.moves}
        if not number:
            changed |= under_way.keys()
        peak.carry_out({key: plan.final[key[0]][key[1]] for key in changed})
    return PlanTraffic(tuple(map(_wave, plans)), links, peak.most)


def counts_bytes(loads: NodeLoads | None) -> bool:
    """Return whether the bytes of a copy are known."""
    return loads is not None and COPIED_RESOURCE in {each.name for each in loads.resources}


def _wave(plan: Plan) -> WaveTraffic:
    sent: Counter[str] = Counter()
    received: Counter[str] = Counter()
    for source, target, size in _copies(plan):
        sent[source] += size
        received[target] += size
    busiest = max((*sent.values(), *received.values()), default=0)
    return WaveTraffic(received.total(), busiest)


def _copies(plan: Plan) -> Iterator[tuple[str, str, int]]:
    """Yield source, target and bytes of each copy; one without a live source copies nothing."""
    for move in plan.moves:
        if move.bytes is not None and move.source is not None and move.add is not None:
            yield move.source, move.add, move.bytes


def _top_domain(topology: Topology, node_id: str) -> str:
    domain = int(topology.domain_of(_TOP)[topology.index[node_id]])
    return topology.domain_name(_TOP, domain)


class _Peak:
    """Follows what nodes bear from wave to wave; `most`: the most so far, by resource and node."""

    def __init__(
        self, topology: Topology, streams: Sequence[StreamToDiagnose], loads: NodeLoads
    ) -> None:
        self._index = topology.index
        self._streams = {each.spec.stream: each for each in streams}
        self._changed: dict[_Shard, list[int]] = {}
        self._borne = loads.borne.copy()
        self._led = led_mask(loads.resources)
        self.most = self._borne.copy()

    def begin(self, under_way: Mapping[_Shard, InFlight]) -> None:
        """Count the copies that are under way."""
        for key, move in under_way.items():
            node = self._index.get(move.add or "")
            nodes = self._nodes(key)
            if node is not None and node not in nodes:
                self._borne[~self._led, node] += self._amounts(key)[~self._led]
                self._changed[key] = [*nodes, node]
        self.most = self._borne.copy()

    def carry_out(self, lists: Mapping[_Shard, Sequence[str]]) -> None:
        """Change the lists of shards to node ids, all at once; sources leave when all is copied."""
        coming, leaving = np.zeros_like(self._borne), np.zeros_like(self._borne)
        for key, ids in lists.items():
            before, after = self._nodes(key), [self._index[each] for each in ids]
            amounts = self._amounts(key)
            for rows, last in ((~self._led, None), (self._led, 1)):
                old, new = {*before[:last]} - {UNKNOWN}, {*after[:last]}
                for node in new - old:
                    coming[rows, node] += amounts[rows]
                for node in old - new:
                    leaving[rows, node] += amounts[rows]
            self._changed[key] = after
        np.maximum(self.most, self._borne + coming, out=self.most)
        self._borne += coming - leaving

    def _nodes(self, key: _Shard) -> list[int]:
        listed = self._changed.get(key)
        if listed is None:
            listed = [int(node) for node in self._streams[key[0]].shards[key[1]]]
        return listed

    def _amounts(self, key: _Shard) -> Integers:
        loads = self._streams[key[0]].loads
        assert loads is not None, "resources are counted"
        found: Integers = loads[:, key[1]]
        return found
