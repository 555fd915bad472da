"""The tests' own network does what it says: late, broken off, half-open, whole again."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.systems.proxy import HOST, Proxy
from tests.systems.waiting import until


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """In front of a server that sends back what it gets."""
    server = socket.create_server((HOST, 0))
    server.settimeout(10)

    def echo(connection: socket.socket) -> None:
        with connection:
            try:
                while got := connection.recv(1024):
                    connection.sendall(got)
            except ConnectionError:
                pass

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with Proxy(HOST, server.getsockname()[1]) as made:
        yield made
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), 10)


def said(connection: socket.socket, word: bytes) -> bytes:
    connection.sendall(word)
    return connection.recv(1024)


def test_it_does_what_it_says(proxy: Proxy) -> None:
    with connected(proxy) as first:
        assert said(first, b"a") == b"a"
        proxy.delay(0.1)
        before = time.monotonic()
        assert said(first, b"b") == b"b"
        assert time.monotonic() - before >= 0.2
        proxy.mend()
        first.settimeout(0.1)
        for answers_only in (True, False):
            proxy.forget(answers_only=answers_only)
            with pytest.raises(TimeoutError):
                said(first, b"c")
        with connected(proxy) as second:
            assert said(second, b"d") == b"d"
            assert proxy.passed_bytes == 2 * 3 + 1
            proxy.cut()
            with pytest.raises(ConnectionError):
                said(second, b"e")
    with pytest.raises(ConnectionError), connected(proxy) as third:
        said(third, b"f")
    proxy.mend()
    proxy.reset_some(1.0)
    with pytest.raises(ConnectionError), connected(proxy) as fourth:
        said(fourth, b"g")
    assert proxy.resets == 1
    until(lambda: proxy.connections == 0, "all are gone", 5)
