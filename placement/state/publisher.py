"""Publishes what a batch changes as `Ready`, and keeps what the records published so far amount to.

`ClusterState` tells it every change of a fact; here it becomes a record and a change of the digest.
Assignments are collected: within one batch a shard is published once, so that its epoch rises by
exactly one. Of the facts it changes none.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from itertools import compress, repeat
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY, AssignmentTable
from placement.model import (
    SEEN_MAX,
    Alert,
    AlertKind,
    Answer,
    Assignment,
    Decision,
    Memory,
    Move,
    NodeView,
    Ready,
    Reason,
    Refused,
    ShardLoad,
    Violation,
    make_records,
)
from placement.moves import Ledger
from placement.state import digest
from placement.state.stream_catalog import ShardKey, Stream, StreamCatalog, role_names
from placement.topology import Topology

Violations = tuple[Violation, ...]


class PublishedColumns:
    """Holds the last publication of each shard, by its index.

    That is the epoch and the hashes of the shard's records.
    """

    def __init__(self) -> None:
        self.epochs = np.zeros(0, np.int64)
        self.assignments = np.zeros(0, np.uint64)
        self.violations = np.zeros(0, np.uint64)

    def enter(self, shards: range, size: int, epoch: int) -> None:
        """Begin the epochs of new shards; `size`: one more than the highest index there is."""
        if size > len(self.epochs):
            more = max(size - len(self.epochs), len(self.epochs))
            self.epochs = np.concatenate([self.epochs, np.zeros(more, np.int64)])
            none = np.zeros(more, np.uint64)
            self.assignments = np.concatenate([self.assignments, none])
            self.violations = np.concatenate([self.violations, none])
        self.epochs[shards.start : shards.stop] = epoch

    def forget(self, shards: NDArray[np.int64]) -> None:
        """Forget shards whose indexes are free again."""
        self.epochs[shards] = 0
        self.assignments[shards] = 0
        self.violations[shards] = 0


class Publisher:
    """Makes records of changes; knows the epochs, violations and digest that are published."""

    def __init__(
        self, topology: Topology, table: AssignmentTable, ledger: Ledger, streams: StreamCatalog
    ) -> None:
        self._topology, self._table, self._ledger = topology, table, ledger
        self._streams = streams
        self.ready = Ready()
        self._digest = digest.Digest()
        self.violations: dict[int, Violations] = {}
        self.now = 0
        self._changed: dict[int, None] = {}
        self._columns = PublishedColumns()
        self._move_hashes: dict[str, int] = {}
        self._unhashed: dict[str, Move] = {}

    def begin(self, now: int) -> None:
        """Begin a batch at `now` (ms), of which nothing is published yet."""
        self.now = now
        self.ready = Ready()

    def finish(self) -> Ready:
        """Publish the shards that changed, and hand the batch over."""
        self._publish_assignments(self._changed)
        self._changed.clear()
        return self.ready

    def current_digest(self) -> digest.Digest:
        """Return the digest of all that is published, this batch included.

        Moves are hashed only here: plans, which never ask, issue them by the thousand.
        """
        for move_id, move in self._unhashed.items():
            hashed = digest.of_move(move)
            self._digest.change(self._move_hashes.get(move_id, 0), hashed)
            self._move_hashes[move_id] = hashed
        self._unhashed.clear()
        return self._digest

    # Assignments

    def epoch(self, shard: int) -> int:
        """Read the epoch at which a shard was published last."""
        return int(self._columns.epochs[shard])

    def current_epoch(self, shard: int) -> int:
        """Compute the epoch of a shard as changed by the events so far, published or not yet."""
        return self.epoch(shard) + (shard in self._changed)

    def next_epoch(self, shard: int) -> int:
        """Compute the epoch that this batch publishes for a changed shard."""
        return self.epoch(shard) + 1

    def mark_changed(self, shard: int) -> None:
        """Mark the shard's assignment for publication with this batch."""
        self._changed[shard] = None

    def mark_all_changed(self, shards: Iterable[int]) -> None:
        """Mark the assignments of all these shards for publication with this batch."""
        self._changed.update(dict.fromkeys(shards))

    @property
    def changed_shards(self) -> set[int]:
        """Return the shards whose assignments this batch changes."""
        return {*self._changed}

    def changed_streams(self) -> set[str]:
        """Name the streams of the shards whose assignments this batch changes."""
        return self._streams.names_of(self._changed)

    def enter_shards(self, shards: range, epoch: int) -> None:
        """Begin the epochs of new shards above `epoch`."""
        self._columns.enter(shards, self._table.shards, epoch)

    def begin_epochs(self, shards: NDArray[np.int64], epoch: int) -> None:
        """Begin the epochs of shards that were entered and never published anew above `epoch`."""
        self._columns.epochs[shards] = epoch

    def unpublished(self, shards: Sequence[int]) -> list[int]:
        """List those of the shards whose assignments were never published."""
        index = np.asarray(shards, np.int64)
        found: list[int] = index[self._columns.assignments[index] == 0].tolist()
        return found

    def retract_shards(self, stream: Stream) -> int:
        """Publish tombstones for the violations and assignments of all a stream's shards; returns
        their highest epoch."""
        columns, shards = self._columns, np.asarray(stream.shards, np.int64)
        numbered = [*enumerate(stream.shards)]
        self.publish_violations((shard, (stream.name, n), ()) for n, shard in numbered)
        for number, shard in numbered:
            self._changed.pop(shard, None)
            if columns.assignments[shard]:
                self.ready.dropped.append((stream.name, number))
        self._digest.exchange(columns.assignments[shards], np.zeros(0, np.uint64))
        highest = int(columns.epochs[shards].max(initial=0))
        columns.forget(shards)
        return highest

    def load_assignments(
        self,
        shards: NDArray[np.int64],
        epochs: NDArray[np.int64],
        counts: NDArray[np.int64],
        nodes: NDArray[np.int64],
        extras: NDArray[np.uint64] | np.uint64,
    ) -> None:
        """Restore assignments as they were published; see `_hash_assignments`."""
        self._columns.epochs[shards] = epochs
        self._hash_assignments(shards, counts, nodes, extras)

    def _publish_assignments(self, changed: Collection[int]) -> None:
        """Publish shards, each at an epoch one higher.

        The published list shows the source of an open move, not its target.
        """
        if not changed:
            return
        keys, shards = self._streams.keys_and_shards(changed)
        self._columns.epochs[shards] += 1
        nodes, opened = self._table.padded_rows(shards), self._ledger.by_shard
        in_roles = self._streams_with_roles({name for name, _ in keys})
        busy = [
            (row, shard)
            for row, (shard, (name, _)) in enumerate(zip(shards.tolist(), keys, strict=True))
            if shard in opened or name in in_roles
        ]
        for row, shard in busy:
            if shard in opened:
                opened[shard].put_source_back(nodes[row])
        epochs, lists = self._columns.epochs[shards].tolist(), nodes.tolist()
        ids, there = self._topology.ids, nodes != EMPTY
        replicas: list[tuple[str, ...]]
        if there.size and there.all():
            by_slot = [map(ids.__getitem__, column) for column in nodes.T.tolist()]
            replicas = [*zip(*by_slot, strict=True)]
        else:
            replicas = [tuple([ids[node] for node in each if node != EMPTY]) for each in lists]
        names, numbers = zip(*keys, strict=True)
        uids = {name: self._streams[name].spec.uid for name in {*names}}
        same = [repeat(each) for each in ((), (), None, self.now, None)]
        columns = (names, numbers, epochs, replicas, *same, map(uids.__getitem__, names))
        made = make_records(Assignment, zip(*columns, strict=False))
        extras = np.zeros(len(made), np.uint64)
        for row, shard in busy:
            made[row] = self._add_extras(shard, lists[row], made[row], in_roles)
            extras[row] = digest.of_extras(made[row])
        self._hash_assignments(shards, there.sum(axis=1), nodes[there], extras)
        self.ready.assignments.update(zip(keys, made, strict=True))

    def _hash_assignments(
        self,
        shards: NDArray[np.int64],
        counts: NDArray[np.int64],
        nodes: NDArray[np.int64],
        extras: NDArray[np.uint64] | np.uint64,
    ) -> None:
        """Replace the shards' records in the digest by those at their current epochs.

        `counts`: replicas of each shard; `nodes`: their indexes, one shard after the other;
        `extras`: see `digest.of_extras`.
        """
        columns = self._columns
        hashes = digest.of_assignments(
            self._streams.name_hashes(shards),
            self._table.numbers_of(shards),
            columns.epochs[shards],
            counts,
            self._topology.digests[nodes],
            extras,
        )
        self._digest.exchange(columns.assignments[shards], hashes)
        columns.assignments[shards] = hashes

    def _streams_with_roles(self, names: Iterable[str]) -> set[str]:
        """Find the streams whose shards have replicas with a role of their own."""
        policies = {name: self._streams[name].policy for name in names}
        # Thousands of streams have a few policies.
        asked = {id(each): each for each in policies.values() if each is not None}
        found = {key for key, each in asked.items() if self._streams.role_copies(each)}
        return {name for name, each in policies.items() if id(each) in found} if found else set()

    def _add_extras(
        self, shard: int, nodes: Sequence[int], plain: Assignment, in_roles: Container[str]
    ) -> Assignment:
        """Add a shard's open move, and the roles of its replicas if its stream is `in_roles`."""
        name, number, epoch, replicas, adding, removing, move_id, now, _, uid = plain
        if opened := self._ledger.by_shard.get(shard):
            move = opened.move
            adding = (move.add,) if move.add else ()
            removing = (move.remove,) if move.remove else ()
            move_id = move.move_id
        roles = None
        if name in in_roles:
            stream = self._streams[name]
            roles = role_names(stream.policy, stream.copies, nodes, self._topology)
        shown = (adding, removing, move_id, now, roles, uid)
        return Assignment(name, number, epoch, replicas, *shown)

    # Violations

    def publish_violations(self, found: Iterable[tuple[int, ShardKey, Violations]]) -> None:
        """Publish the open violations of shards where they are not what was published last."""
        said: dict[int, Violations] = {}
        for shard, key, now in found:
            news = _find_news(self.violations.get(shard, ()), now)
            if news is not None:
                said[shard] = self.ready.violations[key] = news
        contents = digest.of_each_violations(said.values())
        self._keep_violations([*said], [*said.values()], np.fromiter(contents, np.uint64))

    def publish_same_violation(
        self, keys: Sequence[ShardKey], shards: Sequence[int], example: Violation
    ) -> None:
        """Publish for each of the shards that it breaks one rule, as in `example`."""
        known = self.violations.keys() & shards
        if known:
            self.publish_violations(
                (shard, key, (Violation._make(key + example[2:]),))
                for key, shard in zip(keys, shards, strict=True)
                if shard in known
            )
            new = [shard not in known for shard in shards]
            keys, shards = [*compress(keys, new)], [*compress(shards, new)]
        fields = map(add, keys, repeat(tuple(example[2:])))
        # Each is the only violation of its shard: `zip` makes a tuple of it.
        said = [*zip(make_records(Violation, fields), strict=False)]
        self.ready.violations.update(zip(keys, said, strict=True))
        content = np.uint64(digest.of_violations((example,)))
        self._keep_violations(shards, said, content)

    def _keep_violations(
        self,
        shards: Sequence[int],
        said: Sequence[Violations],
        contents: NDArray[np.uint64] | np.uint64,
    ) -> None:
        """Remember what was published of shards, and count it into the digest; `contents`: its
        hashes."""
        if not said:
            return
        index, known = np.asarray(shards, np.int64), self._columns.violations
        names, numbers = self._streams.name_hashes(index), self._table.numbers_of(index)
        hashes = digest.hash_with_keys(contents, names, numbers)
        self.violations.update(zip(shards, said, strict=True))
        if not all(said):
            ended = np.flatnonzero([not each for each in said])
            hashes[ended] = 0
            for shard in index[ended].tolist():
                del self.violations[shard]
        self._digest.exchange(known[index], hashes)
        known[index] = hashes

    # Nodes, streams, moves, memory

    def publish_node(self, view: NodeView, before: NodeView | None) -> None:
        """Publish a node in place of what was published of it `before`."""
        self._digest.change(digest.of_node(before) if before else 0, digest.of_node(view))
        self.ready.topology[view.node_id] = view

    def retract_node(self, view: NodeView) -> None:
        """Publish a tombstone for a node."""
        self._digest.change(digest.of_node(view), 0)
        self.ready.topology[view.node_id] = None

    def publish_decision(self, decision: Decision, before: Decision | None) -> None:
        """Publish a decision in place of the stream's decision `before`."""
        known = digest.of_decision(before) if before else 0
        self._digest.change(known, digest.of_decision(decision))
        self.ready.decisions[decision.stream] = decision

    def retract_decision(self, decision: Decision) -> None:
        """Publish a tombstone for the decision of a stream that has no shards any more."""
        self._digest.change(digest.of_decision(decision), 0)
        self.ready.forgotten.append(decision.stream)

    def publish_move(self, move: Move) -> None:
        """Publish a move in its current state."""
        self.load_move(move)
        self.ready.moves[move.move_id] = (move, False)

    def load_move(self, move: Move) -> None:
        """Restore a move as it was published."""
        self._unhashed[move.move_id] = move

    def retract_move(self, move: Move) -> None:
        """Publish a tombstone for a move."""
        self._unhashed.pop(move.move_id, None)
        self._digest.change(self._move_hashes.pop(move.move_id, 0), 0)
        self.ready.moves[move.move_id] = (move, True)

    def publish_memory(self, memory: Memory, before: Memory | None) -> None:
        """Publish something to be remembered in place of what was remembered `before`."""
        known = digest.of_memory(before) if before else 0
        self._digest.change(known, digest.of_memory(memory))
        self.ready.memory[memory.kind, memory.name] = memory

    def retract_memory(self, memory: Memory) -> None:
        """Publish a tombstone for something remembered."""
        self._digest.change(digest.of_memory(memory), 0)
        self.ready.memory[memory.kind, memory.name] = None

    def publish_load(self, stream: str, shard: int, load: ShardLoad | None) -> None:
        """Publish a shard's load, or a tombstone; `exchange_loads` counts it into the digest."""
        self.ready.loads[stream, shard] = load

    def exchange_loads(self, before: NDArray[np.uint64], after: NDArray[np.uint64]) -> None:
        """Replace hashes of published loads in the digest; 0 stands for none."""
        self._digest.exchange(before, after)

    # Words of this batch that change nothing

    def alert(
        self, kind: AlertKind, subject: str, reason: Reason, detail: Mapping[str, Any] | None = None
    ) -> None:
        """Alert operators, once."""
        self.ready.alerts.append(Alert(kind, subject, self.now, reason, detail or {}))

    def answer(self, answer: Answer) -> None:
        """Answer an operator's request."""
        self.ready.answers.append(answer)

    def refuse(self, index: int, reason: Reason) -> None:
        """Refuse the event at `index` of the batch."""
        self.ready.refused.append(Refused(index, reason))

    def count(self, name: str, by: int = 1) -> None:
        """Count what changes nothing, by the name of its metric."""
        self.ready.counts[name] = self.ready.counts.get(name, 0) + by


def _find_news(before: Violations, now: Violations) -> Violations | None:
    """Compare a shard's violations with those published `before`.

    Returns the violations to publish, each with the time since when it is open; None where those
    published still hold.
    """
    if not before:
        return now or None
    if [_essence(v) for v in before] == [_essence(v) for v in now]:
        return None
    known = {(v.rule, v.domain): v.since for v in before}
    return tuple([v._replace(since=known.get((v.rule, v.domain), v.since)) for v in now])


def _essence(violation: Violation) -> tuple[object, ...]:
    """Pick what makes a violation worth publishing again, as far as its record tells it."""
    v = violation
    reason = v.reason.code, v.reason.seen[:SEEN_MAX]
    return v.rule, v.domain, v.count, v.limit, v.violation_class, *reason
