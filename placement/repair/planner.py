"""Plans repair: from the actions that shards need to the moves that carry them out.

Controllers tell it which shards a change has touched; once in each batch it runs. Actions are
derived from the state alone, so that a missed or repeated event neither loses nor doubles a repair.
A shard has one open move at a time. The most urgent cause goes first, within it the shard with the
fewest live replicas. A shard that a limit keeps waiting is looked at again when the limit has room,
one that cannot be repaired when the fleet changes; neither blocks another.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from placement.allocator import View
from placement.model import Cause, Move, Reason, Violation
from placement.repair.actions import RepairAction
from placement.repair.issuer import BatchMoves, MoveIssuer
from placement.repair.needs import RepairScope
from placement.repair.queue import RepairQueue
from placement.repair.run import RepairRun
from placement.repair.triage import shards_without_fit_leader, triage
from placement.repair.violations import ViolationReporter
from placement.rules import RuleSet, Strength, find_breaches
from placement.state import ClusterState

# So many shards are asked one by one whether they need something; more are a repair under way.
_FEW = 1_000


class RepairPlanner:
    """The queue of shards to repair, the moves of this batch, and the runs over both."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._queue = RepairQueue(state)
        self._batch = BatchMoves()
        # Replicas that somebody wants to be replaced, by shard and node id; plans have some.
        self._marks: set[tuple[int, str]] = set()

    def enqueue(self, shards: Iterable[int]) -> None:
        """Queue shards for an examination in this batch; their needs may have changed."""
        self._queue.dirty.update(shards)

    def forget(self, shards: Collection[int]) -> None:
        """Forget shards that are no more; what takes their indexes has nothing to do with them."""
        self._queue.forget(shards)
        for shard in shards:
            self._batch.superseded.pop(shard, None)

    def mark(self, shard: int, node_id: str) -> None:
        """Mark a replica that repair must replace, wherever the new one goes."""
        self._marks.add((shard, node_id))
        self._queue.dirty.add(shard)

    def enqueue_rule_breakers(self, by_weight: bool = False) -> None:
        """Queue every shard that breaks a rule, after a domain was added.

        Domains count although their nodes may not receive replicas yet. With `by_weight` a node
        has changed and no domain was added: only streams that divide by weight are asked.
        """
        state, judging = self._state, self._state.topology.for_diagnosis()
        if by_weight and not state.streams.divides_by_weight:
            return
        for index, rows in state.table.streams():
            stream, shards = state.streams.at(index), rows.tolist()
            assert stream.policy is not None
            if by_weight and not RuleSet(stream.policy.rules).divides_by_weight:
                continue
            everywhere = stream.policy.rule_context(stream.spec, judging)
            rules = state.streams.rules(stream)
            for strength in Strength:
                for _, broken, _ in find_breaches(rules, strength, shards, everywhere):
                    self._queue.dirty.update(stream.shards[number] for number in broken)

    def retry_unfixable(self) -> None:
        """Queue unfixable shards again, because the set of usable nodes grew."""
        self._queue.dirty |= self._queue.unfixable

    def reprioritize_waiting(self) -> None:
        """Queue waiting shards again, because the fleet and thus their violations have changed."""
        self._queue.dirty.update(self._queue.throttled.shards())

    def note_cancelled_move(self, shard: int, move: Move) -> None:
        """Record a move cancelled in this batch, which the shard's next move supersedes."""
        self._batch.superseded[shard] = move
        self._queue.dirty.add(shard)

    @property
    def has_dirty(self) -> bool:
        """True if shards wait for an examination in this batch; their violations may be out of
        date."""
        return bool(self._queue.dirty - self._state.awaited)

    def is_idle(self) -> bool:
        """Return whether no shard, examined or queued, needs a repair that is possible."""
        queue = self._queue
        if queue.throttled or queue.has_work or len(queue.dirty) > _FEW:
            return False
        scope = self._scope()
        dirty = queue.dirty - self._state.awaited
        return all(scope.needs(shard).top_cause is None for shard in dirty)

    def issue(self, actions: Sequence[tuple[int, RepairAction]], view: View) -> list[Reason]:
        """Issue moves that no shard asks for and that belong together, given by shard and action.

        Returns the reasons why some could not be issued, none if all were.
        """
        issuer = MoveIssuer(self._state, self._scope(), self._batch)
        reasons = []
        for shard, action in actions:
            reason = issuer.issue_action(shard, action, view)
            self._queue.dirty.add(shard)
            if reason is None:
                self._batch.unasked += 1
            else:
                reasons.append(reason)
        return reasons

    def hand_over(self, shard: int, slot: int, cause: Cause, reason: Reason) -> Reason | None:
        """Let the live replica in a slot lead, by a move where the configuration says so.

        Returns what the move waits for, if it was not issued.
        """
        issuer = MoveIssuer(self._state, self._scope(), self._batch)
        return issuer.hand_over(shard, slot, cause, reason)

    def resume(self) -> None:
        """Fill the queue by what the violations and moves of a restored state say."""
        state, scope = self._state, self._scope()
        known = {*state.publisher.violations, *state.ledger.by_shard}
        seen = triage(state, scope, known, as_planned=True)
        unfit = (s for s in shards_without_fit_leader(state, scope) if s not in state.awaited)
        for shard in dict.fromkeys([*known, *unfit]):
            self._queue.reclassify(scope.needs(shard), seen, state.streams.key(shard))

    def run(
        self,
        caught_up: bool,
        place_waiting: Callable[[Collection[int]], None] = lambda _: None,
    ) -> None:
        """Promote live leaders, issue the moves that the limits allow, and publish violations.

        - `caught_up`: the source of events is not behind; while it is, nothing is copied or
          promoted.
        - `place_waiting`: places streams that wait for room, given the nodes that moves have left
          which were done at once.
        """
        marks = frozenset(self._marks)
        RepairRun(self._state, self._queue, self._batch, marks, caught_up, place_waiting).run()
        self._batch = BatchMoves()

    def violations(self, shards: Iterable[int]) -> list[Violation]:
        """List the violations of shards as they are planned now, diagnosed anew."""
        scope, reporter = self._scope(), ViolationReporter(self._state)
        return [each for s in shards for each in reporter.violations_of(scope.needs(s), {})]

    def _scope(self) -> RepairScope:
        """Make the scope of one question or one step of moves."""
        return RepairScope(self._state, frozenset(self._marks))
