"""Which nodes live: a columnar table that turns a partition's log into verdicts.

It runs inside the Spark operator, before anything is decided. Imports `model` only, and nobody in
the core imports it: its verdicts come back as events.
"""

from placement.liveness.clocks import Clock, Timers
from placement.liveness.log import Beat, Beats, PartitionLog, Statement, Tick, Told, Verdict
from placement.liveness.table import LivenessTable

__all__ = [
    "Beat",
    "Beats",
    "Clock",
    "LivenessTable",
    "PartitionLog",
    "Statement",
    "Tick",
    "Timers",
    "Told",
    "Verdict",
]
