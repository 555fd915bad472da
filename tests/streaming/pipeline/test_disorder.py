"""Records that come twice or in another order, through packing, operator and core (F16, F17)."""

import random
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.topics import DEAD_LETTERS
from streaming.codec import RawRecord
from tests.builders.batches import Driver, bodies, check_contract, errors, of_topic
from tests.builders.kafka_rows import heartbeat, raw, registered

NODES = [
    registered(f"n{number}", 1, location=f"/z{number % 3}", offset=number, at=1_000 + number)
    for number in range(6)
]
STREAMS = ("a", "b", "c")


def request(name: str, offset: int, at: int, **asked: Any) -> RawRecord:
    body = {"stream": name, "sequence": 1, "shards": 2, "replication_factor": 3} | asked
    return raw("StreamCreated", name, body, offset, at, "streams.v1")


REQUESTS = [request(name, offset, 1_010 + offset) for offset, name in enumerate(STREAMS)]


def assigned(driver: Driver) -> dict[tuple[str, int], list[str]]:
    """Replicas by shard, as the last assignments say."""
    told = bodies(driver.commits, "assignments.v1")
    return {(each["stream"], each["shard"]): each["replicas"] for each in told}


def outcomes(driver: Driver) -> dict[str, str]:
    return {d["stream"]: d["outcome"] for d in bodies(driver.commits, "decisions.v1")}


def copied(log: Sequence[RawRecord], copies: Sequence[RawRecord]) -> list[RawRecord]:
    """The copies as they stand behind the log, where a producer that tries again puts them."""
    start = max(record.at for record in log) + 20
    return [
        copy._replace(offset=len(log) + number, at=start + number)
        for number, copy in enumerate(copies)
    ]


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), copies=st.integers(1, 4), cut=st.integers(0, 30))
def test_repeats_change_nothing(seed: int, copies: int, cut: int) -> None:
    driver = Driver()
    driver.batch(NODES, REQUESTS)
    before, said = assigned(driver), bodies(driver.commits, "decisions.v1")
    assert outcomes(driver) == dict.fromkeys(STREAMS, "placed")
    choice = random.Random(seed)
    nodes, requests = [*NODES] * copies, [*REQUESTS] * copies
    choice.shuffle(nodes)
    choice.shuffle(requests)
    nodes, requests = copied(NODES, nodes), copied(REQUESTS, requests)
    for part in ((nodes[:cut], requests[:cut]), (nodes[cut:], requests[cut:])):
        read = [records for records in part if records]
        if read:
            driver.batch(*read)
    assert of_topic(driver.commits, DEAD_LETTERS) == []
    assert assigned(driver) == before
    assert bodies(driver.commits, "decisions.v1") == said
    check_contract(driver.commits)


@settings(max_examples=5)
@given(order=st.permutations(range(len(STREAMS))))
def test_a_conflict_is_dead_lettered_and_changes_nothing(order: list[int]) -> None:
    driver = Driver()
    driver.batch(NODES, REQUESTS)
    before = assigned(driver)
    conflicts = [request(STREAMS[n], 3 + place, 1_020, shards=9) for place, n in enumerate(order)]
    found = driver.batch(conflicts)
    letters = [errors(letter) for letter in of_topic(found, DEAD_LETTERS)]
    assert [letter["reason"] for letter in letters] == ["SEQUENCE_CONFLICT"] * len(STREAMS)
    assert assigned(driver) == before


@settings(max_examples=5)
@given(order=st.permutations(range(len(NODES))))
def test_streams_that_come_before_any_node_are_placed_when_nodes_do(order: list[int]) -> None:
    driver = Driver()
    driver.batch(REQUESTS)
    assert set(outcomes(driver).values()) == {"waiting"}
    late = [NODES[n]._replace(offset=place, at=2_000 + place) for place, n in enumerate(order)]
    driver.batch(late)
    driver.batch([heartbeat("n0", 2, offset=len(NODES), at=2_100)])
    assert outcomes(driver) == dict.fromkeys(STREAMS, "placed")
    assert all(len(set(held)) == 3 for held in assigned(driver).values())
    check_contract(driver.commits)


@settings(max_examples=12)
@given(order=st.permutations(range(4)), cut=st.integers(0, 4))
def test_a_change_of_place_before_the_registration_is_refused_and_may_be_sent_again(
    order: list[int], cut: int
) -> None:
    """What is known of a node begins with its registration. What came earlier has a dead letter;
    once its records are sent again the newest sequence holds, in whatever order all came."""
    places = ["/z0", "/z1", "/z2", "/z3"]
    said = [registered("n9", 1, location=places[0])]
    for number, place in enumerate(places[1:], start=2):
        body = {"node_id": "n9", "incarnation": "a", "sequence": number, "location": place}
        said.append(raw("NodeLocalityChanged", "n9", body))
    driver = Driver()
    driver.batch(NODES, REQUESTS)
    before = assigned(driver)
    early = order[: order.index(0)]
    late = [
        said[n]._replace(offset=len(NODES) + place, at=2_000 + place)
        for place, n in enumerate([*order, *early])
    ]
    for part in filter(None, (late[:cut], late[cut:])):
        driver.batch(part)
    (view,) = [v for v in bodies(driver.commits, "topology.v1") if v["node_id"] == "n9"][-1:]
    assert view["location"] == places[-1]
    letters = [errors(letter) for letter in of_topic(driver.commits, DEAD_LETTERS)]
    assert [letter["reason"] for letter in letters] == ["NODE_UNKNOWN"] * len(early)
    assert assigned(driver) == before
    check_contract(driver.commits)
