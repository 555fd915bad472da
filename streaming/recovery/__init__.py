"""Rebuilds the state of record from the compacted topics and proves it by its digest.

Every start, snapshot and replay begins here. Imports `brokers`, `codec`, `errors`, `gc_pause`.
"""

from streaming.recovery.journal import EntryReader, JournalDamaged, JournalEntry, read_entries
from streaming.recovery.rebuild import Rebuilt, RecordUnreadable, StateContradictory, rebuild
from streaming.recovery.recovery import (
    STATE_FORMAT,
    UPGRADE,
    Gap,
    Positions,
    Recovered,
    RecoveryRefused,
    StateTooNew,
    abort_command,
    await_transactions,
    continue_from,
    digest_by_marker,
    digest_version,
    open_transactions,
    parse_marker,
    recover,
    refuse_gaps,
)
from streaming.recovery.snapshot import NoSnapshot, Snapshot, restore_snapshot, take_snapshot

__all__ = [
    "STATE_FORMAT",
    "UPGRADE",
    "EntryReader",
    "Gap",
    "JournalDamaged",
    "JournalEntry",
    "NoSnapshot",
    "Positions",
    "Rebuilt",
    "RecordUnreadable",
    "Recovered",
    "RecoveryRefused",
    "Snapshot",
    "StateContradictory",
    "StateTooNew",
    "abort_command",
    "await_transactions",
    "continue_from",
    "digest_by_marker",
    "digest_version",
    "open_transactions",
    "parse_marker",
    "read_entries",
    "rebuild",
    "recover",
    "refuse_gaps",
    "restore_snapshot",
    "take_snapshot",
]
