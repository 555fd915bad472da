"""A network that misbehaves: a TCP proxy between clients and one broker.

It passes bytes on at once, late, not at all, or in one direction only, and breaks connections off.
Clients come to it because the broker tells them this address (`advertised.listeners`). Runs on an
event loop in a thread of its own.
"""

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

HOST = "127.0.0.1"
CHUNK_BYTES = 64 * 1024
# Closing with it sends a reset instead of a farewell.
RESET = struct.pack("ii", 1, 0)
END_TIMEOUT_SECONDS = 10.0


@dataclass(slots=True, eq=False)
class Link:
    """One client's connection: its writers, and those that nothing comes through to any more."""

    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    dead: list[asyncio.StreamWriter] = field(default_factory=list)

    def reset(self) -> None:
        """Break it off, to both sides."""
        for writer in self.writers:
            with suppress(OSError):  # it may have gone already
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()


class Proxy:
    """Listens on `port` and passes everything on to the upstream; the rest is what can go wrong."""

    def __init__(self, upstream_host: str, upstream_port: int) -> None:
        self._upstream = upstream_host, upstream_port
        self._delay_seconds = 0.0
        self._reset_share, self._choice = 0.0, random.Random(0)
        self._is_cut = False
        self._links: set[Link] = set()
        self._passed_bytes = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.resets = 0
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, HOST, self.port))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(END_TIMEOUT_SECONDS)
        self._loop.close()

    @property
    def passed_bytes(self) -> int:
        """How much has come through in both directions."""
        return self._passed_bytes

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._links)

    def cut(self) -> None:
        """Reset every connection, and each that comes, until `mend`."""

        def now() -> None:
            self._is_cut = True
            for link in [*self._links]:
                link.reset()

        self._call(now)

    def mend(self) -> None:
        """Let all new connections through, at once and whole."""

        def now() -> None:
            self._is_cut, self._delay_seconds, self._reset_share = False, 0.0, 0.0

        self._call(now)

    def forget(self, *, answers_only: bool = False) -> None:
        """Leave the connections that are open half-open: nothing comes through them any more, or
        what clients send and no answer, and nobody is told. New ones serve."""

        def now() -> None:
            for link in self._links:
                link.dead = link.writers[:1] if answers_only else link.writers[:]

        self._call(now)

    def delay(self, seconds: float) -> None:
        """Every chunk arrives so much later, in both directions."""
        self._call(lambda: setattr(self, "_delay_seconds", seconds))

    def reset_some(self, share: float) -> None:
        """This share of all chunks resets its connection instead of arriving."""
        self._call(lambda: setattr(self, "_reset_share", share))

    def _call(self, what: Callable[[], None]) -> None:
        async def on_loop() -> None:
            what()

        self._run(on_loop())

    def _run(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(END_TIMEOUT_SECONDS)

    async def _close(self) -> None:
        self._server.close()
        for link in [*self._links]:
            link.reset()
        await self._server.wait_closed()
        pending = asyncio.all_tasks() - {asyncio.current_task()}
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link([writer])
        self._links.add(link)
        try:
            if self._is_cut:
                return
            far_reader, far_writer = await asyncio.open_connection(*self._upstream)
            link.writers.append(far_writer)
            await asyncio.gather(
                self._pass(link, reader, far_writer), self._pass(link, far_reader, writer)
            )
        except OSError:
            pass  # a side has gone; the other is told below
        finally:
            self._links.discard(link)
            link.reset()

    async def _pass(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One direction; late chunks do not hold back those behind them."""
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while chunk := await self._due(late):
                if writer not in link.dead:
                    self._passed_bytes += len(chunk)
                    writer.write(chunk)
                    await writer.drain()
            if writer not in link.dead:
                writer.write_eof()

        delivering = asyncio.create_task(deliver())
        try:
            while chunk := await reader.read(CHUNK_BYTES):
                if self._choice.random() < self._reset_share:
                    self.resets += 1
                    link.reset()
                    return
                late.put_nowait((self._loop.time() + self._delay_seconds, chunk))
            late.put_nowait((self._loop.time(), b""))
            await delivering
        finally:
            delivering.cancel()

    async def _due(self, late: asyncio.Queue[tuple[float, bytes]]) -> bytes:
        when, chunk = await late.get()
        await asyncio.sleep(when - self._loop.time())
        return chunk
