"""Looks at a cluster through `ClusterAdmin` and makes a `Snapshot` of it.

A look is whole or it is none: where one of its calls fails, nobody learns half of the cluster.
Log directories and configurations change seldom and cost most, so they are asked for less often.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from streaming.errors import BrokerUnreachable
from streaming.kafka_bridge.admin_client import (
    FOLLOWER_ENTRIES,
    FOLLOWER_RATE,
    LEADER_ENTRIES,
    LEADER_RATE,
    MIN_IN_SYNC,
    POLICY,
    ClusterAdmin,
    DescribedTopic,
    PartitionId,
    Reassignment,
)
from streaming.kafka_bridge.snapshot import Disk, Partition, Snapshot, Throttles, Topic

# Sizes serve estimates and reports of progress; 6 brokers with 2,279 partitions took 108 ms.
SIZES_INTERVAL_MS = 300_000
# Configurations of topics: a quorum that was changed by hand is known within a minute.
CONFIGS_INTERVAL_MS = 60_000


class Observer:
    """Remembers of earlier looks what is not asked for in each: sizes, configurations."""

    def __init__(self, admin: ClusterAdmin) -> None:
        self._admin = admin
        self._configs: dict[str, tuple[str, Mapping[str, str]]] = {}
        self._configured_at: int | None = None
        self._sizes: dict[PartitionId, dict[int, int]] = {}
        self._disks: dict[int, Disk] = {}
        self._sized_at: int | None = None
        self._rates: dict[int, dict[str, int]] = {}

    def look(
        self,
        at: int,
        *,
        throttles: bool = True,
        fresh: bool = True,
        sizes_interval_ms: int | None = None,
        expected: Collection[str] = (),
    ) -> Snapshot:
        """Look at the cluster; `at` is the time in ms that the snapshot carries.

        Without `throttles` rates and entries are not read. Without `fresh` they, and what else is
        configured, may be as old as `CONFIGS_INTERVAL_MS`. `sizes_interval_ms`: sizes are read anew
        when they are as old, or `SIZES_INTERVAL_MS`. `expected`: topics that are asked for by name
        if the others do not show them. Raises as `ClusterAdmin`.
        """
        # Before and after: of one that starts or ends in between the topics may show the union.
        moving = self._admin.list_reassignments()
        described = self._admin.describe_topics()
        moving = self._admin.list_reassignments() | moving
        missing = {*expected} - {each.name for each in described}
        hidden = self._admin.find_hidden(sorted(missing)) if missing else ()
        cluster = self._admin.describe_cluster()
        live = sorted(each.id for each in cluster.brokers.values() if not each.fenced)
        since = None if self._configured_at is None else at - self._configured_at
        due = since is None or since >= CONFIGS_INTERVAL_MS or (throttles and fresh)
        self._read_configs(at, described, all_of_them=due)
        if throttles and (due or not {*live} <= self._rates.keys()):
            self._read_rates(live)
        self._read_sizes(at, live, min(sizes_interval_ms or SIZES_INTERVAL_MS, SIZES_INTERVAL_MS))
        topics = {each.name: self._topic(each, moving) for each in described}
        return Snapshot(
            at,
            cluster.cluster_id,
            cluster.controller,
            cluster.brokers,
            topics,
            self._throttles(live) if throttles else Throttles(),
            self._sizes,
            self._disks,
            self._sized_at,
            frozenset(hidden),
        )

    def _topic(self, found: DescribedTopic, moving: Mapping[PartitionId, Reassignment]) -> Topic:
        _, configs = self._configs.get(found.name, ("", {}))
        return Topic(
            found.name,
            found.uid,
            tuple(
                _reassigned(each, moving.get((found.name, each.number)))
                for each in found.partitions
            ),
            found.internal,
            int(configs.get(MIN_IN_SYNC, 1)),
            configs.get(POLICY),
        )

    def _read_configs(
        self, at: int, topics: Collection[DescribedTopic], *, all_of_them: bool
    ) -> None:
        uids = {each.name: each.uid for each in topics}
        if all_of_them:
            wanted = [*uids]
            self._configured_at = at
        else:
            known = self._configs
            wanted = [name for name, uid in uids.items() if known.get(name, ("",))[0] != uid]
        found = self._admin.describe_topic_configs(wanted)
        kept = {name: each for name, each in self._configs.items() if each[0] == uids.get(name)}
        self._configs = kept | {name: (uids[name], values) for name, values in found.items()}

    def _read_sizes(self, at: int, live: Collection[int], interval_ms: int) -> None:
        if self._sized_at is not None and at - self._sized_at < interval_ms:
            return
        sizes: dict[PartitionId, dict[int, int]] = {}
        disks = {}
        for broker, logs in self._admin.describe_logs(live).items():
            disks[broker] = logs.disk
            for key, size in logs.sizes.items():
                sizes.setdefault(key, {})[broker] = size
        self._sizes, self._disks, self._sized_at = sizes, disks, at

    def _read_rates(self, live: Collection[int]) -> None:
        found = self._admin.describe_broker_rates(live)
        # One that dies does not answer, and is live until its session ends: it keeps its rates.
        rates = {each: self._rates[each] for each in live if each in self._rates} | found
        unknown = sorted({*live} - rates.keys())
        if unknown:
            raise BrokerUnreachable(f"brokers {unknown} did not tell their throttle rates")
        self._rates = rates

    def _throttles(self, live: Collection[int]) -> Throttles:
        rates = {broker: self._rates[broker] for broker in live}
        return Throttles(
            {broker: each[LEADER_RATE] for broker, each in rates.items() if LEADER_RATE in each},
            {b: each[FOLLOWER_RATE] for b, each in rates.items() if FOLLOWER_RATE in each},
            self._entries(LEADER_ENTRIES),
            self._entries(FOLLOWER_ENTRIES),
        )

    def _entries(self, config: str) -> dict[str, frozenset[str]]:
        return {
            topic: frozenset(configs[config].split(","))
            for topic, (_, configs) in self._configs.items()
            if config in configs
        }


def _reassigned(partition: Partition, found: Reassignment | None) -> Partition:
    """Add the reassignment of a partition whose list shows it; else it ended or starts later."""
    if found is None or not {*found.adding, *found.removing} <= {*partition.listed}:
        return partition
    return replace(partition, adding=found.adding, removing=found.removing)
