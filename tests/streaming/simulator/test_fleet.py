"""Goal: simulated nodes and executor behave like real ones, seen from the topics.

Method: a fleet on the embedded broker; everything it wrote is read back, held against the input
contract and counted. Waits are for a condition, with a deadline that fails the test.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from kafka.partitioner.default import murmur2

from schemas.acks import MoveMessage
from schemas.envelope import Envelope, decode, validate
from schemas.inputs import (
    NodeHeartbeat,
    NodeLocalityChanged,
    NodeMessage,
    NodeRegistered,
)
from schemas.topics import full_name
from streaming.administration import apply_topics
from streaming.brokers import CommittedReader, Record, make_producer
from streaming.client import Move
from streaming.runtime import EmbeddedBroker
from streaming.simulator.executor import Executor, ExecutorBehaviour, SimulatedCopies
from streaming.simulator.fleet import Fleet, FleetNode

WAIT_SECONDS = 20.0
PARTITIONS = 4


class Log:
    """All records of one topic so far, as input messages."""

    def __init__(self, bootstrap: str, prefix: str, topic: str) -> None:
        self._reader = CommittedReader(bootstrap, prefix, [topic])
        self.records: list[Record] = []

    def read(self) -> list[Any]:
        """Everything up to the present end; each record must be one the reconciler accepts."""
        self.records += self._reader.read_to_end()
        return [_message(record) for record in self.records]

    def wait_for(self, condition: Callable[[list[Any]], bool]) -> list[Any]:
        """Read on until `condition` holds for all messages so far."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition(messages := self.read()):
            assert time.monotonic() < deadline, f"not reached with {messages[-5:]}"
        return messages

    def close(self) -> None:
        self._reader.close()


def _message(record: Record) -> Any:
    headers = [(name, text.encode()) for name, text in record.headers.items()]
    envelope = decode(record.raw, headers)
    assert isinstance(envelope, Envelope), envelope
    assert record.key is not None
    message = validate(envelope, record.key.encode(), record.topic)
    assert isinstance(message, NodeMessage | MoveMessage), message
    return message


@pytest.fixture
def bootstrap(broker: EmbeddedBroker, prefix: str) -> str:
    """A broker with our topics under `prefix`, nodes over several partitions."""
    apply_topics(broker.bootstrap_servers, prefix, partitions={"nodes.v1": PARTITIONS})
    return broker.bootstrap_servers


@pytest.fixture
def nodes_log(bootstrap: str, prefix: str) -> Iterator[Log]:
    log = Log(bootstrap, prefix, "nodes.v1")
    yield log
    log.close()


@pytest.fixture
def acks_log(bootstrap: str, prefix: str) -> Iterator[Log]:
    log = Log(bootstrap, prefix, "acks.v1")
    yield log
    log.close()


def beats(messages: list[Any], node_id: str) -> int:
    return sum(isinstance(m, NodeHeartbeat) and m.node_id == node_id for m in messages)


# A deadline that no test reaches, in ms since the epoch.
FAR_MS = 4_000_000_000_000
NODES = [FleetNode(f"n{number}", f"/z{number % 3}/r{number % 2}") for number in range(12)]


class TestFleet:
    def test_all_are_registered_when_start_returns(
        self, bootstrap: str, prefix: str, nodes_log: Log
    ) -> None:
        node = FleetNode("big", "/z1/r10", "big.example:1", {"disk": "ssd"}, 2.5, 700, leader=False)
        with Fleet(bootstrap, prefix, [*NODES, node]):
            messages = nodes_log.read()
        registered = {m.node_id: m for m in messages if isinstance(m, NodeRegistered)}
        assert sorted(registered) == sorted([*(n.node_id for n in NODES), "big"])
        big = registered["big"]
        assert (big.location, big.host, big.tags) == ("/z1/r10", "big.example:1", {"disk": "ssd"})
        assert (big.weight, big.capacity, big.leader) == (2.5, 700, False)
        assert registered["n1"].tags is None
        assert len({m.incarnation for m in registered.values()}) == 13

    def test_nodes_take_turns_and_count_upwards(
        self, bootstrap: str, prefix: str, nodes_log: Log
    ) -> None:
        with Fleet(bootstrap, prefix, NODES, heartbeat_interval_seconds=0.05):
            nodes_log.wait_for(lambda messages: len(messages) > 240)
        messages = nodes_log.read()
        sent = Counter(m.node_id for m in messages)
        assert max(sent.values()) - min(sent.values()) <= 1, "nobody beats faster than another"
        for node in NODES:
            sequences = [m.sequence for m in messages if m.node_id == node.node_id]
            assert sequences == list(range(1, len(sequences) + 1))
        ids = [record.headers["ce_id"] for record in nodes_log.records]
        assert len(set(ids)) == len(ids)

    def test_keys_go_where_java_clients_put_them(
        self, bootstrap: str, prefix: str, nodes_log: Log
    ) -> None:
        with Fleet(bootstrap, prefix, NODES):
            nodes_log.read()
        assert {(r.key, r.partition) for r in nodes_log.records} == {
            (n.node_id, (murmur2(n.node_id.encode()) & 0x7FFFFFFF) % PARTITIONS) for n in NODES
        }

    def test_a_killed_node_is_silent_while_the_others_go_on(
        self, bootstrap: str, prefix: str, nodes_log: Log
    ) -> None:
        with Fleet(bootstrap, prefix, NODES, heartbeat_interval_seconds=0.05) as fleet:
            nodes_log.wait_for(lambda messages: beats(messages, "n3") > 0)
            fleet.kill("n3")
            assert "n3" not in fleet.alive
            # Three more rounds of the others: what n3 had in the queue has long been sent.
            seen = beats(nodes_log.read(), "n4")
            before = nodes_log.wait_for(lambda messages: beats(messages, "n4") > seen + 3)
            after = nodes_log.wait_for(lambda messages: beats(messages, "n4") > seen + 9)
        assert beats(after, "n3") == beats(before, "n3")

    def test_a_domain_dies_as_a_whole_and_nothing_else(self, bootstrap: str, prefix: str) -> None:
        nodes = [
            FleetNode("a", "/z1/r1"),
            FleetNode("b", "/z1/r1/chassis2"),
            FleetNode("c", "/z1/r10"),
            FleetNode("d", "/z1"),
        ]
        with Fleet(bootstrap, prefix, nodes) as fleet:
            assert fleet.kill_domain("/z1/r1") == ["a", "b"]
            assert fleet.alive == ["c", "d"]
            assert fleet.kill_domain("/z1/r1") == []
            assert fleet.kill_domain("/z1/") == ["c", "d"]

    @pytest.mark.parametrize("same", [False, True])
    def test_a_node_that_returns_registers_again(
        self, bootstrap: str, prefix: str, nodes_log: Log, same: bool
    ) -> None:
        with Fleet(bootstrap, prefix, NODES[:2], heartbeat_interval_seconds=0.05) as fleet:
            fleet.kill("n1")
            fleet.revive("n1", same_incarnation=same)
            assert fleet.alive == ["n0", "n1"]
            seen = beats(nodes_log.read(), "n1")
            messages = nodes_log.wait_for(lambda messages: beats(messages, "n1") > seen)
        said = [m for m in messages if m.node_id == "n1"]
        registered = [m for m in said if isinstance(m, NodeRegistered)]
        assert len(registered) == 2
        assert (registered[0].incarnation == registered[1].incarnation) is same
        assert said[-1].incarnation == registered[1].incarnation, "its beats carry the new one"
        for incarnation in {m.incarnation for m in said}:
            sequences = [m.sequence for m in said if m.incarnation == incarnation]
            assert sequences == list(range(1, len(sequences) + 1)), "a life counts its messages"

    def test_a_node_that_stops_says_so_last(
        self, bootstrap: str, prefix: str, nodes_log: Log
    ) -> None:
        with Fleet(bootstrap, prefix, NODES[:2], heartbeat_interval_seconds=0.05) as fleet:
            fleet.stop("n1")
            assert fleet.alive == ["n0"]
            fleet.revive("n1")
        said = [m for m in nodes_log.read() if m.node_id == "n1"]
        first = [m for m in said if m.incarnation == said[0].incarnation]
        assert isinstance(first[-1], NodeHeartbeat)
        assert [getattr(m, "stopping", False) for m in first] == [False] * (len(first) - 1) + [True]
        assert isinstance(said[len(first)], NodeRegistered)

    def test_a_node_that_moves_says_so_and_registers_there_later(
        self, bootstrap: str, prefix: str, nodes_log: Log
    ) -> None:
        with Fleet(bootstrap, prefix, NODES[:2], heartbeat_interval_seconds=60) as fleet:
            fleet.relocate("n1", "/z9/r9")
            assert fleet.location("n1") == "/z9/r9"
            fleet.kill("n1")
            fleet.relocate("n1", "/z8/r8")
            fleet.revive("n1")
        said = [
            m for m in nodes_log.read() if m.node_id == "n1" and not isinstance(m, NodeHeartbeat)
        ]
        assert [(type(m), m.location) for m in said] == [
            (NodeRegistered, "/z1/r1"),
            (NodeLocalityChanged, "/z9/r9"),
            (NodeRegistered, "/z8/r8"),
        ]


def move(move_id: str, state: str = "issued", shard: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "move_id": move_id,
        "kind": "replace",
        "stream": "orders",
        "shard": shard,
        "add": "n7",
        "remove": "n3",
        "state": state,
        "expected_epoch": 2,
        "issued_at": 0,
        "deadline": FAR_MS,
        **fields,
    }


def assignment(epoch: int = 2, shard: int = 0) -> dict[str, Any]:
    return {"stream": "orders", "shard": shard, "epoch": epoch, "replicas": ["n3", "n4"]}


class Copies:
    """Simulated copies on a clock that the test moves; `said` is what came of them."""

    def __init__(self, **behaviour: Any) -> None:
        self.now = 0.0
        self.gone: set[str] = set()
        self.said: list[str] = []
        self.done: list[int] = []
        self.moves = SimulatedCopies(
            ExecutorBehaviour(**{"delay_seconds": 1, **behaviour}),
            self._say,
            lambda: self.now,
            lambda node: node not in self.gone,
            lambda: round(self.now * 1000),
        )

    def _say(self, message: str, move: Move, bytes_done: int | None = None) -> None:
        self.said.append(f"{message} {move.move_id}")
        self.done += [] if bytes_done is None else [bytes_done]

    def see(self, *records: dict[str, Any]) -> list[str]:
        """Take records in, those of assignments and of moves; returns all that was said."""
        for body in records:
            if "move_id" in body:
                self.moves.see(body["move_id"], body)
            else:
                self.moves.see_assignment(f"{body['stream']}/{body['shard']}", body)
        self.moves.advance()
        return self.said

    def advance(self, seconds: float, steps: int = 1) -> list[str]:
        """Let time pass, a look at the end of each step; returns all that was said."""
        for _ in range(steps):
            self.now += seconds / steps
            self.moves.advance()
        return self.said


class TestExecutor:
    @pytest.fixture
    def issue(self, bootstrap: str, prefix: str) -> Callable[..., None]:
        producer = make_producer(bootstrap)

        def publish(move_id: str, value: dict[str, Any] | None) -> None:
            """Issue a move, and the assignment of its shard if it is the first."""
            if value is not None and value.get("shard") not in assigned:
                assigned.add(value.get("shard"))
                listed = orjson.dumps(assignment(shard=value.get("shard", 0)))
                key = f"orders/{value.get('shard', 0)}"
                producer.produce(full_name("assignments.v1", prefix), listed, key)
            raw = None if value is None else orjson.dumps(value)
            producer.produce(full_name("moves.v1", prefix), raw, move_id)
            assert producer.flush(10) == 0

        assigned: set[int | None] = set()
        return publish

    def test_a_move_is_accepted_at_once_and_completed_later(
        self, bootstrap: str, prefix: str, acks_log: Log, issue: Callable[..., None]
    ) -> None:
        with Executor(bootstrap, prefix, 0.3) as executor:
            issue("m1", move("m1", shard=4))
            acks_log.wait_for(lambda acks: len(acks) == 2)
        accepted, completed = acks_log.read()
        assert [type(ack).__name__ for ack in (accepted, completed)] == [
            "MoveAccepted",
            "MoveCompleted",
        ]
        assert (accepted.move_id, accepted.shard, accepted.node_id) == ("m1", 4, "n7")
        assert {record.key for record in acks_log.records} == {"orders/4"}
        assert (executor.moves.accepted, executor.moves.completed, executor.moves.dropped) == (
            1,
            1,
            0,
        )

    def test_a_slow_move_is_not_completed_early(
        self, bootstrap: str, prefix: str, acks_log: Log, issue: Callable[..., None]
    ) -> None:
        with Executor(bootstrap, prefix, 3600) as slow:
            issue("m1", move("m1"))
            acks_log.wait_for(lambda acks: len(acks) == 1)
        assert (slow.moves.accepted, slow.moves.completed) == (1, 0)

    def test_a_faulty_executor_sends_failed_doubled_and_false_acks(
        self, bootstrap: str, prefix: str, acks_log: Log, issue: Callable[..., None]
    ) -> None:
        bad = ExecutorBehaviour(delay_seconds=0, fail=1, double=1, lie=1)
        with Executor(bootstrap, prefix, bad) as executor:
            issue("m1", move("m1"))
            acks_log.wait_for(lambda acks: len(acks) == 4)
        said = [(type(ack).__name__, ack.move_id) for ack in acks_log.read()]
        assert said == [
            ("MoveAccepted", "m1"),
            ("MoveCompleted", "never-m1"),
            ("MoveFailed", "m1"),
            ("MoveFailed", "m1"),
        ]
        assert (executor.moves.failed, executor.moves.completed) == (1, 0)

    def test_repeats_change_nothing(
        self, bootstrap: str, prefix: str, acks_log: Log, issue: Callable[..., None]
    ) -> None:
        with Executor(bootstrap, prefix, 0) as executor:
            for _ in range(3):
                issue("m1", move("m1"))
            acks_log.wait_for(lambda acks: len(acks) == 2)
            issue("m1", move("m1"))
            issue("m1", move("m1", "accepted"))
            issue("m1", move("m1", "completed"))
            issue("m1", None)
            issue("m2", move("m2", shard=1, kind="remove", add=None))
            acks_log.wait_for(lambda acks: [a.move_id for a in acks].count("m2") == 2)
        assert [ack.move_id for ack in acks_log.read()] == ["m1", "m1", "m2", "m2"]
        assert acks_log.read()[-1].node_id == "n3"
        assert (executor.moves.accepted, executor.moves.completed, executor.moves.dropped) == (
            2,
            2,
            0,
        )

    def test_nothing_is_copied_to_a_node_that_is_gone(self) -> None:
        copies = Copies()
        copies.gone = {"n7"}
        removal = move("m2", shard=1, kind="remove", add=None, remove="n7")
        copies.see(assignment(), assignment(shard=1), move("m1"), removal)
        assert copies.advance(1) == ["MoveAccepted m2", "MoveCompleted m2"]
        copies.gone.clear()
        assert copies.advance(1)[2:] == ["MoveAccepted m1"]
        copies.gone = {"n7"}
        assert copies.advance(5)[3:] == []
        copies.gone.clear()
        assert copies.advance(1)[3:] == ["MoveCompleted m1"]

    def test_a_move_waits_for_its_assignment_and_is_left_when_it_was_passed(self) -> None:
        copies = Copies()
        assert copies.see(move("m1")) == []
        assert copies.see(assignment(epoch=1)) == []
        assert copies.see(assignment()) == ["MoveAccepted m1"]
        copies.advance(1)
        copies.see(assignment(epoch=3), assignment(), move("m2"))
        assert copies.advance(5) == ["MoveAccepted m1", "MoveCompleted m1"]

    def test_no_move_begins_past_its_deadline(self) -> None:
        copies = Copies()
        copies.gone = {"n7"}
        copies.see(assignment(), assignment(shard=1), move("late", deadline=1_000))
        copies.advance(1)
        copies.gone.clear()
        copies.see(move("m1", shard=1, deadline=1_001))
        assert copies.advance(5) == ["MoveAccepted m1", "MoveCompleted m1"]

    def test_the_moves_of_a_shard_are_carried_out_one_after_the_other(self) -> None:
        copies = Copies()
        copies.see(assignment(), move("m1"), move("m2"), assignment(shard=1), move("m3", shard=1))
        assert copies.advance(0.5) == ["MoveAccepted m1", "MoveAccepted m3"]
        later = copies.see(move("m1", "superseded"))[2:]
        assert later == ["MoveStopped m1", "MoveAccepted m2"]

    def test_a_long_copy_reports_bytes_that_rise_in_half_of_its_time(self) -> None:
        """Half of what the last record gives it: the deadline may be extended meanwhile."""
        copies = Copies(delay_seconds=20)
        issued = move("m1", deadline=4_000, bytes=4)
        copies.see(assignment(), issued)
        copies.advance(8, steps=32)
        assert copies.said == ["MoveAccepted m1", *["MoveProgressed m1"] * 8]
        copies.see(move("m1", "accepted", renewed_at=8_000, deadline=16_000, bytes=4))
        copies.advance(12, steps=48)
        assert copies.said[9:] == [*["MoveProgressed m1"] * 6, "MoveCompleted m1"]
        assert copies.done == sorted({*copies.done})

    def test_a_copy_that_is_to_be_lost_reports_nothing(self) -> None:
        copies = Copies(delay_seconds=20, lose=1)
        copies.see(assignment(), move("m1", deadline=4_000))
        assert copies.advance(30, steps=30) == ["MoveAccepted m1"]
        assert copies.moves.lost == 1

    @pytest.mark.parametrize("state", ["superseded", "cancelled", "expired", "failed", None])
    def test_a_move_that_ends_before_its_time_is_not_completed(
        self, bootstrap: str, prefix: str, acks_log: Log, issue: Callable[..., None], state: str
    ) -> None:
        # Long enough for the acceptance to be read, and the end to be written, before it is over.
        with Executor(bootstrap, prefix, 2) as executor:
            issue("m1", move("m1"))
            acks_log.wait_for(lambda acks: len(acks) == 1)
            issue("m1", None if state is None else move("m1", state))
            issue("m2", move("m2"))
            acks_log.wait_for(lambda acks: [a.move_id for a in acks].count("m2") == 2)
        stopped = ["m1"] if state in ("superseded", "cancelled", "expired") else []
        assert [ack.move_id for ack in acks_log.read()] == ["m1", *stopped, "m2", "m2"]
        assert (executor.moves.accepted, executor.moves.completed, executor.moves.dropped) == (
            2,
            1,
            1,
        )
        assert executor.moves.stopped == len(stopped)

    def test_what_was_called_off_is_stopped_whenever_it_is_told(
        self, bootstrap: str, prefix: str, acks_log: Log, issue: Callable[..., None]
    ) -> None:
        """Half of the times it is not heard; the others are answered, what was told before the
        executor came as well."""
        issue("m1", move("m1", "expired"))
        forgetful = ExecutorBehaviour(lose=0.5)
        heard = [n for n in range(9) if not forgetful.draw(f"m1/{n}", "lose")]
        with Executor(bootstrap, prefix, forgetful) as executor:
            # The last one ends the wait, and says that the ones before were seen.
            issue("m2", move("m2", shard=1))
            acks_log.wait_for(lambda acks: [a.move_id for a in acks].count("m2") >= 1)
            for number in range(1, 9):
                issue("m1", move("m1", "expired", reminded=number))
            issue("m3", move("m3", shard=2))
            acks_log.wait_for(lambda acks: [a.move_id for a in acks].count("m3") >= 1)
        said = [type(ack).__name__ for ack in acks_log.read() if ack.move_id == "m1"]
        assert 0 < len(heard) < 9
        assert said == ["MoveStopped"] * len(heard)
        assert executor.moves.stopped == len(heard)

    def test_what_was_open_before_is_taken_on_and_what_was_over_is_not(
        self, bootstrap: str, prefix: str, acks_log: Log, issue: Callable[..., None]
    ) -> None:
        issue("over", move("over"))
        issue("over", move("over", "completed"))
        issue("gone", move("gone"))
        issue("gone", None)
        issue("begun", move("begun"))
        issue("begun", move("begun", "accepted"))
        issue("open", move("open", shard=1))
        with Executor(bootstrap, prefix, 0):
            acks_log.wait_for(lambda acks: len(acks) == 3)
        said = Counter((ack.move_id, type(ack).__name__) for ack in acks_log.read())
        assert said == {
            ("begun", "MoveCompleted"): 1,
            ("open", "MoveAccepted"): 1,
            ("open", "MoveCompleted"): 1,
        }

    def test_what_goes_wrong_in_the_thread_is_raised_by_close(
        self, bootstrap: str, prefix: str, issue: Callable[..., None]
    ) -> None:
        executor = Executor(bootstrap, prefix)
        executor.start()
        issue("m1", {"no": "move"})
        deadline = time.monotonic() + WAIT_SECONDS
        while executor.running:
            assert time.monotonic() < deadline
        with pytest.raises(KeyError, match="move_id"):
            executor.close()
