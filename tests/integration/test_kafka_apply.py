"""A saved plan on three real brokers: `placer kafka apply` is killed midway, goes back, goes on.

Copies are throttled so that a kill meets them. Afterwards lists are those of the plan, to their
order, and the settings of the cluster those before, of which some are of somebody else.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streaming.kafka_bridge import KafkaAdmin
from streaming.kafka_bridge.admin_client import (
    FOLLOWER_ENTRIES,
    FOLLOWER_RATE,
    LEADER_ENTRIES,
    PartitionId,
)
from streaming.kafka_bridge.importer import ImportOptions, import_cluster
from streaming.kafka_bridge.observer import Observer
from streaming.kafka_bridge.snapshot import Snapshot
from streaming.offline import cluster_text
from tests.systems.application import PLACER
from tests.systems.cluster import Cluster
from tests.systems.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

TOPIC, OTHER = "orders", "other"
# Four partitions of 8 MB, copied to one broker at 2 MB a second: some 8 s for those that move.
PARTITIONS, MEGABYTES = 4, 8
THROTTLE = "2MB"
COMMAND_TIMEOUT_SECONDS = 90.0

Lists = dict[PartitionId, tuple[int, ...]]


class Bench:
    """The cluster, the plan in its file, and the command."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster, self.bootstrap, self.directory = cluster, cluster.bootstrap, directory
        self.plan = directory / "plan.json"

    def look(self) -> Snapshot:
        """Look at the cluster with a client of its own."""
        with KafkaAdmin(self.bootstrap) as admin:
            return Observer(admin).look(0)

    def lists(self) -> Lists:
        """The lists of the topics; a reassignment that runs is an error."""
        seen = self.look()
        assert not [*seen.reassigned()]
        return {
            (topic.name, each.number): each.listed
            for topic, each in seen.partitions()
            if topic.name in (TOPIC, OTHER)
        }

    def placer(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run the command to its end."""
        return subprocess.run(
            [str(PLACER), *words],
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_SECONDS,
            check=False,
        )

    def apply(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run `placer kafka apply` to its end."""
        return self.placer("kafka", "apply", str(self.plan), "--bootstrap", self.bootstrap, *words)

    def end_midway(self, end: "Callable[[subprocess.Popen[bytes]], object]") -> int:
        """Begin to apply, and do something while throttled copies run; the exit status."""
        words = ["kafka", "apply", str(self.plan), "--bootstrap", self.bootstrap]
        with subprocess.Popen(
            [str(PLACER), *words, "--throttle", THROTTLE],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            until(self._copies, "throttled copies run")
            end(process)
            return process.wait(COMMAND_TIMEOUT_SECONDS)

    def _copies(self) -> bool:
        seen = self.look()
        throttled = seen.throttles.follower_entries.get(TOPIC)
        return bool(throttled and any(seen.reassigned()))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        made = Bench(cluster, tmp_path_factory.mktemp("plan"))
        _fill(cluster.bootstrap)
        _throttle_others(made)
        _save_plan(made)
        yield made


def _fill(bootstrap: str) -> None:
    """Make two topics on brokers 1 and 2, so that evening out moves half a replica of each list."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    placed = {
        TOPIC: [[1, 2] if n % 2 else [2, 1] for n in range(PARTITIONS)],
        OTHER: [[1, 2]],
    }
    config = {"min.insync.replicas": "1"}
    topics = [
        NewTopic(t, len(lists), replica_assignment=lists, config=config)
        for t, lists in placed.items()
    ]
    for future in admin.create_topics(topics).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 50})
    block = os.urandom(500_000)
    for partition in range(PARTITIONS):
        for _ in range(MEGABYTES * 2):
            producer.produce(TOPIC, block, partition=partition)
        producer.flush(60)


def _throttle_others(bench: Bench) -> None:
    """Set throttles of somebody else: on a topic, and a rate that no copy of ours is under."""
    with KafkaAdmin(bench.bootstrap) as admin:
        admin.alter_broker_rates({1: {FOLLOWER_RATE: 5_000_000}})
        foreign = {LEADER_ENTRIES: ["9:9"], FOLLOWER_ENTRIES: ["0:1"]}
        changes = {config: (entries, ()) for config, entries in foreign.items()}
        answers = admin.alter_topic_entries({TOPIC: changes, OTHER: changes})
    assert {*answers.values()} == {None}
    until(lambda: bench.look().throttles.leader_entries.get(OTHER), "the throttles are set")


def _save_plan(bench: Bench) -> None:
    file = bench.directory / "cluster.yaml"
    options = ImportOptions(internal=False)
    file.write_text(cluster_text(import_cluster(bench.look(), options).body), "utf-8")
    told = bench.placer("plan", str(file), "--until-balanced", "--save", str(bench.plan))
    assert told.returncode == 0, told.stderr


def test_a_plan_goes_on_and_back_after_kills(bench: Bench) -> None:
    lists, throttles = bench.lists(), bench.look().throttles
    looked = bench.apply("--dry-run")
    assert (looked.returncode, looked.stderr) == (0, "")
    assert "nothing was changed" in looked.stdout
    assert bench.end_midway(subprocess.Popen.kill) == -signal.SIGKILL
    assert bench.look().throttles != throttles, "the kill left throttles"

    back = bench.apply("--rollback", "--throttle", THROTTLE)
    assert back.returncode == 0, back.stderr
    assert (bench.lists(), bench.look().throttles) == (lists, throttles)

    assert (
        bench.end_midway(lambda process: process.send_signal(signal.SIGINT)) == 128 + signal.SIGINT
    )
    assert bench.look().throttles == throttles, "a stop takes the throttles back"
    bench.lists()

    assert bench.end_midway(subprocess.Popen.kill) == -signal.SIGKILL
    on = bench.apply("--throttle", THROTTLE)
    assert on.returncode == 0, on.stderr
    moved = bench.lists()
    assert moved != lists
    seen = bench.look()
    assert seen.throttles == throttles
    assert all(each.leader == each.listed[0] for _, each in seen.partitions())

    again = bench.apply("--output", "json")
    assert (again.returncode, bench.lists()) == (0, moved)
    home = bench.apply("--rollback")
    assert home.returncode == 0, home.stderr
    assert (bench.lists(), bench.look().throttles) == (lists, throttles)


def test_copies_to_a_broker_that_dies_are_cancelled(bench: Bench) -> None:
    lists, throttles = bench.lists(), bench.look().throttles
    target = bench.cluster.nodes[2]
    assert bench.end_midway(lambda _: target.kill()) == 1
    assert (bench.lists(), bench.look().throttles) == (lists, throttles)

    target.launch()
    target.wait_answering()
    until(lambda: 3 in bench.look().live(), "the broker is back")
    assert 3 in bench.look().throttles.follower_rates, "only the broker takes its rate away"
    on = bench.apply()
    assert on.returncode == 0, on.stderr
    assert bench.lists() != lists
    assert bench.look().throttles == throttles
    home = bench.apply("--rollback")
    assert home.returncode == 0, home.stderr
    assert bench.lists() == lists


def _reverse(bench: Bench) -> None:
    with KafkaAdmin(bench.bootstrap) as admin:
        key = (TOPIC, 0)
        assert admin.alter_reassignments({key: bench.lists()[key][::-1]}) == {key: None}


CHANGED: list[tuple[Callable[[Bench], None], str]] = [(_reverse, f"shard {TOPIC}/0: replicas was")]


@pytest.mark.parametrize(("change", "says"), CHANGED)
def test_a_cluster_that_has_changed_is_refused(
    bench: Bench, change: Callable[[Bench], None], says: str
) -> None:
    change(bench)
    lists = bench.lists()
    refused = bench.apply()
    assert refused.returncode == 1
    assert says in refused.stderr
    assert bench.lists() == lists
