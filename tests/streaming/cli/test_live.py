"""Goal: status, listings, explain --live, suggest and export tell what the topics hold.

Method: a reconciler's records are committed to the embedded broker, commands run in this process.
The story: six nodes in three zones, two streams; n1 dies, so that its replica moves.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from typer.testing import CliRunner, Result

from placement.model import Configuration, Liveness, NodeAttributes, NodeChanged, StreamCreated
from streaming.administration import apply_topics
from streaming.cli.main import app
from streaming.live import LISTINGS
from streaming.runtime import EmbeddedBroker
from tests.builders.published_state import Publisher

Placer = Callable[..., Result]
NODES = {f"n{i}": f"/z{(i + 1) // 2}" for i in range(1, 7)}


def node(node_id: str, sequence: int, liveness: Liveness = Liveness.UP) -> NodeChanged:
    attributes = NodeAttributes(NODES[node_id]) if sequence == 1 else None
    return NodeChanged(sequence, node_id, "a", sequence, liveness, attributes)


@pytest.fixture(scope="module")
def at(broker: EmbeddedBroker) -> tuple[str, str]:
    bootstrap, prefix = broker.bootstrap_servers, "live."
    apply_topics(bootstrap, prefix)
    publisher = Publisher(bootstrap, prefix, Configuration())
    publisher.apply([node(node_id, 1) for node_id in NODES], 1_000)
    asked = {"strategy": "location_majority"}
    streams = [
        StreamCreated(2, "orders", 1, 2, 3, policy=asked),
        StreamCreated(2, "clicks", 1, 1, 2, quorum="one"),
        StreamCreated(2, "wide", 1, 1, 9, placement_policies="node=exclusive"),
    ]
    publisher.apply(streams, 2_000)
    publisher.apply([node("n1", 2, Liveness.DEAD)], 3_000)
    return bootstrap, prefix


def body(result: Result) -> Any:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return orjson.loads(result.stdout)


def test_status(placer: Placer, at: tuple[str, str]) -> None:
    result = placer("status", "--output", "json", at=at)
    assert result.exit_code == 1
    told = body(result)
    assert told["nodes"] == {"dead": 1, "up": 5}
    assert told["streams"] == {"placed": 2, "rejected": 1}
    assert told["last_commit"]["sequence"] == 3
    assert told["health"]["worst"] == "at_risk"
    moves = told["moves"]
    assert moves["open"] == len(moves["oldest"]) > 0
    assert {move["remove"] for move in moves["oldest"]} == {"n1"}
    assert told["health"]["counts"]["streams"] == {"at_risk": 1, "under_replicated": 1}
    assert told["conditions"] == told["nodes"]
    text = placer("status", at=at).stdout
    for words in ("main, commit 3 of writer epoch 1", "1 dead, 5 up", "1 rejected", "at_risk: 1"):
        assert words in text
    assert text.index("at_risk") < text.index("n1 "), "the summary comes first"
    branch = placer("status", "/z2", "--depth", "1", at=at)
    assert branch.exit_code == 1
    assert "n3 " in branch.stdout
    assert "n5 " not in branch.stdout


def test_no_reconciler_has_run(placer: Placer, bootstrap: str, prefix: str) -> None:
    result = placer("status", at=(bootstrap, prefix))
    assert result.exit_code == 3
    assert "no reconciler of cell 'main' has committed anything" in result.stderr


def test_listings(placer: Placer, at: tuple[str, str]) -> None:
    nodes = body(placer("nodes", "--output", "json", at=at))
    assert [row["node"] for row in nodes] == list(NODES)
    assert nodes[0]["status"] == "dead"
    assert sum(row["replicas"] for row in nodes) == 2 * 3 + 2
    assert sum(row["coming"] for row in nodes) == nodes[0]["going"] > 0
    dead = body(placer("nodes", "--where", "status=dead", "--output", "json", at=at))
    assert [row["node"] for row in dead] == ["n1"]
    locations = body(placer("locations", "--output", "json", at=at))
    assert [(row["location"], row["nodes"], row["up"]) for row in locations] == [
        ("/z1", 2, 1),
        ("/z2", 2, 2),
        ("/z3", 2, 2),
    ]
    streams = {row["stream"]: row for row in body(placer("streams", "--output", "json", at=at))}
    assert streams["wide"]["outcome"] == "rejected"
    assert streams["wide"]["health"] is None
    # They were placed whole, and have lost copies since.
    assert streams["orders"]["missing_when_decided"] == streams["clicks"]["missing_when_decided"]
    assert streams["orders"]["missing"] + streams["clicks"]["missing"] == nodes[0]["going"]
    assert {streams[name]["health"] for name in ("orders", "clicks")} == {
        "at_risk",
        "under_replicated",
    }
    assert streams["wide"]["reasons"]
    policies = body(placer("policies", "--output", "json", at=at))
    assert {row["policy"]: row["named"] for row in policies} == {
        "location_majority": ["orders"],
        "spread": ["clicks"],
    }
    broken = body(placer("violations", "--output", "json", at=at))
    assert {row["rule"] for row in broken} == {"replicas"}
    assert all(row["class"] in ("fixable", "deferred") for row in broken)
    few = body(placer("nodes", "--columns", "node,status", "--output", "json", at=at))
    assert few[0] == {"node": "n1", "status": "dead"}
    table = placer("nodes", "--columns", "node,status", at=at).stdout.split()
    assert table[:4] == ["node", "status", "n1", "dead"]
    for name, rows in (("nodes", nodes), ("streams", list(streams.values()))):
        assert [list(row) for row in rows] == [list(LISTINGS[name].columns)] * len(rows)
    assert [list(row) for row in broken] == [list(LISTINGS["violations"].columns)] * len(broken)
    assert [list(row) for row in locations] == [list(LISTINGS["locations"].columns)] * 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("status", "/z9"), "no node has a location in '/z9'; the top level has /z1, /z2, /z3"),
        (("nodes", "--where", "colour=red"), "no column 'colour'"),
        (("nodes", "--where", "status"), "expected COLUMN=VALUE"),
        (("nodes", "--where", "status=deadd"), "no value 'deadd'; did you mean 'dead'? its values"),
        (("nodes", "--where", "liveness=x*"), "its values are up, suspect, dead, unregistered"),
        (("streams", "--where", "health=fine"), "its values are healthy, rebalancing, degraded"),
        (("violations", "--where", "class=fixible"), "did you mean 'fixable'?"),
        (("streams", "--columns", "name"), "no column 'name'"),
        (("describe", "node", "n7"), "there is no node 'n7'; see: placer nodes"),
        (("describe", "shard", "orders"), "expected STREAM/SHARD such as orders/3"),
        (("explain", "--live", "nothing"), "there is no stream 'nothing'"),
        (("explain", "--live", "orders/7"), "has 2 shards"),
        (("explain", "--live", "orders", "--node", "n99"), "there is no node 'n99'"),
        (("suggest", "--simple", "--policies", "x"), "exclude each other"),
        (("suggest", "--policy", "["), "not YAML"),
    ],
)
def test_wrong_usage(
    placer: Placer, at: tuple[str, str], words: tuple[str, ...], said: str
) -> None:
    result = placer(*words, at=at)
    assert result.exit_code == 2
    assert said in result.stderr.replace("\n", " ").replace("│", "").replace("  ", " ")


def test_explain_live(placer: Placer, at: tuple[str, str]) -> None:
    told = body(placer("explain", "--live", "orders", "--output", "json", at=at))
    moving = [shard for shard in told["shards"] if shard["move"]]
    assert moving, "n1 held a replica"
    for shard in moving:
        assert shard["move"]["remove"] == "n1"
        assert shard["move"]["reason"]["code"] == "NODE_DEAD"
        assert shard["still"] is None
        assert [each["node"] for each in shard["held"]] == shard["replicas"]
    refused = body(placer("explain", "--live", "wide", "--output", "json", at=at))
    assert (refused["outcome"], refused["shards"]) == ("rejected", [])
    text = placer("explain", "--live", "clicks/0", at=at).stdout
    assert "clicks/0 at epoch" in text
    absent = placer("explain", "--live", "orders/0", "--node", "n1", at=at).stdout
    assert "n1" in absent


def test_explain_live_says_what_explain_says_of_the_export(
    placer: Placer, at: tuple[str, str]
) -> None:
    """Goal: one implementation: replica by replica, advice and health are those of the file."""
    exported = placer("export", at=at).stdout
    for stream in ("orders", "clicks"):
        told = body(placer("explain", "--live", stream, "--output", "json", at=at))
        words = ["explain", "-", stream, "--output", "json"]
        [file] = orjson.loads(CliRunner().invoke(app, words, input=exported).stdout)["explain"]
        assert told["health"] == file["health"]
        assert told["replicas"] == file["replicas"]
        for live, offline in zip(told["shards"], file["shards"], strict=True):
            assert live["held"] == offline["held"]
            assert (live["move"] is None) == (offline["move"] is None)
            assert live["still"] == offline["still"]
    wide = body(placer("explain", "--live", "wide", "--output", "json", at=at))
    assert wide["advice"], "what would let a refused stream be placed is tried live, too"
    text = placer("explain", "--live", "wide", at=at).stdout
    assert "What would let it be placed (each has been tried):" in text
    absent = body(
        placer("explain", "--live", "orders/0", "--node", "n1", "--output", "json", at=at)
    )
    [shard] = absent["shards"]
    assert "it is dead" in shard["absent"]["reason"] or not shard["held"][0]["lawful"]


def test_a_dry_run_of_a_drain_lists_its_moves(placer: Placer, at: tuple[str, str]) -> None:
    """Goal: as `plan` does: which shard, from where, to where, why; nothing is sent."""
    before = placer("export", at=at).stdout
    told = body(placer("drain", "n3", "--dry-run", "--output", "json", at=at))
    held = {
        row["node"]: row["replicas"] for row in body(placer("nodes", "--output", "json", at=at))
    }
    assert len(told["moves"]) + len(told["blocked_replicas"]) == held["n3"] > 0
    assert {(move["remove"], move["cause"]) for move in told["moves"]} == {("n3", "drain")}
    text = placer("drain", "n3", "--dry-run", at=at).stdout
    for move in told["moves"]:
        assert f"{move['stream']}/{move['shard']}" in text
        assert move["add"] in text
    assert "as the limits of moves allow" in text
    assert placer("export", at=at).stdout == before
    watched = placer("drain", "n3", "--dry-run", "--watch", at=at)
    assert (watched.exit_code, "--dry-run begins none" in watched.stderr) == (2, True)


def test_describe(placer: Placer, at: tuple[str, str]) -> None:
    node = body(placer("describe", "node", "n1", "--output", "json", at=at))
    assert (node["condition"], node["location"]) == ("dead", "/z1")
    assert len(node["moves_out"]) == node["replicas"] > 0
    lost = {each["stream"]: each["replicas"] for each in node["by_stream"]}
    stream = body(placer("describe", "stream", "orders", "--output", "json", at=at))
    assert (stream["outcome"], stream["spec"]["shards"]) == ("placed", 2)
    assert stream["missing"] == lost.get("orders", 0)
    move = node["moves_out"][0]
    name = f"{move['stream']}/{move['shard']}"
    shard = body(placer("describe", "shard", name, "--output", "json", at=at))
    assert shard["move"]["move_id"] == move["move_id"]
    assert "no executor has accepted it yet" in shard["next"][0]
    for words in (("node", "n1"), ("stream", "orders"), ("shard", "orders/0")):
        assert words[1] in placer("describe", *words, at=at).stdout.splitlines()[0]


def test_suggest_changes_nothing(placer: Placer, at: tuple[str, str]) -> None:
    before = placer("export", at=at).stdout
    told = body(placer("suggest", "--shards", "4", "--rf", "3", "--output", "json", at=at))
    assert told["outcome"] == "placed"
    assert [len(nodes) for nodes in told["replicas"]] == [3] * 4
    assert all("n1" not in nodes for nodes in told["replicas"]), "it is dead"
    some = placer("suggest", "--rf", "2", "--nodes", "n2,n3", "--output", "json", at=at)
    assert sorted(body(some)["replicas"][0]) == ["n2", "n3"]
    none = placer("suggest", "--rf", "9", "--policies", "node=exclusive", at=at)
    assert none.exit_code == 1
    assert placer("export", at=at).stdout == before


def test_export_is_a_cluster_file(placer: Placer, at: tuple[str, str], tmp_path: Path) -> None:
    text = placer("export", at=at).stdout
    exported = yaml.safe_load(text)
    assert body(placer("export", "--output", "json", at=at)) == exported
    assert [each["id"] for each in exported["nodes"]] == list(NODES)
    assert {each["stream"] for each in exported["streams"]} == {"orders", "clicks"}
    assert {each["remove"] for each in exported["moves"]} == {"n1"}
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    checked = placer("check", str(file), "--output", "json")
    assert body(checked)["health"]["worst"] == "at_risk"
