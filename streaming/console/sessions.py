"""Remembers who has signed in, by a random cookie; the browser holds nothing else.

A browser cannot send a token with each page, so a token is given once and a session stands in its
place. It ends after some hours, on signing out, and when the console stops.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie

from streaming.api import AccessRules, Principal

COOKIE = "placer-session"
# As many bits as the longest keys in use: it cannot be guessed however often one tries.
ID_BYTES = 32
# A working day; who is there longer signs in again.
SESSION_SECONDS = 12 * 3600.0
# A page that is open asks all the time; who has closed all of them has left.
IDLE_SECONDS = 3600.0
# Of more, those that were used least recently end; each takes some hundred bytes.
SESSIONS_MAX = 10_000


@dataclass(slots=True)
class Session:
    """One sign-in, until `ends_at` or `IDLE_SECONDS` after `used_at`, seconds of the clock."""

    principal: Principal
    ends_at: float
    used_at: float


class Sessions:
    """The open sessions, by the SHA-256 of their ids: a copy of the memory opens none."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds, which only rise."""
        self._clock = clock
        self._open: OrderedDict[bytes, Session] = OrderedDict()

    def open(self, principal: Principal) -> str:
        """Begin a session and return its id, for the cookie."""
        found, now = secrets.token_urlsafe(ID_BYTES), self._clock()
        self._open[_digest(found)] = Session(principal, now + SESSION_SECONDS, now)
        if len(self._open) > SESSIONS_MAX:
            self._open.popitem(last=False)
        return found

    def find(self, session_id: str) -> Principal | None:
        """Find whose session it is; None where there is none, or it has ended."""
        digest, now = _digest(session_id), self._clock()
        session = self._open.get(digest)
        if session is None:
            return None
        if now >= session.ends_at or now - session.used_at >= IDLE_SECONDS:
            del self._open[digest]
            return None
        session.used_at = now
        self._open.move_to_end(digest)
        return session.principal

    def close(self, session_id: str) -> None:
        """End a session."""
        self._open.pop(_digest(session_id), None)


@dataclass(frozen=True, slots=True)
class SessionAccess:
    """Who a request comes from: a session where the browser has one, else by the rules of the
    API."""

    rules: AccessRules = field(default_factory=AccessRules)
    sessions: Sessions = field(default_factory=Sessions)

    def identify(self, headers: Mapping[str, str], address: str) -> Principal:
        """Name the principal of a request. Raises ApiError 401."""
        given = session_id_of(headers)
        if given is not None and "authorization" not in headers:
            found = self.sessions.find(given)
            if found is not None:
                return found
        return self.rules.identify(headers, address)


def session_id_of(headers: Mapping[str, str]) -> str | None:
    """The id in the cookie of a request; None where there is none. `headers`: by name in small
    letters."""
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return None if morsel is None else morsel.value


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode("utf-8", "surrogateescape")).digest()
