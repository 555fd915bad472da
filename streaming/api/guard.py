"""Stands before every route: headers of safety, foreign hosts and origins, principals, sizes.

An ASGI middleware of one pass: what is refused here reaches no route.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from schemas.base import echo
from streaming.api.access import AccessRules
from streaming.api.errors import JSON_TYPE, ApiError, ErrorCode

# A lookup of a thousand shards with the longest names takes 300 KB.
BODY_BYTES_MAX = 1_048_576
# An id has at most 249 characters; a path has two of them, a query tags and a cursor beside.
TARGET_BYTES_MAX = 8_192
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
# Encoded separators, dots and control characters, which no id has: they only hide a path.
_HIDDEN = re.compile(rb"%(2e|2f|5c|00|0a|0d)|\\|/\.{1,2}(/|$)|//", re.IGNORECASE)
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
# Names under which a secret would be in the address, and so in logs and histories.
_SECRET_PARAMETER = re.compile(rb"(^|&)(access_token|token|api_key|password)=", re.IGNORECASE)
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


@dataclass(frozen=True, slots=True)
class GuardRules:
    """What the guard lets through. `loopback`: the service listens on this machine alone, where a
    page of another host could reach it by a name that points here; `origins`: of pages that may
    send unsafe requests, besides the service's own."""

    access: AccessRules = field(default_factory=AccessRules)
    loopback: bool = True
    origins: frozenset[str] = frozenset()


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
            # No route speaks websockets; one without these checks must not come unnoticed.
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_safely(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                more = [each for each in _HEADERS if each[0] not in there]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        try:
            self._check(scope, headers)
            peer = (scope.get("client") or ("", 0))[0]
            scope.setdefault("state", {})["principal"] = self._rules.access.identify(headers, peer)
        except ApiError as error:
            await error.response()(scope, receive, send_safely)
            return
        if scope["method"] in _SAFE_METHODS:
            await self._app(scope, receive, send_safely)
        else:
            await self._take_body(scope, receive, send_safely)

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
        if self._rules.loopback and _name_of(host) not in _LOOPBACK_NAMES:
            raise ApiError(
                421,
                ErrorCode.HOST_UNKNOWN,
                f"this service listens on this machine alone, not as {echo(host)}: ask for "
                "localhost, or start it with --host",
            )
        if scope["method"] not in _SAFE_METHODS:
            self._check_origin(scope, headers, host)

    def _check_origin(self, scope: Scope, headers: Mapping[str, str], host: str) -> None:
        """Refuse what a page of another origin makes a browser send. Programs send no origin."""
        origin = headers.get("origin")
        own = f"{scope.get('scheme', 'http')}://{host}"
        foreign = origin is not None and origin != own and origin not in self._rules.origins
        unnamed = origin is None and headers.get("sec-fetch-site", "none") not in (
            "none",
            "same-origin",
        )
        if foreign or unnamed:
            raise ApiError(
                403,
                ErrorCode.ORIGIN_FOREIGN,
                f"a page of {echo(origin or 'another site')} may not send this request; if it is "
                "yours, start the service with --allow-origin",
            )
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON_TYPE:
            raise ApiError(
                415,
                ErrorCode.TYPE_UNSUPPORTED,
                f"the body is {echo(kind)}: send Content-Type: {JSON_TYPE}",
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


def _name_of(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
    return f"[{name}]" if ":" in name else name
