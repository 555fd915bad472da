"""Cluster files that are written: `place --output cluster` read by every offline command again."""

from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from streaming.cli.main import app
from streaming.offline.cluster_file import cluster_text
from streaming.offline.documents import Document, parse_documents
from streaming.offline.place import PlaceResult, place_streams

# Some of them are no texts to YAML 1.1 unless they are quoted.
IDS = ("n1", "n2", "on", "null", "1e5", "0x1F", "2026-01-01", "1_000", "7", "-", "..")
POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {"policy": {"strategy": "spread", "on_infeasible": "partial"}},
    {"policy": {"strategy": "spread", "on_infeasible": "wait"}},
    {"policy": {"strategy": "location_majority"}},
    {"policy": {"strategy": "simple"}},
    {"policy": {"strategy": "spread", "within": ["/a"]}},
    {"placement_policies": "node=exclusive"},
    {"policy": {"strategy": "nonsense"}},
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A cluster with streams that have all, some or none of their replicas, good ones and bad."""
    ids = draw(st.lists(st.sampled_from(IDS), unique=True, max_size=8))
    nodes = [
        {"id": name}
        | draw(
            st.sampled_from([{}, {"location": "/a/x"}, {"location": "/a/y"}, {"location": "/b"}])
        )
        | draw(st.sampled_from([{}, {"weight": 2.5, "tags": {"disk": "on"}}, {"status": "dead"}]))
        for name in ids
    ]
    streams = []
    for number in range(draw(st.integers(0, 4))):
        shards = draw(st.integers(0, 3))
        asked: dict[str, Any] = {"stream": f"s{number}", "shards": shards}
        asked |= {"replication_factor": draw(st.integers(1, 4)), "mine": {"note": "1e5"}}
        asked |= draw(st.sampled_from(POLICIES))
        if ids and draw(st.booleans()):
            lists = st.lists(st.sampled_from(ids), unique=True, max_size=3)
            asked["replicas"] = draw(st.lists(lists, max_size=shards))
        streams.append(asked)
    return {"name": "2e3", "nodes": nodes, "streams": streams, "clients": [{"id": "on"}]}


def answered(text: str) -> PlaceResult:
    [document] = parse_documents(text)
    assert isinstance(document, Document), document
    return place_streams(document)


@given(documents())
def test_what_is_placed_is_the_file_with_its_replicas(document: dict[str, Any]) -> None:
    """Goal: every field is kept, and placing the result again changes nothing."""
    first = answered(orjson.dumps(document).decode())
    text = cluster_text(first.fill_in())
    second = answered(text)
    decisions = first.body()["decisions"]
    assert [each["replicas"] for each in second.body()["decisions"]] == [
        each["replicas"] for each in decisions
    ]
    assert cluster_text(second.fill_in()) == text
    filled = first.fill_in()
    for stream, decision in zip(filled["streams"], decisions, strict=True):
        assert stream.pop("replicas", []) == decision["replicas"]
    for stream in document["streams"]:
        stream.pop("replicas", None)
    assert filled == document


STREAMS = """
levels: [region, zone]
nodes:
  - {id: a1, location: /eu/a}
  - {id: b1, location: /eu/b}
  - {id: c1, location: /us/c}
streams:
  - {stream: orders, shards: 4, replication_factor: 2}
"""


@pytest.mark.parametrize("command", ["check", "plan", "explain", "place"])
def test_commands_take_what_place_writes(command: str) -> None:
    written = CliRunner().invoke(app, ["place", "-", "--output", "cluster"], input=STREAMS)
    assert written.exit_code == 0
    assert all(
        len(nodes) == 2 for nodes in yaml.safe_load(written.stdout)["streams"][0]["replicas"]
    )
    arguments = [command, "-", "--strict", "--output", "json"]
    result = CliRunner().invoke(app, arguments, input=written.stdout)
    answer = orjson.loads(result.stdout)
    assert (result.exit_code, "error" in answer) == (0, False)
    assert answer.get("violations", []) == answer.get("moves", []) == []


def test_several_documents_stay_apart_and_a_faulty_one_is_told() -> None:
    text = f"{STREAMS}---\nnodes: [\n---\nname: last\nnodes: []\n"
    result = CliRunner().invoke(app, ["place", "-", "--output", "cluster"], input=text)
    assert (result.exit_code, "not YAML" in result.stderr) == (2, True)
    first, last = parse_documents(result.stdout)
    assert isinstance(first, Document)
    assert isinstance(last, Document)
    assert (len(first.cluster.streams), last.cluster.name) == (1, "last")
