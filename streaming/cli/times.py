"""Formats and parses times: moments as ISO 8601 in UTC, ages as people say them."""

from datetime import UTC, datetime

# Numbers of so many digits are milliseconds since 1970 (from 2001 on), smaller ones are not.
TIME_MS_MIN = 10**12
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_UNITS = {"s": 1, "m": _MINUTE, "h": _HOUR, "d": _DAY}


def time_text(time_ms: int) -> str:
    """A time in ms since the epoch: `2026-11-21T17:00:00.123Z`."""
    text = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def duration_text(seconds: float) -> str:
    """Write a duration in its two largest units: `0.4s`, `42s`, `3m12s`, `2h05m`, `3d04h`."""
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02d}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02d}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02d}h"


def ago_text(time_ms: int, now_ms: int) -> str:
    """Write the time since `time_ms` as an age: `3m12s ago`. Clocks differ, so that it is never
    negative."""
    return f"{duration_text(max(now_ms - time_ms, 0) / 1000)} ago"


def parse_since(text: str, now_ms: int) -> int:
    """Ms since the epoch of a time, or of how long ago: `90s`, `30m`, `2h`, `7d`. Raises
    ValueError."""
    unit = _UNITS.get(text[-1:])
    if unit is not None and text[:-1].isdecimal():
        return now_ms - int(text[:-1]) * unit * 1000
    return parse_time(text)


def parse_time(text: str) -> int:
    """Ms since the epoch; a time without a zone is local. Raises ValueError."""
    if text.isdecimal():
        return int(text)
    return round(datetime.fromisoformat(text).timestamp() * 1000)
