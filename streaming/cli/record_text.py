"""Turns committed records into lines for `placer watch`: coloured text, or JSON.

A reader of foreign topics must not stumble over a record: fields that are missing are left out.
"""

from __future__ import annotations

import base64
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.records import Record

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


def json_printer() -> Callable[[Record], None]:
    """Prints one JSON object per record; a value that is none goes as `raw_base64`."""

    def show(record: Record) -> None:
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

    return show


def text_printer() -> Callable[[Record], None]:
    """Prints one line per record, coloured on a terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)

    def show(record: Record) -> None:
        line = Text(_clock(record.timestamp_ms) + " ", style="dim")
        kind, state, rest = describe(record)
        line.append(_printable(f"{kind} {record.key or '(no key)'}"), style=KIND_STYLE)
        line.append(_printable(f" {state}" if state else ""), style=STYLES.get(state, ""))
        line.append(_printable(f" {rest}" if rest else ""))
        console.print(line)

    return show


def describe(record: Record) -> tuple[str, str, str]:
    """What kind of record it is, the word that tells its state, and the rest of the line."""
    kind = KINDS.get(record.topic, record.topic.removesuffix(".v1"))
    if record.topic == "dlq.v1":
        return kind, "", _dead_letter(record.headers)
    if record.raw is None:
        return kind, "healed" if record.topic == "violations.v1" else "removed", ""
    if record.value is None:
        return kind, "", f"{len(record.raw)} bytes that are no JSON object"
    tell = TELLERS.get(record.topic)
    if tell is None:
        return kind, _message(record), orjson.dumps(record.value).decode()
    try:
        state, rest = tell(record.value)
    except (AttributeError, TypeError):
        # Another writer's idea of this topic: shown as it is.
        return kind, "", orjson.dumps(record.value).decode()
    return kind, state, rest


def _decision(value: Mapping[str, Any]) -> tuple[str, str]:
    spec = value.get("spec") or {}
    size = f"{spec.get('shards', '?')}x{spec.get('replication_factor', '?')}"
    missing = value.get("replicas_missing")
    rest = [size, str(value.get("strategy", "")), f"{missing} missing" if missing else ""]
    refused = "alteration refused:" if value.get("requested") else ""
    return str(value.get("outcome", "")), _joined([*rest, refused, *_reasons(value)])


def _move(value: Mapping[str, Any]) -> tuple[str, str]:
    shard = f"{value.get('stream')}/{value.get('shard')}"
    way = f"{value.get('remove') or '·'} -> {value.get('add') or '·'}"
    why = [str(value.get("cause", "")), str((value.get("reason") or {}).get("code", ""))]
    return str(value.get("state", "")), _joined([shard, way, *why])


def _assignment(value: Mapping[str, Any]) -> tuple[str, str]:
    changes = [f"+{node}" for node in value.get("adding") or ()]
    changes += [f"-{node}" for node in value.get("removing") or ()]
    replicas = " ".join(map(str, value.get("replicas") or ()))
    return f"[{replicas}]", _joined([*changes, f"epoch {value.get('epoch', '?')}"])


def _node(value: Mapping[str, Any]) -> tuple[str, str]:
    tags = [f"{key}={tag}" for key, tag in (value.get("tags") or {}).items()]
    location = str(value.get("location") or "(no location)")
    return str(value.get("status", "")), _joined([location, *tags])


def _violations(value: Mapping[str, Any]) -> tuple[str, str]:
    open_ones = [
        _joined(
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
    told = {
        name.removeprefix(ERROR_HEADERS): text
        for name, text in headers.items()
        if name.startswith(ERROR_HEADERS)
    }
    place = f"{told.get('topic', '?')}-{told.get('partition', '?')}@{told.get('offset', '?')}"
    place += f"..{told['offset.last']}" if "offset.last" in told else ""
    return _joined([place, told.get("reason", ""), told.get("message", "")])


def _reasons(value: Mapping[str, Any]) -> list[str]:
    said = [*(value.get("reasons") or ()), *(value.get("warnings") or ())]
    return [
        _joined([str(reason.get("code", "")), str(reason.get("message", ""))]) for reason in said
    ]


def _alert(value: Mapping[str, Any]) -> tuple[str, str]:
    about = [str(value.get("subject", "")), _why(value)]
    return str(value.get("severity", "")), _joined(about)


def _answer(value: Mapping[str, Any]) -> tuple[str, str]:
    about = [str(value.get("request_id", "")), str(value.get("action", ""))]
    return str(value.get("outcome", "")), _joined([*about, _why(value)])


def _why(value: Mapping[str, Any]) -> str:
    reason = value.get("reason") or {}
    return _joined([str(reason.get("code", "")), str(reason.get("message", ""))])


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


def _joined(parts: list[str]) -> str:
    return " ".join(part for part in parts if part)


def _printable(text: str) -> str:
    """Control characters escaped: a record must not be able to draw on the terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _clock(timestamp_ms: int) -> str:
    local = datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone()
    return local.strftime("%H:%M:%S.") + f"{timestamp_ms % 1000:03d}"
