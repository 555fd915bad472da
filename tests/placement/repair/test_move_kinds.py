"""Goal: what schemas/README.md promises executors of the kinds of moves is what is published.

Method: a shard lives through a loss, a larger and a smaller replication factor, a change of leader
and a move that is called off; each step's records are held against the table of kinds.
"""

import pytest

from placement.model import (
    AckKind,
    Assignment,
    Configuration,
    Event,
    Liveness,
    Move,
    MoveAcked,
    MoveKind,
    MoveState,
    NodeAttributes,
    NodeChanged,
    Ready,
    StreamAltered,
    StreamCreated,
)
from placement.reconciler import Reconciler
from schemas.acks import MoveKind as MoveKindWord
from schemas.words import MOVES

SHARD = ("s", 0)


class Cell:
    """A core with four nodes in four zones; every batch is one step of time."""

    def __init__(self, nodes: int = 4) -> None:
        self.core, self.now = Reconciler(Configuration()), 0
        self.moves: dict[str, Move] = {}
        self.assignments: list[Assignment] = []
        self.step(*(self.node(f"n{number}") for number in range(1, nodes + 1)))

    def node(self, name: str, liveness: Liveness = Liveness.UP) -> NodeChanged:
        attributes = NodeAttributes(f"/z{name}")
        return NodeChanged(self.now + 1, name, "a", self.now + 1, liveness, attributes)

    def step(self, *events: Event) -> Ready:
        self.now += 1
        ready = self.core.apply(events, self.now)
        self.moves |= {move_id: move for move_id, (move, _) in ready.moves.items()}
        self.assignments += ready.assignments.values()
        return ready

    def ack(self, kind: AckKind) -> Ready:
        return self.step(MoveAcked(self.now + 1, kind, None, *SHARD))

    @property
    def shard(self) -> Assignment:
        return self.assignments[-1]

    @property
    def open_move(self) -> Move:
        (move,) = [move for move in self.moves.values() if move.state.is_open]
        return move


@pytest.fixture
def cell() -> Cell:
    cell = Cell()
    cell.step(StreamCreated(1, "s", 1, 1, 3))
    return cell


def lose(cell: Cell) -> None:
    cell.step(cell.node(cell.shard.replicas[1], Liveness.DEAD))


def widen(cell: Cell) -> None:
    cell.step(StreamAltered(1, "s", 2, 1, 4))


def narrow(cell: Cell) -> None:
    cell.step(StreamAltered(1, "s", 2, 1, 2))


NEEDS = {MoveKind.REPLACE: lose, MoveKind.ADD: widen, MoveKind.REMOVE: narrow}


@pytest.mark.parametrize("kind", NEEDS)
def test_each_kind_sets_the_fields_and_leads_to_the_assignments_of_the_table(
    cell: Cell, kind: MoveKind
) -> None:
    before = cell.shard
    NEEDS[kind](cell)
    move, during = cell.open_move, cell.shard
    told = MOVES[MoveKindWord(kind)]
    assert move.kind is kind
    assert (move.remove is not None, move.add is not None) == (told.removes, told.adds)
    assert (move.expected_epoch, move.move_id) == (during.epoch, during.move_id)
    assert during.epoch == before.epoch + 1
    assert during.replicas == before.replicas, "who gives its replica up still stands there"
    assert during.adding == tuple(filter(None, [move.add]))
    assert during.removing == tuple(filter(None, [move.remove]))
    assert move.source in {None, *during.replicas}
    cell.ack(AckKind.ACCEPTED)
    assert cell.shard is during, "an acceptance changes no assignment"
    cell.ack(AckKind.COMPLETED)
    after = cell.shard
    assert after.epoch == during.epoch + 1
    assert {*after.replicas} == {*during.replicas} - {move.remove} | {*during.adding}
    assert (after.adding, after.removing, after.move_id) == ((), (), None)


def test_a_leader_is_changed_by_an_assignment_alone(cell: Cell) -> None:
    cell.step(cell.node(({"n1", "n2", "n3", "n4"} - {*cell.shard.replicas}).pop(), Liveness.DEAD))
    before = cell.shard
    cell.step(cell.node(before.replicas[0], Liveness.DEAD))
    assert cell.moves == {}, "no node is left to copy to"
    assert cell.shard.epoch == before.epoch + 1
    assert cell.shard.replicas[0] != before.replicas[0]
    assert {*cell.shard.replicas} == {*before.replicas}
    told = MOVES[MoveKindWord.LEADER]
    assert (told.removes, told.adds) == (False, False)


def test_a_new_leader_supersedes_the_open_move_by_one_of_the_same_nodes(cell: Cell) -> None:
    lose(cell)
    first = cell.open_move
    cell.ack(AckKind.ACCEPTED)
    cell.step(cell.node(cell.shard.replicas[0], Liveness.DEAD))
    second = cell.open_move
    assert cell.moves[first.move_id].state is MoveState.SUPERSEDED
    assert (second.supersedes, second.add) == (first.move_id, first.add)
    assert second.expected_epoch == cell.shard.epoch > first.expected_epoch


def test_first_replicas_come_without_a_move_later_ones_by_an_add() -> None:
    cell = Cell(nodes=2)
    cell.step(StreamCreated(1, "s", 1, 1, 3))
    assert (cell.shard.epoch, len(cell.shard.replicas), cell.moves) == (1, 2, {})
    waits = {"strategy": "spread", "on_infeasible": "wait"}
    cell.step(StreamCreated(1, "waits", 1, 1, 3, policy=waits))
    cell.step(cell.node("n3"))
    first = [each for each in cell.assignments if each.stream == "waits"]
    assert [(each.epoch, len(each.replicas), each.move_id) for each in first] == [(1, 3, None)]
    assert (cell.open_move.kind, cell.open_move.stream) == (MoveKind.ADD, "s")


@pytest.mark.parametrize("accepted", [False, True])
def test_a_move_that_was_accepted_is_not_called_off_because_the_node_returned(
    cell: Cell, accepted: bool
) -> None:
    lose(cell)
    move = cell.open_move
    if accepted:
        cell.ack(AckKind.ACCEPTED)
    cell.step(cell.node(str(move.remove)))
    ended = cell.moves[move.move_id].state
    assert ended is (MoveState.ACCEPTED if accepted else MoveState.CANCELLED)


def test_a_completion_that_comes_late_changes_nothing_and_is_counted(cell: Cell) -> None:
    lose(cell)
    late = cell.open_move
    cell.now = late.deadline
    cell.step()
    assert cell.moves[late.move_id].state is MoveState.EXPIRED
    held = cell.shard
    ready = cell.step(MoveAcked(cell.now + 1, AckKind.COMPLETED, late.move_id, *SHARD))
    assert (ready.counts, ready.assignments, ready.moves) == ({"late_ack": 1}, {}, {})
    assert cell.shard is held
    cell.now += Configuration().remind_ms
    cell.step()
    assert cell.moves[late.move_id].reminded == 1, "its copy is still to be removed"


@pytest.mark.parametrize("named", [True, False])
def test_a_move_is_found_by_its_id_or_as_the_open_one_of_the_shard(cell: Cell, named: bool) -> None:
    lose(cell)
    move_id = cell.open_move.move_id
    cell.step(MoveAcked(cell.now + 1, AckKind.COMPLETED, move_id if named else None, *SHARD))
    assert cell.moves[move_id].state is MoveState.COMPLETED
