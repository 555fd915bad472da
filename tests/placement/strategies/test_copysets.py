"""Copysets: few sets, the scatter width that was asked for, and as little change as possible."""

import random
from collections import Counter, defaultdict

import pytest

from placement.assignments import distinct_copysets, risk, scatter_width
from placement.model import (
    Configuration,
    Liveness,
    NodeAttributes,
    NodeChanged,
    Outcome,
    StreamCreated,
)
from placement.reconciler import Reconciler
from placement.strategies.copyset_pool import Copysets, Terms
from placement.topology import NodeFilter, Topology
from tests.builders.drawn import seeds


def node(node_id, location="", liveness=Liveness.UP, **more):
    attributes = NodeAttributes(location, **more)
    return NodeChanged(0, node_id, "i", 0, liveness, attributes)


def stream(name, shards, factor=3, replicas=None, **policy):
    asked = {"strategy": "copysets"} | policy
    return StreamCreated(0, name, 0, shards, factor, policy=asked, replicas=replicas)


def fleet(nodes, racks=0):
    return [node(f"n{n}", f"/r{n % racks}" if racks else "") for n in range(nodes)]


def placed(*events, **configuration):
    """A reconciler after these events, and what it published."""
    core = Reconciler(Configuration(**configuration))
    return core, core.apply(list(events), 0)


def sets_of(ready, name=None):
    return Counter(
        frozenset(assignment.replicas)
        for (owner, _), assignment in ready.assignments.items()
        if name in (None, owner)
    )


def outcome(ready, name="s"):
    decision = ready.decisions[name]
    return decision.outcome, decision.reasons[0].code if decision.reasons else None


def test_the_published_figures():
    """Cidon et al. 2013: N = 5,000, R = 3, 1 % of the nodes fail."""
    _, ready = placed(*fleet(5000), stream("s", 2500, scatter_width=2))
    topology = Topology()
    numbers = {f"n{n}": n for n in range(5000)}
    used = [[numbers[i] for i in each] for each in sets_of(ready)]
    assert len(used) == 1667
    assert round(100 * risk(used, 5000, 50).loss_probability, 2) == 0.16
    for event in fleet(5000, 50):
        topology.upsert(event.node_id, event.attributes, Liveness.UP)
    wide = Copysets(Terms(topology, 3, 10, (), NodeFilter())).sets
    assert round(100 * risk(wide, 5000, 50).loss_probability, 2) == 0.78
    assert scatter_width(distinct_copysets(wide)).min == 10


@pytest.mark.parametrize(("racks", "width", "sets"), [(0, 2, 3), (3, 2, 3), (0, 4, 6), (3, 4, 6)])
def test_permutations_waste_nothing(racks, width, sets):
    """Nine nodes: S / (R - 1) permutations of three sets each, with and without racks."""
    _, ready = placed(*fleet(9, racks), stream("s", 60, scatter_width=width))
    found = sets_of(ready)
    assert len(found) == sets
    assert set(found.values()) == {60 // sets}
    near = defaultdict(set)
    for members in found:
        assert not racks or len({int(i[1:]) % racks for i in members}) == 3
        for each in members:
            near[each] |= members - {each}
    assert {len(others) for others in near.values()} == {width}
    assert outcome(ready) == (Outcome.PLACED, "COPYSETS_USED")


def test_load_and_leaders_are_even():
    _, ready = placed(*fleet(12, 4), stream("s", 240, scatter_width=4))
    load = Counter(n for a in ready.assignments.values() for n in a.replicas)
    leaders = Counter(a.replicas[0] for a in ready.assignments.values())
    assert set(load.values()) == {60}
    assert max(leaders.values()) - min(leaders.values()) <= 2


def test_later_streams_use_the_sets_there_are():
    _, ready = placed(
        *fleet(30, 5),
        stream("a", 300, scatter_width=4),
        stream("b", 7, scatter_width=4),
        stream("c", 300, scatter_width=6),
    )
    assert set(sets_of(ready, "b")) <= set(sets_of(ready, "a"))
    assert len(sets_of(ready, "a")) == 20
    assert not set(sets_of(ready, "c")) <= set(sets_of(ready, "a"))


def test_a_node_that_joins_gets_new_sets_and_changes_no_other():
    core, before = placed(*fleet(12), stream("a", 80, scatter_width=4))
    after = core.apply([node("n12"), stream("b", 80, scatter_width=4)], 1)
    new = set(sets_of(after, "b")) - set(sets_of(before))
    assert all("n12" in members for members in new)
    # S / (R - 1) sets for the node that joined.
    assert len(new) == 2
    assert sets_of(after, "a") == Counter()


@pytest.mark.parametrize("racks", [0, 4])
def test_a_node_that_leaves_is_replaced_once_in_each_of_its_sets(racks):
    core, before = placed(*fleet(16, racks), stream("a", 100, scatter_width=4), acked=False)
    touched = {m for m in sets_of(before) if "n5" in m}
    ready = before
    moves = {}
    for step in range(1, 40):
        event = [node("n5", "/r1" if racks else "", Liveness.DEAD)] if step == 1 else []
        ready = core.apply(event, step)
        if not ready.moves:
            break
        for move, _ in ready.moves.values():
            rest = frozenset(before.assignments[move.stream, move.shard].replicas) - {move.remove}
            moves.setdefault(rest, set()).add(move.add)
            assert move.remove == "n5"
    assert {members - {"n5"} for members in touched} == set(moves)
    assert all(len(targets) == 1 for targets in moves.values())
    for rest, [target] in moves.items():
        assert not racks or len({int(i[1:]) % racks for i in (*rest, target)}) == 3


def test_missing_replicas_complete_the_sets_in_use():
    lists = (("n0", "n1", "n2"), ("n3", "n4", "n5"), ("n1",), ("n3", "n5"), ())
    _, ready = placed(*fleet(6), stream("s", 5, replicas=lists, scatter_width=2))
    found = [frozenset(ready.assignments["s", shard].replicas) for shard in range(5)]
    assert found[2] == frozenset(lists[0])
    assert found[3] == frozenset(lists[1])
    assert set(found) == {frozenset(lists[0]), frozenset(lists[1])}


@pytest.mark.parametrize(
    ("events", "asked", "code"),
    [
        (fleet(2), {}, "NODES_TOO_FEW"),
        (fleet(9), {"scatter_width": 9}, "NODES_TOO_FEW"),
        (
            fleet(9, 3),
            {"scatter_width": 7, "rules": [{"at_most": 1, "per": "1"}]},
            "NODES_TOO_FEW",
        ),
        (fleet(9, 2), {"rules": [{"at_most": 1, "per": "1"}]}, "DOMAINS_TOO_FEW"),
        (fleet(9), {"scatter_width": 0}, "POLICY_UNKNOWN_VALUE"),
        (fleet(9), {"scatter_width": True}, "POLICY_UNKNOWN_VALUE"),
        (fleet(9), {"width": 4}, "POLICY_UNKNOWN_KEY"),
        ([node(f"n{n}", capacity=1) for n in range(6)], {}, "NO_CANDIDATE"),
    ],
)
def test_what_cannot_be_is_rejected(events, asked, code):
    _, ready = placed(*events, stream("s", 4, **asked))
    assert outcome(ready) == (Outcome.REJECTED, code)
    assert not ready.assignments


def test_degrade_places_with_the_width_there_is():
    asked = {"scatter_width": 20, "on_infeasible": "degrade"}
    _, ready = placed(*fleet(9), stream("s", 4, **asked))
    decision = ready.decisions["s"]
    assert decision.outcome is Outcome.DEGRADED
    assert "scatter_width 20" in decision.warnings[0].message


def test_nodes_that_cannot_lead_are_not_left_alone():
    events = [node(f"n{n}", leader=n < 3) for n in range(9)]
    _, ready = placed(*events, stream("s", 30, scatter_width=2))
    assert {a.replicas[0] for a in ready.assignments.values()} <= {"n0", "n1", "n2"}


@pytest.mark.parametrize("seed", seeds(25))
def test_any_tree(seed):
    """Property: sets keep the rules, avoid what is not up, and do not depend on any order."""
    rng = random.Random(seed)
    nodes = []
    for n in range(rng.randint(3, 40)):
        depth = rng.randint(0, 3)
        path = "".join(f"/{'xyz'[d]}{rng.randint(0, 3)}" for d in range(depth))
        liveness = rng.choice([Liveness.UP] * 6 + [Liveness.SUSPECT, Liveness.DEAD])
        nodes.append(node(f"n{n}", path, liveness, weight=rng.choice([0.5, 1.0, 2.0])))
    factor = rng.randint(1, 4)
    rules = rng.choice([[], [{"at_most": 1, "per": "1"}], [{"at_least": 2, "domains": "2"}]])
    asked = stream("s", 20, factor, rules=rules, within=rng.choice([[], ["/x0", "/x1"]]))
    _, ready = placed(*nodes, asked)
    decision = ready.decisions["s"]
    if decision.outcome is Outcome.REJECTED:
        assert decision.reasons
        return
    location = {each.node_id: each.attributes.location for each in nodes}
    up = {each.node_id for each in nodes if each.liveness is Liveness.UP}
    for members in sets_of(ready):
        assert members <= up
        assert len(members) == factor
        tops = Counter(location[i].split("/")[1] if location[i] else "" for i in members)
        if rules and "at_most" in rules[0]:
            assert max(tops.values()) == 1
        if asked.policy["within"]:
            assert set(tops) <= {"x0", "x1"}
    rng.shuffle(nodes)
    _, again = placed(*nodes, asked)
    assert [a.replicas for a in again.assignments.values()] == [
        a.replicas for a in ready.assignments.values()
    ]
