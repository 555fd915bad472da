"""Counts the input records that no commit has taken in yet, for all viewers together."""

import threading
import time

from confluent_kafka import Consumer

from schemas.topics import COMMITS, INPUT_TOPICS, full_name
from streaming.brokers import make_reader, read_watermarks
from streaming.errors import StreamingError
from streaming.read_model import ReadModel
from streaming.settings import Settings

# Some ten requests to the brokers; people see no more.
LAG_SECONDS = 2.0


class InputLag:
    """The lag of a model's cell, counted again when it is old."""

    def __init__(self, settings: Settings, model: ReadModel) -> None:
        self._settings, self._model = settings, model
        self._lock = threading.Lock()
        self._counted_at: float | None = None
        self._lag: int | None = None

    def __call__(self) -> int | None:
        """Count it; its own ticks, one a second, are among the records. None while no broker
        answers, or where this user may not read the inputs."""
        with self._lock:
            now = time.monotonic()
            if self._counted_at is None or now - self._counted_at > LAG_SECONDS:
                self._counted_at = now
                self._lag = None if self._model.fault is not None else self._count()
            return self._lag

    def _count(self) -> int | None:
        settings = self._settings
        try:
            marker = self._model.take_snapshot()[1].latest[COMMITS][settings.cell]
            reader = make_reader(
                settings.kafka.bootstrap_servers, settings.resolved_kafka_options()
            )
            try:
                return sum(
                    max(self._end(reader, topic, int(partition)) - position, 0)
                    for topic in INPUT_TOPICS
                    for partition, position in marker["positions"].get(topic, {}).items()
                )
            finally:
                reader.close()
        except StreamingError:
            return None

    def _end(self, reader: Consumer, topic: str, partition: int) -> int:
        name = full_name(topic, self._settings.topics.prefix)
        return read_watermarks(reader, name, partition)[1]
