"""What is wanted of a partition: every case of the reconciler's records beside Kafka's list."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from streaming.kafka_bridge.desired import Desired, find_desired
from streaming.kafka_bridge.memory import Memory
from streaming.kafka_bridge.snapshot import Partition
from streaming.kafka_bridge.tables import apply_move
from tests.builders.bridge_tables import EMPTY_MEMORY, TableBuilder, look, partition

P = partition


@dataclass(frozen=True)
class Case:
    """A partition and the records about it, and what comes of them: `standing target acks`."""

    name: str
    kafka: Partition
    replicas: str | None
    moves: tuple[tuple[str, str, str], ...]
    expected: str
    open_move: str | None = None
    epoch: int = 1
    look: dict[str, Any] = field(default_factory=dict)
    memory: Memory = EMPTY_MEMORY


REFUSED = Memory(refused={("t", 0): "InvalidReplicaAssignment"})
BUSY = Memory(refused={("t", 0): "RequestTimedOut"})

CASES = (
    Case("all as wanted", P((1, 2, 3)), "123", (), "settled 123"),
    Case("another leader is wanted", P((1, 2, 3)), "213", (), "start 213"),
    Case("a move begins", P((1, 2, 3)), "123", (("m", "1>4", "issued"),), "start 423", "m"),
    Case("one more", P((1, 2)), "12", (("m", ">4", "issued"),), "start 412", "m"),
    Case("one less", P((1, 2, 3)), "123", (("m", "1>", "issued"),), "start 23", "m"),
    Case(
        "a move runs",
        P((4, 2, 3, 1), adding=(4,), removing=(1,)),
        "123",
        (("m", "1>4", "issued"),),
        "running 423 Accepted:m",
        "m",
    ),
    Case(
        "a move runs and is accepted",
        P((4, 2, 3, 1), adding=(4,), removing=(1,)),
        "123",
        (("m", "1>4", "accepted"),),
        "running 423",
        "m",
    ),
    Case("done", P((4, 2, 3)), "123", (("m", "1>4", "accepted"),), "settled 423 Completed:m", "m"),
    Case(
        "done before it was accepted",
        P((2, 3)),
        "123",
        (("m", "1>", "issued"),),
        "settled 23 Completed:m",
        "m",
    ),
    Case(
        "done, and lost again",
        P((4, 2, 3), in_sync=(2, 3)),
        "123",
        (("m", "1>4", "accepted"),),
        "wait 423",
        "m",
    ),
    Case(
        "called off while it runs",
        P((4, 2, 3, 1), adding=(4,), removing=(1,)),
        "123",
        (("m", "1>4", "cancelled"),),
        "cancel 123",
    ),
    Case(
        "called off, and Kafka cannot go back",
        P((4, 2, 3, 1), in_sync=(), adding=(4,), removing=(1,)),
        "123",
        (("m", "1>4", "cancelled"),),
        "wait 123",
    ),
    Case(
        "called off when it was just done",
        P((4, 2, 3)),
        "123",
        (("m", "1>4", "expired"),),
        "start 123",
    ),
    Case(
        "called off and undone",
        P((1, 2, 3)),
        "123",
        (("m", "1>4", "expired"),),
        "settled 123 Stopped:m",
    ),
    Case(
        "superseded: Kafka would keep what it adds, so it is cancelled first",
        P((4, 2, 3, 1), adding=(4,), removing=(1,)),
        "123",
        (("m", "1>4", "superseded"), ("n", "1>5", "issued")),
        "cancel 523",
        "n",
    ),
    Case(
        "superseded by one that adds the same broker elsewhere",
        P((4, 2, 3, 1), adding=(4,), removing=(1,)),
        "123",
        (("m", "1>4", "superseded"), ("n", "2>4", "issued")),
        "start 143",
        "n",
    ),
    Case(
        "one that was replaced hangs",
        P((5, 2, 3, 4, 1), adding=(4, 5), removing=(4, 1)),
        "123",
        (("m", "1>4", "superseded"), ("n", "1>5", "issued")),
        "cancel 523",
        "n",
    ),
    Case(
        "superseded, the later one runs",
        P((5, 2, 3, 1), adding=(5,), removing=(1,)),
        "123",
        (("m", "1>4", "superseded"), ("n", "1>5", "accepted")),
        "running 523 Stopped:m",
        "n",
    ),
    Case(
        "superseded, and its copy is not gone yet",
        P((5, 2, 3, 1, 4), adding=(5,), removing=(1, 4)),
        "123",
        (("m", "1>4", "superseded"), ("n", "1>5", "accepted")),
        "running 523",
        "n",
    ),
    Case(
        "the assignment has not come",
        P((1, 2, 3)),
        "123",
        (("m", "1>4", "issued"),),
        "wait",
        epoch=0,
    ),
    Case("the move has not come", P((1, 2, 3)), "123", (), "wait", "m"),
    Case(
        "the move's end has not come",
        P((4, 2, 3)),
        "423",
        (("m", "1>4", "issued"),),
        "wait",
        epoch=2,
    ),
    Case("somebody else changed it", P((5, 2, 3)), "123", (), "foreign 123"),
    Case(
        "somebody else reassigns it",
        P((5, 2, 3, 1), adding=(5,), removing=(1,)),
        "123",
        (("m", "1>4", "issued"),),
        "yield 423",
        "m",
    ),
    Case(
        "the target is fenced: Kafka would take it and never complete",
        P((1, 2, 3)),
        "123",
        (("m", "1>4", "issued"),),
        "wait 423",
        "m",
        look={"fenced": (4,)},
    ),
    Case(
        "the target is no broker",
        P((1, 2, 3)),
        "123",
        (("m", "1>9", "issued"),),
        "wait 23 Failed:m",
        "m",
    ),
    Case(
        "Kafka refuses for good",
        P((1, 2, 3)),
        "123",
        (("m", "1>4", "issued"),),
        "wait 423 Failed:m",
        "m",
        memory=REFUSED,
    ),
    Case(
        "Kafka was busy",
        P((1, 2, 3)),
        "123",
        (("m", "1>4", "issued"),),
        "start 423",
        "m",
        memory=BUSY,
    ),
    Case(
        "a removal would leave too few in sync",
        P((1, 2, 3), in_sync=(1, 2)),
        "123",
        (("m", "1>", "issued"),),
        "wait 23",
        "m",
        look={"min_in_sync": 2},
    ),
    Case(
        "a removal would leave nothing in sync",
        P((1, 2), in_sync=(1,)),
        "12",
        (("m", "1>", "issued"),),
        "wait 2",
        "m",
    ),
    Case(
        "a lost broker that is registered no more is not named to Kafka",
        P((1, 2, 7)),
        "127",
        (("m", "1>4", "issued"),),
        "start 42",
        "m",
    ),
    Case("and is left where nothing else changes", P((1, 2, 7)), "127", (), "settled 127"),
    Case(
        "the stream was dropped under a move",
        P((4, 2, 3, 1), adding=(4,), removing=(1,)),
        None,
        (("m", "1>4", "cancelled"),),
        "cancel",
    ),
    Case("and nothing is left", P((1, 2, 3)), None, (("m", "1>4", "cancelled"),), "wait Stopped:m"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_partition_stands(case: Case) -> None:
    built = TableBuilder().stream()
    if case.replicas is not None:
        built.assign(case.replicas, case.open_move, epoch=case.epoch)
    for move_id, change, state in case.moves:
        built.move(move_id, change, state)
    (found,) = find_desired(look(case.kafka, **case.look), built.tables, case.memory)
    assert describe(found) == case.expected


def describe(found: Desired) -> str:
    """`standing target acks`, as the cases write it."""
    acks = (f"{type(a).__name__.removeprefix('Move')}:{a.move_id}" for a in found.acks)
    parts = (found.standing, "".join(map(str, found.target)), *acks)
    return " ".join(part for part in parts if part)


def test_what_was_stopped_is_neither_said_nor_undone_again() -> None:
    tables = TableBuilder().stream().assign("123").move("m", "1>4", "cancelled").tables
    said = Memory(said={("m", "MoveStopped", 0): 5})
    (found,) = find_desired(look(P((1, 2, 3))), tables, said)
    assert describe(found) == "settled 123"
    (found,) = find_desired(look(P((4, 2, 3))), tables, said)
    assert describe(found) == "foreign 123"


def test_a_reminder_is_answered() -> None:
    tables = TableBuilder().stream().assign("123").move("m", "1>4", "cancelled", reminded=1).tables
    (found,) = find_desired(look(P((1, 2, 3))), tables, Memory(said={("m", "MoveStopped", 0): 5}))
    assert describe(found) == "settled 123 Stopped:m"


@pytest.mark.parametrize(
    ("leader", "in_sync", "fenced", "elects"),
    [
        (2, (1, 2, 3), (), True),
        (1, (1, 2, 3), (), False),
        (2, (2, 3), (), False),
        (2, (1, 2, 3), (1,), False),
    ],
)
def test_the_first_of_the_list_is_elected_where_it_can_lead(
    leader: int, in_sync: tuple[int, ...], fenced: tuple[int, ...], elects: bool
) -> None:
    tables = TableBuilder().stream().assign("123").tables
    kafka = look(P((1, 2, 3), in_sync, leader=leader), fenced=fenced)
    assert [each.elects for each in find_desired(kafka, tables, EMPTY_MEMORY)] == [elects]


@pytest.mark.parametrize(
    ("listed", "leads", "state", "expected", "acks", "elects"),
    [
        ((1, 2, 3), 1, "issued", "start", (), False),
        ((2, 1, 3), 1, "issued", "settled", ("MoveAccepted",), True),
        ((2, 1, 3), 1, "accepted", "settled", (), True),
        ((2, 1, 3), 2, "accepted", "settled", ("MoveCompleted",), False),
    ],
)
def test_a_hand_over_is_reordered_elected_and_acknowledged_when_it_leads(
    listed: tuple[int, ...],
    leads: int,
    state: str,
    expected: str,
    acks: tuple[str, ...],
    elects: bool,
) -> None:
    to_lead = {"kind": "leader", "slot": 1, "leader": "2", "remove": None, "add": None}
    tables = TableBuilder().stream().assign("123", "m").move("m", "1>2", state, **to_lead).tables
    (found,) = find_desired(look(P(listed, leader=leads)), tables, EMPTY_MEMORY)
    assert (found.standing, found.target, found.elects) == (expected, (2, 1, 3), elects)
    assert tuple(type(each).__name__ for each in found.acks) == acks


def test_a_partition_that_alone_lacks_replicas_is_completed() -> None:
    tables = (
        TableBuilder().stream(shards=3).assign("123").assign("123", shard=1).assign("123", shard=2)
    )
    kafka = look(P((1, 2)), P((1, 2, 3), number=1), P((1, 2, 3), number=2))
    found = [*find_desired(kafka, tables.tables, EMPTY_MEMORY)]
    assert [describe(each) for each in found] == ["start 123", "settled 123", "settled 123"]


def test_replicas_that_were_taken_from_all_are_not_given_back() -> None:
    tables = TableBuilder().stream(shards=2).assign("123").assign("123", shard=1).tables
    kafka = look(P((1, 2)), P((1, 2), number=1))
    found = [*find_desired(kafka, tables, EMPTY_MEMORY)]
    assert {each.standing for each in found} == {"foreign"}


def test_nothing_is_done_in_a_topic_that_was_made_anew() -> None:
    tables = TableBuilder().stream().assign("123", "m").move("m", "1>4").tables
    (found,) = find_desired(look(P((1, 2, 3))), tables, EMPTY_MEMORY, {"t"})
    assert (found.standing, found.acks) == ("wait", ())


def test_names_that_are_no_broker_stop_the_partition_alone() -> None:
    tables = TableBuilder().stream().assign("ab").move("m", "a>4").tables
    (found,) = find_desired(look(P((1, 2, 3))), tables, EMPTY_MEMORY)
    assert found.standing == "wait"
    assert "no broker" in found.why


@pytest.mark.parametrize(
    ("change", "slot", "expected"),
    [
        ("1>4", 0, (4, 2, 3)),
        ("3>4", 2, (1, 2, 4)),
        (">4", 0, (4, 1, 2, 3)),
        (">4", 9, (1, 2, 3, 4)),
        ("2>", 1, (1, 3)),
        ("9>4", 1, (1, 2, 3)),
    ],
)
def test_a_move_takes_its_slot(change: str, slot: int, expected: tuple[int, ...]) -> None:
    move = TableBuilder().move("m", change, slot=slot).tables.moves["m"]
    assert apply_move((1, 2, 3), move) == expected


def test_a_move_of_an_earlier_topic_of_the_name_has_left_nothing() -> None:
    built = TableBuilder().stream(uid="u1").assign("123").move("m", "1>4", "cancelled", uid="u0")
    (found,) = find_desired(look(P((1, 2, 3))), built.tables, EMPTY_MEMORY)
    assert (describe(found), found.acks[0].uid) == ("settled 123 Stopped:m", "u0")
    # It explains nothing of the topic that there is now, and is neither carried out nor undone.
    (found,) = find_desired(look(P((4, 2, 3))), built.tables, EMPTY_MEMORY)
    assert describe(found) == "foreign 123 Stopped:m"
    opened = TableBuilder().stream(uid="u1").assign("123").move("m", "1>4", uid="u0")
    (found,) = find_desired(look(P((1, 2, 3))), opened.tables, EMPTY_MEMORY)
    assert describe(found) == "settled 123"


def test_an_assignment_of_an_earlier_topic_of_the_name_is_none() -> None:
    tables = TableBuilder().stream(uid="u1").assign("123", uid="u0").tables
    (found,) = find_desired(look(P((4, 2, 3))), tables, EMPTY_MEMORY)
    assert (found.standing, found.why) == ("wait", "the assignment of its stream has not come")
