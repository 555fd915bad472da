"""Folds the reconciler's topics into tables: what it knows of brokers, topics and moves.

The agent reads the topics (read_committed, from their beginning) and gives every record to `take`;
all decisions of the bridge are computed from these tables and a `Snapshot`.
"""

from collections.abc import Collection, Iterator

from pydantic import ValidationError

from schemas.acks import MoveKind
from schemas.node_view import NodeView
from schemas.outputs import Assignment, Decision, Move, MoveState, Outcome
from schemas.topics import ASSIGNMENTS, DECISIONS, MOVES, TOPOLOGY
from streaming.kafka_bridge.admin_client import PartitionId

READ_TOPICS = (TOPOLOGY, DECISIONS, ASSIGNMENTS, MOVES)
OPEN_STATES = frozenset((MoveState.ISSUED, MoveState.ACCEPTED))
CALLED_OFF = frozenset((MoveState.CANCELLED, MoveState.SUPERSEDED, MoveState.EXPIRED))


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
        except ValidationError as error:
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

    def _remove(self, topic: str, key: str) -> None:
        if topic == TOPOLOGY:
            self.nodes.pop(key, None)
        elif topic == DECISIONS:
            self.decisions.pop(key, None)
        elif topic == ASSIGNMENTS:
            stream, _, shard = key.rpartition("/")
            self.assignments.pop((stream, int(shard)), None)
        elif topic == MOVES and (move := self.moves.pop(key, None)) is not None:
            at = (move.stream, move.shard)
            self._of_partition[at].pop(key, None)
            if not self._of_partition[at]:
                del self._of_partition[at]


def is_open(move: Move) -> bool:
    """Return whether a move is still to be carried out."""
    return move.state in OPEN_STATES


def is_called_off(move: Move) -> bool:
    """Return whether the reconciler ended a move that its executor may have begun."""
    return move.state in CALLED_OFF


def apply_move(replicas: tuple[int, ...], move: Move) -> tuple[int, ...]:
    """Return the list of broker ids after a move, the added one in its slot."""
    added = () if move.add is None else (int(move.add),)
    if move.kind is MoveKind.REPLACE and move.remove is not None:
        removed = int(move.remove)
        return tuple(
            each for broker in replicas for each in (added if broker == removed else (broker,))
        )
    kept = tuple(b for b in replicas if move.remove is None or b != int(move.remove))
    slot = min(move.slot, len(kept))
    return (*kept[:slot], *added, *kept[slot:])
