"""`striped` keeps what Kafka's StripedReplicaPlacer promises, and what it does not.

Goal: the pattern of its documentation and the published answers that depend on no lot; rack
spread before broker spread before fencing on any fleet; even leaders. Method: cases of
StripedReplicaPlacerTest and AdminRackAwareTest; properties over random racks.
"""

import random
from collections import Counter

import pytest

from placement.model import Liveness
from tests.builders.drawn import seeds
from tests.builders.placements import ask, ask_one, node, random_nodes, stream, usable

KAFKA = {"strategy": "striped"}


def racks(**members):
    """Nodes by rack, `~` in front of a fenced one."""
    return [
        node(name.lstrip("~"), f"/{rack}", status="suspect" if name[0] == "~" else "up")
        for rack, names in members.items()
        for name in names.split()
    ]


def spread(replicas, nodes):
    """How many replicas each rack has, shard by shard."""
    at = {each.node_id: each.attributes.location for each in nodes}
    return [Counter(at[n] for n in row) for row in replicas]


def even(counts):
    return max(counts) - min(counts) <= 1


ABC = racks(A="A0 A1 A2", B="B0 B1 B2", C="C0 C1 C2")
TWELVE = racks(r1="0 1 2 3", r2="4 5 6 7", r3="8 9 10 11")


def test_the_documented_stripes():
    answer = ask_one(ABC, KAFKA, shards=3)
    assert [" ".join(row) for row in answer.replicas] == ["A0 B0 C0", "B1 C1 A1", "C2 A2 B2"]


def test_start_turns_the_stripes():
    answer = ask_one(ABC, KAFKA | {"start": 1}, shards=2)
    assert [" ".join(row) for row in answer.replicas] == ["B1 C1 A1", "C2 A2 B2"]


def test_the_alias():
    assert ask_one(ABC, {"strategy": "kafka"}).replicas == [["A0", "B0", "C0"]]


def test_new_partitions_go_on_where_the_last_ended():
    """KAFKA-14437, testPlaceShiftsInitialOffsetsRackAware, to the letter."""
    answer = ask_one(TWELVE, KAFKA, shards=4, replicas=[["6", "8", "2"], ["9", "3", "7"]])
    assert answer.replicas[2:] == [["0", "4", "10"], ["5", "11", "1"]]


def test_new_partitions_use_unused_racks():
    """testPlaceShiftsInitialOffsetsRackAwareAndUsesUnusedRacks."""
    nodes = racks(r1="0", r2="1", r3="2", r4="3")
    rows = [["0", "1"], ["1", "2"], ["2", "3"], ["3", "0"]]
    for known in range(4):
        assert ask_one(nodes, KAFKA, factor=2, shards=4, replicas=rows[:known]).replicas == rows


def test_leaders_stay_even_over_many_calls():
    """Kafka: 99 calls for one partition over three racks gave leaders 38/32/29."""
    rows = []
    nodes = racks(r1="0", r2="1", r3="2")
    for shards in range(1, 100):
        rows = ask_one(nodes, KAFKA, shards=shards, replicas=rows).replicas
    assert Counter(row[0] for row in rows) == {"0": 33, "1": 33, "2": 33}


def test_unequal_racks_have_equal_leaders():
    """Kafka: of racks with 10, 10 and 1 brokers the lone one leads 70 of 210 partitions."""
    tens = {rack: " ".join(f"{rack}{n}" for n in range(10)) for rack in "ab"}
    nodes = racks(**tens, c="c0")
    answer = ask_one(nodes, KAFKA, shards=210)
    assert set(Counter(row[0] for row in answer.replicas).values()) == {10}
    assert all(set(each.values()) == {1} for each in spread(answer.replicas, nodes))
    held = Counter(n for row in answer.replicas for n in row)
    assert held.pop("c0") == 210
    assert set(held.values()) == {21}


@pytest.mark.parametrize(
    ("members", "shards", "factor"),
    [
        ({"r1": "0 5", "r2": "1 2", "r3": "3 4"}, 6, 3),
        ({"r1": "0 5", "r2": "1 2", "r3": "3 4"}, 12, 2),
        ({"r1": "0 5 6 10", "r2": "1 2 7 8", "r3": "3 4 9 11"}, 96, 3),
        ({"r1": "0", "r2": "1", "r3": "4"}, 3, 2),
        ({"r1": "0 1 2 3 4 5"}, 6, 3),
    ],
)
def test_equal_racks_share_everything_equally(members, shards, factor):
    """AdminRackAwareTest: racks differ, and every broker leads and holds as much."""
    nodes = racks(**members)
    answer = ask_one(nodes, KAFKA, shards=shards, factor=factor)
    for each in spread(answer.replicas, nodes):
        assert even([each[f"/{rack}"] for rack in members])
    leads = Counter(row[0] for row in answer.replicas)
    held = Counter(n for row in answer.replicas for n in row)
    assert {leads[each.node_id] for each in nodes} == {shards // len(nodes)}
    assert {held[each.node_id] for each in nodes} == {shards * factor // len(nodes)}


def test_nodes_do_not_always_meet_the_same_partners():
    answer = ask_one(TWELVE, KAFKA, shards=60)
    assert len({frozenset(row) for row in answer.replicas}) > 30


def test_a_rack_of_fenced_brokers_still_has_its_follower():
    """testRackListWithInvalidRacks: four racks, two without an unfenced broker."""
    nodes = racks(r1="11 10", r3="~30 ~31", r2="~20 ~21", r4="41 ~40")
    answer = ask_one(nodes, KAFKA, factor=4, shards=6)
    assert answer.outcome == "placed"
    assert all(set(each.values()) == {1} for each in spread(answer.replicas, nodes))
    assert {row[0] for row in answer.replicas} == {"10", "11", "41"}
    assert not any("40" in row for row in answer.replicas)
    assert {n for row in answer.replicas for n in row} >= {"20", "21", "30", "31"}


def test_without_need_no_fenced_broker_is_used():
    """testAvoidFencedReplicaIfPossibleOnSingleRack, and racks that are not needed."""
    answer = ask_one(racks(r="3 ~1 0 4 2"), KAFKA, factor=4, shards=8)
    assert [{*row} for row in answer.replicas] == [{"0", "2", "3", "4"}] * 8
    answer = ask_one(racks(a="a0", b="~b0", c="c0"), KAFKA, factor=2, shards=4)
    assert [{*row} for row in answer.replicas] == [{"a0", "c0"}] * 4
    answer = ask_one(racks(a="10 11", b="~20 21", c="30 31"), KAFKA, factor=4, shards=9)
    assert {n for row in answer.replicas for n in row} == {"10", "11", "21", "30", "31"}


def test_a_fenced_broker_is_used_where_no_other_is_left():
    """testPlacementOnFencedReplicaOnSingleRack: it follows, and stands last."""
    answer = ask_one(racks(r="3 ~1 2"), KAFKA, shards=4)
    assert answer.outcome == "placed"
    assert all(row[2] == "1" for row in answer.replicas)
    assert Counter(row[0] for row in answer.replicas) == {"2": 2, "3": 2}


def test_a_node_that_is_full_is_none_that_a_rack_still_has():
    """Its capacity ends the stripes of the small rack, not the stream."""
    nodes = [*racks(a="a0 a1 a2 a3"), node("b0", "/b", capacity=1)]
    answer = ask_one(nodes, KAFKA, factor=2, shards=4)
    assert answer.outcome == "placed"
    assert [row.count("b0") for row in answer.replicas] == [1, 0, 0, 0]


def test_partitions_of_a_single_unfenced_broker():
    """testMultiPartitionTopicPlacementOnSingleUnfencedBroker."""
    answer = ask_one([node("0"), node("1", status="suspect")], KAFKA, factor=1, shards=3)
    assert answer.replicas == [["0"]] * 3


@pytest.mark.parametrize(
    ("nodes", "need", "have"),
    [
        (racks(r="~10 ~11"), 1, 0),  # "All brokers are currently fenced."
        (racks(r="10 11"), 3, 2),  # "…of 3 cannot be reached because only 2 broker(s)…"
        ([node("10", status="draining"), node("11", status="dead"), node("12")], 3, 1),
    ],
)
def test_too_few_brokers_are_rejected(nodes, need, have):
    answer = ask_one(nodes, KAFKA, factor=max(need, 1))
    assert (answer.outcome, answer.codes) == ("rejected", ["NODES_TOO_FEW"])
    [reason] = answer.decision.reasons
    assert (reason.need, reason.have) == (need, have)


def test_small_racks_are_filled_and_the_rest_goes_on():
    """Water-filled up to the size of a rack: 6 over 10, 10 and 1 are 3 + 2 + 1 or 2 + 3 + 1."""
    nodes = racks(a="a0 a1 a2 a3", b="b0 b1 b2 b3", c="c0")
    counts = spread(ask_one(nodes, KAFKA, factor=6, shards=8).replicas, nodes)
    assert [sorted(each.values()) for each in counts] == [[1, 2, 3]] * 8
    assert {each["/c"] for each in counts} == {1}


def test_brokers_are_even_where_racks_leave_a_choice():
    """Two replicas over unequal racks: brokers stay within one replica of their share."""
    nodes = racks(a="a0 a1 a2 a3", b="b0 b1 b2", c="c0")
    answer = ask_one(nodes, KAFKA, factor=2, shards=40)
    held = Counter(n for row in answer.replicas for n in row)
    assert set(held.values()) <= {9, 10, 11}


def test_brokers_without_a_rack_are_one_unnamed_rack():
    answer = ask_one([*racks(a="a0 a1"), node("x0"), node("x1")], KAFKA, factor=2, shards=4)
    assert [sum(n[0] == "x" for n in row) for row in answer.replicas] == [1] * 4


def test_load_of_other_streams_decides_among_equals():
    before = stream(KAFKA, 1, 3, "before", replicas=[["A0"], ["A1"], ["B0"]])
    answer = ask(ABC, before, stream(KAFKA))["s"]
    assert not {"A0", "A1", "B0"} & set(answer.replicas[0])


def test_users_rules_hold_besides():
    nodes = [
        node(f"{zone}{rack}{n}", f"/{zone}/{rack}") for zone in "xyz" for rack in "ab" for n in "12"
    ]
    zones = KAFKA | {"rules": [{"at_most": 1, "per": "1"}]}
    answer = ask_one(nodes, zones, shards=9)
    assert answer.outcome == "placed"
    assert all(len({n[0] for n in row}) == 3 for row in answer.replicas)
    within = ask_one(nodes, KAFKA | {"within": ["/x", "/y"]}, factor=4, shards=5)
    assert all(len({n[:2] for n in row}) == 4 for row in within.replicas)
    assert not any(n[0] == "z" for row in within.replicas for n in row)
    led = ask_one(nodes, KAFKA | {"rules": [{"leader_in": ["/y"]}]}, shards=5)
    assert {row[0][0] for row in led.replicas} == {"y"}


def test_a_user_rule_that_leads_into_a_dead_end_is_searched_around():
    """Only one arrangement keeps both: the power lines and the racks."""
    nodes = [
        node("a1", "/a", tags={"power": "1"}),
        node("b1", "/b", tags={"power": "1"}),
        node("b2", "/b", tags={"power": "2"}),
        node("c2", "/c", tags={"power": "2"}),
        node("c3", "/c", tags={"power": "3"}),
    ]
    answer = ask_one(nodes, KAFKA | {"rules": [{"at_most": 1, "per": "tag:power"}]})
    assert (answer.outcome, set(answer.replicas[0])) == ("placed", {"a1", "b2", "c3"})


def water_filled(row, nodes):
    """Whether no rack of the row is two ahead of one with a free node."""
    at = {each.node_id: each.attributes.location for each in nodes}
    counts = Counter(at[n] for n in row)
    free = {at[each.node_id] for each in nodes if each.node_id not in row}
    return all(counts[rack] <= counts[other] + 1 for rack in counts for other in free)


@pytest.mark.parametrize("seed", seeds(80))
def test_on_any_fleet(seed):
    """Racks, leaders and fencing in their order; the same for nodes in another order."""
    rng = random.Random(seed)
    nodes = [each for each in random_nodes(rng) if each.attributes.capacity is None]
    factor, shards = rng.randint(1, 5), rng.randint(1, 12)
    answer = ask_one(nodes, KAFKA, factor=factor, shards=shards)
    again = ask_one(rng.sample(nodes, len(nodes)), KAFKA, factor=factor, shards=shards)
    assert (again.outcome, again.replicas) == (answer.outcome, answer.replicas)
    up = set(usable(nodes))
    there = [n for n in nodes if n.node_id in up or n.liveness is Liveness.SUSPECT]
    able = {each.node_id for each in nodes if each.attributes.leader} & up
    if len(there) < factor or not able:
        assert (answer.outcome, answer.codes) == ("rejected", ["NODES_TOO_FEW"])
        return
    assert answer.outcome == "placed"
    for row in answer.replicas:
        assert len(set(row)) == factor
        assert set(row) <= {each.node_id for each in there}
        assert row[0] in able
        assert water_filled(row, there)
        fenced = [n for n in row[1:] if n not in up]
        for name in fenced:
            instead = ([*(n for n in row if n != name), n] for n in up if n not in row)
            assert not any(water_filled(other, there) for other in instead)
    if len({each.attributes.weight for each in nodes}) == 1:
        leads = Counter(row[0] for row in answer.replicas)
        assert even([leads[n] for n in able])


ZONES = [
    node(f"{zone}{rack}{number}", f"/{zone}/{rack}")
    for zone in ("z1", "z2", "z3")
    for rack in ("a", "b", "c")
    for number in range(2)
]


@pytest.mark.parametrize("level", ["az", "1"])
def test_a_tier_may_be_the_rack(level):
    """By whole locations three replicas may share a zone; by zones they never do."""
    striped = KAFKA | {"level": level}
    answer = ask_one(ZONES, striped, levels=("az", "rack"), shards=18)
    zones = [Counter(name[:2] for name in row) for row in answer.replicas]
    assert all(counts == {"z1": 1, "z2": 1, "z3": 1} for counts in zones)
    assert even(Counter(row[0] for row in answer.replicas).values())
    assert even(Counter(name for row in answer.replicas for name in row).values())
    leaf = ask_one(ZONES, KAFKA, levels=("az", "rack"), shards=18).replicas
    assert {len({name[:2] for name in row}) for row in leaf} != {3}


def test_shards_that_are_added_keep_to_the_tier():
    striped = KAFKA | {"level": "az"}
    whole = ask_one(ZONES, striped, levels=("az",), shards=9).replicas
    again = ask_one(ZONES, striped, levels=("az",), shards=9, replicas=whole[:4]).replicas
    assert again[:4] == whole[:4]
    assert {len({name[:2] for name in row}) for row in again} == {3}


@pytest.mark.parametrize(
    ("level", "says"),
    [
        ("az", "level 'az' is not known; known are location, tag:KEY or a depth. Name the tiers"),
        ("tag:zone", "'level' is 'tag:zone', and racks are a tier of the locations"),
    ],
)
def test_a_level_that_is_no_tier_is_refused(level, says):
    answer = ask_one(ABC, KAFKA | {"level": level})
    assert answer.outcome == "rejected"
    assert says in answer.decision.reasons[0].message
