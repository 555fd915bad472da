"""Goal: between batches the application sleeps until there is something to read, and no longer.

Method: a follower of topics on the embedded broker; records come before and during its wait.
"""

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer

from schemas.inputs import TICK_KEY
from schemas.topics import INPUT_TOPICS, full_name
from streaming.brokers import make_producer
from streaming.pipeline import arrivals
from streaming.pipeline.arrivals import Arrivals

START = {topic: {0: 0} for topic in INPUT_TOPICS}


@pytest.fixture
def producer(bootstrap: str) -> Producer:
    return make_producer(bootstrap)


@pytest.fixture
def follower(bootstrap: str, prefix: str) -> Iterator[Arrivals]:
    with closing(Arrivals(bootstrap, prefix, {})) as made:
        yield made


def write(producer: Producer, prefix: str, topic: str, key: str) -> None:
    producer.produce(full_name(topic, prefix), b"{}", key)
    assert producer.flush(10) == 0


def never() -> bool:
    return False


def test_a_record_that_is_there_ends_the_wait_until_it_is_read(
    prefix: str, producer: Producer, follower: Arrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(producer, prefix, "streams.v1", "orders")
    assert follower.wait(START, True, never)
    assert follower.wait(START, True, never), "the batch did not read it"
    monkeypatch.setattr(arrivals, "TICKS_SECONDS_MAX", 0.5)
    assert not follower.wait(START | {"streams.v1": {0: 1}}, True, never)


def test_a_record_that_comes_ends_the_wait(
    prefix: str, producer: Producer, follower: Arrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "TICKS_SECONDS_MAX", 30.0)
    looked = threading.Event()

    def looking() -> bool:
        looked.set()
        return False

    def come() -> None:
        assert looked.wait(20)
        write(producer, prefix, "acks.v1", "orders/0")

    coming = threading.Thread(target=come)
    coming.start()
    assert follower.wait(START, True, looking)
    coming.join()


def test_ticks_are_gathered_while_no_silence_is_judged(
    prefix: str, producer: Producer, follower: Arrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "TICKS_SECONDS_MAX", 1.0)
    for _ in range(3):
        write(producer, prefix, "nodes.v1", TICK_KEY)
    assert not follower.wait(START, False, never)
    monkeypatch.setattr(arrivals, "TICKS_SECONDS_MAX", 30.0)
    assert follower.wait(START, True, never), "they are still to be read"
    write(producer, prefix, "nodes.v1", "n1")
    assert follower.wait(START | {"nodes.v1": {0: 3}}, False, never)


def test_a_stop_ends_the_wait(follower: Arrivals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "TICKS_SECONDS_MAX", 3_600.0)
    asked = iter([False, False, True])
    assert not follower.wait(START, True, lambda: next(asked))
