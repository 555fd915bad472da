"""Sifting: looking at many shards at once never passes one that breaks a rule.

Method: random fleets and shards, each rule asked about every shard one by one.
"""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placement.model import Liveness, NodeAttributes, StreamSpec, parse_location
from placement.policy import Policy, compile_policy
from placement.rules import (
    AtMost,
    Even,
    EvenWithinCapacity,
    RuleContext,
    Share,
    Strength,
    find_breaches,
)
from placement.strategies import STRATEGIES
from placement.strategies.location_majority import NoMajority
from placement.topology import LEAF, NodeFilter, Scope, Topology
from tests.builders.drawn import examples

NODES = st.tuples(
    st.sampled_from(["", "/a", "/b", "/a/1", "/a/2", "/b/1", "/a/1/x", "/a/1/y", "/c/1/x"]),
    st.sampled_from([Liveness.UP] * 4 + [Liveness.SUSPECT, Liveness.DEAD]),
    st.sampled_from(["p", "p", "q", None]),
)
FLEETS = st.lists(NODES, min_size=1, max_size=14)
SHARDS = st.integers(1, 5).flatmap(
    lambda factor: st.lists(
        st.lists(st.integers(0, 13), min_size=factor, max_size=factor), min_size=1, max_size=20
    )
)
TAG = Scope(tag="power")


def fleet(nodes: Any) -> Topology:
    topology = Topology()
    for number, (location, liveness, power) in enumerate(nodes):
        tags = (("power", power),) if power else ()
        topology.upsert(f"n{number}", NodeAttributes(location, tags), liveness)
    return topology


def rules(topology: Topology) -> list[Any]:
    tiers = topology.tiers()
    scopes = (*tiers, TAG)
    made: list[Any] = [Even(scope) for scope in scopes]
    made += [AtMost(limit, scope) for scope in scopes for limit in (1, 2, *Share)]
    made += [
        EvenWithinCapacity(tier, above) for tier, above in zip(tiers, (None, *tiers), strict=False)
    ]
    made += [EvenWithinCapacity(LEAF, None, fenced=True), EvenWithinCapacity(LEAF, tiers[0])]
    return [*made, NoMajority()]


@given(FLEETS, SHARDS, st.booleans())
@examples(150)
def test_every_shard_that_breaks_a_rule_is_found_over_columns(
    nodes: Any, shards: list[list[int]], filtered: bool
) -> None:
    topology = fleet(nodes)
    rows = [[node % len(nodes) for node in shard] for shard in shards]
    within = parse_location("/a")
    admitted = NodeFilter(within=(within,)) if filtered else NodeFilter()  # type: ignore[arg-type]
    factor = len(rows[0])
    asked = rules(topology)
    assert {type(rule) for rule in asked} == {Even, AtMost, EvenWithinCapacity, NoMajority}
    for rule in asked:
        doubtful = rule.may_violate(
            np.array(rows), RuleContext(topology, factor, (), nodes=admitted)
        )
        broken = [
            bool(rule.violations(RuleContext(topology, factor, row, nodes=admitted)))
            for row in rows
        ]
        assert all(doubt or not wrong for doubt, wrong in zip(doubtful, broken, strict=True)), rule
        if isinstance(rule, AtMost | NoMajority):
            assert doubtful.tolist() == broken, "limits are exact"


def test_uneven_shards_are_told_from_even_ones() -> None:
    """Two of three in one data center is even with two of them, and uneven with three."""
    for count, doubt in ((2, False), (3, True)):
        topology = Topology()
        for number in range(9):
            topology.upsert(f"n{number}", NodeAttributes(f"/d{number % count}"), Liveness.UP)
        row = [0, count, 1]
        rule, standing = EvenWithinCapacity(LEAF), RuleContext(topology, 3, ())
        assert rule.may_violate(np.array([row]), standing).tolist() == [doubt]


@given(FLEETS, SHARDS)
@examples(60)
def test_judging_many_finds_what_judging_each_finds(nodes: Any, shards: list[list[int]]) -> None:
    """The same shards and the same first finding, with enough repeats to be sifted."""
    topology = fleet(nodes)
    rows = [[node % len(nodes) for node in shard] for shard in shards]
    factor = len(rows[0])
    policy = compile_policy(None, {"strategy": "spread"}, {}, topology, STRATEGIES)
    assert isinstance(policy, Policy)
    asked = rules(topology)

    def found(lists: list[list[int]]) -> dict[Any, tuple[list[int], Any]]:
        spec = StreamSpec("s", len(lists), factor, {})
        answers = find_breaches(
            asked, Strength.REQUIRED, lists, policy.rule_context(spec, topology)
        )
        return {rule: (broken, first) for rule, broken, first in answers}

    one_by_one: dict[Any, tuple[list[int], Any]] = {}
    for shard, row in enumerate(rows):
        for rule, (_, first) in found([row]).items():
            broken, earliest = one_by_one.get(rule, ([], first))
            one_by_one[rule] = ([*broken, shard], earliest)
    many = found(rows * 64)
    assert many.keys() == one_by_one.keys()
    for rule, (broken, first) in many.items():
        assert broken[: len(one_by_one[rule][0])] == one_by_one[rule][0]
        assert first == one_by_one[rule][1]
