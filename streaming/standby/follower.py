"""Reads what a followed state is made of: the topics at the start, then journal and markers."""

from collections.abc import Mapping
from typing import Any

from placement.model import Configuration
from schemas.topics import COMMITS, JOURNAL, STATE_TOPICS
from streaming import gc_pause
from streaming.brokers import CommittedReader
from streaming.errors import StreamingError
from streaming.recovery import RecordUnreadable, StateContradictory
from streaming.standby.followed_state import FollowedState

# A state read while its writer commits is that of one commit in most attempts.
ATTEMPTS_MAX = 50


class StandbyUnproven(StreamingError):
    """The topics hold no state that agrees with its marker."""


class Follower:
    """Follows the active writer of a cell on its topics."""

    def __init__(
        self, bootstrap: str, prefix: str, configuration: Configuration, options: Mapping[str, str]
    ) -> None:
        """`configuration`: that of this process; whoever decides by another one is not
        followed."""
        self._at = (bootstrap, prefix)
        self._options = options
        self._reader: CommittedReader | None = None
        self.state = FollowedState(configuration, prefix)
        self.starts = 0

    def start(self) -> None:
        """Rebuild the state from the topics, where there is one, and follow from there.

        Raises RecoveryRefused, StandbyUnproven, BrokerUnreachable, TopicMissing.
        """
        self.close()
        self.starts += 1
        # What is committed from here on is seen, and what the rebuild has already is skipped.
        self._reader = CommittedReader(
            *self._at, (JOURNAL, COMMITS), from_beginning=False, options=self._options
        )
        with CommittedReader(*self._at, (*STATE_TOPICS, COMMITS), options=self._options) as reader:
            self._rebuild(reader)

    def follow(self, timeout_seconds: float) -> list[Mapping[str, Any]]:
        """Take in what has been committed; returns the new markers, in order.

        Waits for a record no longer than `timeout_seconds`. Raises BrokerUnreachable.
        """
        assert self._reader is not None, "it was started"
        return self.state.take(self._reader.poll(timeout_seconds))

    def follow_to_end(self) -> None:
        """Take in all that has been committed by now. Raises BrokerUnreachable."""
        assert self._reader is not None, "it was started"
        self.state.take(self._reader.read_to_end())
        self.state.end()

    def close(self) -> None:
        """Close the connection."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    @gc_pause.pause_gc()
    def _rebuild(self, reader: CommittedReader) -> None:
        latest: dict[str, dict[bytes, bytes]] = {topic: {} for topic in (*STATE_TOPICS, COMMITS)}
        for _ in range(ATTEMPTS_MAX):
            for topic, values in reader.read_changes().items():
                for key, value in values.items():
                    if value is None:
                        latest[topic].pop(key, None)
                    else:
                        latest[topic][key] = value
            try:
                if self.state.begin(latest):
                    return
            except (RecordUnreadable, StateContradictory):
                # Read between two topics of one commit, or damaged: the attempts tell.
                continue
        raise StandbyUnproven(
            f"the state under '{self._at[1]}' does not agree with its marker in {ATTEMPTS_MAX} "
            "readings; see: placer doctor"
        )
