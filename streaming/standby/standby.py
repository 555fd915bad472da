"""Follows the active reconciler, and takes over when it is gone.

Safety is the fencing alone: whoever initialises the cell's transactional id last is the writer.
Patience and claims only decide when, so that nobody takes over without need.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from placement.model import Configuration
from schemas.inputs import CLAIMANT, STANDBY
from streaming.codec import configuration_body, parse_configuration
from streaming.errors import StreamingError
from streaming.outbox import Outbox
from streaming.presence import Presence, TickAuthor, TickLog, TickSeen
from streaming.recovery import (
    Recovered,
    await_transactions,
    continue_from,
    recover,
    refuse_gaps,
)
from streaming.standby.follower import Follower

# How long a look for commits waits for one.
_POLL_SECONDS = 0.05
# Ticks for each patience: the silence of the active one is measured between them, and more closely
# once it has lasted for half of it.
_TICKS_PER_PATIENCE, _TICKS_WHEN_SILENT = 5, 20
# A state that was lost is rebuilt no more often than this share of the time allows: a version that
# decides otherwise than the active one would do nothing else.
_REBUILD_SHARE = 0.1
_REBUILD_PAUSE_SECONDS = 1.0


class StandbyRefused(StreamingError):
    """This process may not stand by; the active one goes on undisturbed."""


class StandbyObserver(Protocol):
    """Receives the course of a standby; see `streaming.observability.observer`."""

    def on_standing_by(self, active: str | None, writer_epoch: int, proven: int | None) -> None:
        """It follows the active one."""

    def on_followed(self, proven: int | None, lag_commits: int) -> None:
        """It has looked for commits."""

    def on_state_rebuilt(self, rebuilds: int) -> None:
        """It has read the state from the topics, as its own was another."""


@dataclass(frozen=True, slots=True)
class StandbyOptions:
    """How a process stands by.

    - `behind`: at the start it leaves the role to another one for the time of the patience, and
      asks that there has been one.
    - `accept_settings`: it may take over from one that decides by other settings.
    """

    behind: bool = False
    accept_settings: bool = False


class Standby:
    """One process that stands by; `wait` until it has the role, then `take_over`."""

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        configuration: Configuration,
        nodes_partitions: int,
        options: Mapping[str, str],
        instance: str,
        takeover_after_seconds: float,
        how: StandbyOptions,
        observer: StandbyObserver,
    ) -> None:
        """`instance`: the id of this process; `takeover_after_seconds`: the silence of the active
        one after which it takes over. Raises BrokerUnreachable, AccessRefused, TopicMissing."""
        self._bootstrap, self._prefix, self._options = bootstrap, prefix, options
        self._configuration, self._how, self._observer = configuration, how, observer
        author = TickAuthor(configuration.cell, instance)
        self._log = TickLog(bootstrap, prefix, author, nodes_partitions, options)
        self._follower = Follower(bootstrap, prefix, configuration, options)
        self._patience_ms = round(takeover_after_seconds * 1000)
        self._presence = Presence(instance, self._patience_ms)
        self._may_claim = threading.Event()
        self._ticked = self._rebuilt = float("-inf")
        self._rebuild_seconds = 0.0
        self._checked: Mapping[str, Any] | None = None
        self.is_due = False

    def let_claim(self) -> None:
        """Everything that a take-over needs is there."""
        self._may_claim.set()

    def stand_back(self) -> None:
        """Leave the role to others for the time of the patience."""
        self._presence.stand_back()

    def start(self) -> None:
        """Look who is there, and rebuild the state.

        Raises StandbyRefused, RecoveryRefused, BrokerUnreachable, AccessRefused.
        """
        first_tick = self._log.open(2 * self._patience_ms)
        self._rebuild()
        marker = self._follower.state.marker
        if marker is None and self._how.behind:
            raise StandbyRefused(
                f"no reconciler of cell '{self._configuration.cell}' has run under the prefix "
                f"'{self._prefix}': correct cell or prefix, or start the first one with: placer "
                "run --ha"
            )
        self._presence.begin(marker)
        if self._how.behind:
            self._presence.stand_back()
        self._take_ticks(self._log.read_to(first_tick))
        self.is_due = self._presence.is_due
        presence = self._presence
        self._observer.on_standing_by(
            presence.active_instance, presence.active_epoch, self._follower.state.proven
        )

    def describe(self) -> str:
        """Say behind whom it stands."""
        presence, proven = self._presence, self._follower.state.proven
        if not presence.active_epoch:
            return "nobody is active yet"
        name = presence.active_instance or "a process that does not say its name"
        at = "no commit is proven" if proven is None else f"commit {proven} is proven"
        return f"behind {name} (writer epoch {presence.active_epoch}), {at}"

    def wait(self, stopping: Callable[[], bool]) -> bool:
        """Follow until this process has the role; False where `stopping` said so before.

        Raises StandbyRefused, RecoveryRefused, BrokerUnreachable, AccessRefused.
        """
        while not stopping():
            if self._follower.state.is_lost and self._may_rebuild():
                self._rebuild()
            for marker in self._follower.follow(_POLL_SECONDS):
                self._check_settings(marker)
                self._presence.take_marker(marker)
            self._observer.on_followed(
                self._follower.state.proven, self._follower.state.lag_commits
            )
            self._tick()
            self._take_ticks(self._log.read())
            self.is_due = self._presence.is_due
            if self.is_due and self._may_claim.is_set() and self._claim():
                return True
        return False

    def take_over(
        self, outbox: Outbox, partitions: Mapping[str, int], accept_gap: bool
    ) -> Recovered:
        """Fence the writer before, and go on from its last commit.

        `partitions`: counts of the output topics by short name. Raises OutboxFailed,
        RecoveryRefused, BrokerUnreachable.
        """
        outbox.fence()
        at = (self._bootstrap, self._prefix)
        await_transactions(*at, self._options)
        self._follower.follow_to_end()
        state = self._follower.state.take_state()
        if state is None:
            cell = self._configuration.cell
            return recover(
                *at, cell, self._configuration, partitions, self._options, accept_gap=accept_gap
            )
        marker = self._follower.state.marker
        recovered = continue_from(
            marker, state, self._configuration, *at, partitions, self._options
        )
        recovered.followed = True
        refuse_gaps(recovered, accept_gap)
        return recovered

    def close(self) -> None:
        """Close the connections."""
        self._log.close()
        self._follower.close()

    def _claim(self) -> bool:
        """Claim the role; returns whether this process has it."""
        offset, _ = self._log.write_and_wait(CLAIMANT, self._follower.state.proven)
        self._take_ticks(self._log.read_to(offset))
        return self._presence.take_claim()

    def _tick(self) -> None:
        now = time.monotonic()
        silent = (self._presence.silence_ms or 0) >= self._patience_ms / 2
        often = _TICKS_WHEN_SILENT if silent else _TICKS_PER_PATIENCE
        if now - self._ticked >= self._patience_ms / 1000 / often:
            self._ticked = now
            self._log.write(STANDBY, self._follower.state.proven)

    def _take_ticks(self, ticks: Iterable[TickSeen]) -> None:
        for tick in ticks:
            self._presence.take_tick(tick)

    def _may_rebuild(self) -> bool:
        if self._find_differences(self._follower.state.marker):
            return False
        pause = max(self._rebuild_seconds / _REBUILD_SHARE, _REBUILD_PAUSE_SECONDS)
        return time.monotonic() - self._rebuilt >= pause

    def _rebuild(self) -> None:
        began = time.monotonic()
        self._follower.start()
        self._check_settings(self._follower.state.marker)
        self._rebuilt = time.monotonic()
        self._rebuild_seconds = self._rebuilt - began
        if self._follower.starts > 1:
            self._observer.on_state_rebuilt(self._follower.starts - 1)

    def _check_settings(self, marker: Mapping[str, Any] | None) -> None:
        body = None if marker is None else marker.get("configuration")
        if body is None or body == self._checked:
            return
        different = self._find_differences(marker)
        self._checked = body
        if different and not self._how.accept_settings:
            raise StandbyRefused(
                f"the active reconciler of cell '{self._configuration.cell}' decides by other "
                f"settings: {'; '.join(different)}. Start the standby with the same ones, or with "
                "--accept-settings to decide by its own after a take-over"
            )

    def _find_differences(self, marker: Mapping[str, Any] | None) -> list[str]:
        """Name what decides beside the events and is another there than here."""
        body = None if marker is None else marker.get("configuration")
        if body is None:
            return []
        try:
            if parse_configuration(body) == self._configuration:
                return []
        except ValueError as error:
            return [f"what this version cannot read: {error}"]
        ours = configuration_body(self._configuration)
        return [
            f"{name} is {body.get(name)!r} there and {ours[name]!r} here"
            for name in ours
            if not _is_equal(body.get(name), ours[name])
        ] or ["a setting that this version does not know"]


def _is_equal(said: Any, ours: Any) -> bool:
    """Compare a value from JSON with the one that is written as it: lists are tuples here."""
    return bool(orjson.loads(orjson.dumps(ours)) == said)
