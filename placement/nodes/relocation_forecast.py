"""Forecasts relocations before they take effect: their moves, the violations they cause and heal,
and the shards concerned.

The pending locations are put in force in an overlay of the topology; everything is planned and
judged there, and the state of record stays as it is.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from placement.model import Pending, Violation
from placement.nodes.orders import AdministrativeOrders
from placement.planning import (
    Impact,
    PlannedMove,
    PlanPhase,
    ShardState,
    StreamSnapshot,
    compute_impact,
    identity_body,
    plan,
)
from placement.repair import RepairScope, ViolationReporter
from placement.state import ClusterState, Stream
from placement.topology import Topology

# An alert names the first of a long list.
_LISTED_MAX = 50


@dataclass(frozen=True, slots=True)
class RelocationImpact:
    """The impact of relocations, and the shards that would move or come to break a rule."""

    impact: Impact
    shards: frozenset[tuple[str, int]]

    @property
    def detail(self) -> dict[str, Any]:
        """The impact as an alert has it; of long lists the first."""
        found = self.impact
        made, healed = found.violations_made, found.violations_healed
        body = {
            "impact_hash": found.hash,
            "shards": len(self.shards),
            "streams": list(found.streams[:_LISTED_MAX]),
            "moves": found.moves,
            "copies": found.copies,
            "violations_made": len(made),
            "violations_healed": len(healed),
            "made": [identity_body(each) for each in made[:_LISTED_MAX]],
            "healed": [identity_body(each) for each in healed[:_LISTED_MAX]],
        }
        plain: dict[str, Any] = json.loads(json.dumps(body))
        return plain


class RelocationForecaster:
    """Looks ahead in the state as it is."""

    def __init__(self, state: ClusterState, orders: AdministrativeOrders) -> None:
        self._state, self._orders = state, orders

    def impact_of(self, names: Sequence[str]) -> RelocationImpact:
        """Compute what would happen if these nodes' pending locations were in force.

        Everything is planned and judged in an overlay of the topology.
        """
        state, topology = self._state, self._state.topology
        nodes = {topology.index[name]: _pending(state, name) for name in names}
        shards = sorted(
            {s for node in nodes for s in state.table.shards_on(node)}, key=state.streams.key
        )
        streams = list(dict.fromkeys(state.streams.key(shard)[0] for shard in shards))
        before, already = [*_violations(state, shards)], self._plan(topology, streams)
        ahead = topology.overlay()
        for node, pending in nodes.items():
            now = replace(topology.attributes[node], location=pending.location, tags=pending.tags)
            ordered = self._orders.state_at(topology.ids[node], now.location)
            condition = (topology.liveness[node], ordered, topology.guard[node])
            ahead.upsert(topology.ids[node], now, *condition)
        # Where another order reaches them, what is under way from there is called off.
        ordered_before = topology.administrative
        freed = {node for node in nodes if ahead.administrative[node] is not ordered_before[node]}
        under_way = state.ledger.by_shard.values()
        called_off = {state.streams.key(each.shard) for each in under_way if each.removed in freed}
        after = [*_violations(state.with_topology(ahead), shards)]
        planned = self._plan(ahead, streams)
        others = set(map(_move_content, already))
        moves = [move for move in planned if _move_content(move) not in others]
        found = compute_impact(
            moves,
            ahead,
            lambda name: state.streams[name].spec,
            self._shard_state,
            load=state.table.load(topology.size).tolist(),
            nodes=names,
            shards=map(state.streams.key, shards),
            before=before,
            after=after,
        )
        made = {(each.stream, each.shard) for each in found.violations_made}
        shards_made = {(s, n) for s, n in made if s is not None and n is not None}
        moved = {(m.stream, m.shard) for m in moves}
        return RelocationImpact(found, frozenset(shards_made | moved | called_off))

    def _plan(self, topology: Topology, names: Iterable[str]) -> Sequence[PlannedMove]:
        """Plan the repair of streams, as they are planned now, in a topology."""
        streams = [self._snapshot(self._state.streams[name]) for name in names]
        return plan(topology, streams, PlanPhase.REPAIR).moves

    def _snapshot(self, stream: Stream) -> StreamSnapshot:
        assert stream.policy is not None, "a stream with a shard on a node is placed"
        shards = [self._state.table.replicas(shard) for shard in stream.shards]
        return StreamSnapshot(stream.spec, stream.policy, shards)

    def _shard_state(self, stream: str, number: int) -> ShardState:
        state = self._state
        shard = state.streams[stream].shards[number]
        ids = tuple(state.topology.ids[node] for node in state.table.replicas(shard))
        opened = state.ledger.by_shard.get(shard)
        under_way = None if opened is None else opened.move.move_id
        return ShardState(ids, state.publisher.epoch(shard), under_way)


def _violations(state: ClusterState, shards: Iterable[int]) -> Iterator[Violation]:
    scope, report = RepairScope(state), ViolationReporter(state)
    for shard in shards:
        yield from report.breaches_of(scope.needs(shard))


def _pending(state: ClusterState, name: str) -> Pending:
    pending = state.nodes[name].pending
    assert pending is not None
    return pending


def _move_content(move: PlannedMove) -> tuple[object, ...]:
    return move.stream, move.shard, move.kind, move.remove, move.add, move.leader
