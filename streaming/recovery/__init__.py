"""Rebuilds the state of record from the compacted topics and proves it by its digest.

Every start, snapshot and replay begins here. Imports `brokers`, `codec`, `errors`, `gc_pause`.
"""

from streaming.recovery.rebuild import rebuild
from streaming.recovery.recovery import (
    STATE_FORMAT,
    UPGRADE,
    Gap,
    Positions,
    Recovered,
    StateTooNew,
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
    "UPGRADE",
    "Gap",
    "NoSnapshot",
    "Positions",
    "Recovered",
    "Snapshot",
    "StateTooNew",
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
