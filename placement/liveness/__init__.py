"""Decides which nodes live: a columnar table that turns a partition's log into verdicts.

It runs inside the Spark operator, before anything is decided. Imports `model` only, and nobody in
the core imports it: its verdicts come back as events.
"""

from placement.liveness.clocks import Clock, Timers
from placement.liveness.log import (
    Heartbeat,
    Heartbeats,
    LastHeartbeat,
    LivenessReport,
    LocalityChange,
    PartitionLog,
    Registration,
    ReportedStatus,
    Statement,
    StatementBody,
    Tick,
    Unregistration,
    Verdict,
)
from placement.liveness.table import LivenessTable

__all__ = [
    "Clock",
    "Heartbeat",
    "Heartbeats",
    "LastHeartbeat",
    "LivenessReport",
    "LivenessTable",
    "LocalityChange",
    "PartitionLog",
    "Registration",
    "ReportedStatus",
    "Statement",
    "StatementBody",
    "Tick",
    "Timers",
    "Unregistration",
    "Verdict",
]
