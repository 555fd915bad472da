"""Operators' requests from the wire to their answer."""

from typing import Any, get_args

import pytest

from placement.model import Action
from schemas.requests import Request
from tests.builders.batches import Driver, bodies, errors
from tests.builders.kafka_rows import raw
from tests.streaming.pipeline.test_batch import fleet, stream


def test_every_request_is_an_action_of_the_core() -> None:
    assert sorted(request.action for request in get_args(Request)) == sorted(Action)


@pytest.mark.parametrize(
    "body", [{"request_id": "r1"}, {"target": "n1"}, {"target": "n1", "request_id": "r 1"}]
)
def test_what_is_no_request_is_a_dead_letter(body: dict[str, Any]) -> None:
    driver = Driver()
    (commit,) = driver.batch([raw("Undrain", "n1", body, 0, 2_000, "operator.v1")])
    assert commit[0].topic == "dlq.v1"


def test_an_operators_request_is_answered_in_the_batch_that_brings_it() -> None:
    driver = Driver()
    driver.batch(fleet(3), [stream("a", 0)])
    known = {"target": "n1", "request_id": "r1"}
    drain = raw("Drain", "n1", known, 0, 2_000, "operator.v1")
    (commit,) = driver.batch([drain])
    (answer,) = bodies([commit], "answers.v1")
    assert (answer["action"], answer["target"], answer["request_id"]) == ("drain", "n1", "r1")
    assert (answer["outcome"], answer["reason"]["code"]) == ("refused", "IMPACT_UNSEEN")
    seen = known | {"expected_impact_hash": answer["impact_hash"]}
    (commit,) = driver.batch([raw("Drain", "n1", seen, 1, 3_000, "operator.v1")])
    assert bodies([commit], "answers.v1")[0]["outcome"] == "accepted"
    assert bodies(driver.commits, "alerts.v1") == [], "an answer pages nobody"
    (node,) = bodies([commit], "topology.v1")
    assert (node["node_id"], node["status"]) == ("n1", "draining")
    assert bodies([commit], "state.v1")[0]["body"]["action"] == "drain"


def test_a_request_about_nothing_is_refused_without_a_hash() -> None:
    driver = Driver()
    driver.batch(fleet(1))
    body = {"target": "n9", "request_id": "r1"}
    (commit,) = driver.batch([raw("ApproveRelocation", "n9", body, 0, 2_000, "operator.v1")])
    (answer,) = bodies([commit], "answers.v1")
    assert (answer["outcome"], answer["reason"]["code"]) == ("refused", "NODE_UNKNOWN")
    assert (answer["nodes"], answer["shards"], "impact_hash" in answer) == (0, 0, False)


@pytest.mark.parametrize(
    ("message", "fields", "reason"),
    [
        ("MoveCompleted", {"stream": "nosuch", "shard": 0}, "STREAM_UNKNOWN"),
        ("MoveCompleted", {"stream": "a", "shard": 9}, "SHARD_UNKNOWN"),
        ("MoveFailed", {"stream": "a", "shard": 0, "move_id": "ghost"}, "MOVE_UNKNOWN"),
        ("MoveProgressed", {"stream": "a", "shard": 0, "move_id": "ghost"}, "MOVE_UNKNOWN"),
        ("MoveStopped", {"stream": "a", "shard": 0, "move_id": "ghost"}, "MOVE_UNKNOWN"),
        (
            "ReplicasObserved",
            {"stream": "a", "shard": 0, "epoch": 9, "replicas": ["n1"]},
            "OBSERVATION_STALE",
        ),
        ("ReplicaLost", {"stream": "nosuch", "shard": 0, "node_id": "n1"}, "STREAM_UNKNOWN"),
        ("ReplicaLost", {"stream": "a", "shard": 99, "node_id": "n1"}, "SHARD_UNKNOWN"),
        ("ReplicaLost", {"stream": "a", "shard": 0, "node_id": "n999"}, "NODE_UNKNOWN"),
    ],
)
def test_an_acknowledgement_of_what_there_is_not_is_a_dead_letter(
    message: str, fields: dict[str, Any], reason: str
) -> None:
    driver = Driver()
    driver.batch(fleet(3), [stream("a", 0)])
    key = f"{fields['stream']}/{fields['shard']}"
    (commit,) = driver.batch([raw(message, key, fields, 0, 2_000, "acks.v1")])
    said = errors(commit[0])
    assert (said["reason"], said["stage"], said["offset"]) == (reason, "apply", "0")
    # Who says twice what has been done has lost nothing: that is counted, and no letter.
    late = {"stream": "a", "shard": 0}
    (commit,) = driver.batch([raw("MoveCompleted", "a/0", late, 1, 2_001, "acks.v1")])
    assert [record.topic for record in commit if record.topic == "dlq.v1"] == []
    assert driver.applier.ignored.counts == {"late_ack": 1}


def test_an_observation_corrects_the_assignment() -> None:
    driver = Driver()
    (commit,) = driver.batch(fleet(4), [stream("a", 0)])
    before = next(each for each in bodies([commit], "assignments.v1") if each["shard"] == 0)
    other = min({"n0", "n1", "n2", "n3"} - {*before["replicas"]})
    found = [other, *before["replicas"][1:]]
    said = {"stream": "a", "shard": 0, "epoch": before["epoch"], "replicas": found}
    (commit,) = driver.batch([raw("ReplicasObserved", "a/0", said, 0, 2_000, "acks.v1")])
    (after,) = bodies([commit], "assignments.v1")
    assert (after["epoch"], after["replicas"]) == (before["epoch"] + 1, found)
    twice = said | {"replicas": ["n1", "n1"]}
    (commit,) = driver.batch([raw("ReplicasObserved", "a/0", twice, 1, 2_001, "acks.v1")])
    assert errors(commit[0])["reason"] == "WRONG_TYPE"


def test_a_stream_that_was_created_anew_is_another_one() -> None:
    driver = Driver()
    (commit,) = driver.batch(fleet(3), [stream("a", 0, shards=1, uid="u1")])
    (decision,) = bodies([commit], "decisions.v1")
    (assignment,) = bodies([commit], "assignments.v1")
    assert (decision["spec"]["uid"], assignment["uid"]) == ("u1", "u1")
    late = {"stream": "a", "shard": 0, "uid": "u1", "node_id": assignment["replicas"][0]}
    again = stream("a", 1, shards=1, sequence=2, uid="u2")
    lost = raw("ReplicaLost", "a/0", late, 0, 2_000, "acks.v1")
    (commit,) = driver.batch([again], [lost])
    letters = [errors(each) for each in commit if each.topic == "dlq.v1"]
    assert [each["reason"] for each in letters] == ["STREAM_UID_DIFFERS"], letters
    (after,) = bodies([commit], "assignments.v1")
    assert (after["uid"], after["epoch"]) == ("u2", assignment["epoch"] + 1)


def test_fields_that_nobody_knows_are_counted_and_misspelt_ones_refused() -> None:
    driver = Driver()
    driver.batch(fleet(3), [stream("a", 0, trace="x1")])
    assert driver.applier.ignored.counts == {"unknown_field": 1}
    node = {"node_id": "n9", "incarnation": "a", "sequence": 1, "version": 3}
    beat = raw("NodeHeartbeat", "n1", node | {"node_id": "n1", "sequence": 2}, 51)
    driver.batch([raw("NodeRegistered", "n9", node, 50), beat])
    assert driver.applier.ignored.counts == {"unknown_field": 3}
    (commit,) = driver.batch([stream("b", 1, polcy={"strategy": "simple"})])
    said = errors(commit[0])
    assert (said["reason"], said["stage"]) == ("UNKNOWN_FIELD", "validate")
    assert said["message"] == "unknown field 'polcy' of StreamCreated: did you mean 'policy'?"
    assert bodies([commit], "decisions.v1") == []
