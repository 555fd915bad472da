"""Puts the routes together behind the guard: the ASGI application, and its OpenAPI document."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.responses import PlainTextResponse

from streaming.api.bodies import ErrorBody
from streaming.api.errors import install_errors
from streaming.api.event_routes import make_event_routes
from streaming.api.fleet_routes import make_fleet_routes
from streaming.api.guard import LIVE, READY, Guard, GuardRules
from streaming.api.request_routes import make_request_routes
from streaming.api.service import Service
from streaming.api.shard_routes import make_shard_routes

PREFIX = "/api/v1"
_FAILURES = {
    400: "A value, path or cursor is none.",
    401: "No token, or none of this service.",
    403: "Another origin, or the role does not suffice.",
    404: "There is no such thing.",
    429: "Too much was asked for; see Retry-After.",
    503: "The state is not read yet, or stale.",
}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def make_application(
    service: Service, rules: GuardRules, now_ms: Callable[[], int] = _now_ms
) -> FastAPI:
    """The application on a service. `now_ms`: this machine's time, in ms since the epoch."""

    @asynccontextmanager
    async def live(_: FastAPI) -> AsyncIterator[None]:
        service.hub.open()
        yield

    app = FastAPI(
        title="placement reconciler",
        summary="Where replicas stand, and what becomes of them.",
        version=version("placement-reconciler"),
        lifespan=live,
        openapi_url=f"{PREFIX}/openapi.json",
        # The pages of FastAPI load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        # `/nodes/` is no other name of `/nodes`: it is not there.
        redirect_slashes=False,
    )
    failures: dict[int | str, dict[str, Any]] = {
        code: {"model": ErrorBody, "description": text} for code, text in _FAILURES.items()
    }
    router = APIRouter(prefix=PREFIX, responses=failures)
    router.include_router(make_shard_routes(service))
    router.include_router(make_fleet_routes(service, now_ms))
    router.include_router(make_event_routes(service))
    router.include_router(make_request_routes(service))
    app.include_router(router)
    _add_probes(app, service)
    install_errors(app)
    app.add_middleware(Guard, rules=rules)
    return app


def _add_probes(app: FastAPI, service: Service) -> None:
    """Add what an orchestrator asks, which needs no principal and shows nothing of the fleet."""

    @app.get(LIVE, include_in_schema=False)
    async def live() -> PlainTextResponse:
        return PlainTextResponse("serving\n")

    @app.get(READY, include_in_schema=False)
    async def ready() -> PlainTextResponse:
        # Brokers that are away later make no process unready: its pages say since when.
        if service.model.stale_seconds is None:
            return PlainTextResponse("the topics are being read\n", 503)
        return PlainTextResponse("the topics are read\n")
