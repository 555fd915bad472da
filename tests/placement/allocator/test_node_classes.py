"""`choose` asked by class gives the node that it gives asked node by node."""

import random

import pytest

from placement.allocator import ReplicaRequest, View, candidates, choose, node_classes
from placement.assignments import AssignmentTable
from placement.model import AdministrativeState, Liveness, Location, NodeAttributes, Reason
from placement.policy import Policy
from placement.rules import AtLeastDomains, AtMost, Even, Rule, Share, SpanDomains, Strength
from placement.topology import LEAF, NodeFilter, Scope, Topology
from tests.builders.drawn import seeds

SEEDS = 150
SCOPES = (LEAF, Scope(depth=1), Scope(depth=2), Scope(tag="disk"))


def fleet(rng: random.Random) -> Topology:
    topology = Topology(("dc", "rack"))
    for number in range(rng.randint(4, 40)):
        path = "".join(f"/{name}{rng.randint(0, 3)}" for name in "dr"[: rng.randint(1, 2)])
        topology.upsert(
            f"n{number}",
            NodeAttributes(
                path,
                tags=(("disk", rng.choice(("ssd", "hdd"))),) if rng.random() < 0.8 else (),
                weight=rng.choice((1.0, 1.0, 2.0)),
                capacity=rng.choice((None, None, 6)),
            ),
            rng.choice((Liveness.UP,) * 5 + (Liveness.DEAD, Liveness.SUSPECT)),
            rng.choice((AdministrativeState.NONE,) * 9 + (AdministrativeState.DRAINING,)),
        )
    return topology


def rules(rng: random.Random) -> tuple[Rule, ...]:
    found: list[Rule] = []
    for _ in range(rng.randint(0, 3)):
        scope, strength = rng.choice(SCOPES), rng.choice([*Strength])
        found.append(
            rng.choice(
                (
                    AtMost(rng.choice((1, 2, Share.SHARE)), scope, strength),
                    Even(scope, strength),
                    AtLeastDomains(2, scope, strength),
                    SpanDomains(scope, None, strength),
                )
            )
        )
    return tuple(found)


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_by_class_as_node_by_node(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_classes, "CLASSED_FROM", 0)
    rng = random.Random(seed)
    topology, asked = fleet(rng), rules(rng)
    admits = rng.choice((NodeFilter(), NodeFilter(within=(Location(("d0",)), Location(("d1",))))))
    policy = Policy("spread", {}, nodes=admits)
    table = AssignmentTable()
    shards = table.add_shards(0, 60, 3)
    nodes = range(topology.size)
    for shard in shards:
        for slot, node in enumerate(rng.sample(nodes, min(3, topology.size))):
            table.set(shard, slot, node)
    view = View(topology, table)
    expected: list[int | None] = []
    found: list[int | None] = []
    for shard in shards:
        held = table.nodes(shard)
        old = held.pop(rng.randrange(len(held)))
        if rng.random() < 0.2:
            view.set_busy(rng.choice(nodes), rng.random() < 0.7)
        replaces = old if rng.random() < 0.8 else -1
        need = ReplicaRequest(
            "s", shard, 0, 3, held, (), admits, replaces, frozenset((*held, old)),
            slots=[1, 2], shards=60, leads=replaces < 0,
        )  # fmt: skip
        node = choose(asked, candidates(policy, view), need, view)
        expected.append(None if isinstance(node, Reason) else node)
        found.append(node_classes.choose_by_class(asked, policy, need, view))
        if found[-1] is not None:
            view.add(found[-1], leader=need.leads)
            view.remove(old)
    assert found == expected
    assert len(found) == 60


def test_a_large_fleet_without_a_node_that_may_receive_has_none() -> None:
    """Such a fleet has no weight to share its load by."""
    topology = Topology(("dc",))
    for number in range(node_classes.CLASSED_FROM):
        topology.upsert(
            f"n{number}", NodeAttributes("/d"), Liveness.SUSPECT, AdministrativeState.NONE
        )
    table, policy = AssignmentTable(), Policy("spread", {})
    for shard in table.add_shards(0, 100, 1):
        table.set(shard, 0, 0)
    need = ReplicaRequest("s", 0, 0, 1, [], replaces=0, excluded=frozenset({0}))
    assert node_classes.choose_by_class((), policy, need, View(topology, table)) is None
