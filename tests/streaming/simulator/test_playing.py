"""Goal: a stream whose creation the broker refuses was not created."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from schemas.inputs import StreamCreated
from streaming.simulator import StreamCreator, playing
from streaming.simulator.playing import ScenarioStalled


class Producer:
    """Reports each record as it was told to."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None
        self.reports: list[Any] = []

    def produce(self, *_: Any, on_delivery: Any, **__: Any) -> None:
        self.reports.append(on_delivery)

    def flush(self, _: float) -> None:
        message = SimpleNamespace(timestamp=lambda: (1, 5_000))
        for report in self.reports:
            report(self.error, message)
        self.reports = []


def test_a_refused_creation_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer()
    monkeypatch.setattr(playing, "make_producer", lambda *_: producer)
    create = StreamCreator("nowhere:1", "p.")
    stream = StreamCreated(stream="orders", sequence=1, shards=3, replication_factor=2)
    assert create(stream) == 5.0
    producer.error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ScenarioStalled, match=r"the creation of orders: .*Topic authorization"):
        create(stream)
