"""Reports what replicas use of the brokers' disks, as the resource `disk_bytes` of the reconciler.

Sizes are those of the log directories. The reconciler smooths them and passes on what matters. It
refuses reports of a resource that it does not count, so that they are sent only where the settings
of the bridge count this one, too.
"""

from collections.abc import Iterator

from schemas.cluster import SHARD_BYTES_RESOURCE
from schemas.inputs import NodeLoadReported
from schemas.loads import ReportedShard
from streaming.kafka_bridge.memory import Memory
from streaming.kafka_bridge.snapshot import Snapshot
from streaming.kafka_bridge.tables import Tables

# As often as nodes are asked to report: four reports in a half-life of the filter.
INTERVAL_MS = 30_000
# A record has at most 256 KiB; an entry with the longest name takes less than 400 bytes.
SHARDS_MAX = 600


def is_due(snapshot: Snapshot, memory: Memory) -> bool:
    """Return whether the sizes of this look are to be reported."""
    if snapshot.sized_at is None:
        return False
    last = memory.loads_sized_at
    return last is None or not 0 <= snapshot.sized_at - last < INTERVAL_MS


def capacity_of(snapshot: Snapshot, broker: int) -> dict[str, int] | None:
    """Return what a broker has of the resource; None where it does not say."""
    disk = snapshot.disks.get(broker)
    return None if disk is None or not disk.total else {SHARD_BYTES_RESOURCE: disk.total}


def find_load_reports(snapshot: Snapshot, tables: Tables) -> Iterator[NodeLoadReported]:
    """Yield what each live broker that the reconciler knows holds of streams that it knows."""
    held: dict[int, list[ReportedShard]] = {}
    for (topic, number), sizes in sorted(snapshot.sizes.items()):
        assignment = tables.assignments.get((topic, number))
        if assignment is None:
            continue
        for broker, size in sizes.items():
            if str(broker) in assignment.replicas:
                amount = {SHARD_BYTES_RESOURCE: size}
                entry = ReportedShard(stream=topic, shard=number, uid=assignment.uid, **amount)
                held.setdefault(broker, []).append(entry)
    for broker in sorted(held.keys() & snapshot.live()):
        view = tables.nodes.get(str(broker))
        for number, first in enumerate(range(0, len(held[broker]), SHARDS_MAX)):
            if view is not None:
                yield NodeLoadReported(
                    node_id=view.node_id,
                    incarnation=view.incarnation,
                    sequence=snapshot.at + number,
                    capacities=capacity_of(snapshot, broker),
                    shards=tuple(held[broker][first : first + SHARDS_MAX]),
                )
