"""A page as it is registered, and one viewer's look at it: what page builders are given.

Page (path, title, build) ── frame ──▶ View ── build ──▶ elements, refreshed after commits
"""

import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from fastapi import Request
from nicegui import Client, ui

from streaming.api import Principal, Role
from streaming.console.console import Console
from streaming.console.elements import show_fault, tag
from streaming.console.sessions import session_id_of
from streaming.errors import StreamingError
from streaming.read_model import StateSnapshot

LOGGER = "placer.console"

T = TypeVar("T")
Refresh = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the console.

    - `path`: its address, with parameters in braces, which `View.parameters` holds.
    - `build`: makes its elements; what it raises of StreamingError is shown in its place.
    - `icon`: of Material Icons; without one the page is not in the navigation. `group`: the
      heading it stands under there. `parent`: the title of the page it belongs to otherwise.
    - `live`, `file`: whether it exists for a live cell, and for a cluster file.
    """

    path: str
    title: str
    build: "Callable[[View], Awaitable[None]]"
    icon: str | None = None
    group: str = ""
    parent: str = ""
    live: bool = True
    file: bool = True

    def is_for(self, console: Console) -> bool:
        """Return whether the console has the page."""
        return self.file if console.is_file else self.live


class _Shown(Generic[T]):
    """A container and the value that it shows."""

    def __init__(self, container: ui.element, render: Callable[[T], None]) -> None:
        self._container, self._render = container, render
        self._values: list[T] = []

    def __call__(self, value: T) -> None:
        if self._values == [value]:
            return
        self._values = [value]
        self._container.clear()
        with self._container:
            self._render(value)


class View:
    """One viewer's look at a page, from the request until the browser leaves."""

    def __init__(self, console: Console, page: Page, request: Request) -> None:
        self.console, self.page = console, page
        self.principal: Principal = request.state.principal
        self.parameters: Mapping[str, str] = dict(request.path_params)
        self.query: Mapping[str, str] = dict(request.query_params)
        self._address = request.client.host if request.client else ""
        self._headers = {name.lower(): value for name, value in request.headers.items()}
        self.client: Client = ui.context.client
        self.cookies: Mapping[str, str] = dict(request.cookies)
        self._refreshes: list[Refresh] = []
        self._polls: list[Refresh] = []
        self._watches: list[Callable[[], None]] = []
        self._version = console.service.model.version

    @property
    def may_operate(self) -> bool:
        """Return whether requests of this viewer are taken: the console was started for it, and
        the principal has the role. Ask again before each request: a session may have ended."""
        return self.console.service.operating is not None and self.role >= Role.OPERATE

    @property
    def role(self) -> Role:
        """The viewer's role now; NONE where the session that it came with has ended."""
        return self.console.role_of(self.principal, self._headers, self._address)

    @property
    def has_session(self) -> bool:
        """Return whether the viewer has signed in here."""
        return session_id_of(self._headers) is not None and self.principal.name is not None

    async def derive(
        self,
        key: Hashable,
        compute: Callable[[StateSnapshot], T],
        *,
        stream: str | None = None,
        node: str | None = None,
    ) -> T:
        """Compute a value of the state in a thread, once for all viewers (`DerivedValues.get`)."""
        return await self.console.derived.get(key, compute, stream=stream, node=node)

    async def live(
        self,
        read: Callable[[], Awaitable[T]],
        render: Callable[[T], None],
        *,
        each_second: bool = False,
    ) -> None:
        """Show what `read` returns by `render`, and again whenever it has changed.

        `render` makes elements in a container of its own, which is emptied before. `each_second`:
        what it reads changes without commits.
        """
        show = _Shown(tag("div", "live"), render)

        async def refresh() -> None:
            show(await read())

        await refresh()
        (self._polls if each_second else self._refreshes).append(refresh)

    def watch(
        self, read: Callable[[], T], container: ui.element, render: Callable[[T], None]
    ) -> None:
        """Show in a container what `read` returns, and again whenever it has changed. It is asked
        about once a second, commit or not, and has to be cheap."""
        show = _Shown(container, render)

        def look() -> None:
            show(read())

        look()
        self._watches.append(look)

    def refresh_with(self, refresh: Refresh) -> None:
        """Run `refresh` after each commit that changes something, while the page is open."""
        self._refreshes.append(refresh)

    async def refresh(self) -> None:
        """Bring all of the page up to the last commit; called by the pulse."""
        with self.client:
            for look in self._watches:
                look()
        version = self.console.service.model.version
        due = [*self._polls]
        if version != self._version:
            self._version = version
            due += self._refreshes
        for refresh in due:
            try:
                with self.client:
                    await refresh()
            except StreamingError as error:
                logging.getLogger(LOGGER).info("%s: %s", self.page.path, error)
            if self.client.is_deleted:
                return

    async def build(self) -> None:
        """Make the page's elements; an expected failure is shown in their place."""
        try:
            await self.page.build(self)
        except StreamingError as error:
            self.client.status_code = 404 if error.exit_code == 2 else 503
            show_fault(str(error))
        except Exception:
            logging.getLogger(LOGGER).exception("%s cannot be built", self.page.path)
            self.client.status_code = 500
            show_fault("This page met a fault of the console's own; its log says which.")


def link_to(path: str, *parts: str | int, **query: Any) -> str:
    """The address of a page: `link_to("nodes", "n 1")` is `/nodes/n%201`; parameters of the query
    that are None are left out."""
    words = [path.strip("/"), *(quote(str(each), safe="") for each in parts)]
    asked = {name: value for name, value in query.items() if value is not None}
    return "/" + "/".join(words) + (f"?{urlencode(asked)}" if asked else "")
