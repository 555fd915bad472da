"""Carries out events of moves: acknowledgements, deadlines, and nodes that change under them."""

from placement.assignments import EMPTY
from placement.controllers.rebalance import RebalanceController
from placement.controllers.retry_gate import RetryGate
from placement.diagnosis import why_kept
from placement.model import (
    AckKind,
    Cause,
    Code,
    Guard,
    Move,
    MoveAcked,
    MoveState,
    Reason,
)
from placement.moves import OpenMove
from placement.repair import RepairPlanner
from placement.state import ClusterState

# Share of its lease that a move must have used up before a report of progress extends it: four
# records for each lease at most.
_LEASE_USED = 0.25


class MoveController:
    """Ends and accepts the moves of the ledger."""

    def __init__(
        self,
        state: ClusterState,
        repair: RepairPlanner,
        retry_gate: RetryGate,
        rebalancing: RebalanceController,
    ) -> None:
        self._state, self._repair, self._retry_gate = state, repair, retry_gate
        self._rebalancing = rebalancing

    def apply_ack(self, event: MoveAcked) -> Reason | None:
        """Apply an executor's acknowledgement of a move, or return why there is no such move.

        What is late or repeated is counted.
        """
        state = self._state
        confirmed = self._confirmed_moves(event)
        for move_id in confirmed:
            state.moves.confirm_cancellation(move_id)
        if confirmed:
            return None
        move = self._find_move(event)
        if event.move_id is None:
            move = state.streams.other_uid(event.stream, event.uid) or move
        elif isinstance(move, Move):
            move = _why_other_stream(move, event) or move
        if isinstance(move, Reason):
            return move
        if move is None or not move.state.is_open:
            state.publisher.count("late_ack")
            return None
        if (event.stream, event.shard) != (move.stream, move.shard):
            said = f"{event.kind} of move '{move.move_id}' names {event.stream}/{event.shard}"
            message = f"{said}, but the move is of {move.stream}/{move.shard}"
            return Reason(Code.MOVE_UNKNOWN, message)
        self._follow(state.ledger.by_shard[state.streams[move.stream].shards[move.shard]], event)
        return None

    def _follow(self, opened: OpenMove, event: MoveAcked) -> None:
        """Carry out what the executor says of an open move."""
        state, move = self._state, opened.move
        match event.kind:
            case AckKind.ACCEPTED:
                if move.state is MoveState.ACCEPTED:
                    state.publisher.count("repeated_ack")
                else:
                    state.moves.accept(opened.shard)
            case AckKind.PROGRESSED:
                self._renew(opened, event)
            case AckKind.COMPLETED:
                self.end(opened, MoveState.COMPLETED, move.reason)
            case AckKind.FAILED | AckKind.STOPPED:
                failed = Reason(Code.EXECUTOR_FAILED, event.reason or "the executor gave no reason")
                self.end(opened, MoveState.FAILED, failed)
                self._back_off(opened.move)

    def _renew(self, opened: OpenMove, event: MoveAcked) -> None:
        """Extend the deadline of a move that makes progress, and record that it is accepted.

        A report that comes before a quarter of the lease is used up is only counted: the records of
        a long copy stay few.
        """
        state = self._state
        lease = state.configuration.deadline_ms
        if opened.move.state is MoveState.ISSUED:
            state.moves.accept(opened.shard)
        move, done = opened.move, event.bytes_done
        if done is not None and done <= (move.bytes_done or 0):
            state.publisher.count("stalled_progress")
        elif event.at + lease - move.deadline < lease * _LEASE_USED:
            state.publisher.count("early_progress")
        else:
            renewed = move._replace(
                deadline=event.at + lease,
                renewed_at=event.at,
                bytes_done=move.bytes_done if done is None else done,
                bytes_total=event.bytes_total or move.bytes_total,
            )
            state.moves.renew(opened.shard, renewed)

    def _confirmed_moves(self, event: MoveAcked) -> list[str]:
        """Find the cancelled moves that the executor says it has stopped.

        One that it has accepted or completed it still has to undo.
        """
        if event.kind not in (AckKind.STOPPED, AckKind.FAILED):
            return []
        notices, known = self._state.moves.cancel_notices, self._state.ledger.known
        if event.move_id is not None:
            found = [event.move_id] if event.move_id in notices else []
        else:
            stopped = event.kind is AckKind.STOPPED
            found = notices.of((event.stream, event.shard)) if stopped else []
        return [name for name in found if not _why_other_stream(known[name], event)]

    def _find_move(self, event: MoveAcked) -> Move | Reason | None:
        """Find the move that an acknowledgement is about.

        None: it names a shard that has no open move. A reason: there is no such move or shard.
        """
        state = self._state
        if event.move_id is not None:
            return state.ledger.known.get(event.move_id) or self._no_such_move(event)
        unknown = state.streams.unknown_shard(event.stream, event.shard)
        if unknown is not None:
            return unknown
        shards = state.streams[event.stream].shards
        if event.kind is AckKind.STOPPED or event.shard >= len(shards):
            return None
        opened = state.ledger.by_shard.get(shards[event.shard])
        return opened.move if opened else None

    def _no_such_move(self, event: MoveAcked) -> Reason:
        seconds = self._state.configuration.retention_ms // 1000
        said = f"{event.kind} of move '{event.move_id}' of {event.stream}/{event.shard}"
        never = f"no move with this id was issued, or it ended more than {seconds} s ago"
        return Reason(Code.MOVE_UNKNOWN, f"{said}: {never}")

    def expire(self) -> None:
        """End the moves whose deadline has passed, and forget failures of long ago."""
        for opened in self._state.ledger.expired_moves(self._state.now):
            move = opened.move
            since = move.issued_at if move.renewed_at is None else move.renewed_at
            seconds = (move.deadline - since) // 1000
            message = f"the executor did not complete the move within {seconds} s"
            if move.renewed_at is not None:
                message += " of its last progress"
            late = Reason(Code.DEADLINE_PASSED, message)
            self.end(opened, MoveState.EXPIRED, late)
        # Whoever has not failed for as long as the longest pause begins anew.
        before = self._state.now - self._state.configuration.backoff_max_ms
        for shard, node_id in self._state.moves.backoff.expired_pauses(before):
            self._state.moves.forget_failures(shard, node_id)

    def remind(self) -> None:
        """Remind executors of moves that were called off and that they have not stopped."""
        state = self._state
        for move_id in state.moves.cancel_notices.due_moves(
            state.now - state.configuration.remind_ms
        ):
            move = state.ledger.known[move_id]
            again = move._replace(reminded=(move.reminded or 0) + 1)
            state.moves.amend(again)

    def review(self, node: int) -> None:
        """Cancel the node's moves that its condition has made needless or impossible.

        Needless: the source came back in time. Impossible: the target may no longer receive.
        """
        state = self._state
        name = state.topology.ids[node]
        for opened in state.ledger.moves_of_node(node):
            self._repair.enqueue([opened.shard])
            if opened.added == node and not state.topology.eligible[node]:
                lost = Reason(Code.TARGET_LOST, f"node {name} is {state.topology.status(node)}")
                self.end(opened, MoveState.CANCELLED, lost)
            elif opened.is_hand_over:
                if opened.leader == node and not state.topology.eligible[node]:
                    status = f"node {name} is {state.topology.status(node)}"
                    self.end(opened, MoveState.CANCELLED, Reason(Code.TARGET_LOST, status))
            elif (
                opened.removed == node
                and opened.move.state is MoveState.ISSUED
                and not self._still_leaves(node, opened.move.reason.code)
            ):
                kept = why_kept([node], state.topology)
                here = f"node {name} is {state.topology.liveness[node]}"
                back = kept or Reason(Code.SOURCE_RETURNED, here)
                self.end(opened, MoveState.CANCELLED, back)

    def _still_leaves(self, node: int, why: Code) -> bool:
        """Return whether a replica still has to leave the node for the reason of its move."""
        topology = self._state.topology
        match why:
            case Code.NODE_DEAD | Code.NODE_UNREGISTERED:
                # A node that flaps is back for a moment only: copying goes on.
                return topology.is_lost(node) or topology.guard[node] is Guard.HELD_DOWN
            case Code.NODE_DRAINING:
                return topology.is_draining(node) or topology.is_lost(node)
        return True

    def cancel(self, move_id: str) -> None:
        """Cancel an open move because an operator asked for it.

        Its target is left alone for a while, as if the move had failed there.
        """
        move = self._state.ledger.known[move_id]
        shard = self._state.streams[move.stream].shards[move.shard]
        opened = self._state.ledger.by_shard[shard]
        why = Reason(Code.REQUEST_CANCELLED, "an operator cancelled the move")
        self.end(opened, MoveState.CANCELLED, why, replaced=False)
        self._back_off(opened.move)

    def end(self, opened: OpenMove, end: MoveState, reason: Reason, replaced: bool = True) -> None:
        """End an open move; unless it completed, the plan takes it back.

        The moves for balance that were to go with it are cancelled, too. `replaced`: the shard's
        next move, if it comes in this batch, supersedes a cancelled one.
        """
        if self._state.ledger.by_shard.get(opened.shard) is not opened:
            return  # it ended just now, along with another one
        self._end_one(opened, end, reason, replaced)
        if end is MoveState.COMPLETED:
            return
        first = f"{opened.move.stream}/{opened.move.shard}"
        message = f"the move of {first}, with which this one belongs, has ended: {reason.message}"
        together = Reason(reason.code, message)
        for each in self._moves_along_with(opened):
            self._end_one(each, MoveState.CANCELLED, together, replaced)

    def _end_one(self, opened: OpenMove, end: MoveState, reason: Reason, replaced: bool) -> None:
        state = self._state
        shard = opened.shard
        state.moves.end(shard, end, reason)
        left = opened.removed if end is MoveState.COMPLETED else opened.added
        if left != EMPTY and state.topology.eligible[left]:
            self._retry_gate.note_freed_node(left)
        self._rebalancing.note_move_end(opened.move.cause, end)
        self._repair.enqueue([shard])
        if end is MoveState.CANCELLED and replaced:
            self._repair.note_cancelled_move(shard, opened.move)
        if end is MoveState.COMPLETED:
            self._forget_failures_of(opened.move)

    def _moves_along_with(self, ended: OpenMove) -> list[OpenMove]:
        """List the open moves for balance that take a colocated stream's shards to the same node.

        None, once a shard has arrived there: those left behind then follow. So they do after a
        move for repair, which is made anew; a move for balance is not, and the shards that went
        on would have to come back.
        """
        state, move = self._state, ended.move
        stream = state.streams[move.stream]
        if (
            ended.is_hand_over
            or move.cause != Cause.BALANCE
            or not state.streams.is_colocated(stream)
        ):
            return []
        if any(ended.added in state.current_replicas(shard) for shard in stream.shards):
            return []
        opened = (state.ledger.by_shard.get(shard) for shard in stream.shards)
        return [
            each
            for each in opened
            if each is not None
            and each.move.cause == Cause.BALANCE
            and (each.removed, each.added) == (ended.removed, ended.added)
        ]

    def _back_off(self, move: Move) -> None:
        """Avoid the target of a failed move for a while."""
        state, at = self._state, (move.stream, move.shard)
        node_id = move.add or move.remove or move.leader
        assert node_id is not None, "a move names the node that it is about"
        state.moves.back_off(at, node_id)

    def _forget_failures_of(self, move: Move) -> None:
        """Forget earlier failures on a node where a move has succeeded."""
        at = (move.stream, move.shard)
        self._state.moves.forget_failures(at, move.add or move.remove or move.leader or "")


def _why_other_stream(move: Move, event: MoveAcked) -> Reason | None:
    """Return why a message is about a move of another stream of that name, with another uid."""
    if event.uid is None or move.uid is None or event.uid == move.uid:
        return None
    message = f"move '{move.move_id}' is of uid '{move.uid}' of stream '{move.stream}'"
    return Reason(Code.STREAM_UID_DIFFERS, f"{message}, the message is about uid '{event.uid}'")
