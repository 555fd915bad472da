"""Bounds what is costly: items looked up, dry runs, requests, open streams of events."""

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streaming.api.errors import ApiError, ErrorCode

# Who has not asked for longest is forgotten; by then its bucket is full again.
BUCKETS_MAX = 10_000


class RateLimit:
    """A token bucket for each principal or address."""

    def __init__(
        self,
        what: str,
        per_second: float,
        burst: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`what`: what is counted, in the plural, for the sentence; `burst`: how many at once."""
        self._what, self._rate, self._burst, self._clock = what, per_second, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str, amount: float = 1.0) -> None:
        """Count `amount`, at most `burst`. Raises ApiError 429 with the time until it is there."""
        now = self._clock()
        left, at = self._buckets.pop(who, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        enough = left >= amount
        self._buckets[who] = (left - amount if enough else left, now)
        if len(self._buckets) > BUCKETS_MAX:
            self._buckets.popitem(last=False)
        if not enough:
            seconds = math.ceil((amount - left) / self._rate)
            raise _refuse(
                f"more {self._what} than {self._rate * 60:g} a minute were asked for; ask again "
                f"in {seconds} s",
                seconds,
            )


class OpenLimit:
    """Counts what is open at once, in all and for each principal or address."""

    def __init__(self, what: str, total: int, each: int) -> None:
        """`what`: in the plural, for the sentence."""
        self._what, self._total, self._each = what, total, each
        self._open: Counter[str] = Counter()

    def enter(self, who: str) -> None:
        """Count one more. Raises ApiError 429."""
        limit = self._total if self._open.total() >= self._total else self._each
        if self._open.total() >= self._total or self._open[who] >= self._each:
            raise _refuse(f"{limit} {self._what} are open already; close one first", 10)
        self._open[who] += 1

    def leave(self, who: str) -> None:
        """Count one less."""
        self._open[who] -= 1
        if not self._open[who]:
            del self._open[who]

    @contextmanager
    def counted(self, who: str) -> Iterator[None]:
        """Count one while the block runs. Raises ApiError 429."""
        self.enter(who)
        try:
            yield
        finally:
            self.leave(who)


def _refuse(message: str, seconds: int) -> ApiError:
    return ApiError(429, ErrorCode.RATE_EXCEEDED, message, {"Retry-After": str(seconds)})
