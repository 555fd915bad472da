"""Records as they were read, and the packets in which a micro-batch carries them.

Executors pack a partition's stretch, the stateful operator unpacks it, the driver gets the rest:
what passes between them is here, so that none of the three imports another.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from placement.liveness import PartitionLog, Statement
from placement.model import LinksMeasured


class RawRecord(NamedTuple):
    """A record as it was read. `topic` is the short name, `at` the append time in ms."""

    topic: str
    partition: int
    offset: int
    at: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that did not decode or validate."""

    raw: RawRecord
    stage: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Which offsets of a partition a batch read; `next_offset` is where the next one starts."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    last_at: int


@dataclass(slots=True)
class PackedPartition:
    """Holds one partition's records of a batch for one topology shard. Reports stand with the
    partition they came from; `ignored` counts records that changed nothing, by reason. Records that
    are not about single nodes travel with shard 0 only."""

    log: PartitionLog | None = None
    reports: list[tuple[int, Statement]] = field(default_factory=list)
    stretch: OffsetRange | None = None
    passed: list[RawRecord] = field(default_factory=list)
    refused: list[RefusedRecord] = field(default_factory=list)
    measured: list[tuple[RawRecord, LinksMeasured]] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    tick: tuple[int, int] | None = None
