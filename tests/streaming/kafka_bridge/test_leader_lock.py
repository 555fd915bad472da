"""The lock of the bridge: one holds it, the others know who; whoever was replaced does nothing."""

import threading
from types import SimpleNamespace

import pytest

from streaming.errors import BrokerUnreachable
from streaming.kafka_bridge import leader_lock
from streaming.kafka_bridge.leader_lock import (
    LEASE_SECONDS,
    RENEW_SECONDS,
    Holder,
    KafkaLockStore,
    LeaderLock,
    LockLost,
    encode_holder,
    parse_holder,
)
from tests.builders.bridge_agents import LockLog, MemoryLockStore


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log() -> LockLog:
    return LockLog()


def made(log: LockLog, clock: Clock, name: str) -> LeaderLock:
    return LeaderLock(MemoryLockStore(log), name, clock)


def test_the_first_holds_it_and_the_second_knows_who(log: LockLog, clock: Clock) -> None:
    first, second = made(log, clock, "first"), made(log, clock, "second")
    assert first.is_held()
    assert not second.is_held()
    assert second.holder == "first"
    for _ in range(20):
        clock.now += RENEW_SECONDS
        assert first.is_held()
        assert not second.is_held()


def test_who_lets_go_is_followed_at_once(log: LockLog, clock: Clock) -> None:
    first, second = made(log, clock, "first"), made(log, clock, "second")
    assert first.is_held()
    assert not second.is_held()
    first.release()
    assert second.is_held()
    assert second.holder is None
    assert not first.is_held()


def test_who_stands_still_for_a_lease_is_replaced_and_fenced(log: LockLog, clock: Clock) -> None:
    first, second = made(log, clock, "first"), made(log, clock, "second")
    assert first.is_held()
    assert not second.is_held()
    clock.now += LEASE_SECONDS - 0.1
    assert not second.is_held()
    clock.now += 0.1
    assert second.is_held()
    with pytest.raises(LockLost):
        first.renew()
    assert not first.is_held()
    assert first.holder == "second"


def test_of_two_that_take_it_at_once_the_first_to_ask_stands_back(
    log: LockLog, clock: Clock
) -> None:
    first, second = made(log, clock, "first"), made(log, clock, "second")
    assert first.is_held()
    log.holder = None
    assert second.is_held()
    with pytest.raises(LockLost):
        first.renew()
    second.renew()


def test_who_was_fenced_waits_even_if_the_successor_has_not_written(
    log: LockLog, clock: Clock
) -> None:
    lock = made(log, clock, "first")
    assert lock.is_held()
    log.epoch += 1
    with pytest.raises(LockLost):
        lock.renew()
    assert not lock.is_held()
    clock.now += LEASE_SECONDS
    assert lock.is_held()


def test_while_nobody_can_write_nobody_holds_it(log: LockLog, clock: Clock) -> None:
    lock = made(log, clock, "first")
    assert lock.is_held()
    log.unreachable = True
    with pytest.raises(BrokerUnreachable):
        lock.renew()
    with pytest.raises(LockLost):
        lock.renew()
    with pytest.raises(BrokerUnreachable):
        lock.is_held()
    log.unreachable = False
    assert lock.is_held()


@pytest.mark.parametrize("text", [None, "", "{}", "[]", "not JSON", '{"name": "a", "id": "b"}'])
def test_what_somebody_else_wrote_names_no_holder(text: str | None) -> None:
    assert parse_holder(text) is None


def test_a_holder_is_read_as_written() -> None:
    holder = Holder("host-1 (process 7)", "x", 9, held=False)
    assert parse_holder(encode_holder(holder)) == holder


def test_a_write_that_does_not_return_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    store = KafkaLockStore("nowhere:9092", "placement.", "main")
    store._producer = SimpleNamespace(
        begin_transaction=lambda: None, send_offsets_to_transaction=lambda *_: never.wait()
    )
    store._reader = SimpleNamespace(consumer_group_metadata=object, close=lambda: None)
    monkeypatch.setattr(leader_lock, "WRITE_TIMEOUT_SECONDS", 0.05)
    try:
        with pytest.raises(BrokerUnreachable, match=r"renew the lock placement\.main.* 0\.05 s"):
            store.write(Holder("first", "id", 1))
    finally:
        never.set()
