"""Says to the tasks of an executor whether it may act now: a lease that its locks prove.

`term.py` extends it with each proof; the threads of the tasks ask it before they touch the store.
They look at the clock themselves, so that a process which was suspended acts no more when it wakes,
before its main thread has learned that somebody else holds its locks.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# How soon a task that waits notices that it is not wanted any more.
POLL_SECONDS = 0.2


class Permit:
    """Lets the tasks of one term act until a time that is moved on, or until the term is over.
    Safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` counts seconds, as that of the locks does."""
        self._clock = clock
        self._until = float("-inf")
        self._over = threading.Event()
        self._changed = threading.Condition()

    @property
    def is_over(self) -> bool:
        """Return whether the term has ended: nothing may be done any more."""
        return self._over.is_set()

    @property
    def is_valid(self) -> bool:
        """Return whether the executor may act now."""
        return not self.is_over and self._clock() < self._until

    def extend(self, until: float) -> None:
        """Let the tasks act until then."""
        with self._changed:
            self._until = until
            self._changed.notify_all()

    def end(self) -> None:
        """Let the tasks act no more; what they are doing is left as it is."""
        with self._changed:
            self._over.set()
            self._changed.notify_all()

    def wait(self, is_unwanted: Callable[[], bool] = lambda: False) -> bool:
        """Wait until the executor may act; False when the term is over, or what waits is unwanted
        first."""
        with self._changed:
            while not self.is_valid:
                if self.is_over or is_unwanted():
                    return False
                self._changed.wait(POLL_SECONDS)
        return True

    def pause(self, seconds: float) -> None:
        """Wait for a time, at most until the term is over."""
        self._over.wait(seconds)
