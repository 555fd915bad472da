"""Goal: between batches the application sleeps until there is something to read, and no longer; a
request waits for what was said of nodes before it, and for nothing else.

Method: followers of topics on the embedded broker; records come before and during their wait.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from schemas.envelope import encode_headers
from schemas.inputs import TICK_KEY
from schemas.topics import INPUT_TOPICS, full_name
from streaming.brokers import make_producer
from streaming.pipeline import arrivals
from streaming.pipeline.arrivals import NodeArrivals, RequestArrivals
from tests.systems.waiting import until

START = {topic: {0: 0} for topic in INPUT_TOPICS}
FOREVER_SECONDS = 3_600.0
# A wait that has not ended after this was not ended by the record.
LONG_SECONDS = 20.0
# Without a rest most of them are fetched one by one.
BEATS = 200


@pytest.fixture
def producer(bootstrap: str) -> Producer:
    return make_producer(bootstrap)


@pytest.fixture
def requests(bootstrap: str, prefix: str) -> Iterator[RequestArrivals]:
    with closing(RequestArrivals(bootstrap, prefix, {})) as made:
        yield made


@pytest.fixture
def nodes(bootstrap: str, prefix: str) -> Iterator[NodeArrivals]:
    with closing(NodeArrivals(bootstrap, prefix, {}, START, FOREVER_SECONDS)) as made:
        yield made


def write(
    producer: Producer, prefix: str, topic: str, key: str, message: str = "", value: str = "{}"
) -> None:
    """Write a record; without a message it has no headers."""
    headers = [*encode_headers(message, cell="test", id="1", subject=key, time_ms=0)]
    producer.produce(
        full_name(topic, prefix), value.encode(), key, headers=headers if message else []
    )
    assert producer.flush(10) == 0


def beat(producer: Producer, prefix: str, node: str, value: str = "{}") -> None:
    write(producer, prefix, "nodes.v1", node, "NodeHeartbeat", value)


def never() -> bool:
    return False


class UnreadableHeaders:
    """A heartbeat with a header whose name is not UTF-8, as confluent_kafka hands it over."""

    def key(self) -> bytes:
        return b"n1"

    def value(self) -> bytes:
        return b"{}"

    def headers(self) -> None:
        raise SystemError("<method 'headers'> returned a result with an exception set")


def find_statements(nodes: NodeArrivals, stopping: Callable[[], bool]) -> dict[str, dict[int, int]]:
    """Find those before the ends of now."""
    return nodes.find_statements(nodes.read_ends(stopping), stopping)


class Stop:
    """Says that somebody stops, after some seconds."""

    def __init__(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds

    def __call__(self) -> bool:
        return time.monotonic() >= self.at


def test_a_request_that_is_there_ends_the_wait_until_it_is_read(
    prefix: str, producer: Producer, requests: RequestArrivals
) -> None:
    write(producer, prefix, "streams.v1", "orders")
    assert requests.wait(START, never)
    assert requests.wait(START, never), "the batch did not read it"
    assert not requests.wait(START | {"streams.v1": {0: 1}}, Stop(0.5))


def test_a_request_that_comes_ends_the_wait(
    prefix: str, producer: Producer, requests: RequestArrivals
) -> None:
    looked = threading.Event()

    def looking() -> bool:
        looked.set()
        return False

    def come() -> None:
        assert looked.wait(20)
        write(producer, prefix, "acks.v1", "orders/0")

    coming = threading.Thread(target=come)
    coming.start()
    assert requests.wait(START, looking)
    coming.join()


def test_a_request_in_a_partition_that_was_added_ends_the_wait(
    bootstrap: str,
    prefix: str,
    requests: RequestArrivals,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "COUNT_SECONDS", 0.1)
    topic = full_name("streams.v1", prefix)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for added in admin.create_partitions([NewPartitions(topic, 2)]).values():
        added.result()
    assert not requests.wait(START, Stop(1.0))
    later = make_producer(bootstrap)
    later.produce(topic, b"{}", "orders", partition=1)
    assert later.flush(10) == 0
    assert requests.wait(START, never)
    read = START | {"streams.v1": {0: 0, 1: 1}}
    assert not requests.wait(read, Stop(1.0))


def test_nothing_about_nodes_ends_the_wait_for_requests(
    prefix: str, producer: Producer, requests: RequestArrivals
) -> None:
    write(producer, prefix, "nodes.v1", "n1", "NodeRegistered")
    write(producer, prefix, "detector.v1", "n1", "DetectorReport")
    assert not requests.wait(START, Stop(1.0))


@pytest.mark.parametrize("topic", ["nodes.v1", "detector.v1", "inventory.v1"])
def test_a_statement_on_a_node_is_read_at_once(
    topic: str,
    prefix: str,
    producer: Producer,
    nodes: NodeArrivals,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "TICKS_SECONDS_MAX", FOREVER_SECONDS)
    monkeypatch.setattr(arrivals, "HEARTBEATS_SECONDS_MAX", FOREVER_SECONDS)
    write(producer, prefix, topic, "n1", "NodeRegistered")
    stop = Stop(LONG_SECONDS)
    nodes.wait(START, False, time.monotonic(), stop)
    assert not stop()
    read = START | {topic: {0: 1}}
    nodes.wait(read, True, time.monotonic(), Stop(0.5))
    beat(producer, prefix, "n1", '{"stopping": true}')
    stop = Stop(LONG_SECONDS)
    nodes.wait(read, False, time.monotonic(), stop)
    assert not stop(), "a node that stops says more than that it lives"


def test_heartbeats_are_gathered(
    prefix: str, producer: Producer, nodes: NodeArrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "TICKS_SECONDS_MAX", FOREVER_SECONDS)
    monkeypatch.setattr(arrivals, "HEARTBEATS_SECONDS_MAX", 1.0)
    beat(producer, prefix, "n1")
    since, stop = time.monotonic(), Stop(LONG_SECONDS)
    nodes.wait(START, False, since, stop)
    assert not stop()
    assert time.monotonic() - since >= 1.0


def test_heartbeats_wait_no_longer_than_a_tick(
    bootstrap: str, prefix: str, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "HEARTBEATS_SECONDS_MIN", 0.0)
    monkeypatch.setattr(arrivals, "HEARTBEATS_SECONDS_MAX", FOREVER_SECONDS)
    monkeypatch.setattr(arrivals, "TICKS_SECONDS_MAX", FOREVER_SECONDS)
    with closing(NodeArrivals(bootstrap, prefix, {}, START, 1.0)) as nodes:
        beat(producer, prefix, "n1")
        since, stop = time.monotonic(), Stop(LONG_SECONDS)
        nodes.wait(START, False, since, stop)
        assert not stop()
        assert time.monotonic() - since >= 1.0


def test_ticks_are_gathered_while_no_silence_is_judged(
    prefix: str, producer: Producer, nodes: NodeArrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "TICKS_SECONDS_MAX", FOREVER_SECONDS)
    for _ in range(3):
        write(producer, prefix, "nodes.v1", TICK_KEY)
    stop = Stop(1.5)
    nodes.wait(START, False, time.monotonic(), stop)
    assert stop()
    stop = Stop(LONG_SECONDS)
    nodes.wait(START, True, time.monotonic(), stop)
    assert not stop(), "they are still to be read"


def test_a_standbys_tick_ends_no_wait(
    prefix: str, producer: Producer, nodes: NodeArrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "TICKS_SECONDS_MAX", FOREVER_SECONDS)
    write(producer, prefix, "nodes.v1", TICK_KEY, value='{"role":"standby"}')
    stop = Stop(1.5)
    nodes.wait(START, True, time.monotonic(), stop)
    assert stop()


def test_a_request_waits_for_the_statements_before_it_and_for_no_heartbeat(
    prefix: str, producer: Producer, nodes: NodeArrivals
) -> None:
    assert find_statements(nodes, never) == {}
    for number in range(5):
        beat(producer, prefix, f"n{number}")
    assert find_statements(nodes, never) == {}
    write(producer, prefix, "nodes.v1", "n1", "NodeRegistered")
    beat(producer, prefix, "n2")
    write(producer, prefix, "inventory.v1", "n1", "LocationAssigned")
    assert find_statements(nodes, never) == {"nodes.v1": {0: 6}, "inventory.v1": {0: 1}}


def test_fetches_about_nodes_rest(bootstrap: str, prefix: str, producer: Producer) -> None:
    counts: list[int] = []

    def note_fetches(statistics: str) -> None:
        brokers = orjson.loads(statistics)["brokers"].values()
        counts.append(sum(each["req"].get("Fetch", 0) for each in brokers))

    options: dict[str, Any] = {"statistics.interval.ms": 50, "stats_cb": note_fetches}
    began = time.monotonic()
    with closing(NodeArrivals(bootstrap, prefix, options, START, FOREVER_SECONDS)) as nodes:
        for _ in range(BEATS):
            beat(producer, prefix, "n1")
        find_statements(nodes, never)
        known = len(counts)
        until(lambda: len(counts) > known, "the fetches until now are counted")
        fetches = counts[-1]
    # Two are there at the begin: one of the topics that are empty, one of the first record.
    rests = (time.monotonic() - began) * 1000 / arrivals._NODES_PAUSE_MS
    assert fetches <= rests + 2


def test_what_cannot_be_read_is_waited_for_in_full(
    prefix: str, producer: Producer, nodes: NodeArrivals
) -> None:
    beat(producer, prefix, "n1")
    nodes._fail()
    found = find_statements(nodes, never)
    assert found in ({}, {"nodes.v1": {0: 1}, "detector.v1": {0: 0}, "inventory.v1": {0: 0}})


def test_a_header_that_the_client_cannot_read_is_a_statement() -> None:
    message: Any = UnreadableHeaders()
    assert arrivals._kind_of(message) is arrivals._Said.STATEMENT


def test_after_a_fault_nobody_waits_for_what_is_not_followed(
    prefix: str, producer: Producer, nodes: NodeArrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise ValueError("a fault of its own")

    monkeypatch.setattr(arrivals, "_kind_of", fail)
    beat(producer, prefix, "n1")
    until(lambda: nodes.fault is not None, "the thread has ended")
    assert find_statements(nodes, never)["nodes.v1"] == {0: 1}
    nodes.wait(START, True, time.monotonic(), never)


def test_a_stop_ends_the_waits(
    requests: RequestArrivals, nodes: NodeArrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "TICKS_SECONDS_MAX", FOREVER_SECONDS)
    asked = iter([False, False, True])
    assert not requests.wait(START, lambda: next(asked))
    asked = iter([False, False, True])
    nodes.wait(START, True, time.monotonic(), lambda: next(asked))
    assert find_statements(nodes, lambda: True) == {}
