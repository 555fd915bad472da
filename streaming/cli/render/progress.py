"""How far an operator's standing order has come, in words: for `status` and `drain --watch`."""

from collections.abc import Mapping
from typing import Any

from streaming.cli.times import ago_text, duration_text


def order_text(order: Mapping[str, Any], now_ms: int) -> str:
    """Describe an order on one line: its kind, target, begin and end, and how much is left."""
    from streaming.live import drain_text

    said = f"{order['action']} of {order['target']}, asked {ago_text(int(order['at']), now_ms)}"
    until = order.get("until")
    if until is not None:
        left = duration_text(max(int(until) - now_ms, 0) / 1000)
        said += f", ends by itself in {left}"
    return f"{said}: {drain_text(order)}" if order["action"] == "drain" else said
