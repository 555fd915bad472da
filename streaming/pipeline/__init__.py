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
    tick_interval_seconds,
    timers_of,
)
from streaming.pipeline.load_flow import LoadIntake, LoadQuery
from streaming.pipeline.scratch import QueryFailed, check_scratch, find_disk_fault, make_scratch
from streaming.pipeline.session import close_session, is_session_open, open_session
from streaming.pipeline.ticks import Ticker

__all__ = [
    "SMALL_BATCH_RECORDS_MAX",
    "Arrivals",
    "BatchApplier",
    "LoadIntake",
    "LoadQuery",
    "QueryFailed",
    "Ticker",
    "bands_of",
    "check_scratch",
    "close_session",
    "find_disk_fault",
    "is_session_open",
    "make_scratch",
    "open_session",
    "rehearse",
    "start_decision_query",
    "tick_interval_seconds",
    "timers_of",
]
