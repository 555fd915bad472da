"""Makes the Kafka clients for records, all alike: quiet, patient, and sure that a broker is there.

Used by everything that reads or writes records outside the transactional outbox: the fleet, the
executor, `placer send` and `placer watch`. The outbox has its own producer, whose every setting is
part of the delivery guarantee.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from streaming.brokers import tls
from streaming.errors import (
    AccessRefused,
    BrokerUnreachable,
    ConnectionUntrusted,
    SettingsInvalid,
    StreamingError,
)
from streaming.settings import TIMEOUT_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    ErrorCallback = Callable[[KafkaError], None]

# A broker that has just started or is busy on two cores answers within a second or two; a refused
# connection ends the wait at once.
CONNECT_TIMEOUT_SECONDS = 10.0
# A million assignments take 4 s; a transaction that is open longer than this belongs to a dead
# writer, and readers of committed records should not wait for it.
TRANSACTION_TIMEOUT_MS = 30_000
FENCE_TIMEOUT_SECONDS = 60.0
# How often the wait for metadata looks whether all connections were refused.
METADATA_TIMEOUT_SECONDS = 1.0

# librdkafka would write connection failures to standard error in its own format; the errors that
# matter reach us as exceptions and callbacks.
_QUIET = logging.getLogger("streaming.brokers.clients.librdkafka")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


_Answer = TypeVar("_Answer")


class TopicMissing(StreamingError):
    """A topic that is to be read or written does not exist."""


class CallHangs(BrokerUnreachable):
    """A call of a client did not return within its time."""


class _LastError:
    """The last error of a client's connections, as its error callback told it. Once the client is
    connected its errors are the affair of `then`."""

    def __init__(self) -> None:
        self.text = ""
        self.then: ErrorCallback | None = None
        self.all_brokers_down = False
        self.refused = False

    def __call__(self, error: KafkaError) -> None:
        if self.then is not None:
            self.then(error)
        if error.code() == KafkaError._AUTHENTICATION:  # noqa: SLF001 - its public name
            self.refused = True
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - its public name
            self.all_brokers_down = True
        else:
            self.text = error.str()


def make_producer(
    bootstrap: str,
    options: Mapping[str, str] | None = None,
    linger_ms: int = 0,
    on_error: ErrorCallback | None = None,
) -> Producer:
    """A connected idempotent producer, so that one key's records keep their order in retries.

    `on_error` hears the faults of its connections, in its polls.

    Raises BrokerUnreachable, ConnectionUntrusted, AccessRefused; SettingsInvalid when the client
    refuses `options`.
    """
    return connect(
        Producer,
        bootstrap,
        {
            "enable.idempotence": True,
            "linger.ms": linger_ms,
            # As Java's clients do it, so that everyone puts a key into the same partition.
            "partitioner": "murmur2_random",
        },
        options,
        on_error,
    )


def make_reader(
    bootstrap: str,
    options: Mapping[str, str] | None = None,
    fetch_wait_ms: int = 100,
    on_error: ErrorCallback | None = None,
    pause_ms: int | None = None,
) -> Consumer:
    """A connected consumer of committed records, without a group: it is to be assigned.

    The broker answers a fetch as soon as there is one byte, and an idle one after `fetch_wait_ms`.
    `pause_ms`: how long fetching rests after one that brought something, for a reader whom many
    records a second would cost a fetch for a few each; by default it reads ahead.
    `on_error` hears the faults of its connections, in its polls.

    Raises BrokerUnreachable, ConnectionUntrusted, AccessRefused; SettingsInvalid when the client
    refuses `options`.
    """
    return connect(
        Consumer,
        bootstrap,
        {
            # librdkafka asks for a group even where none is joined and nothing is committed.
            "group.id": "placer-reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": fetch_wait_ms,
            # How long fetching rests while the client's queue is full. A full queue is read in
            # 0.2 s; with a rest of 1 s, the client's own, most of a rebuild would be waiting.
            "fetch.queue.backoff.ms": 10 if pause_ms is None else pause_ms,
            **({} if pause_ms is None else {"queued.min.messages": 1}),
        },
        options,
        on_error,
    )


def connect(
    kind: type[Any],
    bootstrap: str,
    needed: dict[str, Any],
    options: Mapping[str, str] | None,
    on_error: ErrorCallback | None = None,
) -> Any:
    last_error = _LastError()
    config = {
        **TIMEOUT_OPTIONS,
        **(options or {}),
        **needed,
        "bootstrap.servers": bootstrap,
        "error_cb": last_error,
    }
    try:
        client = kind(config, logger=_QUIET)
    except KafkaException as error:
        raise SettingsInvalid(
            [f"kafka.options: the Kafka client rejects a setting: {_text(error)}"]
        ) from error
    deadline = time.monotonic() + CONNECT_TIMEOUT_SECONDS
    while True:
        try:
            client.list_topics(timeout=METADATA_TIMEOUT_SECONDS)
        except KafkaException as error:
            client.poll(0)  # hands over what the connections reported
            if last_error.refused:
                raise AccessRefused(
                    f"the brokers at {bootstrap} refuse to authenticate this user: "
                    f"{last_error.text}"
                ) from error
            if last_error.all_brokers_down or time.monotonic() > deadline:
                _check_trust(bootstrap, options or {}, error)
                raise BrokerUnreachable(
                    f"no broker answers at {bootstrap}: {last_error.text or _text(error)}"
                ) from error
        else:
            last_error.then = on_error
            return client


def _check_trust(bootstrap: str, options: Mapping[str, str], error: Exception) -> None:
    """Raise ConnectionUntrusted where it is TLS that keeps the client out."""
    found = tls.find_fault(bootstrap, options)
    if found is not None:
        raise ConnectionUntrusted(found) from error


def present_partitions(client: Any, topic: str) -> list[int]:
    """The partitions of the topic of this full name, in order.

    Raises TopicMissing, AccessRefused or BrokerUnreachable.
    """
    try:
        found = client.list_topics(topic, timeout=CONNECT_TIMEOUT_SECONDS).topics[topic]
    except KafkaException as error:
        raise BrokerUnreachable(f"topic {topic} cannot be looked up: {_text(error)}") from error
    if found.error is not None and found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise AccessRefused(
            f"this user may not use topic {topic}; `placer topics acls` lists the "
            "rights of each role"
        )
    if found.error is not None:
        raise TopicMissing(
            f"topic {topic} does not exist; create the topics with: placer topics apply"
        )
    return sorted(found.partitions)


def _text(error: KafkaException) -> str:
    first = error.args[0] if error.args else error
    return str(first.str() if isinstance(first, KafkaError) else first)


def call_within(timeout_seconds: float, doing: str, call: Callable[[], _Answer]) -> _Answer:
    """Call on a thread of its own, which is left behind where it does not return in time.

    For calls of clients whose own timeouts do not hold. `doing`: the call in words, for a person.
    Raises CallHangs, and whatever the call raises.
    """
    answers: list[_Answer] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            failures.append(error)

    thread = threading.Thread(target=run, name="bounded-call", daemon=True)
    thread.start()
    thread.join(timeout_seconds)
    if thread.is_alive():
        raise CallHangs(f"the call to {doing} has not returned for {timeout_seconds:g} s")
    if failures:
        raise failures[0]
    return answers[0]
