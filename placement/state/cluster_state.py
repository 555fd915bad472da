"""The reconciler's memory and how each change to it becomes a record of `Ready`.

Everything here can be rebuilt from the records it published; the digest proves it.
Within one batch a shard is published once, so that its epoch rises by exactly one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from placement.hashing import hash64
from placement.model import (
    Alert,
    AlertKind,
    Configuration,
    Decision,
    Memory,
    Move,
    MoveKind,
    MoveState,
    NodeView,
    Ready,
    Reason,
)
from placement.moves import OpenMove, cancellations
from placement.policy import Policy, compile_policy
from placement.state import assigned, digest, violated
from placement.state.facts import Facts, Stream
from placement.strategies import STRATEGIES

# Where the highest epoch of all dropped streams is remembered.
_EPOCH_FLOOR = ("epochs", "highest")


class State(Facts):
    """The facts, and how they change."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self._dirty: dict[int, None] = {}
        self._policies: dict[str, Policy] = {}

    def begin(self, now: int) -> None:
        """Start a batch; the core's time never goes back."""
        self.now = max(self.now, now)
        self.ready = Ready()

    def finish(self) -> Ready:
        """Publish the shards that changed, and hand the batch over."""
        assigned.publish(self, self._dirty)
        self._dirty.clear()
        return self.ready

    def count(self, name: str) -> None:
        """Count something that changes nothing."""
        self.ready.counts[name] = self.ready.counts.get(name, 0) + 1

    def compile(
        self, spec_policies: str | None, policy: Mapping[str, Any] | None
    ) -> Policy | Reason:
        """Compile a stream's request against the configured default and the known levels."""
        default = self.configuration.default_policy
        compiled = compile_policy(spec_policies, policy, default, self.topology, STRATEGIES)
        if isinstance(compiled, Reason):
            return compiled
        # Equal policies are one object, by which streams are told apart at no cost.
        known = self._policies.setdefault(repr(compiled), compiled)
        return known if known == compiled else compiled

    def mark_changed(self, shard: int) -> None:
        """The shard's assignment changes in this batch."""
        self._dirty[shard] = None

    def mark_all_changed(self, shards: Iterable[int]) -> None:
        """`mark_changed` each of the shards."""
        self._dirty.update(dict.fromkeys(shards))

    def changed_streams(self) -> set[str]:
        """Streams of the shards whose assignments change in this batch."""
        return {name for name, _ in self.keys(self._dirty)}

    def next_epoch(self, shard: int) -> int:
        """The epoch that this batch publishes for a touched shard."""
        return int(self.table.epoch[shard]) + 1

    def apply_move_end(self, ended: OpenMove) -> None:
        """Let the planned arrangement follow a move that has ended: unless it was completed, the
        replica stands where it stood before."""
        if ended.move.state is not MoveState.COMPLETED:
            self.table.set(ended.shard, ended.move.slot, ended.removed)
        elif ended.move.kind is MoveKind.REMOVE:
            self.clear_slot(ended.shard, ended.move.slot)

    def clear_slot(self, shard: int, slot: int) -> None:
        """Take the replica in a slot out of the plan; those behind it move up."""
        parts = self.slot_layout(self.stream_of(shard))
        self.table.lay_out(shard, parts.without(self.table.nodes(shard), slot))

    def publish_node(self, view: NodeView) -> None:
        """Publish what is believed of a node."""
        before = self.nodes.get(view.node_id)
        self.digest.change(digest.of_node(before) if before else 0, digest.of_node(view))
        self._count_places(before, -1)
        self._count_places(view, 1)
        self.nodes[view.node_id] = view
        self.ready.topology[view.node_id] = view

    def _count_places(self, view: NodeView | None, by: int) -> None:
        """Places are known by the nodes whose own is trusted."""
        if view is None or view.quarantine is not None:
            return
        path = view.attributes.location
        while path:
            self.places[path] += by
            if not self.places[path]:
                del self.places[path]
            path = path.rpartition("/")[0]

    def forget_node(self, node_id: str) -> None:
        """Publish a tombstone for a node that is gone and holds nothing."""
        self._count_places(self.nodes[node_id], -1)
        self.digest.change(digest.of_node(self.nodes.pop(node_id)), 0)
        self.topology.forget(node_id)
        self.ready.topology[node_id] = None

    def publish_decision(self, decision: Decision, policy: Policy | None) -> Stream:
        """Publish the answer to a stream event, or its revision."""
        stream = self.streams.get(decision.stream)
        if stream is None:
            stream, before = self._enter(decision, policy), 0
        else:
            before = digest.of_decision(stream.decision)
            stream.decision, stream.policy = decision, policy
        self.digest.change(before, digest.of_decision(decision))
        self.ready.decisions[decision.stream] = decision
        return stream

    def publish_move(self, move: Move) -> None:
        """Publish a move in its current state; what was confirmed in this batch is told no more."""
        self.hash_move(move.move_id, digest.of_move(move))
        self.ready.moves[move.move_id] = (move, False)
        told = (cancellations.KIND, move.move_id)
        if move.state.is_called_off and self.ready.memory.get(told, True):
            self.remember(*told, self.cancel_notices.record(move, self.now))

    def forget_moves(self, before: int) -> None:
        """Publish tombstones for moves that ended before the given time."""
        for move in self.ledger.drop_ended(before):
            self.hash_move(move.move_id, 0)
            self.ready.moves[move.move_id] = (move, True)
            self.cancel_notices.confirm(move.move_id)
            self.remember(cancellations.KIND, move.move_id, None)

    def remember(self, kind: str, name: str, body: Mapping[str, Any] | None) -> None:
        """Publish something to be remembered; None forgets it. What has not changed is silent."""
        key, before = (kind, name), self.memory.get((kind, name))
        if (before.body if before else None) == body:
            return
        self.digest.change(digest.of_memory(before) if before else 0, 0)
        if body is None:
            del self.memory[key]
            self.ready.memory[key] = None
            return
        self.memory[key] = self.ready.memory[key] = Memory(kind, name, body, self.now)
        self.digest.change(0, digest.of_memory(self.memory[key]))

    def alert(
        self, kind: AlertKind, subject: str, reason: Reason, detail: Mapping[str, Any] | None = None
    ) -> None:
        """Report something to people, once."""
        self.ready.alerts.append(Alert(kind, subject, self.now, reason, detail or {}))

    def hash_move(self, move_id: str, hashed: int) -> None:
        """Take a move's record into the digest; 0 takes it out."""
        self.digest.change(self._move_hashes.pop(move_id, 0), hashed)
        if hashed:
            self._move_hashes[move_id] = hashed

    def _enter(self, decision: Decision, policy: Policy | None) -> Stream:
        stream = Stream(decision, policy, len(self._stream_hashes))
        self._stream_hashes.append(hash64(decision.stream))
        self.stream_names[stream.index] = decision.stream
        self.streams[decision.stream] = stream
        return stream

    def allocate_slots(
        self, stream: Stream, shards: Iterable[Sequence[object]] = ()
    ) -> Sequence[int]:
        """Give a stream that is being placed its empty slots: as many for each shard as it has
        replicas to, and as many as the longest of `shards`, which an adopted surplus makes longer
        than that."""
        slots = max(stream.copies, *map(len, shards), 1)
        return self.add_shards(stream, stream.spec.shards, slots)

    def add_slots(self, stream: Stream, slots: int) -> None:
        """See to it that the stream's shards have so many slots at least."""
        if stream.shards and self.table.factor(stream.shards[0]) < slots:
            self.table.widen(stream.index, slots)

    def add_shards(self, stream: Stream, count: int, slots: int = 0) -> Sequence[int]:
        """Give a stream so many more shards with empty slots, as many as the others have; returns
        their indexes.

        Their epochs begin above those of all streams that were dropped: a stream of the same name
        may have been, and no epoch of a shard comes twice.
        """
        slots = slots or self.table.factor(stream.shards[0])
        added = self.table.add_shards(stream.index, count, slots)
        self.table.epoch[added.start : added.stop] = self._epoch_floor
        stream.shards = self.table.shards_of(stream.index)
        return added

    @property
    def _epoch_floor(self) -> int:
        known = self.memory.get(_EPOCH_FLOOR)
        return int(known.body["epoch"]) if known else 0

    def drop_shards(self, stream: Stream) -> None:
        """Take a stream's assignments and violations away, and free its rows."""
        name, highest = stream.spec.stream, self._epoch_floor
        published = [*enumerate(stream.shards)]
        violated.publish(self, [(shard, (name, number), ()) for number, shard in published])
        for number, shard in published:
            self._dirty.pop(shard, None)
            if self.table.digest[shard]:
                self.ready.dropped.append((name, number))
                self.digest.change(int(self.table.digest[shard]), 0)
            highest = max(highest, int(self.table.epoch[shard]))
        if stream.shards:
            self.remember(*_EPOCH_FLOOR, {"epoch": highest})
        self.table.drop_stream(stream.index)
        stream.shards = self.table.shards_of(stream.index)

    def forget_stream(self, name: str) -> None:
        """Publish a tombstone for the decision of a stream that has no shards any more."""
        stream = self.streams.pop(name)
        del self.stream_names[stream.index]
        self.digest.change(digest.of_decision(stream.decision), 0)
        self.ready.forgotten.append(name)
