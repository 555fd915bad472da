"""Routes that list and describe: streams, nodes, locations, violations, moves, alerts, the status.

They take a snapshot and answer in a thread, so that lookups do not wait for them.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from schemas import limits
from schemas.base import echo
from schemas.topics import ASSIGNMENTS, DECISIONS, MOVES, TOPOLOGY, VIOLATIONS
from streaming.api.bodies import (
    AlertPage,
    AssignmentPage,
    DecisionPage,
    LocationPage,
    MovePage,
    NodeAnswer,
    NodePage,
    StatusAnswer,
    StreamAnswer,
    ViolationPage,
)
from streaming.api.errors import ApiError, ErrorCode
from streaming.api.service import (
    ITEMS_PER_PAGE,
    ITEMS_PER_PAGE_MAX,
    Service,
    page,
    principal_of,
)
from streaming.live import LISTINGS, describe_node, describe_stream, summarize_cell
from streaming.read_model import StateSnapshot

# They compute; more at once on few cores only delays each.
THREADS_MAX = 4
# A description judges a stream by all nodes: half a second on 10,000, as long as many lists take.
DESCRIPTION_COST = 10
_OPEN_STATES = ("issued", "accepted")

Name = Annotated[str, Path(pattern=limits.ID_PATTERN)]
Cursor = Annotated[str | None, Query(description="`next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=ITEMS_PER_PAGE_MAX, description="Items on a page.")]
Filter = Annotated[str | None, Query(max_length=2_048)]
Items = Iterable[tuple[str, Any]]


class FleetReader:
    """Answers from snapshots, a few at once."""

    def __init__(self, service: Service, now_ms: Callable[[], int]) -> None:
        """`now_ms`: this machine's time, in ms since the epoch."""
        self._service, self._now_ms = service, now_ms
        self._threads = ThreadPoolExecutor(THREADS_MAX, "api-reader")

    async def list(
        self,
        request: Request,
        items: Callable[[StateSnapshot], Items],
        cursor: str | None,
        limit: int,
        stream: str | None = None,
    ) -> Response:
        """Answer with a page of items by key; `stream`: whose shards the snapshot has."""
        service = self._service
        self._admit(request)

        def read() -> Response:
            marker, snapshot = service.model.take_snapshot(stream=stream)
            found, following = page(items(snapshot), cursor, limit)
            return service.answer(marker, {"items": found, "next": following})

        return await self._run(read)

    async def stream(self, request: Request, name: str) -> Response:
        """Answer with all that is known of a stream."""
        service = self._service
        self._admit(request, DESCRIPTION_COST)

        def read() -> Response:
            marker, snapshot = service.model.take_snapshot(stream=name)
            decision = snapshot.latest[DECISIONS].get(name)
            if decision is None:
                raise _unknown(ErrorCode.STREAM_UNKNOWN, "stream", name)
            description = describe_stream(snapshot, name)
            return service.answer(marker, {"decision": decision, "description": description})

        return await self._run(read)

    async def node(self, request: Request, name: str) -> Response:
        """Answer with all that is known of a node."""
        service = self._service
        self._admit(request, DESCRIPTION_COST)

        def read() -> Response:
            marker, snapshot = service.model.take_snapshot(node=name)
            view = snapshot.latest[TOPOLOGY].get(name)
            if view is None:
                raise _unknown(ErrorCode.NODE_UNKNOWN, "node", name)
            return service.answer(
                marker, {"node": view, "description": describe_node(snapshot, name)}
            )

        return await self._run(read)

    async def status(self, request: Request) -> Response:
        """Answer with the status, however stale it is: it says so."""
        service = self._service
        service.limits.details.take(principal_of(request).rate_key)

        def read() -> Response:
            marker, snapshot = service.model.take_snapshot()
            found = summarize_cell(
                snapshot, self._now_ms(), snapshot.alerts, tuple(service.processes())
            )
            body = {"status": found.body(), "shards": service.model.count_shards()}
            return service.answer(marker, body | {"fault": service.model.fault})

        return await self._run(read)

    async def _run(self, read: Callable[[], Response]) -> Response:
        return await asyncio.get_running_loop().run_in_executor(self._threads, read)

    def _admit(self, request: Request, cost: int = 1) -> None:
        self._service.limits.details.take(principal_of(request).rate_key, cost)
        self._service.check_fresh()


def make_fleet_routes(service: Service, now_ms: Callable[[], int]) -> APIRouter:
    """The routes on a service."""
    router = APIRouter()
    reader = FleetReader(service, now_ms)
    _add_streams(router, reader)
    _add_nodes(router, reader)
    _add_violations(router, reader)
    _add_moves(router, reader)
    _add_status(router, reader)
    return router


def _add_streams(router: APIRouter, reader: FleetReader) -> None:
    @router.get("/streams", response_model=DecisionPage, tags=["streams"])
    async def streams(
        request: Request,
        outcome: Filter = None,
        cursor: Cursor = None,
        limit: Limit = ITEMS_PER_PAGE,
    ) -> Response:
        """List the last decision on every stream."""
        return await reader.list(
            request, lambda live: _matching(live.latest[DECISIONS], outcome=outcome), cursor, limit
        )

    @router.get("/streams/{stream}", response_model=StreamAnswer, tags=["streams"])
    async def stream(request: Request, stream: Name) -> Response:
        """Describe a stream, as `placer describe stream` does."""
        return await reader.stream(request, stream)

    @router.get("/streams/{stream}/shards", response_model=AssignmentPage, tags=["streams"])
    async def shards(
        request: Request, stream: Name, cursor: Cursor = None, limit: Limit = ITEMS_PER_PAGE
    ) -> Response:
        """List the assignments of a stream's shards."""

        def items(live: StateSnapshot) -> Items:
            if stream not in live.latest[DECISIONS]:
                raise _unknown(ErrorCode.STREAM_UNKNOWN, "stream", stream)
            return live.latest[ASSIGNMENTS].items()

        return await reader.list(request, items, cursor, limit, stream)


def _add_nodes(router: APIRouter, reader: FleetReader) -> None:
    @router.get("/nodes", response_model=NodePage, tags=["nodes"])
    async def nodes(
        request: Request,
        status: Filter = None,
        location: Annotated[
            str | None, Query(max_length=2_048, description="A domain: all nodes in it.")
        ] = None,
        cursor: Cursor = None,
        limit: Limit = ITEMS_PER_PAGE,
    ) -> Response:
        """List the nodes with what stands on them."""

        def items(live: StateSnapshot) -> Items:
            held, led = live.count_replicas()
            for name, view in _matching(live.latest[TOPOLOGY], status=status):
                if location is None or f"{view.get('location', '')}/".startswith(f"{location}/"):
                    yield name, {"node": view, "replicas": held[name], "leaders": led[name]}

        return await reader.list(request, items, cursor, limit)

    @router.get("/nodes/{node}", response_model=NodeAnswer, tags=["nodes"])
    async def node(request: Request, node: Name) -> Response:
        """Describe a node, as `placer describe node` does."""
        return await reader.node(request, node)

    @router.get("/locations", response_model=LocationPage, tags=["nodes"])
    async def locations(
        request: Request, cursor: Cursor = None, limit: Limit = ITEMS_PER_PAGE
    ) -> Response:
        """List the domains of every level with what stands in them."""

        def items(live: StateSnapshot) -> Items:
            return ((row["location"], row) for row in LISTINGS["locations"].rows(live))

        return await reader.list(request, items, cursor, limit)


def _add_violations(router: APIRouter, reader: FleetReader) -> None:
    @router.get("/violations", response_model=ViolationPage, tags=["conditions"])
    async def violations(
        request: Request,
        stream: Filter = None,
        violation_class: Annotated[str | None, Query(alias="class")] = None,
        cursor: Cursor = None,
        limit: Limit = ITEMS_PER_PAGE,
    ) -> Response:
        """List the open violations by shard."""

        def items(live: StateSnapshot) -> Items:
            for key, body in _matching(live.latest[VIOLATIONS], stream=stream):
                for number, each in enumerate(body["violations"]):
                    if violation_class in (None, each["class"]):
                        yield f"{key} {number}", each

        return await reader.list(request, items, cursor, limit)


def _add_moves(router: APIRouter, reader: FleetReader) -> None:
    @router.get("/moves", response_model=MovePage, tags=["conditions"])
    async def moves(
        request: Request,
        stream: Filter = None,
        state: Annotated[
            str, Query(description="A state, `open` for the two open ones, or `all`.")
        ] = "open",
        cursor: Cursor = None,
        limit: Limit = ITEMS_PER_PAGE,
    ) -> Response:
        """List moves by id; of those that ended, the last ones."""
        states = _OPEN_STATES if state == "open" else (state,)

        def items(live: StateSnapshot) -> Items:
            for key, body in _matching(live.latest[MOVES], stream=stream):
                if state == "all" or body["state"] in states:
                    yield key, body

        return await reader.list(request, items, cursor, limit)


def _add_status(router: APIRouter, reader: FleetReader) -> None:
    @router.get("/alerts", response_model=AlertPage, tags=["conditions"])
    async def alerts(
        request: Request,
        kind: Filter = None,
        severity: Filter = None,
        cursor: Cursor = None,
        limit: Limit = ITEMS_PER_PAGE,
    ) -> Response:
        """List the latest alerts, the oldest first."""

        def items(live: StateSnapshot) -> Items:
            numbered = {f"{n:09}": body for n, body in enumerate(live.alerts)}
            return _matching(numbered, kind=kind, severity=severity)

        return await reader.list(request, items, cursor, limit)

    @router.get("/status", response_model=StatusAnswer, tags=["conditions"])
    async def status(request: Request) -> Response:
        """Show the cell: commit, staleness, processes with their roles, counts."""
        return await reader.status(request)


def _matching(bodies: Mapping[str, Mapping[str, Any]], **wanted: str | None) -> Items:
    """The bodies whose fields have the values that are wanted; None: any."""
    asked = {name: value for name, value in wanted.items() if value is not None}
    for key, body in bodies.items():
        if all(str(body.get(name)) == value for name, value in asked.items()):
            yield key, body


def _unknown(code: ErrorCode, kind: str, name: str) -> ApiError:
    return ApiError(404, code, f"there is no {kind} {echo(name)}; see /api/v1/{kind}s")
