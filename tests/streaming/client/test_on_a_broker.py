"""Goal: the library's parts speak and hear on real topics what they are made for.

Method: the embedded broker; the reconciler's records are written by the stand-in of `conformance`
and by hand, those of the library read back. Waits are for a condition.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from schemas.envelope import encode_headers
from schemas.inputs import StreamCreated
from schemas.outputs import OUTPUTS
from schemas.topics import (
    ACKS,
    ASSIGNMENTS,
    DECISIONS,
    NODE_LOADS,
    NODES,
    OPERATOR,
    STREAMS,
    TOPOLOGY,
    full_name,
)
from streaming.brokers import CommittedReader, make_producer
from streaming.client import (
    Change,
    DecisionAwaited,
    EpochAwaited,
    Executor,
    LocationMalformed,
    MessageRefused,
    Move,
    NodeAgent,
    NodeIdTaken,
    PlacementView,
    Progress,
    Replica,
    ReplicaStore,
    Requester,
    RequestOvertaken,
    ShardId,
    StreamNotThere,
    StreamThere,
)
from streaming.codec import event_of_message
from streaming.conformance.reconciler import Output, PlayedShard, StandIn
from tests.systems.waiting import until
from tests.test_tidy import ROOT

TIMEOUT_SECONDS = 20.0


@pytest.fixture
def stand_in(bootstrap: str, prefix: str) -> StandIn:
    made = StandIn(bootstrap, prefix)
    made.start()
    return made


def write(bootstrap: str, prefix: str, topic: str, name: str, body: dict[str, Any]) -> None:
    """Publish a record of the reconciler, as it is when it is not looked at for order."""
    message = OUTPUTS[name].model_validate_json(orjson.dumps(body))
    producer = make_producer(bootstrap)
    key = message.record_key()
    headers = encode_headers(name, cell="test", id=key, subject=key, time_ms=0)
    producer.produce(full_name(topic, prefix), orjson.dumps(body), key, headers=[*headers])
    assert producer.flush(TIMEOUT_SECONDS) == 0


def example(name: str, **fields: Any) -> dict[str, Any]:
    path = ROOT / "schemas" / "examples" / f"{name}.json"
    return orjson.loads(path.read_bytes()) | fields


def said(bootstrap: str, prefix: str, topic: str) -> list[tuple[str, dict[str, Any]]]:
    with CommittedReader(bootstrap, prefix, [topic]) as reader:
        return [
            (record.headers["ce_type"].split(".")[1], record.value)
            for record in reader.read_to_end()
        ]


@pytest.fixture
def example_executor(bootstrap: str, prefix: str, tmp_path: Path) -> Iterator[Path]:
    """The store of `deploy/examples/executor.py`, which runs."""
    told = {"KAFKA_BOOTSTRAP": bootstrap, "TOPIC_PREFIX": prefix, "STORE": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "deploy" / "examples" / "executor.py")],
        env=os.environ | told | {"PYTHONPATH": str(ROOT)},
    )
    yield tmp_path
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT_SECONDS) == 0


def test_the_example_moves_a_replica(
    stand_in: StandIn, bootstrap: str, prefix: str, example_executor: Path
) -> None:
    shard = PlayedShard("orders", 0, ["a", "b"])
    stand_in.create(shard)
    old, new = example_executor / "a" / "orders.0", example_executor / "d" / "orders.0"
    kept = example_executor / "b" / "orders.0"
    until(lambda: old.exists() and kept.exists(), "the first replicas are made")
    kept.write_text("data")
    move = stand_in.issue(shard, remove="a", add="d")

    def words() -> list[str]:
        return [message for message, _ in said(bootstrap, prefix, ACKS)]

    until(lambda: "MoveCompleted" in words(), "the move is completed")
    assert words() == ["MoveAccepted", "MoveCompleted"]
    assert (new.read_text(), old.exists()) == ("data", True)
    stand_in.complete(shard, move)
    until(lambda: not old.exists(), "the old replica is deleted")
    assert len((ROOT / "deploy" / "examples" / "executor.py").read_text().splitlines()) <= 40


class NotingStore(ReplicaStore):
    """Replicas in memory, with the uid of the stream that each is of."""

    def __init__(self) -> None:
        self.held: set[Replica] = set()

    def list_replicas(self) -> list[Replica]:
        return sorted(self.held)

    def holds(self, replica: Replica) -> bool:
        return replica in self.held

    def create(self, replica: Replica) -> None:
        self.held.add(replica)

    def copy(self, move: Move, _: Progress) -> None:
        self.held.add(Replica(*move.shard_id, str(move.add), move.uid))

    def delete(self, replica: Replica) -> None:
        self.held -= {each for each in self.held if each[:3] == replica[:3]}


def test_a_start_tells_new_streams_old_data_and_losses_apart(
    stand_in: StandIn, bootstrap: str, prefix: str
) -> None:
    store, shard = NotingStore(), PlayedShard("orders", 0, ["a", "b"])

    def publish(uid: str) -> set[Replica]:
        """List the shard; returns the replicas that are to be there."""
        stand_in.publish(Output(ASSIGNMENTS, shard.key, shard.assignment() | {"uid": uid}))
        return {Replica("orders", 0, node, uid) for node in shard.replicas}

    wanted = publish("u1")
    with Executor(bootstrap, prefix, store):
        until(lambda: store.held == wanted, "the replicas of a stream of before the start")
    stand_in.drop(shard, [])
    shard.epoch += 1
    wanted = publish("u2")
    with Executor(bootstrap, prefix, store):
        until(lambda: store.held == wanted, "those of the stream that took its place")
    assert said(bootstrap, prefix, ACKS) == []
    gone = Replica("orders", 0, "b", "u2")
    store.held.remove(gone)
    with Executor(bootstrap, prefix, store):
        ((message, body),) = until(lambda: said(bootstrap, prefix, ACKS), "the loss is told")
    assert (message, body["node_id"], body["uid"]) == ("ReplicaLost", "b", "u2")
    assert store.held == wanted - {gone}


def test_a_view_follows_placements(stand_in: StandIn, bootstrap: str, prefix: str) -> None:
    for node_id, location in (("a", "/eu/az1"), ("b", "/eu/az2"), ("d", "/us/az1")):
        fields = {"node_id": node_id, "location": location, "liveness": "up", "status": "up"}
        write(bootstrap, prefix, TOPOLOGY, "NodeView", example("NodeView", **fields, tags={}))
    write(bootstrap, prefix, DECISIONS, "Decision", example("Decision", stream="orders"))
    shard = PlayedShard("orders", 0, ["a", "b"])
    stand_in.create(shard)
    changes: list[Change] = []
    view = PlacementView(bootstrap, prefix)
    with view:
        assert view.wait_complete(TIMEOUT_SECONDS)
        view.on_change(changes.append)
        assert (view.replicas("orders", 0), view.leader("orders", 0)) == (("a", "b"), "a")
        assert view.decision("orders")["outcome"] == "degraded"
        assert view.nearest("orders", 0, "/eu/az2").node_id == "b"
        with pytest.raises(LocationMalformed, match="must start with '/'"):
            view.nearest("orders", 0, "az2")
        move = stand_in.issue(shard, remove="a", add="d")
        stand_in.complete(shard, move)
        assert view.wait_for_epoch("orders", 0, 3, TIMEOUT_SECONDS) == ("d", "b")
        begun = Change(ShardId("orders", 0), 2, ("a", "b"), adding=("d",), removing=("a",))
        assert changes == [begun, Change(ShardId("orders", 0), 3, ("d", "b"))]
        assert (view.host("d"), view.host("x")) == (example("NodeView")["host"], None)
        assert view.nearest("orders", 0, "/us/az1/rack1").node_id == "d"
        with pytest.raises(EpochAwaited, match=r"orders/0 has epoch 3; 9 has not come"):
            view.wait_for_epoch("orders", 0, 9, 0.01)
        stand_in.drop(shard, [])
        until(lambda: view.replicas("orders", 0) == (), "the stream is gone")
        fresh = view.freshness
        assert fresh.is_complete
        assert fresh.age_seconds < TIMEOUT_SECONDS
        assert fresh.newest_record_ms > 0


def test_a_request_is_asked_once(bootstrap: str, prefix: str) -> None:
    def decide(sequence: int, outcome: str = "placed", shards: int = 2) -> None:
        fields = {"stream": "orders", "shards": shards, "replication_factor": 3}
        event: Any = event_of_message(StreamCreated(sequence=sequence, **fields), 0)
        hashed = {"sequence": sequence, "outcome": outcome, "body_hash": event.body_hash}
        body = example("Decision", stream="orders", **hashed)
        write(bootstrap, prefix, DECISIONS, "Decision", body)

    earlier = Requester(bootstrap, prefix)
    with pytest.raises(DecisionAwaited, match="repeat"):
        earlier.create("orders", 2, 3, timeout_seconds=0.01)
    earlier.close()
    # A process that was started anew asks the same under the same sequence.
    with Requester(bootstrap, prefix) as requester:
        with pytest.raises(DecisionAwaited):
            requester.create("orders", 2, 3, timeout_seconds=0.01)
        asked = said(bootstrap, prefix, STREAMS)
        assert [body["sequence"] for _, body in asked] == [1, 1]
        decide(1)
        assert requester.create("orders", 2, 3)["outcome"] == "placed"
        assert len(said(bootstrap, prefix, STREAMS)) == 2
        with pytest.raises(StreamThere, match="alter it"):
            requester.create("orders", 4, 3)
        with pytest.raises(MessageRefused, match="'shards' must be an integer"):
            requester.create("orders", "2", 3)
        with pytest.raises(StreamNotThere, match="there is no stream none"):
            requester.alter("none", 2, 3)
        assert requester.drop("none") is None
        decide(2, shards=9)
        with pytest.raises(StreamThere):
            requester.create("orders", 2, 3)


def test_a_request_that_was_overtaken_is_told(bootstrap: str, prefix: str) -> None:
    body = example("Decision", stream="orders", sequence=7, outcome="dropped")
    with Requester(bootstrap, prefix) as requester:
        write(bootstrap, prefix, DECISIONS, "Decision", body)
        assert requester.decision("orders")["sequence"] == 7
        later = example("Decision", stream="orders", sequence=9, outcome="placed")
        send = requester._sender.send

        def race(*sent: Any) -> None:
            send(*sent)
            write(bootstrap, prefix, DECISIONS, "Decision", later)

        requester._sender.send = race
        with pytest.raises(RequestOvertaken, match="sequence 9"):
            requester.create("orders", 2, 3)
        assert said(bootstrap, prefix, STREAMS)[0][1]["sequence"] == 8


def test_a_node_lives_twice_and_leaves(bootstrap: str, prefix: str, tmp_path: Path) -> None:
    state, fields = tmp_path / "node.json", {"location": "/eu/az1"}
    kept = {"heartbeat_interval_seconds": 0.05}
    first = NodeAgent(bootstrap, prefix, "n1", state, fields, **kept)
    first.start()
    with pytest.raises(NodeIdTaken, match="another process holds"):
        NodeAgent(bootstrap, prefix, "n1", state).start()
    first.report_round_trips({"/eu/az2": 1.5, "/us": None})
    first.report_loads([{"stream": "orders", "shard": 0, "disk_bytes": 10}])
    first.report_lost("orders", 0, "a disk has failed")

    def beats() -> list[dict[str, Any]]:
        return [body for name, body in said(bootstrap, prefix, NODES) if name == "NodeHeartbeat"]

    until(lambda: any("rtt_ms" in body for body in beats()), "the round trips are sent")
    first.stop()
    assert beats()[-1]["stopping"]
    with pytest.raises(NodeIdTaken, match="belongs to node n1"):
        NodeAgent(bootstrap, prefix, "n2", state).start()
    second = NodeAgent(bootstrap, prefix, "n1", state, fields, **kept)
    second.start()
    second.relocate("/eu/az2")
    second.leave()
    lives = [(name, body) for name, body in said(bootstrap, prefix, NODES)]
    registered = [body for name, body in lives if name == "NodeRegistered"]
    assert [body.get("replaces") for body in registered] == [None, first.incarnation]
    assert lives[-1][0] == "NodeUnregistered"
    assert "NodeLocalityChanged" in [name for name, _ in lives]
    for incarnation in (first.incarnation, second.incarnation):
        told = [body["sequence"] for _, body in lives if body["incarnation"] == incarnation]
        assert told == [*range(1, len(told) + 1)]
    ((_, load),) = said(bootstrap, prefix, NODE_LOADS)
    assert load["shards"] == [{"stream": "orders", "shard": 0, "disk_bytes": 10}]
    assert [name for name, _ in said(bootstrap, prefix, ACKS)] == ["ReplicaLost"]


def test_an_agent_drains_its_node_when_it_is_to_end(
    bootstrap: str, prefix: str, tmp_path: Path
) -> None:
    program = (
        "import sys; from streaming.client import NodeAgent; "
        "NodeAgent(*sys.argv[1:]).serve(drain_timeout_seconds=0.5)"
    )
    state = str(tmp_path / "node.json")
    process = subprocess.Popen(
        [sys.executable, "-c", program, bootstrap, prefix, "n1", state],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )

    def heard() -> list[str]:
        return [name for name, _ in said(bootstrap, prefix, NODES)]

    until(lambda: "NodeHeartbeat" in heard(), "the agent speaks")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    # Nobody answers here: it says so, and ends as for a restart.
    assert "n1 is not empty after 0.5 s" in errors
    assert process.returncode == 1
    ((kind, drain),) = said(bootstrap, prefix, OPERATOR)
    assert (kind, drain["target"]) == ("Drain", "n1")
    assert said(bootstrap, prefix, NODES)[-1][1]["stopping"]
