"""Ends of partitions: asked again while a leader changes, and no longer than a connection takes."""

from collections.abc import Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition

from streaming.brokers import offsets
from streaming.errors import BrokerUnreachable


class Moody:
    """A consumer whose broker gives these answers, one after the other."""

    def __init__(self, *answers: tuple[int, int] | int) -> None:
        self.answers = list(answers)

    def get_watermark_offsets(self, _: object, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        answer = self.answers.pop(0)
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        return answer


def test_a_partition_without_a_leader_is_asked_again() -> None:
    consumer = Moody(*offsets.LEADER_CHANGES, (3, 9))
    assert offsets.read_watermarks(consumer, "moves.v1", 0) == (3, 9)  # type: ignore[arg-type]


def test_other_errors_are_told_at_once() -> None:
    consumer = Moody(KafkaError.TOPIC_AUTHORIZATION_FAILED, (3, 9))
    with pytest.raises(BrokerUnreachable, match=r"the end offset of moves\.v1 cannot be read"):
        offsets.read_watermarks(consumer, "moves.v1", 0)  # type: ignore[arg-type]
    assert consumer.answers == [(3, 9)]


def test_a_partition_that_gets_no_leader_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "CONNECT_TIMEOUT_SECONDS", 0.2)
    consumer = Moody(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 1_000)
    with pytest.raises(BrokerUnreachable, match=r"moves\.v1"):
        offsets.read_watermarks(consumer, "moves.v1", 0)  # type: ignore[arg-type]


class Silent:
    """An admin client to which the leader of one partition has not answered in time."""

    def list_offsets(self, asked: Iterable[TopicPartition], **_: object) -> dict[Any, Any]:
        answers: dict[Any, Any] = {}
        for place in asked:
            answers[place] = future = Future[Any]()
            future.set_result(SimpleNamespace(offset=-1001 if place.partition else 9))
        return answers


def test_a_leader_that_does_not_answer_is_named() -> None:
    places = [TopicPartition("moves.v1", partition) for partition in (0, 1)]
    admin, isolation = Silent(), IsolationLevel.READ_COMMITTED
    first = offsets.read_end_offsets(admin, places[:1], isolation)  # type: ignore[arg-type]
    assert first == {("moves.v1", 0): 9}
    with pytest.raises(BrokerUnreachable, match=r"moves\.v1-1 cannot be read: its leader does not"):
        offsets.read_end_offsets(admin, places, isolation)  # type: ignore[arg-type]
