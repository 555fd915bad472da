"""Opens, ends and forgets moves: in the ledger, in the planned arrangement and as records.

The plan shows a move under way as if it were done; the end of the move confirms that or takes it
back. A target on which a move failed is left alone for a while. The end of a cancelled move is
published again until its executor confirms it. Both are remembered, so that a restart goes on.
"""

from placement.assignments import AssignmentTable
from placement.model import Configuration, Move, MoveKind, MoveState, Reason
from placement.moves import Backoff, Ledger, OpenMove, backoff, cancellations
from placement.state.memory_store import MemoryStore
from placement.state.publisher import Publisher
from placement.state.stream_catalog import ShardKey, StreamCatalog


class MoveLog:
    """Holds every known move, with the writes of its life."""

    def __init__(
        self,
        configuration: Configuration,
        table: AssignmentTable,
        ledger: Ledger,
        streams: StreamCatalog,
        publisher: Publisher,
        memory: MemoryStore,
    ) -> None:
        self._configuration = configuration
        self._table, self._streams = table, streams
        self._publisher, self._memory = publisher, memory
        self._ledger = ledger
        self.backoff = Backoff()
        self.cancel_notices = cancellations.CancelNotices()

    def open(self, opened: OpenMove) -> None:
        """Record an issued move; the plan shows its target already."""
        self._ledger.open(opened)
        self._publisher.mark_changed(opened.shard)

    def open_counted(self, opened: OpenMove) -> None:
        """Record an issued move that the ledger counts already; see `open`."""
        self._ledger.open_counted(opened)
        self._publisher.mark_changed(opened.shard)

    def accept(self, shard: int) -> None:
        """Record that the executor has taken over the shard's open move."""
        self.publish(self._ledger.accept(shard))

    def renew(self, shard: int, renewed: Move) -> None:
        """Publish the shard's open move with a later deadline."""
        self._ledger.renew(shard, renewed)
        self.publish(renewed)

    def end(self, shard: int, end: MoveState, reason: Reason | None = None) -> None:
        """End the shard's open move; unless it was completed, the plan takes it back.

        A `reason` of None leaves the move's own.
        """
        ended = self._ledger.close(shard, end, self._publisher.now, reason)
        self._follow_end(ended)
        self.publish(ended.move)
        self._publisher.mark_changed(shard)

    def _follow_end(self, ended: OpenMove) -> None:
        """Update the planned arrangement after a move has ended."""
        shard, move = ended.shard, ended.move
        if ended.is_hand_over:
            if move.state is MoveState.COMPLETED:
                self._table.swap(shard, 0, self._table.nodes(shard).index(ended.leader))
        elif move.state is not MoveState.COMPLETED:
            self._table.set(shard, move.slot, ended.removed)
        elif move.kind is MoveKind.REMOVE:
            self._table.lay_out(shard, self._streams.nodes_without(shard, move.slot))

    def supersede(self, shard: int) -> Move:
        """End the shard's open move in favour of another, which finds the plan as it is."""
        move = self._ledger.close(shard, MoveState.SUPERSEDED, self._publisher.now).move
        self.publish(move)
        return move

    def amend(self, move: Move) -> None:
        """Replace and publish the record of a move that has ended."""
        self._ledger.keep(move)
        self.publish(move)

    def publish(self, move: Move) -> None:
        """Publish a move in its current state.

        The record of a cancelled move is published until its executor confirms the end, and not
        once more in the batch in which it does.
        """
        self._publisher.publish_move(move)
        notice = (cancellations.KIND, move.move_id)
        if move.state.is_called_off and self._publisher.ready.memory.get(notice, True):
            self._memory.remember(*notice, self.cancel_notices.record(move, self._publisher.now))

    def confirm_cancellation(self, move_id: str) -> None:
        """Stop telling the executor of a move that was called off."""
        self.cancel_notices.confirm(move_id)
        self._memory.remember(cancellations.KIND, move_id, None)

    def forget_ended(self, before: int) -> None:
        """Forget the moves that ended before the given time (ms)."""
        for move in self._ledger.drop_ended(before):
            self._publisher.retract_move(move)
            self.confirm_cancellation(move.move_id)

    def back_off(self, shard: ShardKey, node_id: str) -> None:
        """Avoid a node for a while after a move of the shard has failed on it."""
        pauses = (self._configuration.backoff_ms, self._configuration.backoff_max_ms)
        body = self.backoff.record_failure(shard, node_id, self._publisher.now, *pauses)
        self._memory.remember(backoff.KIND, backoff.name_of(shard, node_id), body)

    def forget_failures(self, shard: ShardKey, node_id: str) -> None:
        """Forget that moves of the shard have failed on a node."""
        if self.backoff.forget(shard, node_id):
            self._memory.remember(backoff.KIND, backoff.name_of(shard, node_id), None)

    def load(self, move: Move) -> None:
        """Restore an ended move as it was published."""
        self._ledger.keep(move)
        self._publisher.load_move(move)

    def load_open(self, opened: OpenMove) -> None:
        """Restore an open move as it was published; the plan shows its target already."""
        self._ledger.open(opened)
        self._publisher.load_move(opened.move)

    def resume(self) -> None:
        """Restore the failures and the unconfirmed cancellations of a restored memory.

        Raises KeyError for a cancelled move that is not kept.
        """
        for body in self._memory.of_kind(backoff.KIND).values():
            self.backoff.restore(body)
        for memory in self._memory.values():
            if memory.kind == cancellations.KIND:
                self.cancel_notices.record(self._ledger.known[memory.name], memory.at)
