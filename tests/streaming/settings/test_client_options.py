"""Client options in the names of three clients: what is translated, and what is refused by name."""

from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from streaming.errors import SettingsInvalid
from streaming.settings.client_options import (
    KNOWN,
    TIMEOUT_OPTIONS,
    admin_client_options,
    find_faults,
    is_encrypted,
    spark_client_options,
)
from streaming.settings.settings import Settings

SASL = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanisms": "scram-sha-512",
    "sasl.username": "placer",
    "sasl.password": 'p"a\\ss',
    "ssl.ca.location": "ca.pem",
    "ssl.endpoint.identification.algorithm": "none",
    "socket.timeout.ms": "5000",
    "linger.ms": "20",
}


def test_a_user_with_a_password() -> None:
    assert find_faults(SASL) == []
    assert is_encrypted(SASL)
    assert spark_client_options(SASL) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="placer" password="p\\"a\\\\ss";',
        "ssl.truststore.location": "ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.endpoint.identification.algorithm": "",
        "default.api.timeout.ms": "5000",
        "request.timeout.ms": "2500",
        "socket.connection.setup.timeout.ms": TIMEOUT_OPTIONS["socket.connection.setup.timeout.ms"],
    }
    assert admin_client_options(SASL) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "placer",
        "sasl_plain_password": 'p"a\\ss',
        "ssl_cafile": "ca.pem",
        "ssl_check_hostname": False,
        "request_timeout_ms": 5000,
    }


def test_a_client_with_a_certificate(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    key.write_text("-----BEGIN PRIVATE KEY-----\nabc\n")
    certificate.write_text("-----BEGIN CERTIFICATE-----\ndef\n")
    options = {
        "security.protocol": "SSL",
        "ssl.key.location": str(key),
        "ssl.certificate.location": str(certificate),
        "ssl.key.password": "secret",
    }
    assert find_faults(options) == []
    assert spark_client_options(options) == {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key.read_text(),
        "ssl.keystore.certificate.chain": certificate.read_text(),
        "ssl.key.password": "secret",
        **spark_client_options({}),
    }
    assert admin_client_options(options) == {
        "security_protocol": "SSL",
        "ssl_keyfile": str(key),
        "ssl_certfile": str(certificate),
        "ssl_password": "secret",
    }


def test_a_key_that_java_cannot_read_is_told_with_the_way_out(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\nabc\n")
    options = {"ssl.key.location": str(key), "ssl.certificate.location": str(key)}
    with pytest.raises(SettingsInvalid, match=r"ssl\.key\.location: .* openssl pkcs8 -topk8"):
        spark_client_options(options)
    options["ssl.key.location"] = str(tmp_path / "nowhere")
    with pytest.raises(SettingsInvalid, match=r"ssl\.key\.location: .*cannot be read: No such"):
        spark_client_options(options)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"ssl.crl.location": "x"}, "ssl.crl.location: not supported by all three Kafka clients"),
        ({"enable.ssl.certificate.verification": "false"}, "enable.ssl.certificate.verification"),
        ({"ssl.keystore.location": "x.p12"}, "ssl.keystore.location"),
        ({"no.such.option": "1"}, "no.such.option"),
        ({"socket.timeout.ms": "10 s"}, "socket.timeout.ms: expected a whole number"),
        ({"security.protocol": "TLS"}, "security.protocol: expected one of PLAINTEXT, SSL"),
        (SASL | {"sasl.mechanisms": "GSSAPI"}, "sasl.mechanism: expected one of PLAIN, SCRAM"),
        (SASL | {"sasl.mechanisms": ""}, "sasl.mechanism: expected one of PLAIN, SCRAM"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
            "sasl.password: needed with SASL_PLAINTEXT",
        ),
        ({"ssl.key.location": "k"}, "ssl.certificate.location and ssl.key.location belong"),
        ({"ssl.endpoint.identification.algorithm": "x"}, "expected https or none"),
    ],
)
def test_what_one_client_would_not_do_is_refused_by_name(
    options: dict[str, str], fault: str
) -> None:
    assert fault in find_faults(options)[0]
    # Settings refuse it, whatever is asked of them.
    with pytest.raises(ValueError, match="kafka"):
        Settings(kafka={"options": options | {"sasl.password": "env:P"}})  # type: ignore[arg-type]


def test_what_is_translated_exists() -> None:
    given = {name: "1" for name in KNOWN if not name.startswith(("sasl", "ssl", "security"))}
    assert set(admin_client_options(given | SASL)) <= set(KafkaAdminClient.DEFAULT_CONFIG)
