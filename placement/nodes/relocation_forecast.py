"""What would come of relocations, before they take effect: the moves, the violations
made and healed, and the shards that would move or come to break a rule.

The pending places are put in force, everything is planned and judged, and what was in force is put
back.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from placement.model import AdministrativeState, NodeAttributes, Pending, Violation
from placement.nodes.orders import AdministrativeOrders
from placement.planning import Impact, Phase, PlannedMove, ShardState, StreamSnapshot, impact, plan
from placement.repair import ActionFinder, ViolationReporter
from placement.state import ClusterState, Stream

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
            "made": [asdict(each) for each in made[:_LISTED_MAX]],
            "healed": [asdict(each) for each in healed[:_LISTED_MAX]],
        }
        plain: dict[str, Any] = json.loads(json.dumps(body))
        return plain


class RelocationForecaster:
    """Looks ahead in the state as it is."""

    def __init__(self, state: ClusterState, orders: AdministrativeOrders) -> None:
        self._state, self._orders = state, orders

    def impact_of(self, names: Sequence[str]) -> RelocationImpact:
        """What would happen if these nodes' pending places were in force."""
        state, topology = self._state, self._state.topology
        nodes = {topology.index[name]: _pending(state, name) for name in names}
        shards = sorted(
            {s for node in nodes for s in state.table.shards_on(node)}, key=state.streams.key
        )
        streams = list(dict.fromkeys(state.streams.key(shard)[0] for shard in shards))
        before, already = [*self._violations(shards)], self._plan(streams)
        old = {node: (topology.attributes[node], topology.administrative[node]) for node in nodes}
        for node, pending in nodes.items():
            now = replace(old[node][0], location=pending.location, tags=pending.tags)
            self._stand(node, now, self._orders.state_at(topology.ids[node], now.location))
        # Where another order reaches them, what is under way from there is called off.
        freed = {node for node in nodes if topology.administrative[node] is not old[node][1]}
        under_way = state.ledger.by_shard.values()
        called_off = {state.streams.key(each.shard) for each in under_way if each.removed in freed}
        after, planned = [*self._violations(shards)], self._plan(streams)
        others = set(map(_move_content, already))
        moves = [move for move in planned if _move_content(move) not in others]
        found = impact(
            moves,
            topology,
            lambda name: state.streams[name].spec,
            self._shard_state,
            load=state.table.load(topology.size).tolist(),
            nodes=names,
            shards=map(state.streams.key, shards),
            before=before,
            after=after,
        )
        for node, before_it in old.items():
            self._stand(node, *before_it)
        made = {(each.stream, each.shard) for each in found.violations_made}
        shards_made = {(s, n) for s, n in made if s is not None and n is not None}
        moved = {(m.stream, m.shard) for m in moves}
        return RelocationImpact(found, frozenset(shards_made | moved | called_off))

    def _stand(
        self, node: int, attributes: NodeAttributes, administrative: AdministrativeState
    ) -> None:
        topology = self._state.topology
        condition = (topology.liveness[node], administrative, topology.guard[node])
        topology.upsert(topology.ids[node], attributes, *condition)

    def _violations(self, shards: Iterable[int]) -> Iterator[Violation]:
        report = ViolationReporter(self._state, ActionFinder(self._state))
        for shard in shards:
            yield from report.violations_of(shard, {})

    def _plan(self, names: Iterable[str]) -> Sequence[PlannedMove]:
        """What repair would do to streams as they are planned now."""
        state = self._state
        streams = [self._snapshot(state.streams[name]) for name in names]
        return plan(state.topology, streams, Phase.REPAIR).moves

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


def _pending(state: ClusterState, name: str) -> Pending:
    pending = state.nodes[name].pending
    assert pending is not None
    return pending


def _move_content(move: PlannedMove) -> tuple[object, ...]:
    return move.stream, move.shard, move.kind, move.remove, move.add, move.leader
