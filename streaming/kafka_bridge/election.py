"""Says which partitions need an election for their preferred leader to lead.

A reassignment changes the order of replicas, and with it the preferred leader; who leads stays
until an election (`kafka-leader-election --election-type preferred`).
"""

from collections.abc import Collection

from streaming.kafka_bridge.admin_client import PartitionId
from streaming.kafka_bridge.snapshot import Snapshot


def find_elections(
    snapshot: Snapshot, partitions: Collection[PartitionId]
) -> tuple[PartitionId, ...]:
    """List those of the partitions that their preferred leader could lead and does not: it is in
    sync, and no reassignment is about to replace it."""
    return tuple(
        (topic.name, each.number)
        for topic, each in snapshot.partitions()
        if (topic.name, each.number) in partitions
        and each.target
        and each.target[0] in each.in_sync
        and each.leader != each.target[0]
    )
