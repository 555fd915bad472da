"""Runs the driver's side of a micro-batch: session, ticks, decode, order, plan, commit.

`streaming.app` wires it. Imports `ingest`, `outbox`, `recovery` and all that they stand on; nothing
of the command line's side imports it.
"""

from streaming.pipeline.arrivals import SMALL_BATCH_RECORDS_MAX, Arrivals
from streaming.pipeline.batch import BatchApplier
from streaming.pipeline.decision_query import (
    bands_of,
    rehearse,
    start_decision_query,
    start_workers,
    tick_interval_seconds,
    timers_of,
)
from streaming.pipeline.load_flow import LoadIntake, LoadQuery
from streaming.pipeline.ticks import Ticker

__all__ = [
    "SMALL_BATCH_RECORDS_MAX",
    "Arrivals",
    "BatchApplier",
    "LoadIntake",
    "LoadQuery",
    "Ticker",
    "bands_of",
    "rehearse",
    "start_decision_query",
    "start_workers",
    "tick_interval_seconds",
    "timers_of",
]
