"""Starts and ends Spark: its JVM, and the session with every setting that guarantees rest on.

Imports `runtime`, `settings`, `errors`; PySpark only once a session is made, so that the JVM is on
its way before anything else is loaded.
"""

from streaming.spark.jvm import JvmFailed
from streaming.spark.scratch import (
    QueryFailed,
    check_scratch,
    find_disk_fault,
    hold_scratch,
)
from streaming.spark.session import (
    StartingSession,
    check_session,
    close_session,
    is_session_open,
    session_options,
    start_session,
)

__all__ = [
    "JvmFailed",
    "QueryFailed",
    "StartingSession",
    "check_scratch",
    "check_session",
    "close_session",
    "find_disk_fault",
    "hold_scratch",
    "is_session_open",
    "session_options",
    "start_session",
]
