"""The oracle and the rules: two counts of the same thing, written apart.

Goal: for every kind of rule that users may ask for and every strategy, the oracle finds a breach
exactly where the rules engine does. Method: random fleets of nodes that all live, random whole
lists of distinct nodes, judged by both.
"""

import random
from typing import Any

import pytest

from placement.model import Liveness, NodeAttributes
from placement.policy import RULE_KINDS, Policy, compile_policy
from placement.rules import NEVER, RuleContext, Strength
from placement.strategies import STRATEGIES
from placement.topology import Topology
from tests.oracle import promises
from tests.oracle.policy import KINDS, Judge

PLACES = ("/s1/r1", "/s1/r2", "/s2/r1", "/s2/r2", "/s3/r1", "/s3/r2/c1")
SEEDS = range(25)

# Policies whose own rules are required; a strategy that requires nothing has none here.
REQUIRING: dict[str, dict[str, Any]] = {
    "affinity": {"node": "exclusive", "shard": "balanced"},
    "awareness": {"attributes": ["disk"]},
    "client_tags": {"rack_aware_tags": ["disk"], "on_infeasible": "partial"},
    "cost": {},
    "hdfs": {"on_infeasible": "reject"},
    "location_majority": {"on_infeasible": "partial"},
    "multi_level": {},
    "network_topology": {"replication": {"s1": 1, "s2": 2}},
    "ring": {"strict": True},
    "spread": {"on_infeasible": "wait"},
    "striped": {"level": "1"},
}


def test_the_oracle_knows_every_kind_and_every_strategy() -> None:
    assert set(KINDS) == set(RULE_KINDS)
    strategies = {strategy.name: strategy for strategy in STRATEGIES.values()}
    assert strategies.keys() >= promises.KNOWN
    assert promises.KNOWN - promises.REQUIRES_NOTHING.keys() == REQUIRING.keys()
    aliases = {n: s.name for n, s in STRATEGIES.items() if n != s.name}
    assert promises.ALIASES.items() <= aliases.items()
    assert {n for n, name in aliases.items() if name in promises.KNOWN} == promises.ALIASES.keys()
    # What the oracle does not know requires nothing that it would have to count.
    topology = Topology(("site",))
    for name in strategies.keys() - promises.KNOWN:
        policy = compile_policy(None, {"strategy": name}, {}, topology, STRATEGIES)
        assert isinstance(policy, Policy), policy
        rules = strategies[name].rules(policy, topology)
        assert not [rule for rule in rules if rule.strength is Strength.REQUIRED], name


def fleet(rng: random.Random) -> tuple[Topology, dict[str, Any]]:
    topology, records = Topology(("site",)), {}
    for number in range(rng.randint(4, 9)):
        place = rng.choice(PLACES)
        tags = {"disk": rng.choice(("ssd", "hdd"))} if rng.random() < 0.8 else {}
        leads, weight = rng.random() < 0.8, rng.choice((1.0, 2.0))
        known = NodeAttributes(place, tuple(tags.items()), weight=weight, leader=leads)
        topology.upsert(f"n{number}", known, Liveness.UP)
        records[f"n{number}"] = {
            "location": place,
            "tags": tags,
            "weight": weight,
            "leader": leads,
        }
    return topology, records


def judged(given: dict[str, Any], seed: int) -> tuple[bool, bool] | None:
    """Whether the oracle, and whether the rules, find a random stream in breach of a policy."""
    rng = random.Random(f"{seed} {given}")
    topology, records = fleet(rng)
    policy = compile_policy(None, given, {}, topology, STRATEGIES)
    assert isinstance(policy, Policy), policy
    factor = 3 if "replication" in given else rng.randint(1, 3)
    copies = policy.copies(factor)
    if topology.size < copies:
        return None
    shards = [rng.sample(range(topology.size), copies) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.3:
        shards = [shards[0]] * len(shards)
    spec = {"policy": given, "replication_factor": factor, "shards": len(shards)}
    lists = [[topology.ids[node] for node in nodes] for nodes in shards]
    oracle = [*Judge(spec, records, ("site",), lambda _: True).breaches(lists)]
    rules = STRATEGIES[policy.strategy].rules(policy, topology)
    required = [rule for rule in rules if rule.strength is Strength.REQUIRED]
    broken = False
    for number, nodes in enumerate(shards):
        others = [node for other in (*shards[:number], *shards[number + 1 :]) for node in other]
        standing = RuleContext(topology, copies, nodes, others, policy.nodes, len(shards))
        for rule in (rule for rule in required if not rule.balances_cluster):
            broken |= bool(rule.violations(standing))
        # Where a rule of the user has no domain for a node, it is never used; no count shows it.
        for rule in policy.rules:
            empty = rule.penalty(RuleContext(topology, copies, (), nodes=policy.nodes))
            broken |= bool((empty[nodes] >= NEVER).any())
    # Slots planned as one have no violations of their own; the stream as a whole is judged by them.
    if any(rule.colocates_slots for rule in required):
        broken |= len({node for nodes in shards for node in nodes}) > copies
    return bool(oracle), broken


CASES = [
    *({"strategy": "simple", "rules": [rule]} for rules in KINDS.values() for rule in rules),
    *({"strategy": name, **more} for name, more in REQUIRING.items()),
]


@pytest.mark.parametrize("given", CASES, ids=lambda given: "-".join(map(str, given.values())))
def test_the_oracle_agrees_with_the_rules(given: dict[str, Any]) -> None:
    answers = {}
    for seed in SEEDS:
        answer = judged(given, seed)
        if answer is not None:
            answers[seed] = answer
    differing = {seed: answer for seed, answer in answers.items() if len({*answer}) > 1}
    assert not differing, "seed: (oracle, rules)"
    assert {broken for broken, _ in answers.values()} == {True, False}, "both occur"
