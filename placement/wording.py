"""Says numbers and counts in messages."""


def counted(count: int, one: str, more: str = "") -> str:
    """`1 move`, `2 moves`; `more` where an s does not make the plural."""
    return f"{count} {one if count == 1 else more or one + 's'}"


def are(count: int) -> str:
    """The verb that goes with so many."""
    return "is" if count == 1 else "are"
