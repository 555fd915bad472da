"""`network_topology` answers what Cassandra's NetworkTopologyStrategy answers.

Goal: the exact list for any ring. Method: the rule of `NetworkTopologyStrategy.java` once more as
plain Python over lists, on random rings; the published corner cases; and what Cassandra does not
say (a datacenter with too few nodes) as outcomes.
"""

import random
from collections import Counter

import pytest

from placement.model import Configuration
from placement.reconciler import Reconciler
from schemas.cluster import Cluster, ClusterStream, RefusedStream, parse_cluster
from tests.builders.drawn import share
from tests.builders.placements import ask_one, node, random_nodes, stream, usable


def policy(_name="network_topology", **replication):
    return {"strategy": _name, "replication": replication}


def natural_replicas(ring, token, replication):
    """`ring`: (token, node, datacenter, rack) in any order. The walk, as the source has it."""
    ring = sorted(ring)
    first = next((i for i, entry in enumerate(ring) if entry[0] >= token), 0)
    nodes = {dc: {n for _, n, d, _ in ring if d == dc} for dc in replication}
    racks = {dc: {r for _, _, d, r in ring if d == dc} for dc in replication}
    left = {dc: min(count, len(nodes[dc])) for dc, count in replication.items()}
    repeats = {dc: count - len(racks[dc]) for dc, count in replication.items()}
    taken, seen = [], set()
    for _, name, dc, rack in ring[first:] + ring[:first]:
        if left.get(dc, 0) == 0 or name in taken:
            continue
        if (dc, rack) in seen:
            if repeats[dc] <= 0:
                continue
            repeats[dc] -= 1
        seen.add((dc, rack))
        taken.append(name)
        left[dc] -= 1
    return taken


def test_random_rings_give_the_lists_of_the_source():
    rng = random.Random(4)
    for _ in range(share(75)):
        names = [(f"n{i}", f"dc{rng.randint(1, 3)}", f"r{rng.randint(1, 4)}") for i in range(12)]
        tokens = rng.sample(range(-500, 500), 36)
        ring = [(token, *names[i % 12]) for i, token in enumerate(tokens)]
        nodes = [
            node(name, f"/{dc}/{rack}", tokens[i::12]) for i, (name, dc, rack) in enumerate(names)
        ]
        known = sorted({dc for _, dc, _ in names})
        replication = {dc: rng.randint(0, 5) for dc in known}
        replication[known[0]] += 1
        starts = [rng.randint(-600, 600) for _ in range(8)]
        answer = ask_one(
            nodes,
            policy(**replication),
            factor=sum(replication.values()),
            shards=8,
            tokens=starts,
        )
        expected = [natural_replicas(ring, start, replication) for start in starts]
        assert answer.replicas == expected
        short = len(expected[0]) < sum(replication.values())
        assert answer.outcome == ("partial" if short else "placed")


def test_cassandras_own_ring():
    """`NetworkTopologyStrategyTest.testProperties`: string tokens, DC1: 3, DC2: 2, DC3: 1."""
    owners = {
        "123": ("0", "10.0.0.10"),
        "234": ("0", "10.0.0.11"),
        "345": ("0", "10.0.0.12"),
        "789": ("20", "10.20.114.10"),
        "890": ("20", "10.20.114.11"),
        "456": ("21", "10.21.119.13"),
        "567": ("21", "10.21.119.10"),
        "90A": ("0", "10.0.0.13"),
        "0AB": ("21", "10.21.119.14"),
        "ABC": ("20", "10.20.114.15"),
    }
    nodes = [
        node(address, f"/{dc}/{address.split('.')[2]}", [token])
        for token, (dc, address) in owners.items()
    ]
    asked = {"0": 3, "20": 2, "21": 1}
    [replicas] = ask_one(nodes, policy(**asked), factor=6, tokens=["123"]).replicas
    assert replicas == [
        *("10.0.0.10", "10.0.0.11", "10.0.0.12"),
        *("10.21.119.13", "10.20.114.10", "10.20.114.11"),
    ]


RACKS = [
    *(node(f"A{i}", "/dc1/A", [i]) for i in range(5)),
    *(node(f"B{i}", "/dc1/B", [10 + i]) for i in range(3)),
    *(node(f"C{i}", "/dc1/C", [20 + i]) for i in range(3)),
]


@pytest.mark.parametrize(
    ("count", "start", "expected"),
    [
        (1, 2, "A2"),
        (3, 3, "A3 B0 C0"),
        # One repeat: the first that is met, in its place in the walk.
        (4, 0, "A0 A1 B0 C0"),
        (4, 4, "A4 B0 B1 C0"),
        # More replicas than racks are not spread evenly: 3/3/2 is folklore.
        (8, 0, "A0 A1 A2 A3 A4 B0 B1 C0"),
        (8, 10, "B0 B1 B2 C0 C1 C2 A0 A1"),
        # The start is inclusive, and wraps.
        (2, 22, "C2 A0"),
        (2, 23, "A0 B0"),
    ],
)
def test_rack_repeats(count, start, expected):
    answer = ask_one(RACKS, policy(dc1=count), factor=count, tokens=[start])
    assert (answer.outcome, answer.replicas) == ("placed", [expected.split()])


def test_a_rack_belongs_to_its_datacenter():
    nodes = [node("a", "/dc1/r1", [1]), node("b", "/dc2/r1", [2]), node("c", "/dc1/r1/x", [3])]
    answer = ask_one(nodes, policy(dc1=2, dc2=1), tokens=[0])
    assert answer.replicas == [["a", "b", "c"]]


def test_too_few_nodes_leave_slots_empty_and_say_where():
    answer = ask_one([*RACKS, node("D0", "/dc2", [99])], policy(dc1=2, dc2=3), factor=5, tokens=[0])
    assert (answer.outcome, answer.replicas) == ("partial", [["A0", "B0", "D0"]])
    [reason] = answer.decision.reasons
    assert (reason.code, reason.need, reason.have, reason.seen) == (
        "NODES_TOO_FEW",
        3,
        1,
        ("/dc2",),
    )
    assert "/dc2 has nodes for 1 of 3" in reason.message


def test_a_dead_datacenter_is_known_and_waited_for():
    nodes = [node("a", "/dc1", [1], "dead"), node("b", "/dc2", [2])]
    assert ask_one(nodes, policy(dc1=1), factor=1).outcome == "waiting"
    answer = ask_one(nodes, policy(dc1=1, dc2=1), factor=2)
    assert (answer.outcome, answer.replicas) == ("partial", [["b"]])


def test_a_rack_without_usable_nodes_leaves_its_place_to_repeats():
    nodes = [n if n.node_id[0] != "C" else node(n.node_id, "/dc1/C", [50], "dead") for n in RACKS]
    assert ask_one(nodes, policy(dc1=3), tokens=[3]).replicas == [["A3", "A4", "B0"]]


@pytest.mark.parametrize(
    ("asked", "factor", "code", "part"),
    [
        ({"replication": {"dc1": 2, "dcX": 1}}, 3, "DOMAIN_UNKNOWN", "'dcX'"),
        ({"replication": {"dc1": 2}}, 3, "REPLICATION_FACTOR_OUT_OF_RANGE", "adds up to 2"),
        ({"replication": {"dc1": "1/1"}}, 1, "POLICY_UNKNOWN_VALUE", "replication.dc1"),
        ({"replication": {"dc1": -1}}, 1, "POLICY_UNKNOWN_VALUE", "'-1'"),
        ({"replication": {"dc1": True}}, 1, "POLICY_UNKNOWN_VALUE", "'True'"),
        ({"replication": {"dc1": 1, "/dc1": 2}}, 3, "POLICY_MALFORMED", "twice"),
        ({"replication": {}}, 3, "POLICY_MALFORMED", "replication"),
        ({}, 3, "POLICY_MALFORMED", "replication"),
        ({"replication": {"dc1": 3}, "vnodes": 0}, 3, "POLICY_UNKNOWN_VALUE", "vnodes"),
        ({"replication": {"dc1": 3}, "levels": ["1"]}, 3, "POLICY_UNKNOWN_KEY", "levels"),
    ],
)
def test_what_is_wrong_is_named(asked, factor, code, part):
    answer = ask_one(RACKS, {"strategy": "cassandra"} | asked, factor=factor)
    assert (answer.outcome, answer.codes) == ("rejected", [code])
    assert part in answer.decision.reasons[0].message


def test_a_count_of_zero_names_no_datacenter():
    asked = {"strategy": "network_topology", "replication": {"/dc1": "2", "gone": 0}}
    assert ask_one(RACKS, asked, factor=2, tokens=[0]).replicas == [["A0", "B0"]]


def test_a_refused_request_is_refused_with_its_replicas_too():
    answer = ask_one(RACKS, policy(dcX=1), factor=1, replicas=[["A0"]])
    assert (answer.outcome, answer.codes) == ("rejected", ["DOMAIN_UNKNOWN"])


def test_the_replication_factor_is_the_sum_where_it_is_not_given():
    document = {
        "nodes": [{"id": "a", "location": "/dc1"}],
        "streams": [
            {"stream": "s", "shards": 1, "policy": policy(dc1=2, dc2="1")},
            {"stream": "t", "shards": 1, "policy": {"strategy": "spread"}},
        ],
    }
    cluster = parse_cluster(document)
    assert isinstance(cluster, Cluster)
    added, missing = cluster.streams
    assert isinstance(added, ClusterStream)
    assert added.replication_factor == 3
    assert isinstance(missing, RefusedStream)
    assert missing.field == "streams[1].replication_factor"


def test_tokens_are_numbers_or_texts_and_stand_in_that_order():
    for tokens, start, expected in (([9, 10], 1, ["a"]), (["9", "10"], "1", ["b"])):
        nodes = [node("a", "/dc1/r1", tokens[:1]), node("b", "/dc1/r2", tokens[1:])]
        assert ask_one(nodes, policy(dc1=1), factor=1, tokens=[start]).replicas == [expected]


@pytest.mark.parametrize(
    ("nodes", "tokens", "code", "part"),
    [
        ([node("a", "/dc1", [1]), node("b", "/dc1", ["x"])], None, "POLICY_MALFORMED", "'b' has"),
        ([node("a", "/dc1", [1])], ["x"], "POLICY_MALFORMED", "shard_tokens has strings"),
        ([node("a", "/dc1", [1])], [1, 2], "SHARDS_OUT_OF_RANGE", "2 tokens"),
    ],
)
def test_tokens_that_are_no_ring_are_refused(nodes, tokens, code, part):
    answer = ask_one(nodes, policy(dc1=1), factor=1, tokens=tokens)
    assert (answer.outcome, answer.codes) == ("rejected", [code])
    assert part in answer.decision.reasons[0].message


def test_a_node_without_tokens_is_not_on_the_ring():
    nodes = [node("a", "/dc1/r1", [1]), node("b", "/dc1/r2"), node("c", "/dc1/r3", [])]
    answer = ask_one(nodes, policy(dc1=2), factor=2)
    assert (answer.outcome, answer.replicas) == ("partial", [["a"]])


def test_the_users_rules_are_kept():
    asked = policy(dc1=4) | {"rules": [{"at_most": 1, "per": "location"}]}
    answer = ask_one(RACKS, asked, factor=4, tokens=[0])
    assert (answer.outcome, answer.replicas) == ("partial", [["A0", "B0", "C0"]])
    asked = policy(dc1=2) | {"avoid": ["/dc1/B"]}
    assert ask_one(RACKS, asked, factor=2, tokens=[0]).replicas == [["A0", "C0"]]


@pytest.mark.parametrize(
    ("lost", "remove", "add"),
    [
        # The rack that has no replica now comes first, the repeat is used up.
        ("B0", "B0", "B1"),
        ("B0 B1", "B0", "B2"),
        # Two racks are left, and four replicas: one more repeat, the first of the walk.
        ("C0 C1 C2", "C0", "A2"),
        ("A0", "A0", "A2"),
    ],
)
def test_a_lost_replica_is_followed_by_the_next_of_the_walk(lost, remove, add):
    core = Reconciler(Configuration())
    core.apply(RACKS, 0)
    ready = core.apply([stream(policy(dc1=4), 4, tokens=[0])], 0)
    assert ready.assignments["s", 0].replicas == ("A0", "A1", "B0", "C0")
    died = [node(n, f"/dc1/{n[0]}", [50], "dead") for n in lost.split()]
    [(move, _)] = core.apply(died, 1).moves.values()
    assert (move.remove, move.add) == (remove, add)


def test_without_tokens_shards_are_spread_and_racks_kept():
    nodes = [node(f"n{i}", f"/dc{i % 2}/r{i % 3}") for i in range(12)]
    answer = ask_one(nodes, policy(dc0=3, dc1=2), factor=5, shards=200)
    place = usable(nodes)
    for replicas in answer.replicas:
        assert Counter(place[n].split("/")[1] for n in replicas) == {"dc0": 3, "dc1": 2}
        assert len({place[n] for n in replicas}) == 5
    held = Counter(name for replicas in answer.replicas for name in replicas)
    assert len(held) == 12
    assert max(held.values()) < 4 * min(held.values())


def test_random_fleets_keep_the_counts_or_say_why_not():
    """`degraded` exactly where full nodes keep replicas of a datacenter out of its racks."""
    outcomes = set()
    rng = random.Random(8)
    for _ in range(share(120)):
        nodes = random_nodes(rng)
        place = usable(nodes)
        known = sorted({n.attributes.location.split("/")[1] for n in nodes})
        asked = {dc: rng.randint(1, 3) for dc in known}
        answer = ask_one(nodes, policy(**asked), factor=sum(asked.values()), shards=4)
        again = ask_one(nodes[::-1], policy(**asked), factor=sum(asked.values()), shards=4)
        assert answer.replicas == again.replicas
        for replicas in answer.replicas:
            held = Counter(place[n].split("/")[1] for n in replicas)
            assert len(set(replicas)) == len(replicas)
            assert all(held[dc] <= count for dc, count in asked.items())
        roomy = all(n.attributes.capacity is None for n in nodes)
        bent = False
        for dc, count in asked.items():
            there = sum(place[n].split("/")[1] == dc for n in place)
            racks = {path for path in place.values() if path.split("/")[1] == dc}
            for replicas in answer.replicas:
                held = [n for n in replicas if place[n].split("/")[1] == dc]
                bent |= len({place[n] for n in held}) < min(len(held), len(racks))
                assert len(held) == min(count, there) or not roomy
        assert not (bent and roomy)
        whole = all(len(replicas) == sum(asked.values()) for replicas in answer.replicas)
        placed = "degraded" if bent else "placed"
        expected = placed if whole else "partial" if any(answer.replicas) else "waiting"
        assert answer.outcome == expected, answer
        assert whole or answer.codes == ["NODES_TOO_FEW"]
        outcomes.add(expected)
    assert outcomes == {"placed", "degraded", "partial", "waiting"}
