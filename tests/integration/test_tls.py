"""Encrypted connections: certificates on both sides, beside a user and a password.

One set of options holds for the three clients. Each of them does its part over TLS; a broker of an
unknown authority, one that is called otherwise, and a client without a certificate are told so.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import orjson
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from typer.testing import CliRunner, Result

from streaming.cli.main import app
from streaming.runtime import EmbeddedBroker
from streaming.runtime.broker import HOST
from tests.systems.application import PATIENT, Application

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PREFIX = "tls."
USER, PASSWORD = "reconciler", "hunter2"
CHECK_HOSTNAME = "ssl.endpoint.identification.algorithm"

Options = dict[str, str]
Placer = Callable[..., Result]


class Authority:
    """Makes certificates, and the files that clients and brokers read them from."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._signs = trustme.CA()
        self.file = directory / "authority.pem"
        directory.mkdir()
        self._signs.cert_pem.write_to_path(self.file)

    def issue(self, name: str) -> tuple[Path, Path]:
        """Key and certificate for a host or user of this name. Java's clients ask for a key of
        the form PKCS #8."""
        made = self._signs.issue_cert(name)
        key = load_pem_private_key(made.private_key_pem.bytes(), password=None)
        key_file, certificate_file = (self._directory / f"{name}.{kind}" for kind in ("key", "pem"))
        key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        certificate_file.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
        return key_file, certificate_file


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "own")


@pytest.fixture(scope="module")
def options(authority: Authority) -> Options:
    """A client that is let in."""
    key, certificate = authority.issue("reconciler.test")
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": "env:KAFKA_PASSWORD",
        "ssl.ca.location": str(authority.file),
        "ssl.key.location": str(key),
        "ssl.certificate.location": str(certificate),
    }


def properties(authority: Authority, host: str) -> Options:
    """A broker that is called so, and asks its clients for a certificate and a password."""
    key, certificate = authority.issue(host)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    login = f'{module} username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
    return {
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": login,
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key.read_text(),
        "ssl.keystore.certificate.chain": certificate.read_text(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.file.read_text(),
        "listener.name.client.ssl.client.auth": "required",
        # Of the broker's connections to itself; clients have their own.
        CHECK_HOSTNAME: "",
    }


@pytest.fixture(scope="module")
def brokers(authority: Authority, options: Options) -> Iterator[Callable[[str], EmbeddedBroker]]:
    """A running broker whose certificate is for this host; the last one, if for the same."""
    running: dict[str, EmbeddedBroker] = {}
    with ExitStack() as stack:

        def started(host: str) -> EmbeddedBroker:
            if host not in running:
                stack.close()
                running.clear()
                known = options | {"sasl.password": PASSWORD, CHECK_HOSTNAME: "none"}
                made = EmbeddedBroker(
                    properties=properties(authority, host), protocol="SASL_SSL", options=known
                )
                running[host] = stack.enter_context(made)
            return running[host]

        yield started


@pytest.fixture
def placer(tmp_path: Path) -> Placer:
    """Run a command against a broker with these options."""

    def run(broker: EmbeddedBroker, given: Mapping[str, str], *words: str) -> Result:
        file = tmp_path / "placer.yaml"
        lines = [f"    {name}: {value}\n" for name, value in given.items()]
        file.write_text("kafka:\n  options:\n" + "".join(lines))
        at = ("--config", str(file), "--bootstrap", broker.bootstrap_servers, "--prefix", PREFIX)
        return CliRunner().invoke(app, [*words, *at], env={"KAFKA_PASSWORD": PASSWORD})

    return run


def test_all_clients_do_their_part(
    brokers: Callable[[str], EmbeddedBroker], options: Options, placer: Placer, tmp_path: Path
) -> None:
    broker = brokers(HOST)
    made = placer(broker, options, "topics", "apply")
    assert made.exit_code == 0, made.output
    for number in range(3):
        sent = placer(broker, options, "send", "node", f"n{number}", "--location", f"/z{number}")
        assert sent.exit_code == 0, sent.output
    asked = placer(broker, options, "send", "stream", "orders", "--shards", "1", "--rf", "3")
    assert asked.exit_code == 0, asked.output
    settings = {
        "PLACER_KAFKA__OPTIONS": orjson.dumps(options).decode(),
        "KAFKA_PASSWORD": PASSWORD,
    }
    checkpoint = tmp_path / "checkpoint"
    running = Application(broker.bootstrap_servers, PREFIX, checkpoint, settings | PATIENT)
    try:
        running.wait_ready()
        words = ("watch", "--topic", "decisions", "--from", "beginning", "--count", "1")
        seen = placer(broker, options, *words, "--for-seconds", "60", "--output", "json")
        assert '"placed"' in seen.output, seen.output
        key = Path(options["ssl.key.location"]).read_text().splitlines()[1]
        for secret in (PASSWORD, key):
            assert secret not in running.output
    finally:
        running.kill()


# What a client does differently, what the broker is called, and what is said about it.
REFUSED: dict[str, tuple[dict[str, str | None], str, str]] = {
    "another authority": (
        {"ssl.ca.location": "other"},
        HOST,
        "is signed by an authority that is not trusted here (unable to get local issuer",
    ),
    "another name": ({}, "elsewhere.test", "is for another host name (IP address mismatch"),
    "no certificate": (
        {"ssl.key.location": None, "ssl.certificate.location": None},
        HOST,
        "requires a client certificate (",
    ),
    "no encryption": (
        {
            "ssl.key.location": None,
            "ssl.certificate.location": None,
            "ssl.ca.location": None,
            "security.protocol": "SASL_PLAINTEXT",
        },
        HOST,
        "speaks TLS; set security.protocol to SSL or SASL_SSL",
    ),
}


@pytest.mark.parametrize("words", ["send node n --location /z", "topics diff"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_as_it_should_be_is_told_in_a_line(
    brokers: Callable[[str], EmbeddedBroker],
    options: Options,
    placer: Placer,
    tmp_path: Path,
    case: str,
    words: str,
) -> None:
    changes, host, message = REFUSED[case]
    given = {name: changes.get(name, value) for name, value in options.items()}
    if given["ssl.ca.location"] == "other":
        given["ssl.ca.location"] = str(Authority(tmp_path / "other").file)
    kept = {name: value for name, value in given.items() if value is not None}
    result = placer(brokers(host), kept, *words.split())
    assert (result.exit_code, message in result.output) == (3, True), result.output
    assert len(result.output.splitlines()) == 1
    assert PASSWORD not in result.output


def test_another_name_is_taken_where_the_settings_say_so(
    brokers: Callable[[str], EmbeddedBroker], options: Options, placer: Placer
) -> None:
    broker = brokers("elsewhere.test")
    for words in ("topics apply", "send node n --location /z"):
        result = placer(broker, options | {CHECK_HOSTNAME: "none"}, *words.split())
        assert result.exit_code == 0, result.output
