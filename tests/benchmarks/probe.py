"""The stopwatch: stream creations into Kafka, and when their decisions can be read.

Time begins at the append time of the creation's record as the broker stamped it (`LogAppendTime`,
which the input topics demand), since that is when the application could first see it; a producer's
acknowledgement comes later and would hide a part. It ends when a consumer in this process that
reads committed records has the decision in hand. Both are the same host's clock; the stamp is cut
to a millisecond, so that a figure is up to one too high.
"""

import random
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import orjson
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, TopicPartition

from schemas.envelope import encode_headers
from schemas.topics import full_name
from streaming.clients import CONNECT_TIMEOUT_SECONDS, make_producer, make_reader
from streaming.records import CommittedReader
from tests.benchmarks.processes import BenchmarkFailed

INTERVAL_SECONDS = 0.3
# Without it every tenth event would meet a tick of the application, and always the same ones.
JITTER_SECONDS = 0.05
SHARDS, REPLICATION_FACTOR = 4, 3
# Spark's first batch takes 5 s; a later one that takes so long has failed.
ANSWER_TIMEOUT_SECONDS = 60.0


class Probe:
    """Sends events to one subject and times the answers."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._topic = full_name("streams.v1", prefix)
        self._reader = CommittedReader(bootstrap, prefix, ["decisions.v1"], from_beginning=False)
        self._producer = make_producer(bootstrap)
        self._random = random.Random(1)
        self._appended_ms: dict[str, int] = {}
        self._failure = ""

    def close(self) -> None:
        """Leave the broker."""
        self._reader.close()

    def run(self, events: int, tell: Callable[[int], Any] = lambda _: None) -> list[float]:
        """Send so many events in their pace; returns their latencies in ms, in order."""
        names = [f"s-{uuid.uuid4().hex}" for _ in range(events)]
        sender = threading.Thread(target=self._send, args=(names,), name="events", daemon=True)
        sender.start()
        read_ms: dict[str, float] = {}
        deadline = time.monotonic() + ANSWER_TIMEOUT_SECONDS
        while len(read_ms) < events:
            for record in self._reader.poll(0.1):
                now_ms = time.time_ns() / 1e6
                read_ms.setdefault(record.key or "", now_ms)
                deadline = time.monotonic() + ANSWER_TIMEOUT_SECONDS
                tell(len(read_ms))
            if self._failure or time.monotonic() > deadline:
                raise BenchmarkFailed(
                    self._failure or f"{events - len(read_ms)} of {events} events got no decision"
                )
        sender.join()
        return [read_ms[name] - self._appended_ms.pop(name) for name in names]

    def _send(self, names: list[str]) -> None:
        due = time.monotonic()
        for name in names:
            pause = due - time.monotonic()
            while pause > 0:
                # Waits by serving delivery reports.
                self._producer.poll(pause)
                pause = due - time.monotonic()
            self._produce(name)
            due += INTERVAL_SECONDS + self._random.uniform(-JITTER_SECONDS, JITTER_SECONDS)
        self._producer.flush(CONNECT_TIMEOUT_SECONDS)

    def _produce(self, name: str) -> None:
        said = {
            "stream": name,
            "sequence": 1,
            "shards": SHARDS,
            "replication_factor": REPLICATION_FACTOR,
        }
        headers = encode_headers(
            "StreamCreated", cell="benchmark", id=name, subject=name, time_ms=0
        )

        def delivered(error: Any, message: Any) -> None:
            kind, appended_ms = message.timestamp()
            if error is not None or kind != TIMESTAMP_LOG_APPEND_TIME:
                self._failure = f"an event has no append time: {error or 'wrong topic settings'}"
            self._appended_ms[name] = appended_ms

        self._producer.produce(
            self._topic, orjson.dumps(said), name, headers=[*headers], on_delivery=delivered
        )


class Appended:
    """How many records a topic's first partition took since the last call."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer: Consumer = make_reader(bootstrap)
        self._place = TopicPartition(topic, 0)
        self._last = self._end()

    def per_second(self) -> float:
        """Records a second."""
        before, self._last = self._last, self._end()
        return (self._last[0] - before[0]) / (self._last[1] - before[1])

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def _end(self) -> tuple[int, float]:
        _, end = self._consumer.get_watermark_offsets(self._place, CONNECT_TIMEOUT_SECONDS)
        return end, time.monotonic()
