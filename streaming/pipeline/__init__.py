"""Runs the driver's side of a micro-batch: session, ticks, decode, order, plan, commit.

`streaming.app` wires it. Imports `ingest`, `outbox`, `recovery` and all that they stand on; nothing
of the command line's side imports it.
"""

from streaming.pipeline.arrivals import HEARTBEATS_SECONDS_MAX
from streaming.pipeline.batch import BatchApplier
from streaming.pipeline.queries import (
    rehearse,
    start_workers,
    tick_interval_seconds,
    timers_of,
)
from streaming.pipeline.running import WATCH_SECONDS, RunningQueries
from streaming.pipeline.ticks import Ticker

__all__ = [
    "HEARTBEATS_SECONDS_MAX",
    "WATCH_SECONDS",
    "BatchApplier",
    "RunningQueries",
    "Ticker",
    "rehearse",
    "start_workers",
    "tick_interval_seconds",
    "timers_of",
]
