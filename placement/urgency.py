"""Urgency: the order in which repair takes the shards that are in need.

A more urgent cause goes first, within it the shard with the fewest live replicas.
"""

from placement.model import Cause

# Cause, live replicas, stream and number, which no two shards share; behind them the shard.
Urgency = tuple[int, int, str, int, int]

_URGENCY = {cause: place for place, cause in enumerate(Cause)}


def urgency(cause: Cause | None) -> int:
    """The place of a cause in the order of repair."""
    return len(_URGENCY) if cause is None else _URGENCY[cause]


MISSING = urgency(Cause.UNDER_REPLICATED)
