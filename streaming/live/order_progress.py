"""Says how far an operator's standing order has come: what is left, and what is blocked.

The command line and the console say the same of `request` records of the reconciler's memory.
"""

from collections.abc import Mapping
from typing import Any

from placement.wording import format_count

# Of what is blocked the first are named.
_NAMED_MAX = 5


def drain_text(order: Mapping[str, Any]) -> str:
    """Describe the rest of a drain. A replica that is being copied away still counts."""
    if order.get("done"):
        return "done, no replica is left there"
    if not order.get("told_at"):
        return "no progress is reported yet"
    moving, standing = int(order["in_flight"]), int(order["remaining"])
    blocked = min(int(order["blocked_total"]), standing)
    left = format_count(moving + standing, "replica")
    waiting = standing - blocked
    return f"{left} left: {moving} being moved away, {waiting} not begun, {blocked} blocked"


def blocked_lines(order: Mapping[str, Any]) -> list[str]:
    """A line on each replica that cannot leave, with the reason."""
    blocked = order.get("blocked") or ()
    lines = [
        f"{each['shard']} on {each['node']}: {each['code']} {each.get('message', '')}".rstrip()
        for each in blocked[:_NAMED_MAX]
    ]
    more = int(order.get("blocked_total") or 0) - len(lines)
    return [*lines, f"… and {more} more"] if more > 0 else lines
