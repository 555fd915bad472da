"""Writes what was decided: one Kafka transaction per commit, dead letters included.

Imports `brokers`, `codec`, `errors`.
"""

from streaming.outbox.dead_letters import (
    LETTER_HEADER_PREFIX,
    LETTER_VALUE_BYTES_MAX,
    LETTERS_PER_SECOND,
    DeadLetterWriter,
    headers_bytes,
)
from streaming.outbox.outbox import Outbox, OutboxFailed, try_transaction

__all__ = [
    "LETTERS_PER_SECOND",
    "LETTER_HEADER_PREFIX",
    "LETTER_VALUE_BYTES_MAX",
    "DeadLetterWriter",
    "Outbox",
    "OutboxFailed",
    "headers_bytes",
    "try_transaction",
]
