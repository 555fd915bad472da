"""Feasibility: the search over classes of nodes against every arrangement there is."""

import random
from itertools import permutations

import numpy as np
import pytest

from placement.model import Code, Liveness, NodeAttributes, parse_location
from placement.rules import (
    AtLeastDomains,
    AtLeastIn,
    AtMost,
    Even,
    Exactly,
    FeasibilityQuery,
    LeaderPreference,
    Share,
    why_not,
)
from placement.topology import LEAF, NodeFilter, Scope, Topology
from tests.builders.drawn import seeds

AZ, RACK, POWER = Scope(depth=1, name="az"), Scope(depth=2, name="rack"), Scope(tag="power")


def fleet(*locations, tags=()):
    topology = Topology(("az", "rack"))
    for n, location in enumerate(locations):
        carried = (("power", tags[n]),) if n < len(tags) and tags[n] else ()
        topology.upsert(f"n{n}", NodeAttributes(location, carried), Liveness.UP)
    return topology


def ask(topology, factor, required=(), allowed=None):
    mask = topology.eligible if allowed is None else allowed
    return FeasibilityQuery(topology, factor, NodeFilter(), tuple(required), mask)


@pytest.mark.parametrize(
    ("locations", "factor", "rule", "code", "need", "have"),
    [
        (["/a", "/b"], 3, None, Code.NODES_TOO_FEW, 3, 2),
        (["/a", "/a", "/b", "/b"], 3, AtMost(1, AZ), Code.DOMAINS_TOO_FEW, 3, 2),
        (["/a", "/a", "/b", "/b"], 3, AtMost(Share.MINORITY, AZ), Code.DOMAINS_TOO_FEW, 3, 2),
        (["/a", "/b", "/c"], 2, AtMost(Share.MINORITY, AZ), Code.DOMAINS_TOO_FEW, 2, 3),
        (["/a", "/a", "/b"], 3, AtLeastDomains(3, AZ), Code.DOMAINS_TOO_FEW, 3, 2),
        # 4 over 3 with a minority of one: no arrangement, whatever the nodes.
        (["/a", "/a", "/b", "/b", "/c", "/c"], 4, AtMost(1, AZ), Code.DOMAINS_TOO_FEW, 4, 3),
        (["/a"] * 4 + ["/b"], 4, AtMost(2, AZ), Code.DOMAIN_TOO_SMALL, 4, 3),
        (["/a"] * 4 + ["/b"], 4, Even(AZ), Code.DOMAIN_TOO_SMALL, 4, 3),
        (["/a"] * 3 + ["/b"], 3, Even(AZ), None, None, None),
        (["/a", "/b", "/c"], 3, AtMost(1, AZ), None, None, None),
    ],
)
def test_what_is_missing(locations, factor, rule, code, need, have):
    reason = why_not(ask(fleet(*locations), factor), rule)
    assert (reason and (reason.code, reason.need, reason.have)) == (code and (code, need, have))


def test_rules_that_only_together_are_impossible():
    topology = fleet("/a/1", "/a/2", "/b/1", "/b/2", tags=("x", "x", "y", "y"))
    both = ask(topology, 2, [Exactly(((parse_location("/a"), 2),))])
    assert why_not(both, AtMost(1, POWER)).code is Code.NO_CANDIDATE
    assert why_not(both, AtMost(1, RACK)) is None


def test_a_tag_names_its_key_and_values():
    topology = fleet("", "", "", tags=("x", "y", "y"))
    reason = why_not(ask(topology, 3), AtMost(1, POWER))
    assert (reason.level, reason.seen) == ("power", ("x", "y"))


def test_many_equal_domains_are_looked_at_once():
    """Method: 40 zones of 10 racks, and one zone too few; a plain search would not end."""
    places = [f"/z{zone}/r{rack}" for zone in range(4) for rack in range(30)]
    reason = why_not(ask(fleet(*places), 5, [AtMost(1, AZ)]), Even(RACK))
    assert (reason.code, reason.need, reason.have) == (Code.DOMAINS_TOO_FEW, 5, 4)


@pytest.mark.parametrize("seed", seeds(150))
def test_brute_force_agrees(seed):
    rng = random.Random(seed)
    count = rng.randint(1, 7)
    locations = [rng.choice(["/a", "/b", "/a/1", "/a/2", "/b/1", "/c/1", ""]) for _ in range(count)]
    topology = fleet(*locations, tags=[rng.choice(["x", "y", ""]) for _ in range(count)])
    factor = rng.randint(1, 4)
    path = parse_location(rng.choice(["/a", "/b", "/a/1"]))
    pool = [
        AtMost(rng.choice([1, 2, Share.SHARE, Share.MINORITY, Share.HALF]), rng.choice([AZ, LEAF])),
        AtMost(1, POWER),
        Even(rng.choice([AZ, RACK, POWER])),
        AtLeastDomains(rng.randint(1, 3), rng.choice([AZ, POWER])),
        AtLeastIn(((path, 1),)),
        Exactly(((path, rng.randint(0, 2)),)),
        LeaderPreference((path,)),
    ]
    rules = rng.sample(pool, rng.randint(1, 3))
    allowed = topology.eligible & np.array([rng.random() < 0.9 for _ in range(count)])
    question = ask(topology, factor, rules[1:], allowed)
    expected = any(
        not any(rule.violations(question.rule_context(nodes)) for rule in rules)
        for nodes in permutations(np.flatnonzero(allowed).tolist(), factor)
    )
    reason = why_not(question, rules[0])
    assert (reason is None) == expected, (locations, factor, rules, reason)
