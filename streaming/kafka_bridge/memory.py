"""Holds what the bridge remembers from one look to the next, as a value.

Nothing of it is needed for a right decision: after a restart it is empty, patience begins anew, and
words may be said twice, which their reader counts and ignores.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from streaming.kafka_bridge.admin_client import PartitionId

# An answer takes a batch or two; what has none after so long was refused or lost.
ANSWER_TIMEOUT_MS = 30_000
# A look is answered by any broker, and some lag behind the controller: one of three showed 2,500 of
# 20,000 new partitions. In the looks of so long a time not all are answered by one that lags.
SETTLE_MS = 10_000
# Between two looks: above it the process slept or the clock jumped, and nobody was observed.
LOOK_GAP_MAX_MS = 30_000

AckKey = tuple[str, str, int]
"""A move's id, the name of the message, and the number of the reminder it answers; of an
observation the shard (`stream/shard`) and the epoch of its assignment."""
LostReplica = tuple[PartitionId, int]
"""A partition and the broker whose replica of it is lost."""
ForeignList = tuple[PartitionId, tuple[int, ...]]
"""A partition with the list of replicas that Kafka shows of it."""
Since = Mapping[str, int]
"""The time in ms since when something has been seen without a break, by name."""

EntryKey = tuple[str, str, str]
"""A configuration, a topic and one of its throttled replicas, `partition:broker`."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Throttles by whose they are: `rates` are those that moves of ours have named, in bytes a
    second; `entries` are ours, `foreign` ones somebody else's."""

    rates: frozenset[int] = frozenset()
    entries: frozenset[EntryKey] = frozenset()
    foreign: frozenset[EntryKey] = frozenset()


@dataclass(frozen=True, slots=True)
class Memory:
    """`words`: when something was said last that has no answer yet, by subject.

    `said`: when an acknowledgement or observation was sent. `silent_since`: brokers that are fenced
    or gone; `missing_since`, `stale_since`: streams whose topic is missing or not the one that they
    describe; `foreign_since`: lists that somebody else has made; `unsynced_since`: replicas out of
    sync other than the reconciler knows; `lost_since`: replicas whose log directory has failed;
    `copying_since`: moves that copy now.

    `sizes_interval_ms`: how old the sizes of replicas may become, None for the observer's own.
    `refused`: Kafka's error by partition, of the reassignments that were asked for last.
    `in_flight_max`, `claims`: see `pacing`. `loads_sized_at`: when the sizes were read that were
    reported last.
    """

    looked_at: int | None = None
    words: Mapping[tuple[str, str], int] = field(default_factory=dict)
    said: Mapping[AckKey, int] = field(default_factory=dict)
    silent_since: Mapping[int, int] = field(default_factory=dict)
    missing_since: Since = field(default_factory=dict)
    stale_since: Since = field(default_factory=dict)
    foreign_since: Mapping[ForeignList, int] = field(default_factory=dict)
    unsynced_since: Mapping[ForeignList, int] = field(default_factory=dict)
    lost_since: Mapping[LostReplica, int] = field(default_factory=dict)
    copying_since: Since = field(default_factory=dict)
    sizes_interval_ms: int | None = None
    refused: Mapping[PartitionId, str] = field(default_factory=dict)
    in_flight_max: int | None = None
    claims: Claims = field(default_factory=Claims)
    loads_sized_at: int | None = None

    def awaits(self, word: tuple[str, str], at: int) -> bool:
        """Return whether the answer to a word may still come."""
        said_at = self.words.get(word)
        return said_at is not None and 0 <= at - said_at < ANSWER_TIMEOUT_MS

    def is_settled(self, stream: str, at: int) -> bool:
        """Return whether all looks agree that a stream does not describe its topic."""
        times = (self.missing_since, self.stale_since)
        return any(at - since.get(stream, at) >= SETTLE_MS for since in times)

    def unobserved_ms(self, at: int) -> int:
        """Return the ms since the last look in which nobody can have been observed."""
        gap = 0 if self.looked_at is None else at - self.looked_at
        return gap if not 0 <= gap <= LOOK_GAP_MAX_MS else 0


_K = TypeVar("_K")


def advance_since(
    known: Mapping[_K, int], seen: Collection[_K], at: int, unobserved: int
) -> dict[_K, int]:
    """Return since when each of `seen` has been so; time that was not observed does not count."""
    return {each: min(known[each] + unobserved, at) if each in known else at for each in seen}
