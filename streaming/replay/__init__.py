"""Takes the journal through the core again and compares the result with the topics.

Recordings, the history of one shard or node, the audit and the repair of state topics go with it.
Imports `recovery`, `outbox`, `administration`, `brokers`, `codec`, `settings`, `errors`.
"""

from streaming.replay.audit import AUDITED, audit, latest_values
from streaming.replay.history import History, history_of, read_history
from streaming.replay.journal import Entry
from streaming.replay.recorder import Recorder, head_of
from streaming.replay.recording import Recording, read_recording, snapshot_lines, write_lines
from streaming.replay.replay import Until
from streaming.replay.state_repair import find_damage, write_repair
from streaming.replay.timeline import Happened, NodeTimeline, ShardTimeline, Timeline, read_timeline
from streaming.replay.verification import Report, replay_history

__all__ = [
    "AUDITED",
    "Entry",
    "Happened",
    "History",
    "NodeTimeline",
    "Recorder",
    "Recording",
    "Report",
    "ShardTimeline",
    "Timeline",
    "Until",
    "audit",
    "find_damage",
    "head_of",
    "history_of",
    "latest_values",
    "read_history",
    "read_recording",
    "read_timeline",
    "replay_history",
    "snapshot_lines",
    "write_lines",
    "write_repair",
]
