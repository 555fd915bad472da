"""Explanations say what was done, and advice is what works."""

import random
from copy import deepcopy
from unittest.mock import DEFAULT, Mock

import pytest

from placement.allocator import View
from placement.explain import Explainer, advise, trial
from placement.explain.explainer import ONLY_NODE
from placement.model import (
    AdministrativeState,
    Configuration,
    Liveness,
    NodeAttributes,
    Outcome,
    Reason,
    StreamSpec,
)
from placement.state import ClusterState
from placement.strategies import STRATEGIES
from placement.streams import place


def fleet(*nodes, levels=("region", "az")):
    """A state with nodes such as `n1 /eu/az1 dead capacity=1`."""
    state = ClusterState(Configuration(levels=levels))
    for line in nodes:
        name, location, *rest = line.split()
        words = [word for word in rest if "=" not in word]
        more = {key: int(value) for key, value in (w.split("=") for w in rest if "=" in w)}
        draining = "draining" in words
        ordered = AdministrativeState.DRAINING if draining else AdministrativeState.NONE
        liveness = Liveness("up" if draining or not words else words[0])
        state.topology.upsert(name, NodeAttributes(location, **more), liveness, ordered)
    return state


def placed(state, policy, *, shards=1, factor=3, text=None):
    spec = StreamSpec("s", shards, factor, policy or {}, text)
    compiled = state.streams.compile(text, policy)
    assert not isinstance(compiled, Reason), compiled
    before = View(state.topology, state.table)
    answer = place(state, spec, compiled)
    return spec, compiled, answer, Explainer(spec, compiled, answer.shards, before)


SIX = [f"n{number} /r{number % 2}/z{number % 3}" for number in range(1, 7)]


def test_the_funnel_names_what_left_a_node_out():
    state = fleet(
        "n1 /eu/a",
        "n2 /eu/a",
        "n3 /eu/b",
        "n4 /us/a",
        "n5 /eu/c dead",
        "n6 /eu/d draining",
        "n7 /eu/e capacity=0",
    )
    policy = {"within": ["/eu"], "rules": [{"at_most": 1, "per": "az"}]}
    spec, _, answer, explainer = placed(state, policy, factor=2)
    assert answer.outcome is Outcome.PLACED
    absent = {
        name: explainer.explain_absence(0, node) for name, node in state.topology.index.items()
    }
    steps = {name: each.step for name, each in absent.items() if each}
    taken = [state.topology.ids[node] for node in answer.shards[0]]
    other = ({"n1", "n2"} - set(taken)).pop()
    assert set(taken) == {"n3", "n1" if other == "n2" else "n2"}
    assert steps == {
        other: steps[other],
        "n4": "filters",
        "n5": "alive",
        "n6": "alive",
        "n7": "capacity",
    }
    assert f"{other} could hold replica" in absent[other].reason
    assert "it is draining" in absent["n6"].reason
    assert "capacity of 0 is used up" in absent["n7"].reason
    held = list(explainer.explain_replicas(0))
    assert [each.node for each in held] == taken
    counts = [step.left for step in held[0].funnel]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == 7
    assert counts[-1] >= 1
    assert spec.stream in held[0].reason


def test_a_required_rule_says_what_it_would_find():
    state = fleet("n1 /eu/a", "n2 /eu/a", "n3 /eu/b")
    _, _, answer, explainer = placed(state, {"rules": [{"exclusive": "nodes"}]}, shards=3, factor=1)
    [first], [second], _ = answer.shards
    reason = explainer.explain_absence(0, second).reason
    name = state.topology.ids[second]
    assert first != second
    assert reason == (
        f"{name} holds no replica of s/0: the required rule 'exclusive nodes' forbids it: "
        f"with it there would be 2 in {name}, the limit is 1"
    )
    # A node without the tag that a rule counts by is refused, and told so.
    _, _, answer, explainer = placed(state, {"rules": [{"at_most": 1, "per": "tag:zone"}]})
    assert answer.outcome is Outcome.WAITING
    assert explainer.explain_absence(0, 0).reason.endswith("forbids it: it has no tag:zone")


@pytest.mark.parametrize("name", sorted({s.name for s in STRATEGIES.values()}))
def test_every_strategy_is_explained(name):
    """Goal: whatever placed a replica, its node passes the funnel of its slot to the end."""
    needs = {
        "awareness": {"attributes": ["region"]},
        "network_topology": {"replication": {"r0": 2, "r1": 1}},
    }
    state = fleet(*SIX)
    compiled = state.streams.compile(None, {"strategy": name, **needs.get(name, {})})
    if isinstance(compiled, Reason):
        pytest.skip(f"{name} needs parameters: {compiled.message}")
    spec = StreamSpec("s", 2, 3, {})
    before = View(state.topology, state.table)
    answer = place(state, spec, compiled)
    assert answer.shards, answer.reasons
    explainer = Explainer(spec, compiled, answer.shards, before)
    for shard, nodes in enumerate(answer.shards):
        held = list(explainer.explain_replicas(shard))
        assert [each.node for each in held] == [state.topology.ids[n] for n in nodes if n >= 0]
        assert all(each.chosen_by for each in held)
        assert all(each.funnel[-1].left >= 1 for each in held)
        for node in range(state.topology.size):
            assert (explainer.explain_absence(shard, node) is None) == (node in nodes)


def test_spread_is_explained_by_the_step_that_decided():
    state = fleet("n1 /eu/a", "n2 /us/a")
    _, _, _, explainer = placed(state, {"strategy": "spread"}, factor=2)
    last = list(explainer.explain_replicas(0))[1]
    assert last.chosen_by == ONLY_NODE
    assert last.reason.endswith("; no other node was left")


@pytest.mark.parametrize(
    ("nodes", "text", "shards", "factor", "says"),
    [
        (["n1 /a", "n2 /b"], "node=exclusive", 1, 3, "one more domain at level region"),
        (["n1 /a", "n2 /b"], "node=exclusive", 1, 5, "3 more domains at level region"),
        (["n1 /a", "n2 /a", "n3 /b"], "node=colocated", 1, 4, "2 more nodes in /a"),
        (["n1 /a", "n2 /b"], "shard=exclusive", 2, 2, "one more node in each of the 2 locations"),
        (["n1 /a", "n2 /b", "n3 /c dead"], "node=exclusive", 1, 3, "bring node n3 (dead) back"),
        (["n1 /a", "n2 /b"], "node=exclusive", 1, 3, "or ask for less: replication_factor 2 fits"),
        (
            ["n1 /a", "n2 /b"],
            "shard=exclusive",
            3,
            1,
            "or ask for less: 2 shards fit the nodes there are",
        ),
    ],
)
def test_advice_says_what_to_add(nodes, text, shards, factor, says):
    state = fleet(*nodes)
    spec, policy, answer, _ = placed(state, None, shards=shards, factor=factor, text=text)
    assert answer.outcome is Outcome.REJECTED
    told = [each.message for each in advise(state, spec, policy)]
    assert any(message.startswith(says) for message in told), told


def test_advice_holds_what_it_promises_and_leaves_no_trace():
    """Method: random fleets; what is advised for a location is added for good, and the stream is
    placed; with one node less it is not."""
    rng = random.Random(7)
    seen = 0
    for _ in range(40):
        lines = [f"n{n} /{rng.choice('ab')}/{rng.choice('xyz')}" for n in range(rng.randint(1, 5))]
        text = rng.choice(["node=exclusive", "node=colocated", "shard=exclusive"])
        state = fleet(*lines)
        spec, policy, answer, _ = placed(state, None, shards=2, factor=3, text=text)
        if answer.outcome is not Outcome.REJECTED:
            continue
        before = sorted(state.topology.index)
        advice = advise(state, spec, policy)
        assert sorted(state.topology.index) == before
        assert place(state, spec, policy).reasons == answer.reasons
        for each in advice:
            if each.location is None or each.level or not each.nodes:
                continue
            seen += 1
            for number in (each.nodes - 1, each.nodes):
                fresh = fleet(*lines, *(f"new-{n} {each.location}" for n in range(number)))
                outcome = place(fresh, spec, policy).outcome
                works = outcome in (Outcome.PLACED, Outcome.DEGRADED)
                assert works == (number == each.nodes), (lines, text, each)
    assert seen > 10


def test_a_reason_stays_short_however_much_a_policy_asks_for():
    """Goal: 60 tags of the greatest length make no sentence that a record refuses."""
    state = fleet("n1 /eu/a", "n2 /us/a")
    tags = {f"{'k' * 60}{number}": "v" * 120 for number in range(60)}
    carried = [tuple(sorted(tags.items())[:kept]) for kept in range(60)]
    for number, each in enumerate(carried):
        state.topology.upsert(f"t{number}", NodeAttributes("/eu/b", each), Liveness.UP)
    _, _, answer, _ = placed(state, {"with_tags": tags}, factor=1)
    [reason] = answer.reasons
    assert reason.message.startswith("no node can take replica 0 of s/0: of 62 nodes, 59 with k")
    assert len(reason.message) < 2_100


@pytest.mark.parametrize("tries", [3, 4, 6])
def test_an_exception_in_a_trial_leaves_the_fleet_as_it_was(monkeypatch, tries):
    state = fleet("n1 /eu/a", "n2 /eu/b dead", "n3 /eu/c draining")
    spec, policy, _, _ = placed(state, {"rules": [{"at_most": 1, "per": "az"}]})
    answers = Mock(wraps=place, side_effect=[DEFAULT] * tries + [RuntimeError])
    monkeypatch.setattr(trial, "place", answers)
    known = state.topology
    before = deepcopy((known.ids, known.liveness, known.administrative, known.domains))
    with pytest.raises(RuntimeError):
        advise(state, spec, policy)
    assert (known.ids, known.liveness, known.administrative, known.domains) == before
    assert known.eligible.tolist() == [True, False, False]
