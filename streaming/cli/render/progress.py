"""How far an operator's standing order has come, in words: for `status` and `drain --watch`."""

from collections.abc import Mapping
from typing import Any

from placement.wording import format_count
from streaming.cli.times import ago_text, duration_text

# Of what is blocked the first are named.
_NAMED_MAX = 5


def order_text(order: Mapping[str, Any], now_ms: int) -> str:
    """Describe an order on one line: its kind, target, begin and end, and how much is left."""
    said = f"{order['action']} of {order['target']}, asked {ago_text(int(order['at']), now_ms)}"
    until = order.get("until")
    if until is not None:
        left = duration_text(max(int(until) - now_ms, 0) / 1000)
        said += f", ends by itself in {left}"
    return f"{said}: {drain_text(order)}" if order["action"] == "drain" else said


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
