"""Routes that find replicas: one shard, many shards, the nearest replica of one.

They answer on the event loop itself, in microseconds; nothing here may wait but `wait_for_epoch`.
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import ValidationError
from starlette.responses import Response

from schemas import limits
from schemas.base import describe, echo
from schemas.cluster import ClusterClient
from streaming.api.bodies import LookupAnswer, LookupBody, NearestAnswer, ShardAnswer
from streaming.api.errors import ApiError, ErrorCode
from streaming.api.service import Service, principal_of
from streaming.read_model import ShardFound

# Connections of browsers and proxies live for a minute; half of the usual 60 s.
WAIT_SECONDS_MAX = 30.0

StreamName = Annotated[str, Path(pattern=limits.ID_PATTERN)]
ShardNumber = Annotated[int, Path(ge=0, le=limits.COUNT_MAX)]


def make_shard_routes(service: Service) -> APIRouter:
    """The routes on a service."""
    router = APIRouter(tags=["shards"])
    _add_shard(router, service)
    _add_lookups(router, service)
    return router


def _add_shard(router: APIRouter, service: Service) -> None:
    @router.get("/streams/{stream}/shards/{shard}", response_model=ShardAnswer)
    async def shard(
        request: Request,
        stream: StreamName,
        shard: ShardNumber,
        wait_for_epoch: Annotated[
            int | None,
            Query(ge=0, description="Answer when the shard has this epoch or a later one."),
        ] = None,
        timeout_seconds: Annotated[
            float,
            Query(gt=0, le=WAIT_SECONDS_MAX, description="How long to wait for the epoch."),
        ] = 10.0,
    ) -> Response:
        """Find the replicas of a shard, the leader first.

        `ETag` is the epoch: with `If-None-Match` an unchanged shard is answered by 304.
        """
        if wait_for_epoch is not None:
            with service.limits.waits.counted(principal_of(request).rate_key):
                await _wait(service, stream, shard, wait_for_epoch, timeout_seconds)
        service.check_fresh()
        marker, found = service.model.find_shard(stream, shard)
        if found.assignment is None:
            code, message = _missing(stream, shard, found)
            raise ApiError(404, code, message, service.marker_headers(marker))
        etag = f'"{found.assignment["epoch"]}"'
        headers = {"ETag": etag, "Cache-Control": "no-cache"}
        given = request.headers.get("if-none-match", "")
        if {etag, "*"} & {each.strip().removeprefix("W/") for each in given.split(",")}:
            return Response(None, 304, headers | service.marker_headers(marker))
        return service.answer(marker, _body(found), headers=headers)


def _add_lookups(router: APIRouter, service: Service) -> None:
    @router.post("/shards:lookup", response_model=LookupAnswer)
    async def lookup(request: Request, body: LookupBody) -> Response:
        """Find many shards at one commit, in the order in which they are given."""
        service.limits.lookups.take(principal_of(request).rate_key, len(body.shards))
        service.check_fresh()
        wanted = [(each.stream, each.shard) for each in body.shards]
        marker, all_found = service.model.find_shards(wanted)
        rows = [
            {
                "stream": stream,
                "shard": shard,
                "assignment": found.assignment,
                "leader": _leader(found),
                "code": None if found.assignment else _missing(stream, shard, found)[0],
            }
            for (stream, shard), found in zip(wanted, all_found, strict=True)
        ]
        return service.answer(marker, {"shards": rows})

    @router.get("/nearest", response_model=NearestAnswer)
    async def nearest(
        request: Request,
        stream: Annotated[str, Query(pattern=limits.ID_PATTERN)],
        shard: Annotated[int, Query(ge=0, le=limits.COUNT_MAX)],
        location: Annotated[str | None, Query(description="Where the client stands.")] = None,
        client: Annotated[str, Query(description="Its id, or that of its node.")] = "client",
        host: Annotated[str | None, Query(description="The host it runs on.")] = None,
        tag: Annotated[list[str] | None, Query(description="name=value, repeated.")] = None,
        exact_rack: Annotated[
            bool, Query(description="Only an equal location counts (KIP-392).")
        ] = False,
    ) -> Response:
        """Choose the replica that a client should read from, as `placer nearest` does."""
        service.limits.lookups.take(principal_of(request).rate_key)
        service.check_fresh()
        who = _client(client, host, location, tag or [])
        marker, found, node, reason = service.model.choose(who, stream, shard, exact_rack)
        if found.assignment is None:
            code, message = _missing(stream, shard, found)
            raise ApiError(404, code, message, service.marker_headers(marker))
        body = {"stream": stream, "shard": shard, "replica": node, "reason": reason}
        return service.answer(marker, body | {"epoch": found.assignment["epoch"]})


async def _wait(
    service: Service, stream: str, shard: int, epoch: int, timeout_seconds: float
) -> None:
    """Return when the shard has the epoch. Raises ApiError 504 where it has it not in time."""
    try:
        async with asyncio.timeout(timeout_seconds):
            while True:
                changed = service.hub.changed
                found = service.model.find_epoch(stream, shard)
                if found is not None and found >= epoch:
                    return
                await changed.wait()
    except TimeoutError:
        has = "no assignment" if found is None else f"epoch {found}"
        raise ApiError(
            504,
            ErrorCode.EPOCH_NOT_REACHED,
            f"{stream}/{shard} has {has} and not epoch {epoch} after {timeout_seconds:g} s; ask "
            "again, or without wait_for_epoch",
        ) from None


def _client(client: str, host: str | None, location: str | None, tags: list[str]) -> ClusterClient:
    pairs = [each.partition("=") for each in tags]
    given: dict[str, Any] = {"id": client, "tags": {name: value for name, _, value in pairs}}
    given |= {
        name: value for name, value in (("host", host), ("location", location)) if value is not None
    }
    try:
        return ClusterClient.model_validate(given)
    except ValidationError as error:
        raise ApiError(400, ErrorCode.VALUE_INVALID, describe(error, given)[1]) from None


def _body(found: ShardFound) -> dict[str, Any]:
    return {"assignment": found.assignment, "leader": _leader(found), "load": found.load}


def _leader(found: ShardFound) -> str | None:
    replicas = found.assignment["replicas"] if found.assignment else ()
    return replicas[0] if replicas else None


def _missing(stream: str, shard: int, found: ShardFound) -> tuple[ErrorCode, str]:
    if found.shards is None:
        return ErrorCode.STREAM_UNKNOWN, f"there is no stream {echo(stream)}; see /api/v1/streams"
    why = f"has {found.shards} shards, counted from 0" if shard >= found.shards else "is not placed"
    return ErrorCode.SHARD_UNKNOWN, f"there is no shard {stream}/{shard}: stream {stream} {why}"
