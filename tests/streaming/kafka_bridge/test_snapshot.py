"""One look at a Kafka cluster: what a reassignment adds is no replica yet."""

from streaming.kafka_bridge import Broker, Partition, Snapshot, Topic

MOVED = Partition(0, (4, 2, 3, 1), 1, (1, 2, 3), adding=(4,), removing=(1,))
RESTING = Partition(1, (2, 3, 1), 2, (2, 3))


def test_of_a_reassignment_the_target_and_the_replicas_are_told_apart() -> None:
    assert (MOVED.target, MOVED.replicas) == ((4, 2, 3), (2, 3, 1))
    assert (RESTING.target, RESTING.replicas) == (RESTING.listed, RESTING.listed)


def test_a_replica_that_is_being_added_does_not_make_a_partition_under_replicated() -> None:
    assert not MOVED.is_under_replicated
    assert RESTING.is_under_replicated


def test_a_snapshot_lists_partitions_by_topic_and_knows_the_largest_replica() -> None:
    topics = {name: Topic(name, name, (MOVED, RESTING)) for name in ("b", "a")}
    brokers = {1: Broker(1, "h", 9092), 2: Broker(2, "h", 9093, fenced=True)}
    sizes = {("a", 0): {1: 10, 4: 3}}
    snapshot = Snapshot(1, "c", 1, brokers, topics, sizes=sizes)
    assert [(t.name, p.number) for t, p in snapshot.partitions()] == [
        ("a", 0), ("a", 1), ("b", 0), ("b", 1)
    ]  # fmt: skip
    assert [(t.name, p.number) for t, p in snapshot.reassigned()] == [("a", 0), ("b", 0)]
    assert snapshot.live() == {1}
    assert (snapshot.size_of("a", 0), snapshot.size_of("a", 1)) == (10, None)
