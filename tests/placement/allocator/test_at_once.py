"""`multi_level`, `location_majority` and `simple` place whole streams at once.

Goal: that this is the same placement, only faster. Method: random fleets with other streams on
them, where the answer has to equal, node for node, that of asking for one replica after the other,
and that of the compiled form.
"""

from typing import Any
from unittest.mock import create_autospec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.allocator import Placement, StreamDraft, View, kernels
from placement.assignments import EMPTY, AssignmentTable
from placement.model import Liveness, NodeAttributes, StreamSpec
from placement.policy import Policy, compile_policy
from placement.strategies import STRATEGIES
from placement.topology import Topology
from tests.builders.drawn import examples

NODES = st.tuples(
    st.sampled_from(["", "/a", "/b", "/a/1", "/a/2", "/b/1", "/a/1/x", "/a/1/y", "/c/1/x"]),
    st.sampled_from([1.0, 1.0, 1.0, 2.0, 0.5]),
    st.sampled_from([Liveness.UP] * 5 + [Liveness.DEAD]),
    st.sampled_from([0, 0, 0, 1, 4]),
)
FLEETS = st.lists(NODES, min_size=2, max_size=16)
POLICIES = st.sampled_from(
    [
        {"strategy": "multi_level"},
        {"strategy": "multi_level", "start": 7},
        {"strategy": "multi_level", "within": ["/a"]},
        {"strategy": "location_majority"},
        {"strategy": "location_majority", "avoid": ["/a/1"]},
        {"strategy": "simple"},
        {"strategy": "simple", "start": 5},
        {"strategy": "simple", "on_infeasible": "partial"},
        {"strategy": "multi_level", "on_infeasible": "partial"},
        {"strategy": "location_majority", "on_infeasible": "partial"},
    ]
)


def fleet(nodes: list[tuple[str, float, Liveness, int]], order: Any = None) -> Topology:
    topology = Topology()
    for number in order or range(len(nodes)):
        location, weight, liveness, _ = nodes[number]
        topology.upsert(f"n{number}", NodeAttributes(location, weight=weight), liveness)
    return topology


def view_of(topology: Topology, nodes: list[tuple[str, float, Liveness, int]]) -> View:
    """With the load of other streams."""
    view = View(topology, AssignmentTable())
    for number, (*_, load) in enumerate(nodes):
        for _ in range(load):
            view.add(topology.index[f"n{number}"], leader=True)
    return view


def compiled(policy: dict[str, Any], topology: Topology) -> Policy:
    made = compile_policy(None, policy, {}, topology, STRATEGIES)
    assert isinstance(made, Policy)
    return made


def names(topology: Topology, shards: Any) -> list[list[str]]:
    return [["" if node == EMPTY else topology.ids[node] for node in nodes] for nodes in shards]


def one_by_one(spec: StreamSpec, policy: Policy, view: View) -> list[list[int]]:
    shards = [[EMPTY] * spec.replication_factor for _ in range(spec.shards)]
    STRATEGIES[policy.strategy].resume(spec, policy, shards, view)  # type: ignore[attr-defined]
    return shards


@given(FLEETS, POLICIES, st.integers(1, 12), st.integers(1, 5), st.permutations(range(16)))
@examples(200)
def test_at_once_is_as_one_by_one(
    nodes: Any, asked: dict[str, Any], shards: int, factor: int, order: list[int]
) -> None:
    """Also for another order of nodes; and the view counts the same."""
    topology = fleet(nodes)
    spec, policy = StreamSpec("s", shards, factor, {}), compiled(asked, topology)
    view, other = view_of(topology, nodes), view_of(topology, nodes)
    placed = STRATEGIES[policy.strategy].place(spec, policy, view)
    if not isinstance(placed, Placement):
        return
    assert names(topology, placed.shards) == names(topology, one_by_one(spec, policy, other))
    assert (view.load == other.load).all()
    assert (view.leaders == other.leaders).all()
    again = fleet(nodes, [number for number in order if number < len(nodes)])
    moved = STRATEGIES[policy.strategy].place(spec, compiled(asked, again), view_of(again, nodes))
    assert isinstance(moved, Placement)
    assert names(again, moved.shards) == names(topology, placed.shards)


@given(FLEETS, POLICIES, st.integers(1, 12), st.integers(1, 4))
@examples(40)
def test_compiled_and_plain_form_agree(
    nodes: Any, asked: dict[str, Any], shards: int, factor: int
) -> None:
    topology = fleet(nodes)
    spec, policy = StreamSpec("s", shards, factor, {}), compiled(asked, topology)
    plain = STRATEGIES[policy.strategy].place(spec, policy, view_of(topology, nodes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "COMPILED_FROM", 0)
        fast = STRATEGIES[policy.strategy].place(spec, policy, view_of(topology, nodes))
    assert fast == plain


@pytest.mark.parametrize("strategy", ["multi_level", "location_majority", "simple"])
@pytest.mark.parametrize(("capacity", "slow"), [(None, False), (9, True), (18, True)])
def test_full_nodes(
    strategy: str, capacity: int | None, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rings count what a node may still take; the others go one by one where it can run out."""
    fills = create_autospec(StreamDraft.fill, side_effect=StreamDraft.fill)
    monkeypatch.setattr(StreamDraft, "fill", fills)
    topology = Topology()
    for number in range(12):
        small = capacity if number % 2 else None
        attributes = NodeAttributes(f"/z{number % 3}/r{number % 4}", capacity=small)
        topology.upsert(f"n{number}", attributes, Liveness.UP)
    view, spec = View(topology, AssignmentTable()), StreamSpec("s", 30, 3, {})
    placed = STRATEGIES[strategy].place(spec, compiled({"strategy": strategy}, topology), view)
    assert isinstance(placed, Placement)
    assert all(len(set(nodes)) == 3 for nodes in placed.shards)
    assert view.load.sum() == 90
    assert capacity is None or max(view.load[1::2]) <= capacity
    assert fills.called == (slow and strategy != "multi_level")


def test_a_node_that_may_not_lead_never_does() -> None:
    for strategy in ("multi_level", "location_majority", "simple"):
        topology = Topology()
        for number in range(9):
            attributes = NodeAttributes(f"/z{number % 3}", leader=number < 3)
            topology.upsert(f"n{number}", attributes, Liveness.UP)
        view, spec = View(topology, AssignmentTable()), StreamSpec("s", 30, 3, {})
        placed = STRATEGIES[strategy].place(spec, compiled({"strategy": strategy}, topology), view)
        assert isinstance(placed, Placement)
        assert not view.leaders[3:].any()
