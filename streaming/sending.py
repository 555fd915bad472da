"""Makes input records of the command line, checks them as the reconciler will, sends them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from schemas.envelope import Headers, Refusal, decode, encode_headers, validate
from schemas.topics import full_name
from streaming.brokers import make_producer, present_partitions
from streaming.errors import StreamingError
from streaming.settings import Settings

# A record takes milliseconds; after this the broker has gone.
DELIVERY_TIMEOUT_SECONDS = 10.0


class RecordRefused(StreamingError):
    """The reconciler would not take the record; the message names the field."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """An input record that the reconciler would take. `topic` is the short name."""

    topic: str
    key: str
    value: bytes
    headers: Headers


@dataclass(frozen=True, slots=True)
class SentRecord:
    """Where a record went. `topic` is the short name."""

    topic: str
    partition: int
    offset: int


def now_ms() -> int:
    """Return the time in ms since the epoch. As a sequence it rises from one command to the next,
    also over restarts of everything."""
    return time.time_ns() // 1_000_000


def make_record(
    topic: str, message: str, key: str, fields: Mapping[str, Any], cell: str, identity: str
) -> OutgoingRecord:
    """The record of a message; fields that are None are left out. Raises RecordRefused."""
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        value = orjson.dumps(given)
    except TypeError as error:
        raise RecordRefused(f"{message} cannot be written as JSON: {error}") from error
    headers = encode_headers(message, cell=cell, id=identity, subject=key, time_ms=now_ms())
    envelope = decode(value, headers)
    checked = envelope if isinstance(envelope, Refusal) else validate(envelope, key.encode(), topic)
    if isinstance(checked, Refusal):
        raise RecordRefused(f"{checked.code}: {checked.detail}")
    return OutgoingRecord(topic, key, value, headers)


def send_records(settings: Settings, records: Sequence[OutgoingRecord]) -> list[SentRecord]:
    """Send records in their order, and wait until the broker has all of them. Raises
    BrokerUnreachable, TopicMissing, StreamingError."""
    prefix = settings.topics.prefix
    producer = make_producer(settings.kafka.bootstrap_servers, settings.resolved_kafka_options())
    for topic in {record.topic for record in records}:
        present_partitions(producer, full_name(topic, prefix))
    ends: list[tuple[Any, Any]] = [("no answer from the broker", None)] * len(records)
    for index, record in enumerate(records):

        def note(fault: Any, sent: Any, index: int = index) -> None:
            ends[index] = (fault, sent)

        producer.produce(
            full_name(record.topic, prefix),
            record.value,
            record.key.encode(),
            headers=[*record.headers],
            on_delivery=note,
        )
    producer.flush(DELIVERY_TIMEOUT_SECONDS)
    sent = []
    for record, (fault, message) in zip(records, ends, strict=True):
        if fault is not None or message is None:
            name = full_name(record.topic, prefix)
            raise StreamingError(f"the record of {record.key} did not reach {name}: {fault}")
        sent.append(SentRecord(record.topic, message.partition(), message.offset()))
    return sent
