"""Records that the reconciler writes for itself: memory, journal, and the positions of a restart.

They are published like all records, so that anyone can check and replay what was decided; other
consumers should build on `outputs` alone.
"""

from typing import Annotated

from pydantic import Field, JsonValue, StringConstraints

from schemas.base import Id, Index, Items, Message, Ordinal, Text, TimeMs, WireModel

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,128}$")]


class Memory(Message):
    """Something the reconciler remembers that no other record holds.

    For instance a hold, an operator's order, or what a stream's next placement continues from. Key:
    `kind/name`; a tombstone forgets it.

    `body` is the reconciler's own affair; consumers should not build on it.
    """

    kind: Id = Field(
        description="What it is, for example `hold` or `request`: first part of the key."
    )
    name: Text = Field(description="Which one of its kind: second part of the key.")
    body: dict[str, JsonValue] = Field(
        description="The reconciler's own affair; its fields may change."
    )
    at: TimeMs = Field(description="When it was written, in ms since the epoch, UTC.")

    def record_key(self) -> str:
        """Return kind and name."""
        return f"{self.kind}/{self.name}"


class JournalEntry(Message):
    """The ordered events of one batch as they were applied. Key: `cell`.

    `events` is a list of `[kind, fields]`; a long batch is cut into `chunks`, `chunk` counting
    from 0. `caught_up` says whether the source had been read to its end, which gates repairs.
    `configuration`, in the first entry of each writer, is what decides beside the events; `rebuilt`
    is false there where the writer had followed the one before and went on with that state.
    """

    cell: Id = Field(description="The cell whose batch it is. It is the record's key.")
    sequence: Ordinal = Field(description="Number of the commit, which rises by one.")
    writer_epoch: Ordinal = Field(description="Epoch of the writer, which rises with every start.")
    chunk: Index = Field(description="Number of this part of the batch, from 0.")
    chunks: Annotated[int, Field(ge=1)] = Field(description="How many parts the batch has.")
    now: TimeMs = Field(description="The core's time in this batch, in ms since the epoch, UTC.")
    caught_up: bool = Field(
        description="Whether the source had been read to its end; repairs wait until it was."
    )
    configuration: dict[str, JsonValue] | None = Field(
        default=None,
        description="What decides beside the events; in the first entry of each writer.",
    )
    rebuilt: bool = Field(
        default=True,
        description="In the first entry of each writer: whether it began with a state rebuilt from "
        "the topics. False: it had followed the writer before it, and went on with that state.",
    )
    events: Items[Annotated[tuple[Text, dict[str, JsonValue]], Field(strict=False)]] = Field(
        description="The events in the order in which they were applied, each as `[kind, fields]`."
    )

    def record_key(self) -> str:
        """Return the cell."""
        return self.cell


class PartitionClock(WireModel):
    """The silence clock of one partition of the nodes topic: last append time seen, clock time."""

    append_ms: TimeMs = Field(
        description="Append time of the last record seen, in ms since the epoch, UTC."
    )
    clock_ms: TimeMs = Field(
        description="Time of the silence clock, in ms; it never runs faster than the log."
    )


class IgnoredRecords(WireModel):
    """Counts well-formed records that changed nothing for one reason, with the time of the last
    one."""

    count: Ordinal = Field(description="How many records were ignored for the reason.")
    last_at: TimeMs = Field(
        description="Append time of the batch with the last one, in ms since the epoch, UTC."
    )


class CommitMarker(Message):
    """Everything a restart needs that is not in other compacted topics. Key: `cell`.

    `positions` are the next source offsets by topic (short name) and partition, `clocks` the
    silence clocks by partition of `nodes.v1`, `output_partitions` the partition counts of the
    outputs, `digest` the hash of the state of record, in hexadecimal, by the formula
    `digest_version`, `configuration` what decides
    beside the events, `ignored` how many records changed nothing, by reason, since the cell's first
    start, `format` the version of all that a restart reads. `instance` and `version` name the
    process that wrote it; `released` tells that this was its last commit.
    """

    cell: Id = Field(description="The cell that committed. It is the record's key.")
    sequence: Ordinal = Field(description="Number of the commit, which rises by one.")
    writer_epoch: Ordinal = Field(description="Epoch of the writer, which rises with every start.")
    now: TimeMs = Field(description="The core's time, in ms since the epoch, UTC.")
    positions: dict[str, dict[str, Ordinal]] = Field(
        description="Next offset to read, by input topic (short name) and partition."
    )
    clocks: dict[str, PartitionClock] = Field(
        description="Silence clocks, by partition of `nodes.v1`."
    )
    output_partitions: dict[str, Annotated[int, Field(ge=1)]] = Field(
        description="Partition counts of the compacted outputs, by topic (short name): they may "
        "not change."
    )
    journal_sequence: Ordinal = Field(description="Sequence of the last journal entry.")
    digest: Digest = Field(description="Hash of the state of record, in hexadecimal.")
    digest_version: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Version of the digest's formula. Absent: the first one.",
    )
    configuration: dict[str, JsonValue] | None = Field(
        default=None, description="What decides beside the events."
    )
    ignored: dict[str, IgnoredRecords] | None = Field(
        default=None,
        description="Well-formed records that changed nothing since the cell's first start, by "
        "reason.",
    )
    format: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Version of all that a restart reads; a newer one than it knows is refused.",
    )
    instance: Id | None = Field(
        default=None, description="The process that committed, by the id it has while it runs."
    )
    version: Text | None = Field(
        default=None, description="Version of the reconciler that committed."
    )
    released: bool = Field(
        default=False,
        description="Whether this is the writer's last commit, so that a standby may take over at "
        "once.",
    )

    def record_key(self) -> str:
        """Return the cell."""
        return self.cell
