"""Judges from the ticks in the log whether a reconciler is active, and who may take over.

All processes of a cell write ticks to the first partition of the nodes topic. A standby measures
the silence of the active one between its own ticks there, in the broker's append times: what it
cannot read, it does not take for silence, and no clock of a machine plays a part. Who takes over
first writes a claim; of several the first in the log has it, for all who read that log.
"""

from collections.abc import Mapping
from typing import Any

from schemas.inputs import ACTIVE, CLAIMANT
from streaming.presence.ticks import TickSeen

# A share of the patience: a stall of the log, after which several ticks come at once, has to last
# for two of them before it counts as silence.
_GAP_SHARE = 0.5


class Presence:
    """Follows who is there. Times are ms of a clock that runs with the log."""

    def __init__(self, instance: str, takeover_after_ms: int) -> None:
        """`instance`: the id of this process."""
        self._instance, self._patience_ms = instance, takeover_after_ms
        self._clock_ms, self._newest_at = 0, -1
        self._alive_ms: int | None = None
        self._stood_back_ms: int | None = None
        self._released_epoch = 0
        self._won = False
        self.active_instance: str | None = None
        self.active_epoch = 0

    def begin(self, marker: Mapping[str, Any] | None) -> None:
        """Start from the last commit, which may be old: it says who was active, not that it is."""
        if marker is not None:
            self.active_epoch = int(marker["writer_epoch"])
            self.active_instance = marker.get("instance")
            self._released_epoch = self.active_epoch if marker.get("released") else 0

    def take_marker(self, marker: Mapping[str, Any]) -> None:
        """Note a commit: its writer is there, or gives up with it."""
        writer_epoch = int(marker["writer_epoch"])
        if writer_epoch < self.active_epoch:
            return
        self._note_active(writer_epoch, marker.get("instance"))
        if marker.get("released"):
            self._released_epoch = writer_epoch

    def take_tick(self, tick: TickSeen) -> None:
        """Note a tick, in the order of the log."""
        gap = 0 if self._newest_at < 0 else max(tick.at - self._newest_at, 0)
        self._clock_ms += min(gap, round(self._patience_ms * _GAP_SHARE))
        # As it is, earlier ones included: the clock of a broker that leads from here on may be
        # behind that of the one before.
        self._newest_at = tick.at
        if tick.role == CLAIMANT:
            if tick.instance == self._instance:
                self._won = self.is_due
            # Everybody else waits for what becomes of it.
            self._alive_ms, self._released_epoch = self._clock_ms, 0
        elif (
            tick.role == ACTIVE
            and tick.writer_epoch >= self.active_epoch
            and tick.writer_epoch != self._released_epoch
        ):
            self._note_active(tick.writer_epoch, tick.instance)

    def stand_back(self) -> None:
        """Leave the role to others for the time of the patience."""
        self._stood_back_ms = self._clock_ms

    def take_claim(self) -> bool:
        """Tell whether the claim that was read last has the role; it is asked once for a claim."""
        won, self._won = self._won, False
        return won

    @property
    def silence_ms(self) -> int | None:
        """Return how long the active one has said nothing; None while none was seen."""
        return None if self._alive_ms is None else self._clock_ms - self._alive_ms

    @property
    def is_due(self) -> bool:
        """Return whether somebody has to take over and this process may."""
        back = self._stood_back_ms
        if back is not None and self._clock_ms - back < self._patience_ms:
            return False
        silence = self.silence_ms
        given_up = 0 < self._released_epoch == self.active_epoch
        return given_up or silence is None or silence >= self._patience_ms

    def _note_active(self, writer_epoch: int, instance: str | None) -> None:
        self.active_epoch = writer_epoch
        self.active_instance = instance or self.active_instance
        self._alive_ms = self._clock_ms
