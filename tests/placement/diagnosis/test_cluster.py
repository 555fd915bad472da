"""Diagnosis of whole clusters: what is found over arrays is what a look at every shard finds.

Method: random fleets, policies and lists, good and bad ones; a naive reader in plain Python asks
every rule about every shard, counts living copies, and takes every domain away in turn.
"""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from placement.diagnosis import (
    UNKNOWN,
    Diagnosis,
    Health,
    StreamToDiagnose,
    diagnose_cluster,
    quorum_size,
    worst_of,
)
from placement.diagnosis.fixability import is_wide
from placement.model import (
    AdministrativeState,
    Liveness,
    NodeAttributes,
    StreamSpec,
    ViolationClass,
)
from placement.policy import Policy, compile_policy
from placement.rules import RuleContext
from placement.strategies import STRATEGIES
from placement.topology import Topology
from tests.builders.drawn import examples

PLACES = ("/r0/a0/k0", "/r0/a0/k1", "/r0/a1/k0", "/r1/a0/k0", "/r1/a1/k0", "/r1/a1/k1", "/r1", "")
POLICIES: tuple[dict[str, Any], ...] = (
    {"strategy": "spread"},
    {"strategy": "spread", "rules": [{"at_most": 1, "per": "az"}]},
    {"strategy": "spread", "rules": [{"at_least": 2, "domains": "tag:zone"}]},
    {"strategy": "spread", "rules": [{"at_least": {"/r0": 1}}, {"with_tags": {"zone": "z1"}}]},
    {"strategy": "spread", "rules": [{"exactly": {"/r0": 2, "/r1": 1}}]},
    {"strategy": "spread", "rules": [{"leader_in": ["/r0", "/r1"], "strength": "preferred"}]},
    {"strategy": "spread", "rules": [{"leader_in": ["/r0"]}]},
    {"strategy": "spread", "rules": [{"role": "cold", "count": 1, "other": "region"}]},
    {"strategy": "spread", "within": ["/r0"]},
    {"strategy": "awareness", "attributes": ["zone"]},
    {"strategy": "client_tags", "rack_aware_tags": ["zone"]},
    {"strategy": "cost"},
    {"strategy": "hdfs", "variant": "upgrade_domain", "tag": "zone"},
    {"strategy": "location_majority"},
    {"strategy": "multi_level"},
    {"strategy": "network_topology", "replication": {"r0": 2, "r1": 1}},
    {"strategy": "ring"},
    {"strategy": "striped"},
    {"strategy": "striped", "level": "1"},
)
STATES = (
    *[(Liveness.UP, AdministrativeState.NONE)] * 5,
    (Liveness.SUSPECT, AdministrativeState.NONE),
    (Liveness.DEAD, AdministrativeState.NONE),
    (Liveness.UP, AdministrativeState.DRAINING),
)


def compiled(topology: Topology, written: dict[str, Any]) -> Policy:
    policy = compile_policy(None, written, {}, topology, STRATEGIES)
    assert isinstance(policy, Policy), policy
    return policy


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Topology, list[StreamToDiagnose]]:
    topology = Topology(("region", "az", "rack"))
    size = draw(st.integers(3, 12))
    for number in range(size):
        liveness, ordered = draw(st.sampled_from(STATES))
        zone = draw(st.sampled_from(["z1", "z2", None]))
        tags = (("zone", zone),) if zone else ()
        leader = draw(st.integers(0, 9)) > 0
        place = draw(st.sampled_from(PLACES))
        attributes = NodeAttributes(location=place, tags=tags, leader=leader)
        topology.upsert(f"n{number}", attributes, liveness, ordered)
    streams = []
    for number in range(draw(st.integers(1, 4))):
        written = draw(st.sampled_from(POLICIES))
        policy = compiled(topology, written)
        factor = draw(st.sampled_from([2, 3, 3, 3, 4]))
        width = min(policy.copies(factor), size)
        good = st.lists(st.integers(0, size - 1), min_size=width, max_size=width, unique=True)
        odd = st.lists(st.sampled_from([UNKNOWN, *range(size)]), max_size=5)
        shards = draw(st.lists(st.one_of(good, good, odd), min_size=1, max_size=6))
        complete = [nodes[1:] for nodes in shards] if draw(st.integers(0, 4)) == 0 else shards
        quorum = draw(st.sampled_from(["majority", "one", 2]))
        spec = StreamSpec(f"s{number}", len(shards), factor, written, quorum=quorum)
        streams.append(StreamToDiagnose(spec, policy, shards, complete))
    return topology, streams


def living(topology: Topology, nodes: list[int]) -> list[int]:
    return [n for n in dict.fromkeys(nodes) if n >= 0 and not topology.is_dead(n)]


def rule_findings(topology: Topology, each: StreamToDiagnose) -> list[tuple[object, ...]]:
    """What the rules on shards say of each shard by itself."""
    judging, found = topology.for_diagnosis(), []
    rules = STRATEGIES[each.policy.strategy].rules(each.policy, judging)
    factor = each.policy.copies(each.spec.replication_factor)
    for shard, nodes in enumerate(map(list, each.shards)):
        held = living(topology, nodes)
        slots = [nodes.index(node) for node in held]
        standing = RuleContext(
            judging, factor, held, (), each.policy.nodes, len(each.shards), slots
        )
        for rule in rules:
            if held and not is_wide(rule):
                said = [(f.domain, f.count, f.limit) for f in rule.violations(standing)]
                found.extend((shard, str(rule), str(rule.strength), *each) for each in said)
    return found


@given(clusters())
@examples(80, suppress_health_check=[HealthCheck.too_slow])
def test_every_shard_is_judged_as_by_itself(
    cluster: tuple[Topology, list[StreamToDiagnose]],
) -> None:
    topology, streams = cluster
    found = diagnose_cluster(topology, streams)
    assert {v.stream for v in found.violations} <= {each.spec.stream for each in streams}
    for each in streams:
        own = [v for v in found.violations if v.stream == each.spec.stream]
        rules = STRATEGIES[each.policy.strategy].rules(each.policy, topology.for_diagnosis())
        names = {str(rule) for rule in rules if not is_wide(rule)}
        said = [
            (v.shard, v.rule, v.strength, v.domain, v.count, v.limit)
            for v in own
            if v.rule in names
        ]
        assert said == rule_findings(topology, each)
        factor = each.policy.copies(each.spec.replication_factor)
        short = [v.shard for v in own if v.rule == "replicas"]
        complete = [living(topology, list(nodes)) for nodes in each.complete]
        assert short == [s for s, nodes in enumerate(complete) if len(nodes) < factor]
        twice = [v.shard for v in own if v.rule == "distinct nodes"]
        assert twice == [
            shard
            for shard, nodes in enumerate(each.shards)
            for node, times in Counter(nodes).items()
            if node != UNKNOWN and times > 1
        ]


def copies(topology: Topology, each: StreamToDiagnose) -> list[list[int]]:
    voters = each.spec.replication_factor if each.policy.extra_copies else None
    return [living(topology, list(nodes[:voters])) for nodes in each.complete]


@given(clusters())
@examples(40, suppress_health_check=[HealthCheck.too_slow])
def test_health_and_critical_domains_are_what_counting_says(
    cluster: tuple[Topology, list[StreamToDiagnose]],
) -> None:
    topology, streams = cluster
    found = diagnose_cluster(topology, streams)
    lost: Counter[tuple[str, str]] = Counter()
    for each in streams:
        name, factor = each.spec.stream, each.spec.replication_factor
        quorum = quorum_size(each.spec.quorum, factor)
        broken = {v.shard for v in found.violations if v.stream == name}
        for shard, held in enumerate(copies(topology, each)):
            word = found.shards[name][shard]
            assert (word is Health.UNAVAILABLE) == (len(held) < quorum)
            if quorum <= len(held) < factor:
                assert word is (Health.AT_RISK if len(held) == 1 else Health.UNDER_REPLICATED)
            if len(held) >= max(factor, quorum):
                wrong = shard in broken or None in broken
                assert word is (Health.DEGRADED if wrong else Health.HEALTHY)
            if len(held) < quorum:
                continue
            for scope in topology.tiers():
                domains = Counter(topology.domain_of(scope)[held].tolist())
                for domain, there in domains.items():
                    if len(held) - there < quorum:
                        lost[str(scope), topology.domain_name(scope, domain)] += 1
            for node in held:
                lost["node", topology.ids[node]] += len(held) - 1 < quorum
    told = {(c.level, c.domain): c.shards for c in found.critical if c.level != "zone"}
    assert told == +lost
    assert found.worst is worst_of(found.streams.values())


def plain(topology: Topology, count: int, shards: Any) -> Diagnosis:
    """Streams of one policy, each with these shards."""
    policy = compiled(topology, POLICIES[1])
    specs = [StreamSpec(f"s{n}", len(shards), 3, POLICIES[1]) for n in range(count)]
    return diagnose_cluster(
        topology, [StreamToDiagnose(spec, policy, shards, shards) for spec in specs]
    )


def test_arrays_and_lists_are_the_same_to_it() -> None:
    topology = Topology(("region", "az", "rack"))
    for number in range(6):
        topology.upsert(f"n{number}", NodeAttributes(location=f"/r/a{number % 3}/k"), Liveness.UP)
    shards = [[0, 1, 2], [0, 3, 1], [3, 4, 5]]
    listed = plain(topology, 2, shards)
    assert [(v.stream, v.shard) for v in listed.violations if v.strength == "required"] == [
        ("s0", 1),
        ("s1", 1),
    ]
    assert plain(topology, 2, np.asarray(shards, np.int32)).violations == listed.violations


def test_voters_are_told_by_their_slots_where_there_are_too_many() -> None:
    """Of two voters one is lost; what stands behind them is no voter, in whatever zone it is."""
    topology = Topology(("region", "az", "rack"))
    for number in range(3):
        attributes = NodeAttributes(location=f"/r{number}/a0/k0")
        topology.upsert(f"n{number}", attributes, Liveness.UP)
    policy = compiled(topology, {"strategy": "cost"})
    shards = [[0, UNKNOWN, 1, 2]]
    each = StreamToDiagnose(StreamSpec("s", 1, 2, {"strategy": "cost"}), policy, shards, shards)
    said = [(v.rule, v.count, v.limit) for v in diagnose_cluster(topology, [each]).violations]
    assert ("voters in at_least 2 domains of az", 1, 2) in said
    for _, rule, _, _, count, limit in rule_findings(topology, each):
        assert (rule, count, limit) in said


# The others bring no rule that counts replicas in domains.
COUNTING = [each for each in POLICIES if each["strategy"] not in ("multi_level", "striped")]


@pytest.mark.parametrize("written", COUNTING, ids=str)
def test_equal_domains_are_equal_to_rules_that_count_them(written: dict[str, Any]) -> None:
    """Diagnosis asks such a rule once for all shards with as many replicas in each domain."""
    topology = Topology(("region", "az", "rack"))
    for number in range(24):
        place, zone = PLACES[number % 8], f"z{number % 8 % 2}"
        attributes = NodeAttributes(location=place, tags=(("zone", zone),))
        topology.upsert(f"n{number}", attributes, Liveness.UP)
    rules = STRATEGIES[written["strategy"]].rules(compiled(topology, written), topology)
    counting = [rule for rule in rules if rule.counts_domains]
    assert counting
    for rule in counting:
        for first in range(8):
            for step in (1, 2, 8):
                nodes = [(first + step * slot) % 24 for slot in range(3)]
                others = [(node + 8) % 24 for node in reversed(nodes)]
                one, other = (RuleContext(topology, 3, each) for each in (nodes, others))
                assert rule.violations(one) == rule.violations(other)


def test_a_surplus_replica_may_lead_a_list_that_is_too_long() -> None:
    topology = Topology(("region",))
    dead = Liveness.DEAD
    for name, leads, state in (("a", False, Liveness.UP), ("b", True, dead), ("c", True, dead)):
        topology.upsert(name, NodeAttributes(location="/r", leader=leads), state)
    topology.upsert("d", NodeAttributes(location="/r"), Liveness.UP)
    policy = compiled(topology, {"strategy": "spread"})
    nodes = [[0, 1, 2, 3]]
    each = StreamToDiagnose(StreamSpec("s", 1, 3, {}), policy, nodes, nodes)
    found = {v.rule: v.violation_class for v in diagnose_cluster(topology, [each]).violations}
    assert found["leader"] is ViolationClass.FIXABLE
    assert found["replicas"] is ViolationClass.UNFIXABLE
