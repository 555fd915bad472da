"""Reads dead letters back, with their reasons, and sends their records again.

A letter keeps the first KiB of a value. What was longer is read again from where it lay, as long as
retention has left it there; its hash shows that it is the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from confluent_kafka import Producer

from schemas.topics import BY_NAME, full_name
from streaming.brokers import CommittedReader, Record
from streaming.errors import StreamingError
from streaming.outbox import LETTER_HEADER_PREFIX, LETTER_VALUE_BYTES_MAX, headers_bytes

# Says of a record from which letter it was sent again; should it be refused again, its new letter
# keeps this.
REDRIVEN_HEADER = "__placement.redriven"
# A record that is there comes at once.
FETCH_TIMEOUT_SECONDS = 5.0
FLUSH_TIMEOUT_SECONDS = 30.0


class RedriveRefused(StreamingError):
    """A record cannot be sent again; the message says why."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Original:
    """A refused record as it was."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Reads one dead letter; `id` is its own partition and offset, the other places are its
    record's."""

    record: Record

    @property
    def id(self) -> str:
        """Partition and offset on the dead letter topic, `0/17`."""
        return f"{self.record.partition}/{self.record.offset}"

    def header(self, name: str) -> str:
        """Return a header of the letter, empty where an older version wrote none. Names: topic,
        partition, offset, timestamp, stage, reason, message, value.sha256, value.bytes."""
        return self.record.headers.get(LETTER_HEADER_PREFIX + name, "")

    @property
    def place(self) -> str:
        """Where the record lay; of a summary, between which offsets the records lay."""
        last = self.header("offset.last")
        offsets = self.header("offset") + (f"..{last}" if last else "")
        return f"{self.header('topic')}-{self.header('partition')}@{offsets}"

    def is_about(self, topic: str, partition: int, offset: int) -> bool:
        """Return whether it is the letter of the record there, or sums it up among others."""
        if (self.header("topic"), self.header("partition")) != (topic, str(partition)):
            return False
        first = int(self.header("offset"))
        return first <= offset <= int(self.header("offset.last") or first)

    @property
    def own_headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """The record's headers, as far as the letter holds them."""
        ours = (LETTER_HEADER_PREFIX, REDRIVEN_HEADER)
        return tuple(each for each in self.record.raw_headers if not each[0].startswith(ours))

    @property
    def redriven_from(self) -> str:
        """The letter that its record was sent again from, if it was."""
        return self.record.headers.get(REDRIVEN_HEADER, "")

    @property
    def count(self) -> int:
        """Return the number of records it stands for; more than one in the summary of a flood."""
        return int(self.header("count") or 1)

    @property
    def is_whole(self) -> bool:
        """Return whether nothing of the record was cut."""
        value, key = self.record.raw or b"", self.record.raw_key or b""
        kept = [
            each for each in self.record.raw_headers if not each[0].startswith(LETTER_HEADER_PREFIX)
        ]
        return (
            self.header("value.bytes") == str(len(value))
            and self.header("value.sha256") == sha256(value).hexdigest()
            and self.header("headers.bytes") == str(headers_bytes(kept))
            and len(key) < LETTER_VALUE_BYTES_MAX
        )

    def original(self, bootstrap: str, prefix: str, options: Mapping[str, str]) -> Original:
        """The record as it was, from the letter or from where it lay. Raises RedriveRefused."""
        topic = self.header("topic")
        if topic not in BY_NAME or BY_NAME[topic].direction != "in":
            raise RedriveRefused(
                f"letter {self.id} names a topic that is not one of our inputs: {topic!r}"
            )
        if self.header("offset.last"):
            raise RedriveRefused(
                f"letter {self.id} sums up {self.count} records of {self.place}: have their "
                "senders send them again"
            )
        partition, offset = int(self.header("partition")), int(self.header("offset"))
        if self.is_whole:
            record = self.record
            return Original(topic, partition, record.raw_key, record.raw, self.own_headers)
        positions = {topic: {partition: offset}}
        with CommittedReader(
            bootstrap, prefix, [topic], from_beginning=False, positions=positions, options=options
        ) as reader:
            found = reader.poll(FETCH_TIMEOUT_SECONDS)
        there = next((r for r in found if (r.partition, r.offset) == (partition, offset)), None)
        if there is None or self.header("value.sha256") != sha256(there.raw or b"").hexdigest():
            raise RedriveRefused(
                f"letter {self.id} holds {len(self.record.raw or b'')} of "
                f"{self.header('value.bytes')} bytes, and {full_name(topic, prefix)}-{partition} "
                f"offset {offset} was deleted: have its sender send it again"
            )
        headers = tuple(each for each in there.raw_headers if each[0] != REDRIVEN_HEADER)
        return Original(topic, partition, there.raw_key, there.raw, headers)


def redrive(producer: Producer, prefix: str, letter: DeadLetter, original: Original) -> None:
    """Send the record again to its partition, behind what is there now."""
    headers: list[tuple[str, str | bytes | None]] = [
        *original.headers,
        (REDRIVEN_HEADER, letter.id.encode()),
    ]
    producer.produce(
        full_name(original.topic, prefix),
        original.value,
        original.key,
        headers=headers,
        partition=original.partition,
    )
    if producer.flush(FLUSH_TIMEOUT_SECONDS):
        raise RedriveRefused(f"letter {letter.id}: the broker did not take the record")
