"""Writes one tick a second to every partition of the nodes topic.

They let the silence clocks run when nodes say nothing, and tell the application how far it is
behind: the newest tick it has read against the newest it has written. Standbys see by them that the
active one is there, and say with ticks of their own that they are.
"""

import threading
from typing import Self

from confluent_kafka import KafkaError, KafkaException

from schemas.inputs import TICK_KEY
from schemas.topics import NODES, full_name
from streaming.brokers import make_producer
from streaming.presence import TickAuthor, encode_tick

# A batch takes a fraction of a second; five seconds behind is a backlog, not a slow batch.
BEHIND_SECONDS_MAX = 5.0
# In ticks. Partitions are added once in years; clients find them within five minutes.
_COUNT_EVERY = 30


class Ticker:
    """Writes ticks from a thread of its own until it is closed. `refused`: the brokers say that
    this principal may not, which has to be told: without ticks no silence is judged."""

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        author: TickAuthor,
        partitions: int,
        interval_seconds: float,
        options: dict[str, str],
    ) -> None:
        self._writer = make_producer(bootstrap, options, linger_ms=0)
        self._topic = full_name(NODES, prefix)
        self._author, self._partitions = author, partitions
        self._interval_seconds = interval_seconds
        self._number = 0
        self._written: dict[int, int] = {}
        self.refused = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ticks", daemon=True)

    def start(self) -> None:
        """Write the first tick now and one per interval from here on."""
        self._thread.start()

    def close(self) -> None:
        """Stop; ticks under way are written."""
        self._closing.set()
        self._thread.join()
        self._writer.flush(self._interval_seconds)

    def is_caught_up(self, seen: int) -> bool:
        """Return whether a reader that has seen tick number `seen` is at the end of the log."""
        newest = max(self._written.values(), default=0)
        return seen >= 0 and (newest - seen) * self._interval_seconds <= BEHIND_SECONDS_MAX

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while True:
            self._number += 1
            if self._number % _COUNT_EVERY == 0:
                self._count_partitions()
            for partition in range(self._partitions):
                self._tick(partition)
            self._writer.poll(0)
            if self._closing.wait(self._interval_seconds):
                return

    def _count_partitions(self) -> None:
        """New partitions get ticks too, so that silence can be judged in them."""
        try:
            found = self._writer.list_topics(self._topic, self._interval_seconds).topics
        except KafkaException:
            return
        if self._topic in found:
            self._partitions = max(self._partitions, len(found[self._topic].partitions))

    def _tick(self, partition: int) -> None:
        number = self._number

        def note_delivery(error: KafkaError | None, _message: object) -> None:
            if error is None:
                self._written[partition] = number
            self.refused = error is not None and _is_refusal(error)

        value, headers = encode_tick(self._author, number, partition, self._partitions)
        try:
            self._writer.produce(
                self._topic,
                value,
                TICK_KEY,
                partition,
                on_delivery=note_delivery,
                headers=headers,
            )
        except KafkaException as error:
            # Once the client knows of it, it says so at once.
            if not _is_refusal(error.args[0]):
                raise
            self.refused = True


def _is_refusal(error: KafkaError) -> bool:
    return error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
