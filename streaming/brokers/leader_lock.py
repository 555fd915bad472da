"""Lets one of several processes act: the owner of a transactional id, whose name others can read.

The owner commits its name and a count as the metadata of a group's offset, in a transaction that
carries what it has to say, too. Who initialises the id anew fences the owner, whose next commit
fails with all that is in it (KIP-98). As with a lease of Kubernetes, a holder is given up when its
count has stood still for a while by the reader's clock; one whose process has ended on the reader's
own machine, at once.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from schemas.topics import MOVES, full_name
from streaming.brokers.clients import CONNECT_TIMEOUT_SECONDS, call_within, connect
from streaming.brokers.process_identity import ProcessIdentity, identify_process
from streaming.errors import AccessRefused, BrokerUnreachable, StreamingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# client-go's defaults are 15 s, 10 s and 2 s: a holder that stops is replaced within the first, and
# one that could not renew for the second does nothing more.
LEASE_SECONDS = 15.0
ACT_SECONDS = 10.0
RENEW_SECONDS = 5.0
# librdkafka 2.16's send_offsets_to_transaction ignores its timeout, and waits for ever where the
# group's coordinator has left the cluster (its issues 5456 and 5511). A write takes a tenth of a
# second, and some seconds while the coordinator changes; the lease is longer.
WRITE_TIMEOUT_SECONDS = 8.0
# A transaction of an offset and a few records; one that is open longer belongs to a dead holder.
TRANSACTION_TIMEOUT_MS = 10_000
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)  # noqa: SLF001


class LockLost(StreamingError):
    """Another process has taken the lock over; nothing that was to be done may be done."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who wrote last: `name` for people, `id` of one process, `count` of its commits; `held` is
    False once it has let go. `process`: for readers on its machine, None where it has no name."""

    name: str
    id: str
    count: int
    held: bool = True
    process: ProcessIdentity | None = None


class ProducerRecord(NamedTuple):
    """A record that is to be written. `topic`: its full name."""

    topic: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...] = ()


class LockStore(Protocol):
    """Where the holder is written; a write of a store that another has taken raises LockLost.

    All raise BrokerUnreachable, and AccessRefused where a right is missing.
    """

    def read(self) -> Holder | None:
        """Return who wrote last, None for nobody."""

    def take(self) -> None:
        """Become the writer; earlier writers are fenced."""

    def write(self, holder: Holder, records: Sequence[ProducerRecord] = ()) -> None:
        """Write who holds the lock, and records with it: all, or nothing."""

    def close(self) -> None:
        """Let the clients go; the store can be used again."""


class LeaderLock:
    """One process's side of the lock: `is_held` tries, renews and says who holds it otherwise.

    `term` counts the times that it was acquired. It stays as it is where a holder could not write
    for a while and nobody held the lock meanwhile. Not to be shared by threads.
    """

    def __init__(
        self,
        store: LockStore,
        name: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` counts seconds; only durations are taken of it."""
        self._store, self._clock = store, clock
        self.name = name or f"{socket.gethostname()} (process {os.getpid()})"
        self.term = 0
        self._process = identify_process()
        self._id = uuid.uuid4().hex
        self._count = 0
        # When the write began that proved the lock last: others count from it, or later.
        self._proved_at: float | None = None
        self._is_settled = False
        self._act_from = float("-inf")
        # The count of a write with records of which it is not known whether it arrived.
        self._in_doubt: int | None = None
        self._has_committed = False
        self._seen: tuple[Holder, float] | None = None

    @property
    def holder(self) -> str | None:
        """The name of the other process that held the lock when it was last looked, if any."""
        return None if self._seen is None else self._seen[0].name

    @property
    def act_until(self) -> float:
        """Until when its holder may act, by its clock: nobody else holds it before then."""
        return float("-inf") if self._proved_at is None else self._proved_at + ACT_SECONDS

    def is_held(self) -> bool:
        """Return whether this process holds the lock, taking it where nobody does.

        A holder renews it every few seconds. Raises LockLost once where another has taken it, and
        BrokerUnreachable, AccessRefused.
        """
        if self._is_settled:
            assert self._proved_at is not None
            if self._clock() - self._proved_at >= RENEW_SECONDS:
                self.renew()
        elif self.is_free():
            self._take()
        if not self._is_settled or self._clock() < self._act_from:
            return False
        self._seen = None
        return True

    def is_free(self) -> bool:
        """Return whether no other process holds the lock, which is not taken. Raises
        BrokerUnreachable, AccessRefused."""
        try:
            found = self._store.read()
        except StreamingError:
            self.reset_patience()
            raise
        if found is None or self._is_over(found):
            return True
        if self._seen is None or self._seen[0] != found:
            self._seen = (found, self._clock())
            return False
        return self._clock() - self._seen[1] >= LEASE_SECONDS

    def reset_patience(self) -> None:
        """Give the holder its whole time again: while no broker answered, it could not write."""
        self._seen = None

    def renew(self, records: Sequence[ProducerRecord] = ()) -> None:
        """Prove that the lock is still held, as has to be done before each change, and commit
        records with the proof.

        Raises LockLost, and BrokerUnreachable or AccessRefused; then it is not known to be held any
        more. Once it is held again in the same term, `has_committed` says what became of the
        records.
        """
        if not self._is_settled:
            raise LockLost("the lock is not held")
        try:
            self._write(records)
        except StreamingError:
            if records:
                self._in_doubt = self._count
            raise

    def has_committed(self) -> bool:
        """Return whether the last records whose write has failed arrived after all; to be asked
        when the lock is held again in the same term."""
        return self._has_committed

    def release(self) -> None:
        """Let go, so that a waiting process need not wait for the lease to end."""
        try:
            if self._is_settled:
                self._store.write(self._describe(held=False))
        finally:
            self._is_settled, self._proved_at = False, None
            self._store.close()

    def _take(self) -> None:
        """Become the holder, or be it again."""
        try:
            self._store.take()
            # What an earlier write of ours, or of another, left open is settled now.
            found = self._store.read()
        except StreamingError:
            self._store.close()
            raise
        is_same = found is not None and found.id == self._id
        if not is_same:
            self.term += 1
            self._wait_out(found)
        if self._in_doubt is not None:
            self._has_committed = is_same and found is not None and found.count >= self._in_doubt
            self._in_doubt = None
        self._write(())

    def _wait_out(self, found: Holder | None) -> None:
        """Act at once, or where another took the lock after this one had looked, once its time is
        over: it is fenced, and does not know it."""
        self._act_from = float("-inf")
        is_known = self._seen is not None and self._seen[0] == found
        if found is not None and not is_known and not self._is_over(found):
            self._seen = (found, self._clock())
            self._act_from = self._clock() + LEASE_SECONDS

    def _write(self, records: Sequence[ProducerRecord]) -> None:
        self._count += 1
        # Until it is written again nobody knows who holds it.
        self._is_settled, began = False, self._clock()
        try:
            self._store.write(self._describe(), records)
        except StreamingError as error:
            self._store.close()
            if isinstance(error, LockLost):
                # The successor may not have written yet: what stands there is nobody's own now.
                self._id, self._proved_at = uuid.uuid4().hex, None
            raise
        self._is_settled, self._proved_at = True, began

    def _is_over(self, found: Holder) -> bool:
        """Return whether it is known that no other process acts by this record any more."""
        if not found.held or found.id == self._id:
            return True
        return found.process is not None and found.process.has_ended()

    def _describe(self, *, held: bool = True) -> Holder:
        count = self._count if held else self._count + 1
        return Holder(self.name, self._id, count, held, self._process)


class KafkaLockStore:
    """`LockStore` by a transactional id and a group of that name, on the reconciler's brokers."""

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        lock_id: str,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`lock_id`: the name of id and group, in full."""
        self._bootstrap, self._options = bootstrap, options
        self.id = lock_id
        # Any partition that there is; whoever holds a lock may read this one.
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
            raise self._failure("read", error, f"Read on topic {self._place[0]}") from error
        return parse_holder(found.metadata)

    def take(self) -> None:
        """See LockStore."""
        self._producer = connect(
            Producer,
            self._bootstrap,
            {
                "transactional.id": self.id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                # As in `make_producer`: everyone puts a key into the same partition.
                "partitioner": "murmur2_random",
            },
            self._options,
        )
        try:
            self._producer.init_transactions(CONNECT_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise self._failure("taken", error) from error

    def write(self, holder: Holder, records: Sequence[ProducerRecord] = ()) -> None:
        """See LockStore."""
        producer, group = self._producer, self._connected().consumer_group_metadata()
        place = TopicPartition(*self._place, holder.count, metadata=encode_holder(holder))
        topics = ", ".join(sorted({each.topic for each in records}))

        def commit() -> None:
            try:
                producer.begin_transaction()
                producer.send_offsets_to_transaction([place], group, CONNECT_TIMEOUT_SECONDS)
            except KafkaException as error:
                raise self._failure("renewed", error, f"Read on topic {self._place[0]}") from error
            try:
                for topic, key, value, headers in records:
                    producer.produce(topic, value, key, headers=[*headers])
                producer.commit_transaction(CONNECT_TIMEOUT_SECONDS)
            except KafkaException as error:
                raise self._failure("renewed", error, f"Write on topic {topics}") from error

        # One that is left behind is fenced by whoever takes the lock next.
        call_within(WRITE_TIMEOUT_SECONDS, f"renew the lock {self.id}", commit)

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

    def _failure(self, what: str, error: KafkaException, on_topic: str = "") -> StreamingError:
        """Make the error that a client's stands for. `on_topic`: the right on a topic that the
        call needs."""
        cause = error.args[0]
        if cause.code() in _FENCED:
            return LockLost(f"another process has taken the lock {self.id} over")
        right = {
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Write on transactional id {}",
            KafkaError.GROUP_AUTHORIZATION_FAILED: "Read on group {}",
            KafkaError.TOPIC_AUTHORIZATION_FAILED: on_topic,
        }.get(cause.code(), "")
        if right:
            return AccessRefused(
                f"this user has not, or no longer, the right {right.format(self.id)} "
                f"({cause.str()}); `placer topics acls` lists the rights of each role"
            )
        return BrokerUnreachable(f"the lock {self.id} cannot be {what}: {cause.str()}")


def encode_holder(holder: Holder) -> str:
    """Encode a holder as the text of an offset's metadata."""
    return orjson.dumps(asdict(holder)).decode()


def parse_holder(text: str | None) -> Holder | None:
    """Read what `encode_holder` has written; None where somebody else wrote, or nobody."""
    try:
        found = orjson.loads(text or "")
        process = found.get("process")
        return Holder(
            str(found["name"]),
            str(found["id"]),
            int(found["count"]),
            found["held"],
            None if process is None else ProcessIdentity(**process),
        )
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
        return None
