"""Takes the journal through the core again and compares the result with the topics.

Recordings, the history of one shard or node, the audit and the repair of state topics go with it.
Imports `recovery`, `outbox`, `administration`, `brokers`, `codec`, `settings`, `errors`.
"""

from streaming.recovery import JournalEntry
from streaming.replay.audit import AUDITED, audit, latest_values
from streaming.replay.history import History, history_of_recording, read_history
from streaming.replay.recorder import Recorder, make_head
from streaming.replay.recording import Recording, read_recording, snapshot_lines, write_lines
from streaming.replay.replay import ReplayEnd
from streaming.replay.restore import RestoredState, RestoreRefused, make_state, write_state
from streaming.replay.state_repair import find_damage, write_repair
from streaming.replay.timeline import (
    NodeTimeline,
    ShardTimeline,
    Timeline,
    TimelineItem,
    read_timeline,
)
from streaming.replay.verification import ReplayReport, replay_history

__all__ = [
    "AUDITED",
    "History",
    "JournalEntry",
    "NodeTimeline",
    "Recorder",
    "Recording",
    "ReplayEnd",
    "ReplayReport",
    "RestoreRefused",
    "RestoredState",
    "ShardTimeline",
    "Timeline",
    "TimelineItem",
    "audit",
    "find_damage",
    "history_of_recording",
    "latest_values",
    "make_head",
    "make_state",
    "read_history",
    "read_recording",
    "read_timeline",
    "replay_history",
    "snapshot_lines",
    "write_lines",
    "write_repair",
    "write_state",
]
