"""Turns committed records into lines for `placer watch`: coloured text, or JSON.

A reader of foreign topics must not stumble over a record: fields that are missing are left out.
"""

from __future__ import annotations

import base64
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from placement.wording import format_count
from schemas.envelope import OUTCOME_HEADER
from streaming.cli.render.console import escape_control, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rich.console import Console

    from streaming.brokers import Record

# One colour per meaning, in every topic: done, under way, of concern, bad, over.
STYLES = {
    "placed": "green",
    "completed": "green",
    "up": "green",
    "healed": "green",
    "done": "green",
    "issued": "cyan",
    "accepted": "cyan",
    "degraded": "yellow",
    "partial": "yellow",
    "waiting": "yellow",
    "suspect": "yellow",
    "warning": "yellow",
    "superseded": "yellow",
    "cancelled": "yellow",
    "expired": "red",
    "failed": "red",
    "rejected": "red",
    "refused": "red",
    "critical": "red",
    "dead": "red",
    "unregistered": "dim",
    "removed": "dim",
    "ended": "dim",
    "info": "dim",
}
KIND_STYLE = "bold"
ERROR_HEADERS = "__placement.errors."
# Reminders come once a minute for each move (`moves.remind_seconds`).
REMINDERS_EVERY_MS = 60_000
REMINDED_SHOWN_MAX = 3


class JsonPrinter:
    """Prints one JSON object per record; a value that is none goes as `raw_base64`."""

    def show(self, records: Iterable[Record]) -> None:
        """Print all of them."""
        for record in records:
            line: dict[str, Any] = {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp_ms": record.timestamp_ms,
                "key": record.key,
                "headers": record.headers,
                "value": record.value,
            }
            if record.value is None and record.raw is not None:
                line["raw_base64"] = base64.b64encode(record.raw).decode()
            sys.stdout.write(orjson.dumps(line).decode() + "\n")
        sys.stdout.flush()

    def close(self) -> None:
        """Do nothing: no record was held back."""


class TextPrinter:
    """Prints one line per record, coloured on a terminal; reminders are summed up."""

    def __init__(self, console: Console | None = None) -> None:
        from streaming.cli.render.console import text_console

        self._console = console or text_console()
        self._reminders = Reminders()

    def show(self, records: Iterable[Record]) -> None:
        """Print them, reminders aside, and what there is to say of these."""
        for record in records:
            if not self._reminders.collect(record):
                self._line(record.timestamp_ms, *describe_record(record))
        self._sum_up(at_the_end=False)

    def close(self) -> None:
        """Say what was held back."""
        self._sum_up(at_the_end=True)

    def _sum_up(self, at_the_end: bool) -> None:
        summary = self._reminders.summarise(at_the_end)
        if summary is not None:
            self._line(*summary)

    def _line(self, timestamp_ms: int, head: str, state: str, rest: str) -> None:
        from rich.text import Text

        line = Text(_clock_text(timestamp_ms) + " ", style="dim")
        line.append(escape_control(head), style=KIND_STYLE)
        line.append(escape_control(f" {state}" if state else ""), style=STYLES.get(state, ""))
        line.append(escape_control(f" {rest}" if rest else ""))
        self._console.print(line)


class Reminders:
    """Sums up repeated publications of moves that were called off. They come until the executor
    confirms, and would drown all other lines. Time is that of the records."""

    def __init__(self) -> None:
        self._moves: dict[str, str] = {}
        self._count = 0
        self._summarised_at: int | None = None
        self._last_at = 0

    def collect(self, record: Record) -> bool:
        """Keep a reminder for the next summary. False for any other record."""
        value = record.value if record.topic == "moves.v1" else None
        if value is None or not value.get("reminded"):
            return False
        state, rest = _move(value)
        self._moves[str(record.key)] = f"{rest} {state}"
        self._count += 1
        self._last_at = record.timestamp_ms
        return True

    def summarise(self, at_the_end: bool) -> tuple[int, str, str, str] | None:
        """Make a line of the reminders since the last one, at most one line a minute."""
        early = (
            self._summarised_at is not None
            and self._last_at - self._summarised_at < REMINDERS_EVERY_MS
        )
        if not self._count or (early and not at_the_end):
            return None
        moves = format_count(len(self._moves), "move was", "moves were")
        reminders = format_count(self._count, "reminder")
        named = shorten(list(self._moves.values()), REMINDED_SHOWN_MAX, "; ")
        rest = f"{moves} called off, no executor has confirmed it: {named}"
        self._moves, self._count, self._summarised_at = {}, 0, self._last_at
        return self._last_at, reminders, "", rest


def describe_record(record: Record) -> tuple[str, str, str]:
    """Kind and key, the word that tells its state, and the rest of the line."""
    kind, state, rest = describe_value(record)
    return f"{kind} {record.key or '(no key)'}", state, rest


def describe_value(record: Record) -> tuple[str, str, str]:
    """Return the kind of a record, the word for its state, and the rest of its line."""
    kind = KINDS.get(record.topic, record.topic.removesuffix(".v1"))
    if record.topic == "dlq.v1":
        return kind, "", _dead_letter(record.headers)
    if record.raw is None:
        return kind, _tombstone(record), ""
    if record.value is None:
        return kind, "", f"{len(record.raw)} bytes that are not a JSON object"
    tell = TELLERS.get(record.topic)
    if tell is None:
        return kind, _message(record), orjson.dumps(record.value).decode()
    try:
        state, rest = tell(record.value)
    except (AttributeError, TypeError):
        # Another writer's idea of this topic: shown as it is.
        return kind, "", orjson.dumps(record.value).decode()
    return kind, state, rest


def _tombstone(record: Record) -> str:
    """A shard without violations was healed, unless its stream is gone."""
    if record.topic != "violations.v1" or record.headers.get(OUTCOME_HEADER) == "dropped":
        return "removed"
    return "healed"


def _decision(value: Mapping[str, Any]) -> tuple[str, str]:
    spec = value.get("spec") or {}
    size = f"{spec.get('shards', '?')}x{spec.get('replication_factor', '?')}"
    missing = value.get("replicas_missing")
    rest = [size, str(value.get("strategy", "")), f"{missing} missing" if missing else ""]
    refused = "alteration refused:" if value.get("requested") else ""
    return str(value.get("outcome", "")), _join([*rest, refused, *_reasons(value)])


def _move(value: Mapping[str, Any]) -> tuple[str, str]:
    shard = f"{value.get('stream')}/{value.get('shard')}"
    way = f"{value.get('remove') or '·'} -> {value.get('add') or value.get('leader') or '·'}"
    why = [str(value.get("cause", "")), str((value.get("reason") or {}).get("code", ""))]
    return str(value.get("state", "")), _join([shard, way, *why])


def _assignment(value: Mapping[str, Any]) -> tuple[str, str]:
    changes = [f"+{node}" for node in value.get("adding") or ()]
    changes += [f"-{node}" for node in value.get("removing") or ()]
    replicas = " ".join(map(str, value.get("replicas") or ()))
    return f"[{replicas}]", _join([*changes, f"epoch {value.get('epoch', '?')}"])


def _node(value: Mapping[str, Any]) -> tuple[str, str]:
    tags = [f"{key}={tag}" for key, tag in (value.get("tags") or {}).items()]
    location = str(value.get("location") or "(no location)")
    return str(value.get("status", "")), _join([location, *tags])


def _violations(value: Mapping[str, Any]) -> tuple[str, str]:
    open_ones = [
        _join(
            [
                str(violation.get("rule", "")),
                str(violation.get("domain") or violation.get("level") or ""),
                f"{violation.get('count', '?')}/{violation.get('limit', '?')}",
                str(violation.get("class", "")),
                str((violation.get("reason") or {}).get("code", "")),
            ]
        )
        for violation in value.get("violations") or ()
    ]
    return "", "; ".join(open_ones)


def _dead_letter(headers: Mapping[str, str]) -> str:
    fields = {
        name.removeprefix(ERROR_HEADERS): text
        for name, text in headers.items()
        if name.startswith(ERROR_HEADERS)
    }
    place = f"{fields.get('topic', '?')}-{fields.get('partition', '?')}@{fields.get('offset', '?')}"
    place += f"..{fields['offset.last']}" if "offset.last" in fields else ""
    return _join([place, fields.get("reason", ""), fields.get("message", "")])


def _reasons(value: Mapping[str, Any]) -> list[str]:
    said = [*(value.get("reasons") or ()), *(value.get("warnings") or ())]
    return [_join([str(reason.get("code", "")), str(reason.get("message", ""))]) for reason in said]


def _alert(value: Mapping[str, Any]) -> tuple[str, str]:
    about = [str(value.get("subject", "")), _reason_text(value)]
    return str(value.get("severity", "")), _join(about)


def _answer(value: Mapping[str, Any]) -> tuple[str, str]:
    about = [str(value.get("request_id", "")), str(value.get("action", ""))]
    return str(value.get("outcome", "")), _join([*about, _reason_text(value)])


def _reason_text(value: Mapping[str, Any]) -> str:
    reason = value.get("reason") or {}
    return _join([str(reason.get("code", "")), str(reason.get("message", ""))])


KINDS = {
    "alerts.v1": "alert",
    "answers.v1": "answer",
    "state.v1": "memory",
    "decisions.v1": "decision",
    "moves.v1": "move",
    "assignments.v1": "assignment",
    "topology.v1": "node",
    "violations.v1": "violation",
    "dlq.v1": "dead-letter",
}
TELLERS: dict[str, Callable[[Mapping[str, Any]], tuple[str, str]]] = {
    "alerts.v1": _alert,
    "answers.v1": _answer,
    "decisions.v1": _decision,
    "moves.v1": _move,
    "assignments.v1": _assignment,
    "topology.v1": _node,
    "violations.v1": _violations,
}


def _message(record: Record) -> str:
    """`NodeHeartbeat` of `placement.NodeHeartbeat.v1`, or of bare JSON with a `type`."""
    full = record.headers.get("ce_type") or str((record.value or {}).get("type", ""))
    return full.removeprefix("placement.").removesuffix(".v1")


def _join(parts: list[str]) -> str:
    return " ".join(part for part in parts if part)


def _clock_text(timestamp_ms: int) -> str:
    local = datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone()
    return local.strftime("%H:%M:%S.") + f"{timestamp_ms % 1000:03d}"
