"""Tells the reconciler what it does not know of replicas: changes by others, in sync, or lost.

A list that somebody else has made is told when all looks of a while agree, because a broker that
lags shows an earlier one, and when nobody reassigns the topic any more. Where a topic was given
another replication factor its stream is given that first: repair would undo the change otherwise.
Of lists that are as recorded the replicas are told that fall out of sync, or are in sync again. A
stream that waits for its lists (`adopt: observed`) is told them.

A replica is lost if the brokers list it as offline although its own broker lives, and that broker,
asked for its log directories, has a failed one and does not hold it. It is told if another one is
in sync: else the failed directory holds the only complete copy.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import islice

import orjson

from schemas import limits
from schemas.acks import ReplicaLost, ReplicasObserved
from schemas.node_view import Liveness
from streaming.kafka_bridge.admin_client import PartitionId
from streaming.kafka_bridge.desired import Desired, Standing
from streaming.kafka_bridge.importer import replication_factor
from streaming.kafka_bridge.inventory import SPEC_BYTES_MAX
from streaming.kafka_bridge.membership import SAID_DOWN
from streaming.kafka_bridge.memory import SETTLE_MS, ForeignList, LostReplica, Memory
from streaming.kafka_bridge.snapshot import Partition, Snapshot
from streaming.kafka_bridge.tables import Tables, is_of

# A broker that restarts takes thousands of replicas out of sync at once; the reconciler has other
# records to read, too.
SYNC_CHANGES_MAX = 1_000
# The reason of a decision whose stream waits for observations of its shards.
AWAITED = "REPLICAS_AWAITED"
# While a replica is offline its broker is asked often enough to be asked twice before it is told.
CONFIRM_INTERVAL_MS = SETTLE_MS // 2
# A directory may hold thousands.
LOSSES_MAX = SYNC_CHANGES_MAX
# A line of a log.
_NAMED_MAX = 5


def find_foreign_lists(desired: Collection[Desired], snapshot: Snapshot) -> set[ForeignList]:
    """Find the lists that somebody else has made, of topics that nobody else is still changing."""
    changing = {each.key[0] for each in desired if each.standing is Standing.YIELD}
    found = set()
    for each in desired:
        if each.standing is Standing.FOREIGN and each.key[0] not in changing:
            partition = snapshot.partition(*each.key)
            assert partition is not None, "what is not there is not foreign"
            found.add((each.key, partition.listed))
    return found


def find_foreign_factors(snapshot: Snapshot, tables: Tables, memory: Memory) -> dict[str, int]:
    """Find the replication factors that somebody else has given to topics, by stream.

    Most partitions have as many replicas, and they have because their lists were changed.
    """
    changed: dict[str, Counter[int]] = {}
    for (name, number), listed in _settled(memory, snapshot, tables):
        if len(listed) != len(tables.assignments[name, number].replicas):
            changed.setdefault(name, Counter())[len(listed)] += 1
    found = {}
    for name, counts in changed.items():
        partitions = snapshot.topics[name].partitions
        factor = replication_factor(partitions)
        having = sum(len(each.replicas) == factor for each in partitions)
        if factor != tables.decisions[name].spec.replication_factor and counts[factor] * 2 > having:
            found[name] = factor
    return found


def find_observations(
    snapshot: Snapshot, tables: Tables, memory: Memory, factors: dict[str, int]
) -> Iterator[ReplicasObserved]:
    """Yield what is to be told of partitions; `factors` are those of `find_foreign_factors`."""
    for key, listed in sorted(_settled(memory, snapshot, tables)):
        name, number = key
        decision, partition = tables.decisions[name], snapshot.partition(*key)
        assert partition is not None, "a foreign list is one of this look"
        asked = decision.requested and decision.requested.replication_factor
        is_altered = name in factors and factors[name] != asked
        # A list with a node that is not known would be refused.
        if is_altered or not {*map(str, listed)} <= tables.nodes.keys():
            continue
        yield ReplicasObserved(
            stream=name,
            shard=number,
            epoch=tables.assignments[key].epoch,
            replicas=tuple(map(str, listed)),
            leader=None if partition.leader is None else str(partition.leader),
            in_sync=tuple(map(str, partition.in_sync)),
            uid=decision.spec.uid,
        )


def find_awaited(
    snapshot: Snapshot, tables: Tables, stale: Collection[str]
) -> Iterator[ReplicasObserved]:
    """Yield the lists that streams created with `adopt: observed` wait for, range by range.

    `stale` streams do not describe the topic of their name.
    """
    for decision in tables.living_streams():
        name, uid = decision.stream, decision.spec.uid
        topic = snapshot.topics.get(name)
        waits = any(reason.code == AWAITED for reason in decision.reasons)
        if not waits or topic is None or name in stale:
            continue
        lists = {
            each.number: tuple(map(str, each.replicas))
            for each in topic.partitions[: decision.spec.shards]
            if (name, each.number) not in tables.assignments
            if {*map(str, each.replicas)} <= tables.nodes.keys()
        }
        for first, (nodes, *more) in _in_ranges(lists):
            following = tuple(more) or None
            yield ReplicasObserved(
                stream=name, shard=first, epoch=0, replicas=nodes, following=following, uid=uid
            )


def _in_ranges(lists: Mapping[int, tuple[str, ...]]) -> Iterator[tuple[int, list[tuple[str, ...]]]]:
    """Cut lists into ranges of shards that follow each other, each as many as a record holds."""
    first, found, left = 0, list[tuple[str, ...]](), 0
    for number, nodes in sorted(lists.items()):
        left -= len(orjson.dumps(nodes)) + 1
        if found and (number > first + len(found) or left < 0):
            yield first, found
            found = []
        if not found:
            first, left = number, limits.RECORD_BYTES_MAX - SPEC_BYTES_MAX
        found.append(nodes)
    if found:
        yield first, found


def find_sync_changes(
    desired: Collection[Desired], snapshot: Snapshot, tables: Tables, memory: Memory
) -> set[ForeignList]:
    """Find the partitions whose replicas out of sync are others than the reconciler knows.

    Replicas of brokers that it knows to be dead, or has just been told, do not count; neither do
    lost ones, which are told as such, nor those of a partition that is being moved: the end of the
    move says what is there.
    """
    gone = (Liveness.DEAD, Liveness.UNREGISTERED)
    dead = {name for name, view in tables.nodes.items() if view.liveness in gone}
    dead |= {name for said, name in memory.words if said == SAID_DOWN}
    found = set()
    for each in desired:
        partition, assignment = snapshot.partition(*each.key), tables.assignments.get(each.key)
        if partition is None or assignment is None or not each.target:
            continue
        known = tables.out_of_sync.get(each.key, frozenset())
        if not known and len(partition.in_sync) == len(partition.listed):
            continue
        behind = {str(broker) for broker in {*partition.listed} - {*partition.in_sync}}
        lost = {str(b) for b in partition.offline if (each.key, b) in memory.lost_since}
        if behind - dead - lost == known - dead - lost:
            continue
        if partition.is_reassigned or each.move is not None:
            continue
        if {*map(str, partition.listed)} == {*assignment.replicas}:
            found.add((each.key, tuple(sorted(partition.in_sync))))
    return found


def find_sync_observations(
    snapshot: Snapshot, tables: Tables, memory: Memory
) -> list[ReplicasObserved]:
    """List what is to be told of replicas out of sync, as much as one look tells."""
    settled = (
        key
        for (key, _), since in sorted(memory.unsynced_since.items())
        if snapshot.at - since >= SETTLE_MS
    )
    return [_observe(key, snapshot, tables) for key in islice(settled, SYNC_CHANGES_MAX)]


def _observe(key: PartitionId, snapshot: Snapshot, tables: Tables) -> ReplicasObserved:
    partition, assignment = snapshot.partition(*key), tables.assignments[key]
    assert partition is not None, "it is one of this look"
    return ReplicasObserved(
        stream=key[0],
        shard=key[1],
        epoch=assignment.epoch,
        # Who is to lead stays as it is, whatever order Kafka has before the lists are stated.
        replicas=assignment.replicas,
        leader=None if partition.leader is None else str(partition.leader),
        in_sync=tuple(map(str, partition.in_sync)),
        uid=assignment.uid,
    )


def _settled(memory: Memory, snapshot: Snapshot, tables: Tables) -> Iterator[ForeignList]:
    """Yield the lists on which all looks of a while agree, of streams whose decision is known."""
    for found, since in memory.foreign_since.items():
        (name, _), _ = found
        if name in tables.decisions and snapshot.at - since >= SETTLE_MS:
            yield found


def find_offline(snapshot: Snapshot) -> Iterator[LostReplica]:
    """Yield the replicas that are offline although their broker lives."""
    for topic, partition in snapshot.partitions():
        for broker in partition.offline:
            if snapshot.is_live(broker):
                yield (topic.name, partition.number), broker


def find_lost(snapshot: Snapshot) -> set[LostReplica]:
    """Find the offline replicas that their broker does not hold, and has a failed directory."""
    return {
        (key, broker)
        for key, broker in find_offline(snapshot)
        if broker in snapshot.disks and snapshot.disks[broker].failed
        if broker not in snapshot.sizes.get(key, {})
    }


def find_losses(
    desired: Collection[Desired], snapshot: Snapshot, tables: Tables, memory: Memory
) -> list[ReplicaLost]:
    """List what is to be told of lost replicas, as much as one look tells.

    `memory.lost_since` has to be that of this snapshot. One that a move takes away is left out.
    """
    leaving = {each.key: each.move.remove for each in desired if each.move is not None}
    found = (
        ReplicaLost(
            stream=key[0],
            shard=key[1],
            node_id=str(broker),
            reason=_why(broker, snapshot),
            uid=tables.assignments[key].uid,
        )
        for key, broker in sorted(_settled_losses(memory, snapshot))
        if _is_recorded(key, broker, snapshot, tables)
        if leaving.get(key) != str(broker) and _is_spared(key, snapshot, memory)
    )
    return [*islice(found, LOSSES_MAX)]


def describe_failures(snapshot: Snapshot, memory: Memory) -> list[str]:
    """Describe failed log directories, and the partitions that have no other copy in sync."""
    failed = [
        f"broker {broker} has a failed log directory: {', '.join(disk.failed)}"
        for broker, disk in sorted(snapshot.disks.items())
        if disk.failed and snapshot.is_live(broker)
    ]
    only: Mapping[PartitionId, int] = {
        key: broker
        for key, broker in sorted(_settled_losses(memory, snapshot))
        if not _is_spared(key, snapshot, memory)
    }
    if not only:
        return failed
    names = [f"{topic}-{number} (broker {broker})" for (topic, number), broker in only.items()]
    more = ["…"] if len(names) > _NAMED_MAX else []
    count = "1 partition is" if len(names) == 1 else f"{len(names)} partitions are"
    what = f"{count} left alone, with no replica in sync outside of a failed log directory"
    return [*failed, f"{what}: {', '.join([*names[:_NAMED_MAX], *more])}; repair the directory"]


def _settled_losses(memory: Memory, snapshot: Snapshot) -> Iterator[LostReplica]:
    for found, since in memory.lost_since.items():
        if snapshot.at - since >= SETTLE_MS:
            yield found


def _is_recorded(key: PartitionId, broker: int, snapshot: Snapshot, tables: Tables) -> bool:
    """Return whether the reconciler counts on the replica, of this topic and no earlier one."""
    assignment = tables.assignments.get(key)
    if assignment is None or not is_of(assignment, snapshot.topics[key[0]]):
        return False
    return str(broker) in assignment.replicas


def _is_spared(key: PartitionId, snapshot: Snapshot, memory: Memory) -> bool:
    """Return whether a replica that is not lost is in sync and its broker lives."""
    partition = _partition(key, snapshot)
    return any(
        snapshot.is_live(each) and (key, each) not in memory.lost_since
        for each in partition.in_sync
    )


def _partition(key: PartitionId, snapshot: Snapshot) -> Partition:
    partition = snapshot.partition(*key)
    assert partition is not None, "it is one of this look"
    return partition


def _why(broker: int, snapshot: Snapshot) -> str:
    return f"log directory {', '.join(snapshot.disks[broker].failed)} of broker {broker} has failed"
