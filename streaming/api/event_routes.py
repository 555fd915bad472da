"""The route of server-sent events."""

from typing import Annotated

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from schemas.base import echo
from streaming.api.errors import ApiError, ErrorCode
from streaming.api.events import EventStream, write_events
from streaming.api.service import Service, principal_of

# The longest number of a commit that JSON readers of 64 bits take.
_DIGITS_MAX = 18


def make_event_routes(service: Service) -> APIRouter:
    """The route on a service."""
    router = APIRouter(tags=["events"])

    @router.get(
        "/events",
        response_class=EventStream,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def events(
        request: Request,
        last_event_id: Annotated[
            str | None, Header(description="The event that was seen last, to go on behind it.")
        ] = None,
    ) -> Response:
        """Follow what each commit changes.

        `change`: the keys that were changed, by kind. `reset`: what was missed is not known, read
        the state again. `end`: the service ends the stream and says why. `id` is the number of the
        commit.
        """
        service.check_fresh()
        seen = _parse_id(last_event_id)
        who = principal_of(request).rate_key
        service.limits.streams.enter(who)
        # Before the log is looked at, so that nothing falls between.
        subscription = service.hub.subscribe()
        known = service.model.marker.sequence
        backlog = [] if seen is None else service.model.changes_after(seen)
        if backlog:
            known = backlog[-1].marker.sequence

        def end() -> None:
            service.hub.unsubscribe(subscription)
            service.limits.streams.leave(who)

        return EventStream(write_events(subscription, backlog, known), end)

    return router


def _parse_id(text: str | None) -> int | None:
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS_MAX:
        raise ApiError(
            400,
            ErrorCode.VALUE_INVALID,
            f"Last-Event-ID is {echo(text)}: expected the number that an event had as its id",
        )
    return int(text)
