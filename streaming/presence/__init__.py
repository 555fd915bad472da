"""Tells which processes of a cell are there, by the ticks that they write.

Imports `brokers`, `errors`.
"""

from streaming.presence.presence import Presence
from streaming.presence.processes import ProcessSeen, read_processes
from streaming.presence.tick_log import PARTITION, TickLog
from streaming.presence.ticks import TickAuthor, TickSeen, encode_tick

__all__ = [
    "PARTITION",
    "Presence",
    "ProcessSeen",
    "TickAuthor",
    "TickLog",
    "TickSeen",
    "encode_tick",
    "read_processes",
]
