"""Formats what many messages share: counts with noun and verb, amounts with their unit, and the
sentence of a wait."""

# Powers of 1,000, as makers of disks and networks count, and Kafka's own figures are read.
_PREFIXES = "kMGTPE"


def format_count(count: int, one: str, more: str = "") -> str:
    """Format a count with its noun: `1 move`, `2 moves`; `more`: a plural not made by an s."""
    return f"{count} {one if count == 1 else more or one + 's'}"


def format_crossing(copies: int, level: str) -> str:
    """Say how many of the copies leave their domain: `2 of them from another rack`. A level without
    a name is called by its depth."""
    domain = f"domain of level {level}" if level.isdecimal() else level
    return f"{copies} of them from another {domain}"


def are(count: int) -> str:
    """Return the verb for a count of things: `is` or `are`."""
    return "is" if count == 1 else "are"


def format_bytes(count: int) -> str:
    """Format bytes in powers of 1,000 (SI): `512 bytes`, `380.0 GB`."""
    power = min((len(str(count)) - 1) // 3, len(_PREFIXES))
    if not power:
        return format_count(count, "byte")
    return f"{count / 1000**power:,.1f} {_PREFIXES[power - 1]}B"


def format_amount(amount: int, resource: str) -> str:
    """Format an amount of a resource in the unit that ends its name, any other as a number."""
    if resource.endswith("bytes"):
        return format_bytes(amount)
    if resource.endswith("bytes_per_second"):
        return f"{format_bytes(amount)}/s"
    return f"{amount:,}"


def format_share(amount: int, resource: str) -> str:
    """Format an amount with the name of its resource: `380.0 GB of disk_bytes`."""
    return f"{format_amount(amount, resource)} of {resource}"


def format_wait(why: str) -> str:
    """Format the reason of a shard that waits for a limit, a pause or the input."""
    return f"the shard is waiting: {why}"
