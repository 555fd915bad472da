"""Goal: nobody takes a drain for finished while copies are on their way, or for stuck without why.

Method: the bodies of standing orders as `state.v1` has them.
"""

from typing import Any

import pytest

from streaming.cli.render.progress import order_text
from streaming.live import blocked_lines, drain_text

ORDER = {"action": "drain", "target": "s11", "request_id": "r", "at": 60_000, "until": None}


def order(remaining: int = 0, in_flight: int = 0, stuck: int = 0, **more: Any) -> dict[str, Any]:
    counts = {"remaining": remaining, "in_flight": in_flight, "blocked_total": stuck}
    return {**ORDER, "told_at": 65_000, "blocked": [], "done": False, **counts, **more}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (order(0, 2), "2 replicas left: 2 being moved away, 0 not begun, 0 blocked"),
        (order(1, 0, 1), "1 replica left: 0 being moved away, 0 not begun, 1 blocked"),
        (order(7, 3, 2), "10 replicas left: 3 being moved away, 5 not begun, 2 blocked"),
        (order(done=True), "done, no replica is left there"),
        (order(told_at=0), "no progress is reported yet"),
    ],
)
def test_a_drain(given: dict[str, Any], words: str) -> None:
    assert drain_text(given) == words
    assert order_text(given, 183_000) == f"drain of s11, asked 2m03s ago: {words}"


def test_an_order_that_ends_by_itself() -> None:
    given = {**ORDER, "action": "maintenance", "until": 3_660_000}
    assert order_text(given, 60_000) == "maintenance of s11, asked 0s ago, ends by itself in 1h00m"


def test_what_is_blocked_is_named_with_its_reason() -> None:
    blocked = [
        {"shard": f"events/{n}", "node": "s11", "code": "NODES_TOO_FEW", "message": "4 are needed"}
        for n in range(7)
    ]
    lines = blocked_lines(order(9, 0, 9, blocked=blocked))
    assert lines[0] == "events/0 on s11: NODES_TOO_FEW 4 are needed"
    assert (len(lines), lines[-1]) == (6, "… and 4 more")
    del blocked[0]["message"]
    assert blocked_lines(order(1, 0, 1, blocked=blocked[:1])) == ["events/0 on s11: NODES_TOO_FEW"]
    assert blocked_lines(order()) == []
