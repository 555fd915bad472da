"""Awareness: the cases of Elasticsearch' and OpenSearch' own tests, and a brute force over sets."""

import random
from collections import Counter
from itertools import combinations
from math import ceil

import pytest

from placement.model import Liveness
from tests.builders.drawn import seeds
from tests.builders.placements import ON_INFEASIBLE, ask, ask_stream, stream, tagged_node


def aware(*attributes, **given):
    return {"strategy": "awareness", "attributes": list(attributes), **given}


def zones(text, key="zone"):
    """`a3 b1`: three nodes in zone a, one in b."""
    return [
        tagged_node(f"{part[0]}-{number}", **{key: part[0]})
        for part in text.split()
        for number in range(int(part[1:]))
    ]


def per_zone(nodes):
    return "".join(sorted(each[0] for each in nodes))


@pytest.mark.parametrize(
    ("fleet", "factor", "forced", "expected", "outcome"),
    [
        ("12", 2, (), "11", "placed"),  # testMoveShardOnceNewNodeWithAttributeAdded1: one rack
        ("12 21", 2, (), "12", "placed"),
        ("12 21", 3, (), "112", "placed"),  # ...Added5
        ("12 21 31", 3, (), "123", "placed"),
        ("14 21", 4, (), "112", "partial"),  # cap 2: the rack of one node is too small
        ("14 21 31", 4, (), "1123", "placed"),  # ...Added6
        ("12", 2, "12", "1", "partial"),  # testFullAwareness1: the replica waits for rack 2
        ("12 21", 2, "12", "12", "placed"),
        ("12 21 31", 2, "12", None, "placed"),  # another rack: cap 1, any two racks
        ("a1 b1", 2, "ab", "ab", "placed"),  # testUnbalancedZones
        ("a5 b1", 5, (), "aaab", "partial"),  # testUnassignedShardsWithUnbalancedZones
        ("a2 b1", 3, "abc", "ab", "partial"),  # testAllocationExplain...: cap 1
        ("a2 b1 c1", 3, "abc", "abc", "placed"),
        ("a3 b3 c3", 3, "abcd", "abc", "placed"),
        ("a4 b4 c4 d4", 9, (), "aaabbccdd", "placed"),  # cap 3, and at least one in each
        ("a4 b4 c4 d4", 5, (), "aabcd", "placed"),  # not 2/2/1/0
        ("a3 b3", 4, "ab c".replace(" ", ""), "aabb", "placed"),  # ceil(4/3) = 2
        ("a9 b1 c1", 9, (), "aaabc", "partial"),
    ],
)
def test_copies_per_value(fleet, factor, forced, expected, outcome):
    policy = aware("zone", **({"forced": {"zone": list(forced)}} if forced else {}))
    said, [replicas], decision = ask_stream(zones(fleet), stream(policy, factor))
    assert said == outcome
    assert len(set(replicas)) == len(replicas)
    if expected is not None:
        found = Counter(per_zone(replicas)).values()
        assert sorted(found) == sorted(Counter(expected).values())
    assert bool(decision.reasons) == (outcome == "partial")


def test_a_forced_value_that_is_absent_is_named():
    policy = aware("zone", forced={"zone": "z1, z2"})
    nodes = [tagged_node("n1", zone="z1"), tagged_node("n2", zone="z1")]
    outcome, replicas, decision = ask_stream(nodes, stream(policy, 2, shards=5))
    assert outcome == "partial"
    assert [len(shard) for shard in replicas] == [1] * 5
    [reason] = decision.reasons
    assert (reason.code, reason.need, reason.have) == ("DOMAINS_TOO_FEW", 2, 1)
    assert (reason.level, reason.seen) == ("zone", ("z1",))
    assert "absent are z2" in reason.message


def test_a_value_that_is_too_small_is_named():
    _, _, decision = ask_stream(zones("a5 b1"), stream(aware("zone"), 5))
    [reason] = decision.reasons
    assert (reason.code, reason.need, reason.have) == ("DOMAIN_TOO_SMALL", 5, 4)
    assert "5 copies over 2 values allow 3 on each" in reason.message


def test_nodes_without_the_attribute_get_nothing():
    nodes = [*zones("a1 b1"), tagged_node("x", rack="r")]
    outcome, [replicas], _ = ask_stream(nodes, stream(aware("zone"), 3))
    assert (outcome, sorted(replicas)) == ("partial", ["a-0", "b-0"])
    outcome, [replicas], decision = ask_stream(nodes, stream(aware("disk"), 3))
    assert (outcome, replicas) == ("waiting", [])
    assert [reason.level for reason in decision.reasons] == ["disk"]


def test_dead_nodes_leave_the_denominator_unless_forced():
    nodes = [*zones("a2 b2"), tagged_node("c-0", zone="c", status="dead")]
    outcome, [replicas], _ = ask_stream(nodes, stream(aware("zone"), 4))
    assert (outcome, per_zone(replicas)) == ("placed", "aabb")
    policy = aware("zone", forced={"zone": ["a", "b", "c", "d"]})
    outcome, [replicas], _ = ask_stream(nodes, stream(policy, 4))
    assert (outcome, per_zone(replicas)) == ("partial", "ab")


def test_two_attributes_are_independent():
    """testMultipleAwarenessAttributes, and one of two forced (elastic 14011)."""
    policy = aware("zone", "rack", forced={"zone": ["a", "b"], "rack": ["c", "d"]})
    nodes = [tagged_node("n1", zone="a", rack="c"), tagged_node("n2", zone="b", rack="d")]
    assert ask_stream(nodes, stream(policy, 2))[0] == "placed"
    nodes = [tagged_node("n1", zone="a", rack="c"), tagged_node("n2", zone="b", rack="c")]
    assert ask_stream(nodes, stream(policy, 2))[0] == "partial"
    assert ask_stream(nodes, stream(aware("zone", "rack", forced={"zone": "a,b"}), 2))[0] == (
        "placed"
    )


def test_a_set_is_found_that_taking_node_by_node_misses():
    """The least loaded node a1/r1 excludes both others; the two others fit together."""
    nodes = [
        tagged_node("busy1", zone="a", rack="r2"),
        tagged_node("busy2", zone="b", rack="r1"),
        tagged_node("idle", zone="a", rack="r1"),
    ]
    load = stream({"nodes": ["busy1", "busy2"]}, 2, name="load", replicas=[["busy1", "busy2"]])
    answers = ask(nodes, load, stream(aware("zone", "rack"), 2))
    outcome, [replicas], _ = answers["s"]
    assert (outcome, sorted(replicas)) == ("placed", ["busy1", "busy2"])


def test_levels_of_the_location_are_attributes_too():
    nodes = [tagged_node(f"n{i}", f"/eu/az{i % 2}/r{i}") for i in range(4)]
    policy = aware("az", forced={"az": ["az0", "/eu/az1", "az2"]})
    outcome, [replicas], decision = ask_stream(
        nodes, stream(policy, 3), levels=["region", "az", "rack"]
    )
    assert (outcome, len(replicas)) == ("partial", 2)
    assert decision.reasons[0].level == "az"
    assert ask_stream(nodes, stream(aware("2"), 4))[0] == "placed"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "POLICY_MALFORMED"),
        ({"attributes": []}, "POLICY_MALFORMED"),
        ({"attributes": 3}, "POLICY_MALFORMED"),
        ({"attributes": [None]}, "POLICY_UNKNOWN_VALUE"),
        ({"attributes": [["zone"]]}, "POLICY_UNKNOWN_VALUE"),
        ({"attributes": ["zone"], "forced": {"zone": [True]}}, "POLICY_UNKNOWN_VALUE"),
        ({"attributes": ["zone"], "forced": ["a"]}, "POLICY_MALFORMED"),
        ({"attributes": ["zone"], "forced": {"rack": ["a"]}}, "POLICY_UNKNOWN_VALUE"),
        ({"attributes": ["zone"], "values": ["a"]}, "POLICY_UNKNOWN_KEY"),
    ],
)
def test_what_cannot_be_meant_is_refused(given, code):
    policy = {"strategy": "elasticsearch", **given}
    outcome, _, decision = ask_stream(zones("a1 b1"), stream(policy, 2))
    assert (outcome, decision.reasons[0].code) == ("rejected", code)


@pytest.mark.parametrize(("mode", "outcome"), ON_INFEASIBLE)
def test_on_infeasible(mode, outcome):
    count = {"partial": 4, "degraded": 5}.get(outcome, 0)
    policy = aware("zone", on_infeasible=mode)
    said, [replicas], _ = ask_stream(zones("a5 b1"), stream(policy, 5))
    assert (said, len(replicas)) == (outcome, count)


def test_filters_and_rules_of_the_user_are_never_broken():
    nodes = [tagged_node(f"{zone}{i}", f"/r{i}", zone=zone) for zone in "ab" for i in range(3)]
    policy = aware("zone", rules=[{"at_most": 1, "per": "location"}], avoid=["/r2"])
    outcome, [replicas], _ = ask_stream(nodes, stream(policy, 4))
    assert (outcome, len(replicas)) == ("partial", 2)
    assert sorted(each[1] for each in replicas) == ["0", "1"]


def test_load_and_leaders_are_even():
    _, shards, _ = ask_stream(zones("a3 b3"), stream(aware("zone"), 2, shards=30))
    load = Counter(each for shard in shards for each in shard)
    leaders = Counter(shard[0] for shard in shards)
    assert set(load.values()) == {10}
    assert max(leaders.values()) - min(leaders.values()) <= 1


@pytest.mark.parametrize("replicas", [None, [["a1", "b1", "c1"]]])
def test_leaders_are_even_also_beside_given_copies(replicas):
    nodes = [tagged_node(f"{zone}{n}", zone=zone) for zone in "abc" for n in range(1, 4)]
    _, shards, _ = ask_stream(nodes, stream(aware("zone"), 3, shards=9, replicas=replicas))
    assert len({shard[0] for shard in shards}) == 9
    assert set(Counter(each for shard in shards for each in shard).values()) == {3}


def test_given_copies_stay_and_the_rest_is_completed():
    given = [["a-0", "a-1"]]
    policy = aware("zone")
    outcome, [replicas], _ = ask_stream(zones("a3 b3"), stream(policy, 4, replicas=given))
    assert (outcome, replicas[:2], per_zone(replicas)) == ("placed", given[0], "aabb")
    given = [["a-0", "a-1", "a-2"]]
    outcome, [replicas], decision = ask_stream(zones("a3 b3"), stream(policy, 4, replicas=given))
    assert (outcome, replicas[:3], len(replicas)) == ("degraded", given[0], 4)
    assert "aware of zone" in decision.warnings[0].message


def best_by_brute_force(nodes, factor, attributes):
    """Most copies under the caps, over all sets of nodes with all the attributes."""
    tags = {n.node_id: dict(n.attributes.tags) for n in nodes if n.liveness is Liveness.UP}
    caps = {}
    for key in attributes:
        values = {each[key] for each in tags.values() if key in each}
        caps[key] = ceil(factor / max(len(values), 1))
    able = [each for each in tags if all(key in tags[each] for key in attributes)]
    for count in range(min(factor, len(able)), 0, -1):
        for chosen in combinations(able, count):
            if all(
                max(Counter(tags[each][key] for each in chosen).values()) <= caps[key]
                for key in attributes
            ):
                return count
    return 0


@pytest.mark.parametrize("seed", seeds(60))
def test_as_many_as_brute_force_and_the_same_for_any_order(seed):
    rng = random.Random(seed)
    keys = ["zone", "rack", "row"][: rng.randint(1, 3)]
    nodes = [
        tagged_node(
            f"n{i}",
            status=rng.choice(["up"] * 4 + ["dead", "suspect"]),
            **{key: rng.choice("abc") for key in keys if rng.random() < 0.9},
        )
        for i in range(rng.randint(1, 9))
    ]
    factor = rng.randint(1, 5)
    asked = stream(aware(*keys), factor, shards=2)
    outcome, shards, _ = ask_stream(nodes, asked)
    most = best_by_brute_force(nodes, factor, keys)
    assert [len(shard) for shard in shards] == [most, most]
    assert outcome == ("placed" if most == factor else "partial" if most else "waiting")
    for _ in range(3):
        assert ask_stream(rng.sample(nodes, len(nodes)), asked)[1] == shards
