"""The locks of an executor: it acts with all of them, and says under each what is of its node."""

import pytest

from schemas.access import ALL_NODES
from streaming.brokers import LEASE_SECONDS, RENEW_SECONDS, LockLost, ProducerRecord
from streaming.brokers.leader_lock import ACT_SECONDS
from streaming.client import node_locks
from streaming.client.node_locks import RETRY_SECONDS, NodeLocks
from streaming.errors import BrokerUnreachable
from tests.builders.lock_stores import LockLog, MemoryLockStore


class Fleet:
    """The locks of all nodes, in memory, and the time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.logs: dict[str, LockLog] = {}

    def locks(self, *nodes: str) -> NodeLocks:
        """Make the locks of an executor for these nodes, or for all."""

        def make_store(node_id: str) -> MemoryLockStore:
            return MemoryLockStore(self.logs.setdefault(node_id, LockLog()))

        return NodeLocks(nodes or None, make_store, lambda: self.now)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def record(number: int) -> ProducerRecord:
    return ProducerRecord("acks", b"s/%d" % number, b"{}")


def test_each_node_has_its_lock_and_its_records(fleet: Fleet) -> None:
    locks = fleet.locks("b", "a")
    assert locks.acquire()
    locks.put("a", record(1))
    locks.put("b", record(2))
    locks.put("a", record(3))
    assert locks.unconfirmed == 3
    assert locks.commit()
    assert fleet.logs["a"].records == [record(1), record(3)]
    assert fleet.logs["b"].records == [record(2)]
    assert locks.unconfirmed == 0


def test_an_executor_for_all_nodes_has_one_lock(fleet: Fleet) -> None:
    locks = fleet.locks()
    assert locks.acquire()
    for node_id in ("a", "b", None):
        locks.put(node_id, record(1))
    assert locks.commit()
    assert {name: len(log.records) for name, log in fleet.logs.items() if log.epoch} == {
        ALL_NODES: 3
    }


def test_executors_that_share_a_node_do_not_act_together(fleet: Fleet) -> None:
    first, second = fleet.locks("a", "b"), fleet.locks("c", "b")
    assert first.acquire()
    assert not second.acquire()
    assert second.waits_for is not None
    assert second.waits_for[0] == "b"
    first.release()
    assert second.acquire()
    assert second.waits_for is None
    assert not first.acquire()


def test_who_acts_for_a_node_gives_way_to_who_acts_for_all(fleet: Fleet) -> None:
    of_one, of_all = fleet.locks("a"), fleet.locks()
    assert of_one.acquire()
    assert of_all.acquire()
    fleet.now += RENEW_SECONDS
    with pytest.raises(LockLost, match="acts for all nodes: let all executors"):
        of_one.commit()
    assert not of_one.acquire()
    assert of_one.waits_for is not None
    assert of_one.waits_for[0] == ALL_NODES
    of_all.release()
    assert of_one.acquire()


def test_who_waits_tries_its_rights_once(fleet: Fleet) -> None:
    first, second = fleet.locks("a"), fleet.locks("a")
    assert first.acquire()
    fleet.logs["a/probe"].unreachable = True
    with pytest.raises(BrokerUnreachable):
        second.acquire()
    fleet.logs["a/probe"].unreachable = False
    for _ in range(3):
        assert not second.acquire()
    assert fleet.logs["a/probe"].epoch == 1


def test_what_was_not_said_in_time_is_not_said_later(fleet: Fleet) -> None:
    first, second = fleet.locks("a"), fleet.locks("a")
    assert first.acquire()
    assert not second.acquire()
    fleet.now += LEASE_SECONDS
    assert second.acquire()
    first.put("a", record(1))
    with pytest.raises(LockLost):
        first.commit()
    second.release()
    assert first.acquire()
    assert first.commit()
    assert fleet.logs["a"].records == []


@pytest.mark.parametrize("arrives", [True, False])
def test_after_an_outage_each_record_is_there_once(
    fleet: Fleet, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_locks, "RECORDS_PER_COMMIT_MAX", 2)
    locks, records = fleet.locks("a", "b"), [record(number) for number in range(5)]
    assert locks.acquire()
    log = fleet.logs["a"]
    for each in records:
        locks.put("a", each)
    log.unreachable, log.arrives = True, arrives
    assert not locks.commit()
    fleet.now += RETRY_SECONDS
    assert not locks.commit()
    log.unreachable = log.arrives = False
    assert not locks.commit(), "it is not tried again at once"
    fleet.now += RETRY_SECONDS
    assert locks.commit()
    assert log.records == records
    fleet.now += RENEW_SECONDS
    assert locks.commit()
    assert locks.act_until == fleet.now + ACT_SECONDS


def test_an_outage_is_no_sign_that_a_holder_is_gone(fleet: Fleet) -> None:
    first, second = fleet.locks("a"), fleet.locks("a")
    assert first.acquire()
    assert not second.acquire()
    # It is noticed of the lock of all nodes, which is looked at first.
    fleet.logs[ALL_NODES].unreachable = True
    with pytest.raises(BrokerUnreachable):
        second.acquire()
    fleet.now += LEASE_SECONDS
    fleet.logs[ALL_NODES].unreachable = False
    assert not second.acquire()
    assert first.commit()


def test_who_was_cut_off_while_another_held_the_lock_begins_anew(fleet: Fleet) -> None:
    first, second = fleet.locks("a"), fleet.locks("a")
    assert first.acquire()
    log = fleet.logs["a"]
    first.put("a", record(1))
    log.unreachable = True
    assert not first.commit()
    log.unreachable = False
    assert not second.acquire()
    fleet.now += LEASE_SECONDS
    assert second.acquire()
    second.release()
    with pytest.raises(LockLost, match="has held the lock meanwhile"):
        first.commit()
    assert log.records == []
