"""Writes the application's log: one line for each thing that happened, with a stable code.

As text for people or, with `log.format: json`, as one object a line whose fields come in the order
of Spark's own (`pyspark.logger`), so that one parser reads both. Ids and names come from outside:
they are fields, never formats, and secrets are in none of them.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

LOGGER = "placer"

# What is read without quotes: ids, codes, names of topics, locations.
_WORD = re.compile(r"[A-Za-z0-9_.:/@+-]+", re.ASCII)


class LogEvent(StrEnum):
    """Names the events of the log; the README has the table."""

    RECOVERED = "RECOVERED"
    GAP_ACCEPTED = "GAP_ACCEPTED"
    READY = "READY"
    SERVING = "SERVING"
    DEAD_LETTERS = "DEAD_LETTERS"
    ALERT = "ALERT"
    REQUEST_ANSWERED = "REQUEST_ANSWERED"
    SLOW_BATCH = "SLOW_BATCH"
    STOPPED = "STOPPED"
    STANDING_BY = "STANDING_BY"
    REHEARSED = "REHEARSED"
    NOT_REHEARSED = "NOT_REHEARSED"
    STATE_REBUILT = "STATE_REBUILT"
    TOOK_OVER = "TOOK_OVER"
    HANDED_OVER = "HANDED_OVER"
    NOT_RELEASED = "NOT_RELEASED"


MEANINGS = {
    LogEvent.RECOVERED: "the state was rebuilt from the topics and its digest is right",
    LogEvent.GAP_ACCEPTED: "input was deleted before it was read; the start continues after it",
    LogEvent.READY: "the first batch has been taken",
    LogEvent.SERVING: "metrics and probes are served",
    LogEvent.DEAD_LETTERS: "records of a batch were refused; the fields count them by reason",
    LogEvent.ALERT: "an alert was published; its severity is the line's level",
    LogEvent.REQUEST_ANSWERED: "an operator's request was answered",
    LogEvent.SLOW_BATCH: "three batches in a row took too long; the fields are of the last",
    LogEvent.STOPPED: "the query was stopped between two batches",
    LogEvent.STANDING_BY: "this process follows the active one and takes over when it is gone",
    LogEvent.REHEARSED: "the query ran once, so that a take-over loads and compiles nothing",
    LogEvent.NOT_REHEARSED: "the query failed on this standby, as it would after a take-over",
    LogEvent.STATE_REBUILT: "the followed state was another than the active one's, and is read "
    "from the topics",
    LogEvent.TOOK_OVER: "the active one was gone or gave up; this process decides from here on",
    LogEvent.HANDED_OVER: "an operator asked for it; another process decides from here on",
    LogEvent.NOT_RELEASED: "the role could not be given up; a standby waits for the silence",
}


def log_event(event: LogEvent, level: int = logging.INFO, **fields: Any) -> None:
    """Log what happened."""
    logging.getLogger(LOGGER).log(level, MEANINGS[event], extra={"event": event, "fields": fields})


def configure_logging(level: str, form: str) -> None:
    """Send our log to standard error. `form`: text or json."""
    logger = logging.getLogger(LOGGER)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "msg": record.getMessage(),
            "event": str(getattr(record, "event", "")),
            "context": getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{k}={_value(v)}" for k, v in getattr(record, "fields", {}).items())
        head = f"{_time(record)} {record.levelname} {getattr(record, 'event', '')}"
        return f"{head} {record.getMessage()} {fields}".rstrip()


def _value(value: Any) -> str:
    """A word as it is; everything else as JSON, so that a line stays one line."""
    if isinstance(value, str) and _WORD.fullmatch(value):
        return str(value)
    return json.dumps(value, default=str)
