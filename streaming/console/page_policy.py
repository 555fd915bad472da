"""What every page and its websocket are held to: content security policy, limits, ownership.

NiceGUI's page has inline scripts. Each is given a nonce in the template, before any value is put
in, so that no value can be a script. What NiceGUI needs beyond it, the README says.
"""

import secrets
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import parse_qs

from jinja2 import BaseLoader, Environment
from nicegui import Client
from nicegui.client import templates
from starlette.types import ASGIApp, Receive, Scope, Send

from streaming.api import ApiError, OpenLimit, Principal, RateLimit

SOCKETS = "/_nicegui_ws/"
# 128 bits: new for each page, and not guessed.
NONCE_BYTES = 16
# Each holds its elements in memory: some hundred KB.
_PAGES_PER_SECOND, _PAGES_BURST = 5, 100
OPEN_PAGES_TOTAL, OPEN_PAGES_EACH = 500, 50

_POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class _NonceLoader(BaseLoader):
    """Loads a template with a nonce in each of its scripts."""

    def __init__(self, inner: BaseLoader) -> None:
        self._inner = inner

    def get_source(self, environment: Environment, template: str) -> Any:
        """The source, as Jinja asks for it."""
        source, *rest = self._inner.get_source(environment, template)
        return (source.replace("<script", '<script nonce="{{ request.state.nonce }}"'), *rest)


def install_nonces() -> None:
    """Let NiceGUI's template carry nonces; a second call changes nothing."""
    loader = templates.env.loader
    if loader is not None and not isinstance(loader, _NonceLoader):
        templates.env.loader = _NonceLoader(loader)
        if templates.env.cache is not None:
            templates.env.cache.clear()


class PagePolicy:
    """The middleware around all of NiceGUI, behind the guard."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._pages = RateLimit("pages", per_second=_PAGES_PER_SECOND, burst=_PAGES_BURST)
        self._open = OpenLimit("pages", total=OPEN_PAGES_TOTAL, each=OPEN_PAGES_EACH)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request or websocket through, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["path"].startswith(SOCKETS):
            await self._take_socket(scope, receive, send)
        else:
            await self._take_request(scope, receive, send)

    async def _take_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        scope["state"]["nonce"] = nonce

        async def send_with_policy(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                policy = (b"content-security-policy", _POLICY.format(nonce=nonce).encode())
                referrer = (b"referrer-policy", b"same-origin")  # else forms name no origin
                message["headers"] = [*message["headers"], policy, referrer]
            await send(message)

        if not scope["path"].startswith(("/_nicegui/", "/assets/")):
            try:
                self._pages.take(_principal(scope).rate_key)
            except ApiError as error:
                await error.response()(scope, receive, send)
                return
        await self._app(scope, receive, send_with_policy)

    async def _take_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A page's socket belongs to whom the page was made for: the number of a page alone, which
        may be read from a screen or log, opens nothing."""
        who, websocket = _principal(scope), scope["type"] == "websocket"
        if not _owns(scope, who):
            await self._refuse(
                ApiError(403, "PAGE_FOREIGN", "reload the page"), scope, receive, send
            )
            return
        if not websocket:
            await self._app(scope, receive, send)
            return
        try:
            self._open.enter(who.rate_key)
        except ApiError as error:
            await self._refuse(error, scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._open.leave(who.rate_key)

    async def _refuse(self, error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await error.response()(scope, receive, send)


def _principal(scope: Scope) -> Principal:
    found: Principal = scope["state"]["principal"]
    return found


def _owns(scope: Scope, who: Principal) -> bool:
    """Whether the page that the socket names was made for the same principal. One that is not there
    any more is told so by NiceGUI, and the browser reloads."""
    named = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("client_id", [""])[0]
    client = Client.instances.get(named)
    if client is None:
        return True
    made_for: Principal = client.request.state.principal
    return made_for.name == who.name
