"""`affinity` where its stories in `testdata/` do not reach: every `on_infeasible`, positions of
exclusive shards, and many streams one after the other."""

from collections import Counter

import pytest

from placement.model import (
    Configuration,
    Decision,
    Liveness,
    NodeAttributes,
    NodeChanged,
    Outcome,
    StreamCreated,
)
from placement.reconciler import Reconciler

SITES = {f"n{i}": f"/s{i % 3}" for i in range(9)}


def reconciler(sites: dict[str, str]) -> Reconciler:
    made = Reconciler(Configuration())
    made.apply(
        [
            NodeChanged(0, name, "i", 1, Liveness.UP, attributes=NodeAttributes(location=place))
            for name, place in sites.items()
        ],
        0,
    )
    return made


def create(
    made: Reconciler, name: str, text: dict[str, object] | str, shards: int, factor: int
) -> tuple[Decision, list[list[str]]]:
    policy = None if isinstance(text, str) else {"strategy": "affinity"} | text
    policies = text if isinstance(text, str) else None
    spec = StreamCreated(0, name, 1, shards, factor, policies, policy)
    ready = made.apply([spec], 0)
    found = (ready.assignments.get((name, shard)) for shard in range(shards))
    return ready.decisions[name], [list(each.replicas) for each in found if each]


@pytest.mark.parametrize(
    ("asked", "shards", "factor"),
    [
        ({"node": "exclusive"}, 1, 4),
        ({"node": "exclusive", "shard": "exclusive"}, 4, 3),
        ({"node": "colocated"}, 1, 4),
        ({"shard": "exclusive"}, 5, 2),
        ({}, 1, 10),
    ],
)
@pytest.mark.parametrize("mode", [None, "reject", "wait", "partial", "degrade"])
def test_every_on_infeasible(
    asked: dict[str, object], shards: int, factor: int, mode: str | None
) -> None:
    given = asked | ({"on_infeasible": mode} if mode else {})
    decision, lists = create(reconciler(SITES), "s", given, shards, factor)
    expected = {
        None: Outcome.REJECTED,
        "reject": Outcome.REJECTED,
        "wait": Outcome.WAITING,
        "partial": Outcome.PARTIAL,
        # Nodes that run out cannot be made up for by breaking an affinity.
        "degrade": Outcome.REJECTED if factor > 9 else Outcome.DEGRADED,
    }
    assert decision.outcome is expected[mode], decision.reasons
    assert decision.reasons or decision.warnings
    if decision.outcome is Outcome.DEGRADED:
        assert all(len(set(replicas)) == factor for replicas in lists)
    if decision.outcome is Outcome.PARTIAL:
        everything = [node for replicas in lists for node in replicas]
        sites = [[SITES[node] for node in replicas] for replicas in lists]
        if asked.get("node") == "exclusive":
            assert all(len(set(each)) == len(each) for each in sites)
        if asked.get("node") == "colocated":
            assert len({site for each in sites for site in each}) == 1
        if asked.get("shard") == "exclusive":
            assert len(set(everything)) == len(everything)


def test_exclusive_shards_stand_at_their_zigzag_positions() -> None:
    zigzag = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"]
    for factor, shards in [(1, 9), (2, 4), (3, 3), (4, 2)]:
        _, lists = create(reconciler(SITES), "s", "shard=exclusive", shards, factor)
        assert lists == [zigzag[n * factor : (n + 1) * factor] for n in range(shards)]


def test_many_streams_do_not_start_on_one_node() -> None:
    made = reconciler(SITES)
    leads: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for number in range(300):
        _, lists = create(made, f"s{number}", "", 1, 3)
        leads[lists[0][0]] += 1
        held.update(lists[0])
        assert len({SITES[node] for node in lists[0]}) == 3
    assert set(held.values()) == {100}
    assert max(leads.values()) - min(leads[node] for node in SITES) <= 2


def leads(lists: list[list[str]]) -> Counter[str]:
    return Counter(nodes[0] for nodes in lists)


def test_leaders_are_even_where_the_source_leaves_it_open() -> None:
    two = {"node-0x1": "/site1", "node-0x2": "/site2"}
    _, lists = create(reconciler(two), "orders", "node=exclusive;shard=balanced", 4, 2)
    assert leads(lists) == {"node-0x1": 2, "node-0x2": 2}
    # Replica r of all shards on one node is what shard=colocated, the default, means.
    _, lists = create(reconciler(two), "orders", "node=exclusive", 4, 2)
    assert leads(lists) == {"node-0x1": 4}
    _, lists = create(reconciler(two), "s", "shard=balanced;preferred_nodes=node-0x2", 4, 2)
    assert leads(lists) == {"node-0x2": 4}


@pytest.mark.parametrize("nodes", range(2, 8))
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_balanced_leaders_keep_positions_where_these_are_even(nodes: int, factor: int) -> None:
    factor = min(factor, nodes)
    sites = {f"n{i}": f"/s{i % 3}" for i in range(nodes)}
    for shards in (1, nodes, 2 * nodes):
        _, lists = create(reconciler(sites), "s", "shard=balanced", shards, factor)
        leaders = leads(lists)
        held = {node for each in lists for node in each}
        assert max(leaders.values()) - min(leaders[node] for node in held) <= 1
        if shards == 1:
            assert lists == [[f"n{i}" for i in range(factor)]]
