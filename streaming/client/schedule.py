"""Decides what an executor does next: a state machine over records, without Kafka, threads, clock.

`executor.py` feeds it the records of `moves.v1` and `assignments.v1` and the ends of its tasks, and
carries out the effects that it answers with. The rules are those of the contract with consumers
(schemas/README.md, 3 to 5 and "Moves"). It is level-triggered: what to do for a shard follows from
what is known of it, so that records that come twice, or in another order of the two topics, lead to
the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from schemas.outputs import MoveState
from streaming.client.moves import Replica, are_uids_apart, log_extra

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streaming.client.moves import Move, ShardAssignment, ShardId

# Deletions and the removal of cut-off copies must not wait behind copies of hours; so many at once
# keep a store busy.
CLEANUPS_MAX = 4
LOST = "it was listed before the executor's start, and is not in the store"
# A move and its assignment are published together: one that has not come after so long is missing.
ASSIGNMENT_PATIENCE_MS = 10_000
# States of a move whose copy is there, or under way.
_BEGUN_STATES = frozenset({MoveState.ACCEPTED, MoveState.COMPLETED})


class TaskKind(StrEnum):
    """Says what a task does: carry a move out, clear what a called-off one has copied, delete or
    create a replica."""

    CARRY_OUT = "carry_out"
    CLEAR = "clear"
    DELETE = "delete"
    CREATE = "create"


@dataclass(frozen=True, slots=True)
class Task:
    """Is work for the store. `move` is set for the first two kinds, `replica` for the others.

    `is_resumed`: an earlier life of the executor has accepted the move, and may have completed it.
    """

    kind: TaskKind
    shard_id: ShardId
    move: Move | None = None
    replica: Replica | None = None
    is_resumed: bool = False

    @property
    def log_extra(self) -> dict[str, Any]:
        """The `extra` of log records about it."""
        node_id = None if self.replica is None else self.replica.node_id
        return log_extra(self.shard_id, self.move, node_id)


class Ending(StrEnum):
    """Says how a task ended. `stopped`: called off, and what was copied is removed. `abandoned`:
    the executor closes; its next life goes on."""

    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class Start:
    """Asks to begin a task."""

    task: Task


@dataclass(frozen=True, slots=True)
class CallOff:
    """Asks to end a task that was begun; its end is reported as any other."""

    task: Task


@dataclass(frozen=True, slots=True)
class Say:
    """Asks to send a message about a move or a replica on `acks.v1`."""

    message: str
    shard_id: ShardId
    node_id: str | None
    move: Move | None = None
    reason: str | None = None
    uid: str | None = None

    @classmethod
    def of(cls, message: str, move: Move, reason: str | None = None) -> Say:
        """Make a message about a move."""
        return cls(message, move.shard_id, move.actor, move, reason, move.uid)


Effect = Start | CallOff | Say


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds what is carried out at once. A move that is larger than `bytes_max` runs alone."""

    moves_max: int = 4
    bytes_max: int | None = None

    def __post_init__(self) -> None:
        if self.moves_max < 1 or (self.bytes_max is not None and self.bytes_max < 1):
            raise ValueError("moves_max and bytes_max must be at least 1")


@dataclass(slots=True)
class _Shard:
    """Is what is known of a shard. `ended`: how moves ended here, by id; `owed`: moves whose
    `MoveStopped` is to be sent. Sets of nodes: `departed`, whose data is to go; `stale`, whose data
    is of an earlier stream of the name, and goes before anything is made; `fresh`, that are to make
    an empty replica; `lost`, whose replica is to be reported."""

    assignment: ShardAssignment | None = None
    moves: dict[str, Move] = field(default_factory=dict)
    running: Task | None = None
    is_calling_off: bool = False
    ended: dict[str, Ending] = field(default_factory=dict)
    owed: dict[str, None] = field(default_factory=dict)
    departed: dict[str, None] = field(default_factory=dict)
    stale: dict[str, None] = field(default_factory=dict)
    fresh: dict[str, None] = field(default_factory=dict)
    lost: dict[str, None] = field(default_factory=dict)
    is_dropped: bool = False


class Schedule:
    """Holds the moves and assignments of the nodes that an executor serves, and decides.

    Records may come in any order of the two topics, those of one shard in their order per topic.
    Nothing is decided before the first `advance`: all that is on the topics should be seen then.
    """

    def __init__(self, nodes: Iterable[str] | None = None, limits: Limits | None = None) -> None:
        """`nodes`: the nodes that are served; None: all."""
        self._nodes = None if nodes is None else frozenset(nodes)
        self._limits = limits or Limits()
        self._shards: dict[ShardId, _Shard] = {}
        self._shard_of: dict[str, ShardId] = {}
        # Shards to look at with the next `advance`, in the order in which they asked for it.
        self._waiting: dict[ShardId, None] = {}
        self._is_begun = False
        self._carried: dict[ShardId, int] = {}
        self._cleanups = 0
        # Moves that wait for their assignment, by the time since when; None: this was told.
        self._unlisted: dict[str, int | None] = {}

    def serves(self, node_id: str | None) -> bool:
        """Return whether the executor acts for the node."""
        return node_id is not None and (self._nodes is None or node_id in self._nodes)

    def see_move(self, move_id: str, move: Move | None) -> None:
        """Take in a record of `moves.v1`; None is a tombstone."""
        if move is None:
            self._forget(move_id)
            return
        if not self.serves(move.actor):
            return
        shard = self._shards.setdefault(move.shard_id, _Shard())
        shard.moves[move_id] = move
        self._shard_of[move_id] = move.shard_id
        if move.is_called_off:
            shard.owed[move_id] = None
        self._waiting[move.shard_id] = None

    def see_assignment(self, shard_id: ShardId, assignment: ShardAssignment | None) -> None:
        """Take in a record of `assignments.v1`; None is a tombstone. One with an epoch that is not
        higher than the last is old news."""
        shard = self._shards.get(shard_id)
        if assignment is None:
            self._drop(shard_id, shard)
            return
        if shard is None and not any(map(self.serves, _concerned(assignment))):
            return
        shard = shard or self._shards.setdefault(shard_id, _Shard())
        before = shard.assignment
        if before is not None and assignment.epoch <= before.epoch:
            return
        known, concerned = _concerned(before), (*_concerned(before), *shard.departed)
        is_other = before is not None and are_uids_apart(before.uid, assignment.uid)
        is_first = assignment.epoch == 1 or shard.is_dropped or is_other
        if shard.is_dropped or is_other:
            known, shard.fresh = (), {}
            # What was read at the start may have been carried out before it: the store knows.
            if self._is_begun:
                kept = [node for node in concerned if node in assignment.holders]
                shard.stale |= {node: None for node in kept if self.serves(node)}
        # The first replicas of a shard come without moves. What an assignment of before this start
        # lists is there, or is lost: an empty replica in its place would hide the loss.
        if assignment.move_id is None and (is_first or self._is_begun):
            shard.fresh |= {
                n: None for n in assignment.replicas if self.serves(n) and n not in known
            }
        shard.fresh = {node: None for node in shard.fresh if node in assignment.replicas}
        shard.assignment, shard.is_dropped = assignment, False
        self._let_go(shard, concerned, assignment.holders)
        self._waiting[shard_id] = None

    def begin(self, replicas: Iterable[Replica] = ()) -> list[Replica]:
        """Take in what the store has, once all that is on the topics was seen. Returns replicas of
        which the topics say nothing; they are kept, as only a record allows to delete them."""
        self._is_begun, unknown = True, []
        held: dict[ShardId, set[str]] = {}
        for replica in replicas:
            shard, node = self._shards.get(replica.shard_id), replica.node_id
            if not self.serves(node):
                continue
            if shard is None or (shard.assignment is None and not shard.is_dropped):
                unknown.append(replica)
                continue
            held.setdefault(replica.shard_id, set()).add(node)
            listed = shard.assignment
            holders = listed.holders if listed is not None else frozenset()
            self._let_go(shard, (*shard.departed, node), holders)
            if listed is not None and are_uids_apart(replica.uid, listed.uid) and node in holders:
                shard.stale[node] = None
            self._waiting[replica.shard_id] = None
        filled = frozenset().union(*held.values())
        for shard_id, shard in self._shards.items():
            if shard.assignment is not None:
                named = [node for move in shard.moves.values() for node in (move.remove, move.add)]
                nodes = [node for node in named if node is not None]
                self._let_go(shard, (*shard.departed, *nodes), shard.assignment.holders)
                self._find_missing(shard, shard.assignment, held.get(shard_id, set()), filled)
        return unknown

    def _find_missing(
        self, shard: _Shard, listed: ShardAssignment, held: set[str], filled: frozenset[str]
    ) -> None:
        """Note which replicas are to be made, and which are lost: other nodes have the shard, or
        the node has others, so that it is no new stream which nobody has made yet. `held`: nodes
        with data of the shard; `filled`: those with data of any."""
        made = held - shard.stale.keys()
        served = [node for node in listed.replicas if self.serves(node)]
        is_made = any(node in made for node in served)
        for node in served:
            if node in shard.stale:
                shard.fresh[node] = None
            elif node in made:
                shard.fresh.pop(node, None)
            elif is_made or (node not in shard.fresh and node in filled):
                shard.fresh.pop(node, None)
                shard.lost[node] = None

    def finish(self, task: Task, ending: Ending, reason: str | None = None) -> list[Effect]:
        """Take in the end of a task. `reason`: why a move failed, for people."""
        shard = self._shards[task.shard_id]
        shard.running, shard.is_calling_off = None, False
        if task.kind is TaskKind.CARRY_OUT:
            self._carried.pop(task.shard_id, None)
        else:
            self._cleanups -= 1
        self._waiting[task.shard_id] = None
        if ending is Ending.ABANDONED:
            return []
        if task.replica is not None:
            is_lost = task.kind is TaskKind.CREATE and ending is Ending.FAILED
            return [_tell_lost(task.replica, reason)] if is_lost else []
        move = task.move
        if move is None or move.move_id not in shard.moves:
            return []
        shard.ended[move.move_id] = Ending.STOPPED if task.kind is TaskKind.CLEAR else ending
        if move.move_id in shard.owed or shard.ended[move.move_id] is Ending.STOPPED:
            return []
        if ending is Ending.FAILED:
            return [Say.of("MoveFailed", move, reason)]
        return [Say.of("MoveCompleted", move)]

    def advance(self, now_ms: int) -> list[Effect]:
        """Decide what is to be done now, of all shards that something has changed for."""
        effects: list[Effect] = []
        waiting, self._waiting = self._waiting, {}
        for shard_id in waiting:
            shard = self._shards.get(shard_id)
            if shard is not None:
                effects += self._decide(shard_id, shard, now_ms)
                self._forget_idle(shard_id, shard)
        return effects

    def find_unlisted(self, now_ms: int) -> list[Move]:
        """Return the moves whose assignment has not come for a while, each once: their shard is not
        known, or the two topics are not of one system."""
        due = [
            move_id
            for move_id, since_ms in self._unlisted.items()
            if since_ms is not None and now_ms - since_ms >= ASSIGNMENT_PATIENCE_MS
        ]
        self._unlisted |= dict.fromkeys(due)
        found = [(self._shards[self._shard_of[move_id]], move_id) for move_id in due]
        moves = [(shard, shard.moves[move_id]) for shard, move_id in found]
        return [move for shard, move in moves if _awaits_assignment(shard, move)]

    def latest(self, move: Move) -> Move:
        """Return the move as its last record has it, with the deadline that was renewed."""
        shard = self._shards.get(move.shard_id)
        return move if shard is None else shard.moves.get(move.move_id, move)

    def _decide(self, shard_id: ShardId, shard: _Shard, now_ms: int) -> Iterator[Effect]:
        """Yield what follows from what is known of a shard: one task at a time runs for it."""
        for node in shard.lost:
            yield _tell_lost(_replica(shard_id, node, shard.assignment), LOST)
        shard.lost = {}
        yield from self._answer(shard)
        if shard.running is not None:
            if not shard.is_calling_off and self._is_unwanted(shard, shard.running):
                shard.is_calling_off = True
                yield CallOff(shard.running)
            return
        yield from self._clean_up(shard_id, shard)
        if not (shard.running or shard.owed or shard.departed or shard.stale or shard.fresh):
            yield from self._begin_move(shard_id, shard, now_ms)

    def _answer(self, shard: _Shard) -> Iterator[Effect]:
        """Yield `MoveStopped` for each move that was called off and has left nothing."""
        busy_with = None if shard.running is None else shard.running.move
        for move_id in [*shard.owed]:
            move = shard.moves[move_id]
            is_running = busy_with is not None and busy_with.move_id == move_id
            if not is_running and not self._has_leftovers(shard, move):
                del shard.owed[move_id]
                yield Say.of("MoveStopped", move)

    def _clean_up(self, shard_id: ShardId, shard: _Shard) -> Iterator[Effect]:
        """Yield the start of the next task that is no move: what was called off first."""
        tasks = [
            *(Task(TaskKind.CLEAR, shard_id, shard.moves[move_id]) for move_id in shard.owed),
            *(
                Task(TaskKind.DELETE, shard_id, replica=Replica(*shard_id, node_id))
                for node_id in (*shard.stale, *shard.departed)
            ),
            *(
                Task(TaskKind.CREATE, shard_id, replica=_replica(shard_id, node, shard.assignment))
                for node in shard.fresh
            ),
        ]
        if not tasks:
            return
        if self._cleanups >= CLEANUPS_MAX:
            self._waiting[shard_id] = None
            return
        shard.running = task = tasks[0]
        self._cleanups += 1
        if task.replica is not None:
            is_deletion = task.kind is TaskKind.DELETE
            for nodes in (shard.stale, shard.departed) if is_deletion else (shard.fresh,):
                nodes.pop(task.replica.node_id, None)
        yield Start(task)

    def _begin_move(self, shard_id: ShardId, shard: _Shard, now_ms: int) -> Iterator[Effect]:
        """Yield the start of the shard's open move, if it may begin and the limits allow it."""
        move = self._next_move(shard, now_ms)
        self._note_unlisted(shard, now_ms)
        if move is None:
            return
        if not self._has_room(move):
            self._waiting[shard_id] = None
            return
        is_resumed = move.state != MoveState.ISSUED
        task = Task(TaskKind.CARRY_OUT, shard_id, move, is_resumed=is_resumed)
        shard.running = task
        self._carried[shard_id] = move.size_bytes or 0
        if not is_resumed:
            yield Say.of("MoveAccepted", move)
        yield Start(task)

    def _next_move(self, shard: _Shard, now_ms: int) -> Move | None:
        """Return the open move that may begin."""
        epoch = None if shard.assignment is None else shard.assignment.epoch
        return next(
            (
                move
                for move in shard.moves.values()
                if move.move_id not in shard.ended and move.may_begin(epoch, now_ms)
            ),
            None,
        )

    def _note_unlisted(self, shard: _Shard, now_ms: int) -> None:
        """Note which moves wait for their assignment."""
        for move_id, move in shard.moves.items():
            if _awaits_assignment(shard, move):
                self._unlisted.setdefault(move_id, now_ms)
            else:
                self._unlisted.pop(move_id, None)

    def _is_unwanted(self, shard: _Shard, task: Task) -> bool:
        """Return whether what runs is to stop. A copy whose target is in the list already is
        wanted, whatever became of its move."""
        move = task.move
        if task.kind is not TaskKind.CARRY_OUT or move is None:
            return False
        known = shard.moves.get(move.move_id)
        if known is None or known.is_called_off or shard.is_dropped or move.add in shard.stale:
            return True
        if any(other.supersedes == move.move_id for other in shard.moves.values()):
            return True
        assignment = shard.assignment
        if assignment is None or assignment.epoch <= move.expected_epoch:
            return False
        return move.add is None or move.add not in assignment.replicas

    def _has_leftovers(self, shard: _Shard, move: Move) -> bool:
        """Return whether a move that was called off may have left something that is to be undone.
        What another move has done, or does, on the same node stays."""
        if shard.ended.get(move.move_id) in (Ending.STOPPED, Ending.FAILED):
            return False
        if shard.assignment is not None and move.add in shard.assignment.replicas:
            return move.add in shard.stale
        return not any(
            other.actor == move.actor
            and other.expected_epoch > move.expected_epoch
            and (other.state in _BEGUN_STATES or other.move_id in shard.ended)
            for other in shard.moves.values()
        )

    def _has_room(self, move: Move) -> bool:
        """Return whether the limits allow to begin a move."""
        if len(self._carried) >= self._limits.moves_max:
            return False
        bytes_max, size = self._limits.bytes_max, move.size_bytes or 0
        return (
            bytes_max is None
            or not self._carried
            or sum(self._carried.values()) + size <= bytes_max
        )

    def _let_go(self, shard: _Shard, nodes: Iterable[str], holders: frozenset[str]) -> None:
        """Note which of the nodes hold the shard no more; they delete their copies."""
        shard.departed = {node: None for node in nodes if self.serves(node) and node not in holders}

    def _drop(self, shard_id: ShardId, shard: _Shard | None) -> None:
        """Take in that the stream is gone, with its replicas."""
        if shard is None and self._is_begun:
            return
        shard = shard or self._shards.setdefault(shard_id, _Shard())
        # Before the start is complete, earlier lists may have been compacted away: then each node
        # that is served may have had a replica; of an executor for all nodes the store knows.
        nodes = _concerned(shard.assignment) or (*(self._nodes or ()),)
        shard.assignment, shard.is_dropped = None, True
        shard.fresh, shard.lost = {}, {}
        self._let_go(shard, (*shard.departed, *shard.stale, *nodes), frozenset())
        shard.stale = {}
        self._waiting[shard_id] = None

    def _forget(self, move_id: str) -> None:
        """Take in that a move is kept no longer."""
        shard_id = self._shard_of.pop(move_id, None)
        self._unlisted.pop(move_id, None)
        if shard_id is None:
            return
        shard = self._shards[shard_id]
        for known in (shard.moves, shard.ended, shard.owed):
            known.pop(move_id, None)
        self._waiting[shard_id] = None

    def _forget_idle(self, shard_id: ShardId, shard: _Shard) -> None:
        """Drop a shard that no served node has anything to do with any more."""
        if shard.moves or shard.running or shard.departed or shard.stale or shard.fresh:
            return
        if not any(map(self.serves, _concerned(shard.assignment))):
            del self._shards[shard_id]


def _awaits_assignment(shard: _Shard, move: Move) -> bool:
    """Return whether a move is open, and the assignment that it expects has not come."""
    epoch = 0 if shard.assignment is None else shard.assignment.epoch
    return move.is_open and move.expected_epoch > epoch


def _concerned(assignment: ShardAssignment | None) -> tuple[str, ...]:
    """List the nodes that an assignment says anything of."""
    return () if assignment is None else (*assignment.holders, *assignment.removing)


def _replica(shard_id: ShardId, node_id: str, listed: ShardAssignment | None) -> Replica:
    """Name a node's replica of the shard as it is listed."""
    return Replica(*shard_id, node_id, None if listed is None else listed.uid)


def _tell_lost(replica: Replica, reason: str | None) -> Say:
    """Make the message that a replica is gone."""
    return Say("ReplicaLost", replica.shard_id, replica.node_id, reason=reason, uid=replica.uid)
