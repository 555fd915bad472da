"""Streams on the wire: altered, dropped, created again, and replicas that are lost.

Method: records as producers write them go through the driver's half of a batch; each run is started
again from what the topics hold, and every record is held to its contract.
"""

from dataclasses import replace
from typing import Any

from placement.model import Configuration, Rebalance
from schemas.topics import DEAD_LETTERS
from streaming.codec import RawRecord
from tests.builders.batches import CELL, Commit, Driver, bodies, check_contract, errors, of_topic
from tests.builders.kafka_rows import raw, registered

FLEET = [
    registered(f"n{number}", 1, location=f"/z{number}", offset=number, at=1_000)
    for number in range(4)
]


class System:
    """Streams and executors against an application that is started again before every batch."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        self.configuration = configuration or Configuration(cell=CELL)
        self.commits: list[Commit] = []
        self.at = 1_000
        self.offsets = {"streams.v1": 0, "acks.v1": 0}
        self.batch(FLEET)

    def batch(self, *partitions: list[RawRecord]) -> list[Commit]:
        driver = Driver(self.commits, configuration=self.configuration)
        made = driver.batch(*partitions)
        self.commits += driver.commits
        check_contract(driver.commits)
        return made

    def tell(self, message: str, key: str, topic: str = "streams.v1", **body: Any) -> list[Commit]:
        self.at += 1_000
        record = raw(message, key, body, self.offsets[topic], self.at, topic)
        self.offsets[topic] += 1
        return self.batch([record])

    def stream(self, message: str, sequence: int, **asked: Any) -> list[Commit]:
        return self.tell(message, "s", stream="s", sequence=sequence, **asked)

    def acknowledge(self, message: str, **said: Any) -> list[Commit]:
        return self.tell(message, "s/0", "acks.v1", stream="s", shard=0, **said)

    @property
    def decision(self) -> dict[str, Any]:
        return bodies(self.commits, "decisions.v1")[-1]


def test_from_creation_over_alteration_to_the_end_and_anew() -> None:
    system = System()
    system.stream("StreamCreated", 1, shards=1, replication_factor=2)
    made = system.stream("StreamAltered", 2, shards=2, replication_factor=3)
    assert system.decision["outcome"] == "partial"
    assert [move["kind"] for move in bodies(made, "moves.v1")] == ["add"]
    assert {a["shard"] for a in bodies(made, "assignments.v1")} == {0, 1}
    [move] = bodies(made, "moves.v1")
    system.acknowledge("MoveCompleted", move_id=move["move_id"])
    assert system.decision["outcome"] == "placed"

    system.stream("StreamAltered", 3, shards=1, replication_factor=3)
    assert (system.decision["outcome"], system.decision["spec"]["shards"]) == ("placed", 2)
    assert system.decision["requested"]["shards"] == 1
    assert system.decision["reasons"][0]["code"] == "SHARDS_OUT_OF_RANGE"

    made = system.stream("StreamDropped", 4)
    assert system.decision["outcome"] == "dropped"
    gone = of_topic(made, "assignments.v1")
    assert [(record.key, record.value) for record in gone] == [(b"s/0", None), (b"s/1", None)]

    made = system.stream("StreamCreated", 5, shards=1, replication_factor=1)
    [assignment] = bodies(made, "assignments.v1")
    assert assignment["epoch"] == 4, "above every epoch of the stream that was dropped"
    ids = [dict(r.headers)["ce_id"] for commit in system.commits for r in commit]
    assert len(ids) == len(set(ids))


def test_what_is_out_of_order_is_told_apart_by_sequence_and_kind() -> None:
    system = System()
    asked = {"shards": 1, "replication_factor": 2}
    system.stream("StreamCreated", 2, **asked)
    for message, body in (("StreamAltered", asked), ("StreamDropped", {})):
        [letter] = of_topic(system.stream(message, 2, **body), DEAD_LETTERS)
        assert errors(letter)["reason"] == "SEQUENCE_CONFLICT", message
        assert not of_topic(system.stream(message, 1, **body), DEAD_LETTERS), "old news"
    system.stream("StreamDropped", 3)
    assert not of_topic(system.stream("StreamDropped", 3), DEAD_LETTERS), "a repeat"
    [letter] = of_topic(system.stream("StreamAltered", 4, **asked), DEAD_LETTERS)
    assert errors(letter)["reason"] == "STREAM_UNKNOWN"


def test_a_lost_replica_leaves_the_list_and_is_made_again() -> None:
    system = System()
    system.stream("StreamCreated", 1, shards=1, replication_factor=2)
    first = bodies(system.commits, "assignments.v1")[-1]["replicas"]
    made = system.acknowledge("ReplicaLost", node_id=first[1], reason="disk")
    [assignment] = bodies(made, "assignments.v1")
    assert (assignment["replicas"], len(assignment["adding"])) == (first[:1], 1)
    assert system.decision["reasons"][0]["code"] == "REPLICA_LOST"


def test_another_default_policy_leaves_streams_as_they_are() -> None:
    """Restarted under another default (fault F32): the recorded policy stays in force."""
    strict = {"strategy": "affinity", "node": "colocated"}
    configuration = Configuration(
        cell=CELL, default_policy={"strategy": "striped"}, rebalance=Rebalance.OFF
    )
    system = System(configuration)
    system.stream("StreamCreated", 1, shards=2, replication_factor=2)
    before = bodies(system.commits, "assignments.v1")
    system.configuration = replace(configuration, default_policy=strict)
    made = system.batch([registered("n9", 1, location="/z9", offset=9, at=90_000)])
    assert not bodies(made, "moves.v1")
    assert bodies(system.commits, "assignments.v1") == before
    system.tell("StreamCreated", "t", stream="t", sequence=1, shards=1, replication_factor=1)
    told = {each["stream"]: each for each in bodies(system.commits, "decisions.v1")}
    assert told["s"]["strategy"] == "striped"
    assert told["t"]["spec"]["policy"] == strict
