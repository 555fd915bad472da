"""Measures how long nodes have been silent, by clocks that advance with the log.

Each partition of the nodes topic has a clock. Every record advances it by the gap in broker append
time, at most by `Timers.gap_max_ms`. So a partition that cannot be read, a jump of a broker's clock
or a stopped application makes no node silent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from placement.model import FlapPolicy

# Ticks come every second; three of them missing is a stall of the log, not a silence of its nodes.
GAP_MAX_MS = 3_000

# Nodes restored from the topology topic: no record of theirs has been seen by this process, so
# that they are judged by the slowest of all clocks.
NO_PARTITION = -1

# Kafka's clients learn of new partitions when they renew their metadata, every five minutes
# (`metadata.max.age.ms`); until all have, a node may speak where nobody listens yet.
SETTLE_MS = 600_000


@dataclass(frozen=True, slots=True)
class Timers:
    """Holds the timers of liveness, in ms of silence.

    - `suspect_after_ms`: the node receives no new replicas.
    - `dead_after_ms`: the node loses the replicas that it has.
    - `flaps`: what counts as flapping.
    - `incarnation_grace_ms`: silence of a life of its process after which a later life takes over.
    """

    suspect_after_ms: int
    dead_after_ms: int
    flaps: FlapPolicy = field(default_factory=FlapPolicy)
    incarnation_grace_ms: int = 5_000

    @property
    def gap_max_ms(self) -> int:
        """Return by how much one record may advance a clock: no single gap makes a node suspect."""
        return min(GAP_MAX_MS, self.suspect_after_ms // 2)


@dataclass(slots=True)
class Clock:
    """Holds a partition's clock in ms, and the append time of its last record."""

    reading: int
    at: int


class SilenceClocks:
    """Holds the clocks of all partitions of the nodes topic.

    `baseline`: the reading of each clock when the table was restored or the number of partitions
    changed. The time since then is the same for all partitions that can be read.
    """

    def __init__(self, gap_max_ms: int) -> None:
        self.gap_max_ms = gap_max_ms
        self.by_partition: dict[int, Clock] = {}
        self.baseline: dict[int, int] = {}
        self.partitions = 0
        self.settling = False

    def restore(self, clocks: Mapping[int, Clock]) -> None:
        """Continue from the readings of the clocks; silence counts from here."""
        self.by_partition = {p: Clock(clock.reading, clock.at) for p, clock in clocks.items()}
        self.baseline = {partition: clock.reading for partition, clock in clocks.items()}
        self.partitions = len(clocks)

    def open(self, partition: int, first_at: int) -> tuple[Clock, int]:
        """Return the clock of a partition, and its reading at the first record of a stretch."""
        clock = self.by_partition.get(partition)
        if clock is None:
            clock = self.by_partition[partition] = Clock(0, first_at)
            self.baseline.setdefault(partition, 0)
        return clock, clock.reading + min(max(first_at - clock.at, 0), self.gap_max_ms)

    def slowest(self) -> int:
        """Return the time since the baseline by the slowest clock, in ms.

        It is 0 while a partition was never read.
        """
        if len(self.by_partition) < self.partitions:
            return 0
        passed = (each.reading - self.baseline.get(p, 0) for p, each in self.by_partition.items())
        return min(passed, default=0)

    def note_partitions(self, partitions: int) -> bool:
        """Note the number of partitions that a tick reports; returns whether it has changed."""
        known, self.partitions = self.partitions, partitions or self.partitions
        return known not in (0, self.partitions)

    def rebase(self) -> None:
        """Count silence from here, and by all clocks until the partitions have settled."""
        self.baseline = {p: clock.reading for p, clock in self.by_partition.items()}
        self.settling = True

    def silence(
        self, home: NDArray[np.int32], seen: NDArray[np.int64], partition: int, now: int
    ) -> NDArray[np.int64]:
        """Compute the silence of each node in ms, where the clock of `partition` shows `now`.

        `home`, `seen`: by node, its partition and the reading at its last record. Measured by the
        clock of the node's partition, by the slowest clock where it has none, and by the lesser of
        both while the partitions settle. It is -1 for nodes that another partition's ticks decide
        about.
        """
        found: NDArray[np.int64] = np.where(home == partition, now - seen, -1)
        homeless = home == NO_PARTITION
        if not self.settling and not homeless.any():
            return found
        slowest = self.slowest()
        found = np.where(homeless, slowest - seen, found)
        if self.settling:
            self.settling = slowest < SETTLE_MS
            found = np.minimum(found, np.where(homeless, found, slowest))
        return found
