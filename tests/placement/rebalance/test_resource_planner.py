"""Moves for the resources of a view: under the rules of its streams, named by stream and shard."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from placement.allocator import View
from placement.assignments import AssignmentTable
from placement.diagnosis import unbalanced
from placement.model import MoveKind, Resource
from placement.rebalance import ResourceRebalance, plan_view_resources
from placement.rules import NodeLoads
from tests.builders.arrangements import Arrangement, arrangement

DISK = Resource("disk_bytes", 0.8, 0.2)
RACKS = {"strategy": "simple", "rules": [{"at_most": 1, "per": "rack"}]}


def made_with(resources: Sequence[Resource], nodes: Mapping[str, tuple[str, int]]) -> Arrangement:
    """Nodes with their place and their capacity of the first resource."""
    made = arrangement(levels=["rack"])
    made.table = AssignmentTable([each.led for each in resources])
    for name, (place, capacity) in nodes.items():
        made.node(name, place, capacities=tuple((each.name, capacity) for each in resources))
    return made


def weigh(made: Arrangement, stream: int, *loads: Sequence[int]) -> None:
    """Set the loads of a stream's shards, a row for each resource."""
    known = np.asarray(loads)
    made.table.change_loads(np.asarray([*made.shards[stream]]), known, np.zeros_like(known))


def view_of(made: Arrangement, *resources: Resource) -> View:
    borne = made.table.loads.on_nodes(made.topology.size)
    loads = NodeLoads(made.topology, resources, borne, np.zeros(len(resources), np.int64))
    return View(made.topology, made.table, made.policies.__getitem__, made.specs.__getitem__, loads)


def planned(made: Arrangement, *resources: Resource, **more: Any) -> ResourceRebalance:
    return plan_view_resources(view_of(made, *resources), **more)


def test_a_full_node_is_relieved_to_a_lawful_one() -> None:
    """The only other rack than that of the shard's second replica is the one of c."""
    made = made_with(
        [DISK], {"a": ("/r1", 100), "b": ("/r2", 200), "c": ("/r3", 200), "d": ("/r2", 900)}
    )
    made.stream("s", [["a", "b"], ["a", "b"]], RACKS)
    weigh(made, 0, [60, 50])
    plan = planned(made, DISK, relief_only=True)
    assert made.words(plan.moves) == ["s/1 0: a>c"]
    assert (plan.plan.bytes, plan.waves) == (50, (0,))
    made.apply(plan.moves)
    assert not planned(made, DISK, relief_only=True).moves


def test_what_is_outside_its_band_is_balanced_once() -> None:
    made = made_with([DISK], {"a": ("/r1", 1000), "b": ("/r2", 1000), "c": ("/r3", 1000)})
    made.stream("s", [["a"]] * 8 + [["b"]] * 2, RACKS)
    weigh(made, 0, [50, 40, 30, 30, 30, 20, 20, 10, 40, 30])
    assert unbalanced_resources(made) == ("disk_bytes",)
    plan = planned(made, DISK)
    assert plan.plan.bytes >= plan.plan.lower_bound > 0
    assert [move.step for move in plan.moves] == [*range(len(plan.moves))]
    made.apply(plan.moves)
    assert unbalanced_resources(made) == ()
    assert not planned(made, DISK).moves


def test_open_moves_dwelling_replicas_and_former_places_are_kept_out() -> None:
    made = made_with([DISK], {"a": ("/r1", 1000), "b": ("/r2", 1000)})
    made.stream("s", [["a"]] * 4, RACKS)
    weigh(made, 0, [30, 30, 30, 30])
    shards, a, b = [*made.shards[0]], made.topology.index["a"], made.topology.index["b"]
    plan = planned(
        made,
        DISK,
        moving={shards[0]},
        dwelling={(shards[1], a)},
        forbidden={(shards[2], b)},
    )
    assert made.words(plan.moves) == ["s/3 0: a>b"]


def test_a_colocated_stream_moves_as_one() -> None:
    made = made_with([DISK], {name: (f"/{name}", 1000) for name in "abc"})
    made.stream("s", [["a"]] * 3, policies="")
    made.stream("t", [["a"]] * 3, policies="")
    weigh(made, 0, [20, 20, 20])
    weigh(made, 1, [20, 20, 20])
    plan = planned(made, Resource("disk_bytes", 0.1))
    assert len(plan.moves) == 3
    assert len({(move.step, move.add) for move in plan.moves}) == 1
    assert plan.plan.bytes == 60


def test_leaders_of_a_led_resource_change_without_a_copy() -> None:
    reads = Resource("reads", None, 0.2, led=True)
    made = made_with([reads], {"a": ("/r1", 1000), "b": ("/r2", 1000)})
    made.node("c", "/r3", capacities=(("reads", 1000),), leader=False)
    made.stream("s", [["a", "c", "b"]] * 4, RACKS)
    weigh(made, 0, [10, 10, 10, 10])
    plan = planned(made, reads)
    assert {move.kind for move in plan.moves} == {MoveKind.LEADER}
    assert {move.add for move in plan.moves} == {made.topology.index["b"]}
    assert plan.plan.bytes == 0
    made.apply(plan.moves)
    assert made.table.loads.on_nodes(3)[0].tolist() == [20, 20, 0]


def unbalanced_resources(made: Arrangement) -> tuple[str, ...]:
    """The resources of which diagnosis finds a node outside its band, by name."""
    view = view_of(made, DISK)
    assert view.loads is not None
    rules = {each.rule for each in unbalanced(view.topology, view.loads)}
    return tuple(sorted(rule.rpartition(" ")[2] for rule in rules))
