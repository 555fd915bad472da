"""Waits between two small batches until the input topics hold something new.

Spark asks the broker every few milliseconds where the input ends, which costs an idle reconciler
and its broker more than all its batches. A consumer that waits in one long fetch hears of a new
record at once and asks twice a second. It decides nothing: Spark reads the records itself, and
whatever goes wrong here ends the wait.
"""

import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from schemas.inputs import STANDBY, TICK_KEY
from schemas.topics import NODES, full_name
from streaming.brokers import make_reader

Positions = Mapping[str, Mapping[int, int]]

# After a batch of more records than this the next ones are on their way, and Spark asks by itself.
SMALL_BATCH_RECORDS_MAX = 32
# While ticks alone arrive and no silence is judged they are read together, so many seconds' worth.
# The application counts as behind after five.
TICKS_SECONDS_MAX = 4.0
# How long the broker keeps a fetch that finds nothing; it answers at once when a record comes.
_FETCH_WAIT_MS = 500
# How soon a stop is noticed.
_LOOK_SECONDS = 0.2
# What the value of a standby's tick has in it, and no other tick.
_STANDBY = f'"role":"{STANDBY}"'.encode()


class Arrivals:
    """Follows the subscribed topics behind the positions that the last batch reached."""

    def __init__(self, bootstrap: str, prefix: str, options: Mapping[str, str]) -> None:
        """Raises BrokerUnreachable, ConnectionUntrusted, AccessRefused."""
        self._consumer = make_reader(bootstrap, options, fetch_wait_ms=_FETCH_WAIT_MS)
        self._prefix = prefix
        self._nodes = full_name(NODES, prefix)
        self._next: dict[tuple[str, int], int] = {}

    def wait(self, positions: Positions, judging: bool, stopping: Callable[[], bool]) -> bool:
        """Wait for a record at or after `positions` (next offset by short topic name and
        partition). False if TICKS_SECONDS_MAX passed or `stopping` said so before.

        With `judging` a tick is a record like any other, without it ticks do not end the wait, and
        those of a standby never do.
        An error of the connection ends it: Spark meets the same one and decides.
        """
        deadline = time.monotonic() + TICKS_SECONDS_MAX
        try:
            self._follow(positions)
            while not stopping() and (left := deadline - time.monotonic()) > 0:
                message = self._consumer.poll(min(left, _LOOK_SECONDS))
                if message is None:
                    continue
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                        continue
                    return False
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None
                assert partition is not None
                assert offset is not None
                self._next[topic, partition] = offset + 1
                if topic != self._nodes or message.key() != TICK_KEY.encode():
                    return True
                if judging and _STANDBY not in (message.value() or b""):
                    return True
        except KafkaException:
            return False
        return False

    def _follow(self, positions: Positions) -> None:
        """Go on from `positions`; where the last wait ended there, its fetch is still under way."""
        wanted = {
            (full_name(topic, self._prefix), partition): offset
            for topic, partitions in positions.items()
            for partition, offset in partitions.items()
        }
        if wanted != self._next:
            self._next = wanted
            self._consumer.assign([TopicPartition(*place, at) for place, at in wanted.items()])

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()
