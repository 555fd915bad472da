"""Simulated loads: skewed, the same in every play, growing, and reported by who holds the shard."""

import json
from typing import TYPE_CHECKING, Any

import pytest

from streaming.simulator.loads import SHARDS_PER_REPORT, LoadReporter, LoadsBehaviour
from streaming.simulator.scenario import read_scenario
from streaming.simulator.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping

BEHAVIOUR = LoadsBehaviour(capacity=10**12, median=10**9, noise=0.1, growth_per_second=0.5)


def assignment(shard: int, *replicas: str, stream: str = "s") -> dict[str, Any]:
    return {"stream": stream, "shard": shard, "replicas": replicas}


def test_sizes_are_skewed_and_the_same_in_every_play() -> None:
    sizes = sorted(BEHAVIOUR.size("s", shard, 0) for shard in range(1_000))
    assert 0.8e9 < sizes[500] < 1.2e9
    assert sizes[-1] > 30 * sizes[500]
    again = LoadsBehaviour(capacity=1, median=10**9)
    assert again.size("s", 7, 0) == BEHAVIOUR.size("s", 7, 0)
    other = LoadsBehaviour(capacity=1, median=10**9, seed=1)
    assert other.size("s", 7, 0) != BEHAVIOUR.size("s", 7, 0)


def test_what_is_said_to_grow_does() -> None:
    behaviour = BEHAVIOUR.model_copy(update={"growing": "s"})
    assert behaviour.size("s", 0, 4) == 3 * behaviour.size("s", 0, 0)
    assert behaviour.size("t", 0, 4) == behaviour.size("t", 0, 0)


def test_a_node_reports_what_it_holds() -> None:
    known = {"s/0": assignment(0, "n1", "n2"), "s/1": assignment(1, "n2")}
    found = BEHAVIOUR.reports(known, 0, 3)
    assert {n: [each["shard"] for each in of] for n, of in found.items()} == {
        "n1": [0],
        "n2": [0, 1],
    }
    sizes = [of["disk_bytes"] for of in (found["n1"][0], found["n2"][0])]
    assert sizes[0] != sizes[1], "each measures for itself"
    assert all(abs(size / BEHAVIOUR.size("s", 0, 0) - 1) <= 0.1 for size in sizes)
    assert BEHAVIOUR.reports(known, 0, 3) == found
    assert BEHAVIOUR.reports(known, 0, 4) != found


class Sent:
    """A producer that keeps what it is given."""

    def __init__(self, *_: object, **__: object) -> None:
        self.bodies: list[dict[str, Any]] = []

    def produce(self, topic: str, value: bytes, key: str, headers: object) -> None:
        del headers
        body = json.loads(value)
        assert (topic, key) == ("placement.loads.v1", body["node_id"])
        self.bodies.append(body)

    def poll(self, seconds: float) -> None:
        """Nothing is delivered."""

    def flush(self, seconds: float) -> None:
        """Nothing is left."""


class Alive:
    """A fleet of which one node is dead."""

    alive = ("n1",)


def test_the_living_report_in_as_many_records_as_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = Sent()
    monkeypatch.setattr("streaming.simulator.loads.make_producer", lambda *_, **__: producer)
    assignments: Mapping[str, dict[str, Any]] = {
        f"s/{shard}": assignment(shard, "n1", "n2") for shard in range(SHARDS_PER_REPORT + 1)
    }
    behaviour = BEHAVIOUR.model_copy(update={"every_seconds": 0.001})
    world = World(assignments=dict(assignments))
    arguments: tuple[Any, ...] = ("b", "placement.", behaviour, Alive(), world)
    with LoadReporter(*arguments) as reporter:
        while len(producer.bodies) < 2:
            reporter._stopping.wait(0.001)
    first, second = producer.bodies[:2]
    assert [len(each["shards"]) for each in (first, second)] == [SHARDS_PER_REPORT, 1]
    assert (first["sequence"], second["sequence"]) == (1, 2)
    assert first["capacities"] == {"disk_bytes": 10**12}
    assert {each["node_id"] for each in producer.bodies} == {"n1"}


def test_a_scenario_gives_its_nodes_capacities_and_names_resources() -> None:
    scenario = read_scenario(
        """
settings: {resources: {disk_bytes: {capacity: 0.85}}}
layout: {zones: 1, racks: 1, nodes: 1}
loads: {capacity: 100, median: 5}
"""
    )
    assert scenario.flags == {"resources": {"disk_bytes": {"capacity": 0.85}}}
    assert scenario.fleet()[0].capacities == {"disk_bytes": 100}
