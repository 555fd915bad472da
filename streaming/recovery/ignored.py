"""Counts well-formed records that changed nothing, by reason, and when the last one came.

Heartbeats of strangers and acknowledgements of unknown moves come by the thousand, so they leave
no record of their own. What is counted here goes into the metric `reconciler_ignored_records` and
the commit marker, from which `placer status` reads it and a restart goes on counting.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(slots=True)
class Ignored:
    """Counts by reason, and the append time (ms since the epoch) of the batch of the last one."""

    counts: dict[str, int] = field(default_factory=dict)
    last_at: dict[str, int] = field(default_factory=dict)

    def add(self, counts: Mapping[str, int], at: int) -> None:
        """Add the counts by reason of a batch at `at`."""
        for reason, count in counts.items():
            self.counts[reason] = self.counts.get(reason, 0) + count
            self.last_at[reason] = at

    def body(self) -> dict[str, dict[str, int]]:
        """As the commit marker has it."""
        return {
            reason: {"count": count, "last_at": self.last_at[reason]}
            for reason, count in sorted(self.counts.items())
        }

    @classmethod
    def parse(cls, body: Mapping[str, Mapping[str, Any]]) -> Self:
        """Read what `body` wrote."""
        return cls(
            {reason: int(each["count"]) for reason, each in body.items()},
            {reason: int(each["last_at"]) for reason, each in body.items()},
        )
