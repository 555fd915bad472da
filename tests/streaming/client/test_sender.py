"""Goal: a right that is missing ends a client with its name; what a broker lost is sent again.

Method: a producer in memory, whose deliveries the test reports.
"""

from typing import Any

import pytest
from confluent_kafka import KafkaError

from schemas.inputs import StreamDropped
from schemas.topics import STREAMS
from streaming.client import sender
from streaming.client.sender import NotDelivered, Sender
from streaming.errors import AccessRefused


class Producer:
    """Keeps what it is given until the test reports how it went."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, Any]] = []
        self.is_full = False

    def produce(self, topic: str, *_: Any, on_delivery: Any, **__: Any) -> None:
        if self.is_full:
            raise BufferError
        self.waiting.append((topic, on_delivery))

    def report(self, error: KafkaError | None) -> None:
        waiting, self.waiting = self.waiting, []
        for _, note in waiting:
            note(error, None)

    def poll(self, _: float) -> None:
        pass

    flush = poll


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Producer:
    made = Producer()
    monkeypatch.setattr(sender, "make_producer", lambda *_: made)
    return made


def test_a_refused_record_names_topic_and_right(producer: Producer) -> None:
    sending = Sender("nowhere:1", "p.", "executor")
    request = StreamDropped(stream="orders", sequence=1)
    sending.send(STREAMS, request)
    producer.report(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert (producer.waiting, sending.unconfirmed) == ([], 0)
    for ask in (sending.poll, sending.flush, lambda: sending.send(STREAMS, request)):
        with pytest.raises(AccessRefused, match=r"Write on topic p\.streams\.v1.*topics acls"):
            ask()


def test_a_lost_record_is_sent_again(producer: Producer) -> None:
    sending = Sender("nowhere:1", "p.", "executor")
    sending.send(STREAMS, StreamDropped(stream="orders", sequence=1))
    producer.report(KafkaError(KafkaError._MSG_TIMED_OUT))
    assert (len(producer.waiting), sending.unconfirmed) == (1, 1)
    with pytest.raises(NotDelivered, match="1 records of executor"):
        sending.flush(0.01)
    producer.report(None)
    sending.flush(0.01)
    assert sending.unconfirmed == 0


def test_a_full_queue_is_not_awaited_without_end(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "FLUSH_TIMEOUT_SECONDS", 0.01)
    sending = Sender("nowhere:1", "p.", "executor")
    producer.is_full = True
    with pytest.raises(NotDelivered):
        sending.send(STREAMS, StreamDropped(stream="orders", sequence=1))
    assert sending.unconfirmed == 0
