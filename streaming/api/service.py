"""What all routes stand on: the model, its staleness, limits, and how answers are written."""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson
from fastapi import Request
from starlette.responses import Response

from placement.model import natural_key
from schemas.base import echo
from schemas.requests import OperatorRequest
from streaming.api.access import Principal
from streaming.api.errors import JSON_TYPE, ApiError, ErrorCode
from streaming.api.events import EventHub
from streaming.api.rate_limits import OpenLimit, RateLimit
from streaming.presence import ProcessSeen
from streaming.read_model import Marker, ReadModel

# Without a proof for so long that nothing else was committed, an answer may mislead. Brokers that
# elect a leader are back in half of it.
STALE_SECONDS_MAX = 15.0
ITEMS_PER_PAGE = 100
ITEMS_PER_PAGE_MAX = 1_000


class Operating(Protocol):
    """Tries and sends operators' requests."""

    def dry_run(self, request: OperatorRequest) -> Mapping[str, Any]:
        """Show the impact of a request, as `placer drain --dry-run --output json` does."""

    def send(self, request: OperatorRequest, timeout_seconds: float) -> Mapping[str, Any]:
        """Send a request and wait for its answer, a `RequestAnswered`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What is bounded, for each principal or address; see the README for the reasons."""

    lookups: RateLimit = field(
        default_factory=lambda: RateLimit("shards", per_second=100_000, burst=200_000)
    )
    details: RateLimit = field(
        default_factory=lambda: RateLimit("lists and details", per_second=20, burst=100)
    )
    dry_runs: RateLimit = field(
        default_factory=lambda: RateLimit("dry runs", per_second=0.1, burst=5)
    )
    requests: RateLimit = field(
        default_factory=lambda: RateLimit("requests", per_second=0.5, burst=20)
    )
    streams: OpenLimit = field(
        default_factory=lambda: OpenLimit("streams of events", total=10_000, each=20)
    )
    waits: OpenLimit = field(
        default_factory=lambda: OpenLimit("waits for an epoch", total=2_000, each=200)
    )
    # Each rebuilds a copy of the reconciler.
    dry_runs_open: OpenLimit = field(default_factory=lambda: OpenLimit("dry runs", total=1, each=1))


@dataclass(frozen=True, slots=True)
class Service:
    """The service behind the routes. `operating` is None where it only reads; `processes`: those of
    the cell that are there, as `placer status` shows them."""

    model: ReadModel
    hub: EventHub
    operating: Operating | None = None
    processes: Callable[[], Sequence[ProcessSeen]] = tuple
    stale_seconds_max: float = STALE_SECONDS_MAX
    limits: Limits = field(default_factory=Limits)

    def check_fresh(self) -> None:
        """Raise ApiError 503 where the model has not been known to be complete for too long."""
        seconds = self.model.stale_seconds
        if seconds is not None and seconds > self.stale_seconds_max:
            fault = self.model.fault
            raise ApiError(
                503,
                ErrorCode.STALE,
                f"the state was complete {seconds:.0f} s ago, more than "
                f"{self.stale_seconds_max:g} s are not answered"
                + (f": {fault}" if fault else "")
                + "; see: placer doctor",
                {"Retry-After": "5"},
                {"stale_seconds": round(seconds, 1)},
            )

    def answer(
        self,
        marker: Marker,
        body: Mapping[str, Any],
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Write an answer that is true at a commit."""
        stale = round(self.model.stale_seconds or 0.0, 1)
        whole = {"marker": {**marker.body(), "stale_seconds": stale}, **body}
        return Response(
            orjson.dumps(whole),
            status,
            self.marker_headers(marker) | dict(headers or {}),
            JSON_TYPE,
        )

    def marker_headers(self, marker: Marker) -> dict[str, str]:
        """The marker as a header, for answers without a body too."""
        words = ", ".join(f"{name}={value}" for name, value in marker.body().items())
        return {"Placer-Marker": words}


def principal_of(request: Request) -> Principal:
    """Who asks, as the guard found."""
    found: Principal = request.state.principal
    return found


def page(
    items: Iterable[tuple[str, Any]], cursor: str | None, limit: int
) -> tuple[list[Any], str | None]:
    """Cut a page out of items by key, in the natural order of their keys; returns it with the
    cursor of the next one. Raises ApiError 400 for a cursor that is none of ours."""
    ordered = sorted(((natural_key(key), key, item) for key, item in items), key=lambda i: i[:2])
    start = 0
    if cursor is not None:
        last = _decode_cursor(cursor)
        start = bisect_right(ordered, (natural_key(last), last), key=lambda each: each[:2])
    chosen = ordered[start : start + limit]
    more = start + limit < len(ordered)
    return [item for _, _, item in chosen], _encode_cursor(chosen[-1][1]) if more else None


def _encode_cursor(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def _decode_cursor(cursor: str) -> str:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise ApiError(
            400,
            ErrorCode.VALUE_INVALID,
            f"cursor: {echo(cursor)} is none of this service: take `next` of the page before, or "
            "leave it out",
        ) from None
