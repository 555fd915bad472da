"""Says which partitions need an election for their preferred leader to lead.

A reassignment changes the order of replicas, and with it the preferred leader; who leads stays
until an election (`kafka-leader-election --election-type preferred`).
"""

from collections.abc import Collection, Sequence

from streaming.kafka_bridge.admin_client import PartitionId
from streaming.kafka_bridge.snapshot import Partition, Snapshot


def find_elections(
    snapshot: Snapshot, partitions: Collection[PartitionId]
) -> tuple[PartitionId, ...]:
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
