"""Waiting for a condition, with a deadline: the only way in which these tests spend time."""

import time
from collections.abc import Callable
from typing import TypeVar

# A condition is looked at this often; far below anything that is waited for.
PAUSE_SECONDS = 0.05
# A scene that takes longer on two busy cores has failed.
TIMEOUT_SECONDS = 60.0

_Found = TypeVar("_Found")


def until(
    condition: Callable[[], _Found], what: str, timeout_seconds: float = TIMEOUT_SECONDS
) -> _Found:
    """The first true answer of the condition; AssertionError when there is none in time."""
    deadline = time.monotonic() + timeout_seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_seconds:g} s: {what}"
        time.sleep(PAUSE_SECONDS)
    return found
