"""A cluster of real brokers: imported, planned for, moved with Kafka's own calls, and at rest.

Goal: what `placer kafka import` writes is what the brokers have, and what `placer plan` promises is
what they have afterwards. Method: three brokers in two racks whose names need encoding, topics put
into one rack by hand, each wave's file handed to the controller as Kafka's tool does.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from streaming.cli.main import app
from streaming.errors import BrokerUnreachable
from streaming.kafka_bridge import KafkaAdmin, Observer, Snapshot
from streaming.offline.reassignment import parse_reassignment
from tests.systems.cluster import Cluster
from tests.systems.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

RACKS = ("us east 1a", "us east 1a", "rack:7")
RECORDS = 50
LONG_NAME = "n" * 249


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), RACKS) as cluster:
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def topics(cluster: Cluster) -> None:
    """Both replicas of every partition in one rack, which no placement of Kafka's would do."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {"min.insync.replicas": "1"}
    made = [
        NewTopic("orders", 4, replica_assignment=[[1, 2], [2, 1], [1, 2], [2, 1]], config=config),
        NewTopic(LONG_NAME, 1, replica_assignment=[[1, 3]], config=config),
    ]
    for future in admin.create_topics(made).values():
        future.result()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(RECORDS):
        producer.produce("orders", b"x" * 1000, partition=number % 4)
    assert producer.flush(30) == 0


def look(cluster: Cluster) -> Snapshot:
    with KafkaAdmin(cluster.bootstrap) as admin:
        return Observer(admin).look(int(time.time() * 1000), throttles=False)


def live(cluster: Cluster) -> set[int]:
    """The brokers that clients are sent to. Asked through librdkafka, since kafka-python leaves the
    sockets of refused connections open while a dead broker is still among them."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return {*admin.list_topics(timeout=10).brokers}


def imported(cluster: Cluster, file: Path, *options: str) -> tuple[dict[str, Any], str]:
    """The cluster file as a value, and the notes."""
    words = ["kafka", "import", "--bootstrap", cluster.bootstrap, "--no-internal", *options]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    file.write_text(result.stdout)
    return yaml.safe_load(result.stdout), result.stderr


def placer(*words: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, [*words, "--output", "json"])
    return result.exit_code, orjson.loads(result.stdout)


def test_a_plan_of_what_was_imported_is_what_the_brokers_do(
    cluster: Cluster, tmp_path: Path
) -> None:
    file, waves = tmp_path / "cluster.yaml", tmp_path / "waves"
    body, _ = imported(cluster, file)
    assert [(each["id"], each["location"], each["tags"]["rack"]) for each in body["nodes"]] == [
        ("1", "/us%20east%201a", "us east 1a"),
        ("2", "/us%20east%201a", "us east 1a"),
        ("3", "/rack%3A7", "rack:7"),
    ]
    streams = {each["stream"]: each for each in body["streams"]}
    assert streams.keys() == {"orders", LONG_NAME}
    assert streams["orders"]["replicas"] == [["1", "2"], ["2", "1"], ["1", "2"], ["2", "1"]]
    assert streams["orders"]["quorum"] == 1
    assert sum(streams["orders"]["loads"]["disk_bytes"]) > RECORDS * 1000
    status, judged = placer("check", str(file))
    broken = {(each["stream"], each["shard"]) for each in judged["violations"]}
    assert (status, broken) == (1, {("orders", shard) for shard in range(4)})

    options = ("--until-balanced", "--squash", "--output-dir", str(waves))
    status, plan = placer("plan", str(file), *options)
    assert (status, plan["unfixable"]) == (0, [])
    with KafkaAdmin(cluster.bootstrap) as admin:
        for path in sorted(waves.glob("wave-*.json")):
            wanted = parse_reassignment(path.read_text())
            targets = {key: [*map(int, listed.nodes)] for key, listed in wanted.items()}
            assert {*admin.alter_reassignments(targets).values()} == {None}
            until(lambda: not admin.list_reassignments(), f"{path.name} is carried out")
        rows = orjson.loads((waves / "leader-election.json").read_text())["partitions"]
        elected = admin.elect_preferred([(row["topic"], row["partition"]) for row in rows])
        assert {*elected.values()} == {None}

    body, _ = imported(cluster, file)
    found = {each["stream"]: each["replicas"] for each in body["streams"]}
    assert found == plan["final"]["replicas"]
    partitions = [each for _, each in look(cluster).partitions()]
    assert all(each.leader == each.listed[0] for each in partitions)
    assert not any(each.is_under_replicated for each in partitions)
    assert placer("check", str(file))[0] == 0
    assert placer("plan", str(file), "--until-balanced")[1]["moves"] == []


def test_a_broker_that_died_is_imported_and_replaced_on_request(
    cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.yaml"
    cluster.nodes[0].kill()
    until(lambda: live(cluster) == {2, 3}, "broker 1 is fenced")
    body, notes = imported(cluster, file)
    assert [each.get("status", "up") for each in body["nodes"]] == ["fenced", "up", "up"]
    assert body["nodes"][0]["location"] == "/us%20east%201a"
    assert "note: 1 broker (1) is fenced" in notes
    body, _ = imported(cluster, file, "--fenced-is-dead")
    assert [each.get("status", "up") for each in body["nodes"]] == ["dead", "up", "up"]
    with KafkaAdmin(cluster.bootstrap) as admin:
        for broker in (2, 3):
            admin.turn_to(broker)
            assert "orders" in {each.name for each in admin.describe_topics()}
        admin.turn_to(1)
        with pytest.raises(BrokerUnreachable):
            admin.describe_topics()
    lost = sum("1" in nodes for each in body["streams"] for nodes in each["replicas"])
    moves = placer("plan", str(file), "--until-balanced")[1]["moves"]
    assert sum(each["remove"] == "1" for each in moves) == lost > 0
