"""Stands before every route: headers of safety, foreign hosts and origins, principals, sizes.

An ASGI middleware of one pass: what is refused here reaches no route.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from schemas.base import echo
from streaming.api.access import AccessRules, Principal, Role
from streaming.api.errors import JSON_TYPE, ApiError, ErrorCode

# A lookup of a thousand shards with the longest names takes 300 KB.
BODY_BYTES_MAX = 1_048_576
# An id has at most 249 characters; a path has two of them, a query tags and a cursor beside.
TARGET_BYTES_MAX = 8_192
FORM_TYPE = "application/x-www-form-urlencoded"
# An orchestrator has no token.
LIVE, READY = "/livez", "/readyz"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
# Encoded separators, dots and control characters, which no id has: they only hide a path.
_HIDDEN = re.compile(rb"%(2e|2f|5c|00|0a|0d)|\\|/\.{1,2}(/|$)|//", re.IGNORECASE)
# A name or an address, and a port (RFC 9110, 7.2). Other signs would end up in addresses that are
# made of it.
_HOST = re.compile(r"(?:[A-Za-z0-9._-]{0,255}|\[[0-9A-Fa-f:.]{2,64}\])(?::[0-9]{1,5})?")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
# Names under which a secret would be in the address, and so in logs and histories.
_SECRET_PARAMETER = re.compile(rb"(^|&)(access_token|token|api_key|password)=", re.IGNORECASE)
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class Access(Protocol):
    """Tells who a request comes from."""

    def identify(self, headers: Mapping[str, str], address: str) -> Principal:
        """Name the principal of a request. Raises ApiError 401."""


@dataclass(frozen=True, slots=True)
class PageRules:
    """What pages in browsers need beside JSON.

    - `sign_in`: where people who need a token are sent; `public`: paths that show nothing of the
      fleet, answered without a principal, `sign_in` among them.
    - `forms`: paths that take a form in place of JSON.
    - `sockets`: the beginning of the paths of websockets, and of the requests in their place.
    """

    sign_in: str
    public: tuple[str, ...]
    forms: frozenset[str]
    sockets: str


@dataclass(frozen=True, slots=True)
class GuardRules:
    """What the guard lets through. `loopback`: the service listens on this machine alone, where a
    page of another host could reach it by a name that points here; `origins`: of pages that may
    send unsafe requests, besides the service's own; `pages`: None where it serves no pages."""

    access: Access = field(default_factory=AccessRules)
    loopback: bool = True
    origins: frozenset[str] = frozenset()
    pages: PageRules | None = None


class Guard:
    """The middleware; it puts the principal into `scope["state"]["principal"]`."""

    def __init__(self, app: ASGIApp, rules: GuardRules) -> None:
        self._app, self._rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._take_socket(scope, receive, send)
            return

        async def send_safely(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                more = [each for each in _HEADERS if each[0] not in there]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        headers = _headers_of(scope)
        try:
            self._check(scope, headers)
            self._identify(scope, headers)
        except ApiError as error:
            answer = self._sign_in(scope, headers, error) or error.response()
            await answer(scope, receive, send_safely)
            return
        if scope["method"] in _SAFE_METHODS:
            await self._app(scope, receive, send_safely)
        else:
            await self._take_body(scope, receive, send_safely)

    async def _take_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a websocket of our own pages through. A browser names the origin of each; one without
        these checks must not come unnoticed."""
        pages, headers = self._rules.pages, _headers_of(scope)
        try:
            if pages is None or not scope["path"].startswith(pages.sockets):
                raise ApiError(404, ErrorCode.NOT_FOUND, "no route speaks websockets here")
            self._check(scope, headers)
            self._check_origin(scope, headers, strict=True)
            self._identify(scope, headers)
        except ApiError:
            await send({"type": "websocket.close", "code": 1008})
            return
        await self._app(scope, receive, send)

    def _identify(self, scope: Scope, headers: Mapping[str, str]) -> None:
        peer = (scope.get("client") or ("", 0))[0]
        pages = self._rules.pages
        path = scope["path"]
        if path in (LIVE, READY) or (pages is not None and path.startswith(pages.public)):
            who = Principal(None, Role.NONE, peer)
        else:
            who = self._rules.access.identify(headers, peer)
        scope.setdefault("state", {})["principal"] = who

    def _sign_in(
        self, scope: Scope, headers: Mapping[str, str], error: ApiError
    ) -> RedirectResponse | None:
        """Send a person who opens a page to where a token is asked for; None for all others."""
        pages = self._rules.pages
        if pages is None or error.status != 401 or scope["method"] != "GET":
            return None
        if "text/html" not in headers.get("accept", "") or "authorization" in headers:
            return None
        query = scope.get("query_string", b"").decode("latin-1")
        wanted = scope["path"] + (f"?{query}" if query else "")
        return RedirectResponse(f"{pages.sign_in}?next={quote(wanted, safe='')}", 303)

    def _check(self, scope: Scope, headers: Mapping[str, str]) -> None:
        raw = scope.get("raw_path") or scope["path"].encode()
        query = scope.get("query_string", b"")
        if len(raw) + len(query) > TARGET_BYTES_MAX:
            raise ApiError(
                414,
                ErrorCode.PATH_INVALID,
                f"the address has {len(raw) + len(query)} bytes, at most {TARGET_BYTES_MAX} are "
                "read: use POST /api/v1/shards:lookup for many",
            )
        if _HIDDEN.search(raw):
            raise ApiError(
                400,
                ErrorCode.PATH_INVALID,
                f"the path {echo(raw.decode('latin-1'))} has dots, separators or control "
                "characters that no name has",
            )
        if _SECRET_PARAMETER.search(query):
            raise ApiError(
                400,
                ErrorCode.VALUE_INVALID,
                "a token does not belong into the address, where logs keep it: send Authorization: "
                "Bearer TOKEN, and replace this token",
            )
        host = headers.get("host", "")
        if not _HOST.fullmatch(host):
            raise ApiError(
                400,
                ErrorCode.HOST_INVALID,
                f"the header Host is {echo(host)}: expected a name or an address, and a port if it "
                "is not the usual one",
            )
        if self._rules.loopback and _name_of(host) not in _LOOPBACK_NAMES:
            raise ApiError(
                421,
                ErrorCode.HOST_UNKNOWN,
                f"this service listens on this machine alone, not as {echo(host)}: ask for "
                "localhost, or start it with --host",
            )
        if scope["type"] != "http":
            return
        pages, unsafe = self._rules.pages, scope["method"] not in _SAFE_METHODS
        form = pages is not None and scope["path"] in pages.forms
        polling = pages is not None and scope["path"].startswith(pages.sockets)
        if unsafe or polling:
            self._check_origin(scope, headers, strict=unsafe and (form or polling))
        if unsafe and not polling:
            _check_type(headers, FORM_TYPE if form else JSON_TYPE)

    def _check_origin(self, scope: Scope, headers: Mapping[str, str], *, strict: bool) -> None:
        """Refuse what a page of another origin makes a browser send. Programs send no origin, which
        `strict` refuses too."""
        origin, host = headers.get("origin"), headers.get("host", "")
        scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
        foreign = (
            origin is not None
            and origin != f"{scheme}://{host}"
            and origin not in self._rules.origins
        )
        site = headers.get("sec-fetch-site", "cross-site" if strict else "none")
        unnamed = origin is None and site not in ("none", "same-origin")
        if foreign or unnamed:
            raise ApiError(
                403,
                ErrorCode.ORIGIN_FOREIGN,
                f"a page of {echo(origin or 'another site')} may not send this request; if it is "
                "yours, start the service with --allow-origin",
            )

    async def _take_body(
        self, scope: Scope, receive: Receive, send: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Read the body up to its bound before the route runs."""
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > BODY_BYTES_MAX:
                error = ApiError(
                    413,
                    ErrorCode.BODY_TOO_LARGE,
                    f"the body has more than {BODY_BYTES_MAX} bytes: send several requests",
                    {"Connection": "close"},
                )
                await error.response()(scope, receive, send)
                return
        body = b"".join(parts)
        given = False

        async def give() -> MutableMapping[str, Any]:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, give, send)


def _check_type(headers: Mapping[str, str], wanted: str) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != wanted:
        raise ApiError(
            415,
            ErrorCode.TYPE_UNSUPPORTED,
            f"the body is {echo(kind)}: send Content-Type: {wanted}",
        )


def _headers_of(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _name_of(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
    return f"[{name}]" if ":" in name else name
