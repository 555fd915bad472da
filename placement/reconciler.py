"""Holds the one entry point of the core: `Reconciler.apply(events, now) -> Ready`.

Events change the state; the work is then derived from the state. The shell persists `Ready` and
goes on. If persisting fails the process dies, and the next one rebuilds with `restore`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from placement.controllers import (
    HoldController,
    LoadController,
    MoveController,
    NodeController,
    NodeRegistry,
    ObservationController,
    OperatorController,
    Preview,
    RebalanceController,
    RetryGate,
    StreamController,
)
from placement.model import (
    Configuration,
    Event,
    LinksMeasured,
    Liveness,
    LoadsReported,
    LocationResolved,
    MoveAcked,
    NodeChanged,
    OperatorAsked,
    Published,
    Ready,
    Reason,
    ReplicaLost,
    ReplicasObserved,
    StreamAltered,
    StreamCreated,
    StreamDropped,
    Violation,
)
from placement.nodes import (
    AdministrativeOrders,
    Admission,
    Links,
    LocationAuthority,
    Relocations,
)
from placement.repair import RepairPlanner
from placement.state import DIGEST_VERSION, ClusterState, ReadModel, digest_v1, rebuild


class Reconciler:
    """Runs the core as a deterministic state machine over events, without a clock or I/O."""

    def __init__(self, configuration: Configuration, state: ClusterState | None = None) -> None:
        """Make the controllers, each after those that it calls.

        `state`: what is known already, as `restore` has read it; none of it is published again.
        """
        state = ClusterState(configuration) if state is None else state
        self._state = state
        self._repair = RepairPlanner(state)
        self._links = Links(state)
        orders, authority = AdministrativeOrders(state), LocationAuthority(state)
        retry_gate = RetryGate(state, self._repair)
        self._loads = LoadController(state, retry_gate)
        rebalancing = RebalanceController(state, self._repair)
        moves = MoveController(state, self._repair, retry_gate, rebalancing)
        holds = HoldController(state, self._repair, moves)
        streams = StreamController(state, self._repair, retry_gate, moves, rebalancing)
        known = (state, self._repair, retry_gate, moves, streams)
        self._observations = ObservationController(*known)
        registry = NodeRegistry(state, self._repair, retry_gate, moves, holds, authority)
        admission = Admission(state, registry.forget)
        relocations = Relocations(state, admission, orders, registry.enter)
        nodes = NodeController(state, registry, admission, authority, relocations, orders)
        self._operators = OperatorController(
            state, orders, registry, nodes, relocations, moves, holds, rebalancing, self._loads
        )
        self._rebalancing, self._moves, self._holds = rebalancing, moves, holds
        self._streams, self._registry, self._nodes = streams, registry, nodes
        # In any order, except that repair comes last: it asks the topology which replicas are
        # under a hold, and the hold controller writes that there.
        for each in (orders, rebalancing, holds, streams, registry, self._repair):
            each.resume()

    @classmethod
    def restore(cls, configuration: Configuration, published: Published, now: int) -> "Reconciler":
        """Make the reconciler that published these records; see `rebuild` for errors."""
        state = ClusterState(configuration)
        rebuild(state, published, now)
        return cls(configuration, state)

    @property
    def state(self) -> ReadModel:
        """Return the facts that it decides from, to be read between two batches."""
        return self._state

    @property
    def digest(self) -> str:
        """Return the digest of the state of record, 16 hexadecimal digits."""
        return str(self._state.publisher.current_digest())

    def digest_of_version(self, version: int) -> str | None:
        """Compute the digest by a version of its formula; None where this code does not know it."""
        if version == DIGEST_VERSION:
            return self.digest
        return digest_v1.of_state(self._state) if version == 1 else None

    @property
    def now(self) -> int:
        """Return the core's time in ms: the largest it was given."""
        return self._state.now

    @property
    def open_moves(self) -> int:
        """Return the number of moves under way."""
        return len(self._state.ledger.by_shard)

    @property
    def awaits_time(self) -> bool:
        """Return whether time alone may decide something: a node may fall silent, a move expire."""
        alive = (Liveness.UP, Liveness.SUSPECT)
        return self.open_moves > 0 or any(n.liveness in alive for n in self._state.nodes.values())

    def memory_of(self, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the memory of a kind, by name."""
        return self._state.memory.of_kind(kind)

    def in_force(self) -> Ready:
        """Return all nodes, streams, violations and memory as they are, as if just published."""
        state = self._state
        return Ready(
            decisions={name: stream.decision for name, stream in state.streams.items()},
            topology=dict(state.nodes),
            violations={
                state.streams.key(shard): found
                for shard, found in state.publisher.violations.items()
            },
            memory=dict(state.memory),
        )

    def apply(self, events: Sequence[Event], now: int, caught_up: bool = True) -> Ready:
        """Apply the events of a batch in order and derive the work that they make.

        The order of the phases matters: events first; then time, which ends orders, holds and
        moves; then streams that wait, as a node may have come; then balance and repair, which see
        all of it, and streams that wait once more where moves make room at once; then decisions are
        revised, progress is reported, and old records are forgotten.

        `caught_up`: the source is not behind. Until then no repair is issued on verdicts that newer
        events may already have overtaken.
        """
        state = self._state
        state.begin(now)
        if self._carry_out(events):
            self._repair.enqueue_rule_breakers()
        elif any(isinstance(event, NodeChanged | LocationResolved) for event in events):
            self._repair.enqueue_rule_breakers(by_weight=True)
        self._rebalancing.run(caught_up)
        self._repair.run(caught_up, self._streams.place_waiting)
        self._conclude()
        return state.finish()

    def _carry_out(self, events: Sequence[Event]) -> bool:
        """Carry out events, time and retries.

        Returns whether every shard has to be looked over, because orders, holds or the domains in
        use have changed.
        """
        topology, nodes = self._state.topology, self._nodes
        nodes.begin()
        self._loads.begin()
        scopes = nodes.scopes([event for event in events if isinstance(event, NodeChanged)])
        before = topology.occupied_domains(scopes)
        for index, event in enumerate(events):
            reason = self._apply(event)
            if reason is not None:
                self._state.publisher.refuse(index, reason)
        changed = nodes.apply_pending()
        changed |= self._operators.expire() or any(isinstance(e, OperatorAsked) for e in events)
        changed |= self._holds.update()
        self._moves.expire()
        self._moves.remind()
        self._loads.note_freed_nodes()
        self._streams.retry_waiting()
        after = topology.occupied_domains(scopes)
        return changed or any(after[scope] - before[scope] for scope in scopes)

    def _conclude(self) -> None:
        """Revise decisions, tell progress, and forget what is past its retention."""
        state = self._state
        self._streams.revise()
        self._loads.watch()
        self._operators.progress()
        self._registry.retire()
        past = state.now - state.configuration.retention_ms
        state.moves.forget_ended(past)
        self._streams.forget_dropped(past)

    def _apply(self, event: Event) -> Reason | None:
        match event:
            case NodeChanged():
                return self._nodes.apply_change(event)
            case LinksMeasured():
                self._links.record_measurements(event)
                return None
            case LoadsReported():
                return self._loads.apply_reports(event)
            case LocationResolved():
                return self._nodes.apply_location(event)
            case StreamCreated() | StreamAltered() | StreamDropped():
                return self._streams.apply_request(event)
            case ReplicaLost():
                return self._streams.apply_replica_loss(event)
            case ReplicasObserved():
                return self._observations.apply(event)
            case MoveAcked():
                return self._moves.apply_ack(event)
            case OperatorAsked():
                self._operators.apply_request(event)
                return None

    def find_missed(self, repeated: LoadsReported) -> LoadsReported | None:
        """Find what of a repeated word on loads is not known yet, to be applied; None: nothing."""
        return self._loads.find_missed(repeated)

    def preview(self, asked: OperatorAsked) -> Preview:
        """Preview a request: what it would touch, and what forbids it; nothing is changed."""
        return self._operators.preview(asked)

    def violations(self) -> list[Violation]:
        """List what every shard breaks now, computed from the arrangement alone, for the audit."""
        state = self._state
        shards = (shard for stream in state.streams.values() for shard in stream.shards)
        return self._repair.violations(shard for shard in shards if shard not in state.awaited)
