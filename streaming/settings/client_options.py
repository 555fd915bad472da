"""Translates `kafka.options` into the names of three Kafka clients.

Settings hold librdkafka's names. Records go through it as they are; Spark's source runs on Java's
client, administration on kafka-python. What one of them would have to leave out is refused by name
when the settings are read: a connection that is safe in one client and not in another is not safe.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from streaming.errors import SettingsInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping


# A broker answers within milliseconds, and within two seconds where it has to share its processors.
# A request that is open for so long is lost with its connection, which is given up and made anew: a
# network that swallows packets tells nobody. A commit may wait for two, one behind the other
# (coordinator, leader), and has to be done within the transaction's timeout.
REQUEST_TIMEOUT_MS = 10_000
# What running clients take where the settings say nothing else: librdkafka would wait 60 s for an
# answer and 30 s for a connection, Java's client 30 s.
TIMEOUT_OPTIONS = {
    "socket.timeout.ms": str(REQUEST_TIMEOUT_MS),
    "socket.connection.setup.timeout.ms": str(REQUEST_TIMEOUT_MS),
}


class _Names(NamedTuple):
    """An option's names in Java's client and in kafka-python; None: it is not for that one."""

    java: str | None
    python: str | None


_SAME = {
    "client.id": _Names("client.id", "client_id"),
    "security.protocol": _Names("security.protocol", "security_protocol"),
    "ssl.ca.location": _Names("ssl.truststore.location", "ssl_cafile"),
    "ssl.key.password": _Names("ssl.key.password", "ssl_password"),
    # Java's administration notices that a request is late only when its whole call is.
    "socket.timeout.ms": _Names("default.api.timeout.ms", "request_timeout_ms"),
    "socket.send.buffer.bytes": _Names("send.buffer.bytes", "send_buffer_bytes"),
    "socket.receive.buffer.bytes": _Names("receive.buffer.bytes", "receive_buffer_bytes"),
    "connections.max.idle.ms": _Names("connections.max.idle.ms", "connections_max_idle_ms"),
    "metadata.max.age.ms": _Names("metadata.max.age.ms", "metadata_max_age_ms"),
    "socket.connection.setup.timeout.ms": _Names("socket.connection.setup.timeout.ms", None),
    "reconnect.backoff.ms": _Names("reconnect.backoff.ms", "reconnect_backoff_ms"),
    "reconnect.backoff.max.ms": _Names("reconnect.backoff.max.ms", "reconnect_backoff_max_ms"),
    "retry.backoff.ms": _Names("retry.backoff.ms", "retry_backoff_ms"),
    # Tuning of what writes records; the other two clients write none.
    "compression.type": _Names(None, None),
    "delivery.timeout.ms": _Names(None, None),
    "linger.ms": _Names(None, None),
    "queue.buffering.max.kbytes": _Names(None, None),
}
_MECHANISM = ("sasl.mechanism", "sasl.mechanisms")
_CERTIFICATE, _KEY = "ssl.certificate.location", "ssl.key.location"
_CHECK_HOSTNAME = "ssl.endpoint.identification.algorithm"
# Those for which the three clients have no common name, and are translated by hand below.
_BY_HAND = (*_MECHANISM, "sasl.username", "sasl.password", _CERTIFICATE, _KEY, _CHECK_HOSTNAME)
KNOWN = tuple(sorted((*_SAME, *_BY_HAND)))

_NUMBERS = ("timeout.ms", "buffer.bytes", "idle.ms", "age.ms", "backoff.ms", "backoff.max.ms")
# What all three clients do without a library of their own. Kerberos needs a keytab on every
# executor and OAUTHBEARER code of the user's.
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PKCS8 = ("-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----")


def is_encrypted(options: Mapping[str, str]) -> bool:
    """Return whether the connection is TLS."""
    return _protocol(options).endswith("SSL")


def find_faults(options: Mapping[str, str]) -> list[str]:
    """List the faults of options, one line each; values may still be references to secrets."""
    found = [
        f"{name}: not supported by all three Kafka clients; supported are {', '.join(KNOWN)}"
        for name in options
        if name not in KNOWN
    ]
    found += [
        f"{name}: expected a whole number"
        for name, value in options.items()
        if name.endswith(_NUMBERS) and not value.isdecimal()
    ]
    protocol = _protocol(options)
    if protocol not in _PROTOCOLS:
        found.append(f"security.protocol: expected one of {', '.join(_PROTOCOLS)}")
    if protocol.startswith("SASL"):
        mechanism = _mechanism(options)
        if mechanism not in _LOGIN_MODULES:
            known = ", ".join(_LOGIN_MODULES)
            found.append(f"sasl.mechanism: expected one of {known} with {protocol}")
        lacking = {"sasl.username", "sasl.password"} - options.keys()
        found += [f"{name}: needed with {protocol}" for name in sorted(lacking)]
    if (_CERTIFICATE in options) != (_KEY in options):
        found.append(f"{_CERTIFICATE} and {_KEY} belong together")
    if options.get(_CHECK_HOSTNAME, "https") not in ("https", "none"):
        found.append(f"{_CHECK_HOSTNAME}: expected https or none")
    return found


def spark_client_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options in the names of Java's client. Secrets have been resolved before; see also
    `TIMEOUT_OPTIONS`.

    A key and its certificate travel with the options, so that executors need no such file; the
    authorities' file has to be on every machine. Raises SettingsInvalid when a file does not serve.
    """
    given = {**TIMEOUT_OPTIONS, **options}
    translated = {
        names.java: given[name]
        for name, names in _SAME.items()
        if name in given and names.java is not None
    }
    # So that every call is tried twice.
    translated["request.timeout.ms"] = str(int(given["socket.timeout.ms"]) // 2)
    if "security.protocol" in options:
        translated["security.protocol"] = _protocol(options)
    if "ssl.ca.location" in options:
        translated["ssl.truststore.type"] = "PEM"
    if _protocol(options).startswith("SASL"):
        mechanism = _mechanism(options)
        user, password = (_quote(options[f"sasl.{each}"]) for each in ("username", "password"))
        translated["sasl.mechanism"] = mechanism
        translated["sasl.jaas.config"] = (
            f"{_LOGIN_MODULES[mechanism]} required username={user} password={password};"
        )
    if _KEY in options:
        translated["ssl.keystore.type"] = "PEM"
        translated["ssl.keystore.key"] = _private_key(options[_KEY])
        translated["ssl.keystore.certificate.chain"] = _read_pem(
            _CERTIFICATE, options[_CERTIFICATE]
        )
    if options.get(_CHECK_HOSTNAME) == "none":
        translated[_CHECK_HOSTNAME] = ""
    return translated


def admin_client_options(options: Mapping[str, str]) -> dict[str, Any]:
    """The options in kafka-python's names, secrets resolved before."""
    translated: dict[str, Any] = {
        names.python: int(options[name]) if name.endswith(_NUMBERS) else options[name]
        for name, names in _SAME.items()
        if name in options and names.python is not None
    }
    if "security.protocol" in options:
        translated["security_protocol"] = _protocol(options)
    if _protocol(options).startswith("SASL"):
        translated["sasl_mechanism"] = _mechanism(options)
        translated["sasl_plain_username"] = options["sasl.username"]
        translated["sasl_plain_password"] = options["sasl.password"]
    if _KEY in options:
        translated["ssl_keyfile"] = options[_KEY]
        translated["ssl_certfile"] = options[_CERTIFICATE]
    if _CHECK_HOSTNAME in options:
        translated["ssl_check_hostname"] = options[_CHECK_HOSTNAME] != "none"
    return translated


def _protocol(options: Mapping[str, str]) -> str:
    return options.get("security.protocol", "PLAINTEXT").upper()


def _mechanism(options: Mapping[str, str]) -> str:
    return next((options[name] for name in _MECHANISM if name in options), "").upper()


def _quote(text: str) -> str:
    """As a value of Java's login configuration: in quotes, with what would end it escaped."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _private_key(path: str) -> str:
    text = _read_pem(_KEY, path)
    if not any(head in text for head in _PKCS8):
        message = (
            f"kafka.options.{_KEY}: {path} is no PEM key of the form PKCS #8, which Java's "
            f"client asks for; make one with: openssl pkcs8 -topk8 -in {path}"
        )
        raise SettingsInvalid([message])
    return text


def _read_pem(name: str, path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        message = f"kafka.options.{name}: {path} cannot be read: {reason}"
        raise SettingsInvalid([message]) from error
