"""Lets one agent of a cell act: the owner of a transactional id, whose name the others can read.

The owner commits its name and a count as the metadata of a group's offset, in a transaction. Who
initialises the id anew fences the owner, whose next commit fails (KIP-98). As with a lease of
Kubernetes, a holder is given up when its count has stood still for a while by the reader's clock.
"""

import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from schemas.access import BRIDGE_SUFFIX
from schemas.topics import MOVES, full_name
from streaming.brokers import CONNECT_TIMEOUT_SECONDS, call_within, connect
from streaming.errors import BrokerUnreachable, StreamingError

# client-go's defaults are 15 s, 10 s and 2 s: a holder that stops is replaced within the first.
LEASE_SECONDS = 15.0
RENEW_SECONDS = 5.0
# librdkafka 2.16's send_offsets_to_transaction ignores its timeout, and waits for ever where the
# group's coordinator has left the cluster (its issues 5456 and 5511). A write takes a tenth of a
# second, and some seconds while the coordinator changes; the lease is longer.
WRITE_TIMEOUT_SECONDS = 8.0
# A transaction of nothing but an offset; one that is open longer belongs to a dead agent.
TRANSACTION_TIMEOUT_MS = 10_000
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)  # noqa: SLF001


class LockLost(StreamingError):
    """Another agent has taken the lock over; nothing that was to be done may be done."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who wrote last: `name` for people, `id` of one process, `count` of its commits; `held` is
    False once it has let go."""

    name: str
    id: str
    count: int
    held: bool = True


class LockStore(Protocol):
    """Where the holder is written; a write of a store that another has taken raises LockLost.

    All raise BrokerUnreachable.
    """

    def read(self) -> Holder | None:
        """Return who wrote last, None for nobody."""

    def take(self) -> None:
        """Become the writer; earlier writers are fenced."""

    def write(self, holder: Holder) -> None:
        """Write who holds the lock."""

    def close(self) -> None:
        """Let the clients go; the store can be used again."""


class LeaderLock:
    """One agent's side of the lock: `is_held` tries, renews and says who holds it otherwise."""

    def __init__(
        self,
        store: LockStore,
        name: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` counts seconds; only durations are taken of it."""
        self._store, self._clock = store, clock
        self.name = name or f"{socket.gethostname()} (process {os.getpid()})"
        self._id = uuid.uuid4().hex
        self._count = 0
        self._renewed_at: float | None = None
        self._seen: tuple[Holder, float] | None = None

    @property
    def holder(self) -> str | None:
        """The name of the other agent that held the lock when it was last looked, if any."""
        return None if self._seen is None else self._seen[0].name

    def is_held(self) -> bool:
        """Return whether this agent holds the lock, taking it where nobody does.

        A holder renews it every few seconds. Raises LockLost once where another has taken it, and
        BrokerUnreachable.
        """
        if self._renewed_at is not None:
            if self._clock() - self._renewed_at >= RENEW_SECONDS:
                self.renew()
            return True
        if not self._is_free():
            return False
        self._seen = None
        self._store.take()
        self._write()
        return True

    def renew(self) -> None:
        """Prove that the lock is still held, as has to be done before each change. Raises LockLost,
        and BrokerUnreachable; then it is not known to be held any more."""
        if self._renewed_at is None:
            raise LockLost("the lock of the bridge is not held")
        self._write()

    def release(self) -> None:
        """Let go, so that a waiting agent need not wait for the lease to end."""
        try:
            if self._renewed_at is not None:
                self._store.write(Holder(self.name, self._id, self._count + 1, held=False))
        finally:
            self._renewed_at = None
            self._store.close()

    def _write(self) -> None:
        self._count += 1
        # Until it is written again nobody knows who holds it.
        self._renewed_at = None
        try:
            self._store.write(Holder(self.name, self._id, self._count))
        except StreamingError as error:
            self._store.close()
            if isinstance(error, LockLost):
                # The successor may not have written yet: what stands there is nobody's own now.
                self._id = uuid.uuid4().hex
            raise
        self._renewed_at = self._clock()

    def _is_free(self) -> bool:
        found = self._store.read()
        if found is None or not found.held or found.id == self._id:
            return True
        if self._seen is None or self._seen[0] != found:
            self._seen = (found, self._clock())
            return False
        return self._clock() - self._seen[1] >= LEASE_SECONDS


class KafkaLockStore:
    """`LockStore` by a transactional id and a group of that name, on the reconciler's brokers."""

    def __init__(
        self, bootstrap: str, prefix: str, cell: str, options: Mapping[str, str] | None = None
    ) -> None:
        self._bootstrap, self._options = bootstrap, options
        self.id = f"{prefix}{cell}{BRIDGE_SUFFIX}"
        # Any partition that there is; the agent may read this one.
        self._place = full_name(MOVES, prefix), 0
        self._reader: Any = None
        self._producer: Any = None

    def read(self) -> Holder | None:
        """See LockStore."""
        try:
            (found,) = self._connected().committed(
                [TopicPartition(*self._place)], timeout=CONNECT_TIMEOUT_SECONDS
            )
        except KafkaException as error:
            raise self._failure("read", error) from error
        return parse_holder(found.metadata)

    def take(self) -> None:
        """See LockStore."""
        self._producer = connect(
            Producer,
            self._bootstrap,
            {"transactional.id": self.id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS},
            self._options,
        )
        try:
            self._producer.init_transactions(CONNECT_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise self._failure("taken", error) from error

    def write(self, holder: Holder) -> None:
        """See LockStore."""
        producer, group = self._producer, self._connected().consumer_group_metadata()
        place = TopicPartition(*self._place, holder.count, metadata=encode_holder(holder))

        def commit() -> None:
            producer.begin_transaction()
            producer.send_offsets_to_transaction([place], group, CONNECT_TIMEOUT_SECONDS)
            producer.commit_transaction(CONNECT_TIMEOUT_SECONDS)

        try:
            # One that is left behind is fenced by whoever takes the lock next.
            call_within(WRITE_TIMEOUT_SECONDS, f"renew the lock {self.id}", commit)
        except KafkaException as error:
            raise self._failure("renewed", error) from error

    def close(self) -> None:
        """See LockStore."""
        reader, self._reader, self._producer = self._reader, None, None
        if reader is not None:
            reader.close()

    def _connected(self) -> Any:
        if self._reader is None:
            needed = {"group.id": self.id, "enable.auto.commit": False}
            self._reader = connect(Consumer, self._bootstrap, needed, self._options)
        return self._reader

    def _failure(self, what: str, error: KafkaException) -> StreamingError:
        cause = error.args[0]
        if cause.code() in _FENCED:
            return LockLost("another agent has taken the lock of the bridge over")
        return BrokerUnreachable(f"the lock {self.id} cannot be {what}: {cause.str()}")


def encode_holder(holder: Holder) -> str:
    """Encode a holder as the text of an offset's metadata."""
    fields = {"name": holder.name, "id": holder.id, "count": holder.count, "held": holder.held}
    return orjson.dumps(fields).decode()


def parse_holder(text: str | None) -> Holder | None:
    """Read what `encode_holder` has written; None where somebody else wrote, or nobody."""
    try:
        found = orjson.loads(text or "")
        return Holder(str(found["name"]), str(found["id"]), int(found["count"]), found["held"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
