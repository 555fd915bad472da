"""What all pages stand on: the read model, who may ask, what is computed once for all viewers.

A console shows a live cell, or a cluster file; pages ask `settings` and `document` which it is.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from streaming.api import ApiError, OpenLimit, Principal, Role, Service
from streaming.console.derived import DerivedValues
from streaming.console.letters import Letters
from streaming.console.sessions import SessionAccess
from streaming.offline import Document
from streaming.read_model import Marker, NotReady
from streaming.settings import Settings

# The model is confirmed every second; an election of leaders takes as long as this.
DOUBTFUL_SECONDS = 5.0
HISTORIES_MAX = 2


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _no_lag() -> int | None:
    return None


@dataclass(frozen=True, slots=True)
class Freshness:
    """How current the state is. `stale_seconds`: since it was known to be complete; `fault`: why
    the topics cannot be read; `marker`: None before the first commit was read."""

    marker: Marker | None
    stale_seconds: float | None
    fault: str | None

    @property
    def is_doubtful(self) -> bool:
        """Return whether something may have been committed that is not shown."""
        return self.fault is not None or (self.stale_seconds or 0.0) >= DOUBTFUL_SECONDS


@dataclass(frozen=True, slots=True)
class Console:
    """The console's surroundings.

    - `service`: the model, its changes, the limits; `service.operating` is None where it only
      reads.
    - `settings`: those of a live cell; None for a file.
    - `document`: the cluster file that is shown; None for a live cell.
    - `lag`: counts input records that no commit has taken in; None where nobody knows.
    - `letters`: the dead letters; None where no broker has any.
    - `now_ms`: this machine's time, in ms since the epoch.
    - `access`: who may ask; sessions of those who signed in.
    """

    service: Service
    now_ms: Callable[[], int] = _now_ms
    settings: Settings | None = None
    document: Document | None = None
    lag: Callable[[], int | None] = _no_lag
    letters: Letters | None = None
    access: SessionAccess = field(default_factory=SessionAccess)
    # Each reads all state topics.
    histories: OpenLimit = field(
        default_factory=lambda: OpenLimit("histories", total=HISTORIES_MAX, each=1)
    )
    derived: DerivedValues = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "derived", DerivedValues(self.service))

    @property
    def is_file(self) -> bool:
        """Return whether it shows a cluster file rather than a live cell."""
        return self.document is not None

    @property
    def title(self) -> str:
        """What is shown: the cell, or the name of the file's cluster."""
        if self.document is None:
            return f"cell {self.service.model.cell}"
        return self.document.cluster.name or "cluster file"

    def freshness(self) -> Freshness:
        """How current the state is now."""
        model = self.service.model
        try:
            marker = model.marker
        except NotReady:
            marker = None
        return Freshness(marker, model.stale_seconds, model.fault)

    def role_of(self, who: Principal, headers: Mapping[str, str], address: str) -> Role:
        """The role of a viewer now; NONE where the session it came with has ended."""
        try:
            found = self.access.identify(headers, address)
        except ApiError:
            return Role.NONE
        return found.role if found.name == who.name else Role.NONE
