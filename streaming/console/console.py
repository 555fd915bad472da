"""What all pages stand on: the read model, who may ask, what is computed once for all viewers.

A console shows a live cell, or a cluster file; pages ask `settings` and `document` which it is.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from streaming.api import ApiError, OpenLimit, Principal, Role, Service
from streaming.console.letters import Letters
from streaming.console.sessions import SessionAccess
from streaming.offline import Document
from streaming.read_model import Marker, NotReady, ReadModel, StateSnapshot
from streaming.settings import Settings

T = TypeVar("T")

# They compute; more at once on few cores only delays each, and lookups of the API with it.
THREADS_MAX = 2
# The model is confirmed every second; an election of leaders takes as long as this.
DOUBTFUL_SECONDS = 5.0
HISTORIES_MAX = 2
# Of a fleet's page some ten values are kept, of each stream and node that is looked at a few.
VALUES_KEPT = 64


class DerivedValues:
    """Values computed from the state of one commit, once for all viewers who look at it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._threads = ThreadPoolExecutor(THREADS_MAX, "console")
        self._known: OrderedDict[Hashable, tuple[int, asyncio.Future[Any]]] = OrderedDict()

    async def get(
        self,
        key: Hashable,
        compute: Callable[[StateSnapshot], T],
        *,
        stream: str | None = None,
        node: str | None = None,
    ) -> T:
        """Compute a value in a thread, or return that of the same commit.

        - `key`: names the value; equal keys have equal `compute`.
        - `stream`, `node`: whose assignments the snapshot has, else it has none.

        Raises NotReady, and what `compute` raises.
        """
        return await self.ask(key, lambda model: compute(model.take_snapshot(stream, node)[1]))

    async def ask(self, key: Hashable, compute: Callable[[ReadModel], T]) -> T:
        """As `get`, from the model itself."""
        model = self._service.model
        version = model.version
        known = self._known.get(key)
        if known is None or known[0] != version:
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(self._threads, lambda: compute(model))
            known = self._known[key] = version, asyncio.ensure_future(work)
        self._known.move_to_end(key)
        while len(self._known) > VALUES_KEPT:
            self._known.popitem(last=False)
        # A viewer who leaves must not take the value from the others.
        found: T = await asyncio.shield(known[1])
        return found

    async def run_long(self, work: Callable[[], T]) -> T:
        """Run work that waits for brokers, in a thread that is none of those."""
        return await asyncio.to_thread(work)

    async def run(self, work: Callable[[], T]) -> T:
        """Run work in one of the threads, for answers that are not kept."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


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
