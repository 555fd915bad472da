"""Carries out events of streams: created, altered, dropped; retries those that wait."""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from placement.assignments import EMPTY
from placement.controllers.moves import MoveController
from placement.controllers.rebalance import RebalanceController
from placement.controllers.retry_gate import RetryGate
from placement.model import (
    Adoption,
    Code,
    Decision,
    MoveKind,
    MoveState,
    Outcome,
    Reason,
    ReplicaLost,
    StreamAltered,
    StreamCreated,
    StreamDropped,
    StreamRequested,
)
from placement.moves import OpenMove
from placement.policy import Policy
from placement.repair import RepairPlanner
from placement.state import ClusterState, Stream
from placement.streams import (
    Alteration,
    awaited_reasons,
    count_whole_shards,
    decide,
    is_obsolete,
    is_resolved,
    place,
    plan_alteration,
    reassess,
    slots_for_spec,
    spec_of,
)


class StreamController:
    """Decides streams and revises the decisions of those that wait or lack replicas."""

    def __init__(
        self,
        state: ClusterState,
        repair: RepairPlanner,
        retry_gate: RetryGate,
        moves: MoveController,
        rebalancing: RebalanceController,
    ) -> None:
        self._state, self._repair, self._retry_gate, self._moves = state, repair, retry_gate, moves
        self._rebalancing = rebalancing
        self._waiting: set[str] = set()
        self._unsettled: set[str] = set()
        # Streams whose replicas this batch has found elsewhere than recorded.
        self._corrected: set[str] = set()
        # Dropped streams and when they were; the first of them first.
        self._dropped: deque[tuple[int, str]] = deque()

    def resume(self) -> None:
        """Continue with the streams of a restored state."""
        for stream in self._state.streams.values():
            self._file(stream.decision)
        for opened in self._state.ledger.by_shard.values():
            self._note_removal(opened)
        self._dropped = deque(sorted(self._dropped))

    # Events

    def apply_request(self, event: StreamRequested | StreamDropped) -> Reason | None:
        """Apply a stream event, or return why it is refused.

        One that is older than what was applied last, or repeats it, is counted.
        """
        known = self._state.streams.get(event.stream)
        if known is not None and event.sequence <= known.decision.sequence:
            sequence = known.decision.sequence
            if event.sequence == sequence and event.body_hash != known.decision.body_hash:
                used = f"sequence {sequence} was already used with another body"
                message = f"stream '{event.stream}': {used}"
                return Reason(Code.SEQUENCE_CONFLICT, message)
            self._state.publisher.count(
                "stale_stream" if event.sequence < sequence else "repeated_stream"
            )
            return None
        if isinstance(event, StreamCreated):
            return self._create(event, known)
        wrong = self._state.streams.other_uid(event.stream, event.uid)
        if wrong is not None:
            return wrong
        if known is None or known.decision.outcome is Outcome.DROPPED:
            gone = f"stream '{event.stream}' was dropped"
            message = gone if known else f"there is no stream '{event.stream}'"
            return Reason(Code.STREAM_UNKNOWN, message)
        if isinstance(event, StreamDropped):
            self._drop(event, known)
        elif isinstance(event, StreamAltered):
            self._alter(event, known)
        return None

    def _create(self, event: StreamCreated, known: Stream | None) -> Reason | None:
        """Create a stream, or return why it cannot be.

        One with another uid than a stream of this name has takes its place: that one is gone.
        """
        gone = (Outcome.REJECTED, Outcome.DROPPED)
        if known is not None and known.decision.outcome not in gone:
            if self._state.streams.other_uid(event.stream, event.uid) is None:
                message = f"stream '{event.stream}' already exists and is {known.decision.outcome}"
                return Reason(Code.STREAM_EXISTS, message)
            self._drop(event, known)
        self.retry_waiting()
        self._decide(event, known)
        return None

    def _decide(self, event: StreamRequested, known: Stream | None) -> None:
        """Place a stream that has no replicas.

        A waiting stream goes on waiting for what it asked for before where the new request is
        refused.
        """
        decision, policy, placement = decide(self._state, event, known)
        waits = known is not None and known.decision.outcome is Outcome.WAITING
        if known is not None and waits and decision.outcome is Outcome.REJECTED:
            self._refuse(event, known, decision.reasons)
            return
        stream = self._publish(decision, policy)
        if decision.spec.adopt == Adoption.OBSERVED and placement is not None:
            self._state.await_replicas(self._state.allocate_slots(stream))
        elif placement is not None:
            self._enter(stream, placement)
        if event.replicas is not None:
            self._repair.enqueue(stream.shards)

    def _enter(self, stream: Stream, shards: Sequence[Sequence[int]]) -> None:
        """Record the placement of a stream."""
        topology, outcome = self._state.topology, stream.decision.outcome
        allotted = self._state.allocate_slots(stream, shards)
        self._fill(allotted, shards)
        # What is out of reach for the moment, or full, is in no placement, and will be missed.
        load, most = self._state.table.load(topology.size), topology.capacity
        out_of_reach = ~topology.eligible | ((most >= 0) & (load >= most))
        doubtful = bool((topology.counts_for_rules & out_of_reach).any())
        for shard, nodes in zip(allotted, shards, strict=True):
            if EMPTY in nodes or outcome is Outcome.DEGRADED or doubtful:
                self._repair.enqueue([shard])

    def _fill(self, allotted: Sequence[int], shards: Sequence[Sequence[int]]) -> None:
        """Place the first replicas of new shards."""
        counts = np.fromiter(map(len, shards), np.int64, len(allotted))
        nodes = np.fromiter(chain.from_iterable(shards), np.int64, int(counts.sum()))
        self._state.place_replicas(np.asarray(allotted, np.int64), counts, nodes)

    def _alter(self, event: StreamAltered, stream: Stream) -> None:
        """Put another spec in force.

        A stream that was rejected or waits is decided as if it were created now.
        """
        self.retry_waiting()
        if stream.decision.outcome in (Outcome.REJECTED, Outcome.WAITING):
            self._decide(event, stream)
            return
        found = plan_alteration(self._state, stream, event)
        if isinstance(found, Alteration):
            self._change(event, stream, found)
        else:
            self._refuse(event, stream, found)

    def _refuse(self, event: StreamRequested, stream: Stream, reasons: tuple[Reason, ...]) -> None:
        """Publish why a request changes nothing."""
        wanted = spec_of(self._state, event)
        told = (*reasons, *awaited_reasons(self._state, stream))
        self._publish(
            self._next_decision(event, stream, requested=wanted, reasons=told), stream.policy
        )

    def _change(self, event: StreamAltered, stream: Stream, found: Alteration) -> None:
        """Put another spec in force: the replicas stay, new shards are placed."""
        state, policy = self._state, found.policy
        same = policy == stream.policy
        why = Reason(Code.SPEC_CHANGED, f"{event.stream} was altered")
        in_roles = bool(
            state.streams.slot_layout(stream).role_copies or state.streams.role_copies(policy)
        )
        if in_roles:
            self._cancel(stream.shards, why)
        kept = [slots_for_spec(state, shard, stream, policy, found.spec) for shard in stream.shards]
        shards = stream.shards
        strategy = policy.strategy
        decision = self._next_decision(
            event, stream, spec=found.spec, strategy=strategy, requested=None
        )
        state.upsert_stream(decision, policy)
        state.add_slots(stream, max(stream.copies, *map(len, found.added), 1))
        if in_roles:
            for shard, nodes in zip(shards, kept, strict=True):
                if shard not in state.awaited:
                    state.lay_out(shard, nodes)
        for shard in shards:
            opened = state.ledger.by_shard.get(shard)
            if opened is not None and is_obsolete(state, opened, stream, same):
                self._moves.end(opened, MoveState.CANCELLED, why)
        if found.added:
            self._fill(state.add_shards(stream, len(found.added)), found.added)
        self._repair.enqueue(stream.shards)
        self._publish(reassess(state, stream, stream.decision, found.lacking), policy)
        for opened in map(state.ledger.by_shard.get, shards):
            if opened is not None:
                self._note_removal(opened)

    def _note_removal(self, opened: OpenMove) -> None:
        """Note that a removal under way leaves a shard short of the replicas it is now asked
        for."""
        state = self._state
        stream = state.streams.of_shard(opened.shard)
        lacks = len(state.table.replicas(opened.shard)) < stream.copies
        if opened.move.kind is MoveKind.REMOVE and lacks:
            self._unsettled.add(opened.move.stream)

    def _drop(self, event: StreamDropped | StreamCreated, stream: Stream) -> None:
        """Drop a stream with its replicas."""
        state, shards = self._state, stream.shards
        self._cancel(shards, Reason(Code.STREAM_DROPPED, f"{event.stream} was dropped"))
        self._repair.forget(shards)
        self._rebalancing.forget(event.stream)
        for node in {node for shard in shards for node in state.table.replicas(shard)}:
            self._retry_gate.note_freed_node(node)
        state.drop_shards(stream)
        decision = self._next_decision(
            event,
            stream,
            outcome=Outcome.DROPPED,
            shards_placed=0,
            replicas_missing=0,
            reasons=(),
            warnings=(),
            requested=None,
        )
        self._publish(decision, None)

    def apply_replica_loss(self, event: ReplicaLost) -> Reason | None:
        """Remove a lost replica from its shard, so that repair makes another.

        Returns why, where there is no such shard or node. The same node may be chosen again, like
        any other; it says so if it cannot hold it. A replica that is not there is counted: it was
        reported before.
        """
        state = self._state
        wrong = state.streams.other_uid(event.stream, event.uid)
        wrong = wrong or state.streams.unknown_shard(event.stream, event.shard)
        if wrong is not None:
            return wrong
        stream, node = state.streams[event.stream], state.topology.index.get(event.node_id)
        if node is None:
            what = f"loss of the replica of {event.stream}/{event.shard}"
            return Reason(Code.NODE_UNKNOWN, f"{what}: there is no node '{event.node_id}'")
        if event.shard >= len(stream.shards):
            state.publisher.count("unknown_replica")
            return None
        shard = stream.shards[event.shard]
        why = event.reason or "the executor gave no reason"
        replica = f"the replica of {event.stream}/{event.shard} on node {event.node_id}"
        lost = Reason(Code.REPLICA_LOST, f"{replica} is lost: {why}")
        opened = state.ledger.by_shard.get(shard)
        if opened is not None and opened.added == node:
            self._moves.end(opened, MoveState.FAILED, lost)
            return None
        if node not in state.current_replicas(shard):
            state.publisher.count("unknown_replica")
            return None
        self._cancel([shard], lost)
        state.clear_slot(shard, state.table.nodes(shard).index(node))
        self._retry_gate.note_freed_node(node)
        self._repair.enqueue([shard])
        if stream.decision.outcome is not Outcome.PARTIAL:
            self._revise(stream, reassess(state, stream, stream.decision, (lost,)), stream.policy)
        return None

    def note_correction(self, name: str) -> None:
        """Note that replicas of a stream were found elsewhere than recorded, in this batch."""
        self._corrected.add(name)

    def _cancel(self, shards: Iterable[int], why: Reason) -> None:
        """Cancel the open moves of shards that have changed under them."""
        for shard in shards:
            opened = self._state.ledger.by_shard.get(shard)
            if opened is not None:
                self._moves.end(opened, MoveState.CANCELLED, why)

    # Decisions

    def _next_decision(
        self, event: StreamRequested | StreamDropped, stream: Stream, **changed: Any
    ) -> Decision:
        """Make the decision on a further event."""
        return replace(
            stream.decision,
            sequence=event.sequence,
            body_hash=event.body_hash,
            revision=stream.decision.revision + 1,
            decided_at=self._state.now,
            **changed,
        )

    def _revise(self, stream: Stream, decision: Decision, policy: Policy | None) -> None:
        """Publish a revision of a stream's decision.

        The reasons of a refused request stay; of shards to be observed the number is that of now.
        """
        reasons = decision.reasons
        if stream.decision.requested is not None:
            before = stream.decision.reasons
            refused = [each for each in before if each.code is not Code.REPLICAS_AWAITED]
            reasons = (*refused, *awaited_reasons(self._state, stream))
        decision = replace(
            decision,
            revision=stream.decision.revision + 1,
            reasons=reasons,
            decided_at=self._state.now,
        )
        self._publish(decision, policy)

    def _publish(self, decision: Decision, policy: Policy | None) -> Stream:
        stream = self._state.upsert_stream(decision, policy)
        self._file(decision)
        return stream

    def _file(self, decision: Decision) -> None:
        """Note what may have to be revised of the stream later."""
        name, outcome = decision.stream, decision.outcome
        (self._waiting.add if outcome is Outcome.WAITING else self._waiting.discard)(name)
        unsettled = outcome in (Outcome.PARTIAL, Outcome.DEGRADED)
        (self._unsettled.add if unsettled else self._unsettled.discard)(name)
        if outcome is Outcome.DROPPED:
            self._dropped.append((decision.decided_at, name))

    def retry_waiting(self) -> None:
        """Place waiting streams again where the nodes that they may use have changed.

        They are tried in the order of their names.
        """
        state = self._state
        if not self._retry_gate:
            return
        for name in sorted(self._waiting):
            stream = state.streams[name]
            assert stream.policy is not None
            if not self._retry_gate.may_help(stream.policy):
                continue
            state.publisher.count("retried_stream")
            answer = place(state, stream.spec, stream.policy)
            waits = answer.outcome is Outcome.WAITING
            if waits and (stream.decision.requested or answer.reasons == stream.decision.reasons):
                continue
            decision = replace(
                stream.decision,
                outcome=answer.outcome,
                shards_placed=answer.shards_placed,
                replicas_missing=answer.replicas_missing,
                reasons=answer.reasons,
                warnings=answer.warnings,
            )
            rejected = answer.outcome is Outcome.REJECTED
            self._revise(stream, decision, None if rejected else stream.policy)
            if not (rejected or waits):
                self._enter(stream, answer.shards)
        self._retry_gate.reset()

    def place_waiting(self, freed: Collection[int]) -> None:
        """Place waiting streams where replicas have just left nodes, given by index."""
        for node in freed:
            if self._state.topology.eligible[node]:
                self._retry_gate.note_freed_node(node)
        self.retry_waiting()

    def revise(self) -> None:
        """Revise decisions that are no longer true.

        They are those of streams that lack other replicas than they say, and of degraded ones that
        break no rule any more: a node that moves may be enough for that.
        """
        state = self._state
        doubted = self._unsettled | self._corrected
        touched = doubted & state.publisher.changed_streams() if doubted else set()
        if self._unsettled:
            touched |= self._unsettled & {name for name, _ in state.publisher.ready.violations}
        self._corrected.clear()
        for name in sorted(touched):
            stream = state.streams[name]
            before = stream.decision
            decision = count_whole_shards(state, stream, before)
            mended = is_resolved(state, stream)
            if decision == before and not mended:
                continue
            awaited = any(each.code is Code.REPLICAS_AWAITED for each in before.reasons)
            partial = before.outcome is Outcome.PARTIAL and not awaited
            if mended or not (partial and decision.replicas_missing):
                decision = reassess(state, stream, decision)
            if decision != before:
                self._revise(stream, decision, stream.policy)

    def forget_dropped(self, before: int) -> None:
        """Forget the streams that were dropped before the given time (ms).

        An event of theirs is that of an unknown stream from then on.
        """
        due: set[str] = set()
        while self._dropped and self._dropped[0][0] < before:
            at, name = self._dropped.popleft()
            known = self._state.streams.get(name)
            last = known.decision if known else None
            if last and (last.outcome, last.decided_at) == (Outcome.DROPPED, at):
                due.add(name)
        for name in sorted(due):
            self._state.forget_stream(name)
