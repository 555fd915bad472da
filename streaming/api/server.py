"""Runs the application over HTTP in a thread of its own, and lists the cell's processes for it."""

import resource
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from streaming.api.events import EventHub
from streaming.errors import StreamingError
from streaming.presence import ProcessSeen, read_processes
from streaming.read_model import ReadModel
from streaming.settings import Settings

# What is still open then is cut off: streams of events were told before.
GRACE_SECONDS = 5
# Sockets and requests under way at once; beyond it a client hears 503 rather than nothing. Beside
# the streams of events that may be open there is room for all else.
CONNECTIONS_MAX = 14_000
# Files that are open beside connections: brokers, the broker clients' own, libraries.
FILES_BESIDE = 500
# Clients that wait for the loop to accept them, as uvicorn has it.
BACKLOG = 2_048
# Ticks come every second: a list is as old as one of them.
PROCESSES_SECONDS = 1.0


class AddressRefused(StreamingError):
    """The address cannot be listened on, or not over TLS with the given certificate."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where it listens; with a certificate and its key over TLS."""

    host: str = "127.0.0.1"
    port: int = 8750
    certificate: Path | None = None
    key: Path | None = None


class ApiServer:
    """Serves an application while it runs. Raises AddressRefused when it is made."""

    def __init__(self, app: FastAPI, hub: EventHub, options: ServerOptions) -> None:
        self._hub, self._options = hub, options
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        # Named as TCP: only then asyncio sends small answers at once (TCP_NODELAY), which would
        # otherwise wait 40 ms for the client's delayed acknowledgement.
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((options.host, options.port))
            # From here on clients are not refused; they wait until the thread is there.
            self._socket.listen(BACKLOG)
        except OSError as error:
            self._socket.close()
            raise AddressRefused(
                f"{options.host}:{options.port} cannot be listened on: {error.strerror}; name a "
                "free port: --port"
            ) from error
        config = uvicorn.Config(
            app,
            log_config=None,
            # A line for each request that is no HTTP would let strangers fill the log.
            log_level="error",
            access_log=False,
            # The guard reads the header of a trusted proxy itself; nobody else may name a peer.
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_raise_file_limit(),
            timeout_graceful_shutdown=GRACE_SECONDS,
            ssl_certfile=options.certificate,
            ssl_keyfile=options.key,
        )
        try:
            config.load()
        except OSError as error:
            self._socket.close()
            raise AddressRefused(
                f"{options.certificate} and {options.key} cannot be used for TLS: {error}; "
                "expected a certificate and its private key in PEM"
            ) from error
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="api", daemon=True)

    @property
    def address(self) -> str:
        """The URL it answers at, with the port that was found where 0 was asked for."""
        host, port = self._socket.getsockname()[:2]
        scheme = "http" if self._options.certificate is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve while the block runs; afterwards what is under way is finished."""
        self._thread.start()
        try:
            yield
        finally:
            self._hub.close()
            self._server.should_exit = True
            self._thread.join()
            self._socket.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])


def _raise_file_limit() -> int:
    """Let the process open as many files as its connections may need and the system allows; return
    for how many connections that is enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + FILES_BESIDE
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(wanted - FILES_BESIDE, 1)


class ProcessList:
    """The processes of a model's cell, read again when the list is old."""

    def __init__(self, settings: Settings, model: ReadModel) -> None:
        self._at = (settings.kafka.bootstrap_servers, settings.topics.prefix)
        self._options = settings.resolved_kafka_options()
        self._model = model
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._seen: Sequence[ProcessSeen] = ()

    def __call__(self) -> Sequence[ProcessSeen]:
        """List them, the active one first; none while no broker answers, or where this user may
        not read the ticks: the role `readers` reads what is decided alone."""
        with self._lock:
            now = time.monotonic()
            if self._model.fault is not None:
                return ()
            if self._read_at is None or now - self._read_at > PROCESSES_SECONDS:
                epoch, at_ms = self._model.marker.writer_epoch, time.time_ns() // 1_000_000
                self._read_at = now
                try:
                    self._seen = read_processes(*self._at, self._options, epoch, at_ms)
                except StreamingError:
                    self._seen = ()
            return self._seen
