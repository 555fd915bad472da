"""What the reconciler writes for itself: its memory, its journal, and where a restart goes on.

They are published like all records, so that anyone can check and replay what was decided; other
consumers should build on `outputs` alone.
"""

from typing import Annotated

from pydantic import Field, JsonValue, StringConstraints

from schemas.base import Id, Index, Items, Message, Ordinal, Text, TimeMs, WireModel

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,128}$")]


class Memory(Message):
    """Something the reconciler remembers that no other record holds: a hold, an operator's order,
    what a stream's next placement goes on from. Key: `kind/name`; a tombstone forgets it.

    `body` is the reconciler's own affair; consumers should not build on it.
    """

    kind: Id
    name: Text
    body: dict[str, JsonValue]
    at: TimeMs

    def record_key(self) -> str:
        """Kind and name."""
        return f"{self.kind}/{self.name}"


class JournalEntry(Message):
    """The ordered events of one batch as they were applied. Key: `cell`.

    `events` is a list of `[kind, fields]`; a long batch is cut into `chunks`, `chunk` counting
    from 0. `caught_up` says whether the source had been read to its end, which gates repairs.
    `configuration`, in the first entry of each writer, is what decides beside the events.
    """

    cell: Id
    sequence: Ordinal
    writer_epoch: Ordinal
    chunk: Index
    chunks: Annotated[int, Field(ge=1)]
    now: TimeMs
    caught_up: bool
    configuration: dict[str, JsonValue] | None = None
    events: Items[Annotated[tuple[Text, dict[str, JsonValue]], Field(strict=False)]]

    def record_key(self) -> str:
        """The cell."""
        return self.cell


class PartitionClock(WireModel):
    """The silence clock of one partition of the nodes topic: last append time seen, clock time."""

    append_ms: TimeMs
    clock_ms: TimeMs


class IgnoredRecords(WireModel):
    """How many well-formed records changed nothing for one reason, and when the last one came."""

    count: Ordinal
    last_at: TimeMs


class CommitMarker(Message):
    """Everything a restart needs that is not in other compacted topics. Key: `cell`.

    `positions` are the next source offsets by topic (short name) and partition, `clocks` the
    silence clocks by partition of `nodes.v1`, `output_partitions` the partition counts of the
    outputs, `digest` the hash of the state of record, in hexadecimal, `configuration` what decides
    beside the events, `ignored` how many records changed nothing, by reason, since the cell's first
    start, `format` the version of all that a restart reads.
    """

    cell: Id
    sequence: Ordinal
    writer_epoch: Ordinal
    now: TimeMs
    positions: dict[str, dict[str, Ordinal]]
    clocks: dict[str, PartitionClock]
    output_partitions: dict[str, Annotated[int, Field(ge=1)]]
    journal_sequence: Ordinal
    digest: Digest
    configuration: dict[str, JsonValue] | None = None
    ignored: dict[str, IgnoredRecords] | None = None
    format: Annotated[int, Field(ge=1)] | None = None

    def record_key(self) -> str:
        """The cell."""
        return self.cell
