"""Commits everything decided from a stretch of input in one Kafka transaction.

The transactional id belongs to the cell: whoever initialises it last is the writer, and an older
writer can commit nothing any more. Any error of the transactional producer ends the process; a
restart is the recovery.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from kafka.partitioner import murmur2

from schemas.access import PROBE_SUFFIX
from schemas.topics import DEAD_LETTERS, full_name
from streaming.brokers import FENCE_TIMEOUT_SECONDS, TRANSACTION_TIMEOUT_MS, connect
from streaming.codec import OutRecord
from streaming.errors import StreamingError

# What a producer hears whose transactional id has a newer owner: the client's own and the broker's.
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)  # noqa: SLF001
# What a call says after a fatal error that was heard of before it.
_FATAL = KafkaError._FATAL  # noqa: SLF001
# What becomes of records whose transaction has failed already, for a reason that is told elsewhere.
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # noqa: SLF001
# The client's own partitioner puts a record where its key belongs (RD_KAFKA_PARTITION_UA).
OF_KEY = -1
# The client's own time of the call.
NOW = 0
# The broker's max.message.bytes less what batching adds; see the topic catalogue.
RECORD_BYTES_MAX = 1_000_000
# Below this a value leaves room enough: our own keys have a few hundred bytes, the headers repeat
# them and add some 300. Dead letters have keys and headers of others.
PLAIN_BYTES_MAX = RECORD_BYTES_MAX // 4
# Deliveries are looked at once for so many records: each look lets go of the interpreter.
RECORDS_PER_POLL = 1_000


class OutboxFailed(StreamingError):
    """The transaction did not commit, or another writer has taken over."""


class _FirstRefused:
    """The first record that the broker refused, as the producer's callback told it."""

    def __init__(self) -> None:
        self.text: str | None = None

    def __call__(self, error: KafkaError, message: Message) -> None:
        if self.text is None and error.code() not in _PURGED:
            self.text = f"a record for {message.topic()} was refused: {error}"


class Outbox:
    """The single writer of a cell's output topics."""

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        cell: str,
        partitions: Mapping[str, int],
        options: Mapping[str, str],
    ) -> None:
        """`partitions`: partition count of each output topic, by short name."""
        self._names = {topic: full_name(topic, prefix) for topic in partitions}
        self._partitions = partitions
        self._failed: str | None = None
        self._refused = _FirstRefused()
        self._producer = connect(
            Producer,
            bootstrap,
            {
                # A call for each record that is delivered would cost a quarter of the writing.
                "on_delivery": self._refused,
                "delivery.report.only.error": True,
                "transactional.id": f"{prefix}{cell}",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                # As Java's clients do it, so that everyone puts a key into the same partition.
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                # A commit flushes, so that waiting costs a small batch nothing.
                "linger.ms": 20,
                # A record of a million in one transaction must not wait for the queue.
                "queue.buffering.max.messages": 2_000_000,
            },
            options,
        )

    def fence(self) -> None:
        """Become the cell's writer: older ones can no longer commit. Raises OutboxFailed."""
        try:
            self._producer.init_transactions(FENCE_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise OutboxFailed(
                f"the transactional id cannot be acquired: {_error_text(error)}"
            ) from error

    def commit(self, records: Iterable[OutRecord]) -> None:
        """Write all records and commit them as one, each as soon as it is there: the client
        compresses and sends those before it while the next ones are made.

        Raises OutboxFailed, or what making a record raises; then nothing of it is visible to
        readers of committed records. After any failure of the transaction itself the outbox is of
        no more use.
        """
        if self._failed:
            raise OutboxFailed(self._failed)
        try:
            self._producer.begin_transaction()
            rest = iter(records)
            while block := list(islice(rest, RECORDS_PER_POLL)):
                self._produce(block)
                self._producer.poll(0)
            self._producer.commit_transaction()
        except (KafkaException, BufferError) as error:
            cause = _error_text(self._name_fatal(error))
            why = self._refused.text or f"the transaction did not commit: {cause}"
            self._failed = why
            raise OutboxFailed(why) from error
        except Exception as error:
            self._abort(error)
            raise

    def _abort(self, error: Exception) -> None:
        """Abort the transaction, in which one of its records could not be made or was too large."""
        try:
            self._producer.abort_transaction(FENCE_TIMEOUT_SECONDS)
        except KafkaException as failed:
            self._failed = f"the transaction was not aborted: {_error_text(failed)}"
            raise OutboxFailed(self._failed) from error

    def _name_fatal(self, error: Exception) -> Exception:
        """Return what is behind an error that only says that one was fatal: where the client hears
        of a newer writer between two calls, the first of them does not tell, but the abort does."""
        if not isinstance(error, KafkaException) or error.args[0].code() != _FATAL:
            return error
        try:
            self._producer.abort_transaction(FENCE_TIMEOUT_SECONDS)
        except KafkaException as named:
            return named
        return error

    def _produce(self, records: Sequence[OutRecord]) -> None:
        # `callback, on_delivery, timestamp, headers` by place: to look one of them up by its name
        # takes the client a quarter of the call.
        produce, names = self._producer.produce, self._names
        for record in records:
            topic, key, value, headers, route = record
            if topic == DEAD_LETTERS or (value is not None and len(value) > PLAIN_BYTES_MAX):
                _check_size(record)
            partition = OF_KEY if route is None else self._route(topic, route)
            while True:
                try:
                    produce(names[topic], value, key, partition, None, None, NOW, headers)
                    break
                except BufferError:
                    # The queue is full: wait until the broker has taken some of it.
                    self._producer.poll(1.0)

    def _route(self, topic: str, route: str) -> int:
        """The partition Java's default partitioner gives to the key `route`."""
        return (murmur2(route.encode()) & 0x7FFFFFFF) % self._partitions[topic]


def try_transaction(bootstrap: str, prefix: str, cell: str, options: Mapping[str, str]) -> None:
    """Begin and abort a transaction under an id beside the cell's own: nobody is fenced.

    Raises OutboxFailed where this principal may not, or the brokers cannot.
    """
    probe = f"{prefix}{cell}{PROBE_SUFFIX}"
    timeout = {"transactional.id": probe, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
    producer = connect(Producer, bootstrap, timeout, options)
    try:
        producer.init_transactions(FENCE_TIMEOUT_SECONDS)
        producer.begin_transaction()
        producer.abort_transaction(FENCE_TIMEOUT_SECONDS)
    except KafkaException as error:
        raise OutboxFailed(f"transactional id {probe}: {_error_text(error)}") from error


def _check_size(record: OutRecord) -> None:
    size = len(record.value or b"") + len(record.key or b"")
    for name, content in record.headers:
        size += len(name) + len(content or b"")
    if size > RECORD_BYTES_MAX:
        key = (record.key or b"").decode("utf-8", "backslashreplace")
        raise OutboxFailed(
            f"the record {key} for {record.topic} has {size} bytes, above the limit of "
            f"{RECORD_BYTES_MAX}"
        )


def _error_text(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    if not isinstance(cause, KafkaError):
        return str(error)
    if cause.code() in _FENCED:
        return (
            "another writer has taken over this cell, or a transaction took longer than "
            f"{TRANSACTION_TIMEOUT_MS // 1000} s"
        )
    return str(cause.str())
