"""A Kafka cluster in memory that answers as brokers do: reassignments, elections, throttles.

Rules are KIP-455's (target and removing replicas as one list, complete when all of the target are
in sync), tried against Kafka 4.3.1. Copies advance only by `copy`, so that a test stops anywhere.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from streaming.errors import BrokerUnreachable
from streaming.kafka_bridge.admin_client import (
    DescribedCluster,
    DescribedLogs,
    DescribedTopic,
    PartitionId,
    Reassignment,
)
from streaming.kafka_bridge.snapshot import Broker, Disk, Partition

TERABYTE = 10**12


class SimulatedKafka:
    """`ClusterAdmin` of a cluster in memory; racks by broker id, topics by lists of replicas."""

    def __init__(self, racks: Mapping[int, str | None]) -> None:
        self.brokers = {
            each: Broker(each, f"kafka-{each}", 9092, rack) for each, rack in racks.items()
        }
        self.topics: dict[str, DescribedTopic] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.rates: dict[int, dict[str, int]] = {}
        self.sizes: dict[PartitionId, int] = {}
        self.arrived: dict[tuple[PartitionId, int], int] = {}
        self.hidden: set[str] = set()
        self.lost: set[tuple[PartitionId, int]] = set()
        self.altered: list[tuple[PartitionId, tuple[int, ...] | None]] = []
        self.unreachable: str | None = None
        self.obstacles: list[str] = []
        self._made = 0

    # What happens to the cluster

    def create(
        self, name: str, lists: Sequence[Sequence[int]], size: int = 0, **configs: str
    ) -> None:
        """Create a topic of these lists, `size` bytes a partition; every replica is in sync."""
        self._made += 1
        self.topics[name] = DescribedTopic(
            name,
            f"uid-{self._made}",
            False,
            tuple(Partition(n, tuple(at), at[0], tuple(at)) for n, at in enumerate(lists)),
        )
        self.configs[name] = {key.replace("_", "."): value for key, value in configs.items()}
        self.sizes |= {(name, number): size for number in range(len(lists))}

    def delete(self, name: str) -> None:
        """Delete a topic with its configuration."""
        del self.topics[name], self.configs[name]
        self.lost = {(key, broker) for key, broker in self.lost if key[0] != name}

    def turn_to(self, broker: int | None) -> None:
        """See KafkaAdmin: the next look is answered by this broker."""

    def extend(self, name: str, lists: Sequence[Sequence[int]]) -> None:
        """Add partitions of these lists to a topic."""
        topic = self.topics[name]
        known = len(topic.partitions)
        more = tuple(
            Partition(known + n, tuple(at), at[0], tuple(at)) for n, at in enumerate(lists)
        )
        self.topics[name] = replace(topic, partitions=(*topic.partitions, *more))
        size = self.sizes.get((name, 0), 0)
        self.sizes |= {(name, each.number): size for each in more}

    def join(self, broker: int, rack: str | None) -> None:
        """Register a broker that is new, or was unregistered."""
        self.brokers[broker] = Broker(broker, f"kafka-{broker}", 9092, rack)

    def unregister(self, broker: int) -> None:
        """Let a broker die and take it out of the registered ones; lists keep it."""
        self.fence(broker)
        del self.brokers[broker]

    def fence(self, broker: int) -> None:
        """Let a broker die: it is fenced, leaves every ISR but a last one, and leads nothing."""
        self.brokers[broker] = replace(self.brokers[broker], fenced=True)
        self._each(lambda found: self._without(found, broker))

    def unfence(self, broker: int) -> None:
        """Let a broker come back with what it had, and in place of failed directories with new
        ones, all in sync."""
        self.lost = {(key, each) for key, each in self.lost if each != broker}
        self.brokers[broker] = replace(self.brokers[broker], fenced=False)

        def back(found: Partition) -> Partition:
            if broker not in found.listed or broker in found.adding:
                return found
            in_sync = (*found.in_sync, *({broker} - {*found.in_sync}))
            offline = tuple(each for each in found.offline if each != broker)
            leader = found.leader or broker
            return replace(found, in_sync=in_sync, leader=leader, offline=offline)

        self._each(back)

    def fail_disk(self, broker: int, *keys: PartitionId) -> None:
        """Let a log directory of a live broker fail that holds its replicas of these partitions."""
        for key in keys:
            found = self._find(key)
            assert found is not None, key
            assert not self.brokers[broker].fenced, broker
            self.lost.add((key, broker))
            self._put(key[0], self._without(found, broker))

    def repair_disks(self) -> None:
        """Let the brokers of failed directories restart with new ones, and copy what is listed."""
        for broker in sorted({broker for _, broker in self.lost}):
            if not self.brokers[broker].fenced:
                self.fence(broker)
                self.unfence(broker)

    def lag(self, key: PartitionId, broker: int) -> None:
        """Let a follower fall out of sync, though its broker lives."""
        found = self._find(key)
        assert found is not None, key
        self._put(key[0], replace(found, in_sync=tuple({*found.in_sync} - {broker})))

    def catch_up(self, key: PartitionId) -> None:
        """Let all replicas of a partition be in sync again."""
        found = self._find(key)
        assert found is not None, key
        self._put(key[0], replace(found, in_sync=found.replicas))

    def copy(self, count: int | None = None) -> int:
        """Complete the copies of `count` reassignments that can be completed, or of all of them;
        returns how many."""
        done = 0
        for name, topic in [*self.topics.items()]:
            for partition in topic.partitions:
                if (count is None or done < count) and self._can_complete(name, partition):
                    self._put(name, self._complete(partition))
                    done += 1
        return done

    def arrive(self, key: PartitionId, size: int) -> None:
        """Let this many bytes of a partition be on the brokers that a reassignment adds."""
        found = self._find(key)
        assert found is not None, key
        self.arrived |= {(key, broker): size for broker in found.adding}

    # ClusterAdmin

    def find_obstacles(self, *, alters: bool) -> list[str]:
        """See ClusterAdmin."""
        self._reach()
        return self.obstacles if alters else []

    def describe_cluster(self) -> DescribedCluster:
        """See ClusterAdmin."""
        self._reach()
        live = [each.id for each in self.brokers.values() if not each.fenced]
        return DescribedCluster("simulated", min(live, default=None), dict(self.brokers))

    def describe_topics(self) -> list[DescribedTopic]:
        """See ClusterAdmin."""
        self._reach()
        return [
            replace(
                topic,
                partitions=tuple(
                    replace(each, adding=(), removing=()) for each in topic.partitions
                ),
            )
            for topic in self.topics.values()
            if topic.name not in self.hidden
        ]

    def find_hidden(self, topics: Collection[str]) -> set[str]:
        """See ClusterAdmin."""
        self._reach()
        return {*topics} & self.hidden

    def list_reassignments(self) -> dict[PartitionId, Reassignment]:
        """See ClusterAdmin."""
        self._reach()
        return {
            (name, each.number): Reassignment(each.listed, each.adding, each.removing)
            for name, topic in self.topics.items()
            for each in topic.partitions
            if each.is_reassigned
        }

    def describe_topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """See ClusterAdmin."""
        self._reach()
        return {name: dict(self.configs[name]) for name in topics if name in self.configs}

    def describe_broker_rates(self, brokers: Collection[int]) -> dict[int, dict[str, int]]:
        """See ClusterAdmin."""
        self._reach()
        return {each: dict(self.rates.get(each, {})) for each in brokers}

    def describe_logs(self, brokers: Collection[int]) -> dict[int, DescribedLogs]:
        """See ClusterAdmin."""
        self._reach()
        found = {}
        for broker in brokers:
            sizes = {
                (name, each.number): self.arrived.get(((name, each.number), broker), 0)
                if broker in each.adding
                else self.sizes[name, each.number]
                for name, topic in self.topics.items()
                for each in topic.partitions
                if broker in each.listed and ((name, each.number), broker) not in self.lost
            }
            failed = ("/disk2",) if any(each == broker for _, each in self.lost) else ()
            disk = Disk(TERABYTE, TERABYTE - sum(sizes.values()), failed)
            found[broker] = DescribedLogs(sizes, disk)
        return found

    def alter_reassignments(
        self, targets: Mapping[PartitionId, Sequence[int] | None]
    ) -> dict[PartitionId, str | None]:
        """See ClusterAdmin."""
        self._reach()
        return {key: self._alter(key, to) for key, to in targets.items()}

    def alter_topic_entries(
        self, changes: Mapping[str, Mapping[str, tuple[Collection[str], Collection[str]]]]
    ) -> dict[str, str | None]:
        """See ClusterAdmin."""
        self._reach()
        answers: dict[str, str | None] = {}
        for topic, configs in changes.items():
            if topic not in self.configs:
                answers[topic] = "UnknownTopicOrPartition"
                continue
            answers[topic] = None
            for config, (added, removed) in configs.items():
                before = {*self.configs[topic].pop(config, "").split(",")} - {""}
                after = (before | {*added}) - {*removed}
                if after:
                    self.configs[topic][config] = ",".join(sorted(after))
        return answers

    def alter_broker_rates(
        self, changes: Mapping[int, Mapping[str, int | None]]
    ) -> dict[int, str | None]:
        """See ClusterAdmin."""
        self._reach()
        answers: dict[int, str | None] = {}
        for broker, rates in changes.items():
            if broker not in self.brokers or self.brokers[broker].fenced:
                answers[broker] = "UnknownBrokerId"
                continue
            answers[broker] = None
            before = self.rates.setdefault(broker, {})
            for key, rate in rates.items():
                before.pop(key, None)
                if rate is not None:
                    before[key] = rate
        return answers

    def elect_preferred(self, partitions: Collection[PartitionId]) -> dict[PartitionId, str | None]:
        """See ClusterAdmin."""
        self._reach()
        answers: dict[PartitionId, str | None] = {}
        for name, number in partitions:
            found = self._find((name, number))
            if found is None:
                answers[name, number] = "UnknownTopicOrPartition"
            elif found.target[0] in found.in_sync:
                answers[name, number] = None
                self._put(name, replace(found, leader=found.target[0]))
            else:
                answers[name, number] = "PreferredLeaderNotAvailable"
        return answers

    # Kafka's rules

    def _reach(self) -> None:
        if self.unreachable is not None:
            raise BrokerUnreachable(self.unreachable)

    def _find(self, key: PartitionId) -> Partition | None:
        topic = self.topics.get(key[0])
        if topic is None or key[1] >= len(topic.partitions):
            return None
        return topic.partitions[key[1]]

    def _put(self, name: str, partition: Partition) -> None:
        topic = self.topics[name]
        number = partition.number
        changed = (*topic.partitions[:number], partition, *topic.partitions[number + 1 :])
        self.topics[name] = replace(topic, partitions=changed)

    def _each(self, change: Callable[[Partition], Partition]) -> None:
        for name, topic in [*self.topics.items()]:
            self.topics[name] = replace(topic, partitions=tuple(map(change, topic.partitions)))

    def _without(self, found: Partition, broker: int) -> Partition:
        if broker not in found.listed:
            return found
        left = tuple(each for each in found.in_sync if each != broker)
        leader = found.leader
        if leader == broker:
            leader = next((each for each in found.target if each in left), None)
        return replace(
            found, in_sync=left or found.in_sync, leader=leader, offline=(*found.offline, broker)
        )

    def _alter(self, key: PartitionId, to: Sequence[int] | None) -> str | None:
        self.altered.append((key, None if to is None else tuple(to)))
        found = self._find(key)
        if found is None:
            return "UnknownTopicOrPartition"
        before = found.replicas
        if to is None:
            if not found.is_reassigned:
                return "NoReassignmentInProgress"
            in_sync = tuple(each for each in found.in_sync if each in before)
            if not in_sync:
                return "InvalidReplicationAssignment"
            self._put(
                key[0], replace(found, listed=before, in_sync=in_sync, adding=(), removing=())
            )
            return None
        if not to or len({*to}) < len(to) or not {*to} <= self.brokers.keys():
            return "InvalidReplicationAssignment"
        # What a replaced reassignment added stays added (Kafka 4.3.1); one that removes it, too,
        # never ends.
        removing = tuple(each for each in found.listed if each not in to)
        adding = (*found.adding, *(each for each in to if each not in found.listed))
        changed = replace(found, listed=(*to, *removing), adding=adding, removing=removing)
        self._put(key[0], self._complete(changed) if not adding else changed)
        return None

    def _can_complete(self, name: str, found: Partition) -> bool:
        live = {each.id for each in self.brokers.values() if not each.fenced}
        # A broker does not bring a replica up again whose directory has failed (Kafka 4.3.1).
        live -= {broker for key, broker in self.lost if key == (name, found.number)}
        return found.is_reassigned and {*found.adding} <= {*found.target} & live

    def _complete(self, found: Partition) -> Partition:
        target = found.target
        arrived = {*found.in_sync, *found.adding}
        in_sync = tuple(each for each in target if each in arrived)
        leader = found.leader if found.leader in target else next(iter(in_sync), None)
        offline = tuple(each for each in found.offline if each in target)
        return Partition(found.number, target, leader, in_sync, offline=offline)


def _listed_alone(partition: Partition) -> Partition:
    return replace(partition, adding=(), removing=())
