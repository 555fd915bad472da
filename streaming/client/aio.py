"""The client library for asyncio: the same executor, view and requester, awaited.

Nothing is decided here. An `AsyncReplicaStore` has coroutines for methods; a task of the executor
runs one of them on the loop that `AsyncExecutor` was entered in, and waits for it on a thread. A
copy that is called off is cancelled. Calls that wait for a broker run on threads of the loop.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from streaming.client.executor import Executor
from streaming.client.moves import Replica
from streaming.client.placement_view import PlacementView
from streaming.client.requester import Requester
from streaming.client.store import MoveCalledOff, MoveRefused, Progress, ReplicaStore
from streaming.errors import StreamingError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from streaming.client.moves import Move
    from streaming.client.placement_view import Change

_Answer = TypeVar("_Answer")
# How long a task's thread waits for its coroutine before it looks whether the copy is called off.
POLL_SECONDS = 0.1


class CopyHeldUp(StreamingError):
    """A copy was cancelled because it cannot wait; it is tried again as after any other failure."""


class AsyncReplicaStore(ABC):
    """A `ReplicaStore` of coroutines; each is asked what its namesake there is, and may be
    cancelled where the move is not wanted any more, or the executor may not act for a while."""

    @abstractmethod
    async def holds(self, replica: Replica) -> bool:
        """See ReplicaStore."""

    @abstractmethod
    async def copy(self, move: Move, progress: Progress) -> None:
        """See ReplicaStore. Report by `progress(bytes_done)`; wait by `asyncio.sleep`, not by
        `progress.wait`."""

    @abstractmethod
    async def delete(self, replica: Replica) -> None:
        """See ReplicaStore."""

    async def create(self, replica: Replica) -> None:  # noqa: B027 - a store may do without
        """See ReplicaStore."""

    async def remove(self, move: Move) -> None:  # noqa: B027 - a store may do without
        """See ReplicaStore."""

    async def promote(self, move: Move) -> None:
        """See ReplicaStore."""
        raise MoveRefused(f"this executor cannot let {move.leader} lead: implement promote")

    async def stop(self, move: Move) -> None:
        """See ReplicaStore."""
        if move.add is not None:
            await self.delete(Replica(move.stream, move.shard, move.add, move.uid))

    async def list_replicas(self) -> Iterable[Replica]:
        """See ReplicaStore."""
        return ()


class _OnLoop(ReplicaStore):
    """Runs the coroutines of a store on a loop, for the threads of an executor."""

    def __init__(self, store: AsyncReplicaStore, loop: asyncio.AbstractEventLoop) -> None:
        self._store, self._loop = store, loop

    def holds(self, replica: Replica) -> bool:
        return self._run(self._store.holds(replica))

    def copy(self, move: Move, progress: Progress) -> None:
        progress.may_wait = False
        try:
            self._run(self._store.copy(move, progress), progress)
        finally:
            progress.may_wait = True

    def delete(self, replica: Replica) -> None:
        self._run(self._store.delete(replica))

    def create(self, replica: Replica) -> None:
        self._run(self._store.create(replica))

    def remove(self, move: Move) -> None:
        self._run(self._store.remove(move))

    def promote(self, move: Move) -> None:
        self._run(self._store.promote(move))

    def stop(self, move: Move) -> None:
        self._run(self._store.stop(move))

    def list_replicas(self) -> Iterable[Replica]:
        return self._run(self._store.list_replicas())

    def _run(self, work: Coroutine[Any, Any, _Answer], progress: Progress | None = None) -> _Answer:
        """Run a coroutine to its end, also where it is cancelled: it may clean up."""
        begun: list[asyncio.Task[_Answer]] = []
        is_called_off = True
        ended = threading.Event()

        def begin() -> None:
            begun.append(self._loop.create_task(work))
            begun[0].add_done_callback(lambda _: ended.set())

        self._loop.call_soon_threadsafe(begin)
        while not ended.wait(POLL_SECONDS):
            if progress is None or not begun:
                continue
            if progress.is_called_off or progress.is_held_up:
                is_called_off = progress.is_called_off
                self._loop.call_soon_threadsafe(begun[0].cancel)
                progress = None
        if begun[0].cancelled() and not is_called_off:
            raise CopyHeldUp(
                "no broker has confirmed for a while that this executor alone acts for the node"
            )
        if begun[0].cancelled():
            raise MoveCalledOff("the move is not wanted any more")
        return begun[0].result()


class AsyncExecutor:
    """An `Executor` whose store is asynchronous: `async with AsyncExecutor(...) as executor`.

    `arguments` are those of `Executor`, which is made when it is entered; that raises what
    `Executor` raises.
    """

    def __init__(
        self, bootstrap: str, prefix: str, store: AsyncReplicaStore, **arguments: Any
    ) -> None:
        self._make = partial(Executor, bootstrap, prefix)
        self._store, self._arguments = store, arguments
        self._executor: Executor | None = None

    @property
    def running(self) -> bool:
        """See Executor."""
        return self._executor is not None and self._executor.running

    async def wait_ready(self, timeout_seconds: float) -> bool:
        """See Executor."""
        assert self._executor is not None, "to be entered first"
        return await asyncio.to_thread(self._executor.wait_ready, timeout_seconds)

    async def __aenter__(self) -> Self:
        store = _OnLoop(self._store, asyncio.get_running_loop())
        self._executor = await asyncio.to_thread(self._make, store, **self._arguments)
        self._executor.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._executor is not None
        await asyncio.to_thread(self._executor.close)


class AsyncPlacementView:
    """A `PlacementView` that is awaited where it waits. `view` answers all that needs no waiting:
    `replicas`, `nearest`, `freshness` and the others."""

    def __init__(
        self, bootstrap: str, prefix: str, options: Mapping[str, str] | None = None
    ) -> None:
        self._make = partial(PlacementView, bootstrap, prefix, options)
        self._view: PlacementView | None = None

    @property
    def view(self) -> PlacementView:
        """The view itself; it has to be entered first."""
        if self._view is None:
            raise StreamingError("the view does not follow yet: enter it with `async with`")
        return self._view

    async def wait_complete(self, timeout_seconds: float) -> bool:
        """See PlacementView."""
        return await asyncio.to_thread(self.view.wait_complete, timeout_seconds)

    async def wait_for_epoch(
        self, stream: str, shard: int, epoch: int, timeout_seconds: float
    ) -> tuple[str, ...]:
        """See PlacementView."""
        wait = self.view.wait_for_epoch
        return await asyncio.to_thread(wait, stream, shard, epoch, timeout_seconds)

    def changes(self) -> asyncio.Queue[Change]:
        """Return a queue that gets each change of a shard from now on. To be called on the loop."""
        found: asyncio.Queue[Change] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def hand_over(change: Change) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(found.put_nowait, change)

        self.view.on_change(hand_over)
        return found

    async def __aenter__(self) -> Self:
        self._view = await asyncio.to_thread(self._make)
        self._view.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.view.close)


class AsyncRequester:
    """A `Requester` that is awaited; each method takes and raises what its namesake does."""

    def __init__(
        self, bootstrap: str, prefix: str, options: Mapping[str, str] | None = None
    ) -> None:
        self._make = partial(Requester, bootstrap, prefix, options)
        self._requester: Requester | None = None

    async def create(
        self, stream: str, shards: int, replication_factor: int, **fields: Any
    ) -> Mapping[str, Any]:
        """See Requester."""
        ask = partial(self._entered.create, stream, shards, replication_factor, **fields)
        return await asyncio.to_thread(ask)

    async def alter(
        self, stream: str, shards: int, replication_factor: int, **fields: Any
    ) -> Mapping[str, Any]:
        """See Requester."""
        ask = partial(self._entered.alter, stream, shards, replication_factor, **fields)
        return await asyncio.to_thread(ask)

    async def drop(self, stream: str, **fields: Any) -> Mapping[str, Any] | None:
        """See Requester."""
        return await asyncio.to_thread(partial(self._entered.drop, stream, **fields))

    async def decision(self, stream: str) -> Mapping[str, Any] | None:
        """See Requester."""
        return await asyncio.to_thread(self._entered.decision, stream)

    @property
    def _entered(self) -> Requester:
        if self._requester is None:
            raise StreamingError("the requester is not connected: enter it with `async with`")
        return self._requester

    async def __aenter__(self) -> Self:
        self._requester = await asyncio.to_thread(self._make)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._entered.close)
