"""Formats what many messages share: counts with noun and verb, and the sentence of a wait."""


def format_count(count: int, one: str, more: str = "") -> str:
    """Format a count with its noun: `1 move`, `2 moves`; `more`: a plural not made by an s."""
    return f"{count} {one if count == 1 else more or one + 's'}"


def are(count: int) -> str:
    """Return the verb for a count of things: `is` or `are`."""
    return "is" if count == 1 else "are"


def format_wait(why: str) -> str:
    """Format the reason of a shard that waits for a limit, a pause or the input."""
    return f"the shard is waiting: {why}"
