"""A cluster file of a Kafka cluster: racks, lists, quorum, policies, sizes, and what is noted."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from schemas.cluster import Cluster, parse_cluster
from streaming.kafka_bridge import (
    Broker,
    ImportedCluster,
    ImportOptions,
    Observer,
    PolicyUnreadable,
    RackUnreadable,
    TopicPolicy,
    import_cluster,
    parse_policy,
)
from streaming.kafka_bridge.importer import location_of
from streaming.kafka_bridge.snapshot import Disk
from tests.builders.kafka_cluster import TERABYTE, SimulatedKafka

RACKS = {1: "a", 2: "b", 3: "c", 4: "a"}
EVEN = {"strategy": "spread", "rules": [{"even": "rack"}]}


@pytest.fixture
def kafka() -> SimulatedKafka:
    kafka = SimulatedKafka(RACKS)
    kafka.create("t", [(1, 2, 3), (2, 3, 4)], size=7, min_insync_replicas="2")
    return kafka


def imported(kafka: SimulatedKafka, **options: Any) -> ImportedCluster:
    found = import_cluster(Observer(kafka).look(0), ImportOptions(**options))
    assert isinstance(parse_cluster(found.body), Cluster)
    return found


def stream(kafka: SimulatedKafka, name: str = "t", **options: Any) -> dict[str, Any]:
    return {each["stream"]: each for each in imported(kafka, **options).body["streams"]}[name]


def policies(*rows: tuple[str, str]) -> list[TopicPolicy]:
    return [TopicPolicy(re.compile(pattern), parse_policy(text)) for pattern, text in rows]


def test_brokers_are_nodes_and_topics_streams(kafka: SimulatedKafka) -> None:
    found = imported(kafka)
    assert found.notes == ()
    assert found.body["levels"] == ["rack"]
    assert found.body["nodes"][3] == {
        "id": "4",
        "host": "kafka-4:9092",
        "location": "/a",
        "tags": {"rack": "a"},
        "capacities": {"disk_bytes": TERABYTE},
    }
    assert found.body["resources"] == {"disk_bytes": {}}
    assert found.body["streams"] == [
        {
            "stream": "t",
            "shards": 2,
            "replication_factor": 3,
            "policy": EVEN,
            "quorum": 2,
            "replicas": [["1", "2", "3"], ["2", "3", "4"]],
            "loads": {"disk_bytes": [7, 7]},
        }
    ]


@pytest.mark.parametrize(
    ("rack", "levels", "separator", "location"),
    [
        ("a", ["rack"], None, "/a"),
        ("us east 1a", ["rack"], None, "/us%20east%201a"),
        ("rack:7", ["rack"], None, "/rack%3A7"),
        ("a/b", ["rack"], None, "/a%2Fb"),
        ("Zürich", ["rack"], None, "/Z%C3%BCrich"),
        ("50%", ["rack"], None, "/50%25"),
        ("%20", ["rack"], None, "/%2520"),
        ("~", ["rack"], None, "/%7E"),
        (".", ["rack"], None, "/%2E"),
        ("..", ["rack"], None, "/%2E%2E"),
        ("r" * 128, ["rack"], None, "/" + "r" * 128),
        ("ü" * 64, ["rack"], None, "/" + "%C3%BC" * 64),
        ("eu/r 7", ["zone", "rack"], "/", "/eu/r%207"),
        ("/eu/r7/", ["zone", "rack"], "/", "/eu/r7"),
        (None, ["rack"], None, None),
        ("", ["rack"], None, None),
    ],
)
def test_a_rack_is_any_text(
    rack: str | None, levels: Sequence[str], separator: str | None, location: str | None
) -> None:
    broker = Broker(1, "h", 1, rack)
    options = ImportOptions(levels=levels, separator=separator)
    assert location_of(broker, options) == location


@pytest.mark.parametrize(
    ("rack", "levels", "separator", "says"),
    [
        (
            "eu",
            ["zone", "rack"],
            "/",
            "rack 'eu' has 1 part between '/', the levels are zone, rack",
        ),
        ("eu//r", ["zone", "rack"], "/", "has 3 parts"),
        ("r" * 129, ["rack"], None, "has 129 bytes, a location has at most 128"),
    ],
)
def test_a_rack_that_is_no_location_is_named(
    rack: str, levels: Sequence[str], separator: str | None, says: str
) -> None:
    with pytest.raises(RackUnreadable, match="broker 1: ") as caught:
        location_of(Broker(1, "h", 1, rack), ImportOptions(levels=levels, separator=separator))
    assert says in str(caught.value)


def test_a_rack_that_no_tag_can_hold_is_noted() -> None:
    kafka = SimulatedKafka({1: "Zürich", 2: "Bern"})
    found = imported(kafka)
    assert [node.get("tags") for node in found.body["nodes"]] == [None, {"rack": "Bern"}]
    assert "1 broker (1) is without the tag 'rack'" in " ".join(found.notes)


def test_without_racks_there_are_no_levels() -> None:
    kafka = SimulatedKafka({1: None, 2: None})
    kafka.create("t", [(1, 2)])
    found = imported(kafka)
    assert found.body["levels"] == []
    assert found.body["streams"][0]["policy"] == {"strategy": "spread"}
    assert found.notes == ()


def test_a_broker_without_a_rack_among_others_is_noted() -> None:
    (note, _) = imported(SimulatedKafka({1: "a", 2: None})).notes
    assert note.startswith("1 broker (2) is without a rack (broker.rack)")


@pytest.mark.parametrize(("fenced_is_dead", "status"), [(False, "fenced"), (True, "dead")])
def test_a_fenced_broker_is_fenced_or_dead(
    kafka: SimulatedKafka, fenced_is_dead: bool, status: str
) -> None:
    kafka.fence(3)
    found = imported(kafka, fenced_is_dead=fenced_is_dead)
    assert [node.get("status", "up") for node in found.body["nodes"]] == ["up", "up", status, "up"]
    assert ("--fenced-is-dead" in " ".join(found.notes)) is not fenced_is_dead
    assert stream(kafka)["replicas"] == [["1", "2", "3"], ["2", "3", "4"]]


def test_a_broker_that_is_not_registered_any_more_is_dead(kafka: SimulatedKafka) -> None:
    kafka.fence(3)
    del kafka.brokers[3]
    found = imported(kafka)
    assert found.body["nodes"][-1] == {"id": "3", "status": "dead"}
    assert "1 broker (3) is not registered" in " ".join(found.notes)


def test_a_running_reassignment_adds_no_replica(kafka: SimulatedKafka) -> None:
    """Kafka lists target and removed replicas then; who leads is the first that is known."""
    kafka.alter_reassignments({("t", 0): (4, 2, 3)})
    found = imported(kafka)
    assert found.body["streams"][0]["replicas"][0] == ["1", "2", "3"]
    assert found.body["streams"][0]["replication_factor"] == 3
    (note,) = found.notes
    assert note.startswith("1 partition (t-0) is being reassigned")


def test_replicas_that_are_in_sync_are_listed_where_some_are_not(kafka: SimulatedKafka) -> None:
    assert "in_sync" not in stream(kafka)
    kafka.fence(2)
    assert stream(kafka)["in_sync"] == [["1", "3"], ["3", "4"]]


def test_a_partition_that_another_replica_leads_is_noted(kafka: SimulatedKafka) -> None:
    kafka.fence(1)
    kafka.unfence(1)
    (note,) = imported(kafka).notes
    assert note.startswith("1 partition (t-0) is not led by the preferred leader")
    assert kafka.elect_preferred([("t", 0)]) == {("t", 0): None}
    assert imported(kafka).notes == ()


@pytest.mark.parametrize(
    ("lists", "min_in_sync", "factor", "quorum", "noted"),
    [
        ([(1, 2, 3)], "1", 3, 1, None),
        ([(1, 2)], "2", 2, 2, None),
        ([(1, 2)], "3", 2, 2, "min.insync.replicas above the replication factor"),
        ([(1, 2), (1, 2, 3), (2, 3)], "1", 2, 1, "not of one replication factor"),
        ([(1, 2), (1, 2, 3)], "1", 3, 1, "not of one replication factor"),
    ],
)
def test_quorum_is_the_least_in_sync_and_the_factor_that_of_most(
    lists: list[tuple[int, ...]], min_in_sync: str, factor: int, quorum: int, noted: str | None
) -> None:
    kafka = SimulatedKafka(RACKS)
    kafka.create("t", lists, min_insync_replicas=min_in_sync)
    found = imported(kafka)
    (read,) = found.body["streams"]
    assert (read["replication_factor"], read["quorum"]) == (factor, quorum)
    assert [noted in note for note in found.notes] == ([] if noted is None else [True])


def test_sizes_are_those_of_the_largest_replica_or_none() -> None:
    kafka = SimulatedKafka(RACKS)
    kafka.create("t", [(1, 2), (2, 3)], size=5)
    kafka.sizes["t", 1] = 9
    assert stream(kafka)["loads"] == {"disk_bytes": [5, 9]}
    kafka.fence(2)
    kafka.fence(3)
    assert stream(kafka)["loads"] == {"disk_bytes": [5, None]}
    kafka.fence(1)
    kafka.fence(4)
    assert "loads" not in stream(kafka)
    assert "resources" not in imported(kafka).body


def test_capacities_are_read_only_where_all_brokers_say_them() -> None:
    kafka = SimulatedKafka(RACKS)
    kafka.create("t", [(1, 2)], size=5)
    seen = Observer(kafka).look(0)
    some = replace(seen, disks={**seen.disks, 3: Disk(None, None)})
    nodes = import_cluster(some, ImportOptions()).body["nodes"]
    assert len(nodes) == len(RACKS)
    assert [each for each in nodes if "capacities" in each] == []


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["__consumer_offsets", "audit.log", "orders", "orders.dlq"]),
        ({"internal": False}, ["audit.log", "orders", "orders.dlq"]),
        ({"include": re.compile(r"orders")}, ["orders"]),
        ({"include": re.compile(r"orders.*")}, ["orders", "orders.dlq"]),
        (
            {"include": re.compile(r"orders.*"), "exclude": re.compile(r".*\.dlq")},
            ["orders"],
        ),
        ({"include": re.compile("no")}, []),
    ],
)
def test_topics_are_chosen_by_their_whole_name(options: dict[str, Any], names: list[str]) -> None:
    kafka = SimulatedKafka(RACKS)
    for name in ("orders", "orders.dlq", "audit.log", "__consumer_offsets"):
        kafka.create(name, [(1, 2)])
    found = imported(kafka, **options)
    assert [each["stream"] for each in found.body["streams"]] == names
    assert any("no topic is imported" in note for note in found.notes) is (not names)


@pytest.mark.parametrize(
    ("topic", "own", "fields"),
    [
        ("audit.a", None, {"policy": {"strategy": "simple"}}),
        ("audit.b", "{strategy: hdfs}", {"policy": {"strategy": "hdfs"}}),
        ("orders", None, {"placement_policies": "node=exclusive"}),
        (
            "orders",
            "node=balanced;shard=balanced",
            {"placement_policies": "node=balanced;shard=balanced"},
        ),
        ("other", None, {"policy": EVEN}),
        ("other", "{", {"policy": EVEN}),
    ],
)
def test_a_policy_is_the_topics_own_or_that_of_the_first_pattern(
    topic: str, own: str | None, fields: dict[str, Any]
) -> None:
    kafka = SimulatedKafka(RACKS)
    for name in {"audit.x", "orders", topic}:
        kafka.create(name, [(1, 2)])
    if own is not None:
        kafka.configs[topic]["placement.policy"] = own
    rows = ((r"audit\..*", "simple"), ("orders|audit.*", "node=exclusive"))
    found = imported(kafka, policies=policies(*rows))
    read = {each["stream"]: each for each in found.body["streams"]}[topic]
    named = ("policy", "placement_policies")
    assert {name: read[name] for name in named if name in read} == fields
    ignored = "topic other: its configuration placement.policy is ignored: '{' is not YAML"
    assert any(note.startswith(ignored) for note in found.notes) is (own == "{")


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("spread", {"policy": {"strategy": "spread"}}),
        ("{strategy: spread, rules: []}", {"policy": {"strategy": "spread", "rules": []}}),
        ('{"within": ["/a"]}', {"policy": {"within": ["/a"]}}),
        ("node=exclusive;shard=balanced", {"placement_policies": "node=exclusive;shard=balanced"}),
    ],
)
def test_a_policy_is_a_mapping_a_strategy_or_a_policy_string(
    text: str, fields: dict[str, Any]
) -> None:
    assert parse_policy(text) == fields


@pytest.mark.parametrize("text", ["", "3", "[spread]", "{", "null"])
def test_what_is_no_policy_is_told(text: str) -> None:
    with pytest.raises(PolicyUnreadable, match=r"is no policy|is not YAML"):
        parse_policy(text)


def test_a_pattern_that_matches_no_topic_is_told(kafka: SimulatedKafka) -> None:
    """A typing error would leave the topics with the default policy, and nobody would know."""
    with pytest.raises(
        PolicyUnreadable,
        match="'tt' matches the whole name of none of the topics that are imported, which are 1",
    ):
        imported(kafka, policies=policies(("t", "spread"), ("tt", "simple")))
