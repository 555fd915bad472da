"""Locks in memory, for processes that share one in a test."""

from collections.abc import Sequence

from streaming.brokers import Holder, LockLost, ProducerRecord
from streaming.errors import BrokerUnreachable


class LockLog:
    """What processes share of a lock: who wrote last, the epoch of the transactional id, and what
    was committed under it. `arrives`: writes that fail because nobody answers arrive after all."""

    def __init__(self) -> None:
        self.holder: Holder | None = None
        self.epoch = 0
        self.records: list[ProducerRecord] = []
        self.unreachable = self.arrives = False


class MemoryLockStore:
    """`LockStore` of one process on a `LockLog`."""

    def __init__(self, log: LockLog) -> None:
        self._log, self._epoch = log, -1

    def read(self) -> Holder | None:
        """See LockStore."""
        self._reach()
        return self._log.holder

    def take(self) -> None:
        """See LockStore."""
        self._reach()
        self._log.epoch += 1
        self._epoch = self._log.epoch

    def write(self, holder: Holder, records: Sequence[ProducerRecord] = ()) -> None:
        """See LockStore."""
        if not self._log.arrives:
            self._reach()
        if self._epoch != self._log.epoch:
            raise LockLost("another process has taken the lock over")
        self._log.holder = holder
        self._log.records += records
        self._reach()

    def close(self) -> None:
        """See LockStore."""

    def _reach(self) -> None:
        if self._log.unreachable:
            raise BrokerUnreachable("no coordinator")
