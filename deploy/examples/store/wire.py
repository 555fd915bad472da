"""How the store's processes speak: one JSON object there, one back, on a connection that stays.

A message is its length, its CRC32 and JSON. An answer with `error` is raised as `Refused` where the
question was asked.
"""

import json
import logging
import socket
import socketserver
import struct
import threading
import zlib
from collections.abc import Callable
from contextlib import closing
from typing import Any

LOG = logging.getLogger("store")
Body = dict[str, Any]
HEADER = struct.Struct(">II")
# A block of records is a quarter of this at most; a longer message is no message of ours.
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
# Longer than a write to a disk takes; a process that does not answer by then is gone or hangs.
TIMEOUT_SECONDS = 3.0


class Refused(Exception):
    """The other side does not do it. `code`: `not_leading`, `unconfirmed`, `behind`, `fenced`,
    `differs`, `no_replica`; `number`: where the question may go on, for `differs`."""

    def __init__(self, code: str, text: str, number: int = 0) -> None:
        super().__init__(f"{code}: {text}")
        self.code, self.text, self.number = code, text, number


class Connection:
    """A connection to one address; made when it is first used, and again after a failure. Not safe
    for threads. `call` raises Refused, or OSError where nothing answers."""

    def __init__(self, address: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._address, self._timeout = address, timeout_seconds
        self._socket: socket.socket | None = None

    def call(self, question: str, **fields: Any) -> Body:
        """Ask, and return the answer."""
        try:
            if self._socket is None:
                host, _, port = self._address.rpartition(":")
                self._socket = socket.create_connection((host, int(port)), self._timeout)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _send(self._socket, {"question": question, **fields})
            answer = _receive(self._socket)
        except OSError:
            self.close()
            raise
        if "error" in answer:
            raise Refused(answer["error"], answer["text"], answer["number"])
        return answer

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def call_once(address: str, question: str, **fields: Any) -> Body:
    """Ask on a connection of its own."""
    with closing(Connection(address)) as connection:
        return connection.call(question, **fields)


def serve(listen: str, answer: Callable[[Body], Body]) -> tuple[socketserver.BaseServer, str]:
    """Answer questions on threads of their own; returns the server and its `host:port`."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            try:
                while True:
                    question = _receive(self.request)
                    try:
                        told = answer(question)
                    except Refused as refused:
                        about = {"text": refused.text, "number": refused.number}
                        told = {"error": refused.code, **about}
                    _send(self.request, told)
            except OSError as error:
                LOG.debug("a connection has ended: %s", error)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True

    host, _, port = listen.rpartition(":")
    server = Server((host, int(port)), Handler)
    threading.Thread(target=server.serve_forever, name="server", daemon=True).start()
    return server, f"{host}:{server.server_address[1]}"


def _send(connection: socket.socket, body: Body) -> None:
    payload = json.dumps(body).encode()
    connection.sendall(HEADER.pack(len(payload), zlib.crc32(payload)) + payload)


def _receive(connection: socket.socket) -> Body:
    length, checksum = HEADER.unpack(_read(connection, HEADER.size))
    if length > MESSAGE_BYTES_MAX:
        raise ConnectionError(f"a message of {length} bytes; at most {MESSAGE_BYTES_MAX} are read")
    payload = _read(connection, length)
    if zlib.crc32(payload) != checksum:
        raise ConnectionError("a message was damaged on its way")
    body: Body = json.loads(payload)
    return body


def _read(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise ConnectionError("the other side has hung up")
        parts += part
    return bytes(parts)
