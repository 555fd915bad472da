"""The cluster file: a fault of the document is one error, a fault of a stream stays with it."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from placement.model import COPIED_RESOURCE
from schemas.cluster import (
    SHARD_BYTES_RESOURCE,
    Cluster,
    ClusterNodeStatus,
    ClusterStream,
    DocumentError,
    RefusedStream,
    parse_cluster,
    parse_joining,
)

DOCUMENT = """
name: demo
levels: [region, az]
nodes:
  - {id: n1, location: /eu/a, tags: {zone: a}, weight: 2, tokens: [5, 1]}
  - {id: n2, location: /eu/b, status: fenced, leader: false}
  - {id: n3}
streams:
  - {stream: orders, shards: 2, replication_factor: 3, policy: {strategy: spread}}
  - {stream: clicks, shards: 1, replication_factor: 0, placement_policies: "node=exclusive"}
moves: []
clients: []
"""


def test_a_document_is_read():
    cluster = parse_cluster(yaml.safe_load(DOCUMENT))
    assert isinstance(cluster, Cluster)
    assert (cluster.name, cluster.levels) == ("demo", ("region", "az"))
    first, second, third = cluster.nodes
    assert (first.tags, first.weight, first.tokens) == ({"zone": "a"}, 2.0, (5, 1))
    assert (second.status, second.leader) == (ClusterNodeStatus.FENCED, False)
    assert (third.location, third.status, third.tags) == (None, ClusterNodeStatus.UP, {})
    orders, clicks = cluster.streams
    assert isinstance(orders, ClusterStream)
    assert isinstance(clicks, ClusterStream)
    assert orders.policy == {"strategy": "spread"}
    # Senseless, but understood: the core rejects it.
    assert (clicks.stream, clicks.replication_factor) == ("clicks", 0)


@pytest.mark.parametrize("document", [{"nodes": []}, {"nodes": [], "streams": []}])
def test_empty_is_valid(document):
    assert parse_cluster(document) == Cluster(None, (), (), ())


@pytest.mark.parametrize(
    ("document", "field", "sentence"),
    [
        (None, None, "must be a mapping, it is None"),
        ([], None, "must be a mapping, it is []"),
        ("nodes", None, "must be a mapping"),
        ({}, "nodes", "field 'nodes' is missing"),
        ({"streams": []}, "nodes", "field 'nodes' is missing"),
        ({"nodes": None}, "nodes", "field 'nodes' must be an array, it is None"),
        ({"nodes": {"id": "n"}}, "nodes", "field 'nodes' must be an array"),
        ({"nodes": ["n1"]}, "nodes[0]", "field 'nodes[0]' must be an object, it is 'n1'"),
        ({"nodes": [{"id": 1}]}, "nodes[0].id", "must be a string, it is 1"),
        ({"nodes": [{}]}, "nodes[0].id", "field 'nodes[0].id' is missing"),
        ({"nodes": [{"id": "a", "location": "eu"}]}, "nodes[0].location", "of the form"),
        ({"nodes": [{"id": "a", "location": "/eu/.."}]}, "nodes[0].location", "'..'"),
        ({"nodes": [{"id": "a", "status": "gone"}]}, "nodes[0].status", "it is 'gone'"),
        ({"nodes": [{"id": "a"}, {"id": "a"}]}, "nodes[1].id", "'a' is given twice"),
        ({"nodes": [], "levels": ["az", "az"]}, "levels[1]", "'az' is given twice"),
        ({"nodes": [], "levels": "az"}, "levels", "must be an array, it is 'az'"),
        ({"nodes": [], "streams": {}}, "streams", "must be an array"),
        ({"nodes": [], "streams": None}, "streams", "must be an array"),
    ],
)
def test_a_document_that_cannot_be_understood(document, field, sentence):
    error = parse_cluster(document)
    assert isinstance(error, DocumentError)
    assert error.field == field
    assert sentence in error.message


def test_the_second_stream_of_a_name_is_refused():
    stream = {"stream": "orders", "shards": 1, "replication_factor": 1}
    wrong = {"stream": "clicks"}
    cluster = parse_cluster({"nodes": [], "streams": [wrong, stream, stream]})
    assert isinstance(cluster, Cluster)
    first, orders, again = cluster.streams
    assert isinstance(first, RefusedStream)
    assert isinstance(orders, ClusterStream)
    assert again == RefusedStream(
        "orders",
        "'orders' is given twice, first in 'streams[1].stream', again in 'streams[2].stream'",
        "streams[2].stream",
    )


def test_a_wrong_stream_leaves_the_others_alone():
    sound = {"stream": "orders", "shards": 1, "replication_factor": 1}
    cluster = parse_cluster(
        {
            "nodes": [],
            "streams": [{**sound, "replication_factor": "3"}, {**sound, "stream": "b"}, 7],
        }
    )
    assert isinstance(cluster, Cluster)
    assert cluster.streams == (
        RefusedStream(
            "orders",
            "field 'replication_factor' must be an integer, it is '3'",
            "streams[0].replication_factor",
        ),
        ClusterStream.model_validate({**sound, "stream": "b"}),
        RefusedStream(None, "'streams[2]' must be an object, it is 7", "streams[2]"),
    )


STREAM = {"stream": "a", "shards": 2, "replication_factor": 1}
RESOURCES = {"disk_bytes": {"capacity": 0.85, "balance": 0.1}, "writes": {"led": True}}


def test_resources_capacities_and_loads_are_read():
    loads = {"disk_bytes": [5, None], "writes": [0, 2**62]}
    stream = STREAM | {"loads": loads, "expected_load": {"disk_bytes": 7}}
    node = {"id": "n", "capacities": {"disk_bytes": 10}}
    cluster = parse_cluster({"nodes": [node], "resources": RESOURCES, "streams": [stream]})
    assert isinstance(cluster, Cluster)
    disk, writes = cluster.resources.values()
    assert (disk.capacity, disk.balance, disk.led) == (0.85, 0.1, False)
    assert (writes.capacity, writes.balance, writes.led) == (None, None, True)
    assert cluster.nodes[0].capacities == {"disk_bytes": 10}
    (read,) = cluster.streams
    assert isinstance(read, ClusterStream)
    assert read.known_loads == {"disk_bytes": (5, None), "writes": (0, 2**62)}
    assert read.expected_load == {"disk_bytes": 7}


def test_sizes_of_shards_are_loads_of_a_disk():
    read = ClusterStream.model_validate(STREAM | {"shard_bytes": [5, 6]})
    assert read.known_loads == {SHARD_BYTES_RESOURCE: (5, 6)}
    assert SHARD_BYTES_RESOURCE == COPIED_RESOURCE


def test_nodes_that_join_name_resources_of_another_file():
    document = {"nodes": [{"id": "n", "capacities": {"disk_bytes": 10}}]}
    assert isinstance(parse_joining(document), Cluster)
    assert isinstance(parse_cluster(document), DocumentError)


@pytest.mark.parametrize(
    ("document", "field", "sentence"),
    [
        ({"resources": ["disk_bytes"]}, "resources", "must be an object, it is ['disk_bytes']"),
        ({"resources": {"disk_bytes": None}}, "resources.disk_bytes", "must be an object"),
        ({"resources": {"disk bytes": {}}}, "resources.disk bytes", "of the form ^[a-z]"),
        ({"resources": {"a": {"capacity": 85}}}, "resources.a.capacity", "at most 1.0, it is 85"),
        ({"resources": {"a": {"capacity": 0}}}, "resources.a.capacity", "more than 0.0, it is 0"),
        ({"resources": {"a": {"balance": -1}}}, "resources.a.balance", "at least 0.0, it is -1"),
        ({"resources": {"a": {"led": 1}}}, "resources.a.led", "true or false, it is 1"),
        ({"resources": {"a": {"capcity": 1}}}, "resources.a.capcity", "did you mean 'capacity'?"),
        ({"nodes": [{"id": "n", "capacities": {"a": 0}}]}, "nodes[0].capacities.a", "at least 1"),
        ({"nodes": [{"id": "n", "capacities": {"a": 2.5}}]}, "nodes[0].capacities.a", "integer"),
        (
            {"nodes": [{"id": "n", "capacities": {"disk_bytes": 5}}]},
            "nodes[0].capacities.disk_bytes",
            (
                "field 'nodes[0].capacities.disk_bytes' names no resource of the file: "
                "add 'resources: {disk_bytes: {}}'"
            ),
        ),
        (
            {"nodes": [{"id": "n", "capacities": {"disc_bytes": 5}}], "resources": RESOURCES},
            "nodes[0].capacities.disc_bytes",
            "'resources' has disk_bytes, writes; did you mean disk_bytes?",
        ),
    ],
)
def test_resources_and_capacities_that_cannot_be_understood(document, field, sentence):
    error = parse_cluster({"nodes": [], **document})
    assert isinstance(error, DocumentError)
    assert error.field == field
    assert sentence in error.message


@pytest.mark.parametrize(
    ("fields", "place", "sentence"),
    [
        ({"loads": [1, 2]}, "loads", "must be an object, it is [1, 2]"),
        ({"loads": {"disk_bytes": 5}}, "loads.disk_bytes", "must be an array, it is 5"),
        ({"loads": {"disk_bytes": [1, -2]}}, "loads.disk_bytes[1]", "at least 0, it is -2"),
        ({"loads": {"disk_bytes": [1, "2"]}}, "loads.disk_bytes[1]", "an integer, it is '2'"),
        (
            {"loads": {"disk_bytes": [1]}},
            "loads.disk_bytes",
            (
                "field 'loads.disk_bytes' must have a number for each of 2 shards, null where it "
                "is not known; 1 are given"
            ),
        ),
        ({"loads": {"reads": [1, 2]}}, "loads.reads", "has disk_bytes, writes; add it there"),
        ({"expected_load": {"reads": 1}}, "expected_load.reads", "names no resource"),
        ({"expected_load": {"writes": -1}}, "expected_load.writes", "at least 0, it is -1"),
        (
            {"loads": {"disk_bytes": [1, 2]}, "shard_bytes": [1, 2]},
            "shard_bytes",
            "field 'shard_bytes' says what 'loads.disk_bytes' does: leave it out",
        ),
    ],
)
def test_a_stream_with_wrong_loads_is_refused(fields, place, sentence):
    cluster = parse_cluster({"nodes": [], "resources": RESOURCES, "streams": [STREAM | fields]})
    assert isinstance(cluster, Cluster)
    (read,) = cluster.streams
    assert isinstance(read, RefusedStream)
    assert read.field == f"streams[0].{place}"
    assert sentence in read.message


yaml_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates() | st.binary(),
    lambda parts: st.lists(parts) | st.dictionaries(st.text() | st.integers(), parts),
    max_leaves=20,
)


@given(
    st.dictionaries(
        st.sampled_from(["nodes", "streams", "levels", "name", "id", "stream", "policy", "x"]),
        yaml_values | st.lists(st.dictionaries(st.sampled_from(["id", "stream"]), yaml_values)),
    )
)
def test_no_document_raises(document):
    """A document is understood with all its nodes and streams, or refused with a sentence."""
    answer = parse_cluster(document)
    if isinstance(answer, DocumentError):
        assert answer.message
        return
    assert isinstance(answer, Cluster)
    assert [node.id for node in answer.nodes] == [
        node["id"] for node in document.get("nodes") or ()
    ]
    assert len(answer.streams) == len(document.get("streams") or ())


def test_a_document_that_contains_itself_is_refused():
    document = yaml.safe_load("nodes: []\nstreams: [{stream: a, shards: 1, policy: &p {p: *p}}]")
    cluster = parse_cluster(document)
    assert isinstance(cluster, Cluster)
    (stream,) = cluster.streams
    assert isinstance(stream, RefusedStream)


@pytest.mark.parametrize("sizes", [None, [0, 2**40]])
def test_sizes_of_shards_are_carried_along(sizes):
    stream = {"stream": "a", "shards": 2, "replication_factor": 1, "shard_bytes": sizes}
    cluster = parse_cluster({"nodes": [], "streams": [stream]})
    assert isinstance(cluster, Cluster)
    (read,) = cluster.streams
    assert isinstance(read, ClusterStream)
    assert read.shard_bytes == (None if sizes is None else tuple(sizes))


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ([1], "a number for each of 2 shards, 1 are given"),
        ([1, -1], "field 'shard_bytes[1]' must be at least 0"),
        ([1, None], "field 'shard_bytes[1]' must be an integer"),
    ],
)
def test_sizes_of_shards_are_one_each(sizes, sentence):
    stream = {"stream": "a", "shards": 2, "replication_factor": 1, "shard_bytes": sizes}
    cluster = parse_cluster({"nodes": [], "streams": [stream]})
    assert isinstance(cluster, Cluster)
    (read,) = cluster.streams
    assert isinstance(read, RefusedStream)
    assert sentence in read.message
