"""Says why a request is not answered: a status, a stable code, and a sentence for people.

Every answer that is none has the body `{"code": ..., "message": ...}`; what a client sent is quoted
as ASCII and cut, so that no name can write into a terminal or a page.
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from schemas.base import echo
from streaming.errors import BrokerUnreachable, StreamingError
from streaming.live import NotInLiveState
from streaming.read_model import NotReady

Answering = Callable[[Request, Any], Awaitable[Response]]

JSON_TYPE = "application/json"


class ErrorCode(StrEnum):
    """Names the reason for which there is no answer."""

    NOT_FOUND = "NOT_FOUND"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    STREAM_UNKNOWN = "STREAM_UNKNOWN"
    SHARD_UNKNOWN = "SHARD_UNKNOWN"
    NODE_UNKNOWN = "NODE_UNKNOWN"
    VALUE_INVALID = "VALUE_INVALID"
    PATH_INVALID = "PATH_INVALID"
    BODY_TOO_LARGE = "BODY_TOO_LARGE"
    TYPE_UNSUPPORTED = "TYPE_UNSUPPORTED"
    HOST_INVALID = "HOST_INVALID"
    HOST_UNKNOWN = "HOST_UNKNOWN"
    ORIGIN_FOREIGN = "ORIGIN_FOREIGN"
    TOKEN_MISSING = "TOKEN_MISSING"
    TOKEN_UNKNOWN = "TOKEN_UNKNOWN"
    ROLE_MISSING = "ROLE_MISSING"
    OPERATING_DISABLED = "OPERATING_DISABLED"
    RATE_EXCEEDED = "RATE_EXCEEDED"
    NOT_READY = "NOT_READY"
    STALE = "STALE"
    EPOCH_NOT_REACHED = "EPOCH_NOT_REACHED"
    NO_ANSWER = "NO_ANSWER"
    BROKER_UNREACHABLE = "BROKER_UNREACHABLE"
    REQUEST_REFUSED = "REQUEST_REFUSED"
    SURROUNDINGS_FAILED = "SURROUNDINGS_FAILED"


class ApiError(Exception):
    """There is no answer; `message` names the thing, the value and what to do."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """`more`: further fields of the body."""
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers, self.more = dict(headers or {}), dict(more or {})

    def response(self) -> Response:
        """The error as an answer."""
        body = {"code": str(self.code), "message": self.message} | self.more
        return Response(orjson.dumps(body), self.status, self.headers, JSON_TYPE)


def install_errors(app: FastAPI) -> None:
    """Let the application answer every failure in one form."""
    answers: dict[Any, Answering] = {
        ApiError: _answer_error,
        HTTPException: _answer_http,
        RequestValidationError: _answer_invalid,
        StreamingError: _answer_failure,
    }
    for kind, answer in answers.items():
        app.add_exception_handler(kind, answer)


async def _answer_error(_: Request, error: Any) -> Response:
    found: ApiError = error
    return found.response()


async def _answer_http(request: Request, error: Any) -> Response:
    if error.status_code == 405:
        code, allowed = ErrorCode.METHOD_NOT_ALLOWED, error.headers.get("Allow", "")
        message = f"{request.method} is not answered here; use {allowed}"
        return ApiError(405, code, message, error.headers).response()
    if error.status_code != 404:
        message = f"the request cannot be read: {error.detail}"
        return ApiError(error.status_code, ErrorCode.VALUE_INVALID, message).response()
    message = f"there is no {echo(request.url.path)}; the paths are listed in /api/v1/openapi.json"
    return ApiError(404, ErrorCode.NOT_FOUND, message).response()


async def _answer_invalid(_: Request, error: Any) -> Response:
    fault = error.errors()[0]
    place = ".".join(str(part) for part in fault["loc"][1:]) or "body"
    message = f"{echo(place)[1:-1]}: {fault['msg']}, it is {echo(fault.get('input'))}"
    return ApiError(400, ErrorCode.VALUE_INVALID, message).response()


async def _answer_failure(_: Request, error: Any) -> Response:
    return api_error(error).response()


def api_error(error: StreamingError) -> ApiError:
    """The answer to an expected failure of the surroundings."""
    if isinstance(error, NotInLiveState):
        return ApiError(404, ErrorCode.NOT_FOUND, str(error))
    if isinstance(error, NotReady):
        return ApiError(503, ErrorCode.NOT_READY, str(error), {"Retry-After": "1"})
    if isinstance(error, BrokerUnreachable):
        return ApiError(503, ErrorCode.BROKER_UNREACHABLE, str(error), {"Retry-After": "5"})
    return ApiError(503, ErrorCode.SURROUNDINGS_FAILED, str(error))
