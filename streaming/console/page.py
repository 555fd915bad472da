"""A page as it is registered, and one viewer's look at it: what page builders are given.

Page (path, title, build) ── frame ──▶ View ── build ──▶ elements, parts ── prepare, show ──▶
                                                          elements after a commit
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from fastapi import Request
from nicegui import Client, ui

from streaming.api import Principal, Role
from streaming.console.console import Console
from streaming.console.derived import CommitState
from streaming.console.elements import show_fault, tag
from streaming.console.sessions import session_id_of
from streaming.errors import StreamingError
from streaming.read_model import NotReady

LOGGER = "placer.console"
OWN_FAULT = "This page met a fault of the console's own; its log says which."

T = TypeVar("T")


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
        self._values: list[T | str] = []

    def __call__(self, value: T) -> None:
        self._show(value, lambda: self._render(value))

    def fail(self, message: str) -> None:
        """Say why there is no value any more."""
        self._show(message, lambda: show_fault(message))

    def _show(self, value: T | str, render: Callable[[], None]) -> None:
        if self._values == [value]:
            return
        self._values = [value]
        self._container.clear()
        with self._container:
            render()


class _ShownItems(Generic[T]):
    """A container and the items that it shows, each in a container of its own, which stays as long
    as an equal item is there."""

    def __init__(self, container: ui.element, of: str, render: Callable[[T], None]) -> None:
        self._container, self._of, self._render = container, of, render
        self._shown: list[tuple[T, ui.element]] = []

    def __call__(self, items: Sequence[T]) -> None:
        left = [*self._shown]
        shown: list[tuple[T, ui.element]] = []
        for item in items:
            known = next((each for each in left if each[0] == item), None)
            if known is not None:
                left.remove(known)
            else:
                with self._container:
                    known = item, tag(self._of)
                with known[1]:
                    self._render(item)
            shown.append(known)
        for _, element in left:
            element.delete()
        self._shown = shown
        slot = self._container.default_slot
        order = [element for _, element in shown]
        if slot.children != order:
            slot.children[:] = order
            self._container.update()


@dataclass(frozen=True, slots=True)
class _Part(Generic[T]):
    """A part of a page: what it shows is read in any order with others, and shown at once."""

    read: Callable[[], Awaitable[T]]
    show: Callable[[T], None]
    fail: Callable[[str], None]

    async def prepare(self) -> Callable[[], None]:
        """Read, and return what shows it."""
        try:
            value = await self.read()
        except StreamingError as error:
            message = str(error)
            return lambda: self.fail(message)
        return lambda: self.show(value)


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
        # What an event meets is logged; whoever has clicked would wait for an answer.
        self.client.on_exception(lambda: ui.notify(OWN_FAULT, type="negative"))
        self.cookies: Mapping[str, str] = dict(request.cookies)
        self._parts: list[_Part[Any]] = []
        self._polls: list[_Part[Any]] = []
        self._watches: list[Callable[[], None]] = []
        self._marks: list[Callable[[], None]] = []
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

    async def derive(self, key: Hashable, compute: Callable[[CommitState], T]) -> T:
        """Compute a value of the state in a thread, once for all viewers (`DerivedValues.get`)."""
        return await self.console.derived.get(key, compute)

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
        show(await read())
        part = _Part(read, show, show.fail)
        (self._polls if each_second else self._parts).append(part)

    async def live_items(
        self,
        read: Callable[[], Awaitable[Sequence[T]]],
        render: Callable[[T], None],
        around: ui.element,
        of: str,
    ) -> None:
        """Show the items that `read` returns within `around`, each by `render` in an element with
        the tag `of`, and again those that have changed."""
        await self.live_part(read, _ShownItems(around, of, render))

    async def live_part(self, read: Callable[[], Awaitable[T]], show: Callable[[T], None]) -> None:
        """Show what `read` returns now and after each commit; `show` leaves be what is equal."""
        show(await read())
        self._parts.append(_Part(read, show, self._note_fault))

    def watch(
        self,
        read: Callable[[], T],
        container: ui.element,
        render: Callable[[T], None],
    ) -> None:
        """Show in a container what `read` returns, and again whenever it has changed. It is asked
        about once a second, commit or not, and has to be cheap."""
        show = _Shown(container, render)

        def look() -> None:
            show(read())

        look()
        self._watches.append(look)

    def mark(self, look: Callable[[], None]) -> None:
        """Run `look` now, and about once a second; after a commit once the page shows it."""
        look()
        self._marks.append(look)

    async def prepare(self) -> Callable[[], None]:
        """Read what the page shows of the last commit, and return what brings it up to that; called
        by the pulse."""
        with self.client:
            for look in self._watches:
                look()
        version = self.console.service.model.version
        due = [*self._polls]
        if version != self._version:
            due += self._parts
        shows = await asyncio.gather(*(each.prepare() for each in due))

        def show() -> None:
            self._version = version
            with self.client:
                for each in (*shows, *self._marks):
                    each()

        return show

    def _reload_when_read(self) -> None:
        """Build a page that was asked for too early, as soon as there is something to show."""
        if self.console.freshness().marker is not None:
            ui.navigate.reload()

    def _note_fault(self, message: str) -> None:
        logging.getLogger(LOGGER).info("%s: %s", self.page.path, message)

    async def build(self) -> None:
        """Make the page's elements; an expected failure is shown in their place."""
        try:
            await self.page.build(self)
        except NotReady as error:
            self.client.status_code = 503
            show_fault(str(error))
            self._watches.append(self._reload_when_read)
        except StreamingError as error:
            self.client.status_code = 404 if error.exit_code == 2 else 503
            show_fault(str(error))
        except Exception:
            logging.getLogger(LOGGER).exception("%s cannot be built", self.page.path)
            self.client.status_code = 500
            show_fault(OWN_FAULT)


def link_to(path: str, *parts: str | int, **query: Any) -> str:
    """The address of a page: `link_to("nodes", "n 1")` is `/nodes/n%201`; parameters of the query
    that are None are left out."""
    words = [path.strip("/"), *(quote(str(each), safe="") for each in parts)]
    asked = {name: value for name, value in query.items() if value is not None}
    return "/" + "/".join(words) + (f"?{urlencode(asked)}" if asked else "")
