"""Plans repair: from the actions that shards need to the moves that carry them out.

Actions are derived from the state alone, so that a missed or repeated event neither loses nor
doubles a repair. A shard has one open move at a time. The most urgent cause goes first, within it
the shard with the fewest live replicas. A shard that a limit keeps waiting is looked at again when
the limit has room, one that cannot be repaired when the fleet changes; neither blocks another.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from placement.allocator import View
from placement.assignments import EMPTY
from placement.model import Code, Move, Reason, Violation
from placement.repair.actions import ActionFinder, NoMoveReasons, RepairAction
from placement.repair.issuer import MoveIssuer
from placement.repair.priority import UNDER_REPLICATED, Priority
from placement.repair.queue import RepairQueue
from placement.repair.throttle import is_busy
from placement.repair.triage import ShardTriage, shards_without_fit_leader, triage
from placement.repair.violations import ViolationReporter
from placement.rules import Strength, find_breaches
from placement.state import ClusterState, Keys

_BEHIND = Reason(Code.NOT_CAUGHT_UP, "the source of events is behind")
_FULL = Reason(Code.LIMIT_REACHED, "no more moves may be open, or be issued in one batch")
_NONE_MORE: NoMoveReasons = {None: _FULL}

# So many shards are asked one by one whether they want something; more are a repair under way.
_FEW = 1_000
_BUSY = Reason(Code.LIMIT_REACHED, "every node receives as many replicas as limits allow")


class RepairPlanner:
    """The wanted repairs and how they are issued."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._actions = ActionFinder(state)
        self._report = ViolationReporter(state, self._actions)
        self._repair_queue = RepairQueue(state, self._actions)
        self._issuer = MoveIssuer(state, self._actions)
        self._looked: set[int] = set()
        self._issued: set[int] = set()
        # Moves issued in this batch that no shard asked for.
        self._unasked = 0
        # Shards that this run let wait without a look, by live replicas and those asked for.
        self._queued: dict[tuple[int, int], Keys] = defaultdict(dict)
        self._stopped = _FULL

    def enqueue(self, shards: Iterable[int]) -> None:
        """These shards may have become needy or healthy."""
        self._repair_queue.dirty.update(shards)

    def forget(self, shards: Collection[int]) -> None:
        """These shards are no more; what takes their indexes has nothing to do with them."""
        self._repair_queue.forget(shards)
        for shard in shards:
            self._issuer.ended.pop(shard, None)

    def mark(self, shard: int, node_id: str) -> None:
        """A replica is wanted to be replaced, wherever it goes."""
        self._actions.marked.add((shard, node_id))
        self._repair_queue.dirty.add(shard)

    def enqueue_rule_breakers(self) -> None:
        """A domain has come that no arrangement knew of: look at every shard that breaks a rule
        now, by the domains that count although their nodes may not receive replicas yet."""
        state, judging = self._state, self._state.topology.for_diagnosis()
        for index, rows in state.table.streams():
            stream, shards = state.streams.at(index), rows.tolist()
            assert stream.policy is not None
            everywhere = stream.policy.standing(stream.spec, judging)
            for strength in Strength:
                for _, broken, _ in find_breaches(
                    state.streams.rules(stream), strength, shards, everywhere
                ):
                    self._repair_queue.dirty.update(stream.shards[number] for number in broken)

    def retry_unfixable(self) -> None:
        """The set of usable nodes grew: what could not be helped may be now."""
        self._repair_queue.dirty |= self._repair_queue.unfixable

    def reprioritize_waiting(self) -> None:
        """The fleet has changed: what waits may be more urgent now, or break other rules."""
        self._repair_queue.dirty.update(self._repair_queue.throttled.shards())

    def note_cancelled_move(self, shard: int, move: Move) -> None:
        """A move was cancelled in this batch: a new one for its shard supersedes it."""
        self._issuer.ended[shard] = move
        self._repair_queue.dirty.add(shard)

    @property
    def has_dirty(self) -> bool:
        """Whether shards are looked at in this batch, whose violations may not be what is said."""
        return bool(self._repair_queue.dirty)

    def is_idle(self) -> bool:
        """Whether nothing that can be repaired is wanted, in shards that are looked at in this
        batch either."""
        repair_queue = self._repair_queue
        if repair_queue.throttled or repair_queue.has_work or len(repair_queue.dirty) > _FEW:
            return False
        self._actions.forget()
        return all(self._actions.top_cause(shard) is None for shard in repair_queue.dirty)

    def move(self, shard: int, action: RepairAction, view: View) -> Reason | None:
        """Issue a move that no shard asks for; the reason says why it cannot be."""
        reason = self._issuer.issue_action(shard, action, view, None)
        self._repair_queue.dirty.add(shard)
        self._unasked += reason is None
        return reason

    def resume(self) -> None:
        """Go on where the published violations of a restored state say that things stand."""
        state = self._state
        self._actions.forget()
        known = {*state.publisher.violations, *state.ledger.by_shard}
        seen = triage(state, self._actions, known, planned=True)
        for shard in known:
            self._repair_queue.reclassify(shard, seen, state.streams.key(shard))
        for shard in shards_without_fit_leader(state, self._actions):
            if shard not in known:
                self._repair_queue.reclassify(shard, seen, state.streams.key(shard))
        self._actions.forget()

    def run(self, caught_up: bool) -> None:
        """Promote live leaders, issue the moves that the limits allow, and publish violations."""
        state, issuer = self._state, self._issuer
        self._actions.forget()
        fresh = self._repair_queue.due(caught_up)
        seen = triage(state, self._actions, fresh)
        if caught_up:
            issuer.promote_all(seen.successors)
        for shard in state.streams.sorted_by_key(
            [*seen.needs_inspection, *(seen.leader_not_allowed - seen.successors.keys())]
        ):
            # Sparing a copy is right on old news, too; it may be all that can be done in a hold.
            issuer.cancel_unneeded_removal(shard)
            if caught_up:
                issuer.promote(shard)
        failed: dict[int, NoMoveReasons] = {}
        self._issue_all(fresh, seen, caught_up, failed)
        while issuer.freed:
            # A move that is done at once has made room for what was unfixable.
            issuer.begin()
            self._actions.forget()
            again = (self._looked - self._issued) | self._repair_queue.unfixable
            self._repair_queue.drop(again)
            self._issue_all(again, triage(state, self._actions, again), caught_up, failed)
        if not state.configuration.acked:
            # A copy that is there at once may be the only one that lives.
            for shard in state.streams.sorted_by_key(self._issued):
                issuer.promote(shard)
        self._publish(failed)
        issuer.finish()
        self._issued.clear()
        self._unasked = 0
        self._looked.clear()
        self._queued.clear()
        self._actions.forget()

    def _publish(self, failed: dict[int, NoMoveReasons]) -> None:
        """Say what became of all that was looked at, and of what waits beside it."""
        state = self._state
        for index in self._issuer.shifted:
            for shard in state.streams.at(index).shards:
                waits = shard in self._repair_queue.throttled
                if (waits or shard in state.ledger.by_shard) and shard not in self._looked:
                    self._looked.add(shard)
                    failed[shard] = {None: _FULL}
        self._repair_queue.drop(self._looked)
        after = triage(state, self._actions, self._looked, planned=True)
        found: list[tuple[int, tuple[str, int], tuple[Violation, ...]]] = []
        for key, shard in state.streams.with_keys(self._looked):
            known, said = failed.get(shard, {}), None
            if shard in after.under_replicated or shard in after.healthy:
                said = self._report.under_replication_of(shard, key, after, known)
            said = self.violations(shard, known) if said is None else said
            found.append((shard, key, said))
        state.publisher.publish_violations(found)
        for shard, key, _ in found:
            self._repair_queue.reclassify(shard, after, key)
        for (live, factor), keys in self._queued.items():
            example = self._report.missing(live, factor, self._stopped)
            left = {shard: key for shard, key in keys.items() if shard not in self._looked}
            state.publisher.publish_same_violation(left, example)

    def violations(self, shard: int, failed: NoMoveReasons) -> tuple[Violation, ...]:
        """What the shard breaks; `failed` says why it got no move."""
        return self._report.violations_of(shard, failed)

    def _issue_all(
        self,
        shards: set[int],
        seen: ShardTriage,
        caught_up: bool,
        failed: dict[int, NoMoveReasons],
    ) -> None:
        """Plan each shard that wants something in order, and those that wait as far as the limits
        have room; `failed` learns why those without a move have none."""
        state = self._state
        queued = self._queue(seen, not caught_up)
        self._looked |= shards - queued
        wanting = shards - seen.healthy.keys() - queued - self._issued
        if not caught_up:
            self._stopped = _BEHIND
            failed.update((shard, {None: _BEHIND}) for shard in wanting)
            return
        view = state.view()
        for node in [*state.ledger.incoming]:
            if node != EMPTY and is_busy(state, node):
                view.occupy(node, True)
        fresh = sorted(
            self._repair_queue.priority(s, seen, key) for key, s in state.streams.with_keys(wanting)
        )
        failed.update(dict.fromkeys(wanting, _NONE_MORE))
        for urgent in self._in_turn(fresh, view):
            shard = urgent.shard
            known = failed[shard] = {}
            if not self._has_room() and not self._has_begun(shard):
                known[None] = _FULL
            elif urgent.cause_rank == UNDER_REPLICATED and self._all_busy(view):
                known[None] = _BUSY
            elif self._issuer.issue(shard, view, known):
                self._issued.add(shard)
        self._stopped = _BUSY if self._has_room() else _FULL

    def _queue(self, seen: ShardTriage, behind: bool) -> set[int]:
        """Let shards that lack replicas and nothing else wait, without a look at each; those that
        get another leader first once the source is not `behind` are looked at."""
        alone = (
            seen.leader_not_allowed | (seen.successors.keys() if behind else set()) | self._issued
        )
        queued = seen.under_replicated.keys() - alone
        alike: dict[tuple[int, int], Keys] = defaultdict(dict)
        for key, shard in self._state.streams.with_keys(queued):
            alike[seen.under_replicated[shard]][shard] = key
        for counts, keys in alike.items():
            self._repair_queue.put_under_replicated(keys, counts[0], behind)
            self._queued[counts].update(keys)
        return queued

    def _in_turn(self, fresh: list[Priority], view: View) -> Iterator[Priority]:
        """Shards by urgency: those that are looked at anew and those that wait, while limits have
        room; without it those that have begun."""
        begun, room = self._state.ledger.by_shard, self._has_room()
        for each in [*fresh, None]:
            while room and not self._all_busy(view):
                first = self._repair_queue.throttled.first()
                if first is None or (each is not None and each < first):
                    break
                self._looked.add(self._repair_queue.pop())
                yield first
                room = self._has_room()
            if each is not None and (room or each.shard in begun):
                yield each
                room = self._has_room()

    def _has_room(self) -> bool:
        """Whether the limits that are nobody's own allow one more move."""
        limits = self._state.configuration.limits
        opened = len(self._state.ledger.by_shard)
        return len(self._issued) + self._unasked < limits.max_per_batch and opened < limits.max_open

    def _all_busy(self, view: View) -> bool:
        """Whether there are nodes, and limits keep all of them from taking one more replica."""
        eligible = self._state.topology.eligible
        open_nodes = int(np.count_nonzero(eligible)) if view.busy_nodes else 0
        return view.busy_nodes >= open_nodes > 0 and not (eligible & ~view.busy).any()

    def _has_begun(self, shard: int) -> bool:
        """Whether the shard has an open move, for which another one may be issued."""
        most = self._state.configuration.limits.max_per_batch
        return len(self._issued) + self._unasked < most and shard in self._state.ledger.by_shard
