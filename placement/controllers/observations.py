"""Carries out observations: what executors find of a shard's replicas, beside what is recorded.

What is there is true: the record follows it, and a move under way that it confirms or contradicts
ends. Repair then derives what the shard lacks from the corrected record.
"""

from itertools import chain

from placement.assignments import EMPTY
from placement.controllers.moves import MoveController
from placement.controllers.retry_gate import RetryGate
from placement.controllers.streams import StreamController
from placement.model import Code, MoveState, Reason, ReplicasObserved
from placement.moves import OpenMove
from placement.repair import RepairPlanner
from placement.state import ClusterState


class ObservationController:
    """Ends moves by what is there, and corrects the record of a shard's replicas.

    What is out of sync is recorded of every observation, for quorums.
    """

    def __init__(
        self,
        state: ClusterState,
        repair: RepairPlanner,
        retry_gate: RetryGate,
        moves: MoveController,
        streams: StreamController,
    ) -> None:
        self._state, self._repair, self._retry_gate = state, repair, retry_gate
        self._moves, self._streams = moves, streams

    def apply(self, event: ReplicasObserved) -> Reason | None:
        """Apply what was observed of a shard, or return why it does not count.

        One that finds what is recorded is counted.
        """
        state = self._state
        refused = self._why_refused(event)
        if refused is not None:
            return refused
        if self._awaits(event):
            self._adopt(event)
            return None
        found = [state.topology.index[node_id] for node_id in event.replicas]
        shard = state.streams[event.stream].shards[event.shard]
        before = state.publisher.current_epoch(shard)
        opened = state.ledger.by_shard.get(shard)
        if opened is None or self._ends(opened, found, event):
            self._correct(shard, found, event)
        news = self._note_sync(shard, event)
        if state.publisher.current_epoch(shard) == before and not news:
            state.publisher.count("unchanged_observation")
        return None

    def _why_refused(self, event: ReplicasObserved) -> Reason | None:
        """Return why an observation does not count: unknown names, or an older record."""
        state, name = self._state, f"{event.stream}/{event.shard}"
        wrong = state.streams.other_uid(event.stream, event.uid)
        wrong = wrong or state.streams.unknown_shard(event.stream, event.shard)
        if wrong is not None:
            return wrong
        for node_id in chain(event.replicas, *(event.following or ())):
            if node_id not in state.topology.index:
                message = f"replicas of {name} were observed on '{node_id}': there is no such node"
                return Reason(Code.NODE_UNKNOWN, message)
        shards = state.streams[event.stream].shards
        if event.shard >= len(shards):
            message = f"{name} has no assignment that could be corrected"
            return Reason(Code.OBSERVATION_STALE, message)
        last = event.shard + len(event.following or ())
        beyond = state.streams.unknown_shard(event.stream, last)
        if beyond is not None:
            return beyond
        epoch = state.publisher.current_epoch(shards[event.shard])
        if self._awaits(event):
            epoch = 0
        elif event.following is not None:
            message = f"no shard from {name} to {event.stream}/{last} waits for its replicas"
            return Reason(Code.OBSERVATION_STALE, message)
        if event.epoch != epoch:
            seen = f"{name} was observed at epoch {event.epoch}"
            message = f"{seen}, its assignment has epoch {epoch}"
            return Reason(Code.OBSERVATION_STALE, message, epoch, event.epoch)
        return None

    def _awaits(self, event: ReplicasObserved) -> bool:
        """Return whether a shard of the observation waits for its replicas, to be adopted."""
        awaited, numbers = self._state.awaited, _numbers(event)
        shards = self._state.streams[event.stream].shards
        return bool(awaited) and any(shards[number] in awaited for number in numbers)

    def _adopt(self, event: ReplicasObserved) -> None:
        """Adopt the replicas of the shards that wait for them; what is known of others stays."""
        state, stream = self._state, self._state.streams[event.stream]
        index, lists = state.topology.index, (event.replicas, *(event.following or ()))
        found = {
            stream.shards[number]: [index[node_id] for node_id in nodes]
            for number, nodes in zip(_numbers(event), lists, strict=True)
            if stream.shards[number] in state.awaited
        }
        state.add_slots(stream, max(map(len, found.values())))
        state.adopt_replicas([*found], [*found.values()])
        self._repair.enqueue(found)
        if event.following is None:
            self._note_sync(stream.shards[event.shard], event)

    def _ends(self, opened: OpenMove, found: list[int], event: ReplicasObserved) -> bool:
        """End the shard's open move if the replicas confirm or contradict it.

        Returns whether it has ended. A replica that is not in sync yet is still being copied.
        """
        if opened.is_hand_over:
            return self._ends_hand_over(opened, found, event)
        state, added, removed = self._state, opened.added, opened.removed
        copied = added == EMPTY or (added in found and self._is_in_sync(added, event))
        if copied and (removed == EMPTY or removed not in found):
            self._moves.end(opened, MoveState.COMPLETED, opened.move.reason)
            return True
        recorded = {*state.current_replicas(opened.shard)} - {EMPTY}
        others = {*found} - {added}
        if others == recorded or (added in found and others == recorded - {removed}):
            return False
        self._call_off(opened, event)
        return True

    def _ends_hand_over(self, opened: OpenMove, found: list[int], event: ReplicasObserved) -> bool:
        """Complete a hand-over to the replica that leads now, or end it if the replicas differ.

        Returns whether the record is still to be corrected.
        """
        if {*found} != {*self._state.current_replicas(opened.shard)} - {EMPTY}:
            self._call_off(opened, event)
            return True
        if event.leader == opened.move.leader:
            self._moves.end(opened, MoveState.COMPLETED, opened.move.reason)
        return False

    def _call_off(self, opened: OpenMove, event: ReplicasObserved) -> None:
        """Cancel an open move that the replicas contradict."""
        message = f"the replicas of {event.stream}/{event.shard} were found on "
        message += ", ".join(event.replicas) or "no node"
        self._moves.end(opened, MoveState.CANCELLED, Reason(Code.REPLICAS_DIFFER, message))

    def _is_in_sync(self, node: int, event: ReplicasObserved) -> bool:
        """Return whether the node's replica is complete; it is where nothing else is said."""
        return event.in_sync is None or self._state.topology.ids[node] in event.in_sync

    def _note_sync(self, shard: int, event: ReplicasObserved) -> bool:
        """Record which replicas of the shard are out of sync; returns whether that is news.

        A copy under way is none of them: its move says that it is not complete. The replica that a
        move is to remove is one once it is gone, as the record has it until the move ends.
        """
        held = {*self._state.current_replicas(shard)} - {EMPTY}
        behind = [node for node in held if not self._is_in_sync(node, event)]
        news = self._state.sync.note(shard, behind)
        if news:
            self._repair.enqueue([shard])
        return news

    def _correct(self, shard: int, found: list[int], event: ReplicasObserved) -> None:
        """Make the record of a shard without an open move show the replicas that were found.

        Of replicas that are recorded already only the leader is taken over: the order of the others
        means nothing.
        """
        state, stream = self._state, self._state.streams[event.stream]
        recorded = state.current_replicas(shard)
        held = {*recorded} - {EMPTY}
        if {*found} != held:
            state.add_slots(stream, len(found))
            layout = state.streams.slot_layout(stream)
            _, in_roles = layout.split(recorded)
            kept = [node for node in in_roles if node in found]
            state.lay_out(shard, layout.lay_out([n for n in found if n not in kept], kept))
            self._streams.note_correction(event.stream)
            for node in held - {*found}:
                self._retry_gate.note_freed_node(node)
        elif found and found[0] != recorded[0]:
            state.change_leader(shard, recorded.index(found[0]))
        else:
            return
        self._repair.enqueue([shard])


def _numbers(event: ReplicasObserved) -> range:
    """Return the numbers of the shards that were observed."""
    return range(event.shard, event.shard + 1 + len(event.following or ()))
