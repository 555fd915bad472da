"""Serves `/metrics`, `/livez` and `/readyz` over HTTP beside the application.

Names of the probes are those of the Kubernetes components; `/healthz` is their older name of
`/livez`. It serves from a thread of its own and never waits for a batch.
"""

import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from streaming.errors import StreamingError
from streaming.observability.probes import Verdict

Probe = Callable[[], Verdict]
Start = Callable[[str, list[tuple[str, str]]], Any]


class EndpointRefused(StreamingError):
    """The address cannot be listened on."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """A scrape every few seconds is no news."""


class Endpoint:
    """Serves while it is open. Raises EndpointRefused when the port is taken."""

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, live: Probe, ready: Probe
    ) -> None:
        self._metrics = make_wsgi_app(registry)
        self._probes = {"/livez": live, "/healthz": live, "/readyz": ready}
        try:
            self._server = make_server(host, port, self._answer, _Server, _Quiet)
        except OSError as error:
            raise EndpointRefused(
                f"metrics cannot be served on {host}:{port}: {error.strerror}; set "
                "metrics.port to a free port"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="endpoint", daemon=True
        )

    @property
    def address(self) -> str:
        """host:port it listens on; the port that was found where 0 was asked for."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            answer: Iterable[bytes] = self._metrics(environ, start)
            return answer
        probe = self._probes.get(path)
        verdict: Verdict = (False, "the paths are /metrics, /livez and /readyz")
        status = "404 Not Found"
        if probe is not None:
            verdict = probe()
            status = "200 OK" if verdict[0] else "503 Service Unavailable"
        start(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [verdict[1].encode() + b"\n"]
