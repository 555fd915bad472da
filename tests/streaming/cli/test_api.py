"""Goal: `placer api` refuses what would expose or mislead, and ends cleanly.

Method: the command in this process, refused before it asks a broker; the server on a free port.
"""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
import trustme
from typer.testing import Result

from streaming.api import ApiServer, ProcessList, ServerOptions, server
from streaming.api.server import AddressRefused
from streaming.errors import BrokerUnreachable
from streaming.settings import load_settings
from tests.builders.api_service import TOKEN, ServedModel
from tests.systems.waiting import until

Placer = Callable[..., Result]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "the connection is not encrypted"),
        (["--host", "10.0.0.7"], "--allow-remote"),
        (["--host", "::"], "--allow-remote"),
        (["--operate"], "--operate needs principals who may: add --tokens FILE"),
        (["--no-anonymous"], "leaves nobody to answer"),
        (["--certificate", "cert.pem"], "belong together"),
        (["--certificate", "nope.pem", "--key", "nope.key"], "nope.pem is no file"),
        (["--trusted-proxy", "proxy.example"], "'proxy.example' is no address or network"),
        (["--tokens", "nope.yaml"], "--tokens: nope.yaml cannot be read: No such file"),
        (["--port", "70000"], "--port"),
    ],
)
def test_what_would_expose_or_mislead_is_refused(
    placer: Placer, words: list[str], said: str
) -> None:
    result = placer("api", *words)
    told = result.output + str(result.exception)
    assert result.exit_code != 0
    assert said in " ".join(told.replace("│", " ").split())


def test_a_token_that_is_too_short_is_not_repeated(placer: Placer, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text("- {name: alice, role: operate, token: hunter2}\n")
    result = placer("api", "--tokens", str(tokens), "--operate")
    assert (result.exit_code, "hunter2" in result.output) == (2, False)
    assert "0.token" in result.output


def serve(served: ServedModel, options: ServerOptions) -> ApiServer:
    return ApiServer(served.application(), served.hub, options)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(AddressRefused, match=f"127.0.0.1:{port} cannot be listened on"):
            serve(ServedModel(), ServerOptions(port=port))


def test_it_serves_and_ends_while_a_stream_of_events_is_open() -> None:
    served = ServedModel().fill()
    server = serve(served, ServerOptions(port=0))
    with httpx2.Client(base_url=server.address, timeout=60) as client:
        with server.running():
            assert client.get("/api/v1/nodes/n1").status_code == 200
            stream = client.send(client.build_request("GET", "/api/v1/events"), stream=True)
            lines = stream.iter_lines()
            assert next(lines) == "retry: 3000"
        assert "event: end" in [*lines]
        stream.close()


def test_small_answers_are_sent_at_once() -> None:
    """A socket that asyncio does not take for TCP delays each answer by 40 ms."""
    server = serve(ServedModel(), ServerOptions(port=0))
    assert server._socket.proto == socket.IPPROTO_TCP
    with server.running():
        until(lambda: server._server.started, "it listens")


def test_it_serves_over_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    certificate, key = tmp_path / "api.pem", tmp_path / "api.key"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    server = serve(ServedModel().fill(), ServerOptions(port=0, certificate=certificate, key=key))
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    with server.running(), httpx2.Client(base_url=server.address, verify=trust) as client:
        assert server.address.startswith("https://127.0.0.1:")
        assert client.get("/api/v1/nodes/n1").status_code == 200


def test_a_key_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text(TOKEN)
    with pytest.raises(AddressRefused, match="cannot be used for TLS") as found:
        serve(ServedModel(), ServerOptions(port=0, certificate=wrong, key=wrong))
    assert TOKEN not in str(found.value)


def test_processes_that_cannot_be_read_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    served = ServedModel().fill()
    asked: list[int] = []

    def refuse(*_: object) -> None:
        asked.append(1)
        raise BrokerUnreachable("this user may not read nodes.v1")

    monkeypatch.setattr(server, "read_processes", refuse)
    listed = ProcessList(load_settings(None, {}), served.model)
    assert (listed(), listed(), asked) == ((), (), [1])
    served.model.note_fault("no broker answers")
    assert (listed(), asked) == ((), [1])
