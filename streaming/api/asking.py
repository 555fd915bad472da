"""Asks the reconciler on behalf of a principal: who may, the request made, tried, sent and logged.

Routes and the console's pages come through here, so that both refuse the same and record who asked.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from schemas.base import describe
from schemas.requests import OperatorRequest
from streaming.api.access import Principal, Role
from streaming.api.bodies import REQUEST_TYPES
from streaming.api.errors import ApiError, ErrorCode
from streaming.api.service import Operating, Service
from streaming.observability import LogEvent, log_event
from streaming.requests import NoAnswer, new_request_id


def check_operator(service: Service, who: Principal) -> Operating:
    """Return what takes requests, where the principal may send some. Raises ApiError 403."""
    if service.operating is None:
        raise ApiError(
            403,
            ErrorCode.OPERATING_DISABLED,
            "this service only reads; start it with --operate",
        )
    if who.role < Role.OPERATE:
        name = "an anonymous request" if who.name is None else f"'{who.name}'"
        raise ApiError(
            403,
            ErrorCode.ROLE_MISSING,
            f"{name} may only read: use a token whose principal has the role operate in the file "
            "that --tokens names",
        )
    return service.operating


def make_request(type_name: str, fields: Mapping[str, Any], who: Principal) -> OperatorRequest:
    """Make the message that `type_name` names; fields that are None are left out. Raises ApiError
    400, whose message begins with the field."""
    given = {name: value for name, value in fields.items() if value is not None}
    given = {"request_id": new_request_id()} | given
    if who.name is not None:
        given["requested_by"] = who.name
    kind = REQUEST_TYPES[type_name]
    if "ttl_seconds" in given and "ttl_seconds" not in kind.model_fields:
        raise ApiError(
            400, ErrorCode.VALUE_INVALID, f"ttl_seconds: {type_name} does not end by itself"
        )
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise ApiError(400, ErrorCode.VALUE_INVALID, describe(error, given)[1]) from None


async def preview_request(
    service: Service, who: Principal, asked: OperatorRequest
) -> Mapping[str, Any]:
    """Try a request on a copy of the reconciler; nothing is sent. Raises ApiError and
    StreamingError."""
    operating = check_operator(service, who)
    service.limits.dry_runs.take(who.rate_key)
    with service.limits.dry_runs_open.counted(who.rate_key):
        return await asyncio.to_thread(operating.dry_run, asked)


async def send_request(
    service: Service, who: Principal, asked: OperatorRequest, timeout_seconds: float
) -> Mapping[str, Any]:
    """Send a request and wait for its answer, a `RequestAnswered` that accepts it. Raises ApiError,
    with the reconciler's reason where it refuses, and StreamingError."""
    operating = check_operator(service, who)
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
        raise ApiError(409, reason["code"], reason["message"], more={"answer": answer})
    return answer
