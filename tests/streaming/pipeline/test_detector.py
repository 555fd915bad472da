"""Reports of external detectors, from their topic to the node's record and back."""

from typing import Any

from streaming.codec import RawRecord
from tests.builders.batches import Driver, bodies, check_contract, errors, of_topic
from tests.builders.kafka_rows import LIFE, raw, tick


def registered(**more: Any) -> RawRecord:
    return raw("NodeRegistered", "n1", LIFE | {"sequence": 1, "location": "/z1"} | more)


def report(status: str, sequence: int, offset: int, **body: Any) -> RawRecord:
    said = LIFE | {"sequence": sequence, "status": status} | body
    key = said["node_id"]
    return raw("NodeLivenessReported", key, said, offset, 5_000 + offset, "detector.v1")


def test_reports_alone_decide_and_a_restart_knows_it() -> None:
    driver = Driver()
    driver.batch([registered(liveness="external")])
    driver.batch([tick(1 + n, n * 1_000) for n in range(9)], [report("down", 1, 0)])
    seen = bodies(driver.commits, "topology.v1")
    assert [(view["liveness"], view["liveness_mode"]) for view in seen] == [
        ("up", "external"),
        ("dead", "external"),
    ]
    assert seen[-1]["reported"] == {"sequence": 1, "said": "reported down"}
    assert seen[-1]["sequence"] == 1, "the node's own"
    check_contract(driver.commits)
    again = Driver(driver.commits)
    again.batch([report("down", 1, 1), report("up", 2, 2)])
    (view,) = bodies(again.commits, "topology.v1")
    assert (view["liveness"], view["reported"]["sequence"]) == ("up", 2)


def test_what_is_no_report_or_not_asked_for_is_a_dead_letter() -> None:
    driver = Driver()
    beat = raw("NodeHeartbeat", "n1", LIFE, 1, 5_001, "detector.v1")
    driver.batch([registered()], [report("down", 1, 0), beat, report("gone", 2, 2)])
    letters = [errors(letter) for letter in of_topic(driver.commits, "dlq.v1")]
    assert [(each["topic"], each["offset"]) for each in letters] == [
        ("detector.v1", "0"),
        ("detector.v1", "1"),
        ("detector.v1", "2"),
    ]
    assert len({each["offset"] for each in letters}) == 3
    assert [view["liveness"] for view in bodies(driver.commits, "topology.v1")] == ["up"]
