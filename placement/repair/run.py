"""Runs repair once: sort the shards that are due, change leaders, issue moves, publish violations.

The planner makes one `RepairRun` for each batch. A pass takes shards by priority until the limits
have no room. Where moves are done at once, what they made room for gets a pass of its own, with
everything found out anew; waiting streams come first, as they do in a batch.
"""

from collections import defaultdict
from collections.abc import Callable, Collection
from itertools import compress

from placement.allocator import View
from placement.assignments import EMPTY
from placement.model import Cause, Code, Reason, Violation
from placement.repair.actions import NoMoveReasons
from placement.repair.bulk_issuer import BulkIssuer
from placement.repair.issuer import BatchMoves, MoveIssuer
from placement.repair.needs import Marks, RepairScope
from placement.repair.priority import UNDER_REPLICATED, Priority
from placement.repair.queue import RepairQueue
from placement.repair.triage import Counts, ShardTriage, triage
from placement.repair.violations import ViolationReporter
from placement.state import ClusterState, ShardKey
from placement.wording import format_wait

_BEHIND = Reason(Code.NOT_CAUGHT_UP, format_wait("the input has events that are not read yet"))


class RepairRun:
    """One run of repair and what it has found out; `batch` holds what came of moves before it."""

    def __init__(
        self,
        state: ClusterState,
        queue: RepairQueue,
        batch: BatchMoves,
        marks: Marks,
        caught_up: bool,
        place_waiting: Callable[[Collection[int]], None],
    ) -> None:
        self._state, self._queue, self._batch = state, queue, batch
        self._marks, self._caught_up = marks, caught_up
        self._place_waiting = place_waiting
        self._begin_pass()
        throttle = self._issuer.throttle
        self._full, self._busy = throttle.why_fleet_full(), throttle.why_nodes_full()
        # Shards that were looked at, and why some of them got no move.
        self._looked: set[int] = set()
        self._reasons: dict[int, NoMoveReasons] = {}
        # Why others are not led by the replica that should lead them.
        self._leaders_wait: dict[int, Reason] = {}
        # Shards that wait without a look, by the numbers of their replicas, and why they do.
        self._queued: dict[Counts, list[tuple[list[ShardKey], list[int]]]] = defaultdict(list)
        self._stopped = self._full

    def run(self) -> None:
        """Promote live leaders, issue the moves that the limits allow, and publish violations."""
        state, batch = self._state, self._batch
        self._borne = state.borne()
        due = self._queue.take_due(self._scope, self._caught_up)
        seen = triage(state, self._scope, due)
        self._change_leaders(seen)
        self._issue_all(due, seen)
        while self._has_made_room():
            self._place_waiting(batch.freed)
            batch.freed.clear()
            self._begin_pass()
            again = (self._looked - batch.issued) | self._queue.unfixable
            again |= self._queue.take_due(self._scope, self._caught_up)
            self._queue.drop(again)
            self._issue_all(again, triage(state, self._scope, again))
        if not state.configuration.acked:
            # A copy that is there at once may be the only one that lives.
            for shard in state.streams.sorted_by_key(batch.issued):
                self._issuer.promote(shard)
        self._publish()

    def _has_made_room(self) -> bool:
        """Return whether there is room since the last look that was not there before.

        A move that is done at once makes some, and so does another leader or a move that is called
        off, where resources are counted.
        """
        made, before = self._batch.made_room, self._borne
        self._batch.made_room = False
        self._borne = self._state.borne()
        if before is None or self._borne is None:
            return made
        return made or bool((self._borne < before).any())

    def _begin_pass(self) -> None:
        self._scope = RepairScope(self._state, self._marks)
        self._issuer = MoveIssuer(self._state, self._scope, self._batch)
        known = self._state, self._scope, self._batch, self._issuer
        self._bulk_issuer = BulkIssuer(*known)

    def _change_leaders(self, seen: ShardTriage) -> None:
        """Make live replicas leaders, and keep copies that are needed again."""
        if self._caught_up:
            self._issuer.promote_all(seen.successors)
        alone = seen.leader_not_allowed - seen.successors.keys()
        for shard in self._state.streams.sorted_by_key([*seen.needs_inspection, *alone]):
            # Sparing a copy is right on old news, too; it may be all that can be done in a hold.
            self._issuer.cancel_unneeded_removal(shard)
            waits = self._issuer.promote(shard) if self._caught_up else None
            if waits is not None:
                self._leaders_wait[shard] = waits

    def _issue_all(self, shards: set[int], seen: ShardTriage) -> None:
        """Issue moves for shards that need any, and for those that wait, as far as limits allow."""
        state, issued = self._state, self._batch.issued
        queued = self._queue_under_replicated(seen)
        looked = shards - queued
        self._looked |= looked
        needy = looked.difference(issued, *seen.healthy.values())
        if not self._caught_up:
            self._stopped = _BEHIND
            self._reasons.update((shard, {None: _BEHIND}) for shard in needy)
            return
        view, throttle = state.view(), self._issuer.throttle
        for node in [*state.ledger.incoming]:
            if node != EMPTY and throttle.receives_enough(node):
                view.set_busy(node, True)
        fresh = sorted(
            self._queue.priority(self._scope.needs(shard), seen, key)
            for key, shard in state.streams.with_keys(needy)
        )
        self._reasons.update((shard, {None: self._full}) for shard in needy)
        for priority in fresh:
            self._issue_waiting(view, seen, priority)
            if self._has_room() or priority.shard in state.ledger.by_shard:
                self._note(priority.shard, self._issue(priority, view))
        self._issue_waiting(view, seen, None)
        self._stopped = self._busy if self._has_room() else self._full

    def _issue_waiting(self, view: View, seen: ShardTriage, end: Priority | None) -> None:
        """Issue moves for waiting shards more urgent than `end`, as far as limits have room."""
        waiting, throttle = self._queue.throttled, self._issuer.throttle
        while self._has_room() and not throttle.all_receive_enough(view):
            first = waiting.first()
            if first is None or (end is not None and end < first):
                break
            alike = waiting.front_of_line(throttle.room(self._batch.count), end)
            if alike and seen.are_under_replicated(alike):
                done = self._bulk_issuer.issue(alike, view)
            else:
                done = [(first.shard, self._issue(first, view))]
            self._queue.drop([shard for shard, _ in done])
            self._looked.update(shard for shard, _ in done)
            for shard, reasons in done:
                self._note(shard, reasons)

    def _note(self, shard: int, reasons: NoMoveReasons | None) -> None:
        """Note what came of a shard's turn: None for a move, else why there is none."""
        self._reasons[shard] = reasons or {}
        if reasons is None:
            self._batch.issued.add(shard)

    def _issue(self, priority: Priority, view: View) -> NoMoveReasons | None:
        """Issue the next move of a shard; None if there is one now, else why there is none."""
        begun = priority.shard in self._state.ledger.by_shard
        throttle = self._issuer.throttle
        if not self._has_room() and not (begun and throttle.has_batch_room(self._batch.count)):
            return {None: self._full}
        if priority.cause_rank == UNDER_REPLICATED and throttle.all_receive_enough(view):
            return {None: self._busy}
        return self._issuer.issue(priority.shard, view)

    def _queue_under_replicated(self, seen: ShardTriage) -> set[int]:
        """Queue shards that only lack replicas, without examining each of them.

        Those that get another leader first, once the source is not behind, are looked at.
        """
        behind = not self._caught_up
        alone = seen.leader_not_allowed | self._batch.issued
        if behind:
            alone |= seen.successors.keys()
        queued = {counts: shards - alone for counts, shards in seen.under_replicated.items()}
        lines = [
            (*self._state.streams.keys_and_shards(shards), counts)
            for counts, shards in queued.items()
            if shards
        ]
        for keys, index, counts in sorted(lines, key=lambda line: line[0][0]):
            members: list[int] = index.tolist()
            self._queue.put_under_replicated(keys, members, counts[0], behind)
            self._queued[counts].append((keys, members))
        return set().union(*queued.values())

    def _has_room(self) -> bool:
        return self._issuer.throttle.has_room(self._batch.count)

    def _publish(self) -> None:
        """Publish what became of all that was looked at, and of what waits beside it."""
        state, queue = self._state, self._queue
        reporter = ViolationReporter(state, self._batch.issued)
        self._add_shifted()
        queue.drop(self._looked)
        after = triage(state, self._scope, self._looked, as_planned=True)
        keys, shards = state.streams.keys_and_shards(self._looked)
        keyed = [*zip(keys, self._scope.needs_of_all(shards.tolist()), strict=True)]
        found: list[tuple[int, tuple[str, int], tuple[Violation, ...]]] = []
        for key, needs in keyed:
            shard = needs.shard
            reasons = self._reasons.get(shard, {})
            if shard in self._leaders_wait:
                reasons = {**reasons, Cause.LEADER: self._leaders_wait[shard]}
            violations = reporter.under_replication_of(shard, key, after, reasons)
            if violations is None:
                violations = reporter.violations_of(needs, reasons)
            found.append((shard, key, violations))
        state.publisher.publish_violations(found)
        for key, needs in keyed:
            queue.reclassify(needs, after, key)
        for (live, factor), lines in self._queued.items():
            example = reporter.missing_replicas(live, factor, self._stopped)
            for keys, members in lines:
                left = [shard not in self._looked for shard in members]
                waiting = [*compress(keys, left)], [*compress(members, left)]
                state.publisher.publish_same_violation(*waiting, example)

    def _add_shifted(self) -> None:
        """Add the shards in need of streams whose shards depend on one that has changed."""
        state = self._state
        for index in self._batch.shifted:
            for shard in state.streams.at(index).shards:
                in_need = shard in self._queue.throttled or shard in state.ledger.by_shard
                if in_need and shard not in self._looked:
                    self._looked.add(shard)
                    self._reasons[shard] = {None: self._full}
