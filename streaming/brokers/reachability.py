"""Reports when no broker answers any more and when one does again, for long-running commands.

The client reconnects by itself and loses nothing. But a person who sees no records has to know
whether there are none.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

# How often a client that cannot reach any broker asks whether one answers.
PROBE_INTERVAL_SECONDS = 1.0
# A broker that is there answers within milliseconds, one that has just started within a second.
PROBE_TIMEOUT_SECONDS = 1.0


class Reachability:
    """Reports a client's connections in two sentences: no broker answers, and one answers again.

    It is the error callback of one client or of several, in one thread or in several, and `look` is
    called by each of them between its polls. That all connections are down is believed once a
    question for metadata has failed, too: idle ones are closed and opened again without a fault.
    """

    def __init__(self, bootstrap: str, tell: Callable[[str], None]) -> None:
        """`tell` takes a sentence for people."""
        self._bootstrap, self._tell = bootstrap, tell
        self._lock = threading.Lock()
        # The local time of day of the first fault since a broker answered.
        self._doubted_since: str | None = None
        self._away_since: float | None = None
        self._probe_at = 0.0

    @property
    def is_away(self) -> bool:
        """Return whether no broker answered when it was last looked."""
        return self._away_since is not None

    def __call__(self, error: KafkaError) -> None:
        """A connection reports a fault."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - its public name
            self.doubt()

    def doubt(self) -> None:
        """A question was not answered in time, or a connection is lost: `look` asks whether a
        broker answers."""
        if self._doubted_since is None:
            self._doubted_since = time.strftime("%H:%M:%S")

    def look(self, client: Any) -> None:
        """Ask for metadata if there is reason to doubt that a broker answers; tell what changed."""
        if self._doubted_since is None or not self._lock.acquire(blocking=False):
            return
        try:
            now = time.monotonic()
            if now < self._probe_at:
                return
            self._probe_at = now + PROBE_INTERVAL_SECONDS
            self._note_answer(now, _answers(client))
        finally:
            self._lock.release()

    def _note_answer(self, now: float, answered: bool) -> None:
        if not answered:
            if self._away_since is None:
                self._away_since = now
                gone = f"no broker has answered at {self._bootstrap}"
                self._tell(f"{gone} since {self._doubted_since}; waiting until one does")
            return
        self._doubted_since = None
        if self._away_since is not None:
            seconds = time.monotonic() - self._away_since
            self._away_since = None
            self._tell(f"a broker answers at {self._bootstrap} again, after {seconds:.0f} s")


def _answers(client: Any) -> bool:
    try:
        client.list_topics(timeout=PROBE_TIMEOUT_SECONDS)
    except KafkaException:
        return False
    return True
