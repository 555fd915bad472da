"""Routes that ask the reconciler for something: the impact of a request, and the request itself.

Consent is the hash of the impact, as on the command line: the reconciler refuses what is
destructive without it, or with that of another impact.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.responses import Response

from schemas.base import describe
from schemas.requests import OperatorRequest
from streaming.api.access import Principal, Role
from streaming.api.bodies import REQUEST_TYPES, DryRunAnswer, OperatorBody, RequestAnswer
from streaming.api.errors import JSON_TYPE, ApiError, ErrorCode
from streaming.api.service import Operating, Service, principal_of
from streaming.observability import LogEvent, log_event
from streaming.requests import NoAnswer, dry_run, new_request_id, send_request_and_wait
from streaming.settings import Settings

# A batch takes a second; a reconciler that is being replaced half a minute.
ANSWER_SECONDS_MAX = 60.0


class KafkaOperating:
    """Tries requests on a copy of the reconciler, and sends them to `operator.v1`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def dry_run(self, request: OperatorRequest) -> Mapping[str, Any]:
        """Show the impact. Raises StreamingError."""
        return dry_run(self._settings, request).summary

    def send(self, request: OperatorRequest, timeout_seconds: float) -> Mapping[str, Any]:
        """Send it and wait. Raises NoAnswer, StreamingError."""
        return send_request_and_wait(self._settings, request, timeout_seconds)


def make_request_routes(service: Service) -> APIRouter:
    """The routes on a service."""
    router = APIRouter(tags=["requests"])

    @router.post("/requests:dry-run", response_model=DryRunAnswer)
    async def preview(request: Request, body: OperatorBody) -> Response:
        """Show the impact of a request and the hash that agrees to it; nothing is sent."""
        operating, who = _admit(service, request)
        asked = _make_request(body, who)
        service.limits.dry_runs.take(who.rate_key)
        with service.limits.dry_runs_open.counted(who.rate_key):
            impact = await asyncio.to_thread(operating.dry_run, asked)
        return _answer({"target": asked.target, "impact": impact})

    @router.post("/requests", response_model=RequestAnswer)
    async def send(
        request: Request,
        body: OperatorBody,
        timeout_seconds: Annotated[float, Query(gt=0, le=ANSWER_SECONDS_MAX)] = 30.0,
    ) -> Response:
        """Send a request and wait for its answer. What is destructive needs
        `expected_impact_hash`."""
        operating, who = _admit(service, request)
        asked = _make_request(body, who)
        service.limits.requests.take(who.rate_key)
        try:
            answer = await asyncio.to_thread(operating.send, asked, timeout_seconds)
        except NoAnswer as error:
            named = {"request_id": asked.request_id}
            raise ApiError(504, ErrorCode.NO_ANSWER, str(error), more=named) from error
        accepted = answer["outcome"] == "accepted"
        log_event(
            LogEvent.REQUEST_ANSWERED,
            logging.INFO if accepted else logging.WARNING,
            request=asked.request_id,
            action=str(asked.action),
            target=asked.target,
            requested_by=who.name,
            outcome=answer["outcome"],
        )
        if not accepted:
            reason = answer["reason"]
            more = {"answer": answer}
            raise ApiError(409, reason["code"], reason["message"], more=more)
        return _answer({"answer": answer})

    return router


def _admit(service: Service, request: Request) -> tuple[Operating, Principal]:
    """Who may ask. Raises ApiError 403."""
    if service.operating is None:
        raise ApiError(
            403,
            ErrorCode.OPERATING_DISABLED,
            "this service only reads; start it with: placer api --operate",
        )
    who = principal_of(request)
    if who.role < Role.OPERATE:
        name = "an anonymous request" if who.name is None else f"'{who.name}'"
        raise ApiError(
            403,
            ErrorCode.ROLE_MISSING,
            f"{name} may only read: use a token whose principal has the role operate in the file "
            "that --tokens names",
        )
    return service.operating, who


def _make_request(body: OperatorBody, who: Principal) -> OperatorRequest:
    given = body.model_dump(exclude_none=True, exclude={"type"})
    given = {"request_id": new_request_id()} | given | {"requested_by": who.name}
    kind = REQUEST_TYPES[body.type]
    if body.ttl_seconds is not None and "ttl_seconds" not in kind.model_fields:
        raise ApiError(
            400, ErrorCode.VALUE_INVALID, f"ttl_seconds: {body.type} does not end by itself"
        )
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise ApiError(400, ErrorCode.VALUE_INVALID, describe(error, given)[1]) from None


def _answer(body: Mapping[str, Any]) -> Response:
    return Response(orjson.dumps(body), media_type=JSON_TYPE)
