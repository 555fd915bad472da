"""`simple` answers what Kafka's AdminUtils answers without racks.

Goal: the published tables exactly, and elsewhere an answer that some random start and shift of
Kafka's would give. Method: the rule once more as a formula, tried with every start and shift.
"""

import random
from collections import Counter

import pytest

from tests.builders.drawn import seeds
from tests.builders.placements import ask, ask_one, node, random_nodes, stream, usable


def brokers(count):
    return [node(f"b{number}") for number in range(count)]


def table(count, shards, factor, start, shift):
    """AdminUtils.assignReplicasToBrokersRackUnaware."""
    rows = []
    for shard in range(shards):
        first = (start + shard) % count
        distance = [(shift + shard // count + j) % max(count - 1, 1) for j in range(factor - 1)]
        rows.append([f"b{n}" for n in (first, *((first + 1 + d) % count for d in distance))])
    return rows


def possible(count, replicas):
    """Whether Kafka could have given the answer."""
    shards, factor = len(replicas), len(replicas[0])
    draws = ((start, shift) for start in range(count) for shift in range(count))
    return any(table(count, shards, factor, *draw) == replicas for draw in draws)


def test_the_documented_table():
    """Kafka's javadoc: five brokers, ten partitions, three replicas."""
    answer = ask_one(brokers(5), {"strategy": "simple"}, shards=10)
    assert answer.outcome == "placed"
    listed = "012 123 234 340 401 023 134 240 301 412"
    assert answer.replicas == [[f"b{n}" for n in row] for row in listed.split()]


def test_the_table_of_kafkas_own_test():
    """AdminTest.testReplicaAssignment: start index and shift 0; then 3, as `fixedStartIndex`."""
    for start in (0, 3):
        policy = {"strategy": "simple", "start": start}
        answer = ask_one(brokers(5), policy, shards=10)
        assert answer.replicas == table(5, 10, 3, start, start)


def test_racks_are_not_looked_at():
    nodes = [node(f"b{number}", "/one" if number < 3 else "/two") for number in range(4)]
    assert ask_one(nodes, {"strategy": "simple"}).replicas == [["b0", "b1", "b2"]]


@pytest.mark.parametrize("count", [1, 2, 5, 7])
@pytest.mark.parametrize("shards", [1, 4, 15])
def test_beside_other_streams_it_is_still_an_answer_of_kafka(count, shards):
    """Method: an uneven load first, so that start and shift are chosen by load."""
    rng = random.Random(count * 100 + shards)
    for factor in {1, min(3, count)}:
        loads = [[f"b{rng.randrange(count)}"] for _ in range(9)]
        before = stream({"strategy": "simple"}, 1, 9, "before", replicas=loads)
        answer = ask(brokers(count), before, stream({"strategy": "simple"}, factor, shards))["s"]
        assert answer.outcome == "placed"
        assert possible(count, answer.replicas)


def test_less_loaded_nodes_are_used_first():
    before = stream({"strategy": "simple"}, 2, 2, "before", replicas=[["b0", "b1"], ["b1", "b3"]])
    answers = ask(brokers(6), before, stream({"strategy": "simple"}, 2))
    assert set(answers["s"].replicas[0]) <= {"b2", "b4", "b5"}


def test_a_thousand_small_streams_do_not_all_start_on_the_first_node():
    streams = [stream({"strategy": "simple"}, 3, name=f"s{n}") for n in range(100)]
    answers = ask(brokers(10), *streams)
    leads = Counter(answer.replicas[0][0] for answer in answers.values())
    held = Counter(n for answer in answers.values() for n in answer.replicas[0])
    assert max(leads.values()) - min(leads.values()) <= 1
    assert max(held.values()) - min(held.values()) <= 6


def test_shards_and_replicas_added_go_on_where_the_first_ended():
    """The start is inferred from shard 0, the shift from its second replica."""
    whole = table(5, 12, 3, 2, 1)
    given = [whole[0], whole[1][:2], *([row[:1] for row in whole[2:4]])]
    answer = ask_one(brokers(5), {"strategy": "simple"}, shards=12, replicas=given)
    assert (answer.outcome, answer.replicas) == ("placed", whole)


def test_without_enough_nodes_it_is_rejected():
    """Kafka: "Replication factor: 3 larger than available brokers: 2"; a fenced or dead broker is
    not available."""
    nodes = [node("b0"), node("b1"), node("b2", status="dead"), node("b3", status="suspect")]
    answer = ask_one(nodes, {"strategy": "simple"})
    assert (answer.outcome, answer.codes) == ("rejected", ["NODES_TOO_FEW"])
    [reason] = answer.decision.reasons
    assert (reason.need, reason.have) == (3, 2)
    assert ask_one(nodes, {"strategy": "simple", "on_infeasible": "wait"}).outcome == "waiting"
    partial = ask_one(nodes, {"strategy": "simple", "on_infeasible": "partial"})
    assert (partial.outcome, sorted(partial.replicas[0])) == ("partial", ["b0", "b1"])


@pytest.mark.parametrize("start", [-1, 1.5, "2", True])
def test_a_wrong_start_is_named(start):
    answer = ask_one(brokers(3), {"strategy": "simple", "start": start})
    assert (answer.outcome, answer.codes) == ("rejected", ["POLICY_UNKNOWN_VALUE"])
    assert "'start'" in answer.decision.reasons[0].message


def test_filters_rules_and_leaders_are_kept():
    nodes = [node(f"b{n}", f"/r{n % 3}", leader=n != 0) for n in range(6)]
    policy = {"strategy": "simple", "nodes": ["b0", "b1", "b3", "b5"]}
    answer = ask_one(nodes, policy, factor=2, shards=6)
    assert {n for row in answer.replicas for n in row} == {"b0", "b1", "b3", "b5"}
    assert Counter(row[0] for row in answer.replicas) == {"b1": 2, "b3": 2, "b5": 2}
    policy = {"strategy": "simple", "rules": [{"at_most": 1, "per": "location"}]}
    answer = ask_one(nodes, policy, factor=3, shards=6)
    assert answer.outcome == "placed"
    assert all(len({int(n[1:]) % 3 for n in row}) == 3 for row in answer.replicas)
    policy["rules"] = [{"leader_in": ["/r2"]}, {"colocate": "slots"}]
    answer = ask_one(nodes, policy, factor=3, shards=2)
    assert answer.replicas[0] == answer.replicas[1]
    assert answer.replicas[0][0] in ("b2", "b5")


@pytest.mark.parametrize("seed", seeds(60))
def test_on_any_fleet_it_is_placed_or_says_why(seed):
    """Also: the same answer for another order of nodes."""
    rng = random.Random(seed)
    nodes = random_nodes(rng)
    factor, shards = rng.randint(1, 4), rng.randint(1, 5)
    answer = ask_one(nodes, {"strategy": "simple"}, factor=factor, shards=shards)
    mixed = rng.sample(nodes, len(nodes))
    again = ask_one(mixed, {"strategy": "simple"}, factor=factor, shards=shards)
    assert (again.outcome, again.replicas) == (answer.outcome, answer.replicas)
    if answer.outcome == "rejected":
        assert answer.codes
        return
    may_lead = {each.node_id for each in nodes if each.attributes.leader}
    room = {each.node_id: each.attributes.capacity for each in nodes}
    held = Counter(n for row in answer.replicas for n in row)
    assert all(
        len(set(row)) == factor and set(row) <= set(usable(nodes)) for row in answer.replicas
    )
    assert all(row[0] in may_lead for row in answer.replicas)
    assert all(room[n] is None or held[n] <= room[n] for n in held)
