"""Every way in which certificates keep a client out is told with the setting to look at."""

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from streaming.brokers import tls

HOST = "127.0.0.1"
AUTHORITY, OTHER = trustme.CA(), trustme.CA()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Options that serve, by name; the client's certificate is of the known authority."""
    issued = AUTHORITY.issue_cert("client.test")
    AUTHORITY.cert_pem.write_to_path(tmp_path / "authority")
    issued.private_key_pem.write_to_path(tmp_path / "key")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "certificate")
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": str(tmp_path / "authority"),
        "ssl.key.location": str(tmp_path / "key"),
        "ssl.certificate.location": str(tmp_path / "certificate"),
    }


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server with a certificate for the name in the mark; without one it greets
    in plain text."""
    name = request.param
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if name is not None:
        AUTHORITY.issue_cert(name).configure_cert(context)
        AUTHORITY.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server((HOST, 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(10)
            if name is None:
                connection.sendall(b"hello, in plain text")
                return
            try:
                with context.wrap_socket(connection, server_side=True) as inner:
                    inner.recv(1)
            except OSError:
                pass  # the client did not like it

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"{HOST}:{listener.getsockname()[1]}"
    thread.join(10)
    listener.close()


def without(options: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in options.items() if name not in names}


@pytest.mark.parametrize("server", [HOST], indirect=True)
def test_what_serves_is_no_fault(
    server: str, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "OBJECTION_TIMEOUT_SECONDS", 0.2)
    assert tls.find_fault(server, files) is None


@pytest.mark.parametrize("server", ["elsewhere.test"], indirect=True)
@pytest.mark.parametrize("check", ["https", "none"])
def test_another_name(
    server: str, files: dict[str, str], monkeypatch: pytest.MonkeyPatch, check: str
) -> None:
    monkeypatch.setattr(tls, "OBJECTION_TIMEOUT_SECONDS", 0.2)
    name = "ssl.endpoint.identification.algorithm"
    said = tls.find_fault(server, files | {name: check})
    if check == "none":
        assert said is None
    else:
        assert said is not None
        assert "is for another host name (IP address mismatch" in said
        assert f"set {name} to none" in said


@pytest.mark.parametrize("server", [HOST], indirect=True)
def test_another_authority(server: str, files: dict[str, str], tmp_path: Path) -> None:
    OTHER.cert_pem.write_to_path(tmp_path / "other")
    said = tls.find_fault(server, files | {"ssl.ca.location": str(tmp_path / "other")})
    assert said is not None
    assert said.startswith(
        f"the certificate of {server} is signed by an authority that is not trusted here"
    )
    assert "ssl.ca.location" in said


@pytest.mark.parametrize("server", [HOST], indirect=True)
def test_no_certificate_of_ones_own(server: str, files: dict[str, str]) -> None:
    said = tls.find_fault(server, without(files, "ssl.certificate.location", "ssl.key.location"))
    assert said is not None
    assert "requires a client certificate" in said
    assert "set ssl.certificate.location and ssl.key.location" in said


@pytest.mark.parametrize("server", [HOST], indirect=True)
def test_a_certificate_that_is_not_taken(
    server: str, files: dict[str, str], tmp_path: Path
) -> None:
    issued = OTHER.issue_cert("client.test")
    issued.private_key_pem.write_to_path(tmp_path / "key")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "certificate")
    said = tls.find_fault(server, files)
    assert said is not None
    assert f"{server} rejects the client certificate in ssl.certificate.location" in said


@pytest.mark.parametrize("server", [None], indirect=True)
def test_no_encryption(server: str, files: dict[str, str]) -> None:
    said = tls.find_fault(server, files)
    assert said is not None
    assert f"{server} does not speak TLS" in said
    assert "security.protocol" in said


@pytest.mark.parametrize("server", [HOST, None], indirect=True)
def test_an_unencrypted_client(server: str, request: pytest.FixtureRequest) -> None:
    said = tls.find_fault(server, {"security.protocol": "PLAINTEXT"})
    if request.node.callspec.params["server"] is None:
        assert said is None
    else:
        assert said == f"{server} speaks TLS; set security.protocol to SSL or SASL_SSL"


def test_files_that_do_not_serve(files: dict[str, str], tmp_path: Path) -> None:
    said = tls.find_fault(f"{HOST}:1", files | {"ssl.ca.location": str(tmp_path / "none")})
    assert said is not None
    assert "ssl.ca.location" in said
    assert "No such file" in said


def test_one_that_hangs_says_nothing_of_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "CONNECT_TIMEOUT_SECONDS", 0.1)
    with socket.create_server((HOST, 0)) as silent:
        address = f"{HOST}:{silent.getsockname()[1]}"
        assert tls.find_fault(address, {}) is None


def test_nobody_there_is_no_fault_of_certificates(files: dict[str, str]) -> None:
    assert tls.find_fault(f"{HOST}:1", files) is None
