"""Rebuilds the core from the last values of the state topics.

Most of a large state are assignments at rest. They are read in chunks and reach the core as
columns: a million of them take seconds instead of a minute. A record that cannot be read is named
by its key.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import orjson

from placement.model import (
    Assignment,
    AssignmentColumns,
    Configuration,
    NodeView,
    Published,
    ShardLoad,
)
from placement.reconciler import Reconciler
from schemas.topics import (
    ASSIGNMENTS,
    DECISIONS,
    MEMORY,
    MOVES,
    SHARD_LOADS,
    STATE_TOPICS,
    TOPOLOGY,
    VIOLATIONS,
)
from streaming import codec
from streaming.errors import StreamingError

Latest = Mapping[str, Mapping[bytes, bytes]]
"""Last value of every key, by topic; tombstones have taken theirs away."""

# Large enough to be read as columns, small against the memory of the whole.
CHUNK_RECORDS = 2 * codec.COLUMN_RECORDS_MIN
# What reading a record that is none of ours can raise.
_FAULTS = (KeyError, ValueError, TypeError, IndexError, AttributeError)

_Parsed = TypeVar("_Parsed")


class RecordUnreadable(StreamingError):
    """A record of a state topic is none of ours."""

    def __init__(self, topic: str, key: str, why: str) -> None:
        super().__init__(f"{topic}: the record with key {key} cannot be read: {why}")
        self.topic, self.key, self.why = topic, key, why


class StateContradictory(StreamingError):
    """The records do not go together: some are missing, or two reconcilers wrote them."""


class Rebuilt(NamedTuple):
    """What the records of a state make together."""

    reconciler: Reconciler
    nodes: list[NodeView]
    loads: list[ShardLoad]


def rebuild(configuration: Configuration, latest: Latest, now: int) -> Rebuilt:
    """The reconciler that left these records, with its nodes and the loads of shards.

    Raises RecordUnreadable and StateContradictory.
    """
    nodes = _parse_records(TOPOLOGY, latest, codec.parse_node)
    loads = _parse_records(SHARD_LOADS, latest, codec.parse_load)
    busy: list[Assignment] = []
    records = Published(
        nodes=nodes,
        decisions=_parse_records(DECISIONS, latest, codec.parse_decision),
        # Filled while the columns are read.
        assignments=busy,
        settled=_assignments_at_rest(latest.get(ASSIGNMENTS, {}), busy),
        moves=_parse_records(MOVES, latest, codec.parse_move),
        violations=_parse_records(VIOLATIONS, latest, codec.parse_violations),
        memory=_parse_records(MEMORY, latest, codec.parse_memory),
        loads=loads,
    )
    try:
        return Rebuilt(Reconciler.restore(configuration, records, now), nodes, loads)
    except _FAULTS as error:
        raise StateContradictory(
            f"the records of {', '.join(STATE_TOPICS)} contradict each other: "
            f"{type(error).__name__}: {error}"
        ) from error


def _parse_records(topic: str, latest: Latest, parse: Callable[[Any], _Parsed]) -> list[_Parsed]:
    found = []
    for key, value in latest.get(topic, {}).items():
        try:
            found.append(parse(orjson.loads(value)))
        except _FAULTS as error:
            raise _make_unreadable(topic, key, error) from error
    return found


def _assignments_at_rest(
    values: Mapping[bytes, bytes], busy: list[Assignment]
) -> Iterator[AssignmentColumns]:
    """The assignments at rest in chunks; the others go to `busy`."""
    rest, parsed_before = iter(values.values()), 0
    while chunk := list(islice(rest, CHUNK_RECORDS)):
        try:
            parsed = codec.parse_assignments(chunk)
        except _FAULTS:
            for key, value in islice(values.items(), parsed_before, None):
                try:
                    codec.parse_assignments([value])
                except _FAULTS as why:
                    raise _make_unreadable(ASSIGNMENTS, key, why) from why
            raise
        parsed_before += len(chunk)
        busy += parsed.busy
        yield from parsed.at_rest


def _make_unreadable(topic: str, key: bytes, error: Exception) -> RecordUnreadable:
    name = key.decode("utf-8", "backslashreplace")
    return RecordUnreadable(topic, name, f"{type(error).__name__}: {error}")
