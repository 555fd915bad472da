"""Reads committed records of our topics back: for `placer watch`, the executor, demo and tests.

A `CommittedReader` stands outside of the pipeline: it joins no group, commits nothing and sees
what any consumer with `isolation.level=read_committed` sees.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import orjson
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from schemas.topics import full_name
from streaming.brokers.clients import make_reader, present_partitions
from streaming.brokers.offsets import read_watermarks
from streaming.errors import AccessRefused, BrokerUnreachable, StreamingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streaming.brokers.reachability import Reachability

Positions = Mapping[str, Mapping[int, int]]

# Taken from the client's queue at once: enough to amortise the call, small against memory.
RECORDS_PER_CALL_MAX = 10_000
# Without progress for so long the broker has gone; it answers an idle fetch within 0.1 s.
STALL_TIMEOUT_SECONDS = 30.0


class KeyMissing(StreamingError):
    """A record of a compacted topic has no key."""


@dataclass(frozen=True, slots=True)
class Record:
    """Holds one committed record. `value` is None for a tombstone and for a value that is no JSON
    object; `raw` tells them apart: None, or the bytes. `key` and `headers` are text for people,
    `raw_key` and `raw_headers` the bytes that were written."""

    topic: str
    """Short name, without the prefix: `moves.v1`."""
    partition: int
    offset: int
    key: str | None
    value: dict[str, Any] | None
    headers: dict[str, str]
    timestamp_ms: int
    raw: bytes | None
    raw_key: bytes | None = None
    raw_headers: tuple[tuple[str, bytes | None], ...] = ()

    @classmethod
    def of(
        cls,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
    ) -> Record:
        """The record as it was written."""
        return cls(
            topic=topic,
            partition=partition,
            offset=offset,
            key=None if key is None else _text(key),
            value=parse_json_object(value),
            headers={name: _text(content or b"") for name, content in headers},
            timestamp_ms=timestamp_ms,
            raw=value,
            raw_key=key,
            raw_headers=headers,
        )


class RecordBytes(NamedTuple):
    """A committed record as it was written, for those who read a million. `topic`: short name;
    `value`: None for a tombstone."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class CommittedReader:
    """Follows topics, given by short name, from their beginning or from now on.

    "Now" is settled before the constructor returns: what is committed afterwards will be seen.
    Records of one partition come in their order, those of several partitions in any.
    Not to be shared by threads. Raises BrokerUnreachable or TopicMissing.
    """

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        topics: Sequence[str],
        *,
        from_beginning: bool = True,
        positions: Positions | None = None,
        options: Mapping[str, str] | None = None,
        reachability: Reachability | None = None,
    ) -> None:
        """`positions`: next offset by topic and partition; what it does not name begins as
        `from_beginning` says. `reachability` tells when the brokers go and come back; while
        none answers, reading to the ends raises BrokerUnreachable at once."""
        self._consumer = make_reader(bootstrap, options, on_error=reachability)
        self._bootstrap, self._reachability = bootstrap, reachability
        self._short_names = {full_name(topic, prefix): topic for topic in topics}
        self._partitions = [
            (name, partition)
            for name in self._short_names
            for partition in present_partitions(self._consumer, name)
        ]
        # Next offset to read by partition. Control records move it too, so that it reaches the
        # end of a partition that closes with the marker of a transaction.
        self._next: dict[tuple[str, int], int] = {}
        places = []
        for name, partition in self._partitions:
            known = (positions or {}).get(self._short_names[name], {}).get(partition)
            if known is None and not from_beginning:
                known = self.end(name, partition)
            self._next[name, partition] = known or 0
            start = OFFSET_BEGINNING if known is None else known
            places.append(TopicPartition(name, partition, start))
        self._consumer.assign(places)

    @property
    def positions(self) -> dict[str, dict[int, int]]:
        """Next offset to read, by topic and partition."""
        found: dict[str, dict[int, int]] = {}
        for (name, partition), offset in self._next.items():
            found.setdefault(self._short_names[name], {})[partition] = offset
        return found

    @property
    def lag(self) -> dict[str, int]:
        """Records between the reader and the ends of its topics, by topic, as the last fetches have
        shown the ends; no broker is asked. What open transactions hold back counts."""
        found = dict.fromkeys(self._short_names.values(), 0)
        for (name, partition), offset in self._next.items():
            place = TopicPartition(name, partition)
            _, end = self._consumer.get_watermark_offsets(place, cached=True)
            found[self._short_names[name]] += max(0, end - offset)
        return found

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """By partition the offset of the oldest record kept, and that behind the newest."""
        return {
            partition: read_watermarks(self._consumer, name, partition)
            for name, partition in self._partitions
            if self._short_names[name] == topic
        }

    def poll(self, timeout_seconds: float) -> list[Record]:
        """The next records; empty when none came within the time."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            remaining = max(0.0, deadline - time.monotonic())
            first = self._consumer.poll(remaining)
            if first is None:
                self._look()
                return []
            # What has come meanwhile, without waiting for more.
            messages = [first, *self._consumer.consume(RECORDS_PER_CALL_MAX, timeout=0)]
            records = [self._record(message) for message in messages if self._advance(message)]
            if records:
                return records

    def poll_bytes(self, timeout_seconds: float) -> list[RecordBytes]:
        """The next records without headers, nothing of them parsed; empty when none came within
        the time, or only ends of partitions did."""
        messages: Any = self._consumer.consume(RECORDS_PER_CALL_MAX, timeout=0)
        if not messages:
            messages = self._consumer.consume(1, timeout=timeout_seconds)
        if not messages:
            self._look()
        names = self._short_names
        return [
            RecordBytes(
                names[each.topic()], each.partition(), each.offset(), each.key(), each.value()
            )
            for each in messages
            if self._advance(each)
        ]

    def read_to_end(self) -> list[Record]:
        """All records from where the reader stands up to the ends as they are now.

        A transaction that is still open holds back its partition: the end is where it began.
        """
        return [*self.records_to_end()]

    def read_span(self, topic: str, ends: Mapping[int, int]) -> list[Record]:
        """The records of a topic's partitions from where the reader stands to before some offsets,
        which exist."""
        name = next(full for full, short in self._short_names.items() if short == topic)
        wanted = {(name, partition): end for partition, end in ends.items()}
        found = [
            self._record(each)
            for messages in self._consume_to(wanted)
            for each in messages
            if self._advance(each) and each.offset() < wanted.get((name, each.partition()), 0)
        ]
        return [each for each in found if each.topic == topic]

    def records_to_end(self) -> Iterator[Record]:
        """Yield the records of `read_to_end` one by one, for topics of which few records are
        kept."""
        for messages in self._consume_to_end():
            yield from (self._record(each) for each in messages if self._advance(each))

    def read_latest(self) -> dict[str, dict[bytes, bytes]]:
        """The last value of every key up to the ends as they are now, by topic; tombstones take
        theirs away. Raises KeyMissing for a record without a key."""
        latest = self.read_changes()
        for values in latest.values():
            for key in [key for key, value in values.items() if value is None]:
                del values[key]
        return cast("dict[str, dict[bytes, bytes]]", latest)

    def read_changes(self) -> dict[str, dict[bytes, bytes | None]]:
        """Read the last value of every key from the reader's position to the present ends. By
        topic; None for a tombstone. A million records take a few seconds, so nothing is parsed
        here. Raises KeyMissing for a record without a key."""
        latest: dict[str, dict[bytes, bytes | None]] = {name: {} for name in self._short_names}
        for messages in self._consume_to_end():
            for message in messages:
                key = message.key()
                if key is not None:
                    latest[message.topic()][key] = message.value()
                elif self._advance(message):
                    place = f"{message.topic()}-{message.partition()} offset {message.offset()}"
                    raise KeyMissing(f"{place} was not written by placer: the record has no key")
            self._advance_all()
        return {self._short_names[name]: values for name, values in latest.items()}

    def _consume_to_end(self) -> Iterator[list[Any]]:
        """Messages up to the ends as they are now; `_advance` has to see each, or at least those
        that are no records, and `_advance_all` all others."""
        if self._reachability is not None:
            # The client hands over what its connections reported together with records.
            yield self._consumer.consume(RECORDS_PER_CALL_MAX, timeout=0)
            self._look(raises=True)
        yield from self._consume_to(
            {partition: self.end(*partition) for partition in self._partitions}
        )

    def _consume_to(self, ends: Mapping[tuple[str, int], int]) -> Iterator[list[Any]]:
        reached = sum(self._next.values())
        deadline = time.monotonic() + STALL_TIMEOUT_SECONDS
        while any(self._next[partition] < end for partition, end in ends.items()):
            yield self._consumer.consume(RECORDS_PER_CALL_MAX, timeout=0.1)
            if sum(self._next.values()) > reached:
                reached = sum(self._next.values())
                deadline = time.monotonic() + STALL_TIMEOUT_SECONDS
                continue
            self._look(raises=True)
            if time.monotonic() > deadline:
                raise StreamingError(
                    f"the broker returned no record for {STALL_TIMEOUT_SECONDS:g} s before "
                    "the end of the topics was reached; see: placer doctor"
                )

    def close(self) -> None:
        """Leave the broker; the reader cannot be used any more."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def end(self, topic: str, partition: int) -> int:
        """The offset behind the last committed record of a partition, of any topic by its full
        name. Raises BrokerUnreachable."""
        try:
            return read_watermarks(self._consumer, topic, partition)[1]
        except BrokerUnreachable:
            if self._reachability is not None:
                self._reachability.doubt()
            raise

    def _look(self, *, raises: bool = False) -> None:
        """Tell whether the brokers have gone or come back. With `raises` BrokerUnreachable is
        raised while none answers."""
        if self._reachability is None:
            return
        self._reachability.look(self._consumer)
        if raises and self._reachability.is_away:
            raise BrokerUnreachable(f"no broker answers at {self._bootstrap}")

    def _advance(self, message: Any) -> bool:
        """Note how far the partition was read; True when `message` is a record."""
        error = message.error()
        if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return False  # the client looks for its group's coordinator; we join no group
        if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise AccessRefused(
                f"this user has not, or no longer, the right Read on topic {message.topic()}; "
                "`placer topics acls` lists the rights of each role"
            )
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            raise StreamingError(f"{message.topic()} cannot be read: {error.str()}")
        at_end = error is not None
        place = (message.topic(), message.partition())
        offset = message.offset() + (not at_end)
        if offset > self._next[place]:
            self._next[place] = offset
        return not at_end

    def _advance_all(self) -> None:
        """Note how far all records were read that the client has handed over."""
        for at in self._consumer.position([TopicPartition(*place) for place in self._partitions]):
            place = (at.topic, at.partition)
            # Nothing was read there yet where the offset is below 0.
            self._next[place] = max(self._next[place], at.offset)

    def _record(self, message: Any) -> Record:
        return Record.of(
            self._short_names[message.topic()],
            message.partition(),
            message.offset(),
            message.timestamp()[1],
            message.key(),
            message.value(),
            read_headers(message),
        )


def read_headers(message: Any) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of a message; none of them where a name is not UTF-8, for which the client raises
    an error. Brokers take any bytes for a name."""
    try:
        return tuple(message.headers() or ())
    except (SystemError, UnicodeDecodeError):
        return ()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def parse_json_object(raw: bytes | None) -> dict[str, Any] | None:
    """The JSON object that is written there; None where there is none."""
    try:
        value = orjson.loads(raw) if raw is not None else None
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
