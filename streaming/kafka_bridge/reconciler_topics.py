"""Reads the reconciler's topics into `Tables`, and sends it what the bridge has to say.

Records are committed ones (read_committed). Those of one transaction lie in two topics and may come
one after the other: the tables are then apart for a moment, which `desired` waits out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from schemas.base import Message
from schemas.envelope import encode_headers
from schemas.topics import CATALOGUE, full_name
from streaming.brokers import CommittedReader, Reachability, make_producer
from streaming.errors import BrokerUnreachable
from streaming.kafka_bridge.tables import READ_TOPICS, Tables

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka import Message as Delivered

TOPIC_OF = {
    name: topic.name for topic in CATALOGUE if topic.direction == "in" for name in topic.messages
}
# What is seen in one look travels in one request, so that the reconciler reads it in one batch.
LINGER_MS = 5
# A leader of a partition that died has a successor within Kafka's session timeout of 9 s.
DELIVERY_TIMEOUT_SECONDS = 15.0


class ReconcilerTopics(Protocol):
    """The reconciler's side of the bridge. All raise StreamingError."""

    def open(self) -> Tables:
        """Read the topics to their present ends, into tables that `follow` keeps up to date."""

    def follow(self, timeout_seconds: float) -> int:
        """Fold what is new into the tables; return its count, at once where there is any."""

    def send(self, messages: Sequence[Message], at: int) -> None:
        """Send messages of the time `at` in ms; return when the brokers have all of them."""

    def close(self) -> None:
        """Let the clients go; `open` connects again."""


class KafkaTopics:
    """`ReconcilerTopics` over confluent-kafka; `tell` hears when brokers go and come back."""

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        tell: Callable[[str], None],
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._bootstrap, self._prefix, self._options = bootstrap, prefix, options
        self._reachability = Reachability(bootstrap, tell)
        self._tables = Tables()
        self._reader: CommittedReader | None = None
        self._producer: Any = None

    def open(self) -> Tables:
        """See ReconcilerTopics."""
        self.close()
        self._tables = tables = Tables()
        self._reader = reader = CommittedReader(
            self._bootstrap,
            self._prefix,
            READ_TOPICS,
            options=self._options,
            reachability=self._reachability,
        )
        for topic, records in reader.read_latest().items():
            for key, value in records.items():
                tables.take(topic, key.decode(), value)
        return tables

    def follow(self, timeout_seconds: float) -> int:
        """See ReconcilerTopics."""
        assert self._reader is not None, "open() comes first"
        records = self._reader.poll(timeout_seconds)
        for each in records:
            self._tables.take(each.topic, each.key or "", each.raw)
        return len(records)

    def send(self, messages: Sequence[Message], at: int) -> None:
        """See ReconcilerTopics."""
        if not messages:
            return
        if self._producer is None:
            self._producer = make_producer(self._bootstrap, self._options, LINGER_MS)
        failed: list[str] = []

        def note(error: "KafkaError | None", _: "Delivered") -> None:
            if error is not None:
                failed.append(error.str())

        for message in messages:
            name, key = type(message).__name__, message.record_key()
            self._producer.produce(
                full_name(TOPIC_OF[name], self._prefix),
                encode_body(message),
                key.encode(),
                headers=encode_headers(
                    name, cell="kafka-bridge", id=f"{name}:{key}:{at}", subject=key, time_ms=at
                ),
                on_delivery=note,
            )
        waiting = self._producer.flush(DELIVERY_TIMEOUT_SECONDS)
        if waiting or failed:
            # What waits in the client would be sent late, when something else is true.
            self._producer.purge()
            self._producer = None
            why = failed[0] if failed else f"no answer within {DELIVERY_TIMEOUT_SECONDS:g} s"
            raise BrokerUnreachable(f"what was seen does not reach the reconciler's topics: {why}")

    def close(self) -> None:
        """See ReconcilerTopics."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def encode_body(message: Message) -> bytes:
    """Encode the value of an input record; absent fields are left out."""
    body = message.model_dump(mode="json")
    return orjson.dumps({field: value for field, value in body.items() if value is not None})
