"""Round-trip times that heartbeats carry, from the log to the alert."""

from typing import Any

from streaming.codec import RawRecord
from tests.builders.batches import Driver, bodies, errors, of_topic
from tests.builders.kafka_rows import LIFE, raw, registered, tick


def beat(sequence: int, rtt_ms: Any) -> RawRecord:
    body = LIFE | {"sequence": sequence, "rtt_ms": rtt_ms}
    return raw("NodeHeartbeat", "n1", body, 2 * sequence, sequence * 500)


def test_slow_round_trips_raise_one_alert() -> None:
    driver = Driver()
    driver.batch([registered("n1", 1, location="/eu/a"), beat(2, {"/us": 250.5, "/asia": 20})])
    driver.batch([beat(3, {"/us": None}), beat(4, {"/us": 300})])
    assert bodies(driver.commits, "alerts.v1") == [], "of one batch the last counts"
    driver.batch([beat(5, {"/us": 299})])
    driver.batch([beat(6, {"/us": 299})])
    (alert,) = bodies(driver.commits, "alerts.v1")
    assert (alert["kind"], alert["subject"]) == ("LINK_SLOW", "/eu - /us")
    assert (alert["detail"]["rtt_ms"], alert["detail"]["shards"]) == (299.0, 0)


def test_such_a_heartbeat_is_a_sign_of_life() -> None:
    driver = Driver()
    driver.batch([registered("n1", 1)])
    for sequence in range(2, 12):
        driver.batch([beat(sequence, {}), tick(2 * sequence + 1, sequence * 500)])
    assert [view["liveness"] for view in bodies(driver.commits, "topology.v1")] == ["up"]


def test_what_is_no_round_trip_is_refused() -> None:
    driver = Driver()
    wrong: list[Any] = [{"us": 1}, {"/us": -1}, {"/us": "1"}, [1], {"/us": 1e9}]
    driver.batch([beat(number, rtt_ms) for number, rtt_ms in enumerate(wrong)])
    letters = [errors(letter)["offset"] for letter in of_topic(driver.commits, "dlq.v1")]
    assert letters == ["0", "2", "4", "6", "8"]
