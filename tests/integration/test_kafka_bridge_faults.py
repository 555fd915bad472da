"""The live bridge on six brokers in three racks, and a seventh that joins, through their faults.

Goal: after each of it every partition is whole and in three racks, nothing runs, nothing of ours is
left and nothing of others is touched; what a producer wrote with acks=all is there at the end.
Method: one cluster, which each test leaves at rest; its tests go on from each other, and each also
passes alone: what it needs of an earlier one it asks for.
"""

import signal
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from streaming.administration import apply_topics
from streaming.kafka_bridge import KafkaAdmin
from streaming.kafka_bridge.admin_client import LEADER_RATE
from streaming.runtime.broker_process import DATA
from tests.systems.bridged import PREFIX, BridgedKafka, Writer
from tests.systems.cluster import Cluster
from tests.systems.waiting import until

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    # kafka-python leaves the socket of a broker that died to the collector.
    pytest.mark.filterwarnings("ignore:.*unclosed.*socket:pytest.PytestUnraisableExceptionWarning"),
]

RACKS = ("a", "a", "b", "b", "c", "c", "b")
JOINING = 7
# One broker has a second log directory; that it has failed is noticed when it is next written to.
TWO_DISKS, DISK = 6, "disk"
DISKS = {"log.dirs": f"{DATA},{DISK}", "replica.high.watermark.checkpoint.interval.ms": "1000"}
TOPIC, PARTITIONS = "orders", 12
OPTIONS = ("--patience-seconds", "2", "--throttle", "20MB")
# Many small partitions: the limits that ship are for large ones.
LIMITS = {"PLACER_MOVES__MAX_IN_PER_NODE": "50", "PLACER_MOVES__MAX_OUT_PER_NODE": "50"}

# A copy at this rate takes three deadlines, and goes on because it is reported.
SLOW_COPIES = {
    "PLACER_MOVES__DEADLINE_SECONDS": "20",
    "PLACER_MOVES__RATE_BYTES_PER_SECOND": "1000000",
}
RESOURCES = {
    "PLACER_RESOURCES": '{"disk_bytes": {"capacity": 0.9}}',
    "PLACER_LOADS__HALF_LIFE_SECONDS": "2",
}
WEIGHED_BYTES = 20_000_000
LARGE_BYTES, CHUNK_BYTES = 60_000_000, 500_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgedKafka]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), RACKS, idle=1)
    cluster.nodes[TWO_DISKS - 1].properties |= DISKS
    with cluster:
        apply_topics(cluster.bootstrap, PREFIX, 3)
        kafka = BridgedKafka(cluster, tmp_path_factory.mktemp("scratch"), OPTIONS)
        try:
            kafka.application.wait_ready()
            kafka.create(TOPIC, PARTITIONS)
            kafka.start()
            kafka.come_to_rest()
            yield kafka
        finally:
            kafka.close()


@pytest.fixture(scope="module", autouse=True)
def writer(kafka: BridgedKafka) -> Iterator[Writer]:
    """Writes all the while; nothing that was confirmed may be missing in the end."""
    writer = Writer(kafka.bootstrap, TOPIC, PARTITIONS)
    yield writer
    writer.close()
    assert not writer.refused
    assert writer.confirmed
    assert not {*writer.confirmed} - writer.stored()


@pytest.fixture(autouse=True)
def in_three_racks(kafka: BridgedKafka) -> Iterator[None]:
    """After each test every partition has a replica in each rack."""
    yield
    assert not in_fewer_racks(kafka)


def in_fewer_racks(kafka: BridgedKafka) -> list[str]:
    """The partitions whose replicas share a rack, though there are three."""
    seen = kafka.look()
    if seen is None:
        return ["no look"]
    return [
        f"{topic.name}-{each.number} is on {each.listed}"
        for topic, each in seen.partitions()
        if len({seen.brokers[broker].rack for broker in each.listed}) < min(3, len(each.listed))
    ]


def holds(kafka: BridgedKafka) -> list[str]:
    """What alerts of a hold were about."""
    alerts = [record.value for record in kafka.outputs.of("alerts.v1")]
    return [each["subject"] for each in alerts if each is not None and each["kind"] == "HOLD"]


def start(kafka: BridgedKafka, *brokers: int) -> None:
    for broker in brokers:
        kafka.cluster.nodes[broker - 1].launch()
    for broker in brokers:
        kafka.cluster.nodes[broker - 1].wait_answering()


def test_topics_come_badly_placed_grow_go_and_come_again(kafka: BridgedKafka) -> None:
    kafka.create("crowded", [(1, 2, 3), (2, 1, 4), (1, 2, 5)])
    kafka.create("grown", 3)
    kafka.come_to_rest()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions("grown", 9)])["grown"].result(60)
    admin.delete_topics(["crowded"])["crowded"].result(60)
    until(lambda: "crowded" not in admin.list_topics(timeout=10).topics, "it is deleted")
    kafka.create("crowded", [(3, 4, 5)] * 5)
    until(lambda: len(kafka.outputs.replicas("crowded")) == 5, "the new one is adopted", 120)
    kafka.come_to_rest()
    assert len(kafka.outputs.replicas("grown")) == 9


@pytest.mark.parametrize("killed", [(4,), (5,)], ids=["one", "the active controller"])
def test_a_broker_dies_and_returns(kafka: BridgedKafka, killed: tuple[int, ...]) -> None:
    seen = kafka.look()
    assert seen is not None
    brokers = killed if killed == (4,) else (seen.controller or 1,)
    for broker in brokers:
        kafka.cluster.nodes[broker - 1].kill()
    kafka.come_to_rest(gone=brokers)
    start(kafka, *brokers)
    kafka.come_to_rest()


def let_join(kafka: BridgedKafka) -> None:
    """Start the seventh broker unless it is there; a rack has three brokers from then on."""
    if str(JOINING) in kafka.outputs.latest("topology.v1"):
        return
    kafka.cluster.add(kafka.cluster.nodes[JOINING - 1])
    until(lambda: str(JOINING) in kafka.outputs.latest("topology.v1"), "it is registered", 120)


def test_a_new_broker_gets_its_share(kafka: BridgedKafka) -> None:
    let_join(kafka)
    kafka.agree("rebalance")
    kafka.come_to_rest()
    seen = kafka.look()
    assert seen is not None
    held = sum(JOINING in each.listed for _, each in seen.partitions())
    fewest = sum(1 for _ in seen.partitions()) // 4
    assert held >= fewest


def test_two_brokers_of_a_rack_die(kafka: BridgedKafka) -> None:
    let_join(kafka)
    for broker in (3, 4):
        kafka.cluster.nodes[broker - 1].kill()
    kafka.come_to_rest(gone=(3, 4))
    start(kafka, 3, 4)
    kafka.come_to_rest()


def test_a_whole_rack_dies_is_held_replaced_and_comes_back(kafka: BridgedKafka) -> None:
    for broker in (5, 6):
        kafka.cluster.nodes[broker - 1].kill()
    until(lambda: "/c" in holds(kafka), "its loss is held", 60)
    until(lambda: kafka.outputs.liveness("5") == kafka.outputs.liveness("6") == "dead", "both", 60)
    # What was evened out behind the test before may still be under way.
    assert {each["cause"] for each in kafka.outputs.open_moves.values()} <= {"balance"}
    kafka.agree("hold", "override", "/c")
    kafka.come_to_rest(gone=(5, 6))
    start(kafka, 5, 6)
    until(lambda: not in_fewer_racks(kafka), "three racks are used again", 240)
    kafka.come_to_rest()


def test_a_broker_moves_to_another_rack(kafka: BridgedKafka) -> None:
    let_join(kafka)
    node = kafka.cluster.nodes[JOINING - 1]
    for rack in ("c", RACKS[JOINING - 1]):
        node.stop()
        node.properties["broker.rack"] = rack
        start(kafka, JOINING)
        until(lambda: claimed(kafka, JOINING) == f"/{rack}", f"it says {rack}", 120)  # noqa: B023
        if in_force(kafka, JOINING) != f"/{rack}":
            kafka.agree("approve", str(JOINING))
        until(lambda: in_force(kafka, JOINING) == f"/{rack}", f"it is in {rack}", 120)  # noqa: B023
        until(lambda: not in_fewer_racks(kafka), "racks are kept", 240)
        kafka.come_to_rest()


def in_force(kafka: BridgedKafka, broker: int) -> str:
    """The location by which replicas are placed."""
    return str(kafka.outputs.latest("topology.v1")[str(broker)]["location"])


def claimed(kafka: BridgedKafka, broker: int) -> str:
    """The location that the broker claims, which may wait for approval."""
    seen = kafka.outputs.latest("topology.v1")[str(broker)]
    return str((seen.get("pending") or seen)["location"])


def test_a_log_directory_fails_and_its_replicas_are_placed_anew(kafka: BridgedKafka) -> None:
    node = kafka.cluster.nodes[TWO_DISKS - 1]
    disk, away = node.directory / DISK, node.directory / "away"
    held = {each.name for each in disk.iterdir() if each.is_dir()}
    assert held
    begun = time.monotonic()
    disk.rename(away)
    disk.touch()
    bridge = kafka.bridges[-1]
    kafka.until(lambda: bridge.at("said ReplicaLost", begun) is not None, "it is told", 60)
    kafka.come_to_rest()
    seen = kafka.look()
    assert seen is not None
    assert seen.disks[TWO_DISKS].failed == (str(disk),)
    assert not any(each.offline for _, each in seen.partitions())
    # The other directory serves on.
    assert any(TWO_DISKS in each.listed for _, each in seen.partitions())
    told = {
        line.split()[3] for at, line in bridge.lines if at > begun and "said ReplicaLost" in line
    }
    assert told <= held
    node.stop()
    disk.unlink()
    away.rename(disk)
    start(kafka, TWO_DISKS)
    kafka.come_to_rest()


def test_a_broker_is_drained(kafka: BridgedKafka) -> None:
    kafka.agree("drain", "2")
    kafka.come_to_rest(gone=(2,))
    kafka.placer("undrain", "2")
    kafka.come_to_rest()


def test_the_replication_factor_goes_down_and_up(kafka: BridgedKafka) -> None:
    for factor in (2, 3):
        kafka.placer("stream", "alter", TOPIC, "--rf", str(factor), "--no-wait")
        until(
            lambda: {len(each) for each in kafka.outputs.replicas(TOPIC)} == {factor},  # noqa: B023
            f"rf {factor}",
            240,
        )
        kafka.come_to_rest()


def test_somebody_else_reassigns_and_throttles(kafka: BridgedKafka) -> None:
    let_join(kafka)
    foreign = {1: 1_234_567}
    with KafkaAdmin(kafka.bootstrap) as admin:
        assert admin.alter_broker_rates({1: {LEADER_RATE: foreign[1]}}) == {1: None}
        seen = kafka.look()
        assert seen is not None
        now = seen.topics[TOPIC].partitions[0].listed
        other = {3: 4, 4: 3, 7: 4}
        wanted = [other.get(each, each) for each in now]
        assert admin.alter_reassignments({(TOPIC, 0): wanted}) == {(TOPIC, 0): None}
    adopted = [[str(each) for each in wanted]]
    until(lambda: kafka.outputs.replicas(TOPIC)[:1] == adopted, "adopted", 120)
    kafka.come_to_rest(foreign=foreign)
    kafka.cluster.nodes[5].kill()
    kafka.come_to_rest(gone=(6,), foreign=foreign)
    start(kafka, 6)
    kafka.come_to_rest(foreign=foreign)
    with KafkaAdmin(kafka.bootstrap) as admin:
        assert admin.alter_broker_rates({1: {LEADER_RATE: None}}) == {1: None}


def test_the_bridge_is_killed_at_ten_points_of_its_moves(kafka: BridgedKafka) -> None:
    bridge = kafka.bridges[-1]
    for number in range(10):
        begun = time.monotonic()
        # Away and back again, so that there is always something to copy.
        kafka.agree("drain", "1") if number % 2 == 0 else kafka.placer("undrain", "1")
        if number % 2 == 0:
            until(lambda: bridge.at(" reassign ", begun), "it moves", 120)  # noqa: B023
        threading.Event().wait(number * 0.2)
        assert bridge.end(signal.SIGKILL) == -signal.SIGKILL
        bridge = kafka.start()
    kafka.come_to_rest()


def test_the_reconciler_is_killed_while_it_moves(kafka: BridgedKafka) -> None:
    begun = time.monotonic()
    kafka.agree("drain", "3")
    until(lambda: kafka.bridges[-1].at(" reassign ", begun), "it moves", 120)
    kafka.application.kill()
    kafka.start_application(**LIMITS).wait_ready()
    kafka.come_to_rest(gone=(3,))
    kafka.placer("undrain", "3")
    kafka.come_to_rest()


def fill(kafka: BridgedKafka, topic: str, size: int) -> None:
    """Write so many bytes to the first partition of a topic."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all"})
    for _ in range(size // CHUNK_BYTES):
        producer.produce(topic, bytes(CHUNK_BYTES), partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


def test_a_copy_of_several_deadlines_is_reported_and_completed(kafka: BridgedKafka) -> None:
    kafka.application.kill()
    kafka.start_application(**LIMITS, **SLOW_COPIES).wait_ready()
    kafka.create("large", [(1, 3, 5)])
    fill(kafka, "large", LARGE_BYTES)
    kafka.come_to_rest()
    # Somebody puts two replicas into a rack: one of them is copied away, and nothing else.
    with KafkaAdmin(kafka.bootstrap) as admin:
        assert admin.alter_reassignments({("large", 0): (1, 2, 5)}) == {("large", 0): None}
    kafka.come_to_rest()
    moves = [r.value for r in kafka.outputs.of("moves.v1") if r.value is not None]
    of_large = [each for each in moves if each["stream"] == "large"]
    copied = [each["bytes_done"] for each in of_large if each.get("bytes_done")]
    assert copied, of_large
    assert copied == sorted(copied)
    assert max(copied) > LARGE_BYTES // 4
    assert {each["state"] for each in of_large} <= {"issued", "accepted", "completed"}


def handed(kafka: BridgedKafka) -> set[str]:
    """The moves that only hand a leader over."""
    moves = [r.value for r in kafka.outputs.of("moves.v1") if r.value is not None]
    return {each["move_id"] for each in moves if each["kind"] == "leader"}


def test_moves_of_leaders_are_carried_out(kafka: BridgedKafka) -> None:
    kafka.application.kill()
    kafka.start_application(**LIMITS, PLACER_MOVES__LEADER_MOVES="true").wait_ready()
    # One broker leads all, more than the others can lead less.
    lists = [(1, 3 + n % 2, 5 + n // 2 % 2) for n in range(40)]
    kafka.create("led", lists)
    until(lambda: len(kafka.outputs.replicas("led")) == len(lists), "it is adopted", 120)
    kafka.agree("rebalance")
    # Rest is there before the first move, too.
    kafka.until(lambda: bool(handed(kafka)), "leaders are handed over", 120)
    kafka.come_to_rest()
    moves = [r.value for r in kafka.outputs.of("moves.v1") if r.value is not None]
    completed = {each["move_id"] for each in moves if each["state"] == "completed"}
    assert handed(kafka) <= completed
    seen = kafka.look()
    assert seen is not None
    leaders = [each.leader for each in seen.topics["led"].partitions]
    assert leaders == [each.listed[0] for each in seen.topics["led"].partitions]
    assert {*leaders} > {1}


def test_a_stream_that_is_to_be_observed_gets_the_lists_of_its_topic(kafka: BridgedKafka) -> None:
    kafka.placer("send", "stream", "watched", "--adopt", "--shards", "3", "--rf", "3")
    until(lambda: "watched" in kafka.outputs.latest("decisions.v1"), "it is known", 60)
    lists = [(1, 3, 5), (4, 6, 2), (5, 1, 3)]
    kafka.create("watched", lists)
    until(lambda: len(kafka.outputs.replicas("watched")) == 3, "it is observed", 120)
    kafka.come_to_rest()
    decision = kafka.outputs.latest("decisions.v1")["watched"]
    assert decision["spec"]["adopt"] == "observed"
    assert not decision["reasons"]
    assert [tuple(map(int, each)) for each in kafka.outputs.replicas("watched")] == lists


def test_what_replicas_use_of_disks_is_reported(kafka: BridgedKafka) -> None:
    kafka.application.kill()
    assert kafka.bridges[-1].end(signal.SIGINT) == 0
    kafka.start_application(**LIMITS, **RESOURCES).wait_ready()
    kafka.start(**RESOURCES)
    kafka.create("weighed", [(2, 4, 6), (2, 4, 6)])
    fill(kafka, "weighed", WEIGHED_BYTES)
    loads = kafka.outputs
    kafka.until(lambda: "weighed/0" in loads.latest("load.v1"), "the load is known", 180)
    known = loads.latest("load.v1")["weighed/0"]["amounts"]["disk_bytes"]
    assert WEIGHED_BYTES <= known < 1.25 * WEIGHED_BYTES
    kafka.come_to_rest()
    seen = kafka.look()
    assert seen is not None
    nodes = kafka.outputs.latest("topology.v1")
    for broker, disk in seen.disks.items():
        assert nodes[str(broker)]["capacities"] == {"disk_bytes": disk.total}
