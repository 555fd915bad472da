"""Reads and writes the ticks in the first partition of the nodes topic, where a cell's processes
see one another.
"""

import time
from collections.abc import Iterator, Mapping

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from schemas.inputs import STANDBY, TICK_KEY
from schemas.topics import NODES, full_name
from streaming.brokers import (
    CONNECT_TIMEOUT_SECONDS,
    find_offset,
    make_producer,
    make_reader,
    parse_json_object,
)
from streaming.errors import AccessRefused, BrokerUnreachable
from streaming.presence.ticks import TickAuthor, TickSeen, encode_tick

# The one partition that every process of a cell writes ticks to.
PARTITION = 0
# Taken at once: a partition takes 20,000 heartbeats a second.
_RECORDS_PER_CALL = 20_000
# How long one look for records waits, where an offset is awaited.
_POLL_SECONDS = 0.05


def read_tick(message: Message) -> TickSeen | None:
    """Read the tick of a record; None for any other record."""
    if message.key() != TICK_KEY.encode():
        return None
    return TickSeen.parse(message.timestamp()[1], parse_json_object(message.value()))


class TickLog:
    """Follows the ticks of all processes of a cell, and writes those of this one."""

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        author: TickAuthor,
        partitions: int,
        options: Mapping[str, str],
    ) -> None:
        """`partitions`: of the nodes topic, which ticks name. Raises BrokerUnreachable,
        AccessRefused."""
        self._topic = full_name(NODES, prefix)
        self._author, self._partitions = author, partitions
        self._writer = make_producer(bootstrap, options)
        self._reader = make_reader(bootstrap, options, fetch_wait_ms=50)
        self._number = 0
        # Offset and append time in ms of the newest tick of this process that was delivered.
        self._delivered: tuple[int, int] | None = None
        self._failed: KafkaError | None = None
        self._next = 0
        self._closed = False

    def open(self, window_ms: int) -> int:
        """Write a first tick, and begin to read `window_ms` before it; returns its offset."""
        offset, at = self.write_and_wait(STANDBY, None)
        self._next = find_offset(self._reader, self._topic, PARTITION, at - window_ms)
        self._reader.assign([TopicPartition(self._topic, PARTITION, self._next)])
        return offset

    def write(self, role: str, proven: int | None) -> None:
        """Write a tick without waiting for it. Raises AccessRefused."""
        self._writer.poll(0)
        self._raise_refused()
        self._number += 1
        value, headers = encode_tick(
            self._author, self._number, PARTITION, self._partitions, role, proven
        )
        try:
            self._writer.produce(
                self._topic,
                value,
                TICK_KEY,
                PARTITION,
                on_delivery=self._note_delivery,
                headers=headers,
            )
        except KafkaException as error:
            self._failed = error.args[0]
            self._raise_refused()
            raise

    def write_and_wait(self, role: str, proven: int | None) -> tuple[int, int]:
        """Write a tick; returns its offset and append time in ms. Raises BrokerUnreachable,
        AccessRefused."""
        self.write(role, proven)
        waiting = self._writer.flush(CONNECT_TIMEOUT_SECONDS)
        self._raise_refused()
        if waiting or self._delivered is None:
            raise BrokerUnreachable(
                f"{self._topic}-{PARTITION} took no tick within {CONNECT_TIMEOUT_SECONDS:g} s"
            )
        return self._delivered

    def read(self, timeout_seconds: float = 0.0) -> Iterator[TickSeen]:
        """Yield the ticks that have come, in order; waits for a record no longer than given."""
        found = self._reader.consume(_RECORDS_PER_CALL, timeout_seconds)
        for message in found:
            if message.error() is not None:
                continue
            offset = message.offset()
            assert offset is not None
            self._next = offset + 1
            tick = read_tick(message)
            if tick is not None:
                yield tick

    def read_to(self, offset: int) -> Iterator[TickSeen]:
        """Yield the ticks up to an offset, that of a tick which was written.

        Raises BrokerUnreachable where no record comes for CONNECT_TIMEOUT_SECONDS before that.
        """
        came_at = time.monotonic()
        while self._next <= offset:
            reached = self._next
            yield from self.read(_POLL_SECONDS)
            now = time.monotonic()
            if self._next > reached:
                came_at = now
            elif now - came_at > CONNECT_TIMEOUT_SECONDS:
                raise BrokerUnreachable(
                    f"{self._topic}-{PARTITION} brought no record for "
                    f"{CONNECT_TIMEOUT_SECONDS:g} s, though offset {offset} was written: its "
                    "broker does not answer, or a transaction that was begun before is still open"
                )

    def close(self) -> None:
        """Close both connections, once; a tick under way is written."""
        if not self._closed:
            self._closed = True
            self._writer.flush(1.0)
            self._reader.close()

    def _note_delivery(self, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            self._delivered = offset, int(message.timestamp()[1])
        else:
            # The offset of an earlier tick is not that of this one.
            self._delivered, self._failed = None, error

    def _raise_refused(self) -> None:
        failed = self._failed
        if failed is not None and failed.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise AccessRefused(
                f"this user may not write ticks to {self._topic}, without which a standby is not "
                "seen; `placer topics acls` lists the rights of each role"
            )
