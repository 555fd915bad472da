"""Refreshes open pages after commits: one task for all viewers, driven by the event hub.

    commit ──▶ EventHub.changed ──▶ Pulse ──▶ each open View: what has changed goes to its browser

Values are computed once per commit (`DerivedValues`), so a viewer costs what its browser is sent.
"""

import asyncio
import logging

from streaming.api import EventHub
from streaming.console.page import LOGGER, View

# Commits follow each other by milliseconds under load; people see no more than some changes a
# second, and a page is to show a commit within one.
REFRESH_SECONDS_MIN = 0.25
# That the topics cannot be read is no commit: so often the pages look for it.
FRESHNESS_SECONDS = 1.0


class Pulse:
    """Refreshes the views that are open."""

    def __init__(self, hub: EventHub) -> None:
        self._hub = hub
        self._views: set[View] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, in the event loop that is running."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def add(self, view: View) -> None:
        """Refresh a view until its client has left."""
        self._views.add(view)
        view.client.on_delete(lambda: self._views.discard(view))

    async def _run(self) -> None:
        while True:
            changed = self._hub.changed
            for view in [*self._views]:
                await self._refresh(view)
            # Commits of this time are shown together.
            await asyncio.sleep(REFRESH_SECONDS_MIN)
            try:
                await asyncio.wait_for(changed.wait(), FRESHNESS_SECONDS)
            except TimeoutError:
                continue

    async def _refresh(self, view: View) -> None:
        if view.client.is_deleted:
            self._views.discard(view)
            return
        if not view.client.has_socket_connection:
            return
        try:
            await view.refresh()
        except Exception:
            # One page's fault must not end the others'.
            logging.getLogger(LOGGER).exception("%s cannot be refreshed", view.page.path)
