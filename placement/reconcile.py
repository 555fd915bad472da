"""The one entry point of the stream: `Reconciler.apply(events, now) -> Ready`.

Events change the state; what has to be done about it is then derived from the state. The shell
persists `Ready` and goes on; if persisting fails the process dies and rebuilds with `restore`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from placement.assignments import EMPTY
from placement.decide import decide, place
from placement.location import DEPTH_MAX
from placement.model import (
    AckKind,
    AdministrativeState,
    Assignment,
    Decision,
    Event,
    Guard,
    Liveness,
    Move,
    MoveAcked,
    MoveState,
    NodeAttributes,
    NodeChanged,
    NodeView,
    Outcome,
    Ready,
    Refused,
    StreamCreated,
    Violation,
)
from placement.moves import OpenMove
from placement.reasons import Code, Reason
from placement.repair import Repair
from placement.state import Configuration, State
from placement.strategies.base import unmet
from placement.topology import Scope


class Reconciler:
    """A deterministic state machine over events; holds no clock and does no I/O."""

    def __init__(self, configuration: Configuration) -> None:
        self._state = State(configuration)
        self._repair = Repair(self._state)
        self._waiting: set[str] = set()
        self._partial: set[str] = set()
        self._leaving: set[str] = set()
        self._grown = False

    @classmethod
    def restore(
        cls,
        configuration: Configuration,
        nodes: Iterable[NodeView],
        decisions: Iterable[Decision],
        assignments: Iterable[Assignment],
        moves: Iterable[Move],
        violations: Iterable[tuple[Violation, ...]],
        now: int,
    ) -> "Reconciler":
        """The reconciler that published these records; see `State.restore` for errors."""
        made = cls(configuration)
        state = made._state
        state.restore(nodes, decisions, assignments, moves, violations, now)
        for name, stream in state.streams.items():
            if stream.decision.outcome is Outcome.WAITING:
                made._waiting.add(name)
            elif stream.decision.outcome is Outcome.PARTIAL:
                made._partial.add(name)
        made._repair.resume()
        unregistered = (v for v in state.nodes.values() if v.liveness is Liveness.UNREGISTERED)
        made._leaving.update(view.node_id for view in unregistered)
        return made

    @property
    def digest(self) -> str:
        """Digest of the state of record, 16 hexadecimal characters."""
        return str(self._state.digest)

    @property
    def now(self) -> int:
        """Time of the core in ms: the largest it was given."""
        return self._state.now

    @property
    def open_moves(self) -> int:
        """Number of moves under way."""
        return len(self._state.ledger.by_shard)

    def apply(self, events: Sequence[Event], now: int, caught_up: bool = True) -> Ready:
        """Apply the events of a batch in order and derive what has to be done.

        `caught_up` says that the source is not behind; until then no repair is issued on verdicts
        that newer events may already have overtaken.
        """
        state = self._state
        state.begin(now)
        changed = [event for event in events if isinstance(event, NodeChanged)]
        scopes = self._scopes(changed)
        before = state.topology.places(scopes)
        for index, event in enumerate(events):
            reason = self._apply(event)
            if reason is not None:
                state.ready.refused.append(Refused(index, reason))
        for opened in state.ledger.expired(state.now):
            late = Reason(Code.DEADLINE_PASSED, f"no completion by {opened.move.deadline}")
            self._end(opened, MoveState.EXPIRED, late)
        self._retry_waiting()
        if not state.topology.places(scopes) <= before:
            self._repair.look_over()
        self._repair.run(caught_up)
        self._complete_partial()
        self._retire()
        state.forget_moves(state.now - state.configuration.retention_ms)
        return state.finish()

    def _apply(self, event: Event) -> Reason | None:
        match event:
            case NodeChanged():
                self._node_changed(event)
                return None
            case StreamCreated():
                return self._stream_created(event)
            case MoveAcked():
                self._move_acked(event)
                return None

    def violations(self) -> list[Violation]:
        """What every shard breaks now, judged from nothing: the audit's view."""
        return [
            violation
            for shard in range(self._state.table.shards)
            for violation in self._repair.violations(shard, {})
        ]

    # Nodes

    def _node_changed(self, event: NodeChanged) -> None:
        state = self._state
        before = state.nodes.get(event.node_id)
        if before is None and event.attributes is None:
            state.count("unknown_node")
            return
        ordered, guard = event.administrative, event.guard
        if ordered is None:
            ordered = before.administrative if before else AdministrativeState.NONE
        if guard is None:
            guard = before.guard if before else Guard.NONE
        node = state.topology.put(
            event.node_id, _attributes(event, before), event.liveness, ordered, guard
        )
        changed = before is None or before.liveness is not event.liveness
        state.publish_node(
            NodeView(
                node_id=event.node_id,
                incarnation=event.incarnation,
                sequence=event.sequence,
                body_hash=event.body_hash or (before.body_hash if before else ""),
                revision=before.revision + 1 if before else 1,
                attributes=state.topology.attributes[node],
                liveness=event.liveness,
                since=event.at if changed or before is None else before.since,
                administrative=ordered,
                guard=guard,
            )
        )
        self._repair.look_at(state.table.shards_on(node))
        self._review_moves(node)
        self._room_made()
        if event.liveness is Liveness.UNREGISTERED:
            self._leaving.add(event.node_id)

    def _scopes(self, changed: Sequence[NodeChanged]) -> tuple[Scope, ...]:
        """What domains may come or go with these events: of every level, and of the nodes' tags."""
        if not changed:
            return ()
        known = [self._state.nodes.get(event.node_id) for event in changed]
        tags = [view.attributes.tags for view in known if view is not None]
        tags += [event.attributes.tags for event in changed if event.attributes is not None]
        tags += [event.tags for event in changed if event.tags is not None]
        keys = sorted({key for each in tags for key, _ in each})
        return (*(Scope(depth=depth) for depth in range(1, DEPTH_MAX + 1)), *map(_tag_scope, keys))

    def _room_made(self) -> None:
        """What found no node before may find one now."""
        self._repair.retry_stuck()
        self._grown = True

    def _review_moves(self, node: int) -> None:
        """Look at the moves from and to the node: cancel those whose target may no longer receive,
        or whose source came back in time."""
        state = self._state
        name = state.topology.ids[node]
        for opened in state.ledger.touching(node):
            self._repair.look_at([opened.shard])
            if opened.added == node and not state.topology.eligible[node]:
                lost = Reason(Code.TARGET_LOST, f"{name} is {state.topology.status(node)}")
                self._end(opened, MoveState.CANCELLED, lost)
            elif (
                opened.removed == node
                and opened.move.state is MoveState.ISSUED
                and not self._still_leaves(node, opened.move.reason.code)
            ):
                back = Reason(Code.SOURCE_RETURNED, f"{name} is {state.topology.liveness[node]}")
                self._end(opened, MoveState.CANCELLED, back)

    def _still_leaves(self, node: int, why: Code) -> bool:
        """Whether a replica is to leave the node for the reason that its move was issued for."""
        topology = self._state.topology
        match why:
            case Code.NODE_DEAD | Code.NODE_UNREGISTERED:
                return topology.is_dead(node)
            case Code.NODE_DRAINING:
                draining = topology.administrative[node] is AdministrativeState.DRAINING
                return draining or topology.is_dead(node)
        return True

    def _retire(self) -> None:
        """Drop unregistered nodes that hold nothing any more."""
        state = self._state
        for name in sorted(self._leaving):
            node = state.topology.index[name]
            if state.topology.liveness[node] is not Liveness.UNREGISTERED:
                self._leaving.discard(name)
            elif not state.table.load(node + 1)[node] and not state.ledger.touching(node):
                self._leaving.discard(name)
                state.forget_node(name)

    # Streams

    def _stream_created(self, event: StreamCreated) -> Reason | None:
        state = self._state
        known = state.streams.get(event.stream)
        if known is not None:
            sequence = known.decision.sequence
            if event.sequence < sequence:
                state.count("stale_stream")
                return None
            if event.sequence == sequence:
                if event.body_hash == known.decision.body_hash:
                    state.count("repeated_stream")
                    return None
                message = f"{event.stream}: sequence {sequence} was used with another body"
                return Reason(Code.SEQUENCE_CONFLICT, message)
            if known.decision.outcome is not Outcome.REJECTED:
                message = f"{event.stream} exists and is {known.decision.outcome}"
                return Reason(Code.STREAM_EXISTS, message)
        self._retry_waiting()
        decision, policy, placement = decide(state, event, known)
        stream = state.publish_decision(decision, policy)
        if decision.outcome is Outcome.WAITING:
            self._waiting.add(event.stream)
        elif placement is not None:
            self._enter(stream.decision, placement)
        if event.replicas is not None:
            self._repair.look_at(stream.shards)
        return None

    def _enter(self, decision: Decision, shards: Sequence[Sequence[int]]) -> None:
        """Put a placement into the table."""
        state = self._state
        allotted = state.allot(state.streams[decision.stream], shards)
        topology = state.topology
        # Domains that are out of reach for the moment are in no placement, and will be missed.
        doubtful = bool((topology.accounted & ~topology.eligible).any())
        for shard, nodes in zip(allotted, shards, strict=True):
            for slot, node in enumerate(nodes):
                state.table.set(shard, slot, node)
            state.touch(shard)
            if EMPTY in nodes or decision.outcome is Outcome.DEGRADED or doubtful:
                self._repair.look_at([shard])
        if decision.outcome is Outcome.PARTIAL:
            self._partial.add(decision.stream)

    def _retry_waiting(self) -> None:
        """Place waiting streams again, in the order of their names, if the fleet has changed."""
        state = self._state
        if not self._grown:
            return
        self._grown = False
        for name in sorted(self._waiting):
            stream = state.streams[name]
            assert stream.policy is not None
            answer = place(state, stream.spec, stream.policy)
            if answer.outcome is Outcome.WAITING:
                continue
            self._waiting.discard(name)
            rejected = answer.outcome is Outcome.REJECTED
            decision = replace(
                stream.decision,
                revision=stream.decision.revision + 1,
                outcome=answer.outcome,
                shards_placed=answer.shards_placed,
                replicas_missing=answer.replicas_missing,
                reasons=answer.reasons,
                warnings=answer.warnings,
                decided_at=state.now,
            )
            state.publish_decision(decision, None if rejected else stream.policy)
            if not rejected:
                self._enter(decision, answer.shards)

    def _complete_partial(self) -> None:
        """Revise the decision of every partial stream whose last replica has been added."""
        state = self._state
        for name in sorted(self._partial):
            stream = state.streams[name]
            adding = {o.shard for o in state.ledger.by_shard.values() if o.removed == EMPTY}
            factor = stream.copies
            held = [len(state.table.replicas(shard)) for shard in stream.shards]
            lacks = [
                max(factor - count, 0) + (shard in adding)
                for shard, count in zip(stream.shards, held, strict=True)
            ]
            missing = sum(lacks)
            if missing == stream.decision.replicas_missing:
                continue
            decision = replace(
                stream.decision,
                revision=stream.decision.revision + 1,
                replicas_missing=missing,
                shards_placed=lacks.count(0),
                decided_at=state.now,
            )
            if missing == 0:
                shards = [state.table.nodes(shard) for shard in stream.shards]
                assert stream.policy is not None
                warnings = unmet(
                    state.rules(stream), shards, stream.spec, stream.policy, state.topology
                )
                outcome = Outcome.DEGRADED if warnings else Outcome.PLACED
                decision = replace(decision, outcome=outcome, reasons=(), warnings=warnings)
                self._partial.discard(name)
            state.publish_decision(decision, stream.policy)

    # Moves

    def _move_acked(self, event: MoveAcked) -> None:
        state = self._state
        move = self._acked(event)
        if move is None or not move.state.is_open:
            state.count("unknown_move" if move is None else "late_ack")
            return
        shard = state.streams[move.stream].shards[move.shard]
        opened = state.ledger.by_shard[shard]
        match event.kind:
            case AckKind.ACCEPTED:
                if move.state is MoveState.ACCEPTED:
                    state.count("repeated_ack")
                else:
                    state.publish_move(state.ledger.accept(shard))
            case AckKind.COMPLETED:
                self._end(opened, MoveState.COMPLETED, move.reason)
            case AckKind.FAILED:
                failed = Reason(Code.EXECUTOR_FAILED, event.reason or "the executor gave no reason")
                self._end(opened, MoveState.FAILED, failed)

    def _acked(self, event: MoveAcked) -> Move | None:
        """The move an executor speaks of."""
        state = self._state
        if event.move_id is not None:
            return state.ledger.known.get(event.move_id)
        stream = state.streams.get(event.stream)
        if stream is None or event.shard >= len(stream.shards):
            return None
        opened = state.ledger.by_shard.get(stream.shards[event.shard])
        return opened.move if opened else None

    def _end(self, opened: OpenMove, end: MoveState, reason: Reason) -> None:
        """End an open move; unless it completed, the replica stands where it stood before."""
        state = self._state
        shard = opened.shard
        state.settle(state.ledger.close(shard, end, state.now, reason))
        leaves_live = opened.removed != EMPTY and bool(state.topology.eligible[opened.removed])
        if end is not MoveState.COMPLETED or leaves_live:
            self._room_made()
        state.publish_move(opened.move)
        state.touch(shard)
        self._repair.look_at([shard])
        if end is MoveState.CANCELLED:
            self._repair.ended_early(shard, opened.move)


def _tag_scope(key: str) -> Scope:
    return Scope(tag=key)


def _attributes(event: NodeChanged, before: NodeView | None) -> NodeAttributes:
    """Attributes after the event: a registration's own, else the known ones, relocated if told."""
    if event.attributes is not None:
        return event.attributes
    assert before is not None
    attributes = before.attributes
    if event.location is not None:
        attributes = replace(attributes, location=event.location)
    if event.tags is not None:
        attributes = replace(attributes, tags=event.tags)
    return attributes
