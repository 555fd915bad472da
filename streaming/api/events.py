"""Server-sent events: what each commit has changed, to every client that listens.

The model speaks in its own thread; from there changes go to the event loop, and to a bounded queue
for each client. A client that does not keep up is dropped and told why: it reads anew.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from streaming.read_model import Change, ReadModel

# At two changes a second a minute and more, in which a client on a bad line comes back.
QUEUE_MAX = 256
# Proxies close what is silent for a minute; half of the usual 30 s.
KEEP_ALIVE_SECONDS = 15.0
# A client that takes nothing for so long is gone.
SEND_TIMEOUT_SECONDS = 30.0
# After which a client that lost its connection comes back.
RETRY_MS = 3_000

TOO_SLOW = (
    f"this client is {QUEUE_MAX} changes behind and was dropped: read the state again, then listen"
)
UNKNOWN_EVENT = (
    "what changed since the given Last-Event-ID is not known any more: read the state again"
)
STOPPING = "the service stops"


@dataclass(frozen=True, slots=True)
class Event:
    """A change as it is written to every client. `sequence`: the commit's."""

    sequence: int
    written: bytes

    @classmethod
    def of(cls, change: Change) -> "Event":
        """Write a change."""
        sequence = change.marker.sequence
        return cls(sequence, _write("change", change.body(), sequence))


class Subscription:
    """The changes that one client has not been sent yet."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue(QUEUE_MAX)
        self.ended: str | None = None

    def put(self, change: Event) -> None:
        """Queue a change; a full queue ends the subscription."""
        if self.ended is not None:
            return
        if self._queue.full():
            self.end(TOO_SLOW)
        else:
            self._queue.put_nowait(change)

    def end(self, reason: str) -> None:
        """End it: nothing that is queued is sent any more, only the reason is."""
        if self.ended is not None:
            return
        self.ended = reason
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(None)

    async def next(self) -> Event | None:
        """Wait for the next change; None where the subscription has ended. Raises TimeoutError
        after `KEEP_ALIVE_SECONDS`."""
        # Not `wait_for`, which makes a task: a commit wakes thousands.
        async with asyncio.timeout(KEEP_ALIVE_SECONDS):
            return await self._queue.get()


class EventHub:
    """Hands the changes of a model on to those who wait for them in the event loop."""

    def __init__(self, model: ReadModel) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._subscriptions: set[Subscription] = set()
        self._changed: asyncio.Event | None = None
        model.listen(self._hear)

    def open(self) -> None:
        """Begin, in the event loop that is running."""
        self._loop, self._changed = asyncio.get_running_loop(), asyncio.Event()

    def close(self) -> None:
        """End all subscriptions; called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end_all)

    def subscribe(self) -> Subscription:
        """Begin to collect changes for a client."""
        made = Subscription()
        self._subscriptions.add(made)
        return made

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a client."""
        self._subscriptions.discard(subscription)

    @property
    def changed(self) -> asyncio.Event:
        """An event that the next commit sets. It is to be taken before the state is looked at."""
        assert self._changed is not None, "the hub is open"
        return self._changed

    def _hear(self, change: Change) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._publish, change)

    def _publish(self, change: Change) -> None:
        waited, self._changed = self.changed, asyncio.Event()
        waited.set()
        if change.counts:
            event = Event.of(change)
            for subscription in [*self._subscriptions]:
                subscription.put(event)

    def _end_all(self) -> None:
        for subscription in [*self._subscriptions]:
            subscription.end(STOPPING)


async def write_events(
    subscription: Subscription, backlog: Sequence[Change] | None, known: int | None
) -> AsyncIterator[bytes]:
    """Yield the stream of one client.

    - `backlog`: changes since the event that the client saw last; None where they are not known.
    - `known`: the last commit of the backlog: it and earlier ones may be queued as well.
    """
    yield f"retry: {RETRY_MS}\n\n".encode()
    if backlog is None:
        yield _write("reset", {"message": UNKNOWN_EVENT}, known)
    for change in backlog or ():
        yield Event.of(change).written
    while True:
        try:
            event = await subscription.next()
        except TimeoutError:
            yield b": keep-alive\n\n"
            continue
        if event is None:
            yield _write("end", {"message": subscription.ended})
            return
        if known is None or event.sequence > known:
            yield event.written


def _write(name: str, data: Any, identity: int | None = None) -> bytes:
    # JSON of orjson is one line, so that no value can begin another field.
    head = f"event: {name}\n" + ("" if identity is None else f"id: {identity}\n")
    return head.encode() + b"data: " + orjson.dumps(data) + b"\n\n"


class EventStream(StreamingResponse):
    """A stream that gives up a client which takes nothing, and says when it is over."""

    media_type = "text/event-stream"

    def __init__(
        self, content: AsyncIterator[bytes], on_end: Callable[[], None], status_code: int = 200
    ) -> None:
        # Proxies such as nginx would collect it otherwise.
        super().__init__(content, status_code, {"X-Accel-Buffering": "no"})
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until either side ends it."""

        async def send_in_time(message: Any) -> None:
            async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
                await send(message)

        try:
            await super().__call__(scope, receive, send_in_time)
        except TimeoutError:
            # The server closes the connection of an answer that was not finished.
            return
        finally:
            self._on_end()
