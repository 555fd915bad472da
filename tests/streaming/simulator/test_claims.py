"""Goal: every scenario ends in what its file claims, in simulated time; each claim can fail.

The same files are played on a broker and Spark by `make long` (`tests/integration`)."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from streaming.simulator.claims import Baseline, Claims, find_broken_claims
from streaming.simulator.playing import ScenarioRun, ScenarioStalled
from streaming.simulator.scenario import Scenario, read_scenario
from streaming.simulator.world import World
from tests.builders.simulated_fleet import SimulatedFleet

SCENARIOS = sorted((Path(__file__).parents[3] / "deploy" / "examples" / "scenarios").glob("*.yaml"))


def played(scenario: Scenario) -> tuple[list[str], SimulatedFleet, list[str]]:
    fleet, told = SimulatedFleet(scenario), list[str]()
    stands_for: Any = fleet
    playing = ScenarioRun(scenario, stands_for, fleet.world, fleet.create, told.append, stands_for)
    return playing.play(), fleet, told


PLAYED = [pytest.param(path, id=path.stem) for path in SCENARIOS]


@pytest.mark.parametrize("path", PLAYED)
def test_a_scenario_ends_in_what_it_claims(path: Path) -> None:
    scenario = read_scenario(path.read_text("utf-8"))
    assert scenario.ends is not None
    assert scenario.streams
    found, _fleet, told = played(scenario)
    assert found == []
    assert sum(line.startswith("stream ") for line in told) == len(scenario.streams)


@pytest.mark.parametrize(
    ("pause_seconds", "graceful"),
    [(0.5, False), (3, False), (6, False), (2, True), (0.5, True)],
)
def test_a_rolling_restart_moves_nothing_whatever_the_way(
    pause_seconds: float, graceful: bool
) -> None:
    path = next(path for path in SCENARIOS if path.stem == "rolling-restart")
    document = yaml.safe_load(path.read_text("utf-8"))
    document["steps"][0] |= {"pause_seconds": pause_seconds, "graceful": graceful}
    found, fleet, _told = played(read_scenario(yaml.safe_dump(document)))
    assert found == []
    views = fleet.world.nodes.values()
    assert {view["incarnation"] for view in views} == {"2"}
    assert {view["status"] for view in views} == {"up"}
    assert fleet.world.alerts == []


NODES = {"a": "/z1", "b": "/z1", "c": "/z2"}


def world_of(**changed: Any) -> World:
    """A world at rest: one shard on nodes a and c; `changed` replaces parts of it."""
    node = {"liveness": "up"}
    spec = {"shards": 1, "replication_factor": 2}
    parts: dict[str, Any] = {
        "nodes": {name: node | {"location": place} for name, place in NODES.items()},
        "decisions": {"s": {"outcome": "placed", "spec": spec, "reasons": []}},
        "assignments": {"s/0": {"replicas": ["a", "c"], "adding": []}},
        "moves": {},
        "violations": {},
        "alerts": [],
    }
    return World(**(parts | changed))


def move(state: str, shard: int = 0) -> dict[str, Any]:
    return {"move_id": "m", "stream": "s", "shard": shard, "state": state}


def within(target: str) -> list[str]:
    return [name for name, place in NODES.items() if target in (name, place)]


DEAD = {name: {"location": place, "liveness": "dead"} for name, place in NODES.items()}
BROKEN = {"strength": "required", "rule": "even per az", "reason": {"message": "2 in /z1"}}
ALERT = {"kind": "HOLD", "subject": "/z1", "reason": {"message": "all are gone"}}
WAITS = {"outcome": "waiting", "spec": {}, "reasons": [{"message": "2 nodes are missing"}]}


@pytest.mark.parametrize(
    ("claims", "changed", "said"),
    [
        ({}, {"moves": {"m": move("issued")}}, ["move m of s/0 is issued"]),
        ({}, {"decisions": {"s": WAITS}}, ["stream s is waiting: 2 nodes are missing"]),
        ({}, {"assignments": {}}, ["s/0 needs 2 replicas that live and stands on nowhere"]),
        (
            {"dead": ["/z2"]},
            {"nodes": {name: DEAD["c"] if name == "c" else {"liveness": "up"} for name in NODES}},
            ["s/0 needs 2 replicas that live and stands on a, c"],
        ),
        (
            {},
            {"violations": {"s/0": {"violations": [BROKEN]}}},
            ["s/0 breaks 'even per az': 2 in /z1"],
        ),
        (
            {"unchanged": True},
            {"assignments": {"s/0": {"replicas": ["a", "b"]}}},
            ["s/0 stood on a, c and stands on a, b"],
        ),
        (
            {"moves_at_most": 0},
            {"moves": {"m": move("completed")}},
            ["moves that were issued: 1, claimed at most: 0"],
        ),
        ({"moves_at_least": 1}, {}, ["moves that were issued: 0, claimed at least: 1"]),
        (
            {"moves_per_shard_at_most": 1},
            {"moves": {"m1": move("completed"), "m2": move("failed")}},
            ["moves of s/0: 2, claimed at most: 1"],
        ),
        ({"healed": False}, {"nodes": DEAD}, ["a is dead", "b is dead", "c is dead"]),
        ({"dead": ["/z2"]}, {}, ["c is not dead"]),
        ({"locations": {"b": "/z2"}}, {}, ["b stands in /z1, not in /z2"]),
        ({"used": ["/z1"]}, {}, ["b holds no replica"]),
        ({"alerts": ["HOLD"]}, {}, ["no alert HOLD was raised"]),
        (
            {"no_alerts": ["HOLD"]},
            {"alerts": [ALERT]},
            ["alert HOLD of /z1 was raised: all are gone"],
        ),
    ],
)
def test_a_claim_that_does_not_hold_says_what_was_seen(
    claims: dict[str, Any], changed: dict[str, Any], said: list[str]
) -> None:
    before = Baseline.of(world_of())
    assert find_broken_claims(Claims(), world_of(), before, within) == []
    assert find_broken_claims(Claims(**claims), world_of(**changed), before, within) == said


def test_what_came_before_the_first_step_is_no_matter() -> None:
    world = world_of(moves={"m": move("completed")}, alerts=[ALERT])
    claims = Claims(moves_at_most=0, no_alerts=("HOLD",), unchanged=True)
    assert find_broken_claims(claims, world, Baseline.of(world), within) == []


def test_a_reconciler_that_does_not_decide_is_no_end() -> None:
    text = "layout: {}\nstreams: [{stream: s, shards: 1, replication_factor: 1}]"
    fleet: Any = SimulatedFleet(read_scenario(text))
    playing = ScenarioRun(
        read_scenario(text), fleet, fleet.world, lambda _stream: None, lambda _line: None, fleet
    )
    with pytest.raises(ScenarioStalled, match=r"a decision on s within 90 s"):
        playing.play()
