"""Writes what was decided: one Kafka transaction per commit, dead letters included.

Imports `brokers`, `codec`, `errors`.
"""

from streaming.outbox.dead_letters import (
    HEADER_PREFIX,
    LETTERS_PER_SECOND,
    VALUE_BYTES_MAX,
    DeadLetters,
    size_of,
)
from streaming.outbox.outbox import Outbox

__all__ = [
    "HEADER_PREFIX",
    "LETTERS_PER_SECOND",
    "VALUE_BYTES_MAX",
    "DeadLetters",
    "Outbox",
    "size_of",
]
