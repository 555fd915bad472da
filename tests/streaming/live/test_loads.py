"""The live state with resources: an export reads back as what the reconciler counts, and `suggest`
says what room is missing."""

import pytest

from placement.state import ClusterState
from schemas.cluster import Cluster, parse_cluster
from streaming.live.explain import suggest_placement
from streaming.offline import CheckOptions, Document, check_cluster, cluster_body
from tests.builders.screens import World
from tests.stories.datadriven import parse_command


@pytest.fixture
def world() -> World:
    world = World()
    resources = "'{disk_bytes: {capacity: 0.8}, writes: {led: true, balance: 0.5}}'"
    world.answer(parse_command(f"settings resources={resources} levels=rack"))
    nodes = ["/r1 n1 n2 has=disk_bytes:1000,writes:100", "/r2 n3 n4 has=disk_bytes:500"]
    world.answer(parse_command("topology", nodes))
    world.answer(parse_command("create stream=a shards=3 rf=2 expected=disk_bytes:100"))
    world.answer(parse_command("create stream=b shards=1 rf=2 replicas='n1 n3'"))
    world.answer(parse_command("report nodes=n1 b/0=disk_bytes:150,writes:7"))
    return world


def test_an_export_counts_as_the_reconciler_does(world: World) -> None:
    body = cluster_body(world.live.cluster())
    assert body["resources"] == {
        "disk_bytes": {"capacity": 0.8},
        "writes": {"balance": 0.5, "led": True},
    }
    assert body["nodes"][0]["capacities"] == {"disk_bytes": 1000, "writes": 100}
    a, b = body["streams"]
    assert ("loads" in a, a["expected_load"]) == (False, {"disk_bytes": 100})
    assert (b["loads"], "expected_load" in b) == ({"disk_bytes": [150], "writes": [7]}, False)
    cluster = parse_cluster(body)
    assert isinstance(cluster, Cluster)
    found = check_cluster(Document(cluster), CheckOptions()).node_loads
    state = world.reconciler.state
    assert isinstance(state, ClusterState)
    known = state.node_loads()
    assert found is not None
    assert known is not None
    assert found.borne.tolist() == known.borne.tolist()
    assert found.limit.tolist() == known.limit.tolist()


def test_a_resource_that_is_counted_no_more_leaves_nothing(world: World) -> None:
    marker = world.live.latest["commits.v1"]["main"]
    marker["configuration"]["resources"] = []
    body = cluster_body(world.live.cluster())
    assert "resources" not in body
    assert isinstance(parse_cluster(body), Cluster)
    assert not any("loads" in each or "expected_load" in each for each in body["streams"])
    assert not any("capacities" in each for each in body["nodes"])


def test_a_suggestion_says_what_room_is_missing(world: World) -> None:
    asked = {"shards": 2, "replication_factor": 2, "policy": {"strategy": "spread"}}
    placed, _ = suggest_placement(world.live.cluster(), asked)
    assert (placed["outcome"], placed["advice"]) == ("placed", [])
    large = asked | {"expected_load": {"disk_bytes": 600}}
    answer, whole = suggest_placement(world.live.cluster(), large)
    assert whole.has_unanswered
    advice = answer["advice"]
    assert [each["message"] for each in advice][:2] == [
        "2.3 kB more of disk_bytes in all, 567 bytes on each of 4 nodes",
        "one more node in each of the 2 locations, with 1.5 kB of disk_bytes each",
    ]
    assert (advice[0]["resource"], advice[0]["amount"]) == ("disk_bytes", 4 * 567)


def test_without_resources_there_is_no_advice() -> None:
    world = World()
    world.answer(parse_command("topology", ["/r1 n1"]))
    asked = {"shards": 1, "replication_factor": 2, "policy": {"strategy": "spread"}}
    answer, _ = suggest_placement(world.live.cluster(), asked)
    assert "advice" not in answer
