"""Holds the locks of the nodes that an executor acts for, and says under them what it has to say.

`executor.py` waits here until it holds them; `term.py` commits its acknowledgements through them.
Each is a transactional id with a record of who holds it (`streaming.brokers`): one for each node
that the executor names, or one for all nodes. Who acts for single nodes looks at the lock of all,
too, and gives way: a prefix has executors of the one kind or of the other.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from schemas.access import ALL_NODES, executor_lock_id
from streaming.brokers import RENEW_SECONDS, KafkaLockStore, LeaderLock, LockLost
from streaming.client import metrics
from streaming.errors import BrokerUnreachable, StreamingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from streaming.brokers import LockStore, ProducerRecord

LOG = logging.getLogger("streaming.client")
# Written in well under a second; the rest waits for the next transaction.
RECORDS_PER_COMMIT_MAX = 1000
# Behind the id of a lock: under this name one that waits tries its rights. No node has a slash in
# its id.
PROBE = "/probe"
# How soon a commit that failed is tried again.
RETRY_SECONDS = 1.0


class _NodeLock:
    """The lock of one node, with what is to be said for the node; `tried`: how many of these the
    last commit had that failed."""

    def __init__(self, lock: LeaderLock) -> None:
        self.lock = lock
        self.pending: list[ProducerRecord] = []
        self.tried = 0

    def commit(self) -> None:
        """Say what is pending, and renew the lock when it is due."""
        while self.pending:
            batch = self.pending[:RECORDS_PER_COMMIT_MAX]
            self.tried = len(batch)
            self.lock.renew(batch)
            self._confirm()
        self.lock.is_held()

    def hold_again(self) -> bool:
        """Return whether the lock is held still; learn what became of what was tried."""
        if not self.lock.is_held():
            return False
        if self.lock.has_committed():
            self._confirm()
        self.tried = 0
        return True

    def forget(self) -> None:
        """Drop what was to be said."""
        self.pending.clear()
        self.tried = 0

    def _confirm(self) -> None:
        del self.pending[: self.tried]
        self.tried = 0


class NodeLocks:
    """The locks of one executor: it acts while it holds all of them.

    What two executors name in part is taken in the order of the nodes' ids, so that they do not
    wait for each other. Not to be shared by threads.
    """

    def __init__(
        self,
        nodes: Iterable[str] | None,
        make_store: Callable[[str], LockStore],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`nodes`: the nodes that are served; None: all. `make_store`: makes the store of a node's
        lock, which is not used before `acquire`."""
        names = [ALL_NODES] if nodes is None else sorted(set(nodes))
        self._locks = {name: _NodeLock(LeaderLock(make_store(name), clock=clock)) for name in names}
        self._of_all = None if nodes is None else LeaderLock(make_store(ALL_NODES), clock=clock)
        self._look_at = float("-inf")
        self._clock = clock
        self._probe: LockStore | None = make_store(f"{next(iter(self._locks), '')}{PROBE}")
        self._term = 0
        self._is_doubtful = False
        self._retry_at = float("-inf")
        self.waits_for: tuple[str, str] | None = None
        self._measure(is_held=False)

    @property
    def act_until(self) -> float:
        """Until when the executor may act, by the clock."""
        return min((each.lock.act_until for each in self._locks.values()), default=float("inf"))

    @property
    def unconfirmed(self) -> int:
        """Count the records that no broker has confirmed yet."""
        return sum(len(each.pending) for each in self._locks.values())

    def acquire(self) -> bool:
        """Return whether all locks are held, with nothing to be said; `waits_for` is else a node
        and the name of who holds its lock. Raises BrokerUnreachable, AccessRefused, LockLost."""
        try:
            self.waits_for = self._find_holder()
        except BrokerUnreachable:
            # One of them was asked; none of their holders could write.
            for each in self._locks.values():
                each.lock.reset_patience()
            raise
        if self.waits_for is not None:
            self._try_rights()
            return False
        self._term, self._is_doubtful = self._sum_terms(), False
        self._measure(is_held=True)
        return True

    def put(self, node_id: str | None, record: ProducerRecord) -> None:
        """Let a record about a node's move or replica be said with the next commit."""
        self._locks[ALL_NODES if self._of_all is None else str(node_id)].pending.append(record)

    def commit(self) -> bool:
        """Say what is pending, and renew the locks when they are due.

        False where no broker answers: a later call tries it again, with nothing said twice. Raises
        LockLost where somebody else holds a lock, or has held it; AccessRefused.
        """
        if self._clock() < self._retry_at:
            return False
        try:
            if self._is_doubtful:
                self._hold_again()
            for each in self._locks.values():
                each.commit()
            # Last: a question that is not answered keeps no lock from being renewed.
            self._give_way()
        except BrokerUnreachable as error:
            level = logging.DEBUG if self._is_doubtful else logging.WARNING
            LOG.log(level, "%s; nothing is begun until it is known who holds the lock", error)
            self._is_doubtful, self._retry_at = True, self._clock() + RETRY_SECONDS
            return False
        except LockLost:
            metrics.LOCKS_LOST.inc()
            self._measure(is_held=False)
            raise
        return True

    def release(self) -> None:
        """Let go of all. Raises the first failure; those locks end by themselves."""
        failures: list[StreamingError] = []
        locks = [each.lock for each in self._locks.values()]
        for lock in locks if self._of_all is None else (*locks, self._of_all):
            try:
                lock.release()
            except StreamingError as error:
                failures.append(error)
        self._measure(is_held=False)
        if failures:
            raise failures[0]

    def _find_holder(self) -> tuple[str, str] | None:
        """Take the locks that are free; return the first that is not, and who holds it."""
        if self._of_all is not None and not self._of_all.is_free():
            return ALL_NODES, self._of_all.holder or "another executor"
        for name, each in self._locks.items():
            each.forget()
            if not each.lock.is_held():
                return name, each.lock.holder or "another executor"
        return None

    def _try_rights(self) -> None:
        """Raise AccessRefused where it could not take a lock: now, not when it is needed."""
        if self._probe is not None:
            self._probe.take()
            self._probe.close()
            self._probe = None

    def _give_way(self) -> None:
        """Raise LockLost where an executor for all nodes has come."""
        if self._of_all is None or self._clock() < self._look_at:
            return
        if not self._of_all.is_free():
            raise LockLost(
                f"{self._of_all.holder} acts for all nodes: let all executors under this prefix "
                "name their nodes, or none"
            )
        self._look_at = self._clock() + RENEW_SECONDS

    def _hold_again(self) -> None:
        """Take up again what could not be renewed. Raises LockLost where another had it."""
        for name, each in self._locks.items():
            if not each.hold_again():
                raise LockLost(f"{each.lock.holder} has taken the lock of node {name} over")
        if self._sum_terms() != self._term:
            raise LockLost("another executor has held the lock meanwhile, and has let go")
        self._is_doubtful = False
        LOG.warning("the locks are still held: the executor goes on")

    def _sum_terms(self) -> int:
        return sum(each.lock.term for each in self._locks.values())

    def _measure(self, *, is_held: bool) -> None:
        for name in self._locks:
            metrics.LOCK_HELD.labels(name).set(is_held)


def make_node_locks(
    bootstrap: str,
    prefix: str,
    nodes: Iterable[str] | None,
    options: Mapping[str, str] | None,
) -> NodeLocks:
    """Make the locks of the executor for some nodes, or for all, on the reconciler's brokers."""

    def make_store(node_id: str) -> LockStore:
        return KafkaLockStore(bootstrap, prefix, executor_lock_id(prefix, node_id), options)

    return NodeLocks(nodes, make_store)
