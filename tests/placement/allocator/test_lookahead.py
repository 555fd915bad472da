"""Look-ahead finds the same arrangements in the same order, whoever registered first.

Goal: a start that rebuilds the fleet in another order places as the run before it would have.
"""

import random
from itertools import islice

import pytest

from placement.allocator import ReplicaRequest, View, arrangements, candidates
from placement.assignments import AssignmentTable
from placement.model import AdministrativeState, Liveness, NodeAttributes
from placement.policy import Policy
from placement.rules import AtLeastDomains, AtMost, Rule, Strength
from placement.topology import NodeFilter, Scope, Topology
from tests.builders.drawn import seeds

SEEDS = 10
RULES = (
    AtMost(2, Scope(depth=1), Strength.REQUIRED),
    AtLeastDomains(2, Scope(depth=2), Strength.REQUIRED),
)
ASKED = ReplicaRequest(
    stream="s",
    shard=0,
    slot=0,
    replication_factor=3,
    kept=(),
    stream_nodes=(),
    nodes=NodeFilter(),
)


def found(nodes: list[tuple[str, NodeAttributes, int]], rules: tuple[Rule, ...]) -> list[list[str]]:
    topology = Topology(("dc", "rack"))
    for name, attributes, _ in nodes:
        topology.upsert(name, attributes, Liveness.UP, AdministrativeState.NONE)
    view = View(topology, AssignmentTable())
    for name, _, load in nodes:
        for _ in range(load):
            view.add(topology.index[name])
    mask = candidates(Policy("spread", {}), view)
    listed = islice(arrangements(rules, mask, ASKED, view), 30)
    return [[topology.ids[node] for node in nodes] for nodes in listed]


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_arrangements_do_not_depend_on_who_registered_first(seed: int) -> None:
    rng = random.Random(seed)
    nodes = [
        (
            f"n{number}",
            NodeAttributes(
                f"/d{rng.randint(0, 2)}/r{number % 3}",
                tags=(("disk", rng.choice(("ssd", "hdd"))),),
                leader=rng.random() < 0.8,
            ),
            rng.randint(0, 3),
        )
        for number in range(9)
    ]
    first = found(nodes, RULES)
    assert first
    rng.shuffle(nodes)
    assert found(nodes, RULES) == first
