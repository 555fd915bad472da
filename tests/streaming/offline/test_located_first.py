"""Nodes without a location beside others that have one, as the offline commands place them.

Goal: `spread` uses them last, shard by shard and in bulk, and nothing that comes later copies to
them for balance. Fleets of one kind only, and strategies that follow a source, count them as ever.
"""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from placement.strategies.spread_bulk import BULK_FROM
from streaming.cli.main import app

SHARDS = (1, 2, 3, 5, 8, 13, BULK_FROM, 150)


def node(name: str, location: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": name, **({"location": location} if location else {}), **more}


def asked(shards: int, factor: int, **more: Any) -> dict[str, Any]:
    return {"stream": "s", "shards": shards, "replication_factor": factor, **more}


def answer(path: Path, command: str, *options: str) -> dict[str, Any]:
    ran = CliRunner().invoke(app, [command, str(path), *options, "--output", "json"])
    assert ran.exit_code in (0, 1), ran.output
    found: dict[str, Any] = orjson.loads(ran.stdout)
    return found


def written(path: Path, nodes: list[Any], streams: list[Any]) -> Path:
    path.write_bytes(orjson.dumps({"nodes": nodes, "streams": streams}))
    return path


def placed(path: Path) -> Counter[str]:
    """Replicas by node; the file then has them."""
    ran = CliRunner().invoke(app, ["place", str(path), "--output", "cluster"])
    assert ran.exit_code in (0, 1), ran.output
    decisions = answer(path, "place")["decisions"]
    path.write_text(ran.stdout)
    return Counter(n for each in decisions for shard in each["replicas"] for n in shard)


def copies_of(plan: dict[str, Any]) -> list[Any]:
    """The moves of a plan that copy a replica."""
    return [move for move in plan["moves"] if move["kind"] != "leader"]


FOUR = [node("a1", "/a"), node("a2", "/a"), node("b1", "/b"), node("b2", "/b")]
TWO = [node("n1"), node("n2")]
CASES: dict[str, tuple[list[Any], dict[str, Any], int, dict[str, float]]] = {
    "others suffice": (FOUR + TWO, {}, 4, {"n1": 0, "n2": 0}),
    "too few distinct nodes": (FOUR[:2] + TWO, {}, 3, {"a1": 1, "a2": 1, "n1": 0.5, "n2": 0.5}),
    "a required rule": (
        FOUR + TWO,
        {"rules": [{"at_most": 1, "per": "location"}]},
        3,
        {"n1": 0.5, "n2": 0.5},
    ),
    "capacity": ([*FOUR[:2], node("b1", "/b", capacity=0), *TWO[:1]], {}, 3, {"b1": 0, "n1": 1}),
    "filters admit none with a location": (FOUR + TWO, {"nodes": ["n1", "n2"]}, 2, {"n1": 1}),
    "none that is up has a location": (
        [*(each | {"status": "dead"} for each in FOUR), *TWO],
        {},
        1,
        {"n1": 0.5, "n2": 0.5},
    ),
    "evenness required": (FOUR + TWO, {"on_infeasible": "reject"}, 3, {"n1": 0, "n2": 0}),
    "a wish counts less": (
        [*FOUR, node("n1", tags={"disk": "ssd"})],
        {"rules": [{"with_tags": {"disk": "ssd"}, "strength": "preferred"}]},
        2,
        {"n1": 0},
    ),
    "Kudu counts one more location": (
        FOUR + TWO,
        {"strategy": "location_majority"},
        3,
        {"n1": 0.5, "n2": 0.5},
    ),
    "Timeplus does so too": (
        FOUR + TWO,
        {"strategy": "affinity", "shard": "balanced"},
        3,
        {"n1": 0.5, "n2": 0.5},
    ),
}


@pytest.mark.parametrize("shards", [4, 2 * BULK_FROM])
@pytest.mark.parametrize("case", CASES)
def test_who_holds_how_much(case: str, shards: int, tmp_path: Path) -> None:
    """The share of the shards that each node holds; then there is nothing to be moved."""
    nodes, policy, factor, expected = CASES[case]
    file = written(tmp_path / "f.json", nodes, [asked(shards, factor, policy=policy)])
    held = placed(file)
    assert {name: held[name] / shards for name in expected} == expected
    assert copies_of(answer(file, "plan")) == []


def test_what_stands_there_stays(tmp_path: Path) -> None:
    """Two of the shards stand on nodes without a location, which have joined no place since."""
    lists = [["n1", "n2"], ["a1", "n1"], ["a2", "b1"]]
    file = written(tmp_path / "f.json", FOUR + TWO, [asked(3, 2, replicas=lists)])
    assert copies_of(answer(file, "plan")) == []
    assert answer(file, "check")["violations"] == []


def test_a_lost_copy_goes_to_a_place(tmp_path: Path) -> None:
    file = written(tmp_path / "f.json", FOUR + TWO, [asked(40, 3)])
    placed(file)
    moves = copies_of(answer(file, "plan", "--lose", "a1"))
    assert moves
    assert {move["add"] for move in moves} <= {"a2", "b1", "b2"}


@pytest.mark.parametrize(("location", "moved"), [(None, 0), ("/c", 40)])
def test_a_node_that_joins(location: str | None, moved: int, tmp_path: Path) -> None:
    """120 replicas: a third place takes a third of them, a node without a place none."""
    file = written(tmp_path / "f.json", FOUR + TWO, [asked(40, 3)])
    placed(file)
    joins = written(tmp_path / "j.json", [node("x", location)], [])
    plan = answer(file, "plan", "--add", str(joins))
    copies = copies_of(plan)
    assert [move["add"] for move in copies] == ["x"] * moved
    assert len(copies) == plan["lower_bound"]


def test_why_it_holds_none(tmp_path: Path) -> None:
    file = written(tmp_path / "f.json", FOUR + TWO, [asked(1, 3)])
    ran = CliRunner().invoke(app, ["explain", str(file), "s", "--node", "n1"])
    assert "it has no location, and nodes that have one come first" in ran.output
    ran = CliRunner().invoke(app, ["explain", str(file), "s"])
    assert "of 6 nodes, 4 without another replica of the shard, 2 with a location" in ran.output


@pytest.mark.parametrize("seed", range(10))
def test_they_change_nothing(seed: int, tmp_path: Path) -> None:
    """Random fleets in which the nodes with a location suffice: placed and planned as if there were
    no others; and where these places are alike, nothing is left to be moved."""
    rng = random.Random(seed)
    width = rng.randint(2, 4)
    places = [f"/r{n % 2}/z{n}" if seed % 2 else f"/z{n}" for n in range(width)]
    stands = [place for place in places for _ in range(rng.randint(1, 3) if seed % 3 else 2)]
    others = [node(f"n{n}", weight=rng.choice((1.0, 3.0))) for n in range(rng.randint(1, 4))]
    mixed = [*others, *(node(f"a{n}", place) for n, place in enumerate(stands))]
    rng.shuffle(mixed)
    streams = [
        asked(rng.choice(SHARDS), rng.randint(1, min(len(stands) - 1, 4))) | {"stream": f"s{n}"}
        for n in range(rng.randint(1, 4))
    ]
    told = []
    for nodes in (mixed, [each for each in mixed if "location" in each]):
        file = written(tmp_path / f"{len(nodes)}.json", nodes, streams)
        decisions, held = answer(file, "place")["decisions"], placed(file)
        assert not any(name.startswith("n") for name in held)
        plans = [answer(file, "plan", *lost)["moves"] for lost in ((), ("--lose", "a0"))]
        told.append(([each["replicas"] for each in decisions], *plans))
        assert answer(file, "check")["health"]["worst"] in ("healthy", "degraded")
    for mixed_one, plain in zip(*told, strict=True):
        assert mixed_one == plain
    if seed % 3 == 0 and (seed % 2 == 0 or width % 2 == 0):
        assert told[0][1] == []
