"""Issues the next move of a shard, changes its leader, and calls off what has become needless.

A more urgent action supersedes the open move, unless that move helps the action, too. Replicas of
a colocated stream go where those of its other shards are, or are to be.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from placement.allocator import View
from placement.assignments import EMPTY
from placement.model import Band, Cause, Code, Move, MoveKind, MoveState, Reason
from placement.moves import OpenMove
from placement.repair.actions import ActionFinder, NoMoveReasons, RepairAction
from placement.repair.leadership import next_leader
from placement.repair.priority import deficits_of, non_preempting_causes, preempts
from placement.repair.targets import ShardCase, backing_off, find_target
from placement.repair.throttle import (
    DomainPair,
    copy_source,
    domain_pair,
    is_busy,
    limit_exceeded,
    make_move,
    open_pairs,
    reissue_move,
)
from placement.state import ClusterState, Stream


class MoveIssuer:
    """Issues moves during one run, and knows what the run has come to."""

    def __init__(self, state: ClusterState, actions: ActionFinder) -> None:
        self._state = state
        self._actions = actions
        # Moves that this batch has ended, by shard: the next one supersedes them.
        self.ended: dict[int, Move] = {}
        # Streams whose shards depend on each other, and of which one has changed.
        self.shifted: set[int] = set()
        # Whether a move that was done at once has made room, or shows others of its stream the way.
        self.freed = False
        self._no_targets: dict[tuple[int, int], Reason] = {}
        self._open_pairs: Counter[DomainPair] | None = None

    def begin(self) -> None:
        """Start over, after room was made."""
        self.freed = False
        self._no_targets.clear()
        self._open_pairs = None

    def finish(self) -> None:
        """The run is over."""
        self.begin()
        self.ended.clear()
        self.shifted.clear()

    def issue(self, shard: int, view: View, failed: NoMoveReasons) -> bool:
        """Issue the shard's next move, if there is one; `failed` learns why there is none."""
        opened = self._state.ledger.by_shard.get(shard)
        if opened is not None and not self._is_outranked(shard, opened):
            return False
        outranked = set() if opened is None else self._put_back(opened, view)
        if opened is not None and _is_overfull(opened.removed, view):
            # What it made room for has been issued since.
            self._put_forward(opened, view)
            return False
        for action in self._actions.actions_of(shard, view, failed):
            if action.cause in outranked:
                break
            reason = self.issue_action(shard, action, view, opened)
            if reason is None:
                return True
            failed.setdefault(action.cause, reason)
            if reason.band is Band.THROTTLED:
                break
        if opened is not None:
            self._put_forward(opened, view)
        return False

    def _is_outranked(self, shard: int, opened: OpenMove) -> bool:
        """Whether the shard wants something while its open move is about something less urgent. A
        move that nobody has seen yet is left until the next batch."""
        if opened.move.expected_epoch > self._state.publisher.epoch(shard):
            return False
        return opened.move.kind is not MoveKind.REMOVE and preempts(self._actions, shard, opened)

    def _put_back(self, opened: OpenMove, view: View) -> set[Cause]:
        """Plan as if the open move had never been issued; causes that it does not give way to."""
        topology, shard = self._state.topology, opened.shard
        done = deficits_of(self._actions, shard, topology)
        self._place(shard, opened.move.slot, opened.removed, view)
        return non_preempting_causes(opened, deficits_of(self._actions, shard, topology), done)

    def _put_forward(self, opened: OpenMove, view: View) -> None:
        """The open move goes on."""
        self._place(opened.shard, opened.move.slot, opened.added, view)

    def _place(self, shard: int, slot: int, node: int, view: View) -> None:
        """Put a node, or nothing, into a slot of the plan."""
        before = self._state.table.set(shard, slot, node)
        if before != EMPTY:
            view.remove(before)
        if node != EMPTY:
            view.add(node)
        self._actions.changed(shard)
        stream = self._state.streams.of_shard(shard)
        if self._actions.spans_stream(stream) or self._actions.is_colocated(stream):
            self.shifted.add(stream.index)

    def issue_action(
        self, shard: int, action: RepairAction, view: View, outranked: OpenMove | None
    ) -> Reason | None:
        """Issue a move for the want, or say why there is none."""
        state, stream = self._state, self._state.streams.of_shard(shard)
        nodes = state.table.nodes(shard)
        target = self._target(stream, shard, action, nodes, view)
        if isinstance(target, Reason):
            return target
        source = copy_source(state, nodes, target)
        busy = self._busy()
        limit = limit_exceeded(state, nodes[action.slot], target, source, busy)
        if limit:
            return limit
        if busy is not None:
            busy[domain_pair(state.topology, source, target)] += 1
        if outranked is not None:
            self._open_pairs = None
            self.ended[shard] = state.moves.supersede(shard)
            if outranked.added != EMPTY:
                view.occupy(outranked.added, is_busy(state, outranked.added))
        before = self.ended.get(shard)
        if before is not None and before.state is not MoveState.SUPERSEDED:
            before = before._replace(state=MoveState.SUPERSEDED)
            state.moves.amend(before)
        self._actions.join_target(stream, target)
        move = make_move(state, shard, nodes, action, target, source, before)
        self._place(shard, action.slot, target, view)
        opened = OpenMove(move, shard, nodes[action.slot], target, source)
        state.moves.open(opened)
        if target != EMPTY and is_busy(state, target):
            view.occupy(target, True)
        if state.configuration.acked:
            state.moves.publish(move)
        else:
            state.moves.end(shard, MoveState.COMPLETED)
            if busy is not None:
                busy[domain_pair(state.topology, source, target)] -= 1
            if target != EMPTY:
                view.occupy(target, False)
            self.freed |= opened.removed != EMPTY and not state.topology.is_dead(opened.removed)
            self.freed |= stream.index in self.shifted
        return None

    def _busy(self) -> Counter[DomainPair] | None:
        """Open moves between domains, where these are limited."""
        limited = self._state.configuration.limits.max_per_domain_pair is not None
        if self._open_pairs is None and limited:
            self._open_pairs = open_pairs(self._state)
        return self._open_pairs

    def _target(
        self, stream: Stream, shard: int, action: RepairAction, nodes: list[int], view: View
    ) -> int | Reason:
        """Where the replica goes; EMPTY where it only goes away."""
        if action.kind is MoveKind.REMOVE:
            case = self._actions.case(shard)
            node = nodes[action.slot]
            return (
                backing_off(case, node, self._state.topology)
                if node in case.backed_off_targets
                else EMPTY
            )
        if self._actions.is_colocated(stream):
            return self._common_target(stream, shard, action, nodes, view)
        if action.target is not None:
            return action.target
        return find_target(self._actions.case(shard), action.slot, view)

    def _common_target(
        self, stream: Stream, shard: int, action: RepairAction, nodes: list[int], view: View
    ) -> int | Reason:
        """The node that all shards of a colocated stream share: the one that the others have
        already, or one that is chosen for all."""
        topology, unit = self._state.topology, self._actions.target_nodes(stream)
        leaves = action.unit if action.unit in unit else None
        missing = [node for node in unit if node not in nodes]
        if leaves is None and missing:
            follow = min(missing, key=lambda node: unit[node] != action.slot)
            assert stream.policy is not None
            open_to = topology.eligible[follow] and stream.policy.nodes.passes(topology, follow)
            if follow in self._actions.case(shard).backed_off_targets:
                return backing_off(self._actions.case(shard), follow, topology)
            room = bool(view.has_room()[follow])
            return follow if open_to and room else self._blocked(shard, action.slot, follow)
        key = (stream.index, nodes[action.slot])
        if key in self._no_targets:
            return self._no_targets[key]
        target = action.target
        if target is None:
            case: ShardCase = self._actions.case(shard)._replace(
                shard=0, others=(), room=len(stream.shards)
            )
            slot = action.slot
            if leaves is not None:
                case = self._actions.colocated_case(stream, shard)
                slot = list(case.nodes).index(leaves)
            found = find_target(case, slot, view)
            if isinstance(found, Reason):
                self._no_targets[key] = found
                return found
            target = found
        if leaves is not None:
            del unit[leaves]
        unit[target] = action.slot
        return target

    def _blocked(self, shard: int, slot: int, node: int) -> Reason:
        """A colocated stream is never split: the shard waits for the node of the others."""
        (name, number), node_id = self._state.streams.key(shard), self._state.topology.ids[node]
        what = f"replica {slot} of {name}/{number} belongs on {node_id} with the other shards"
        return Reason(Code.NO_CANDIDATE, f"{what}, which may not hold it now", 1, 0)

    def cancel_unneeded_removal(self, shard: int) -> None:
        """Cancel the removal of a live replica that is needed after all, or that another which has
        died can be spared for, if nobody has begun it or if a new leader would make it anew."""
        state = self._state
        opened = state.ledger.by_shard.get(shard)
        if opened is None or opened.move.kind is not MoveKind.REMOVE:
            return
        successor = next_leader(state, self._actions, shard)
        begun = opened.move.state is MoveState.ACCEPTED and successor is None
        nodes, is_dead = state.table.nodes(shard), state.topology.is_dead
        spared = not is_dead(opened.removed) and any(n != EMPTY and is_dead(n) for n in nodes)
        if not begun and (spared or self._actions.missing_slots(shard)):
            needed = Reason(Code.REPLICA_MISSING, "the other replicas are not enough any more")
            state.moves.end(shard, MoveState.CANCELLED, needed)
            self._actions.changed(shard)

    def promote(self, shard: int) -> None:
        """Put the replica in front that has to lead. An open move is valid at its own epoch only,
        so that one of the same nodes supersedes it."""
        state = self._state
        leader = next_leader(state, self._actions, shard)
        if leader is None:
            return
        opened = state.ledger.by_shard.get(shard)
        nodes = state.current_replicas(shard) if opened else []
        if opened and opened.move.slot == leader and self._may_only_follow(opened):
            lost = Reason(Code.TARGET_LOST, "the copy would lead, on a node that is not up")
            state.moves.end(shard, MoveState.CANCELLED, lost)
            opened = None
        source = copy_source(state, nodes, opened.added) if opened else EMPTY
        state.change_leader(shard, leader)
        self._actions.changed(shard)
        if opened is None:
            return
        before = state.moves.supersede(shard)
        slot = {0: leader, leader: 0}.get(before.slot, before.slot)
        move = reissue_move(state, shard, before, slot, source)
        state.moves.open(replace(opened, move=move, source=source))
        state.moves.publish(move)

    def promote_all(self, successors: Mapping[int, int]) -> None:
        """Put the replica in front that has to lead, by shard its slot, where no move is open."""
        self._state.change_leaders(successors)
        for shard in successors:
            self._actions.changed(shard)

    def _may_only_follow(self, opened: OpenMove) -> bool:
        """Whether the copy goes to a suspect node, which some strategies take for followers."""
        return opened.added != EMPTY and not self._state.topology.eligible[opened.added]


def _is_overfull(node: int, view: View) -> bool:
    """Whether a node that may take replicas holds more than it has room for."""
    return node != EMPTY and not view.topology.is_dead(node) and not view.has_room(0)[node]
