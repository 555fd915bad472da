"""Folds the reconciler's topics into tables: what it knows of brokers, topics and moves.

The agent reads the topics (read_committed, from their beginning) and gives every record to `take`;
all decisions of the bridge are computed from these tables and a `Snapshot`.
"""

from collections.abc import Collection, Iterator

from pydantic import ValidationError

from schemas.acks import MoveKind
from schemas.bookkeeping import Memory as Remembered
from schemas.node_view import NodeView
from schemas.outputs import Assignment, Decision, Move, MoveState, Outcome
from schemas.topics import ASSIGNMENTS, DECISIONS, MEMORY, MOVES, TOPOLOGY
from streaming.kafka_bridge.admin_client import PartitionId
from streaming.kafka_bridge.snapshot import Topic

READ_TOPICS = (TOPOLOGY, DECISIONS, ASSIGNMENTS, MOVES, MEMORY)
# Of what the reconciler remembers: by shard the nodes whose replicas it knows to be out of sync.
OUT_OF_SYNC = "out_of_sync/"
OPEN_STATES = frozenset((MoveState.ISSUED, MoveState.ACCEPTED))
CALLED_OFF = frozenset((MoveState.CANCELLED, MoveState.SUPERSEDED, MoveState.EXPIRED))


class OutOfSyncUnreadable(ValueError):
    """A record of replicas out of sync has another form than this version knows."""


class Tables:
    """The last record of every key of `READ_TOPICS`.

    `unreadable` names the records that this version cannot read, by topic and key; they stand in no
    table, so that nothing is done about what they speak of.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, NodeView] = {}
        self.decisions: dict[str, Decision] = {}
        self.assignments: dict[PartitionId, Assignment] = {}
        self.moves: dict[str, Move] = {}
        self.out_of_sync: dict[PartitionId, frozenset[str]] = {}
        self.unreadable: dict[tuple[str, str], str] = {}
        self._of_partition: dict[PartitionId, dict[str, Move]] = {}

    def take(self, topic: str, key: str, value: bytes | None) -> None:
        """Fold one record in; `topic` is the short name (`moves.v1`), None a tombstone."""
        self.unreadable.pop((topic, key), None)
        self._remove(topic, key)
        if value is None:
            return
        try:
            self._put(topic, key, value)
        except (ValidationError, OutOfSyncUnreadable) as error:
            self.unreadable[topic, key] = str(error)

    def moves_of(self, partition: PartitionId) -> Collection[Move]:
        """List the moves of a partition that are kept, open and ended ones."""
        return self._of_partition.get(partition, {}).values()

    def partitions_with_moves(self) -> Iterator[PartitionId]:
        """Yield the partitions of which any move is kept."""
        return iter(self._of_partition)

    def living_streams(self) -> Iterator[Decision]:
        """Yield the decisions on streams that are neither dropped nor rejected."""
        gone = (Outcome.DROPPED, Outcome.REJECTED)
        return (each for each in self.decisions.values() if each.outcome not in gone)

    def _put(self, topic: str, key: str, value: bytes) -> None:
        if topic == TOPOLOGY:
            self.nodes[key] = NodeView.model_validate_json(value)
        elif topic == DECISIONS:
            self.decisions[key] = Decision.model_validate_json(value)
        elif topic == ASSIGNMENTS:
            assignment = Assignment.model_validate_json(value)
            self.assignments[assignment.stream, assignment.shard] = assignment
        elif topic == MOVES:
            move = Move.model_validate_json(value)
            self.moves[key] = move
            self._of_partition.setdefault((move.stream, move.shard), {})[key] = move
        elif topic == MEMORY and key.startswith(OUT_OF_SYNC):
            nodes = Remembered.model_validate_json(value).body.get("nodes")
            if not isinstance(nodes, list):
                raise OutOfSyncUnreadable(f"{key} names no nodes")
            self.out_of_sync[_shard_of(key.removeprefix(OUT_OF_SYNC))] = frozenset(map(str, nodes))

    def _remove(self, topic: str, key: str) -> None:
        if topic == TOPOLOGY:
            self.nodes.pop(key, None)
        elif topic == DECISIONS:
            self.decisions.pop(key, None)
        elif topic == ASSIGNMENTS:
            self.assignments.pop(_shard_of(key), None)
        elif topic == MEMORY and key.startswith(OUT_OF_SYNC):
            self.out_of_sync.pop(_shard_of(key.removeprefix(OUT_OF_SYNC)), None)
        elif topic == MOVES and (move := self.moves.pop(key, None)) is not None:
            at = (move.stream, move.shard)
            self._of_partition[at].pop(key, None)
            if not self._of_partition[at]:
                del self._of_partition[at]


def _shard_of(key: str) -> PartitionId:
    stream, _, shard = key.rpartition("/")
    return stream, int(shard)


def is_open(move: Move) -> bool:
    """Return whether a move is still to be carried out."""
    return move.state in OPEN_STATES


def is_called_off(move: Move) -> bool:
    """Return whether the reconciler ended a move that its executor may have begun."""
    return move.state in CALLED_OFF


def is_of(record: Move | Assignment, topic: Topic) -> bool:
    """Return whether a record is about this topic, not about an earlier one of its name."""
    return record.uid is None or record.uid == topic.uid


def apply_move(replicas: tuple[int, ...], move: Move) -> tuple[int, ...]:
    """Return the list of broker ids after a move, the added one in its slot.

    The one that is to lead changes places with the first.
    """
    leader = None if move.leader is None else int(move.leader)
    if leader in replicas:
        changed = {leader: replicas[0], replicas[0]: leader}
        return tuple(changed.get(broker, broker) for broker in replicas)
    added = () if move.add is None else (int(move.add),)
    if move.kind is MoveKind.REPLACE and move.remove is not None:
        removed = int(move.remove)
        return tuple(
            each for broker in replicas for each in (added if broker == removed else (broker,))
        )
    kept = tuple(b for b in replicas if move.remove is None or b != int(move.remove))
    slot = min(move.slot, len(kept))
    return (*kept[:slot], *added, *kept[slot:])
