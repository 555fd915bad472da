"""Speaks with Kafka about records: clients, committed reads, offsets, reachability, locks.

Clients are made here alone, all with the same patience. Imports `settings` and `errors`.
Administration of topics is apart (`streaming.administration`), as it loads a second client.
"""

from streaming.brokers.clients import (
    CONNECT_TIMEOUT_SECONDS,
    FENCE_TIMEOUT_SECONDS,
    TRANSACTION_TIMEOUT_MS,
    CallHangs,
    call_within,
    connect,
    make_producer,
    make_reader,
    present_partitions,
)
from streaming.brokers.leader_lock import (
    LEASE_SECONDS,
    RENEW_SECONDS,
    Holder,
    KafkaLockStore,
    LeaderLock,
    LockLost,
    LockStore,
    ProducerRecord,
)
from streaming.brokers.offsets import find_offset, read_end_offsets, read_watermarks
from streaming.brokers.reachability import Reachability
from streaming.brokers.reader import (
    CommittedReader,
    Record,
    RecordBytes,
    parse_json_object,
    read_headers,
)

__all__ = [
    "CONNECT_TIMEOUT_SECONDS",
    "FENCE_TIMEOUT_SECONDS",
    "LEASE_SECONDS",
    "RENEW_SECONDS",
    "TRANSACTION_TIMEOUT_MS",
    "CallHangs",
    "CommittedReader",
    "Holder",
    "KafkaLockStore",
    "LeaderLock",
    "LockLost",
    "LockStore",
    "ProducerRecord",
    "Reachability",
    "Record",
    "RecordBytes",
    "call_within",
    "connect",
    "find_offset",
    "make_producer",
    "make_reader",
    "parse_json_object",
    "present_partitions",
    "read_end_offsets",
    "read_headers",
    "read_watermarks",
]
