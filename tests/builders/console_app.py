"""A console on a model that is filled without Kafka, and a browser's requests to it.

NiceGUI keeps one application in a process; each console here starts from a clean one.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import unescape
from typing import Any

from nicegui import Client
from nicegui.testing.general import nicegui_reset_globals
from starlette.testclient import TestClient

from streaming.api import ApiServer, GuardRules, ServerOptions
from streaming.console import Console, SessionAccess, make_console
from streaming.console.page import Page
from streaming.console.pages import PAGES
from tests.builders.api_service import NOW_MS, ServedModel

BASE = "http://localhost:8750"
SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
OWN = {"Origin": BASE, "Host": BASE.removeprefix("http://")}
# Of a websocket; the client of the tests leaves out what browsers send.
OWN_SOCKET = OWN | {"Upgrade": "websocket"}


@contextmanager
def serving(
    console: Console, rules: GuardRules | None = None, pages: Sequence[Page] = PAGES
) -> Iterator[str]:
    """The address at which a console answers on this machine, for browsers."""
    with nicegui_reset_globals():
        app = make_console(console, rules or GuardRules(), pages)
        server = ApiServer(app, console.service.hub, ServerOptions(port=0))
        try:
            with server.running():
                yield server.address
        finally:
            Client.page_routes.clear()


@contextmanager
def console_client(
    console: Console, rules: GuardRules | None = None, base: str = BASE
) -> Iterator[TestClient]:
    """A client of a console, which follows no redirect by itself."""
    with nicegui_reset_globals():
        app = make_console(console, rules or GuardRules())
        try:
            with TestClient(app, base_url=base, follow_redirects=False) as client:
                yield client
        finally:
            # NiceGUI's reset forgets the modules of pages that are no tests'.
            Client.page_routes.clear()


def live_console(served: ServedModel, rules: GuardRules | None = None) -> Console:
    """The console of a served model, for those whom the rules name."""
    access = SessionAccess() if rules is None else SessionAccess(rules.access)  # type: ignore[arg-type]
    return Console(served.service, now_ms=lambda: NOW_MS, access=access)


def elements_of(page: str) -> list[dict[str, Any]]:
    """The elements of a page, as its browser reads them."""
    found = re.search(r"parseElements\(String\.raw`(.*?)`\)", page, re.DOTALL)
    assert found is not None, page[:2_000]
    return list(json.loads(unescape(found.group(1))).values())


def texts_of(page: str) -> list[str]:
    """All texts of a page."""
    return [each["text"] for each in elements_of(page) if each.get("text")]


def client_id_of(page: str) -> str:
    """The number by which the page's socket names it."""
    found = re.search(r"'client_id': '([0-9a-f-]+)'", page)
    assert found is not None
    return found.group(1)


def socket_path(page: str) -> str:
    """The address of a page's socket, as its browser asks for it."""
    query = f"&client_id={client_id_of(page)}&next_message_id=0&implicit_handshake=true"
    return f"{SOCKET}{query}&tab_id=t1&document_id=d1"
