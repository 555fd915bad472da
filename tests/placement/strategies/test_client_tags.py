"""Client tags: the cases of Kafka's own test, KIP-708's example, and a brute force over sets."""

import random
from collections import Counter
from itertools import combinations, permutations

import pytest

from placement.model import Liveness
from tests.builders.drawn import seeds
from tests.builders.placements import ON_INFEASIBLE, ask, ask_stream, stream, tagged_node


def tagged(*keys, **given):
    return {"strategy": "client_tags", "rack_aware_tags": list(keys), **given}


def grid(clusters=3, threads=2):
    """Nodes 1 to 9 (or 6): three zones in each cluster, as in Kafka's test."""
    return [
        tagged_node(f"{3 * c + z + 1}", cluster=f"c{c + 1}", zone=f"z{z + 1}", weight=threads)
        for c in range(clusters)
        for z in range(3)
    ]


BOTH = tagged("zone", "cluster")
SAME_ZONE = {"1": ("59", "68"), "4": ("29", "38"), "7": ("35", "26")}
SAME_CLUSTER = {"1": ("59", "68"), "2": ("49", "67"), "3": ("57", "48")}
IDEAL = {1: "59 68", 2: "49 67", 3: "48 57", 4: "29 38", 5: "19 37", 6: "18 27"}
IDEAL |= {7: "26 35", 8: "16 34", 9: "15 24"}


def standbys(shard):
    return "".join(sorted(shard[1:]))


@pytest.mark.parametrize("active", range(1, 10))
def test_the_example_of_the_kip(active):
    """One active task, two standbys: another cluster and another zone each."""
    outcome, [shard], _ = ask_stream(grid(), stream(BOTH, 3, replicas=[[str(active)]]))
    assert (outcome, shard[0]) == ("placed", str(active))
    assert standbys(shard) in IDEAL[active].split()


@pytest.mark.parametrize("ideal", [SAME_ZONE, SAME_CLUSTER])
def test_standbys_are_ideal_and_even_in_every_order_of_the_tasks(ideal):
    """shouldDistributeStandbyTasksWhenActiveTasksAreLocatedOnSame{Zone,Cluster}: in Kafka the load
    is even in 560 of 720 orders only."""
    orders = sorted(set(permutations([*ideal] * 2)))
    assert len(orders) == 90
    for order in orders:
        outcome, shards, _ = ask_stream(
            grid(), stream(BOTH, 3, shards=6, replicas=[[each] for each in order])
        )
        assert outcome == "placed"
        assert all(standbys(shard) in ideal[shard[0]] for shard in shards), order
        load = Counter(each for shard in shards for each in shard)
        assert [load[str(each)] for each in range(1, 10)] == [2] * 9, order


def test_a_task_has_the_same_standbys_whatever_the_order_of_the_tasks():
    found = set()
    for seed in range(6):
        order = random.Random(seed).sample("1234567", 7)
        _, shards, _ = ask_stream(
            grid(), stream(BOTH, 3, shards=7, replicas=[[each] for each in order])
        )
        found.add(tuple(sorted(map(tuple, shards))))
    assert len(found) == 1


def test_a_complete_list_beside_short_ones_stays_as_it_is():
    given = [["1", "5", "9"], ["2"]]
    outcome, shards, _ = ask_stream(grid(), stream(BOTH, 3, shards=9, replicas=given))
    assert (outcome, shards[0], shards[1][0]) == ("placed", ["1", "5", "9"], "2")
    assert {len(shard) for shard in shards} == {3}
    assert set(Counter(each for shard in shards for each in shard).values()) == {3}


def test_streams_are_tasks_too():
    """One task a stream, in some orders of the streams."""
    tasks = [stream(BOTH, 3, name=f"t{i}", replicas=[[each]]) for i, each in enumerate("114477")]
    for seed in seeds(20):
        answers = ask(grid(), *random.Random(seed).sample(tasks, 6))
        load = Counter(each for _, [shard], _ in answers.values() for each in shard)
        assert [load[str(each)] for each in range(1, 10)] == [2] * 9


def test_partial_rack_awareness():
    """shouldDoThePartialRackAwareness: two clusters for three copies, so that only the zones are
    all different, and both clusters are used."""
    policy = tagged("cluster", "zone")
    asked = stream(policy, 3, shards=2, replicas=[["1"], ["6"]])
    outcome, shards, decision = ask_stream(grid(2, 1), asked)
    assert (outcome, [w.code for w in decision.warnings]) == ("degraded", ["RULE_NOT_MET"])
    assert "cluster" in decision.warnings[0].message
    assert standbys(shards[0]) in ("35", "56")
    assert standbys(shards[1]) in ("24", "12")


def test_zones_differ_when_clusters_cannot():
    """shouldDistributeClientsOnDifferentZoneTagsEvenWhenClientsReachedCapacity."""
    nodes = [tagged_node(f"{i}", zone=f"z{(i - 1) % 3}", cluster="c1") for i in range(1, 7)]
    actives = [[f"{i}"] for i in (1, 4, 2, 5, 3, 6)]
    outcome, shards, _ = ask_stream(nodes, stream(BOTH, 2, shards=6, replicas=actives))
    assert outcome == "degraded"
    assert all((int(a) - int(s)) % 3 for a, s in shards)
    assert Counter(shard[1] for shard in shards) == dict.fromkeys("123456", 1)


def test_tags_that_are_not_listed_are_ignored():
    """shouldIgnoreTagsThatAreNotPresentInRackAwareness."""
    nodes = [
        tagged_node("1", cluster="c1", zone="z1"),
        tagged_node("2", cluster="c1", zone="z2", weight=2),
        tagged_node("3", cluster="c2", zone="z1"),
    ]
    asked = stream(tagged("cluster"), 2, replicas=[["1"]])
    assert ask_stream(nodes, asked)[:2] == ("placed", [["1", "3"]])


def test_values_of_different_keys_do_not_clash():
    """shouldHandleOverlappingTagValuesBetweenDifferentTagKeys."""
    nodes = [tagged_node("1", zone="z1", cluster="c1"), tagged_node("2", zone="c1", cluster="c3")]
    assert ask_stream(nodes, stream(BOTH, 2, replicas=[["1"]]))[:2] == ("placed", [["1", "2"]])


def test_chains_of_moves_keep_the_load_even_in_any_order():
    """The case above in other orders of the tasks: Kafka evens out 520 of 720."""
    nodes = [tagged_node(f"{i}", zone=f"z{(i - 1) % 3}", cluster="c1") for i in range(1, 7)]
    for seed in seeds(40):
        order = random.Random(seed).sample("123456", 6)
        _, shards, _ = ask_stream(
            nodes, stream(BOTH, 2, shards=6, replicas=[[each] for each in order])
        )
        assert all((int(a) - int(s)) % 3 for a, s in shards)
        assert Counter(shard[1] for shard in shards) == dict.fromkeys("123456", 1)


def test_equal_tags_leave_only_load():
    """shouldDistributeStandbyTasksOnLeastLoadedClientsWhenClientsAreNotOnDifferentTagDimensions."""
    nodes = [tagged_node(f"{i}", zone="z1", cluster="c1", weight=3) for i in range(1, 5)]
    _, shards, _ = ask_stream(
        nodes, stream(BOTH, 2, shards=4, replicas=[[f"{i}"] for i in range(1, 5)])
    )
    assert Counter(shard[1] for shard in shards) == dict.fromkeys("1234", 1)


def test_too_few_nodes_leave_standbys_out():
    """shouldNotAssignStandbyTasksIfThereAreNoEnoughClients, and one more."""
    nodes = [tagged_node("1", zone="z1", cluster="c1")]
    outcome, shards, decision = ask_stream(nodes, stream(BOTH, 2, replicas=[["1"]]))
    assert (outcome, shards) == ("partial", [["1"]])
    assert [reason.code for reason in decision.reasons] == ["NODES_TOO_FEW"]
    outcome, [shard], _ = ask_stream(grid(1), stream(BOTH, 5))
    assert (outcome, sorted(shard)) == ("partial", ["1", "2", "3"])


def test_an_ideal_set_is_found_that_greed_misses():
    """From n1 the least loaded fit, n2, fits neither n3 nor n4; these two fit each other."""
    nodes = [
        tagged_node("n1", zone="a", rack="1"),
        tagged_node("n2", zone="b", rack="2", weight=4),
        tagged_node("n3", zone="b", rack="3"),
        tagged_node("n4", zone="c", rack="2"),
    ]
    asked = stream(tagged("zone", "rack"), 3, replicas=[["n1"]])
    outcome, [shard], _ = ask_stream(nodes, asked)
    assert (outcome, shard[0], sorted(shard[1:])) == ("placed", "n1", ["n3", "n4"])


def test_copies_are_as_even_as_can_be():
    """Five copies over three zones: 2/2/1, where Kafka stacks 3/1/1."""
    nodes = [tagged_node(f"{z}{i}", zone=z) for z in "abc" for i in range(5)]
    for active in ("a0", "c4"):
        outcome, [shard], _ = ask_stream(nodes, stream(tagged("zone"), 5, replicas=[[active]]))
        assert sorted(Counter(each[0] for each in shard).values()) == [1, 2, 2]
        assert outcome == "degraded"


def test_the_first_named_of_two_keys_is_kept():
    nodes = [
        tagged_node("n1", zone="a", rack="1"),
        tagged_node("n2", zone="a", rack="2"),
        tagged_node("n3", zone="b", rack="1"),
    ]
    for keys, expected in ((("zone", "rack"), "n3"), (("rack", "zone"), "n2")):
        asked = stream(tagged(*keys), 2, replicas=[["n1"]])
        assert ask_stream(nodes, asked)[1] == [["n1", expected]]


def test_weight_is_capacity():
    """Twice the threads, twice the tasks."""
    nodes = [tagged_node(f"{z}{i}", zone=z, weight=1 + i) for z in "ab" for i in range(2)]
    _, shards, _ = ask_stream(nodes, stream(tagged("zone"), 2, shards=30))
    load = Counter(each for shard in shards for each in shard)
    assert load == {"a0": 10, "a1": 20, "b0": 10, "b1": 20}


def test_nodes_without_a_tag_come_last():
    nodes = [
        tagged_node("n1", zone="a"),
        tagged_node("n2", zone="b", weight=0.1),
        tagged_node("n3", weight=9),
    ]
    asked = stream(tagged("zone"), 2, replicas=[["n1"]])
    assert ask_stream(nodes, asked)[:2] == ("placed", [["n1", "n2"]])
    asked = stream(tagged("zone"), 3, replicas=[["n1"]])
    assert ask_stream(nodes, asked)[:2] == ("placed", [["n1", "n2", "n3"]])


LONG = "v" * 31


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        (["zone", "rack"], "LEVEL_UNKNOWN"),
        (["zone", "dead"], "LEVEL_UNKNOWN"),
        (["a", "b", "c", "d", "e", "f"], "POLICY_MALFORMED"),
        (["k" * 21], "POLICY_MALFORMED"),
        (["long"], "POLICY_MALFORMED"),
    ],
)
@pytest.mark.parametrize("replicas", [None, [["n1"]]])
def test_what_cannot_be_meant_is_refused(keys, code, replicas):
    nodes = [tagged_node("n1", zone="a", long=LONG), tagged_node("n2", zone="b")]
    nodes.append(tagged_node("n3", zone="c", dead="x", status="dead"))
    asked = stream(tagged(*keys, on_infeasible="wait"), 2, replicas=replicas)
    outcome, _, decision = ask_stream(nodes, asked)
    assert (outcome, decision.reasons[0].code) == ("rejected", code)


def test_the_limits_themselves_are_allowed():
    keys = ["k" * 20, "a", "b", "c", "d"]
    nodes = [tagged_node(f"n{i}", **dict.fromkeys(keys, f"{i}" + "v" * 29)) for i in range(2)]
    assert ask_stream(nodes, stream(tagged(*keys), 2))[0] == "placed"


@pytest.mark.parametrize(("mode", "outcome"), ON_INFEASIBLE)
def test_on_infeasible(mode, outcome):
    count = {"partial": 2, "degraded": 3}.get(outcome, 0)
    nodes = [tagged_node(f"n{i}", zone="ab"[i % 2]) for i in range(6)]
    said, [replicas], _ = ask_stream(nodes, stream(tagged("zone", on_infeasible=mode), 3))
    assert (said, len(replicas)) == (outcome, count)


def test_rules_of_the_user_are_never_broken():
    nodes = [tagged_node(f"n{i}", f"/r{i % 2}", zone=f"z{i}") for i in range(6)]
    policy = tagged("zone", rules=[{"at_most": 1, "per": "location"}])
    outcome, [replicas], _ = ask_stream(nodes, stream(policy, 3))
    assert (outcome, len(replicas)) == ("partial", 2)
    policy = tagged("zone", nodes=["n1", "n3", "n5"])
    assert sorted(ask_stream(nodes, stream(policy, 3))[1][0]) == ["n1", "n3", "n5"]


def quality(chosen, tags, keys):
    """(replicas, keys lost, the first ones, pairs by key): more, then less, is better."""
    counts = [Counter(tags[n][key] for n in chosen if key in tags[n]).values() for key in keys]
    pairs = [sum(c * (c - 1) // 2 for c in each) for each in counts]
    return (-len(chosen), sum(p > 0 for p in pairs), [p > 0 for p in pairs], pairs)


@pytest.mark.parametrize("seed", seeds(60))
def test_no_set_is_better_and_the_order_does_not_matter(seed):
    """Brute force over all sets, for given actives and none, over uneven random fleets."""
    rng = random.Random(seed)
    keys = ["zone", "rack", "row"][: rng.randint(1, 3)]
    nodes = [
        tagged_node(
            f"n{i}",
            status=rng.choice(["up"] * 4 + ["dead", "suspect"]),
            weight=rng.choice([1, 2]),
            **{key: rng.choice("abcd") for key in keys if i == 0 or rng.random() < 0.9},
        )
        for i in range(rng.randint(2, 9))
    ]
    nodes[0] = tagged_node("n0", **dict.fromkeys(keys, "a"))
    factor = rng.randint(2, 5)
    up = [n.node_id for n in nodes if n.liveness is Liveness.UP]
    given = rng.choice([None, [["n0"], [rng.choice(up)]]])
    asked = stream(tagged(*keys), factor, shards=2, replicas=given)
    _, shards, _ = ask_stream(nodes, asked)
    tags = {n.node_id: dict(n.attributes.tags) for n in nodes}
    for shard, start in zip(shards, given or [[], []], strict=True):
        rest = sorted(set(up) - set(start))
        assert shard[: len(start)] == start
        size = min(factor - len(start), len(rest))
        best = min(quality([*start, *more], tags, keys) for more in combinations(rest, size))
        assert quality(shard, tags, keys) == best
    for _ in range(3):
        assert ask_stream(rng.sample(nodes, len(nodes)), asked)[1] == shards
