"""Goal: records that an executor cannot carry out, or not read, are told once and stop nothing.

Method: an executor with a store in memory on the embedded broker. Behind the bad records comes a
good one, whose completion says that all before it was read.
"""

import logging
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from prometheus_client import REGISTRY

from schemas.topics import ACKS, ASSIGNMENTS, MOVES, full_name
from streaming.brokers import CommittedReader, make_producer
from streaming.client import Executor
from streaming.conformance.reconciler import PlayedShard, StandIn, assigned, make_move, told
from tests.builders.counting_store import CountingStore
from tests.systems.waiting import until

TIMEOUT_SECONDS = 20.0
Said = tuple[str, str, str | None]


class Trial:
    """An executor that runs, what is published to it, and what it says."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.at = (bootstrap, prefix)
        self.stand_in = StandIn(*self.at)
        self.stand_in.start()
        self.store = CountingStore()
        self.store.may_end.set()
        self.executor = Executor(*self.at, self.store)

    def write(self, topic: str, key: str, value: bytes) -> None:
        producer = make_producer(self.at[0])
        producer.produce(full_name(topic, self.at[1]), value, key)
        assert producer.flush(TIMEOUT_SECONDS) == 0

    def carry_out(self, stream: str) -> str:
        """Have a good move carried out; returns its id."""
        shard = PlayedShard(stream, 0, ["a", "b"])
        self.stand_in.create(shard)
        move_id = self.stand_in.issue(shard, remove="a", add="d")["move_id"]
        until(lambda: self.said(move_id)[1:] == ["MoveCompleted"], "the good move is completed")
        return move_id

    def said(self, move_id: str) -> list[str]:
        return [message for message, moved, _ in self.all_said() if moved == move_id]

    def all_said(self) -> list[Said]:
        with CommittedReader(*self.at, [ACKS]) as reader:
            return [
                (each.headers["ce_type"].split(".")[1], body["move_id"], body.get("reason"))
                for each in reader.read_to_end()
                if (body := each.value) is not None
            ]


@pytest.fixture
def trial(bootstrap: str, prefix: str, caplog: pytest.LogCaptureFixture) -> Iterator[Trial]:
    caplog.set_level(logging.INFO, "streaming.client")
    made = Trial(bootstrap, prefix)
    with made.executor:
        assert made.executor.wait_ready(TIMEOUT_SECONDS)
        yield made


def logged(caplog: pytest.LogCaptureFixture, level: int, text: str) -> list[Any]:
    return [r for r in caplog.records if r.levelno == level and text in r.getMessage()]


def encode(body: dict[str, Any], **changed: Any) -> bytes:
    kept = {name: value for name, value in (body | changed).items() if value != ""}
    return orjson.dumps(kept)


def test_what_cannot_be_read_is_told_once_and_left_out(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    """Fields that are gone or of another type, keys of another form, bytes that are no JSON."""
    shard = PlayedShard("odd", 0, ["a", "b"], epoch=2)
    move, listed = make_move(shard, "replace", remove="a", add="d"), shard.assignment()
    trial.write(ASSIGNMENTS, "odd", encode(listed))
    trial.write(ASSIGNMENTS, "odd/0", encode(listed, replicas={"leader": "a"}))
    trial.write(ASSIGNMENTS, "odd/0", encode(listed))
    trial.write(MOVES, "m1", b"\xff\xfe")
    trial.write(MOVES, "m2", encode(move, move_id="m2", expected_epoch=""))
    trial.write(MOVES, "m3", encode(move, move_id="m3", shard="0"))
    trial.write(MOVES, "m4", encode(move, move_id="m4", add=7))
    trial.write(ASSIGNMENTS, "odd/1", encode(listed, shard=1, replicas=["a", 7]))
    good = trial.carry_out("orders")
    assert trial.store.copies == [good]
    assert {moved for _, moved, _ in trial.all_said()} == {good}
    assert len(logged(caplog, logging.ERROR, "cannot be read and is left out")) == 7
    shown = ("stream/shard", "no list;", "lacks 'move_id'", "'expected_epoch'", "is '0'")
    for text in (*shown, "'add' is 7", "no list of node ids"):
        assert len(logged(caplog, logging.ERROR, text)) == 1, text


def test_what_a_newer_version_adds_is_ignored_or_refused_once(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    """Fields are ignored, a state is left alone, a kind of move is refused with the advice."""
    for number, changed in enumerate(({"kind": "split"}, {"state": "paused"}, {"colour": "red"})):
        shard = PlayedShard("newer", number, ["a", "b"], epoch=2)
        move = make_move(shard, "replace", remove="a", add="d", move_id=f"m{number}")
        listed = {**shard.assignment(move), "colour": {"of": ["the", "list"]}}
        trial.write(ASSIGNMENTS, shard.key, encode(listed))
        for _ in range(2):
            trial.write(MOVES, f"m{number}", encode(move, **changed))
    good = trial.carry_out("orders")
    until(lambda: len(trial.said("m2")) == 2, "the move with another field is completed")
    assert sorted(trial.store.copies) == sorted(["m2", good])
    assert trial.said("m0") == ["MoveAccepted", "MoveFailed"]
    assert trial.said("m1") == []
    (reason,) = [why for _, moved, why in trial.all_said() if moved == "m0" and why]
    assert "a move of kind 'split' is not known; upgrade the executor" in reason
    assert len(logged(caplog, logging.ERROR, "'split' is not known")) == 1


def test_a_move_of_an_unknown_shard_is_told_once_and_begun_when_its_assignment_comes(
    trial: Trial, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.client.schedule.ASSIGNMENT_PATIENCE_MS", 100)
    shard = PlayedShard("unknown", 3, ["a", "b"], epoch=2)
    move = make_move(shard, "replace", remove="a", add="d")
    trial.stand_in.publish(told(move))
    until(lambda: logged(caplog, logging.WARNING, "unknown/3 with epoch 2"), "it is told")
    trial.stand_in.publish(told(move))
    trial.carry_out("orders")
    # Those of another shard may be told as well, with a patience so short.
    (warning,) = logged(caplog, logging.WARNING, "unknown/3 with epoch 2")
    expected = {"stream": "unknown", "shard": 3, "node_id": "d", "move_id": move["move_id"]}
    assert warning.fields == expected
    assert trial.said(move["move_id"]) == []
    trial.stand_in.publish(assigned(shard, move))
    until(lambda: len(trial.said(move["move_id"])) == 2, "it is completed")


def test_log_records_say_which_move_they_are_about_and_metrics_how_far_it_has_read(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    move_id = trial.carry_out("orders")
    (begun,) = logged(caplog, logging.INFO, "carry_out of orders/0 begins")
    expected = {"stream": "orders", "shard": 0, "node_id": "d", "move_id": move_id}
    assert begun.fields == expected
    (accepted,) = logged(caplog, logging.INFO, "MoveAccepted of orders/0")
    assert accepted.fields == expected

    def lag(topic: str) -> float | None:
        return REGISTRY.get_sample_value("placement_client_lag_records", {"topic": topic})

    until(lambda: (lag(MOVES), lag(ASSIGNMENTS)) == (0, 0), "all is read")
