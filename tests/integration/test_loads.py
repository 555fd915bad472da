"""Reports of loads through real Spark: filtered, published, and the same after a restart."""

import itertools
import random
from typing import Any

import pytest

from streaming.brokers import Record
from tests.integration.conftest import System
from tests.systems.application import PATIENT

RESOURCES = {
    "PLACER_RESOURCES": '{"disk_bytes": {"capacity": 0.9}, "writes": {"led": true}}',
    "PLACER_LOADS__HALF_LIFE_SECONDS": "2",
}
CAPACITY = 10**12
NODES = [f"n{number}" for number in range(4)]


class Reporters:
    """Nodes that report the loads of what they hold."""

    def __init__(self, system: System) -> None:
        self._system, self._noise = system, random.Random(5)
        self._sequence = itertools.count(1)

    def report(self, loads: dict[int, int], **more: Any) -> tuple[int, int]:
        """Report the bytes of shards for all nodes that hold them, each a fifth off at most."""
        place = (0, 0)
        assignments = self._system.outputs.latest("assignments.v1")
        for node in NODES:
            shards = [
                {
                    "stream": "s",
                    "shard": shard,
                    "disk_bytes": round(size * self._noise.uniform(0.8, 1.2)),
                    "writes": 1_000 if assignments[f"s/{shard}"]["replicas"][0] == node else 0,
                }
                for shard, size in loads.items()
                if node in assignments[f"s/{shard}"]["replicas"]
            ]
            place = self.send(node, shards, **more)
        return place

    def send(self, node: str, shards: list[dict[str, Any]], **more: Any) -> tuple[int, int]:
        body = {
            "node_id": node,
            "incarnation": "agent",
            "sequence": next(self._sequence),
            "capacities": {"disk_bytes": CAPACITY},
            "shards": shards,
        }
        return self._system.inputs.send("loads.v1", "NodeLoadReported", node, body | more)


def of_journal(records: list[Record]) -> int:
    """How many shards the events of the journal told of."""
    return sum(
        len(body["loads"])
        for record in records
        if record.topic == "journal.v1" and record.value is not None
        for kind, body in record.value["events"]
        if kind == "LoadsReported"
    )


@pytest.mark.long
def test_loads_flow_in_and_are_the_same_after_a_restart(own_system: System) -> None:
    system, outputs = own_system, own_system.outputs
    first = system.start(**PATIENT, **RESOURCES)
    for number, node in enumerate(NODES):
        body: dict[str, Any] = {"node_id": node, "incarnation": "a", "sequence": 1}
        body |= {"location": f"/z{number % 2}", "capacities": {"disk_bytes": CAPACITY}}
        system.inputs.send("nodes.v1", "NodeRegistered", node, body)
    system.inputs.stream("s", shards=4, replication_factor=2)
    outputs.decision("s")
    sizes = {shard: 10**9 * (shard + 1) for shard in range(4)}
    reporters = Reporters(system)
    outputs.wait(lambda: len(outputs.latest("assignments.v1")) == 4, "all shards are placed")
    outputs.wait_passed("loads.v1", reporters.report(sizes))
    outputs.wait(lambda: len(outputs.latest("load.v1")) == 4, "all loads are known")
    for shard, size in sizes.items():
        known = outputs.latest("load.v1")[f"s/{shard}"]
        assert 0.75 * size <= known["amounts"]["disk_bytes"] <= 1.25 * size
        leader = outputs.latest("assignments.v1")[f"s/{shard}"]["replicas"][0]
        assert known["node_id"] == leader
        assert known["amounts"]["writes"] == 1_000

    bad = reporters.send("n0", [{"stream": "s", "shard": 0, "disk_bytes": -1}])
    outputs.wait_passed("loads.v1", bad)
    outputs.wait(lambda: len(outputs.of("dlq.v1")) == 1, "a dead letter")

    first.kill()
    before = dict(outputs.latest("load.v1"))
    told = of_journal(outputs.records)
    digest = outputs.marker["digest"]
    second = system.start(**PATIENT, **RESOURCES)
    place = (0, 0)
    for _ in range(5):
        place = reporters.report(sizes)
    outputs.wait_passed("loads.v1", place)
    outputs.check()
    # Words of followers were not published, and a first word after a start may be a fifth off.
    assert of_journal(outputs.records) - told <= 8
    moved = {key for key, load in outputs.latest("load.v1").items() if load != before[key]}
    assert len(moved) <= 4
    assert second.running, digest

    grown = {**sizes, 3: 20 * sizes[3]}
    for _ in range(4):
        reporters.report(grown)
        outputs.wait_passed("loads.v1", reporters.report(grown))
    outputs.wait(
        lambda: outputs.latest("load.v1")["s/3"]["amounts"]["disk_bytes"] > 10 * sizes[3],
        "the shard has grown",
    )
    report = system.replay()
    assert (report.differences, report.digest) == ((), outputs.marker["digest"])
