"""The stopwatch: events into Kafka, and when their answers can be read.

Time begins at the append time of the event's record as the broker stamped it (`LogAppendTime`,
which the input topics demand), since that is when the application could first see it; a producer's
acknowledgement comes later and would hide a part. It ends when a consumer in this process that
reads committed records has the decision in hand. Both are the same host's clock; the stamp is cut
to a millisecond, so that a figure is up to one too high.
"""

import random
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import orjson
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, TopicPartition

from schemas.envelope import encode_headers
from schemas.topics import NODE_TOPICS, full_name
from streaming.brokers import (
    CONNECT_TIMEOUT_SECONDS,
    CommittedReader,
    Record,
    make_producer,
    make_reader,
)
from tests.benchmarks.processes import BenchmarkFailed

INTERVAL_SECONDS = 0.3
# Without it every tenth event would meet a tick of the application, and always the same ones.
JITTER_SECONDS = 0.05
SHARDS, REPLICATION_FACTOR = 4, 3
# Spark's first batch takes 5 s; a later one that takes so long has failed.
ANSWER_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Said:
    """An event to send, and the token by which its answer is known."""

    token: str
    key: str
    body: dict[str, Any]


class Question(Protocol):
    """A kind of event whose answers are timed; topics are short names."""

    message: str
    topic: str
    answered_in: str

    def say(self, events: int) -> list[Said]:
        """So many new events."""

    def token(self, answer: Record) -> str:
        """Which event a record of `answered_in` answers."""


class Creations:
    """Streams are created; the decision is the answer."""

    message, topic, answered_in = "StreamCreated", "streams.v1", "decisions.v1"

    def say(self, events: int) -> list[Said]:
        """So many streams, each under a name of its own."""
        sizes = {"sequence": 1, "shards": SHARDS, "replication_factor": REPLICATION_FACTOR}
        names = [f"s-{uuid.uuid4().hex}" for _ in range(events)]
        return [Said(name, name, {"stream": name, **sizes}) for name in names]

    def token(self, answer: Record) -> str:
        """The stream's name."""
        return answer.key or ""


class Registrations:
    """Nodes register, and then again from another host; what is believed of them is the answer.

    They have room for nothing, so that nothing is planned for them.
    """

    message, topic, answered_in = "NodeRegistered", "nodes.v1", "topology.v1"

    def __init__(self, nodes: int) -> None:
        """At most `nodes` events at a time: a batch publishes a node's last state alone."""
        self._nodes = nodes
        self._sequence = count(1)

    def say(self, events: int) -> list[Said]:
        """The nodes that are next in turn, each in the life that it has had all along."""
        return [self._register(next(self._sequence)) for _ in range(events)]

    def _register(self, sequence: int) -> Said:
        node_id = f"probe{sequence % self._nodes}"
        body = {"node_id": node_id, "incarnation": "only", "sequence": sequence}
        # From the same host it would be nothing new, and nothing would be published.
        body |= {"location": "/z0/r0", "host": f"host{sequence}", "capacity": 0}
        return Said(f"{node_id}:{sequence}", node_id, body)

    def token(self, answer: Record) -> str:
        """The node and its sequence."""
        return f"{answer.key}:{(answer.value or {}).get('sequence')}"


class Probe:
    """Sends events of one kind to one subject and times the answers."""

    def __init__(self, bootstrap: str, prefix: str, question: Question) -> None:
        self._question = question
        self._topic = full_name(question.topic, prefix)
        topics = [question.answered_in]
        self._reader = CommittedReader(bootstrap, prefix, topics, from_beginning=False)
        self._producer = make_producer(bootstrap)
        self._random = random.Random(1)
        self._appended_ms: dict[str, int] = {}
        self._failure = ""

    @property
    def query(self) -> str:
        """The query that reads the events."""
        return "nodes" if self._question.topic in NODE_TOPICS else "requests"

    def close(self) -> None:
        """Leave the broker."""
        self._reader.close()

    def run(self, events: int, tell: Callable[[int], Any] = lambda _: None) -> list[float]:
        """Send so many events in their pace; returns their latencies in ms, in order."""
        said = self._question.say(events)
        sender = threading.Thread(target=self._send, args=(said,), name="events", daemon=True)
        sender.start()
        waiting = {each.token for each in said}
        read_ms: dict[str, float] = {}
        deadline = time.monotonic() + ANSWER_TIMEOUT_SECONDS
        while len(read_ms) < events:
            for record in self._reader.poll(0.1):
                now_ms = time.time_ns() / 1e6
                token = self._question.token(record)
                if token in waiting:
                    read_ms.setdefault(token, now_ms)
                    deadline = time.monotonic() + ANSWER_TIMEOUT_SECONDS
                    tell(len(read_ms))
            if self._failure or time.monotonic() > deadline:
                raise BenchmarkFailed(
                    self._failure or f"{events - len(read_ms)} of {events} events got no answer"
                )
        sender.join()
        return [read_ms[each.token] - self._appended_ms.pop(each.token) for each in said]

    def _send(self, said: Sequence[Said]) -> None:
        due = time.monotonic()
        for each in said:
            pause = due - time.monotonic()
            while pause > 0:
                # Waits by serving delivery reports.
                self._producer.poll(pause)
                pause = due - time.monotonic()
            self._produce(each)
            due += INTERVAL_SECONDS + self._random.uniform(-JITTER_SECONDS, JITTER_SECONDS)
        self._producer.flush(CONNECT_TIMEOUT_SECONDS)

    def _produce(self, said: Said) -> None:
        headers = encode_headers(
            self._question.message, cell="benchmark", id=said.token, subject=said.key, time_ms=0
        )

        def delivered(error: Any, message: Any) -> None:
            kind, appended_ms = message.timestamp()
            if error is not None or kind != TIMESTAMP_LOG_APPEND_TIME:
                self._failure = f"an event has no append time: {error or 'wrong topic settings'}"
            self._appended_ms[said.token] = appended_ms

        self._producer.produce(
            self._topic,
            orjson.dumps(said.body),
            said.key,
            headers=[*headers],
            on_delivery=delivered,
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
