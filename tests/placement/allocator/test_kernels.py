"""The kernels: both forms give the same numbers, and the walk places as `choose` would."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.allocator import Placement, View, domain_tree, kernels
from placement.assignments import EMPTY, AssignmentTable
from placement.model import Liveness, NodeAttributes, StreamSpec
from placement.policy import Policy, compile_policy
from placement.rules import Even, RuleContext, Strength, find_breaches
from placement.strategies import STRATEGIES, spread, spread_bulk
from placement.topology import LEAF, Topology
from tests.builders.drawn import examples

Node = tuple[str, float, Liveness]
NODES = st.tuples(
    st.sampled_from(["", "/a", "/b", "/a/1", "/a/2", "/b/1", "/a/1/x", "/a/1/y", "/c/1/x"]),
    st.sampled_from([1.0, 1.0, 1.0, 2.0, 0.5]),
    st.sampled_from([Liveness.UP] * 4 + [Liveness.SUSPECT, Liveness.DEAD]),
)
FLEETS = st.lists(NODES, min_size=1, max_size=14)


def fleet(nodes: list[Node], order: list[int] | None = None) -> Topology:
    topology = Topology()
    for number in order or range(len(nodes)):
        location, weight, liveness = nodes[number]
        topology.upsert(f"n{number}", NodeAttributes(location, weight=weight), liveness)
    return topology


def policy_of(topology: Topology) -> Policy:
    policy = compile_policy(None, {"strategy": "spread"}, {}, topology, STRATEGIES)
    assert isinstance(policy, Policy)
    return policy


def walk(topology: Topology, shards: int, factor: int) -> list[list[str]] | None:
    """Node ids by shard as the kernel places them on an empty fleet."""
    view = View(topology, AssignmentTable())
    spec = StreamSpec("s", shards, factor, {})
    policy = policy_of(topology)
    rules = spread.SpreadStrategy().rules(policy, topology)
    found = spread_bulk.spread_in_bulk(spec, policy, rules, view)
    return found and [[topology.ids[node] for node in nodes] for nodes in found]


@given(FLEETS, st.integers(1, 12), st.integers(1, 4), st.randoms(use_true_random=False))
@examples(150)
def test_the_order_of_nodes_changes_nothing(
    nodes: list[Node], shards: int, factor: int, random: object
) -> None:
    order = list(range(len(nodes)))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert walk(fleet(nodes), shards, factor) == walk(fleet(nodes, order), shards, factor)


@given(FLEETS, st.integers(1, 20), st.integers(1, 4))
@examples(200)
def test_the_walk_is_as_even_as_choice_by_choice(
    nodes: list[Node], shards: int, factor: int
) -> None:
    """The same replicas per domain in every shard, the same load per domain and node but for
    ties: the sorted counts agree."""
    topology = fleet(nodes)
    walked = walk(topology, shards, factor)
    eligible = int(topology.eligible.sum())
    assert (walked is None) == (eligible < factor)
    if walked is None:
        return
    view = View(topology, AssignmentTable())
    spec, policy = StreamSpec("s", shards, factor, {}), policy_of(topology)
    placed = spread.SpreadStrategy().place(spec, policy, view)
    assert isinstance(placed, Placement)
    chosen = [[topology.ids[node] for node in shard] for shard in placed.shards]
    assert all(len(set(shard)) == factor for shard in walked)
    for scope in topology.tiers():
        names = [topology.domain_name(scope, int(d)) for d in topology.domain_of(scope)]
        domain = dict(zip(topology.ids, names, strict=True))
        shapes = [
            [sorted(Counter(domain[node] for node in shard).values()) for shard in shards_of]
            for shards_of in (walked, chosen)
        ]
        assert shapes[0] == shapes[1], scope


@given(FLEETS, st.integers(1, 30), st.integers(1, 4))
@examples(60)
def test_compiled_and_plain_form_agree(nodes: list[Node], shards: int, factor: int) -> None:
    topology = fleet(nodes)
    plain = walk(topology, shards, factor)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "COMPILED_FROM", 0)
        assert walk(topology, shards, factor) == plain


RULES = st.lists(
    st.sampled_from(
        [
            {"at_most": 1, "per": "1"},
            {"at_most": 1, "per": "2"},
            {"at_most": 2, "per": "1"},
            {"at_most": "minority", "per": "location"},
            {"at_most": "share", "per": "1"},
            {"even": "1"},
            {"with_tags": {"odd": "1"}},
        ]
    ),
    min_size=1,
    max_size=2,
)


@given(FLEETS, RULES, st.integers(1, 20), st.integers(1, 4))
@examples(300)
def test_the_walk_keeps_rules_as_choice_by_choice_does(
    nodes: list[Node], rules: list[dict[str, object]], shards: int, factor: int
) -> None:
    """Goal: what is placed with the walk under the policy's rules breaks none, and stands in as
    many domains as what was chosen replica by replica."""
    topology = fleet(nodes)
    for number, (location, weight, liveness) in enumerate(nodes):
        attributes = NodeAttributes(location, (("odd", str(number % 2)),), weight)
        topology.upsert(f"n{number}", attributes, liveness)
    policy = compile_policy(None, {"strategy": "spread", "rules": rules}, {}, topology, STRATEGIES)
    assert isinstance(policy, Policy)
    if not spread_bulk.can_spread_in_bulk(policy.rules, topology):
        return
    spec = StreamSpec("s", shards, factor, {})
    found = {}
    for bulk_from in (1, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(spread, "BULK_FROM", bulk_from)
            view = View(topology, AssignmentTable())
            placed = spread.SpreadStrategy().place(spec, policy, view)
        assert isinstance(placed, Placement)
        found[bulk_from] = [list(shard) for shard in placed.shards]
    walked, chosen = found[1], found[1 << 20]
    whole = [shard for shard in walked if EMPTY not in shard]
    everywhere = policy.rule_context(spec, topology)
    assert not any(find_breaches(policy.rules, Strength.REQUIRED, whole, everywhere))
    assert all(len(set(shard)) == factor for shard in whole)
    if any(EMPTY in shard for shard in chosen):
        return
    for scope in topology.tiers():
        domain = topology.domain_of(scope)
        shapes = [
            [sorted(Counter(int(domain[node]) for node in shard).values()) for shard in shards_of]
            for shards_of in (walked, chosen)
        ]
        assert shapes[0] == shapes[1], scope


def test_a_cap_closes_a_domain_for_the_rest_of_the_shard() -> None:
    """All six nodes stand in one zone, which may hold two copies of a shard."""
    topology = fleet([(f"/z/{n % 3}", 1.0, Liveness.UP) for n in range(6)])
    rules = [{"at_most": 2, "per": "1"}]
    policy = compile_policy(None, {"strategy": "spread", "rules": rules}, {}, topology, STRATEGIES)
    assert isinstance(policy, Policy)
    assert spread_bulk.can_spread_in_bulk(policy.rules, topology)
    for factor, found in ((2, True), (3, False)):
        view = View(topology, AssignmentTable())
        spec = StreamSpec("s", 10, factor, {})
        assert (spread_bulk.spread_in_bulk(spec, policy, policy.rules, view) is not None) == found
    wishes = compile_policy(
        None,
        {"rules": [{"at_most": 1, "per": "1", "strength": "preferred"}]},
        {},
        topology,
        STRATEGIES,
    )
    assert isinstance(wishes, Policy)
    assert not spread_bulk.can_spread_in_bulk(wishes.rules, topology), "a wish is ranked"


def test_capacity_is_never_exceeded() -> None:
    topology = Topology()
    for number in range(6):
        attributes = NodeAttributes(f"/z{number % 3}", capacity=5 if number < 3 else 40)
        topology.upsert(f"n{number}", attributes, Liveness.UP)
    walked = walk(topology, 30, 3)
    assert walked is not None
    held = Counter(node for shard in walked for node in shard)
    assert [held[f"n{number}"] for number in range(6)] == [5, 5, 5, 25, 25, 25]
    assert walk(topology, 100, 3) is None


def test_a_large_stream_is_exactly_even_and_its_leaders_nearly() -> None:
    topology = fleet([(f"/r{n % 3}/a{n // 3 % 4}", 1.0, Liveness.UP) for n in range(60)])
    walked = walk(topology, 1_000, 3)
    assert walked is not None
    assert set(Counter(node for shard in walked for node in shard).values()) == {50}
    leads = Counter(shard[0] for shard in walked).values()
    assert max(leads) - min(leads) <= 4


def test_weights_are_followed() -> None:
    topology = fleet([(f"/z{n % 3}", 1.0 + n // 3, Liveness.UP) for n in range(6)])
    walked = walk(topology, 300, 3)
    assert walked is not None
    held = Counter(node for shard in walked for node in shard)
    assert [held[f"n{number}"] for number in range(6)] == [100, 100, 100, 200, 200, 200]


@given(FLEETS, st.lists(st.lists(st.integers(0, 13), min_size=3, max_size=3), min_size=1))
@examples(200)
def test_every_uneven_shard_is_found_over_columns(
    nodes: list[Node], shards: list[list[int]]
) -> None:
    topology = fleet(nodes)
    rows = [[node % len(nodes) for node in shard] for shard in shards]
    tiers = topology.tiers()
    assert tiers[-1] == LEAF
    for scope in tiers:
        rule, everywhere = Even(scope), RuleContext(topology, 3, ())
        doubtful = rule.may_violate(np.array(rows), everywhere)
        broken = [bool(rule.violations(RuleContext(topology, 3, row))) for row in rows]
        assert all(doubt or not wrong for doubt, wrong in zip(doubtful, broken, strict=True))
        for row, doubt in zip(rows, doubtful, strict=True):
            apart = len({int(topology.domain_of(scope)[node]) for node in row}) == len(row)
            assert not (apart and doubt), "copies in different domains are never in doubt"


def test_a_tree_has_all_nodes_once() -> None:
    topology = fleet([("", 1.0, Liveness.UP), ("/a/1", 1.0, Liveness.UP), ("/a", 2.0, Liveness.UP)])
    tree = domain_tree(topology)
    assert sorted(tree.leaves.tolist()) == [0, 1, 2]
    weights = tree.sums(topology.weight)
    assert weights[0] == 4
    first, end, parent = tree.elements[:3]
    for element in range(len(first)):
        for child in range(first[element], end[element]):
            assert parent[child] == element
    assert domain_tree(Topology()).elements.shape[1] == 1
