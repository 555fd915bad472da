"""Times as the command line shows and reads them: ISO 8601 in UTC."""

from datetime import UTC, datetime

# Numbers of so many digits are milliseconds since 1970 (from 2001 on), smaller ones are not.
TIME_MS_MIN = 10**12


def time_text(time_ms: int) -> str:
    """A time in ms since the epoch: `2026-11-21T17:00:00.123Z`."""
    text = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def parse_time(text: str) -> int:
    """Ms since the epoch; a time without a zone is local. Raises ValueError."""
    if text.isdecimal():
        return int(text)
    return round(datetime.fromisoformat(text).timestamp() * 1000)
