"""Holds one look at a Kafka cluster as a value; everything else in the bridge is computed from it.

Names are Kafka's: broker ids are integers, a partition's `replicas` are listed in the order of
preference, and `in_sync` is its ISR. Times are milliseconds, sizes bytes.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker. A fenced one is registered, but no controller lets it lead or serve."""

    id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition and the reassignment that it is in.

    `listed` is the union that Kafka shows while a reassignment runs (KIP-455): the target, followed
    by `removing`. `leader` is None while there is none.
    """

    number: int
    listed: tuple[int, ...]
    leader: int | None
    in_sync: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()

    @property
    def is_reassigned(self) -> bool:
        """Return whether a reassignment of the partition is under way."""
        return bool(self.adding or self.removing)

    @property
    def never_ends(self) -> bool:
        """Return whether the reassignment waits for ever for a replica that it does not want.

        So does one that replaced another without a cancel between and removes a broker that the
        other was adding (seen with Kafka 4.3.1).
        """
        return not {*self.adding}.isdisjoint(self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment, in the order of preference."""
        return tuple(broker for broker in self.listed if broker not in self.removing)

    @property
    def replicas(self) -> tuple[int, ...]:
        """The replicas without those that a reassignment only adds.

        KIP-860 names the accident of taking the union for a replication factor.
        """
        return tuple(broker for broker in self.listed if broker not in self.adding)

    @property
    def is_under_replicated(self) -> bool:
        """Return whether a replica of the assignment is out of sync."""
        return not set(self.replicas) <= set(self.in_sync)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic by its name; `uid` is its topic id, which a topic that is made anew does not share.

    `partitions` are in the order of their numbers, from 0 on without a gap.

    `min_in_sync` is `min.insync.replicas` as it applies to the topic; `policy` the text of its own
    configuration `placement.policy`, if set.
    """

    name: str
    uid: str
    partitions: tuple[Partition, ...]
    internal: bool = False
    min_in_sync: int = 1
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class Disk:
    """The log directories of a broker together, in bytes; None where a broker does not say."""

    total: int | None
    usable: int | None
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Throttles:
    """Replication throttles that are set now (KIP-73).

    `leader_rates` and `follower_rates` are bytes a second by broker; the lists hold entries
    `partition:broker` by topic, as Kafka writes them, or `*`.
    """

    leader_rates: Mapping[int, int] = field(default_factory=dict)
    follower_rates: Mapping[int, int] = field(default_factory=dict)
    leader_entries: Mapping[str, frozenset[str]] = field(default_factory=dict)
    follower_entries: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at `at`. `sizes` are those of replicas, by (topic, partition) and then broker.

    They and `disks` were read at `sized_at`, since they are asked for more seldom. `hidden`: of the
    topics that were asked for, those that this user may not describe.
    """

    at: int
    cluster_id: str
    controller: int | None
    brokers: Mapping[int, Broker]
    topics: Mapping[str, Topic]
    throttles: Throttles = field(default_factory=Throttles)
    sizes: Mapping[tuple[str, int], Mapping[int, int]] = field(default_factory=dict)
    disks: Mapping[int, Disk] = field(default_factory=dict)
    sized_at: int | None = None
    hidden: frozenset[str] = frozenset()

    def partition(self, topic: str, number: int) -> Partition | None:
        """Return a partition; None where the topic or the number is unknown."""
        found = self.topics.get(topic)
        known = found is not None and number < len(found.partitions)
        return found.partitions[number] if found is not None and known else None

    def is_live(self, broker: int) -> bool:
        """Return whether a broker is registered and not fenced."""
        found = self.brokers.get(broker)
        return found is not None and not found.fenced

    def live(self) -> frozenset[int]:
        """Return the brokers that are registered and not fenced."""
        return frozenset(broker.id for broker in self.brokers.values() if not broker.fenced)

    def partitions(self) -> Iterator[tuple[Topic, Partition]]:
        """Yield every partition with its topic, by name and number."""
        for name in sorted(self.topics):
            topic = self.topics[name]
            for partition in topic.partitions:
                yield topic, partition

    def reassigned(self) -> Iterator[tuple[Topic, Partition]]:
        """Yield the partitions whose reassignment is under way."""
        return (each for each in self.partitions() if each[1].is_reassigned)

    def size_of(self, topic: str, partition: int) -> int | None:
        """Return the bytes of a partition: of its largest replica, which is never behind."""
        return max(self.sizes.get((topic, partition), {}).values(), default=None)


def find_elections(
    snapshot: Snapshot, partitions: Collection[tuple[str, int]]
) -> tuple[tuple[str, int], ...]:
    """List those of the partitions that their preferred leader could lead and does not.

    Where a reassignment runs, it is the first of the list to come that counts.
    """
    return tuple(
        (topic.name, each.number)
        for topic, each in snapshot.partitions()
        if (topic.name, each.number) in partitions and needs_election(each, each.target, snapshot)
    )


def needs_election(partition: Partition, replicas: Sequence[int], snapshot: Snapshot) -> bool:
    """Return whether the first of the replicas does not lead, though it is live and in sync."""
    if not replicas:
        return False
    first = replicas[0]
    return partition.leader != first and first in partition.in_sync and snapshot.is_live(first)
