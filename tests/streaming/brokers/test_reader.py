"""Goal: a reader sees exactly what is committed, to the end, and says clearly why it cannot.

Method: transactions on the embedded broker, closed in every way, read back.
"""

from collections.abc import Iterator

import orjson
import pytest
from confluent_kafka import Producer

from schemas.topics import full_name
from streaming.brokers.clients import TopicMissing, make_producer
from streaming.brokers.reader import CommittedReader, Record
from streaming.errors import BrokerUnreachable, SettingsInvalid
from streaming.runtime import EmbeddedBroker
from tests.systems.waiting import until


@pytest.fixture
def producer(bootstrap: str, prefix: str) -> Iterator[Producer]:
    made = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": prefix,
            "linger.ms": 0,
            "log_level": 0,  # a coordinator that is still loading is no news
        }
    )
    made.init_transactions()
    yield made
    made.flush(5)


def write(producer: Producer, prefix: str, *numbers: int) -> None:
    for number in numbers:
        topic = full_name("moves.v1" if number % 2 else "acks.v1", prefix)
        producer.produce(topic, orjson.dumps({"number": number}), f"k{number}")
    producer.flush(10)


def numbers(records: list[Record]) -> set[int]:
    return {record.value["number"] for record in records if record.value is not None}


def test_only_committed_records_are_read(bootstrap: str, prefix: str, producer: Producer) -> None:
    with CommittedReader(bootstrap, prefix, ["moves.v1", "acks.v1"]) as reader:
        assert reader.read_to_end() == []
        producer.begin_transaction()
        write(producer, prefix, 1, 2)
        assert reader.read_to_end() == [], "the transaction is still open"
        producer.commit_transaction()
        assert numbers(reader.read_to_end()) == {1, 2}
        producer.begin_transaction()
        write(producer, prefix, 3, 4)
        producer.abort_transaction()
        assert reader.read_to_end() == []
        producer.begin_transaction()
        write(producer, prefix, 5, 6)
        producer.commit_transaction()
        assert numbers(reader.read_to_end()) == {5, 6}
    with CommittedReader(bootstrap, prefix, ["moves.v1"]) as again:
        assert numbers(again.read_to_end()) == {1, 5}


def test_the_lag_is_what_has_come_and_was_not_read(
    bootstrap: str, prefix: str, producer: Producer
) -> None:
    with CommittedReader(bootstrap, prefix, ["moves.v1", "acks.v1"]) as reader:
        producer.begin_transaction()
        write(producer, prefix, 1, 2, 3)
        producer.commit_transaction()
        assert numbers(reader.read_to_end()) == {1, 2, 3}
        assert reader.lag == {"moves.v1": 0, "acks.v1": 0}
        producer.begin_transaction()
        write(producer, prefix, 5, 7)
        producer.commit_transaction()
        # Two records and the marker behind them, as a fetch in the background has shown.
        until(lambda: reader.lag == {"moves.v1": 3, "acks.v1": 0}, "it is behind")
        assert numbers(reader.read_to_end()) == {5, 7}
        assert reader.lag == {"moves.v1": 0, "acks.v1": 0}


def test_from_now_on_means_from_before_the_constructor_returned(
    bootstrap: str, prefix: str, producer: Producer
) -> None:
    producer.begin_transaction()
    write(producer, prefix, 1)
    producer.commit_transaction()
    producer.begin_transaction()
    write(producer, prefix, 3)
    with CommittedReader(bootstrap, prefix, ["moves.v1"], from_beginning=False) as reader:
        producer.commit_transaction()
        assert numbers(reader.poll(10)) == {3}
        assert reader.poll(0) == []


def test_a_record_keeps_all_it_came_with(bootstrap: str, prefix: str, producer: Producer) -> None:
    topic = full_name("moves.v1", prefix)
    producer.begin_transaction()
    producer.produce(topic, b'{"a":1}', "k", headers=[("h", b"x"), ("empty", None)])
    producer.produce(topic, None, "k")
    producer.produce(topic, b"[1]", "k")
    producer.produce(topic, b"\xff", b"\xff")
    producer.commit_transaction()
    with CommittedReader(bootstrap, prefix, ["moves.v1"]) as reader:
        full, tombstone, no_object, no_json = reader.read_to_end()
    assert (full.topic, full.partition, full.offset, full.key) == ("moves.v1", 0, 0, "k")
    assert (full.value, full.headers) == ({"a": 1}, {"h": "x", "empty": ""})
    assert full.timestamp_ms > 1_600_000_000_000
    assert (tombstone.value, tombstone.raw) == (None, None)
    assert (no_object.value, no_object.raw) == (None, b"[1]")
    assert (no_json.value, no_json.raw, no_json.key) == (None, b"\xff", "\\xff")


def test_a_topic_that_is_missing_is_named(broker: EmbeddedBroker, prefix: str) -> None:
    with pytest.raises(TopicMissing, match=rf"{prefix}moves\.v1 does not exist.*topics apply"):
        CommittedReader(broker.bootstrap_servers, prefix, ["moves.v1"])


def test_a_broker_that_does_not_answer_is_named_soon() -> None:
    with pytest.raises(BrokerUnreachable, match=r"no broker answers at 127\.0\.0\.1:1: .*refused"):
        make_producer("127.0.0.1:1")


def test_an_option_the_client_does_not_know_is_a_mistake_in_the_settings() -> None:
    with pytest.raises(SettingsInvalid, match=r"kafka\.options.*no\.such\.option"):
        make_producer("127.0.0.1:1", {"no.such.option": "1"})
