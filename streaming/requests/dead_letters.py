"""Reads dead letters back, with their reasons, and sends their records again.

A letter keeps the first KiB of a value. What was longer is read again from where it lay, as long as
retention has left it there; its hash shows that it is the same.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from confluent_kafka import KafkaException, Producer

from schemas.topics import BY_NAME, DEAD_LETTERS, full_name
from streaming.brokers import CommittedReader, Reachability, Record, make_producer
from streaming.errors import StreamingError
from streaming.outbox import LETTER_HEADER_PREFIX, LETTER_VALUE_BYTES_MAX, headers_bytes
from streaming.settings import Settings

# Says of a record from which letter it was sent again; should it be refused again, its new letter
# keeps this.
REDRIVEN_HEADER = "__placement.redriven"
# A record that is there comes at once.
FETCH_TIMEOUT_SECONDS = 5.0
FLUSH_TIMEOUT_SECONDS = 30.0
# How soon a caller that follows letters may do something else.
POLL_SECONDS = 0.2


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

    def body(self) -> dict[str, Any]:
        """For programs, as `placer dlq show --output json` writes it. `value`: None where it is no
        text; numbers are None where a letter of an older version does not have them."""
        value = self.record.raw
        numbers = ("partition", "offset", "timestamp")
        return {
            "id": self.id,
            "topic": self.header("topic"),
            **{name: _parse_number(self.header(name)) for name in numbers},
            **{name: self.header(name) for name in ("stage", "reason", "message")},
            "count": self.count,
            "offset_last": _parse_number(self.header("offset.last")),
            "key": self.record.key,
            "bytes": _parse_number(self.header("value.bytes")),
            "sha256": self.header("value.sha256"),
            "whole": self.is_whole,
            "value": None if value is None else _as_text(value),
            "value_base64": None if value is None else base64.b64encode(value).decode(),
            "redriven_from": self.redriven_from or None,
        }

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


@dataclass(frozen=True, slots=True)
class Redriven:
    """Says what became of a letter whose record was to be sent again; `refusal` is None where it
    was sent, or would be."""

    letter: DeadLetter
    refusal: RedriveRefused | None


def read_letters(
    settings: Settings, follow: bool = False, reachability: Reachability | None = None
) -> Iterator[DeadLetter | None]:
    """Yield all letters there are, then, with `follow`, those that come; None when none has come.
    Raises BrokerUnreachable, TopicMissing."""
    with _letters_reader(settings, reachability=reachability) as reader:
        yield from map(DeadLetter, reader.read_to_end())
        while follow:
            yield from map(DeadLetter, reader.poll(POLL_SECONDS))
            yield None


def letter_bounds(settings: Settings) -> dict[int, tuple[int, int]]:
    """By partition the offset of the oldest letter kept, and that behind the newest. Raises
    BrokerUnreachable, TopicMissing."""
    with _letters_reader(settings, from_beginning=False) as reader:
        return reader.bounds(DEAD_LETTERS)


def read_letters_within(
    settings: Settings, spans: Mapping[int, tuple[int, int]]
) -> list[DeadLetter]:
    """The letters in spans of offsets by partition, `[from, to)`, within the bounds; the oldest
    first. Raises BrokerUnreachable, TopicMissing."""
    starts = {partition: start for partition, (start, _) in spans.items()}
    ends = {partition: end for partition, (start, end) in spans.items() if start < end}
    with _letters_reader(
        settings, from_beginning=False, positions={DEAD_LETTERS: starts}
    ) as reader:
        found = reader.read_span(DEAD_LETTERS, ends)
    return [DeadLetter(each) for each in sorted(found, key=lambda each: each.timestamp_ms)]


def redriven_ids(letters: Sequence[DeadLetter]) -> set[str]:
    """Find the letters whose record was sent again and refused again."""
    return {letter.redriven_from for letter in letters if letter.redriven_from}


def choose_letters(
    letters: Sequence[DeadLetter], ids: Sequence[str], reason: str | None
) -> tuple[list[DeadLetter], list[str]]:
    """Choose the letters that are meant, and the ids that name none. By `reason` those are left out
    whose record was sent again already."""
    done = redriven_ids(letters)
    by_id = {letter.id: letter for letter in letters}
    chosen = [by_id[name] for name in ids if name in by_id]
    if reason is not None:
        chosen += [
            letter
            for letter in letters
            if letter.header("reason") == reason and letter.id not in done and letter not in chosen
        ]
    return chosen, [name for name in ids if name not in by_id]


def redrive_letters(
    settings: Settings, letters: Sequence[DeadLetter], only_try: bool = False
) -> Iterator[Redriven]:
    """Send the records of letters again, each to its partition behind what is there now, and yield
    what became of each. `only_try`: nothing is sent. Raises BrokerUnreachable."""
    options = settings.resolved_kafka_options()
    address, prefix = settings.kafka.bootstrap_servers, settings.topics.prefix
    producer = None if only_try else make_producer(address, options)
    for letter in letters:
        try:
            original = letter.original(address, prefix, options)
            if producer is not None:
                _send(producer, prefix, letter, original)
        except RedriveRefused as error:
            yield Redriven(letter, error)
        else:
            yield Redriven(letter, None)


def _send(producer: Producer, prefix: str, letter: DeadLetter, original: Original) -> None:
    """Send a record, and wait until the broker has it. Raises RedriveRefused."""
    headers: list[tuple[str, str | bytes | None]] = [
        *original.headers,
        (REDRIVEN_HEADER, letter.id.encode()),
    ]
    ends: list[str | None] = []
    topic = full_name(original.topic, prefix)
    try:
        producer.produce(
            topic,
            original.value,
            original.key,
            headers=headers,
            partition=original.partition,
            on_delivery=lambda error, _: ends.append(None if error is None else error.str()),
        )
    except KafkaException as error:
        ends.append(error.args[0].str())
    producer.flush(FLUSH_TIMEOUT_SECONDS)
    if not ends:
        # It would be sent after it was called refused, and once more when that is mended.
        producer.purge(in_flight=False)
    fault = ends[0] if ends else f"no answer within {FLUSH_TIMEOUT_SECONDS:g} s"
    if fault is not None:
        raise RedriveRefused(
            f"letter {letter.id}: the record did not reach {topic}-{original.partition}: {fault}"
        )


def _letters_reader(settings: Settings, **where: Any) -> CommittedReader:
    return CommittedReader(
        settings.kafka.bootstrap_servers,
        settings.topics.prefix,
        [DEAD_LETTERS],
        options=settings.resolved_kafka_options(),
        **where,
    )


def _parse_number(said: str) -> int | None:
    return int(said) if said.isdecimal() else None


def _as_text(value: bytes) -> str | None:
    """The value as text, None where it is none; what a letter cut may end within a character."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character has four bytes at most, so that a cut leaves three of one.
        cut = len(value) - error.start < 4 and error.reason == "unexpected end of data"
        return value[: error.start].decode("utf-8") if cut else None
