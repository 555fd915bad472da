"""Mapping files and labels: the forms that fleets already have."""

from pathlib import Path

import pytest

from streaming.locations.sources import (
    LocationMap,
    LocationsUnreadable,
    cloud_location,
    read_locations,
    read_rackdc,
)
from streaming.offline import Document, choose_nearest, parse_documents

TOPOLOGY = r"""# Cassandra's sample
192.168.1.100=DC1:RAC1
n2.example = DC1:RAC2
fe80\:0\:0\:0\:202\:b3ff\:fe1e\:8329=DC2:RAC1
default=DC9:r9
"""
MAPPING = """
default: /elsewhere
nodes: {n7: /eu/az7}
hosts:
  10.0.0.0/8: /eu
  10.1.0.0/16: /eu/az1
  10.1.2.3: /eu/az1/rack3
  "N5.example": /us
"""


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    path = tmp_path / "cassandra-topology.properties"
    path.write_text(TOPOLOGY, "utf-8")
    return path


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("192.168.1.100", "/DC1/RAC1"),
        ("192.168.1.100:9042", "/DC1/RAC1"),
        ("N2.Example", "/DC1/RAC2"),
        ("[fe80:0:0:0:202:b3ff:fe1e:8329]:7000", "/DC2/RAC1"),
        ("fe80:0:0:0:202:b3ff:fe1e:8329", "/DC2/RAC1"),
        ("n3.example", "/DC9/r9"),
        (None, "/DC9/r9"),
    ],
)
def test_cassandra_topology(topology: Path, host: str | None, place: str) -> None:
    assert read_locations(topology).locate("x", host) == place


@pytest.mark.parametrize(
    ("node_id", "host", "place"),
    [
        ("n7", "10.1.2.3", "/eu/az7"),
        ("x", "10.1.2.3:80", "/eu/az1/rack3"),
        ("x", "10.1.9.9", "/eu/az1"),
        ("x", "10.2.0.1", "/eu"),
        ("x", "n5.example:80", "/us"),
        ("x", "11.0.0.1", "/elsewhere"),
    ],
)
def test_mapping(tmp_path: Path, node_id: str, host: str, place: str) -> None:
    path = tmp_path / "locations.yaml"
    path.write_text(MAPPING, "utf-8")
    assert read_locations(path).locate(node_id, host) == place


def test_nobody_is_placed_by_an_empty_mapping(tmp_path: Path) -> None:
    path = tmp_path / "locations.yaml"
    path.write_text("", "utf-8")
    assert read_locations(path).locate("n1", "10.0.0.1") is None


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "nodes: [n1]", "nodes and hosts map names to locations"),
        ("a.yaml", "racks: {}", "expected the keys nodes, hosts and default"),
        ("a.yaml", "nodes: {n1: eu}", "it must start with '/'"),
        ("a.yaml", "hosts: {10.0.0.0/99: /eu}", "10.0.0.0/99"),
        ("a.yaml", "{", "a.yaml"),
        ("a.properties", "10.0.0.1=DC1", "expected DC:RACK, got 'DC1'"),
        ("a.properties", "10.0.0.1", "line 1: expected name=value"),
        ("a.properties", "10.0.0.1=D C:R", "has characters outside [A-Za-z0-9_.-]"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(LocationsUnreadable, match=r".") as caught:
        read_locations(tmp_path / name)
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(LocationsUnreadable, match="No such file"):
        read_locations(tmp_path / "none.yaml")


def test_rackdc(tmp_path: Path) -> None:
    path = tmp_path / "cassandra-rackdc.properties"
    path.write_text("# here\ndc=DC1\nrack: RAC1\nprefer_local=true\n", "utf-8")
    assert read_rackdc(path) == "/DC1/RAC1"
    path.write_text("dc=us-east\ndc_suffix=_1_cassandra\nrack=1a\n", "utf-8")
    assert read_rackdc(path) == "/us-east_1_cassandra/1a"
    path.write_text("dc=DC1\n", "utf-8")
    with pytest.raises(LocationsUnreadable, match="rack must be given"):
        read_rackdc(path)


def test_clients_are_resolved_as_nodes_are() -> None:
    text = """
    nodes: [{id: n1, location: /eu/a}, {id: n2, location: /us/b}]
    streams: [{stream: s, shards: 1, replication_factor: 2, replicas: [[n1, n2]]}]
    clients: [{id: c1, host: h1}, {id: c2, tags: {region: us, zone: b}}, {id: c3}]
    """
    (document,) = parse_documents(text)
    assert isinstance(document, Document)
    found = choose_nearest(document, exact=False, known=LocationMap({"h1": "/us/b"}))
    assert [choice["replica"] for choice in found.choices] == ["n2", "n2", "n1"]


@pytest.mark.parametrize(
    ("form", "tags", "place"),
    [
        (
            "kubernetes",
            {
                "topology.kubernetes.io/region": "us-east-1",
                "topology.kubernetes.io/zone": "us-east-1a",
            },
            "/us-east-1/us-east-1a",
        ),
        ("kubernetes", {"region": "eu", "zone": "eu-b"}, "/eu/eu-b"),
        ("kubernetes", {"zone": "eu-b"}, None),
        ("kubernetes", {}, None),
        ("kubernetes", {"region": "eu", "zone": "not a name"}, None),
        ("ec2", {"zone": "us-east-1a"}, "/us-east-1/us-east-1a"),
        ("ec2_legacy", {"zone": "us-east-1a"}, "/us-east/1a"),
        ("ec2_legacy", {"zone": "us-west-2a"}, "/us-west-2/2a"),
        ("gce", {"zone": "us-central1-a"}, "/us-central1/a"),
        ("gce", {"zone": "europe-west4-b", "region": "ignored"}, "/europe-west4/b"),
    ],
)
def test_cloud(form: str, tags: dict[str, str], place: str | None) -> None:
    assert cloud_location(tags, form) == place
