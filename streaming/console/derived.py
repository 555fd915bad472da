"""What is made of the state of one commit, once for all pages that show it.

    model ──▶ CommitState: snapshot, health, listings ──▶ DerivedValues: values by key ──▶ View

Parts that several values need are made by whoever asks first, in a thread beside the event loop.
"""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from placement.model import NodeView
from streaming.api import Service
from streaming.live import LISTINGS
from streaming.read_model import ReadModel, StateSnapshot

T = TypeVar("T")
Row = Mapping[str, Any]

# They compute; more at once on few cores only delays each, and lookups of the API with it.
THREADS_MAX = 2
# Of one commit: what is left out is computed again, what is kept takes up to 300 KB each, the
# longest page of a table.
VALUES_KEPT = 256
# People see no more of what changes without commits.
POLL_SECONDS = 1.0


class CommitState:
    """The state of one commit, and what several values of it need. A part that is made while the
    next commit comes in is of that one; all are made again for it."""

    def __init__(self, model: ReadModel) -> None:
        self.model = model
        # One thread makes a part while the other waits for it: both would only make it twice.
        self._lock = threading.RLock()
        self._parts: dict[Hashable, Any] = {}

    def part(self, key: Hashable, make: Callable[["CommitState"], T]) -> T:
        """Return a part by its name, made by `make` where nobody has asked for it yet. Raises what
        `make` raises."""
        with self._lock:
            if key not in self._parts:
                self._parts[key] = make(self)
            found: T = self._parts[key]
            return found

    @property
    def snapshot(self) -> StateSnapshot:
        """The records without assignments. Raises NotReady."""
        return self.part("snapshot", lambda state: state.model.take_snapshot()[1])

    @property
    def views(self) -> Mapping[str, NodeView]:
        """The nodes by id. Raises NotReady."""
        return self.part("views", lambda state: {v.node_id: v for v in state.snapshot.nodes})

    @property
    def judged(self) -> Mapping[str, NDArray[np.int8]]:
        """The health of all shards, by stream: places in `RUNGS`."""
        return self.part("judged", lambda state: state.model.judge_shards())

    def list_rows(self, listing: str) -> list[dict[str, Any]]:
        """The rows of one of the `LISTINGS`. Raises NotReady."""
        return self.part(("rows", listing), lambda state: LISTINGS[listing].rows(state.snapshot))


class DerivedValues:
    """Values of the state of the last commit, each computed once for all viewers who look at it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._threads = ThreadPoolExecutor(THREADS_MAX, "console")
        self._state: tuple[int, CommitState] | None = None
        self._known: OrderedDict[Hashable, asyncio.Future[Any]] = OrderedDict()
        self._polled: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}

    async def get(self, key: Hashable, compute: Callable[[CommitState], T]) -> T:
        """Compute a value in a thread, or return that of the same commit.

        `key`: names the value; equal keys have equal `compute`. Raises NotReady, and what `compute`
        raises.
        """
        state = self._current()
        known = self._known.get(key)
        if known is None:
            known = asyncio.wrap_future(self._threads.submit(compute, state))
            self._known[key] = known
        self._known.move_to_end(key)
        while len(self._known) > VALUES_KEPT:
            self._known.popitem(last=False)
        # A viewer who leaves must not take the value from the others.
        found: T = await asyncio.shield(known)
        return found

    async def poll(self, key: Hashable, read: Callable[[], T]) -> T:
        """Read what changes without commits, at most once in `POLL_SECONDS` for all viewers, in a
        thread that may wait for brokers. Raises what `read` raises."""
        known, now = self._polled.get(key), time.monotonic()
        if known is None or (known[1].done() and now - known[0] >= POLL_SECONDS):
            known = self._polled[key] = now, asyncio.ensure_future(asyncio.to_thread(read))
        found: T = await asyncio.shield(known[1])
        return found

    async def run_long(self, work: Callable[[], T]) -> T:
        """Run work that waits for brokers, in a thread that is none of those that compute."""
        return await asyncio.to_thread(work)

    async def run(self, work: Callable[[], T]) -> T:
        """Run work in one of the threads that compute, for answers that are not kept."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _current(self) -> CommitState:
        """The state of the last commit; values of the one before are forgotten."""
        version = self._service.model.version
        if self._state is None or self._state[0] != version:
            self._state = version, CommitState(self._service.model)
            self._known.clear()
        return self._state[1]
