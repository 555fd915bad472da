"""A lock: one holds it, the others know who; whoever was replaced does nothing."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from streaming.brokers import leader_lock
from streaming.brokers.leader_lock import (
    ACT_SECONDS,
    LEASE_SECONDS,
    RENEW_SECONDS,
    Holder,
    KafkaLockStore,
    LeaderLock,
    LockLost,
    ProducerRecord,
    encode_holder,
    parse_holder,
)
from streaming.brokers.process_identity import ProcessIdentity, identify_process
from streaming.errors import BrokerUnreachable
from tests.builders.lock_stores import LockLog, MemoryLockStore


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


def test_an_outage_is_not_taken_for_the_holders_death(log: LockLog, clock: Clock) -> None:
    first, second = made(log, clock, "first"), made(log, clock, "second")
    assert first.is_held()
    assert not second.is_held()
    clock.now += LEASE_SECONDS - 1
    log.unreachable = True
    with pytest.raises(BrokerUnreachable):
        second.is_held()
    clock.now += LEASE_SECONDS
    log.unreachable = False
    assert not second.is_held()
    assert first.is_held()
    clock.now += LEASE_SECONDS - 1
    assert not second.is_held()


RECORD = ProducerRecord("acks", b"s/0", b"{}")


def test_what_a_fenced_holder_has_to_say_is_not_said(log: LockLog, clock: Clock) -> None:
    first, second = made(log, clock, "first"), made(log, clock, "second")
    assert first.is_held()
    first.renew([RECORD])
    assert log.records == [RECORD]
    assert not second.is_held()
    clock.now += LEASE_SECONDS
    assert second.is_held()
    with pytest.raises(LockLost):
        first.renew([RECORD])
    assert log.records == [RECORD]


@pytest.mark.parametrize("arrives", [True, False])
def test_a_holder_learns_what_became_of_a_write_that_was_not_answered(
    log: LockLog, clock: Clock, arrives: bool
) -> None:
    lock = made(log, clock, "first")
    assert lock.is_held()
    log.unreachable, log.arrives = True, arrives
    with pytest.raises(BrokerUnreachable):
        lock.renew([RECORD])
    with pytest.raises(BrokerUnreachable):
        lock.is_held()
    log.unreachable = log.arrives = False
    assert lock.is_held()
    assert lock.has_committed() is arrives
    assert lock.term == 1
    assert len(log.records) == arrives


def test_a_term_ends_where_another_has_held_the_lock_meanwhile(log: LockLog, clock: Clock) -> None:
    first, second = made(log, clock, "first"), made(log, clock, "second")
    assert first.is_held()
    assert first.act_until == clock.now + ACT_SECONDS
    log.unreachable = True
    with pytest.raises(BrokerUnreachable):
        first.renew([RECORD])
    log.unreachable = False
    assert not second.is_held()
    clock.now += LEASE_SECONDS
    assert second.is_held()
    second.release()
    assert first.is_held()
    assert first.term == 2
    assert not first.has_committed()


def test_who_took_the_lock_from_one_that_had_just_taken_it_waits_for_its_time_to_end(
    log: LockLog, clock: Clock
) -> None:
    first = made(log, clock, "first")
    store, found_before = MemoryLockStore(log), [None]
    look = store.read
    store.read = lambda: found_before.pop() if found_before else look()
    second = LeaderLock(store, "second", clock)
    assert first.is_held()
    # It looked before the first one wrote, and fences it now.
    assert not second.is_held()
    assert second.holder == "first"
    with pytest.raises(LockLost):
        first.renew()
    assert not first.is_held()
    clock.now += LEASE_SECONDS - 0.1
    assert not second.is_held()
    clock.now += 0.1
    assert second.is_held()
    assert (second.term, second.holder) == (1, None)
    assert not first.is_held()


def test_a_holder_whose_process_has_ended_here_is_followed_at_once(
    log: LockLog, clock: Clock
) -> None:
    first, second = made(log, clock, "first"), made(log, clock, "second")
    own = identify_process()
    assert own is not None
    assert first.is_held()
    assert log.holder is not None
    assert log.holder.process == own
    elsewhere = replace(own, host="elsewhere", pid=2**22 + 1)
    for process in (own, elsewhere, None):
        log.holder = replace(log.holder, process=process)
        assert not second.is_held()
    log.holder = replace(log.holder, process=replace(own, started_at=own.started_at - 1))
    assert second.is_held()


@pytest.mark.parametrize("text", [None, "", "{}", "[]", "not JSON", '{"name": "a", "id": "b"}'])
def test_what_somebody_else_wrote_names_no_holder(text: str | None) -> None:
    assert parse_holder(text) is None


def test_a_holder_is_read_as_written() -> None:
    process = ProcessIdentity("host-1", "boot", "pid:[1]", 7, 12)
    for each in (None, process):
        holder = Holder("host-1 (process 7)", "x", 9, held=False, process=each)
        assert parse_holder(encode_holder(holder)) == holder
    # As versions before this one write it.
    earlier = '{"name":"host-1","id":"x","count":9,"held":true}'
    assert parse_holder(earlier) == Holder("host-1", "x", 9)


def test_a_write_that_does_not_return_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    store = KafkaLockStore("nowhere:9092", "placement.", "placement.main.kafka-bridge")
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
