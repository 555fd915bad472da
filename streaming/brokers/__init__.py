"""Speaks with Kafka about records: clients, committed reads, offsets, reachability.

Clients are made here alone, all with the same patience. Imports `settings` and `errors`.
Administration of topics is apart (`streaming.administration`), as it loads a second client.
"""

from streaming.brokers.clients import (
    CONNECT_TIMEOUT_SECONDS,
    FENCE_TIMEOUT_SECONDS,
    TRANSACTION_TIMEOUT_MS,
    connected,
    make_producer,
    make_reader,
    present_partitions,
)
from streaming.brokers.offsets import ends, watermarks
from streaming.brokers.reachability import Reachability
from streaming.brokers.reader import CommittedReader, Record, json_object

__all__ = [
    "CONNECT_TIMEOUT_SECONDS",
    "FENCE_TIMEOUT_SECONDS",
    "TRANSACTION_TIMEOUT_MS",
    "CommittedReader",
    "Reachability",
    "Record",
    "connected",
    "ends",
    "json_object",
    "make_producer",
    "make_reader",
    "present_partitions",
    "watermarks",
]
