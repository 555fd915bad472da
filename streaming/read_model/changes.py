"""Says what each commit has changed, to those who listen now and to those who come back."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# A listener that was away for a while goes on where it was: at two changes a second some minutes.
CHANGES_KEPT = 1_000
# Of a commit that changes more the first are named: whoever follows so many reads them anew.
KEYS_PER_KIND_MAX = 500

Changed = Mapping[str, Sequence[str]]
"""Keys of what was changed, by kind: streams, shards, nodes, moves, violations, ..."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The commit at which an answer is true: all of it, and nothing of a later one. `now`: the
    core's time in ms since the epoch."""

    cell: str
    sequence: int
    writer_epoch: int
    now: int

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "Marker":
        """Read the marker from its record."""
        return cls(body["cell"], body["sequence"], body["writer_epoch"], body["now"])

    def body(self) -> dict[str, Any]:
        """The marker as answers carry it."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit has changed, or several that became visible together. `counts` and `keys` are
    by kind; of many keys the first `KEYS_PER_KIND_MAX` are named. `alerts`: new ones, whole."""

    marker: Marker
    counts: Mapping[str, int]
    keys: Mapping[str, tuple[str, ...]]
    alerts: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(
        cls, marker: Marker, changed: Changed, alerts: Sequence[Mapping[str, Any]] = ()
    ) -> "Change":
        """Name and count what was changed."""
        return cls(
            marker,
            {kind: len(keys) for kind, keys in changed.items()},
            {kind: tuple(keys[:KEYS_PER_KIND_MAX]) for kind, keys in changed.items()},
            tuple(alerts),
        )

    def body(self) -> dict[str, Any]:
        """The change as an event's data."""
        return {
            "marker": self.marker.body(),
            "changed": {
                kind: {"count": count, "keys": self.keys[kind]}
                for kind, count in self.counts.items()
            },
            "alerts": self.alerts,
        }


Listener = Callable[[Change], None]


class ChangeLog:
    """The last changes, by the sequence of their commits, which rises."""

    def __init__(self, begun_at: int) -> None:
        """`begun_at`: the sequence at which the model was read; nothing is known of changes up to
        it."""
        self._known_from = begun_at
        self._changes: deque[Change] = deque()

    def append(self, change: Change) -> None:
        """Note a change; the oldest one is forgotten."""
        self._changes.append(change)
        if len(self._changes) > CHANGES_KEPT:
            self._known_from = self._changes.popleft().marker.sequence

    def changes_after(self, sequence: int, until: int) -> list[Change] | None:
        """List the changes behind a commit. None where it is not known what they were.

        The commit is older than the log, or newer than `until`, the last one, and thus none of this
        cell's.
        """
        if not self._known_from <= sequence <= until:
            return None
        return [each for each in self._changes if each.marker.sequence > sequence]
