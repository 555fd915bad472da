"""Reads the journal back: the batches as they were applied, in order, without a gap.

An entry that is missing, torn or not understood is named with its place; nothing after it could be
trusted to be what the application saw.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from placement.model import Configuration, Event
from streaming.brokers import Record
from streaming.codec import parse_configuration, parse_journal_event
from streaming.errors import StreamingError


class JournalDamaged(StreamingError):
    """The journal cannot be replayed from here; the message names topic, partition and offset."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """Holds the input of one commit. `configuration` is set in a writer's first entry; `rebuilt`
    tells that this writer began with a state rebuilt from the topics, and not with one that it had
    followed."""

    sequence: int
    writer_epoch: int
    now: int
    caught_up: bool
    events: tuple[Event, ...]
    configuration: Configuration | None
    partition: int
    offset: int
    rebuilt: bool = True


class EntryReader:
    """Puts the entries of a cell together from the journal's records, which come one by one."""

    def __init__(self, cell: str) -> None:
        self._cell = cell
        self._waiting: list[tuple[Record, Mapping[str, Any]]] = []
        self._last = 0

    def take(self, record: Record) -> JournalEntry | None:
        """Return the entry that the record completes, if it does. Raises JournalDamaged."""
        if record.key != self._cell:
            return None
        body, waiting = record.value, self._waiting
        if body is None:
            raise JournalDamaged(f"{_place(record)} is not a journal entry")
        waiting.append((record, body))
        try:
            head = waiting[0][1]
            if body["chunk"] != len(waiting) - 1 or body["sequence"] != head["sequence"]:
                raise ValueError(
                    f"chunk {len(waiting) - 1} of the entry with sequence {head['sequence']} is "
                    "missing"
                )
            if len(waiting) < body["chunks"]:
                return None
            entry = _entry(waiting)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise JournalDamaged(f"{_place(record)}: {_error_text(error)}") from error
        if entry.sequence <= self._last:
            raise JournalDamaged(
                f"{_place(record)}: sequence {entry.sequence} follows {self._last}"
            )
        self._last = entry.sequence
        waiting.clear()
        return entry

    def check_complete(self) -> None:
        """Raise JournalDamaged where the last entry lacks a chunk."""
        if self._waiting:
            last = _place(self._waiting[-1][0])
            raise JournalDamaged(f"{last} is the last one, its entry is incomplete")


def read_entries(records: Iterable[Record], cell: str) -> Iterator[JournalEntry]:
    """The entries of a cell's journal records, in their order. Raises JournalDamaged."""
    reader = EntryReader(cell)
    for record in records:
        entry = reader.take(record)
        if entry is not None:
            yield entry
    reader.check_complete()


def _entry(chunks: list[tuple[Record, Mapping[str, Any]]]) -> JournalEntry:
    record, head = chunks[0]
    configuration = head.get("configuration")
    return JournalEntry(
        sequence=head["sequence"],
        writer_epoch=head["writer_epoch"],
        now=head["now"],
        caught_up=head["caught_up"],
        events=tuple(parse_journal_event(line) for _, body in chunks for line in body["events"]),
        configuration=None if configuration is None else parse_configuration(configuration),
        partition=record.partition,
        offset=record.offset,
        rebuilt=head.get("rebuilt", True),
    )


def _place(record: Record) -> str:
    return f"{record.topic}-{record.partition} offset {record.offset}"


def _error_text(error: Exception) -> str:
    return f"field {error} is missing" if isinstance(error, KeyError) else str(error)
