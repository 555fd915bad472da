"""Decides whether the application is alive and whether it is ready.

`/livez` fails when a batch hangs or the query has ended: a restart helps then, and is safe at any
moment. It does not fail when Kafka is away, which a restart would not mend. `/readyz` fails until
the first batch has been taken, and while no batch ends. A standby is ready while it follows; the
answer says which role the process has.
"""

import threading
import time
from collections.abc import Callable

# A batch is well under a second; one that takes a minute waits for something that will not come.
BATCH_SECONDS_MAX = 60.0
# Ticks make a batch at least every 3 s; several of them missing is not an accident.
QUIET_SECONDS_MAX = 15.0

Verdict = tuple[bool, str]


class Probes:
    """Told of batches by the application, asked by the endpoint's thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: dict[str, float] = {}
        self._ended: float | None = None
        self._over: str | None = None
        self._followed: tuple[float, int | None, int] | None = None

    def on_followed(self, proven: int | None, lag_commits: int) -> None:
        """A standby has looked for commits. `proven`: the last one whose state it has."""
        with self._lock:
            self._followed = self._clock(), proven, lag_commits
            self._over = self._ended = None
            # A batch that was under way when the role was handed over has not ended.
            self._begun.clear()

    def on_taking_over(self) -> None:
        """The process decides from here on."""
        with self._lock:
            self._followed = self._ended = None
            self._begun.clear()

    def on_batch_began(self, query: str) -> None:
        """A micro-batch of a query is being applied."""
        with self._lock:
            self._begun[query] = self._clock()

    def on_batch_ended(self, query: str) -> None:
        """Note that the batch has been committed."""
        with self._lock:
            self._begun.pop(query, None)
            self._ended = self._clock()

    def on_query_ended(self, why: str) -> None:
        """The query has ended; nothing will come any more."""
        with self._lock:
            self._over = why

    def check_live(self) -> Verdict:
        """Return whether the process should go on, and why."""
        with self._lock:
            if self._over is not None:
                return False, self._over
            for query, begun in self._begun.items():
                if self._clock() - begun > BATCH_SECONDS_MAX:
                    seconds = self._clock() - begun
                    return False, f"a batch of {query} has been running for {seconds:.0f} s"
            return True, "ok"

    def check_ready(self) -> Verdict:
        """Return whether it does its work, and why."""
        live, why = self.check_live()
        if not live:
            return live, why
        with self._lock:
            if self._followed is not None:
                return _check_standby(self._clock(), *self._followed)
            if self._ended is None:
                return False, "starting: no batch has been taken yet"
            quiet = self._clock() - self._ended
            if quiet > QUIET_SECONDS_MAX:
                return (
                    False,
                    f"no batch for {quiet:.0f} s; see whether the brokers answer: placer doctor",
                )
            return True, f"active: last batch {quiet:.1f} s ago"


def _check_standby(now: float, looked: float, proven: int | None, lag: int) -> Verdict:
    """Return whether a standby follows, and how far."""
    quiet = now - looked
    if quiet > QUIET_SECONDS_MAX:
        return False, f"standby: has not looked for commits for {quiet:.0f} s"
    if proven is None:
        return True, "standby: no commit is proven; a take-over reads the state from the topics"
    return True, f"standby: commit {proven} is proven, {lag} behind the last one"
