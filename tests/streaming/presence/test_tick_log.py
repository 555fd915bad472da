"""Goal: a process of a cell sees the ticks of all, in order, and does not wait without end.

Method: logs of two processes on the embedded broker; a transaction hides what is written behind it.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, Producer

from schemas.inputs import CLAIMANT, STANDBY
from schemas.topics import NODES, full_name
from streaming.errors import BrokerUnreachable
from streaming.presence import TickAuthor, TickLog, tick_log

OpenLog = Callable[[str], tuple[TickLog, int]]


@pytest.fixture
def open_log(bootstrap: str, prefix: str) -> Iterator[OpenLog]:
    with ExitStack() as owned:

        def make(name: str) -> tuple[TickLog, int]:
            log = owned.enter_context(
                closing(TickLog(bootstrap, prefix, TickAuthor("main", name), 1, {}))
            )
            return log, log.open(10_000)

        yield make


def test_all_ticks_up_to_an_offset_are_read(open_log: OpenLog) -> None:
    first, _ = open_log("a")
    second, begun = open_log("b")
    assert [tick.instance for tick in second.read_to(begun)] == ["a", "b"]
    first.write_and_wait(STANDBY, 7)
    claimed, _ = second.write_and_wait(CLAIMANT, 7)
    read = [(tick.instance, tick.role, tick.proven) for tick in second.read_to(claimed)]
    assert read == [("a", STANDBY, 7), ("b", CLAIMANT, 7)]
    assert not [*second.read_to(claimed)], "it has been read"


def test_an_offset_that_cannot_be_read_is_not_awaited_without_end(
    bootstrap: str, prefix: str, open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = full_name(NODES, prefix)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": prefix})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"{}", "n1")
    producer.flush(10)
    log, begun = open_log("a")
    monkeypatch.setattr(tick_log, "CONNECT_TIMEOUT_SECONDS", 1.0)
    with pytest.raises(BrokerUnreachable, match=rf"{prefix}nodes\.v1-0 brought no record for 1 s"):
        list(log.read_to(begun))
    producer.abort_transaction()
    assert [tick.instance for tick in log.read_to(begun)] == ["a"]


def test_a_tick_that_is_refused_has_no_offset_of_an_earlier_one(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = open_log("a")
    refusing = Mock(flush=lambda _: 0)
    refusing.produce = lambda *_, on_delivery, **__: on_delivery(
        KafkaError(KafkaError.INVALID_TIMESTAMP), Mock()
    )
    monkeypatch.setattr(log, "_writer", refusing)
    with pytest.raises(BrokerUnreachable, match="took no tick"):
        log.write_and_wait(CLAIMANT, 7)
