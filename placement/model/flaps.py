"""Flapping: a node that comes and goes is held down, longer each time (ceph/ceph#6615).

Times are broker append times. A jump of the broker's clock may therefore end a hold-down early or
late; neither moves anything, as a node that is held down only receives nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from placement.model.records import HoldDown, Liveness, Transition


@dataclass(frozen=True, slots=True)
class FlapPolicy:
    """Transitions and window that hold a node down, and the length of its first hold-down.

    Five in ten minutes: Ceph counts more than five times down in 600 s as flapping and keeps an
    OSD out for up to a day (rook/rook#12715), which bounds the doubling here.
    """

    transitions: int = 5
    window_ms: int = 600_000
    hold_ms: int = 600_000
    hold_max_ms: int = 86_400_000


@dataclass(frozen=True, slots=True)
class FlapHistory:
    """A node's latest transitions, oldest first, and its last hold-down."""

    transitions: tuple[Transition, ...] = ()
    hold: HoldDown | None = None

    @property
    def is_held_down(self) -> bool:
        """True if the node is held down."""
        return self.hold is not None and self.hold.active

    def with_transition(self, at: int, liveness: Liveness, rule: FlapPolicy) -> "FlapHistory":
        """Add one more transition; those older than the window are forgotten."""
        recent = [each for each in self.transitions if each.at > at - rule.window_ms]
        kept = (*recent, Transition(at, liveness))[-rule.transitions :]
        counted_from = -1 if self.hold is None else self.hold.since
        if len(kept) < rule.transitions or kept[0].at <= counted_from:
            return FlapHistory(kept, self.hold)
        return FlapHistory(kept, HoldDown(at, at + self._length(at, rule)))

    def with_restart(self, at: int, rule: FlapPolicy) -> "FlapHistory":
        """Count the end of a process and the start of its next life as one change.

        A rolling upgrade restarts a node a few times; a process that crashes again and again still
        flaps.
        """
        ended = bool(self.transitions) and self.transitions[-1].liveness is not Liveness.UP
        before = replace(self, transitions=self.transitions[:-1]) if ended else self
        return before.with_transition(at, Liveness.UP, rule)

    def with_release(self) -> "FlapHistory":
        """End the hold-down."""
        assert self.hold is not None
        return FlapHistory(self.transitions, replace(self.hold, active=False))

    def is_forgettable(self, at: int, rule: FlapPolicy) -> bool:
        """Return whether nothing of this matters any more."""
        if self.transitions and self.transitions[-1].at > at - rule.window_ms:
            return False
        return self.hold is None or (not self.is_held_down and at >= self._quiet_at(self.hold))

    def plain(self) -> list[Any]:
        """Convert to plain JSON values; `read` of them is equal."""
        hold = self.hold
        turns = [[each.at, each.liveness] for each in self.transitions]
        return [turns, hold and [hold.since, hold.until, hold.active]]

    @classmethod
    def read(cls, plain: Sequence[Any]) -> "FlapHistory":
        """Read what `plain` wrote."""
        turns, hold = plain
        transitions = tuple(Transition(at, Liveness(liveness)) for at, liveness in turns)
        return cls(transitions, HoldDown(*hold) if hold else None)

    def _length(self, at: int, rule: FlapPolicy) -> int:
        """Double the last hold-down, unless the node has been quiet for as long as that since."""
        if self.hold is None or at >= self._quiet_at(self.hold):
            return rule.hold_ms
        return min(2 * (self.hold.until - self.hold.since), rule.hold_max_ms)

    def _quiet_at(self, hold: HoldDown) -> int:
        return hold.until + (hold.until - hold.since)
