"""Goal: a record that no broker took is called refused, with the reason, and never sent.

Method: clients of librdkafka's mock cluster, whose topics have four partitions each.
"""

from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError

from streaming.brokers import make_producer
from streaming.requests import dead_letters
from streaming.requests.dead_letters import Original, redrive_letters
from streaming.settings import load_settings


class Letter:
    """A letter that holds its record whole."""

    id = "0/17"

    def __init__(self, value: bytes, partition: int) -> None:
        self._original = Original("acks.v1", partition, b"k", value, ())

    def original(self, *_: Any) -> Original:
        return self._original


@pytest.fixture
def mock_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = make_producer("nowhere:1", {"test.mock.num.brokers": "1"})
    monkeypatch.setattr(dead_letters, "make_producer", lambda *_: producer)


def redrive(*letters: Letter) -> list[str]:
    """Send the letters' records again; the refusals, empty where a record was sent."""
    settings = load_settings(
        None, {"kafka.bootstrap_servers": "localhost:1", "topics.prefix": "p."}
    )
    found = redrive_letters(settings, letters)  # type: ignore[arg-type]
    return [str(each.refusal or "") for each in found]


def test_a_record_that_the_broker_refuses_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Mock(flush=lambda _: 0)
    refusing.produce = lambda *_, on_delivery, **__: on_delivery(
        KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), Mock()
    )
    monkeypatch.setattr(dead_letters, "make_producer", lambda *_: refusing)
    assert redrive(Letter(b"v", 0)) == [
        "letter 0/17: the record did not reach p.acks.v1-0: Broker: Topic authorization failed"
    ]


@pytest.mark.usefixtures("mock_cluster")
def test_a_record_of_a_partition_that_is_gone_was_not_sent() -> None:
    sent, refused = redrive(Letter(b"v", 0), Letter(b"v", 99))
    assert sent == ""
    assert "did not reach p.acks.v1-99" in refused
    assert "Unknown partition" in refused


@pytest.mark.usefixtures("mock_cluster")
def test_a_record_that_the_client_refuses_was_not_sent() -> None:
    (refused,) = redrive(Letter(bytes(2_000_000), 0))
    assert "did not reach p.acks.v1-0" in refused
    assert "Message size too large" in refused


def test_a_record_that_was_called_refused_is_not_sent_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = Mock()
    monkeypatch.setattr(dead_letters, "make_producer", lambda *_: silent)
    (refused,) = redrive(Letter(b"v", 0))
    assert "no answer within 30 s" in refused
    silent.purge.assert_called_once_with(in_flight=False)
