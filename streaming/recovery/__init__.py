"""Rebuilds the state of record from the compacted topics and proves it by its digest.

Every start, snapshot and replay begins here. Imports `brokers`, `codec`, `errors`, `gc_pause`.
"""

from streaming.recovery.rebuild import rebuild
from streaming.recovery.recovery import (
    STATE_FORMAT,
    Positions,
    Recovered,
    abort_command,
    digest_by_marker,
    digest_version,
    open_transactions,
    parse_marker,
    recover,
)
from streaming.recovery.snapshot import NoSnapshot, Snapshot, restore_snapshot, take_snapshot

__all__ = [
    "STATE_FORMAT",
    "NoSnapshot",
    "Positions",
    "Recovered",
    "Snapshot",
    "abort_command",
    "digest_by_marker",
    "digest_version",
    "open_transactions",
    "parse_marker",
    "rebuild",
    "recover",
    "restore_snapshot",
    "take_snapshot",
]
