"""Answers for files with `resources`: what is counted, where it is written, what it costs.

Method: seeded files. What `check` counts for a placed file is what the core counted when it placed
it; what a plan says of bytes is derived a second time from its moves and lists. Without resources
no answer has a field more.
"""

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from schemas.cluster import Cluster, parse_cluster
from streaming.cli.main import app
from streaming.cli.render.topology import TopologyTree
from streaming.cli.render.utilisation import usage_of

RESOURCES = {"disk_bytes": {"capacity": 0.9, "balance": 0.5}, "writes": {"led": True}}


def asked(*words: str, document: dict[str, Any]) -> tuple[int, Any]:
    told = orjson.dumps(document).decode()
    result = CliRunner().invoke(app, [words[0], "-", *words[1:], "--output", "json"], input=told)
    assert result.stdout, result.output
    return result.exit_code, orjson.loads(result.stdout)


def written(*words: str, document: dict[str, Any]) -> str:
    told = orjson.dumps(document).decode()
    return CliRunner().invoke(app, [words[0], "-", *words[1:]], input=told).output


def fleet(seed: int) -> dict[str, Any]:
    """A fleet with a stream that stands, one of which little is known, and a new one."""
    rng = random.Random(seed)
    nodes = [
        {"id": f"n{n}", "location": f"/r{n % 2}/z{n % 4}", "capacities": {"disk_bytes": 10_000}}
        for n in range(8)
    ]
    lists = [rng.sample([node["id"] for node in nodes], 3) for _ in range(4)]
    sizes = [rng.randint(1, 900) for _ in range(4)]
    writes = [rng.randint(0, 9) for _ in range(4)]
    spread = {"policy": {"strategy": "spread"}}
    old = {"stream": "old", "shards": 4, "replication_factor": 3, "replicas": lists}
    some = {"stream": "some", "shards": 4, "replication_factor": 3, "replicas": lists}
    new = {"stream": "new", "shards": 5, "replication_factor": 2, **spread}
    streams = [
        old | spread | {"loads": {"disk_bytes": sizes, "writes": writes}},
        some | spread | {"loads": {"disk_bytes": [sizes[0], None, None, None]}},
        new | {"expected_load": {"disk_bytes": 100}},
    ]
    return {"levels": ["region"], "resources": RESOURCES, "nodes": nodes, "streams": streams}


@pytest.mark.parametrize("seed", range(5))
def test_check_counts_what_the_core_counted(seed: int) -> None:
    document = fleet(seed)
    _, placed = asked("place", document=document)
    for stream, decision in zip(document["streams"], placed["decisions"], strict=True):
        stream["replicas"] = decision["replicas"]
    _, checked = asked("check", document=document)
    assert checked["utilisation"] == placed["utilisation"]
    first = checked["utilisation"]["disk_bytes"]["nodes"]["n0"]
    assert first["utilisation"] == round(first["load"] / 10_000, 4)


@pytest.mark.parametrize("seed", range(5))
def test_bytes_of_a_plan(seed: int) -> None:
    document = fleet(seed)
    # Of what is placed for the first time nothing is copied.
    del document["streams"][2]
    drained = ["--drain", "n0", "--drain", "n1", "--phase", "repair"]
    words = ["plan", *drained, "--until-balanced", "--max-moves", "2", "--rate", "7"]
    _, answer = asked(*words, document=document)
    by_wave: Counter[int] = Counter()
    for move in answer["moves"]:
        if move["add"]:
            by_wave[move["wave"]] += move["bytes"]
    assert by_wave
    assert {wave["wave"]: wave["bytes"] for wave in answer["waves"] if wave["bytes"]} == by_wave
    traffic = answer["traffic"]
    assert traffic["bytes"] == by_wave.total()
    assert sum(each["bytes"] for each in traffic["links"]) <= traffic["bytes"]
    assert traffic["seconds"] == sum(wave["seconds"] for wave in answer["waves"])
    assert traffic["seconds"] >= max(by_wave.values(), default=0) / 7 / 2
    for resource, peak in answer["peak"].items():
        moments = (answer["utilisation"], answer["final"]["utilisation"])
        for name, most in peak.items():
            assert most["load"] >= max(each[resource]["nodes"][name]["load"] for each in moments)


@pytest.mark.parametrize("seed", range(4))
def test_no_step_of_a_plan_overfills_a_node(seed: int) -> None:
    document = fleet(seed)
    del document["streams"][2]
    rng = random.Random(seed)
    for node in document["nodes"]:
        node["capacities"]["disk_bytes"] = rng.choice((3_000, 5_000, 8_000))
    _, answer = asked("plan", "--until-balanced", "--rate", "10", document=document)
    for name, most in answer["peak"]["disk_bytes"].items():
        before = answer["utilisation"]["disk_bytes"]["nodes"][name]["load"]
        assert most["load"] <= max(0.9 * most["capacity"], before)
    if "bytes_lower_bound" in answer:
        assert answer["traffic"]["bytes"] >= answer["bytes_lower_bound"]


@pytest.mark.parametrize("words", [("place",), ("check", "--report"), ("plan", "--drain", "n0")])
def test_without_resources_there_are_no_new_fields(words: tuple[str, ...]) -> None:
    document = fleet(1)
    del document["resources"]
    for node in document["nodes"]:
        del node["capacities"]
    for stream in document["streams"]:
        stream.pop("loads", None)
        stream.pop("expected_load", None)
    _, bare = asked(*words, document=document)
    document["streams"][0]["shard_bytes"] = [1, 2, 3, 4]
    assert asked(*words, document=document)[1] == bare
    told = orjson.dumps(bare).decode()
    assert not any(f'"{name}"' in told for name in ("utilisation", "peak", "bytes", "seconds"))


def test_a_full_node_fails_a_check() -> None:
    stream = {"stream": "s", "shards": 1, "replication_factor": 1, "replicas": [["n"]]}
    sized: dict[str, Any] = stream | {
        "policy": {"strategy": "spread"},
        "loads": {"disk_bytes": [950]},
    }
    nodes = [{"id": "n", "capacities": {"disk_bytes": 1000}}]
    resources = {"disk_bytes": {"capacity": 0.9}}
    document = {"resources": resources, "nodes": nodes, "streams": [sized]}
    status, answer = asked("check", document=document)
    (violation,) = answer["violations"]
    assert (status, violation["reason"]["code"]) == (1, "OVER_CAPACITY")
    assert (violation["domain"], violation["class"]) == ("n", "unfixable")
    assert "50 bytes more would be needed on one node" in violation["reason"]["message"]
    assert asked("check", "--fail-on", "fixable", document=document)[0] == 0
    # No plan mends it.
    status, answer = asked("plan", document=document)
    assert (status, [each["rule"] for each in answer["unfixable"]]) == (1, ["fits disk_bytes"])


def test_shards_without_a_figure_are_placed_with_the_mean_of_the_others() -> None:
    nodes = [{"id": f"n{n}", "capacities": {"disk_bytes": 100}} for n in range(2)]
    loads: dict[str, Any] = {"disk_bytes": [90, None]}
    stream = {"stream": "s", "shards": 2, "replication_factor": 1, "loads": loads}
    stream |= {"policy": {"strategy": "spread"}}
    document = {"resources": RESOURCES, "nodes": nodes, "streams": [stream]}
    _, placed = asked("place", document=document)
    used = placed["utilisation"]["disk_bytes"]["nodes"]
    assert [each["load"] for each in used.values()] == [90, 90]
    loads["disk_bytes"] = [95, 95]
    assert asked("place", document=document)[1]["decisions"][0]["outcome"] == "waiting"


POLICIES: list[dict[str, Any]] = [
    {"strategy": "spread"},
    {"strategy": "affinity", "shard": "balanced"},
    {"strategy": "ring"},
    {"strategy": "network_topology", "replication": {"r0": 1, "r1": 1}},
    {"strategy": "hdfs"},
    {"strategy": "copysets"},
    {"strategy": "awareness", "attributes": ["zone"]},
    {"strategy": "client_tags", "rack_aware_tags": ["zone"]},
    {"strategy": "location_majority"},
    {"strategy": "multi_level"},
    {"strategy": "simple"},
    {"strategy": "striped"},
    {"strategy": "cost", "cold": 0},
]


def unequal(policy: dict[str, Any], seed: int, largest: int = 4_000) -> dict[str, Any]:
    """Eight nodes, full to half or more by 60 shards of very unequal size."""
    rng = random.Random(seed)
    nodes = [
        {
            "id": f"n{n}",
            "location": f"/r{n % 2}/z{n % 4}/k{n}",
            "tags": {"zone": f"z{n % 4}"},
            "capacities": {"disk_bytes": 10_000},
        }
        for n in range(8)
    ]
    sizes = [min(round(rng.lognormvariate(5.5, 1.3)), largest) for _ in range(60)]
    stream = {"stream": "s", "shards": 60, "replication_factor": 2, "policy": policy}
    return {
        "levels": ["region", "zone", "rack"],
        "resources": {"disk_bytes": {"capacity": 0.9}},
        "nodes": nodes,
        "streams": [stream | {"loads": {"disk_bytes": sizes}}],
    }


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: str(policy["strategy"]))
def test_each_shard_is_placed_with_its_own_load(policy: dict[str, Any], seed: int) -> None:
    document = unequal(policy, seed)
    _, answer = asked("place", document=document)
    (decision,) = answer["decisions"]
    held: Counter[str] = Counter()
    sizes = document["streams"][0]["loads"]["disk_bytes"]
    for size, nodes in zip(sizes, decision["replicas"], strict=bool(decision["replicas"])):
        held.update(dict.fromkeys(nodes, size))
    assert max(held.values(), default=0) <= 9_000
    assert held or decision["reasons"][0]["code"] in ("NO_CANDIDATE", "NODES_TOO_FEW")
    used = answer["utilisation"]["disk_bytes"]["nodes"]
    assert {name: each["load"] for name, each in used.items() if each["load"]} == held
    # No other strategy may choose a node by what fits best.
    if policy["strategy"] == "spread" and sum(sizes) < 4 * 8_000:
        assert decision["outcome"] == "placed"
        assert max(held.values()) <= 1.1 * 2 * sum(sizes) / 8


def test_of_shards_that_share_their_nodes_the_sum_has_to_fit() -> None:
    policy = {"strategy": "spread", "rules": [{"colocate": "slots"}]}
    document = unequal(policy, 0, largest=180)
    total = sum(document["streams"][0]["loads"]["disk_bytes"])
    for node in document["nodes"]:
        node["capacities"]["disk_bytes"] = total
    for name in (2, 5):
        document["nodes"][name]["capacities"]["disk_bytes"] = total * 10 // 9 + 100
    _, answer = asked("place", document=document)
    decision = answer["decisions"][0]
    assert (decision["outcome"], decision["reasons"]) == ("placed", [])
    assert {*map(frozenset, decision["replicas"])} == {frozenset({"n2", "n5"})}


@pytest.mark.parametrize("sizes", [[80, 30, 30, 20], [30, 30, 20, 80], [1] * 68 + [80]])
def test_large_shards_find_room_in_any_order(sizes: list[int]) -> None:
    nodes = [{"id": f"n{n}", "capacities": {"disk_bytes": 100}} for n in range(2)]
    stream = {"stream": "s", "shards": len(sizes), "replication_factor": 1}
    stream |= {"policy": {"strategy": "spread"}, "loads": {"disk_bytes": sizes}}
    document = {"resources": RESOURCES, "nodes": nodes, "streams": [stream]}
    _, answer = asked("place", document=document)
    assert answer["decisions"][0]["outcome"] == "placed"
    used = answer["utilisation"]["disk_bytes"]["nodes"]
    assert max(each["load"] for each in used.values()) <= 90


@pytest.mark.parametrize(
    ("expected", "has"),
    [
        (
            {"disk_bytes": 95_000},
            "none of the 2 nodes has 95.0 kB of disk_bytes free, at most 90.0 kB",
        ),
        (
            {"disk_bytes": 80_000, "ops": 7},
            "none of the 2 nodes has 80.0 kB of disk_bytes and 7 of ops free",
        ),
        (
            {"disk_bytes": 80_000, "ops": 60},
            "none of the 2 nodes has 80.0 kB of disk_bytes and 60 of ops free, at most 50 of ops",
        ),
        ({"ops": 7}, "of 2 nodes, 1 with 7 of ops free"),
    ],
)
def test_a_shortage_names_the_resource(expected: dict[str, int], has: str) -> None:
    nodes = [
        {"id": "n0", "capacities": {"disk_bytes": 100_000, "ops": 5}},
        {"id": "n1", "capacities": {"disk_bytes": 10_000, "ops": 50}},
    ]
    stream = {"stream": "s", "shards": 1, "replication_factor": 2, "expected_load": expected}
    stream |= {"policy": {"strategy": "spread"}}
    resources = {"disk_bytes": {"capacity": 0.9}, "ops": {"capacity": 1.0}}
    document = {"resources": resources, "nodes": nodes, "streams": [stream]}
    _, answer = asked("place", document=document)
    reason = answer["decisions"][0]["reasons"][0]
    assert has in reason["message"]
    assert reason["code"] == "NODES_TOO_FEW"


def test_nodes_that_join_have_room(tmp_path: Path) -> None:
    document = fleet(2)
    joining = {"nodes": [{"id": "n9", "location": "/r0/z0", "capacities": {"disk_bytes": 50_000}}]}
    file = tmp_path / "more.json"
    file.write_bytes(orjson.dumps(joining))
    _, answer = asked("plan", "--add", str(file), "--drain", "n0", document=document)
    assert answer["utilisation"]["disk_bytes"]["nodes"]["n9"]["capacity"] == 50_000
    assert "n9" in {move["add"] for move in answer["moves"]}


def test_a_saved_plan_keeps_bytes_and_rests_on_capacities(tmp_path: Path) -> None:
    document, file = fleet(3), str(tmp_path / "plan.json")
    _, planned = asked("plan", "--drain", "n0", "--save", file, document=document)
    status, told = asked("plan", "--verify", file, document=document)
    assert (status, told["moves"]) == (0, planned["moves"])
    assert any("bytes" in move for move in told["moves"])
    for node in document["nodes"]:
        node["capacities"]["disk_bytes"] += 1
    status, told = asked("plan", "--verify", file, document=document)
    assert status == 2
    assert told["changes"][0]["field"] == "capacities"


@pytest.mark.parametrize(
    ("words", "resources", "says"),
    [
        (("plan", "--rate", "50MB"), {}, "the file does not say how large shards are"),
        (("plan", "--rate", "50MB"), {"writes": {}}, "it needs resources with"),
        (("plan", "--rate", "0"), {"disk_bytes": {}}, "'0' is no number of bytes a second"),
        (("plan", "--rate", "fast"), {"disk_bytes": {}}, "'fast' is no number of bytes a second"),
    ],
)
def test_a_rate_needs_bytes(words: tuple[str, ...], resources: Any, says: str) -> None:
    text = written(*words, document={"resources": resources, "nodes": [{"id": "n"}]})
    assert says in " ".join(text.replace("│", "").split())


def test_people_read_shares_and_units() -> None:
    document = fleet(4)
    for node in document["nodes"]:
        node["capacities"] = {"disk_bytes": 4_000_000_000_000}
    document["streams"][0]["loads"]["disk_bytes"] = [900_000_000_000] * 4
    text = written("check", document=document)
    assert re.search(r"n0 █+ \d+, disk_bytes \d+% of 4\.0 TB", text)
    text = written(
        "plan", "--drain", "n0", "--phase", "repair", "--rate", "50MB", document=document
    )
    assert "900.0 GB" in text
    assert "where each node sends and receives 50.0 MB/s" in text
    assert "on the way node" in text


def test_the_report_says_how_far_nodes_are_filled() -> None:
    _, answer = asked("check", "--report", document=fleet(5))
    first = answer["report"]["servers"][0]
    used = {name: found["nodes"]["n0"] for name, found in answer["utilisation"].items()}
    assert first["utilisation"] == {name: each["utilisation"] for name, each in used.items()}
    assert first["utilisation"]["writes"] is None
    text = written("check", "--report", document=fleet(5))
    assert re.search(r"node +location +status +replicas +leaders +disk_bytes +writes", text)


def test_a_narrow_terminal_leaves_out_what_nodes_bear() -> None:
    document = fleet(6)
    _, answer = asked("check", document=document)
    cluster = parse_cluster(document)
    assert isinstance(cluster, Cluster)
    tree = TopologyTree(cluster.nodes, ({},), usage=usage_of([answer["utilisation"]]))
    assert "disk_bytes" in str(tree.lines(120))
    narrow = [line.plain for line in tree.lines(50)]
    assert "disk_bytes" not in "".join(narrow)
    assert narrow[-1] == "not shown: utilisation (--output json)"
