"""Goal: every change reaches every client that listens, in order; a slow one is dropped and told.

Method: streams are driven as ASGI by hand, since clients of tests collect a whole answer. No Kafka.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from placement.model import StreamDropped
from streaming.api import events
from streaming.api.events import (
    QUEUE_MAX,
    STOPPING,
    TOO_SLOW,
    Event,
    EventHub,
    Subscription,
    write_events,
)
from streaming.api.rate_limits import OpenLimit
from streaming.api.service import Limits
from streaming.read_model import Change, Marker
from tests.builders.api_service import ServedModel
from tests.builders.published_state import nodes_up

# The event loop is idle: what takes longer has failed.
TIMEOUT_SECONDS = 20.0


def change(sequence: int) -> Change:
    return Change.of(Marker("main", sequence, 1, 0), {"nodes": ["n1"]})


class Stream:
    """An open request for events; `events` are those that were sent, as (name, id, data)."""

    def __init__(self, application: Any, headers: dict[str, str] | None = None) -> None:
        self._application = application
        self._headers = [(b"host", b"localhost")]
        self._headers += [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()]
        self.status = 0
        self.body = b""
        self.blocked: asyncio.Event | None = None
        self._more = asyncio.Event()
        self._gone = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def start(self) -> "Stream":
        scope = {
            "type": "http", "method": "GET", "path": "/api/v1/events", "query_string": b"",
            "raw_path": b"/api/v1/events", "headers": self._headers, "client": ("127.0.0.1", 1),
            "scheme": "http", "server": ("127.0.0.1", 8750), "http_version": "1.1",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
        }  # fmt: skip
        self.task = asyncio.create_task(self._application(scope, self._receive, self._send))
        return self

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if self._gone.is_set():
            raise OSError("the client has gone")
        if self.blocked is not None:
            await self.blocked.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self.body += message.get("body", b"")
        self._more.set()

    def leave(self) -> None:
        self._gone.set()

    @property
    def events(self) -> list[tuple[str, str | None, Any]]:
        found = []
        for block in self.body.decode().split("\n\n"):
            fields = dict(line.partition(": ")[::2] for line in block.splitlines())
            if "event" in fields:
                found.append((fields["event"], fields.get("id"), orjson.loads(fields["data"])))
        return found

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not condition():
                self._more.clear()
                await self._more.wait()


def play(
    story: Callable[[ServedModel, Any], Awaitable[None]], limits: Limits | None = None
) -> None:
    """Tell a story with an application whose lifespan has begun."""

    async def run() -> None:
        served = ServedModel(limits=limits).fill()
        application = served.application()
        served.hub.open()
        await story(served, application)

    asyncio.run(run())


def test_changes_come_as_they_are_committed() -> None:
    async def story(served: ServedModel, application: Any) -> None:
        stream = Stream(application).start()
        await stream.until(lambda: stream.body)
        assert (stream.status, stream.body) == (200, b"retry: 3000\n\n")
        # As the follower does: in another thread.
        writer = threading.Thread(target=served.commit, args=(StreamDropped(3, "orders", 2),))
        writer.start()
        await stream.until(lambda: stream.events)
        writer.join()
        ((name, identity, data),) = stream.events
        assert (name, identity) == ("change", "3")
        assert data["marker"]["sequence"] == 3
        assert data["changed"]["shards"] == {
            "count": 3, "keys": ["orders/0", "orders/1", "orders/2"],
        }  # fmt: skip
        served.hub.close()
        await asyncio.wait_for(stream.task, TIMEOUT_SECONDS)
        assert stream.events[-1] == ("end", None, {"message": STOPPING})

    play(story)


def test_who_comes_back_gets_what_was_missed_once() -> None:
    async def story(served: ServedModel, application: Any) -> None:
        served.commit(*nodes_up(5)[4:])
        served.commit()
        served.commit(StreamDropped(3, "logs", 2))
        stream = Stream(application, {"Last-Event-ID": "2"}).start()
        await stream.until(lambda: len(stream.events) == 2)
        served.commit(StreamDropped(3, "orders", 2))
        await stream.until(lambda: len(stream.events) == 3)
        assert [identity for _, identity, _ in stream.events] == ["3", "5", "6"]
        stream.leave()

    play(story)


@pytest.mark.parametrize("seen", ["99", "0"])
def test_who_comes_back_too_late_reads_anew(seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.read_model.changes.CHANGES_KEPT", 1)

    async def story(served: ServedModel, application: Any) -> None:
        stream = Stream(application, {"Last-Event-ID": seen}).start()
        await stream.until(lambda: stream.events)
        ((name, identity, data),) = stream.events
        assert (name, identity) == ("reset", "2")
        assert "read the state again" in data["message"]
        stream.leave()

    play(story)


@pytest.mark.parametrize("seen", ["x", "-1", "1" * 30, "\u0661"])
def test_an_event_id_that_is_none_is_refused(seen: str) -> None:
    with ServedModel().fill().client() as client:
        answer = client.get("/api/v1/events", headers={"Last-Event-ID": seen.encode()})
        assert (answer.status_code, answer.json()["code"]) == (400, "VALUE_INVALID")
        assert answer.text.isascii()


def test_too_many_streams_are_refused_and_places_become_free() -> None:
    async def story(served: ServedModel, application: Any) -> None:
        first = Stream(application).start()
        await first.until(lambda: first.body)
        second = Stream(application).start()
        await second.until(lambda: second.body)
        assert second.status == 429
        assert orjson.loads(second.body)["code"] == "RATE_EXCEEDED"
        first.leave()
        await asyncio.wait_for(asyncio.gather(first.task, return_exceptions=True), TIMEOUT_SECONDS)
        third = Stream(application).start()
        await third.until(lambda: third.body)
        assert third.status == 200
        third.leave()
        assert len(served.hub._subscriptions) == 1

    play(story, Limits(streams=OpenLimit("streams of events", total=5, each=1)))


def test_a_client_that_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SEND_TIMEOUT_SECONDS", 0.05)

    async def story(served: ServedModel, application: Any) -> None:
        stream = Stream(application)
        stream.blocked = asyncio.Event()
        stream.start()
        done = asyncio.gather(stream.task, return_exceptions=True)
        await asyncio.wait_for(done, TIMEOUT_SECONDS)
        assert served.hub._subscriptions == set()

    play(story)


def test_a_client_that_falls_behind_is_told() -> None:
    async def run() -> list[bytes]:
        subscription = Subscription()
        for sequence in range(QUEUE_MAX + 2):
            subscription.put(Event.of(change(sequence)))
        assert subscription.ended == TOO_SLOW
        return [each async for each in write_events(subscription, [], None)]

    first, last = asyncio.run(run())
    assert first.startswith(b"retry:")
    assert TOO_SLOW.encode() in last


def test_a_silent_stream_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEEP_ALIVE_SECONDS", 0.01)

    async def run() -> list[bytes]:
        stream = write_events(Subscription(), [], None)
        return [await anext(stream) for _ in "123"]

    assert asyncio.run(run())[1:] == [b": keep-alive\n\n"] * 2


def test_what_is_queued_and_in_the_backlog_is_sent_once() -> None:
    async def run() -> list[bytes]:
        subscription = Subscription()
        for sequence in (4, 5, 6):
            subscription.put(Event.of(change(sequence)))
        stream = write_events(subscription, [change(4), change(5)], 5)
        return [await anext(stream) for _ in range(4)]

    sent = asyncio.run(run())[1:]
    assert [each.split(b"\n")[1] for each in sent] == [b"id: 4", b"id: 5", b"id: 6"]


def test_a_wait_ends_with_the_commit_that_has_the_epoch() -> None:
    async def story(served: ServedModel, application: Any) -> None:
        hub: EventHub = served.hub
        changed = hub.changed
        served.commit()
        await asyncio.wait_for(changed.wait(), TIMEOUT_SECONDS)
        assert hub.changed is not changed
        assert application is not None

    play(story)


def test_a_hub_that_was_never_opened_hears_nothing() -> None:
    served = ServedModel().fill()
    served.hub.close()
    assert served.hub._subscriptions == set()
