"""Issues the next move of a shard, changes its leader, and calls off a removal nobody needs.

The planner gives it shards in the order of their priority. It decides everything about a move
before it writes any of it: a plan without the open move, which a more urgent action may supersede,
is an overlay of the shard's row. Replicas of a colocated stream go where those of its other shards
are, or are to be.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from placement.allocator import View
from placement.assignments import EMPTY
from placement.diagnosis import why_barred_leader, why_dead
from placement.hashing import stable_id
from placement.model import Band, Cause, Code, Move, MoveKind, MoveState, Reason
from placement.moves import OpenMove
from placement.repair.actions import ActionFinder, NoAction, NoMoveReasons, RepairAction
from placement.repair.leadership import next_leader
from placement.repair.needs import RepairScope, ShardNeeds
from placement.repair.priority import non_preempting_causes, preempts
from placement.repair.targets import find_target, why_backing_off
from placement.repair.throttle import Throttle, copy_source
from placement.state import ClusterState, Stream
from placement.wording import format_wait


@dataclass(slots=True)
class BatchMoves:
    """Record of the batch's moves so far, for those that follow in it.

    - `superseded`: by shard the move that ended early; the shard's next one supersedes it.
    - `shifted`: streams whose shards depend on each other, and of which one has changed.
    - `issued`: shards that repair has issued a move for; `unasked`: moves that none asked for.
    - `made_room`: a move that was done at once has made room, or shows others of its stream the
      way; `freed`: the nodes that replicas have left so.
    """

    superseded: dict[int, Move] = field(default_factory=dict)
    shifted: set[int] = field(default_factory=set)
    issued: set[int] = field(default_factory=set)
    unasked: int = 0
    made_room: bool = False
    freed: set[int] = field(default_factory=set)

    @property
    def count(self) -> int:
        """The number of moves that the batch has issued."""
        return len(self.issued) + self.unasked


class _Route(NamedTuple):
    """Route of an action's replica: its target, and the node that it is copied from."""

    target: int
    source: int


class MoveIssuer:
    """Issues moves during one pass over shards."""

    def __init__(self, state: ClusterState, scope: RepairScope, batch: BatchMoves) -> None:
        self._state, self._scope, self._batch = state, scope, batch
        self._actions, self.throttle = ActionFinder(scope), Throttle(state)
        self._no_targets: dict[tuple[int, int], Reason] = {}

    def issue(self, shard: int, view: View) -> NoMoveReasons | None:
        """Issue the shard's next move; None if there is one now, else why there is none."""
        needs, opened = self._scope.needs(shard), self._state.ledger.by_shard.get(shard)
        view.bear_shard(shard)
        if opened is None:
            found = self._first_action(needs, view, set())
        elif not self._is_outranked(needs, opened):
            return {}
        else:
            without = needs.without_move(opened)
            with view.with_row(shard, without.nodes):
                if _is_overfull(opened.removed, view):
                    # What the move made room for has been issued since.
                    return {}
                kept = non_preempting_causes(opened, without, needs)
                found = self._first_action(without, view, kept)
            needs = without
        if isinstance(found, dict):
            return found
        self._write(needs, *found, view, opened)
        return None

    def _first_action(
        self, needs: ShardNeeds, view: View, kept: set[Cause]
    ) -> tuple[RepairAction, _Route] | NoMoveReasons:
        """Choose the first action that can be issued, or say why there is none.

        None for causes that an open move does not give way to. A throttled one is not overtaken by
        a less urgent one.
        """
        reasons: NoMoveReasons = {}
        for action in self._actions.actions_of(needs, view):
            if isinstance(action, NoAction):
                reasons.setdefault(action.cause, action.reason)
                continue
            if action.cause in kept:
                break
            route = self._route(needs, action, view)
            if isinstance(route, _Route):
                return action, route
            reasons.setdefault(action.cause, route)
            if route.band is Band.THROTTLED:
                break
        return reasons

    def issue_action(self, shard: int, action: RepairAction, view: View) -> Reason | None:
        """Issue a move for an action of a shard without an open move, or say why there is none."""
        needs = self._scope.needs(shard)
        route = self._route(needs, action, view)
        if isinstance(route, Reason):
            return route
        self._write(needs, action, route, view, None)
        return None

    def _is_outranked(self, needs: ShardNeeds, opened: OpenMove) -> bool:
        """Return whether the shard's need is more urgent than its open move. A move that is not
        published yet stays until the next batch."""
        if opened.move.expected_epoch > self._state.publisher.epoch(needs.shard):
            return False
        return opened.move.kind is not MoveKind.REMOVE and preempts(needs, opened)

    def _route(self, needs: ShardNeeds, action: RepairAction, view: View) -> _Route | Reason:
        """Find target and source of the replica, if no limit forbids them now."""
        target = self._target(needs, action, view)
        if isinstance(target, Reason):
            return target
        source = copy_source(self._state, needs.shard, needs.nodes, target)
        size = self._state.bytes_of(needs.shard) or 0
        limit = self.throttle.limit_exceeded(needs.nodes[action.slot], target, source, size)
        return limit or _Route(target, source)

    def _target(self, needs: ShardNeeds, action: RepairAction, view: View) -> int | Reason:
        """Find the target of the replica; EMPTY if it is only removed."""
        if action.kind is MoveKind.REMOVE:
            node, case = needs.nodes[action.slot], needs.case
            backs_off = node in case.backed_off_targets
            return why_backing_off(case, node, self._state.topology) if backs_off else EMPTY
        if needs.is_colocated:
            return self._common_target(needs, action, view)
        if action.target is not None:
            return action.target
        return find_target(needs.case, action.slot, view)

    def _common_target(self, needs: ShardNeeds, action: RepairAction, view: View) -> int | Reason:
        """Find the node that all shards of a colocated stream share.

        The one that the others have already, or one that is chosen for all.
        """
        stream, nodes, colocation = needs.stream, needs.nodes, self._scope.colocation
        targets = colocation.targets(stream)
        leaves = action.unit if action.unit in targets else None
        missing = [node for node in targets if node not in nodes]
        if leaves is None and missing:
            follow = min(missing, key=lambda node: targets[node] != action.slot)
            return self._follow(needs, action.slot, follow, view)
        key = (stream.index, nodes[action.slot])
        if key in self._no_targets:
            return self._no_targets[key]
        target = action.target
        if target is None:
            case, slot = needs.case, action.slot
            if leaves is None:
                case = case._replace(shard=0, others=(), room=len(stream.shards))
            else:
                case = colocation.case(stream, needs.shard, view)
                slot = list(case.nodes).index(leaves)
            found = find_target(case, slot, view)
            if isinstance(found, Reason):
                self._no_targets[key] = found
                return found
            target = found
        if leaves is not None:
            del targets[leaves]
        targets[target] = action.slot
        return target

    def _follow(self, needs: ShardNeeds, slot: int, node: int, view: View) -> int | Reason:
        """Follow the other shards to their node, or say why the shard cannot go there.

        A colocated stream is never split, so that it waits for the node.
        """
        topology, stream = self._state.topology, needs.stream
        assert stream.policy is not None
        if node in needs.case.backed_off_targets:
            return why_backing_off(needs.case, node, topology)
        admitted = topology.eligible[node] and stream.policy.nodes.passes(topology, node)
        if admitted and view.has_room()[node]:
            return node
        (name, number), node_id = self._state.streams.key(needs.shard), topology.ids[node]
        what = f"replica {slot} of {name}/{number} must be on the node of the colocated shards"
        return Reason(Code.NO_CANDIDATE, f"{what}, but {node_id} cannot take it now", 1, 0)

    def _write(
        self,
        needs: ShardNeeds,
        action: RepairAction,
        route: _Route,
        view: View,
        outranked: OpenMove | None,
    ) -> None:
        """Record a move in plan, ledger and records, in place of the open one that it outranks."""
        state, shard, stream, batch = self._state, needs.shard, needs.stream, self._batch
        target, source = route
        if outranked is not None:
            batch.superseded[shard] = self._supersede(outranked)
            if outranked.added != EMPTY:
                view.set_busy(outranked.added, self.throttle.receives_enough(outranked.added))
            if not outranked.is_hand_over:
                self._place(stream, shard, outranked.move.slot, outranked.removed, view)
        before = batch.superseded.get(shard)
        if before is not None and before.state is not MoveState.SUPERSEDED:
            before = before._replace(state=MoveState.SUPERSEDED)
            state.moves.amend(before)
        self._scope.colocation.join_target(stream, target)
        move = make_move(state, needs, action, target, source, before)
        self._place(stream, shard, action.slot, target, view)
        removed = needs.nodes[action.slot]
        self._open(OpenMove(move, shard, removed, target, source))
        if target != EMPTY and self.throttle.receives_enough(target, move.bytes or 0):
            view.set_busy(target, True)
        if state.configuration.acked:
            state.moves.publish(move)
            self._recount(view, outranked, removed, target)
            return
        state.moves.end(shard, MoveState.COMPLETED)
        self._recount(view, outranked, removed, target)
        self.throttle.count(source, target, -1, move.bytes or 0)
        if target != EMPTY:
            view.set_busy(target, False)
        if removed != EMPTY and not state.topology.is_dead(removed):
            batch.made_room = True
            batch.freed.add(removed)
        batch.made_room |= stream.index in batch.shifted

    def _place(self, stream: Stream, shard: int, slot: int, node: int, view: View) -> None:
        """Put a node, or nothing, into a slot of the planned arrangement."""
        before = self._state.table.set(shard, slot, node)
        if before != EMPTY:
            view.remove(before)
        if node != EMPTY:
            view.add(node)
        traits = self._scope.traits(stream)
        if traits.is_colocated or traits.spans_stream:
            self._batch.shifted.add(stream.index)

    def _recount(self, view: View, outranked: OpenMove | None, *nodes: int) -> None:
        """Count in the view what the nodes of a move, and of the one that it outranks, bear now."""
        if view.loads is not None:
            ends = () if outranked is None else (outranked.removed, outranked.added)
            for node in {*nodes, *ends} - {EMPTY}:
                view.recount(node, self._state.borne_by(node))

    def _open(self, opened: OpenMove) -> None:
        self._state.moves.open(opened)
        self.throttle.count(opened.source, opened.added, 1, opened.move.bytes or 0)

    def _supersede(self, opened: OpenMove) -> Move:
        self.throttle.count(opened.source, opened.added, -1, opened.move.bytes or 0)
        return self._state.moves.supersede(opened.shard)

    def _cancel(self, opened: OpenMove, why: Reason) -> None:
        self.throttle.count(opened.source, opened.added, -1, opened.move.bytes or 0)
        self._state.moves.end(opened.shard, MoveState.CANCELLED, why)

    def cancel_unneeded_removal(self, shard: int) -> None:
        """Cancel the removal of a live replica that is needed after all.

        Or that a dead one can be spared for; if nobody has begun it, or if a new leader would make
        it anew.
        """
        state = self._state
        opened = state.ledger.by_shard.get(shard)
        if opened is None or opened.move.kind is not MoveKind.REMOVE:
            return
        successor = next_leader(state, self._scope, shard)
        begun = opened.move.state is MoveState.ACCEPTED and successor is None
        needs, is_dead = self._scope.needs(shard), state.topology.is_dead
        dead = any(node != EMPTY and is_dead(node) for node in needs.nodes)
        spared = dead and not is_dead(opened.removed)
        if not begun and (spared or needs.missing_slots):
            needed = Reason(
                Code.REPLICA_MISSING, "the replica is needed: the shard has too few others now"
            )
            self._cancel(opened, needed)

    def promote(self, shard: int) -> Reason | None:
        """Put the replica in front that has to lead. An open move is valid at its own epoch only,
        so that one of the same nodes supersedes it.

        Returns what a hand-over that executors acknowledge waits for, if it does.
        """
        state = self._state
        leader = next_leader(state, self._scope, shard)
        if leader is None:
            return None
        opened = state.ledger.by_shard.get(shard)
        first = state.current_replicas(shard)[0]
        if first != EMPTY and not state.topology.is_dead(first):
            return self.hand_over(shard, leader, Cause.LEADER, self._why_handed_over(first))
        if opened and opened.is_hand_over:
            self._cancel(opened, why_dead([first], state.topology))
            opened = None
        nodes = state.current_replicas(shard) if opened else []
        if opened and opened.move.slot == leader and self._may_only_follow(opened):
            target = state.topology.ids[opened.added]
            message = f"the replica would lead on node {target}, which is not up"
            lost = Reason(Code.TARGET_LOST, message)
            self._cancel(opened, lost)
            opened = None
        source = copy_source(state, shard, nodes, opened.added) if opened else EMPTY
        state.change_leader(shard, leader)
        if opened is None:
            return None
        before = self._supersede(opened)
        slot = {0: leader, leader: 0}.get(before.slot, before.slot)
        move = reissue_move(state, shard, before, slot, source)
        self._open(replace(opened, move=move, source=source))
        state.moves.publish(move)
        return None

    def _why_handed_over(self, node: int) -> Reason:
        """Explain why another live replica than the one on a node is to lead."""
        topology = self._state.topology
        if not topology.can_lead[node]:
            return why_barred_leader(node, topology)
        message = f"the policy prefers another leader than the replica on node {topology.ids[node]}"
        return Reason(Code.RULE_NOT_MET, message)

    def hand_over(self, shard: int, slot: int, cause: Cause, reason: Reason) -> Reason | None:
        """Let the live replica in a slot lead instead of the first, which lives too.

        By a move, if executors are asked to acknowledge that. Returns what such a move waits for:
        missing replicas, which come first, a limit, or the pause after one that has failed.
        """
        state = self._state
        if not (state.configuration.leader_moves and state.configuration.acked):
            state.change_leader(shard, slot)
            return None
        leader, needs = state.table.nodes(shard)[slot], self._scope.needs(shard)
        if leader in state.backed_off_targets(shard):
            return why_backing_off(needs.case, leader, state.topology)
        if needs.missing_slots:
            missing = format_wait("its missing replicas come before another leader")
            return Reason(Code.REPLICA_MISSING, missing)
        full = self.throttle.why_fleet_full()
        if not self.throttle.has_room(self._batch.count):
            return full
        (name, number), leader_id = state.streams.key(shard), state.topology.ids[leader]
        epoch = state.publisher.next_epoch(shard)
        move = Move(
            move_id=stable_id(state.configuration.cell, name, number, "leader", leader_id, epoch),
            kind=MoveKind.LEADER,
            stream=name,
            shard=number,
            slot=slot,
            remove=None,
            add=None,
            expected_epoch=epoch,
            state=MoveState.ISSUED,
            cause=cause,
            reason=reason,
            deadline=state.now + state.configuration.deadline_ms,
            issued_at=state.now,
            uid=state.streams[name].spec.uid,
            leader=leader_id,
        )
        self._open(OpenMove(move, shard, EMPTY, EMPTY, EMPTY, leader))
        state.moves.publish(move)
        self._batch.unasked += 1
        return None

    def promote_all(self, successors: Mapping[int, int]) -> None:
        """Put replicas in front that have to lead, by shard their slots, where no move is open."""
        self._state.change_leaders(successors)

    def _may_only_follow(self, opened: OpenMove) -> bool:
        """Return whether the copy goes to a suspect node, which some strategies accept for
        followers."""
        return opened.added != EMPTY and not self._state.topology.eligible[opened.added]


def _is_overfull(node: int, view: View) -> bool:
    """Return whether a node that may receive replicas holds more than its capacity."""
    return node != EMPTY and not view.topology.is_dead(node) and not view.has_room(0)[node]


def make_move(
    state: ClusterState,
    needs: ShardNeeds,
    action: RepairAction,
    target: int,
    source: int,
    before: Move | None,
) -> Move:
    """Make the record of a move for an action; `before` is the one that it supersedes."""
    ids, shard, spec = state.topology.ids, needs.shard, needs.stream.spec
    name, number, removed = spec.stream, state.table.number_of(shard), needs.nodes[action.slot]
    remove = ids[removed] if removed != EMPTY else None
    add = ids[target] if target != EMPTY else None
    epoch = state.publisher.next_epoch(shard)
    parts = (name, number, action.slot, remove or "", add or "", epoch)
    size = state.bytes_of(shard) if add is not None else None
    return Move(
        move_id=stable_id(state.configuration.cell, *parts),
        kind=action.kind,
        stream=name,
        shard=number,
        slot=action.slot,
        remove=remove,
        add=add,
        expected_epoch=epoch,
        state=MoveState.ISSUED,
        cause=action.cause,
        reason=action.reason,
        deadline=_deadline(state, size),
        issued_at=state.now,
        source=ids[source] if source != EMPTY else None,
        supersedes=before.move_id if before else None,
        rate_bytes_per_second=state.configuration.rate_bytes_per_second,
        uid=spec.uid,
        bytes=size,
    )


def _deadline(state: ClusterState, size: int | None) -> int:
    """Compute until when a move must be completed: time for its copy at half the rate, at least."""
    rate, wait_ms = state.configuration.rate_bytes_per_second, state.configuration.deadline_ms
    copying_ms = 0 if not rate or size is None else 2_000 * size // rate
    return state.now + max(wait_ms, copying_ms)


def reissue_move(state: ClusterState, shard: int, before: Move, slot: int, source: int) -> Move:
    """Make a move of the same nodes at the shard's next epoch; the slot may have changed."""
    epoch = state.publisher.next_epoch(shard)
    parts = (before.stream, before.shard, slot, before.remove or "", before.add or "", epoch)
    return before._replace(
        move_id=stable_id(state.configuration.cell, *parts),
        slot=slot,
        expected_epoch=epoch,
        state=MoveState.ISSUED,
        deadline=_deadline(state, before.bytes),
        issued_at=state.now,
        ended_at=None,
        source=state.topology.ids[source] if source != EMPTY else None,
        supersedes=before.move_id,
        renewed_at=None,
        bytes_done=None,
        bytes_total=None,
    )
