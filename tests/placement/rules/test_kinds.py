"""What has to hold for every kind of rule, those of strategies included.

Goal: a kind that is new is known to the parser, to feasibility, diagnosis, repair, rebalancing, the
oracle and the documentation, or a test here fails. Method: all subclasses of `Rule`, an example of
each (`tests.builders.rules`), random small fleets, and for feasibility every arrangement there is.
"""

import random
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from placement.model import Liveness, NodeAttributes, StreamSpec
from placement.policy import RULE_KINDS, Policy, compile_policy
from placement.repair.shard_case import ShardCase, score
from placement.rules import (
    BalanceNodes,
    ColocateSlots,
    DomainCountRule,
    ExclusiveNodes,
    FeasibilityQuery,
    LocatedFirst,
    PreferNodes,
    Rule,
    RuleContext,
    Strength,
    broken_rows,
    why_not,
)
from placement.strategies import STRATEGIES
from placement.topology import NodeFilter, Topology
from schemas.words import RULES as WORDS
from tests.builders.rules import EXAMPLES, kinds, size_of
from tests.oracle.policy import KINDS

PLACES = ("/s1/r1", "/s1/r2", "/s2/r1", "/s2/r2", "/s3/r1", "")
CROWDED = ("/s1/r1", "/s1/r1", "/s1/r2", "/s2/r1")
CASES = [rule for rules in EXAMPLES.values() for rule in rules]
SEEDS = 12
# Kinds that users do not write: strategies bring them.
OF_STRATEGIES = {
    *("SameDomain", "BalanceNodes", "PreferNodes", "LocatedFirst", "SpanDomains"),
    *("EvenWithinCapacity", "VotersSpan", "LoadBalance", "OnRing", "AwareOf", "DistinctTags"),
    *("UpgradeDomains", "NoMajority", "DatacenterCounts", "DatacenterRacks"),
}


# Kinds that rank nodes and forbid none.
NEVER_BROKEN = {BalanceNodes, PreferNodes, LocatedFirst}
# Kinds that no shard breaks by itself.
BROKEN_TOGETHER = {ColocateSlots, ExclusiveNodes}


def named(rule: Rule) -> str:
    return f"{type(rule).__name__}: {rule}"


def is_documented(text: str) -> bool:
    """Whether the page of words has the kind: by how the text begins, or by a phrase in it."""
    return any(text.startswith(word) or (" " in word and word in text) for word in WORDS)


def fleet(rng: random.Random, size: int, healthy: bool = True) -> Topology:
    """Nodes of few sites and disks; half of the fleets are crowded, in half there are tokens."""
    topology, ring = Topology(("site",)), rng.random() < 0.5
    places = rng.choice((PLACES, CROWDED))
    for number in range(size):
        disk = rng.choice(("ssd", "hdd", None))
        tags = (("disk", disk),) if disk else ()
        liveness = rng.choice([Liveness.UP] * 3 + [Liveness.SUSPECT] * (not healthy))
        place, leads = rng.choice(places), rng.random() < 0.8
        tokens = rng.choice(((number,), (number,), ())) if ring else None
        attributes = NodeAttributes(place, tags, leader=leads, tokens=tokens)
        topology.upsert(f"n{number}", attributes, liveness)
    return topology


def test_every_kind_has_an_example() -> None:
    assert set(EXAMPLES) == set(kinds())


def test_every_kind_is_parsed_judged_by_the_oracle_and_documented() -> None:
    topology = Topology(("site",))
    parsed = set()
    for kind, rules in KINDS.items():
        for rule in rules:
            policy = compile_policy(None, {"rules": [rule]}, {}, topology, STRATEGIES)
            assert isinstance(policy, Policy), (kind, policy)
            parsed |= {type(each).__name__ for each in policy.rules}
    assert set(RULE_KINDS) == set(KINDS)
    assert {kind.__name__ for kind in kinds()} - parsed == OF_STRATEGIES
    # Consumers of violations find the words of a rule by the beginning of its text.
    broken = [rule for rule in CASES if type(rule) not in NEVER_BROKEN]
    assert [named(rule) for rule in broken if not is_documented(str(rule))] == []


@pytest.mark.parametrize("rule", CASES, ids=named)
def test_columns_find_every_shard_that_breaks_a_rule_and_few_others(rule: Rule) -> None:
    """A kind that counts domains is asked about many shards at once by repair: it must tell."""
    doubted = kept = 0
    for seed in range(SEEDS):
        rng = random.Random(f"{seed} {rule}")
        topology = fleet(rng, rng.randint(3, 9), healthy=seed % 2 == 0)
        factor = rng.randint(1, 3)
        rows = [rng.sample(range(topology.size), factor) for _ in range(20)]
        everywhere = RuleContext(topology, factor, ())
        doubtful = rule.may_violate(np.array(rows), everywhere)
        broken = [bool(rule.violations(replace(everywhere, replicas=row))) for row in rows]
        assert not any(wrong and not doubt for wrong, doubt in zip(broken, doubtful, strict=True))
        kept += broken.count(False)
        doubted += sum(doubt for wrong, doubt in zip(broken, doubtful, strict=True) if not wrong)
    tells = type(rule).may_violate is not Rule.may_violate
    assert tells or not isinstance(rule, DomainCountRule)
    if tells:
        assert kept
        assert doubted <= kept // 2, f"{doubted} of {kept} that keep it are in doubt"


@pytest.mark.parametrize("rule", CASES, ids=named)
def test_many_shards_are_judged_as_each_is(rule: Rule) -> None:
    """Diagnosis looks at rows; equal shards are asked about once."""
    broken = 0
    for seed in range(SEEDS):
        rng = random.Random(f"rows {seed} {rule}")
        topology, factor = fleet(rng, 6, healthy=False), rng.randint(1, 5)
        rows = np.array([rng.sample(range(6), factor) for _ in range(30)])
        everywhere = RuleContext(topology, factor, ())
        found = broken_rows(
            rule, rows, np.tile(range(factor), (30, 1)), np.ones(30, int), everywhere
        )
        expected = {
            number: rule.violations(replace(everywhere, replicas=row, slots=range(factor)))
            for number, row in enumerate(rows.tolist())
        }
        assert found == {number: each for number, each in expected.items() if each}
        broken += len(found)
    assert broken < SEEDS * 30
    assert bool(broken) == (type(rule) not in NEVER_BROKEN | BROKEN_TOGETHER)


@pytest.mark.parametrize("rule", [r for r in CASES if not r.spans_stream], ids=named)
def test_feasibility_is_what_every_arrangement_says(rule: Rule) -> None:
    required = replace(rule, strength=Strength.REQUIRED)  # type: ignore[type-var]
    for seed in range(SEEDS):
        rng = random.Random(f"feasible {seed} {rule}")
        topology, factor = fleet(rng, rng.randint(2, 5)), rng.randint(1, 3)
        allowed = topology.eligible.copy()
        query = FeasibilityQuery(topology, factor, NodeFilter(), (), allowed)
        nodes = np.flatnonzero(allowed).tolist()
        possible = any(
            not required.violations(RuleContext(topology, factor, each))
            for each in permutations(nodes, factor)
        )
        assert (why_not(query, required) is None) == possible, (seed, topology.locations)


@pytest.mark.parametrize("rule", [r for r in CASES if r.repairable], ids=named)
def test_repair_sees_what_diagnosis_sees(rule: Rule) -> None:
    """A broken rule costs something, so that a move that mends it is an improvement."""
    required = replace(rule, strength=Strength.REQUIRED)  # type: ignore[type-var]
    policy = compile_policy(None, {"strategy": "simple"}, {}, Topology(), STRATEGIES)
    assert isinstance(policy, Policy)
    broken, seeds = 0, 5 * SEEDS
    for seed in range(seeds):
        rng = random.Random(f"repair {seed} {rule}")
        topology, factor = fleet(rng, 6), size_of(rule) or rng.randint(1, 5)
        nodes, others = rng.sample(range(6), factor), rng.sample(range(6), factor)
        case = ShardCase(
            StreamSpec("s", 2, factor, {}), policy, (required,), 0, nodes, others=others
        )
        standing = case.rule_context(topology, range(factor), None)
        is_broken = bool(required.violations(standing))
        broken += is_broken
        if is_broken and not required.slot_order_matters:
            assert sum(score(case, topology).required) > 0, (seed, nodes, others)
    assert 0 < broken < seeds


TELLING = [rule for rule in CASES if type(rule).allows_move is not Rule.allows_move]


@pytest.mark.parametrize("rule", [rule for rule in TELLING if rule.spans_stream], ids=named)
def test_a_move_that_rebalancing_is_allowed_breaks_nothing(rule: Rule) -> None:
    allowed = 0
    for seed in range(SEEDS):
        rng = random.Random(f"move {seed} {rule}")
        topology = fleet(rng, 6)
        rows = [rng.sample(range(6), 2) for _ in range(3)]
        target = rng.choice([node for node in range(6) if node not in rows[0]])
        told = rule.allows_move(
            RuleContext(topology, 2, ()),
            rows[0][1],
            target,
            lambda rows=rows, target=target: any(target in row for row in rows),  # type: ignore[misc]
        )
        allowed += bool(told)
        if told:
            before, after = breaches(rule, topology, rows), [[rows[0][0], target], *rows[1:]]
            assert breaches(rule, topology, after) <= before
    assert allowed


def breaches(rule: Rule, topology: Topology, rows: list[list[int]]) -> int:
    """Shards that break the rule, the others standing where they do."""
    found = 0
    for number, row in enumerate(rows):
        others = [node for other in (*rows[:number], *rows[number + 1 :]) for node in other]
        found += bool(rule.violations(RuleContext(topology, 2, row, others, shards=len(rows))))
    return found
