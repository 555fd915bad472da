"""The outbox: one transaction or nothing, one writer, and no record that the broker refuses.

Method: two outboxes of one cell on the embedded broker, and a reader of committed records. What a
long batch becomes is looked at in the driver's half alone.
"""

import random
from collections.abc import Iterator
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from schemas.topics import CATALOGUE, full_name
from streaming.brokers import CommittedReader
from streaming.codec import OutRecord
from streaming.outbox.outbox import (
    RECORD_BYTES_MAX,
    RECORDS_PER_POLL,
    Outbox,
    OutboxFailed,
    _error_text,
)
from streaming.pipeline import batch as batch_module
from streaming.recovery import open_transactions
from tests.builders.batches import Driver, of_topic, recover
from tests.builders.kafka_rows import registered
from tests.streaming.pipeline.test_batch import stream
from tests.systems.waiting import until

# Bytes of a record that a topic made for short ones refuses.
LONG = 5_000
COUNTS = {topic.name: 1 for topic in CATALOGUE if topic.direction == "out"}


def record(key: str, length: int = 10, topic: str = "decisions.v1") -> OutRecord:
    """One that cannot be compressed."""
    value = random.Random(1).randbytes(length)
    return OutRecord(topic, key.encode(), value, [("ce_id", key.encode())])


@pytest.fixture
def outbox(bootstrap: str, prefix: str) -> Outbox:
    """The cell's writer."""
    made = Outbox(bootstrap, prefix, "main", COUNTS, {})
    made.fence()
    return made


def committed(bootstrap: str, prefix: str) -> list[tuple[str, str | None]]:
    with CommittedReader(bootstrap, prefix, [*COUNTS]) as reader:
        return sorted((each.topic, each.key) for each in reader.read_to_end())


def test_records_of_several_topics_become_visible_as_one(
    outbox: Outbox, bootstrap: str, prefix: str
) -> None:
    outbox.commit([record("a"), record("b", topic="moves.v1")])
    assert committed(bootstrap, prefix) == [("decisions.v1", "a"), ("moves.v1", "b")]


def test_a_record_that_is_too_long_is_named_and_nothing_is_visible(
    outbox: Outbox, bootstrap: str, prefix: str
) -> None:
    with pytest.raises(OutboxFailed, match=r"the record big for decisions\.v1 has \d+ bytes"):
        outbox.commit([record("a"), record("big", RECORD_BYTES_MAX)])
    outbox.commit([record("b")])
    assert committed(bootstrap, prefix) == [("decisions.v1", "b")]


def test_a_record_that_cannot_be_made_ends_the_transaction(
    outbox: Outbox, bootstrap: str, prefix: str
) -> None:
    def make() -> Iterator[OutRecord]:
        yield from (record(f"a{number}") for number in range(RECORDS_PER_POLL + 1))
        raise ValueError("no record")

    with pytest.raises(ValueError, match="no record"):
        outbox.commit(make())
    assert committed(bootstrap, prefix) == []
    outbox.commit([record("b")])
    assert committed(bootstrap, prefix) == [("decisions.v1", "b")]


def test_after_a_transaction_that_cannot_be_aborted_nothing_is_committed(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Mock(spec=Producer)
    fenced = KafkaException(KafkaError(KafkaError.PRODUCER_FENCED, "fenced"))
    producer.abort_transaction.side_effect = fenced
    monkeypatch.setattr(outbox, "_producer", producer)
    with pytest.raises(OutboxFailed, match="was not aborted: another writer has taken over"):
        outbox.commit([record("big", RECORD_BYTES_MAX)])
    with pytest.raises(OutboxFailed, match="was not aborted"):
        outbox.commit([record("b")])
    producer.commit_transaction.assert_not_called()


def test_a_newer_writer_that_is_heard_of_between_two_calls_is_named(
    outbox: Outbox, bootstrap: str, prefix: str
) -> None:
    Outbox(bootstrap, prefix, "main", COUNTS, {}).fence()
    outbox._producer.begin_transaction()
    refused: list[KafkaException] = []

    def is_heard_of() -> bool:
        try:
            outbox._producer.produce(full_name("decisions.v1", prefix), b"v", b"k")
        except KafkaException as error:
            refused.append(error)
        return bool(refused)

    until(is_heard_of, "the client hears of the newer writer")
    assert "another writer" not in _error_text(refused[0])
    assert "another writer has taken over" in _error_text(outbox._name_fatal(refused[0]))


@pytest.fixture
def shrunk(bootstrap: str, prefix: str) -> Iterator[KafkaAdminClient]:
    """A moves topic that takes short records only."""
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    resize(client, prefix, "500")
    until(lambda: not takes(bootstrap, prefix, LONG), "short records only")
    yield client
    client.close()


def resize(client: KafkaAdminClient, prefix: str, size: str) -> None:
    change = {"max.message.bytes": size}
    name = full_name("moves.v1", prefix)
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, change)])


def takes(bootstrap: str, prefix: str, length: int) -> bool:
    """Whether the moves topic takes so long a record: a broker follows a change a moment after
    it has been accepted. Nothing of it is ever visible."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{prefix}size"})
    producer.init_transactions(20)
    producer.begin_transaction()
    refused: list[object] = []
    producer.produce(
        full_name("moves.v1", prefix),
        record("size", length).value,
        b"size",
        on_delivery=lambda error, _: refused.append(error) if error else None,
    )
    producer.flush(20)
    producer.abort_transaction()
    return not refused


def test_what_the_broker_refuses_leaves_nothing_and_a_new_writer_goes_on(
    outbox: Outbox, bootstrap: str, prefix: str, shrunk: KafkaAdminClient
) -> None:
    records = [record("a"), record("m", LONG, "moves.v1"), record("b")]
    with pytest.raises(OutboxFailed, match=r"moves\.v1 was refused"):
        outbox.commit(records)
    with pytest.raises(OutboxFailed, match=r"moves\.v1 was refused"):
        outbox.commit([record("later")])
    assert committed(bootstrap, prefix) == []
    resize(shrunk, prefix, "1048588")
    until(lambda: takes(bootstrap, prefix, LONG), "long records again")
    again = Outbox(bootstrap, prefix, "main", COUNTS, {})
    again.fence()
    again.commit(records)
    expected = [("decisions.v1", "a"), ("decisions.v1", "b"), ("moves.v1", "m")]
    assert committed(bootstrap, prefix) == expected


def test_an_older_writer_commits_nothing(outbox: Outbox, bootstrap: str, prefix: str) -> None:
    newer = Outbox(bootstrap, prefix, "main", COUNTS, {})
    newer.fence()
    with pytest.raises(OutboxFailed, match="another writer has taken over"):
        outbox.commit([record("old")])
    newer.commit([record("new")])
    assert committed(bootstrap, prefix) == [("decisions.v1", "new")]


def test_what_a_dead_writer_left_open_is_ended_by_the_next(
    outbox: Outbox, bootstrap: str, prefix: str
) -> None:
    producer = outbox._producer
    producer.begin_transaction()
    producer.produce(full_name("decisions.v1", prefix), b"x", b"open")
    assert producer.flush(20) == 0
    name = full_name("decisions.v1", prefix)
    assert open_transactions(bootstrap, prefix, COUNTS, {}) == {(name, 0): 0}
    newer = Outbox(bootstrap, prefix, "main", COUNTS, {})
    newer.fence()
    assert open_transactions(bootstrap, prefix, COUNTS, {}) == {}
    newer.commit([record("new")])
    assert committed(bootstrap, prefix) == [("decisions.v1", "new")]


def test_a_prefix_takes_streams_of_so_many_shards_and_no_record_is_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One stream is never split, however large."""
    monkeypatch.setattr(batch_module, "PREFIX_SHARDS_MAX", 10_000)
    driver = Driver()
    driver.batch([registered(f"n{n}", 1, location=f"/z{n % 3}", offset=n) for n in range(6)])
    sizes = [3_000, 6_000, 2_000, 10_000, 1]
    asked = [stream(f"s{n}", n, at=1_000 + n, shards=size) for n, size in enumerate(sizes)]
    commits = driver.batch(asked)
    written = [len(of_topic([commit], "assignments.v1")) for commit in commits]
    assert written == [9_000, 2_000, 10_000, 1]
    longest = max(len(r.value or b"") for commit in commits for r in commit)
    assert longest < RECORD_BYTES_MAX
    recover(driver.commits)
