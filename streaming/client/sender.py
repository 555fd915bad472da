"""Writes input messages: checked before they are sent, in order per key, sent until they arrive.

The requester and the node's agent each have a `Sender`; the executor writes its records under its
locks (`node_locks.py`). The producer is idempotent and waits for all copies, and for brokers that
are away as long as it lives; a record that it gives up all the same is sent again.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from confluent_kafka import KafkaError
from pydantic import ValidationError

from schemas.base import Message, describe
from schemas.envelope import encode_headers
from schemas.topics import full_name
from streaming.brokers import ProducerRecord, make_producer
from streaming.errors import AccessRefused, StreamingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Message as SentMessage

LOG = logging.getLogger("streaming.client")
# A broker that restarts is back well before.
FLUSH_TIMEOUT_SECONDS = 30.0
# The client would give a record up after five minutes, and what is sent again comes behind later
# records of its key. Both are names of one option.
_NO_TIMEOUT = {"message.timeout.ms": "0", "delivery.timeout.ms": "0"}
# A full queue of the client is given so long to drain before a record is tried again.
QUEUE_FULL_WAIT_SECONDS = 0.01

# Errors that no repetition mends: somebody has to give a right.
_REFUSALS = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
)

_Model = TypeVar("_Model", bound=Message)


class MessageRefused(StreamingError):
    """A message would be refused by the reconciler; the text names the field and what it takes."""


class NotDelivered(StreamingError):
    """Records have not reached a broker in time. They may still arrive, and none of them twice."""


class Sender:
    """Sends messages of one client to the topics under a prefix. Safe for threads.

    Raises BrokerUnreachable, ConnectionUntrusted, AccessRefused when it is made.
    """

    def __init__(
        self, bootstrap: str, prefix: str, name: str, options: Mapping[str, str] | None = None
    ) -> None:
        """`name`: who speaks, for the records' source."""
        self._prefix, self._name = prefix, name
        self._producer = make_producer(bootstrap, {**(options or {}), **_NO_TIMEOUT})
        self._lock = threading.Lock()
        self._unconfirmed = 0
        self._refusal: AccessRefused | None = None

    @property
    def unconfirmed(self) -> int:
        """Count the records that no broker has confirmed yet."""
        return self._unconfirmed

    def send(self, topic: str, message: Message, identity: str | None = None) -> None:
        """Put a message in the queue, and return. `topic`: its short name; `identity`: the record's
        id, which a repetition shares. Raises AccessRefused where an earlier record was refused,
        NotDelivered where the queue stays full."""
        self._raise_refusal()
        record = encode_record(self._prefix, self._name, topic, message, identity)
        with self._lock:
            self._unconfirmed += 1
        try:
            self._produce(*record)
        except BaseException:
            with self._lock:
                self._unconfirmed -= 1
            raise

    def poll(self) -> None:
        """Take note of what has arrived; to be called now and then. Raises AccessRefused."""
        self._producer.poll(0)
        self._raise_refusal()

    def flush(self, timeout_seconds: float = FLUSH_TIMEOUT_SECONDS) -> None:
        """Wait until everything has arrived. Raises NotDelivered, AccessRefused."""
        deadline = time.monotonic() + timeout_seconds
        while self._unconfirmed and time.monotonic() < deadline:
            self._producer.flush(max(0.0, deadline - time.monotonic()))
        self._raise_refusal()
        if self._unconfirmed:
            raise self._not_delivered(timeout_seconds)

    def _not_delivered(self, timeout_seconds: float) -> NotDelivered:
        return NotDelivered(
            f"{self._unconfirmed} records of {self._name} have not reached a broker within "
            f"{timeout_seconds:g} s; look whether the brokers answer, then try again"
        )

    def _raise_refusal(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _produce(
        self, topic: str, key: bytes, value: bytes, headers: tuple[tuple[str, bytes | None], ...]
    ) -> None:
        def note(error: KafkaError | None, _: SentMessage) -> None:
            if error is None or error.code() in _REFUSALS:
                with self._lock:
                    self._unconfirmed -= 1
                if error is not None:
                    self._refusal = AccessRefused(
                        f"{self._name} has not, or no longer, the right Write on topic {topic} "
                        f"({error.str()}); `placer topics acls` lists the rights of each role: "
                        "give it back, then start again"
                    )
                return
            LOG.warning("a record of %s to %s is sent again: %s", self._name, topic, error.str())
            self._produce(topic, key, value, headers)

        deadline = time.monotonic() + FLUSH_TIMEOUT_SECONDS
        while True:
            try:
                self._producer.produce(topic, value, key, headers=[*headers], on_delivery=note)
            except BufferError:
                if time.monotonic() > deadline:
                    raise self._not_delivered(FLUSH_TIMEOUT_SECONDS) from None
                self._producer.poll(QUEUE_FULL_WAIT_SECONDS)
            else:
                return


def encode_record(
    prefix: str, name: str, topic: str, message: Message, identity: str | None = None
) -> ProducerRecord:
    """Encode a message as a record of a topic, given by its short name. `name`: who speaks;
    `identity`: the record's id, which a repetition shares."""
    key = message.record_key()
    headers = encode_headers(
        type(message).__name__,
        cell=name,
        id=identity or uuid.uuid4().hex,
        subject=key,
        time_ms=now_ms(),
    )
    value = orjson.dumps(message.model_dump(mode="json", exclude_none=True))
    return ProducerRecord(full_name(topic, prefix), key.encode(), value, (*headers,))


def make_message(kind: type[_Model], fields: Mapping[str, Any]) -> _Model:
    """Make a message; fields that are None are left out. Raises MessageRefused."""
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise MessageRefused(f"{kind.__name__}: {describe(error, given)[1]}") from error


def now_ms() -> int:
    """Return the time in ms since the epoch, UTC."""
    return time.time_ns() // 1_000_000
