"""What becomes of streams: their creation, and what waits for a fleet that has room."""

from collections.abc import Sequence
from dataclasses import replace

from placement.assignments import EMPTY
from placement.decide import decide, place
from placement.events import StreamCreated
from placement.model import Decision, Outcome
from placement.reasons import Code, Reason
from placement.repair import Repair
from placement.state import State
from placement.strategies.base import unmet


class StreamEvents:
    """Decides streams and revises the decisions of those that wait or lack replicas."""

    def __init__(self, state: State, repair: Repair) -> None:
        self._state, self._repair = state, repair
        self._waiting: set[str] = set()
        self._partial: set[str] = set()
        self._grown = False

    def resume(self) -> None:
        """Go on where the decisions of a restored state say that things stand."""
        for name, stream in self._state.streams.items():
            if stream.decision.outcome is Outcome.WAITING:
                self._waiting.add(name)
            elif stream.decision.outcome is Outcome.PARTIAL:
                self._partial.add(name)

    def room_made(self) -> None:
        """What found no node before may find one now."""
        self._repair.retry_stuck()
        self._grown = True

    def created(self, event: StreamCreated) -> Reason | None:
        """Decide a stream; the reason says why the event is refused."""
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
        self.retry_waiting()
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

    def retry_waiting(self) -> None:
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

    def complete_partial(self) -> None:
        """Revise the decision of every partial stream whose last replica has been added."""
        state = self._state
        touched = self._partial & state.touched() if self._partial else set()
        opened = state.ledger.by_shard.values() if touched else ()
        adding = {each.shard for each in opened if each.removed == EMPTY}
        for name in sorted(touched):
            stream = state.streams[name]
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
