"""Brings open pages up to the last commit: each in a task of its own, driven by the event hub.

    commit ──▶ EventHub.changed ──▶ each open View: prepare (all at once) ──▶ Turns: show, in turn

What pages show is computed once per commit (`DerivedValues`), in threads, while none waits for
another; what is left is making elements in the event loop, which also answers requests.
"""

import asyncio
import logging
from collections.abc import Callable

from streaming.api import EventHub
from streaming.console.page import LOGGER, View

# Commits follow each other by milliseconds under load; people see no more than some changes a
# second, and a page is to show a commit within one.
REFRESH_SECONDS_MIN = 0.25
# That the topics cannot be read is no commit: so often the pages look for it.
FRESHNESS_SECONDS = 1.0
# A lookup of the API waits so long for pages, and as long again for what they send: together less
# than half of what it may take at its p99 (20 ms).
SLICE_SECONDS = 0.002


class Turns:
    """Lets pages show what they have prepared, first come, first served; after a slice of the event
    loop's time whatever else waits in it goes first."""

    def __init__(self) -> None:
        self._spent = 0.0
        self._begun = asyncio.Event()

    async def take(self, show: Callable[[], None]) -> None:
        """Wait for the turn and show. Raises what `show` raises."""
        while self._spent >= SLICE_SECONDS:
            await self._begun.wait()
        loop = asyncio.get_running_loop()
        if not self._spent:
            loop.call_soon(self._begin)
        began = loop.time()
        try:
            show()
        finally:
            # More than nothing, so that a slice has one beginning.
            self._spent += max(loop.time() - began, 1e-9)

    def _begin(self) -> None:
        self._spent = 0.0
        waited, self._begun = self._begun, asyncio.Event()
        waited.set()


class Pulse:
    """Refreshes the views that are open."""

    def __init__(self, hub: EventHub) -> None:
        self._hub = hub
        self._turns = Turns()
        self._tasks: dict[View, asyncio.Task[None]] = {}

    async def stop(self) -> None:
        """End all refreshing."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def add(self, view: View) -> None:
        """Refresh a view from when its browser has connected until it has left."""
        view.client.on_connect(lambda: self._follow(view))
        view.client.on_delete(lambda: self._leave(view))

    def _follow(self, view: View) -> None:
        if view not in self._tasks:
            self._tasks[view] = asyncio.get_running_loop().create_task(self._run(view))

    def _leave(self, view: View) -> None:
        task = self._tasks.pop(view, None)
        if task is not None:
            task.cancel()

    async def _run(self, view: View) -> None:
        while True:
            changed = self._hub.changed
            if view.client.has_socket_connection:
                await self._refresh(view)
            # Commits of this time are shown together.
            await asyncio.sleep(REFRESH_SECONDS_MIN)
            try:
                async with asyncio.timeout(FRESHNESS_SECONDS):
                    await changed.wait()
            except TimeoutError:
                continue

    async def _refresh(self, view: View) -> None:
        try:
            await self._turns.take(await view.prepare())
        except Exception:
            # A page that cannot be refreshed now can be after the next commit.
            logging.getLogger(LOGGER).exception("%s cannot be refreshed", view.page.path)
