"""What is advised to be added is enough, and not much more than enough.

Method: seeded fleets with disks of different sizes, and a stream for which there is no room.
"""

import random
from dataclasses import replace

import pytest

from placement.explain import Advice, advise
from placement.model import Configuration, Liveness, NodeAttributes, Outcome, Resource, StreamSpec
from placement.policy import Policy
from placement.state import ClusterState
from placement.streams import place

RESOURCES = (Resource("disk_bytes", 0.8), Resource("writes", None, 0.1))
WHOLE = (Outcome.PLACED, Outcome.DEGRADED)


def fleet(seed: int) -> ClusterState:
    rng = random.Random(seed)
    state = ClusterState(Configuration(levels=("rack",), resources=RESOURCES))
    for number in range(rng.randint(2, 6)):
        has = (("disk_bytes", rng.randint(50, 150)),)
        attributes = NodeAttributes(f"/r{number % 3}", capacities=has)
        state.topology.upsert(f"n{number}", attributes, Liveness.UP)
    return state


def enlarged(state: ClusterState, advice: Advice, share: float) -> ClusterState:
    """The fleet with a share of what is advised."""
    made = ClusterState(state.configuration)
    known = state.topology
    named = advice.message.rpartition("on node ")[2]
    inside = [
        node
        for node in range(known.size)
        if advice.location in (None, str(known.locations[node]))
        and (" on node " not in advice.message or known.ids[node] == named)
    ]
    for node in range(known.size):
        attributes = known.attributes[node]
        (name, has), more = (attributes.capacities or ())[0], 0
        if node in inside:
            more = int((advice.amount or 0) * share) // len(inside)
        larger = replace(attributes, capacities=((name, has + more),))
        made.topology.upsert(known.ids[node], larger, Liveness.UP)
    return made


@pytest.mark.parametrize("seed", range(20))
def test_what_is_advised_is_enough_and_little_more(seed: int) -> None:
    state = fleet(seed)
    size = random.Random(seed).randint(160, 5_000)
    spec = StreamSpec("s", 1, 1, {"strategy": "spread"}, expected_load=(("disk_bytes", size),))
    policy = state.streams.compile(None, spec.policy)
    assert isinstance(policy, Policy)
    assert place(state, spec, policy).outcome is Outcome.WAITING
    found = [each for each in advise(state, spec, policy) if each.resource]
    assert found
    for each in found:
        assert place(enlarged(state, each, 1.0), spec, policy).outcome in WHOLE, each
        assert place(enlarged(state, each, 0.95), spec, policy).outcome not in WHOLE, each


def test_a_new_node_has_room_for_what_it_is_to_hold() -> None:
    state = fleet(1)
    spec = StreamSpec("s", 3, 1, {"strategy": "spread"}, expected_load=(("disk_bytes", 200),))
    policy = state.streams.compile(None, spec.policy)
    assert isinstance(policy, Policy)
    messages = [each.message for each in advise(state, spec, policy) if each.nodes]
    assert messages
    assert all("of disk_bytes" in each for each in messages)


def test_without_resources_nodes_are_added_as_before() -> None:
    state = ClusterState(Configuration())
    state.topology.upsert("n1", NodeAttributes("/a", capacity=0), Liveness.UP)
    spec = StreamSpec("s", 1, 1, {"strategy": "spread"})
    policy = state.streams.compile(None, spec.policy)
    assert isinstance(policy, Policy)
    first = advise(state, spec, policy)[0]
    assert (first.message, first.resource) == ("one more node in /a", None)
