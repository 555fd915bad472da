"""The streams of one file are placed so that rebalancing finds nothing to do.

Goal: over random fleets, with weights, uneven tiers and pinned streams, `plan` after `place` is
empty; streams whose replicas are given stay; `explain` tells of the replicas that `place` answers.
"""

import json
import random
from typing import Any

import pytest
from typer.testing import CliRunner

from streaming.cli.main import app

KINDS = ((False, False, False), (True, False, False), (False, True, True), (True, True, True))


def cluster(seed: int, uneven: bool, weights: bool, pins: bool) -> dict[str, Any]:
    rng = random.Random(f"{seed} {uneven} {weights} {pins}")
    nodes = []
    for region in range(rng.randint(1, 4)):
        for zone in range(rng.randint(1, 3) if uneven else 3):
            for number in range(rng.choice((1, 2, 3, 5)) if uneven else 3):
                place = {"id": f"n{region}{zone}{number}", "location": f"/r{region}/z{zone}"}
                nodes.append(place | ({"weight": rng.choice((0.5, 1, 2))} if weights else {}))
    streams = []
    for number in range(rng.randint(2, 6)):
        factor = min(rng.randint(1, 5), len(nodes))
        policy = {"within": ["/r0"]} if pins and rng.random() < 0.4 else {}
        shards = rng.choice((1, 3, 8, 16))
        streams.append(
            {
                "stream": f"s{number}",
                "shards": shards,
                "replication_factor": factor,
                "policy": {"strategy": "spread", **policy},
            }
        )
    return {"levels": ["region", "zone"], "nodes": nodes, "streams": streams}


def answer(*command: str, file: dict[str, Any]) -> Any:
    words = [command[0], "-", *command[1:], "--output", "json"]
    result = CliRunner().invoke(app, words, input=json.dumps(file))
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


def place(file: dict[str, Any]) -> dict[str, Any]:
    """The file with the replicas that `place` answers."""
    answers = answer("place", file=file)["decisions"]
    streams = [
        {**stream, "replicas": told["replicas"]}
        for stream, told in zip(file["streams"], answers, strict=True)
    ]
    return {**file, "streams": streams}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_after_placing_is_empty(seed: int, kind: tuple[bool, bool, bool]) -> None:
    assert answer("plan", file=place(cluster(seed, *kind)))["moves"] == []


@pytest.mark.parametrize("seed", range(3))
def test_given_streams_stay_when_others_are_placed(seed: int) -> None:
    file = cluster(seed, uneven=True, weights=True, pins=False)
    given = place(file)["streams"][0]
    file["streams"][0] = given
    again = place(file)
    assert again["streams"][0] == given
    assert all(stream["replicas"] for stream in again["streams"])


@pytest.mark.parametrize("seed", range(2))
def test_explain_tells_of_the_replicas_that_place_answers(seed: int) -> None:
    file = cluster(seed, uneven=True, weights=True, pins=True)
    streams = place(file)["streams"]
    assert [stream["stream"] for stream in streams] == [each["stream"] for each in file["streams"]]
    for stream in streams:
        told = answer("explain", stream["stream"], file=file)["explain"][0]
        nodes: list[list[str]] = [[] for _ in stream["replicas"]]
        for replica in told["replicas"]:
            nodes[replica["shard"]].append(replica["node"])
        assert nodes == stream["replicas"]
