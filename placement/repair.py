"""Repair: from what shards want to the moves that give it to them.

What to do is derived from the state alone, so that a missed or repeated event cannot lose or
double a repair. A shard has one open move at a time; the most urgent cause goes first, and within
it the shard with the fewest live replicas. A shard that cannot be helped waits in `stuck` until
the fleet changes, and blocks no other.
"""

from collections.abc import Iterable
from dataclasses import replace

from placement.assignments import EMPTY
from placement.diagnose import live_slots
from placement.judge import judged
from placement.mend import Case, find_target
from placement.model import Cause, Move, MoveKind, MoveState, Violation, ViolationClass
from placement.moves import OpenMove
from placement.orders import copy_source, ordered, over_limit, renewed
from placement.reasons import Band, Code, Reason
from placement.report import Failed, Report
from placement.rules import Strength
from placement.state import State, Stream
from placement.strategies.base import View
from placement.wants import Want, Wants, urgency


class Repair:
    """The wanted repairs and how they are issued."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._wants = Wants(state)
        self._report = Report(state, self._wants)
        self._wanted: set[int] = set()
        self._stuck: set[int] = set()
        self._recheck: set[int] = set()
        self._ended: dict[int, Move] = {}
        self._hopeless: dict[tuple[int, int], Reason] = {}
        self._issued: set[int] = set()
        self._freed = False

    def look_at(self, shards: Iterable[int]) -> None:
        """These shards may have become needy or healthy."""
        self._recheck.update(shards)

    def mark(self, shard: int, node_id: str) -> None:
        """A replica is wanted to be replaced, wherever it goes."""
        self._wants.marked.add((shard, node_id))
        self._recheck.add(shard)

    def look_over(self) -> None:
        """A domain has come that no arrangement knew of: look at every shard that breaks a rule
        now."""
        state = self._state
        for stream in state.streams.values():
            if not stream.shards:
                continue
            assert stream.policy is not None
            shards = [state.table.nodes(shard) for shard in stream.shards]
            for strength in Strength:
                for _, broken, _ in judged(
                    state.rules(stream),
                    strength,
                    shards,
                    stream.spec,
                    stream.policy,
                    state.topology,
                ):
                    self._recheck.update(stream.shards[number] for number in broken)

    def retry_stuck(self) -> None:
        """The set of usable nodes grew: what could not be helped may be now."""
        self._recheck.update(self._stuck)
        self._stuck.clear()

    def ended_early(self, shard: int, move: Move) -> None:
        """A move was cancelled in this batch: a new one for its shard supersedes it."""
        self._ended[shard] = move
        self._recheck.add(shard)

    def resume(self) -> None:
        """Go on where the published violations of a restored state say that things stand."""
        self._wants.forget()
        for stream in self._state.streams.values():
            for shard in stream.shards:
                self._file(shard)
        self._wants.forget()

    def run(self, caught_up: bool) -> None:
        """Promote live leaders, issue the moves that the limits allow, and publish violations."""
        state = self._state
        self._wants.forget()
        self._look_further()
        self._stuck -= self._recheck
        self._wanted |= self._recheck
        if caught_up:
            for shard in sorted(self._wanted, key=state.key):
                self._keep_needed(shard)
                self._promote(shard)
        failed: dict[int, dict[Cause | None, Reason]] = {}
        self._issue_all(caught_up, failed)
        while self._freed:
            # A move that is done at once has made room for what was stuck.
            self._freed = False
            self._wants.forget()
            self._hopeless.clear()
            self._wanted |= self._stuck
            self._stuck.clear()
            self._issue_all(caught_up, failed)
        for shard in sorted(self._wanted, key=state.key):
            state.set_violations(shard, self.violations(shard, failed.get(shard, {})))
            self._file(shard)
        self._recheck.clear()
        self._ended.clear()
        self._hopeless.clear()
        self._issued.clear()
        self._wants.forget()

    def violations(self, shard: int, failed: Failed) -> tuple[Violation, ...]:
        """What the shard breaks; `failed` says why it got no move."""
        return self._report.of(shard, failed)

    def _file(self, shard: int) -> None:
        """Keep in mind what has to be looked at again: always, when the fleet changes, or not."""
        said = self._state.violations.get(shard, ())
        self._wanted.discard(shard)
        fixable = ViolationClass.FIXABLE
        if any(v.violation_class is fixable or v.reason.band is Band.THROTTLED for v in said):
            self._wanted.add(shard)
        elif said:
            self._stuck.add(shard)
        elif self._wants.next_leader(shard) is not None:
            self._wanted.add(shard)

    def _look_further(self) -> None:
        """What changes in one shard of a stream may concern others that are in need already, and
        those of a colocated stream that stand apart."""
        state, known = self._state, self._wanted | self._stuck
        streams = {state.table.stream_of(shard): shard for shard in self._recheck}
        for shard in streams.values():
            stream = state.stream_of(shard)
            colocated = self._wants.is_colocated(stream)
            if not colocated and not self._wants.is_wide(stream):
                continue
            for other in stream.shards:
                if other in known or (colocated and self._wants.strays(other)):
                    self._recheck.add(other)

    # Moves

    def _issue_all(self, caught_up: bool, failed: dict[int, dict[Cause | None, Reason]]) -> None:
        """Plan each wanted shard in order; `failed` learns why those without a move have none."""
        state = self._state
        limits = state.configuration.limits
        view = View(state.topology, state.table, state.policy_of, state.spec_of)
        for shard in sorted(self._wanted - self._issued, key=self._urgency):
            known = failed[shard] = {}
            if not caught_up:
                known[None] = Reason(Code.NOT_CAUGHT_UP, "the source of events is behind")
            elif len(self._issued) >= limits.max_per_batch or (
                len(state.ledger.by_shard) >= limits.max_open and shard not in state.ledger.by_shard
            ):
                known[None] = Reason(Code.LIMIT_REACHED, "the limit of open moves is reached")
            else:
                if self._issue(shard, view, known):
                    self._issued.add(shard)

    def _urgency(self, shard: int) -> tuple[int, int, str, int]:
        live = len(live_slots(self._state.table.nodes(shard), self._state.topology))
        return (urgency(self._wants.cause(shard)), live, *self._state.key(shard))

    def _issue(self, shard: int, view: View, failed: dict[Cause | None, Reason]) -> bool:
        """Issue the shard's next move, if there is one; `failed` learns why there is none."""
        opened = self._state.ledger.by_shard.get(shard)
        if opened is not None and not self._outranked(shard, opened):
            return False
        if opened is not None:
            self._put_back(opened, view)
        for want in self._wants.of(shard, view, failed):
            if opened is not None and want.cause is not Cause.UNDER_REPLICATED:
                break
            reason = self._try(shard, want, view, opened)
            if reason is None:
                return True
            failed.setdefault(want.cause, reason)
            if reason.band is Band.THROTTLED:
                break
        if opened is not None:
            self._put_forward(opened, view)
        return False

    def _outranked(self, shard: int, opened: OpenMove) -> bool:
        """Whether the shard lacks replicas while its open move is about something less urgent. A
        move that nobody has seen yet is left until the next batch."""
        if opened.move.expected_epoch > int(self._state.table.epoch[shard]):
            return False
        if opened.move.kind is MoveKind.REMOVE:
            return False
        less = urgency(Cause(opened.move.cause)) > urgency(Cause.UNDER_REPLICATED)
        return less and bool(self._wants.needy(shard))

    def _put_back(self, opened: OpenMove, view: View) -> None:
        """Plan as if the open move had never been issued."""
        self._place(opened.shard, opened.move.slot, opened.removed, view)

    def _put_forward(self, opened: OpenMove, view: View) -> None:
        """The open move goes on."""
        self._place(opened.shard, opened.move.slot, opened.added, view)

    def _place(self, shard: int, slot: int, node: int, view: View) -> None:
        """Put a node, or nothing, into a slot of the plan."""
        before = self._state.table.nodes(shard)[slot]
        if before != EMPTY:
            view.remove(before)
        if node != EMPTY:
            view.add(node)
        self._state.table.set(shard, slot, node)
        self._wants.changed(shard)

    def _try(self, shard: int, want: Want, view: View, outranked: OpenMove | None) -> Reason | None:
        """Issue a move for the want, or say why there is none."""
        state = self._state
        nodes = state.table.nodes(shard)
        target = EMPTY if want.kind is MoveKind.REMOVE else self._target(shard, want, nodes, view)
        if isinstance(target, Reason):
            return target
        source = copy_source(state, nodes, target)
        limit = over_limit(state, nodes[want.slot], target, source)
        if limit:
            return limit
        if outranked is not None:
            self._ended[shard] = state.ledger.close(shard, MoveState.SUPERSEDED, state.now).move
        before = self._ended.get(shard)
        if before is not None:
            before = replace(before, state=MoveState.SUPERSEDED)
            state.ledger.known[before.move_id] = before
            state.publish_move(before)
        move = ordered(state, shard, nodes, want, target, source, before)
        self._place(shard, want.slot, target, view)
        state.touch(shard)
        opened = OpenMove(move, shard, nodes[want.slot], target, source)
        state.ledger.open(opened)
        if not state.configuration.acked:
            state.settle(state.ledger.close(shard, MoveState.COMPLETED, state.now))
            self._freed |= opened.removed != EMPTY and not state.topology.is_dead(opened.removed)
        state.publish_move(opened.move)
        return None

    def _target(self, shard: int, want: Want, nodes: list[int], view: View) -> int | Reason:
        """Where the replica goes."""
        stream = self._state.stream_of(shard)
        if self._wants.is_colocated(stream):
            return self._common_target(stream, shard, want, nodes, view)
        if want.target is not None:
            return want.target
        return find_target(self._wants.case(shard), want.slot, view)

    def _common_target(
        self, stream: Stream, shard: int, want: Want, nodes: list[int], view: View
    ) -> int | Reason:
        """The node that all shards of a colocated stream share: the one that the others have
        already, or one that is chosen for all."""
        topology, unit = self._state.topology, self._wants.unit(stream)
        leaves = want.unit if want.unit in unit else None
        missing = [node for node in unit if node not in nodes]
        if leaves is None and missing:
            follow = min(missing, key=lambda node: unit[node] != want.slot)
            assert stream.policy is not None
            open_to = topology.eligible[follow] and stream.policy.nodes.passes(topology, follow)
            room = bool(view.has_room()[follow])
            return follow if open_to and room else self._blocked(shard, want.slot, follow)
        key = (stream.index, nodes[want.slot])
        if key in self._hopeless:
            return self._hopeless[key]
        target = want.target
        if target is None:
            case: Case = replace(
                self._wants.case(shard), shard=0, others=(), room=len(stream.shards)
            )
            slot = want.slot
            if leaves is not None:
                case = self._wants.unit_case(stream)
                slot = list(case.nodes).index(leaves)
            found = find_target(case, slot, view)
            if isinstance(found, Reason):
                self._hopeless[key] = found
                return found
            target = found
        if leaves is not None:
            del unit[leaves]
        unit[target] = want.slot
        return target

    def _blocked(self, shard: int, slot: int, node: int) -> Reason:
        """A colocated stream is never split: the shard waits for the node of the others."""
        (name, number), node_id = self._state.key(shard), self._state.topology.ids[node]
        what = f"replica {slot} of {name}/{number} belongs on {node_id} with the other shards"
        return Reason(Code.NO_CANDIDATE, f"{what}, which may not hold it now", 1, 0)

    def _keep_needed(self, shard: int) -> None:
        """Cancel the removal of a replica that is needed after all, if nobody has begun it."""
        state = self._state
        opened = state.ledger.by_shard.get(shard)
        if opened is None or opened.move.kind is not MoveKind.REMOVE:
            return
        if opened.move.state is MoveState.ISSUED and self._wants.needy(shard):
            needed = Reason(Code.REPLICA_MISSING, "the other replicas are not enough any more")
            state.settle(state.ledger.close(shard, MoveState.CANCELLED, state.now, needed))
            state.publish_move(opened.move)
            state.touch(shard)
            self._wants.changed(shard)

    def _promote(self, shard: int) -> None:
        """Put the replica in front that has to lead. An open move is valid at its own epoch only,
        so that one of the same nodes supersedes it."""
        state, leader = self._state, self._wants.next_leader(shard)
        if leader is None:
            return
        opened = state.ledger.by_shard.get(shard)
        nodes = state.complete(shard)
        source = copy_source(state, nodes, opened.added) if opened else EMPTY
        state.table.swap(shard, 0, leader)
        state.touch(shard)
        self._wants.changed(shard)
        if opened is None:
            return
        before = state.ledger.close(shard, MoveState.SUPERSEDED, state.now).move
        state.publish_move(before)
        slot = {0: leader, leader: 0}.get(before.slot, before.slot)
        move = renewed(state, shard, before, slot, source)
        state.ledger.open(replace(opened, move=move, source=source))
        state.publish_move(move)
