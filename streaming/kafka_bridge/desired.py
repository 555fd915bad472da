"""Compares what the reconciler wants of each partition with what Kafka has, and says what to do.

Level-triggered: all is derived from the tables and the snapshot, so that a process which was killed
between any two steps goes on. A partition is left alone while the two records of a transaction are
not both there, and where somebody else reassigns it.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from schemas.acks import (
    MoveAccepted,
    MoveCompleted,
    MoveFailed,
    MoveMessage,
    MoveStopped,
    ReplicaLost,
    ReplicasObserved,
)
from schemas.outputs import Assignment, Move, MoveState
from streaming.kafka_bridge.admin_client import PartitionId
from streaming.kafka_bridge.importer import replication_factor
from streaming.kafka_bridge.memory import AckKey, Memory
from streaming.kafka_bridge.snapshot import Partition, Snapshot, Topic, needs_election
from streaming.kafka_bridge.tables import Tables, apply_move, is_called_off, is_of, is_open


class Standing(StrEnum):
    """How a partition stands against what is wanted of it.

    `settled`: Kafka has the list, and nothing runs. `running`: the reassignment to it runs.
    `start`: it is to be asked for. `cancel`: the one that runs is called off. `wait`: nothing is
    done in this look. `yield`: somebody else reassigns it. `foreign`: somebody else has changed it.
    """

    SETTLED = "settled"
    RUNNING = "running"
    START = "start"
    CANCEL = "cancel"
    WAIT = "wait"
    YIELD = "yield"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Desired:
    """The list of replicas that a partition is to have, and the way there.

    `target`: its list, leader first; `adding`: the part of it that is to be copied; `running`: the
    brokers that a reassignment of ours copies to now; `sources`: those that are copied from. `rate`
    bounds the copies in bytes a second. `move`: the open one, which this carries out. `elects`: the
    first of the list is to lead. `why` explains waiting.
    """

    key: PartitionId
    standing: Standing
    target: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    running: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    rate: int | None = None
    move: Move | None = None
    acks: tuple[MoveMessage, ...] = ()
    elects: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Case:
    """One partition with what the tables hold of it."""

    snapshot: Snapshot
    topic: Topic
    partition: Partition
    opened: Move | None
    called_off: Sequence[Move]
    explaining: Sequence[Move]
    factor: int
    refused: str | None
    lost: frozenset[int]

    @property
    def key(self) -> PartitionId:
        return self.topic.name, self.partition.number

    @property
    def added(self) -> set[int]:
        """The brokers that moves of the partition add or have added."""
        return {int(each.add) for each in self.explaining if each.add}

    def registered(self, brokers: tuple[int, ...]) -> tuple[int, ...]:
        """Leave out the brokers that Kafka has forgotten: no list that it takes may name them."""
        return tuple(each for each in brokers if each in self.snapshot.brokers)

    @property
    def rate(self) -> int | None:
        """The rate of the open move, else of those that are undone."""
        opened = None if self.opened is None else self.opened.rate_bytes_per_second
        rates = [each.rate_bytes_per_second for each in self.explaining]
        return opened or max((rate for rate in rates if rate), default=None)

    @property
    def removed(self) -> set[int]:
        return {int(each.remove) for each in self.explaining if each.remove}


# Kafka's errors that no later attempt changes.
_FINAL_ERRORS = (
    "InvalidReplicationAssignment",
    "InvalidReplicaAssignment",
    "PolicyViolation",
    "UnsupportedVersion",
)


AckMessage = MoveMessage | ReplicasObserved


def ack_key(message: AckMessage, moves: Tables) -> AckKey:
    """Name an acknowledgement, by which a repeat of it is known."""
    if isinstance(message, ReplicasObserved):
        assignment = moves.assignments.get((message.stream, message.shard))
        # Of a list that is recorded the replicas in sync are the news, and may change soon.
        is_recorded = assignment and {*assignment.replicas} == {*message.replicas}
        news = ",".join(message.in_sync or ()) if is_recorded else ""
        return message.record_key(), f"ReplicasObserved {news}", message.epoch
    if isinstance(message, ReplicaLost):
        assignment = moves.assignments.get((message.stream, message.shard))
        epoch = 0 if assignment is None else assignment.epoch
        return message.record_key(), f"ReplicaLost {message.node_id}", epoch
    move = moves.moves.get(message.move_id or "")
    reminded = 0 if move is None or isinstance(message, MoveCompleted) else move.reminded or 0
    return message.move_id or "", type(message).__name__, reminded


def find_desired(
    snapshot: Snapshot, tables: Tables, memory: Memory, stale: Collection[str] = ()
) -> Iterator[Desired]:
    """Yield what is wanted of every partition that the reconciler has an assignment or move of.

    `stale` streams do not describe the topic of their name: nothing is done in them.
    """
    keys = {*tables.assignments, *tables.partitions_with_moves()}
    for name, number in sorted(keys):
        topic, partition = snapshot.topics.get(name), snapshot.partition(name, number)
        if name in stale:
            yield Desired((name, number), Standing.WAIT, why="the topic was made anew")
        elif topic is None or partition is None:
            doubtful = name in snapshot.hidden or (
                name in memory.missing_since and not memory.is_settled(name, snapshot.at)
            )
            stopped = [] if doubtful else _unsaid(tables.moves_of((name, number)), memory)
            acks = tuple(_say(MoveStopped, each) for each in stopped)
            yield Desired((name, number), Standing.WAIT, acks=acks, why="there is no partition")
        else:
            yield _desire(snapshot, topic, partition, tables, memory)


def _desire(
    snapshot: Snapshot, topic: Topic, partition: Partition, tables: Tables, memory: Memory
) -> Desired:
    key = (topic.name, partition.number)
    moves, assignment = tables.moves_of(key), tables.assignments.get(key)
    if assignment is not None and not is_of(assignment, topic):
        return Desired(key, Standing.WAIT, why="the assignment of its stream has not come")
    if not moves and assignment is not None and _is_at_rest(partition, assignment):
        elects = needs_election(partition, partition.listed, snapshot)
        return Desired(key, Standing.SETTLED, partition.listed, elects=elects)
    of_earlier = [each for each in moves if not is_of(each, topic)]
    if not of_earlier:
        return _stand(snapshot, topic, partition, tables, memory, moves)
    moves = [each for each in moves if is_of(each, topic)]
    found = _stand(snapshot, topic, partition, tables, memory, moves)
    # Whatever they have begun is gone with the topic that they were about.
    unsaid = _unsaid(of_earlier, memory)
    return replace(found, acks=(*found.acks, *(_say(MoveStopped, each) for each in unsaid)))


def _stand(
    snapshot: Snapshot,
    topic: Topic,
    partition: Partition,
    tables: Tables,
    memory: Memory,
    moves: Collection[Move],
) -> Desired:
    """Find how a partition stands; `moves` are those of its topic, not of an earlier one."""
    key = (topic.name, partition.number)
    assignment = tables.assignments.get(key)
    named = [name for each in moves for name in (each.add, each.remove, each.leader) if name]
    if any(map(_is_no_broker, named)):
        return Desired(key, Standing.WAIT, why="a move names a node that is no broker")
    opened = next((each for each in moves if is_open(each)), None)
    called_off = _unsaid(moves, memory)
    failed = [each for each in moves if each.state is MoveState.FAILED]
    decision = tables.decisions.get(topic.name)
    case = _Case(
        snapshot,
        topic,
        partition,
        opened,
        called_off,
        [*called_off, *failed, *([] if opened is None else [opened])],
        0 if decision is None else decision.spec.replication_factor,
        memory.refused.get(key),
        frozenset(each for each in partition.offline if (key, each) in memory.lost_since),
    )
    if assignment is None:
        return _without_assignment(case)
    why = _why_apart(assignment, opened)
    if why:
        return Desired(key, Standing.WAIT, move=opened, why=why)
    now = tuple(map(int, assignment.replicas))
    target = now if opened is None else apply_move(now, opened)
    if not target:
        return Desired(key, Standing.WAIT, why="no replica is wanted")
    found = _compare(case, now, target)
    stops = tuple(_stops(case, found))
    return replace(found, acks=(*found.acks, *stops)) if stops else found


def _is_at_rest(partition: Partition, assignment: Assignment) -> bool:
    """Return whether all is as wanted: so it is of nearly all partitions in nearly all looks."""
    listed = tuple(map(str, partition.listed))
    moved = partition.is_reassigned or assignment.move_id is not None
    return not moved and listed == assignment.replicas


def _unsaid(moves: Collection[Move], memory: Memory) -> list[Move]:
    """List the moves that were called off and of whose stop nothing has been said."""
    return [
        each
        for each in moves
        if is_called_off(each)
        and (each.move_id, "MoveStopped", each.reminded or 0) not in memory.said
    ]


def _is_no_broker(name: str) -> bool:
    return not name.isdecimal()


def _why_apart(assignment: Assignment, opened: Move | None) -> str:
    """Explain which record of a transaction has not come yet; empty where both are there."""
    if any(map(_is_no_broker, assignment.replicas)):
        return "the assignment names a node that is no broker"
    if opened is None:
        return "" if assignment.move_id is None else "its move has not come, or has ended"
    if opened.expected_epoch > assignment.epoch:
        return "the assignment of its move has not come"
    if opened.expected_epoch < assignment.epoch or assignment.move_id != opened.move_id:
        return "the end of its move has not come"
    return ""


def _without_assignment(case: _Case) -> Desired:
    """A partition whose stream was dropped: what its moves have begun is called off."""
    partition = case.partition
    if partition.adding and {*partition.adding} <= case.added:
        return _cancel(case, (), "the stream was dropped")
    if {*partition.adding} & case.added:
        return Desired(case.key, Standing.YIELD, why="a reassignment runs that adds other brokers")
    acks = tuple(_say(MoveStopped, each) for each in case.called_off)
    return Desired(case.key, Standing.WAIT, acks=acks, why="there is no assignment")


def _compare(case: _Case, now: tuple[int, ...], target: tuple[int, ...]) -> Desired:
    """Compare the list that Kafka has with the one that is wanted: `now` and its open move."""
    partition, opened = case.partition, case.opened
    if opened is not None and opened.add and int(opened.add) in case.lost:
        # Kafka does not bring a replica up again whose directory failed, until the broker restarts.
        why = f"the log directory of broker {opened.add} that held the replica has failed"
        failed = (_say(MoveFailed, opened, why),)
        return replace(_copying(case, target), acks=failed, why=why)
    if partition.is_reassigned:
        return _compare_running(case, now, target)
    if case.registered(partition.listed) == case.registered(target):
        return _settled(case, target)
    extra = {*partition.listed} - {*now}
    lacking = {*case.registered(now)} - {*partition.listed}
    explained = extra <= case.added | case.lost and lacking <= case.removed
    if extra & case.lost and opened is None and len(now) < case.factor:
        # It stays listed until its successor is known, so that it is known not to come back here.
        return Desired(case.key, Standing.WAIT, target, why="a lost replica is to be replaced")
    if {*partition.listed} == {*target} or explained or (not extra and _is_short(case)):
        return _start(case, target)
    listed = ", ".join(map(str, partition.listed))
    why = f"Kafka lists {listed}, the reconciler {', '.join(map(str, now))}"
    return Desired(case.key, Standing.FOREIGN, target, move=opened, why=why)


def _is_short(case: _Case) -> bool:
    """Return whether the partition alone lacks replicas: the stream's factor is the topic's."""
    if len(case.partition.listed) >= case.factor:
        return False
    return replication_factor(case.topic.partitions) == case.factor


def _compare_running(case: _Case, now: tuple[int, ...], target: tuple[int, ...]) -> Desired:
    """Compare the reassignment that runs with the one that is wanted.

    One of ours that adds another broker is cancelled first: a list that replaces it would keep
    that broker as added and as removed, and never be reached (seen with Kafka 4.3.1).
    """
    partition, opened = case.partition, case.opened
    ends = not partition.never_ends
    if ends and {*case.registered(partition.target)} == {*case.registered(target)}:
        found = replace(_copying(case, target), standing=Standing.RUNNING)
        begun = opened is not None and opened.state is MoveState.ISSUED
        return replace(found, acks=(_say(MoveAccepted, opened),)) if opened and begun else found
    if not {*partition.adding} <= case.added | {*now}:
        adding = ", ".join(map(str, partition.adding))
        why = f"somebody else reassigns it: it adds {adding}"
        return Desired(case.key, Standing.YIELD, target, move=opened, why=why)
    if opened is not None and ends and {*partition.adding} <= {*target}:
        return _start(case, target)
    return _cancel(case, target, "its move was called off")


def _copying(case: _Case, target: tuple[int, ...]) -> Desired:
    """Describe the copies of ours that run now; nothing is done yet."""
    partition = case.partition
    now = Desired(case.key, Standing.WAIT, target, move=case.opened, rate=case.rate)
    return replace(now, running=partition.adding, sources=partition.replicas)


def _cancel(case: _Case, target: tuple[int, ...], why: str) -> Desired:
    """Call the reassignment of ours off that runs, if Kafka can go back."""
    found, partition = _copying(case, target), case.partition
    if not {*partition.replicas} & {*partition.in_sync}:
        return replace(found, why=f"{why}, and no replica from before is in sync")
    return replace(found, standing=Standing.CANCEL, why=why)


def _settled(case: _Case, target: tuple[int, ...]) -> Desired:
    partition, opened = case.partition, case.opened
    found = Desired(case.key, Standing.SETTLED, target, move=opened)
    if opened is not None and opened.add and int(opened.add) not in partition.in_sync:
        return replace(found, standing=Standing.WAIT, why=f"{opened.add} is out of sync again")
    acks = () if opened is None else (_say(MoveCompleted, opened),)
    if opened is not None and opened.leader and int(opened.leader) != partition.leader:
        acks = (_say(MoveAccepted, opened),) if opened.state is MoveState.ISSUED else ()
    return replace(found, acks=acks, elects=needs_election(partition, target, case.snapshot))


def _start(case: _Case, target: tuple[int, ...]) -> Desired:
    """Ask for the list, unless that cannot be done, or would harm."""
    partition, opened = case.partition, case.opened
    target = case.registered(target)
    adding = tuple(each for each in target if each not in partition.replicas)
    brokers, gone = case.snapshot.brokers, opened.add if opened else None
    unregistered = [] if gone is None or int(gone) in brokers else [gone]
    if opened is not None and (unregistered or case.refused in _FINAL_ERRORS):
        why = f"broker {unregistered[0]} is not registered" if unregistered else case.refused or ""
        failed = _say(MoveFailed, opened, f"Kafka does not reassign the partition: {why}")
        return replace(_copying(case, target), acks=(failed,), why=why)
    wanting = [each for each in adding if brokers[each].fenced]
    if wanting:
        # Kafka accepts a fenced broker as a target, and never completes.
        why = f"broker {wanting[0]} is fenced"
        waits = replace(_copying(case, target), why=why)
        return _cancel(case, target, why) if partition.adding and not case.refused else waits
    unsafe = _why_unsafe(case, target, adding)
    if unsafe:
        return replace(_copying(case, target), why=unsafe)
    return replace(_copying(case, target), standing=Standing.START, adding=adding)


def _why_unsafe(case: _Case, target: tuple[int, ...], adding: tuple[int, ...]) -> str:
    """Explain why a change without a copy, which Kafka makes at once, has to wait."""
    if adding:
        return ""
    in_sync = {*case.partition.in_sync}
    if not target:
        return "Kafka knows none of the wanted brokers"
    left, least = len(in_sync & {*target}), min(case.topic.min_in_sync, len(target))
    if not left:
        return "none of the wanted replicas is in sync"
    if left < least <= len(in_sync):
        return f"{left} replicas in sync would stay, writes with acks=all need {least}"
    return ""


def _stops(case: _Case, found: Desired) -> Iterator[MoveMessage]:
    """Say of the moves that were called off which ones have left nothing behind."""
    surplus = {*case.partition.listed} - {*found.target}
    superseded = case.opened is not None and found.standing is Standing.RUNNING
    for each in case.called_off:
        left_behind = each.add is not None and int(each.add) in surplus
        if found.standing is Standing.SETTLED or (superseded and not left_behind):
            yield _say(MoveStopped, each)


def _say(message: type[MoveMessage], move: Move, reason: str | None = None) -> MoveMessage:
    return message(
        stream=move.stream,
        shard=move.shard,
        move_id=move.move_id,
        reason=reason,
        uid=move.uid,
    )
