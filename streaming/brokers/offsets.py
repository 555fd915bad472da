"""Asks brokers patiently where partitions begin and end, for readers, the start and `status`.

A partition has no leader for a moment when it is new and when its broker changes; whoever asks
then is told so, and asks again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from streaming.brokers.clients import CONNECT_TIMEOUT_SECONDS
from streaming.errors import BrokerUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confluent_kafka import Consumer, IsolationLevel
    from confluent_kafka.admin import AdminClient

LEADER_CHANGES = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
# Between two questions for the end of such a partition.
LEADER_WAIT_SECONDS = 0.05

_Answer = TypeVar("_Answer")


def read_watermarks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first offset and the one behind the last record that the consumer may read. Raises
    BrokerUnreachable."""
    place = TopicPartition(topic, partition)
    first, end = _ask_patiently(
        lambda: consumer.get_watermark_offsets(place, timeout=CONNECT_TIMEOUT_SECONDS), topic
    )
    return first, end


def find_offset(consumer: Consumer, topic: str, partition: int, at_ms: int) -> int:
    """Find the offset of the first record appended at or after a time, else the one behind the
    last record. Raises BrokerUnreachable."""
    place = TopicPartition(topic, partition, max(at_ms, 0))
    found = _ask_patiently(
        lambda: consumer.offsets_for_times([place], timeout=CONNECT_TIMEOUT_SECONDS)[0], topic
    )
    if found.error is None and found.offset >= 0:
        return int(found.offset)
    return read_watermarks(consumer, topic, partition)[1]


def read_end_offsets(
    admin: AdminClient,
    places: Sequence[TopicPartition],
    isolation: IsolationLevel,
    timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
) -> dict[tuple[str, int], int]:
    """Read the offset after the last record of each place, as a reader of that isolation level sees
    it. Raises BrokerUnreachable; a client that lives on may go on asking a leader of before then,
    and should be replaced."""

    def ask() -> dict[tuple[str, int], int]:
        asked = admin.list_offsets(
            {place: OffsetSpec.latest() for place in places},
            isolation_level=isolation,
            request_timeout=timeout_seconds,
        )
        ends = {(p.topic, p.partition): answer.result().offset for p, answer in asked.items()}
        for (topic, partition), end in ends.items():
            # So the client answers, without an error, for a leader that has not answered in time.
            if end < 0:
                raise BrokerUnreachable(
                    f"the end offset of {topic}-{partition} cannot be read: its leader does not "
                    "answer"
                )
        return ends

    return _ask_patiently(ask, "a topic", timeout_seconds)


def _ask_patiently(
    ask: Callable[[], _Answer], topic: str, timeout_seconds: float = CONNECT_TIMEOUT_SECONDS
) -> _Answer:
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            return ask()
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() not in LEADER_CHANGES or time.monotonic() >= deadline:
                raise BrokerUnreachable(
                    f"the end offset of {topic} cannot be read: {reason.str()}"
                ) from error
        time.sleep(LEADER_WAIT_SECONDS)
