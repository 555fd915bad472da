"""`hdfs`: the placements that HDFS could have made, in its three variants.

Goal: every list is one of HDFS', and what HDFS would leave out is placed with a warning. Method:
the rules of the source as checks of finished lists, on its own corner cases and on random fleets.
"""

import random
from collections import Counter

import pytest

from placement.model import Configuration
from placement.reconciler import Reconciler
from placement.strategies.hdfs import Variant, rack_cap
from tests.builders.drawn import share
from tests.builders.placements import ask, ask_one, node, random_nodes, stream, usable

TOLERANT = {"strategy": "hdfs", "variant": "rack_fault_tolerant"}
UPGRADE = {"strategy": "hdfs", "variant": "upgrade_domain"}


def hdfs(**more):
    return {"strategy": "hdfs"} | more


def racks(**sizes):
    """Nodes a1, a2, … in rack /a, and so on."""
    return [node(f"{r}{i}", f"/{r}") for r, size in sizes.items() for i in range(1, size + 1)]


def rack_counts(replicas):
    """Replicas per rack, most first."""
    return sorted(Counter(name[0] for name in replicas).values(), reverse=True)


@pytest.mark.parametrize(
    ("variant", "racks", "replicas", "cap"),
    [
        (Variant.DEFAULT, 2, 2, 1),
        (Variant.DEFAULT, 2, 3, 2),
        (Variant.DEFAULT, 3, 3, 2),
        (Variant.DEFAULT, 10, 3, 2),
        (Variant.DEFAULT, 3, 10, 5),
        (Variant.DEFAULT, 5, 6, 3),
        (Variant.DEFAULT, 1, 3, 3),
        (Variant.DEFAULT, 4, 1, 1),
        (Variant.UPGRADE_DOMAIN, 3, 3, 2),
        (Variant.RACK_FAULT_TOLERANT, 2, 3, 2),
        (Variant.RACK_FAULT_TOLERANT, 3, 3, 1),
        (Variant.RACK_FAULT_TOLERANT, 4, 3, 1),
        (Variant.RACK_FAULT_TOLERANT, 6, 9, 2),
        (Variant.RACK_FAULT_TOLERANT, 9, 9, 1),
        (Variant.RACK_FAULT_TOLERANT, 1, 4, 4),
    ],
)
def test_replicas_that_a_rack_may_hold(variant, racks, replicas, cap):
    """The values of `getMaxNodesPerRack` in both classes."""
    assert rack_cap(variant, replicas, racks) == cap


def test_writer_other_rack_and_that_rack_again():
    answer = ask_one(racks(a=3, b=3, c=3), hdfs(writer="b2"), shards=40)
    assert answer.outcome == "placed"
    for first, second, third in answer.replicas:
        assert first == "b2"
        assert second[0] != "b"
        assert (third[0], third != second) == (second[0], True)
    assert {second[0] for _, second, _ in answer.replicas} == {"a", "c"}


@pytest.mark.parametrize(
    ("writer", "status", "first"),
    [
        ("a1", "up", {"a1"}),
        # The writer may not take it: another node of its rack.
        ("a1", "suspect", {"a2", "a3"}),
        ("a1", "draining", {"a2", "a3"}),
        # A client in a rack of the cluster, and one that is far from all of them.
        ("/a", "up", {"a1", "a2", "a3"}),
        ("/nowhere", "up", {"a1", "a2", "a3", "b1", "b2"}),
    ],
)
def test_the_first_replica_is_near_the_writer(writer, status, first):
    nodes = [node("a1", "/a", status=status), *racks(a=3, b=2)[1:]]
    answer = ask_one(nodes, hdfs(writer=writer), factor=1, shards=60)
    assert {only for [only] in answer.replicas} == first


def test_a_writer_alone_in_its_rack_and_gone():
    nodes = [node("z1", "/z", status="dead"), *racks(a=2, b=2)]
    answer = ask_one(nodes, hdfs(writer="z1"))
    assert (answer.outcome, rack_counts(answer.replicas[0])) == ("placed", [2, 1])


@pytest.mark.parametrize("variant", ["default", "rack-fault-tolerant", "upgrade-domain"])
def test_without_a_writer_load_decides(variant):
    """Random in the source: here no node is far from the others."""
    answer = ask_one(racks(a=3, b=3, c=3), hdfs(variant=variant), shards=90)
    assert answer.outcome == "placed"
    firsts = Counter(first for first, *_ in answer.replicas)
    held = Counter(name for replicas in answer.replicas for name in replicas)
    assert max(held.values()) - min(held.values()) <= 2
    assert len(firsts) == 9


def test_the_third_replica_finds_another_rack_where_the_seconds_is_too_small():
    """`chooseLocalRack` goes on with the rack of the first, then with any."""
    answer = ask_one(racks(a=2, b=1), hdfs(writer="a1"))
    assert answer.replicas == [["a1", "b1", "a2"]]
    answer = ask_one(racks(a=1, b=1, c=1), hdfs(writer="a1"), shards=4)
    assert [first for first, *_ in answer.replicas] == ["a1"] * 4
    assert {frozenset(replicas) for replicas in answer.replicas} == {frozenset(["a1", "b1", "c1"])}


def test_one_rack_is_all_there_is():
    """HDFS: satisfied = racks >= min(2, R, racks in the cluster)."""
    for variant in ("default", "rack_fault_tolerant"):
        answer = ask_one(racks(a=4), hdfs(variant=variant))
        assert (answer.outcome, rack_counts(answer.replicas[0])) == ("placed", [3])


@pytest.mark.parametrize(
    ("sizes", "factor", "outcome", "counts"),
    [
        ({"a": 5, "b": 5}, 2, "placed", [[1, 1]]),
        ({"a": 5, "b": 5}, 3, "placed", [[2, 1]]),
        # (6 - 1) / 2 + 2 = 4
        ({"a": 6, "b": 6}, 6, "placed", [[4, 2], [3, 3]]),
        # The cap is 3; HDFS would leave the sixth out, which is worse than a crowded rack.
        ({"a": 1, "b": 1, "c": 9}, 6, "degraded", [[4, 1, 1]]),
        # Five nodes are what there is, as R is clipped to them first: cap (5 - 1) / 2 + 2.
        ({"a": 4, "b": 1}, 9, "partial", [[4, 1]]),
    ],
)
def test_caps_of_the_default(sizes, factor, outcome, counts):
    answer = ask_one(racks(**sizes), hdfs(), factor=factor, shards=8)
    assert answer.outcome == outcome
    assert all(rack_counts(replicas) in counts for replicas in answer.replicas)


@pytest.mark.parametrize(
    ("sizes", "factor", "outcome", "counts"),
    [
        ({"a": 4, "b": 4, "c": 4}, 3, "placed", [1, 1, 1]),
        ({"a": 4, "b": 4, "c": 4, "d": 4}, 3, "placed", [1, 1, 1]),
        ({"a": 4, "b": 4}, 3, "placed", [2, 1]),
        ({"a": 4, "b": 4, "c": 4}, 8, "placed", [3, 3, 2]),
        # HDFS-17052: racks that are short are made up for evenly by the others.
        ({"a": 1, "b": 5, "c": 5}, 9, "degraded", [4, 4, 1]),
        ({"a": 1, "b": 1, "c": 5}, 6, "degraded", [4, 1, 1]),
        ({"a": 1, "b": 1}, 3, "partial", [1, 1]),
    ],
)
def test_rack_fault_tolerant_is_even(sizes, factor, outcome, counts):
    answer = ask_one(racks(**sizes), TOLERANT, factor=factor, shards=5)
    assert (answer.outcome, [rack_counts(r) for r in answer.replicas]) == (outcome, [counts] * 5)


def test_rack_fault_tolerant_begins_with_the_writer_and_adds_in_its_rack():
    """`chooseOnce` begins with the local storage, in each of its two rounds."""
    answer = ask_one(racks(a=4, b=4, c=4), TOLERANT | {"writer": "b3"}, factor=4, shards=10)
    assert [replicas[0] for replicas in answer.replicas] == ["b3"] * 10
    counts = [Counter(name[0] for name in replicas) for replicas in answer.replicas]
    assert counts == [{"a": 1, "b": 2, "c": 1}] * 10


def domains(*labels):
    """Two racks in turn; `-` is a node without a label."""
    return [
        node(
            f"{'ab'[i % 2]}{i}",
            f"/{'ab'[i % 2]}",
            tags={} if label == "-" else {"upgrade_domain": label},
        )
        for i, label in enumerate(labels)
    ]


def label_of(nodes):
    return {n.node_id: dict(n.attributes.tags).get("upgrade_domain", n.node_id) for n in nodes}


def test_upgrade_domains_differ_for_the_first_three():
    nodes = domains("1", "1", "2", "2", "3", "3", "1", "2")
    label = label_of(nodes)
    answer = ask_one(nodes, UPGRADE, factor=4, shards=30)
    assert answer.outcome == "placed"
    for replicas in answer.replicas:
        assert len({label[name] for name in replicas[:3]}) == 3
        assert {name[0] for name in replicas[:3]} == {"a", "b"}


def test_a_node_without_a_label_is_its_own_upgrade_domain():
    answer = ask_one(domains("1", "1", "-", "-"), UPGRADE)
    assert answer.outcome == "placed"
    label = label_of(domains("1", "1", "-", "-"))
    assert len({label[name] for name in answer.replicas[0]}) == 3


@pytest.mark.parametrize(
    ("more", "outcome"),
    [({}, "degraded"), ({"on_infeasible": "reject"}, "rejected"), ({"factor": 2}, "placed")],
)
def test_too_few_upgrade_domains(more, outcome):
    answer = ask_one(domains("1", "1", "2", "2"), UPGRADE | more)
    assert answer.outcome == outcome
    if outcome == "degraded":
        [warning] = answer.decision.warnings
        assert (warning.code, warning.level) == ("RULE_NOT_MET", "upgrade_domain")
        assert warning.seen == ("1", "2")


def test_the_label_may_have_another_key():
    nodes = [node(f"n{i}", f"/{i % 2}", tags={"wave": "xxyz"[i]}) for i in range(4)]
    answer = ask_one(nodes, UPGRADE | {"tag": "wave"}, shards=5)
    assert [len({"n0", "n1"} & {*replicas}) for replicas in answer.replicas] == [1] * 5
    nodes = [node(f"n{i}", f"/{i % 2}", tags={"upgradeDomain": "xxyz"[i]}) for i in range(4)]
    answer = ask_one(nodes, UPGRADE, shards=5)
    assert [len({"n0", "n1"} & {*replicas}) for replicas in answer.replicas] == [1] * 5


@pytest.mark.parametrize(
    ("more", "code", "part"),
    [
        ({"variant": "fancy"}, "POLICY_UNKNOWN_VALUE", "rack_fault_tolerant"),
        ({"variant": 3}, "POLICY_UNKNOWN_VALUE", "variant"),
        ({"writer": "z9"}, "NODE_UNKNOWN", "'z9'"),
        ({"writer": ["a1"]}, "POLICY_UNKNOWN_VALUE", "writer"),
        ({"writer": "/a//b"}, "LOCATION_MALFORMED", "/a//b"),
        ({"factor": 0}, "POLICY_UNKNOWN_VALUE", "factor"),
        ({"tag": 1}, "POLICY_UNKNOWN_VALUE", "tag"),
        ({"levels": ["1"]}, "POLICY_UNKNOWN_KEY", "levels"),
    ],
)
def test_what_is_wrong_is_named(more, code, part):
    answer = ask_one(racks(a=2, b=2), hdfs(**more))
    assert (answer.outcome, answer.codes) == ("rejected", [code])
    assert part in answer.decision.reasons[0].message


@pytest.mark.parametrize(
    ("given", "added"),
    [
        # One left: another rack.
        (["a1"], "b"),
        # Two in one rack: another one; two racks: that of the first that is left.
        (["a1", "a2"], "b"),
        (["a1", "b1"], "a"),
        (["b1", "a1"], "b"),
    ],
)
def test_a_lost_replica(given, added):
    nodes = racks(a=4, b=4)
    factor = len(given) + 1
    answer = ask_one(nodes, hdfs(writer="b4"), factor=factor, replicas=[given])
    assert answer.replicas[0][:-1] == given
    assert answer.replicas[0][-1][0] == added


def test_a_shard_without_replicas_is_a_new_one():
    asked = hdfs(writer="a1")
    answer = ask_one(racks(a=4, b=4), asked, shards=6, replicas=[["a1", "b1"], []])
    assert answer.replicas[0][2][0] == "a"
    for first, second, third in answer.replicas[1:]:
        assert (first, second[0], third[0]) == ("a1", "b", "b")


def test_repair_asks_the_same():
    core = Reconciler(Configuration())
    nodes = racks(a=3, b=3, c=3)
    core.apply(nodes, 0)
    ready = core.apply([stream(hdfs(writer="a1"))], 0)
    first, second, third = ready.assignments["s", 0].replicas
    dead = [node(n.node_id, n.attributes.location, status="dead") for n in nodes]
    [(move, _)] = core.apply([n for n in dead if n.node_id == second], 1).moves.values()
    assert (first, move.remove, move.add[0]) == ("a1", second, "a")
    assert third[0] == second[0]


def test_rules_filters_and_capacity_are_kept():
    nodes = racks(a=4, b=4, c=4)
    asked = hdfs(writer="a1", avoid=["/b"], rules=[{"at_most": 1, "per": "location"}])
    answer = ask_one(nodes, asked)
    assert (answer.outcome, [sorted(n[0] for n in r) for r in answer.replicas]) == (
        "partial",
        [["a", "c"]],
    )
    asked = hdfs(rules=[{"at_most": 1, "per": "location", "strength": "preferred"}])
    answer = ask_one(nodes, asked, shards=5)
    assert (answer.outcome, [rack_counts(r) for r in answer.replicas]) == (
        "placed",
        [[1, 1, 1]] * 5,
    )
    small = [node(f"{r}{i}", f"/{r}", capacity=1) for r in "ab" for i in range(3)]
    answer = ask_one(small, hdfs(writer="a1"), shards=2)
    assert answer.outcome == "placed"
    assert Counter(n for r in answer.replicas for n in r).most_common(1)[0][1] == 1


def test_random_fleets_keep_the_rules_or_say_why_not():
    """`degraded` exactly where full nodes leave a shard too many in a rack, or too few racks."""
    outcomes = set()
    rng = random.Random(2)
    for _ in range(share(120)):
        nodes = random_nodes(rng)
        place = usable(nodes)
        factor = rng.randint(1, 5)
        for policy in (hdfs(), TOLERANT, hdfs(writer=nodes[0].node_id)):
            asked = stream(policy, factor, 3)
            answer = ask(nodes, asked)["s"]
            assert answer.replicas == ask(rng.sample(nodes, len(nodes)), asked)["s"].replicas
            roomy = all(n.attributes.capacity is None for n in nodes)
            there = len(set(place.values()))
            bent = False
            for replicas in answer.replicas:
                assert len(set(replicas)) == len(replicas)
                assert set(replicas) <= set(place)
                used = Counter(place[name] for name in replicas)
                variant = Variant(policy.get("variant", "default"))
                cap = rack_cap(variant, len(replicas), there)
                wanted = min(there if policy is TOLERANT else 2, len(replicas), there)
                bent |= max(used.values(), default=0) > cap or len(used) < wanted
                if roomy:
                    assert len(replicas) == min(factor, len(place))
            assert not (bent and roomy)
            short = any(len(replicas) < factor for replicas in answer.replicas)
            empty = not any(answer.replicas)
            whole = "degraded" if bent else "placed"
            expected = "waiting" if empty else "partial" if short else whole
            assert answer.outcome == expected, answer
            assert not short or answer.codes == ["NODES_TOO_FEW"]
            outcomes.add(expected)
    assert outcomes == {"placed", "degraded", "partial", "waiting"}
