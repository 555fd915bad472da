"""Routes that ask the reconciler for something: the impact of a request, and the request itself.

Consent is the hash of the impact, as on the command line: the reconciler refuses what is
destructive without it, or with that of another impact.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from schemas.requests import OperatorRequest
from streaming.api.access import Principal
from streaming.api.asking import check_operator, make_request, preview_request, send_request
from streaming.api.bodies import DryRunAnswer, OperatorBody, RequestAnswer
from streaming.api.errors import JSON_TYPE
from streaming.api.service import Service, principal_of
from streaming.requests import dry_run, send_request_and_wait
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
        who, asked = _read(service, request, body)
        impact = await preview_request(service, who, asked)
        return _answer({"target": asked.target, "impact": impact})

    @router.post("/requests", response_model=RequestAnswer)
    async def send(
        request: Request,
        body: OperatorBody,
        timeout_seconds: Annotated[float, Query(gt=0, le=ANSWER_SECONDS_MAX)] = 30.0,
    ) -> Response:
        """Send a request and wait for its answer. What is destructive needs
        `expected_impact_hash`."""
        who, asked = _read(service, request, body)
        return _answer({"answer": await send_request(service, who, asked, timeout_seconds)})

    return router


def _read(
    service: Service, request: Request, body: OperatorBody
) -> tuple[Principal, OperatorRequest]:
    who = principal_of(request)
    check_operator(service, who)
    return who, make_request(body.type, body.model_dump(exclude={"type"}), who)


def _answer(body: Mapping[str, Any]) -> Response:
    return Response(orjson.dumps(body), media_type=JSON_TYPE)
