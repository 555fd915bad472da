"""A reverse proxy that ends TLS by a certificate of its own and names the principal in a header.

It passes websockets on as any other connection. Each connection asks for one thing, which keeps the
proxy short: what it adds to the head of a request is all that it has to understand of HTTP.
"""

import asyncio
import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import trustme

HOST = "127.0.0.1"
HEAD_BYTES_MAX = 64 * 1024
CHUNK_BYTES = 64 * 1024


class TlsProxy:
    """Answers over TLS as `localhost`; requests go to an upstream without."""

    def __init__(self, upstream: str, directory: Path, headers: Mapping[str, str]) -> None:
        """`headers`: those that it sets on each request, whatever the client sent for them."""
        self._upstream = urlsplit(upstream)
        self._headers = dict(headers)
        issued = trustme.CA().issue_cert("localhost")
        chain = directory / "proxy.pem"
        issued.private_key_and_cert_chain_pem.write_to_path(chain)
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(chain)
        self._tasks: set[asyncio.Task[None]] = set()
        self.upgrades = 0

    @contextmanager
    def running(self) -> Iterator[str]:
        """Its address, while the block runs."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()

        async def start() -> asyncio.Server:
            return await asyncio.start_server(self._take, HOST, 0, ssl=self._tls)

        async def stop(server: asyncio.Server) -> None:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        server = asyncio.run_coroutine_threadsafe(start(), loop).result()
        try:
            yield f"https://localhost:{server.sockets[0].getsockname()[1]}"
        finally:
            asyncio.run_coroutine_threadsafe(stop(server), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._pass(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            return  # the browser has closed a connection that it does not need
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        host, port = self._upstream.hostname, self._upstream.port
        inner_reader, inner_writer = await asyncio.open_connection(host, port)
        try:
            inner_writer.write(self._rewrite(head))
            await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
        finally:
            inner_writer.close()

    def _rewrite(self, head: bytes) -> bytes:
        lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        upgrades = any(re.match(r"upgrade:\s*websocket", line, re.IGNORECASE) for line in lines)
        self.upgrades += upgrades
        ours = {"host", *(name.lower() for name in self._headers)}
        ours |= set() if upgrades else {"connection"}
        kept = [line for line in lines[1:] if line.partition(":")[0].lower() not in ours]
        added = [f"{name}: {value}" for name, value in self._headers.items()]
        closing = [] if upgrades else ["Connection: close"]
        whole = [lines[0], f"Host: {self._upstream.netloc}", *kept, *added, *closing]
        return ("\r\n".join(whole) + "\r\n\r\n").encode("latin-1")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    writer.close()
