"""Explains why a TLS connection fails and names the setting to look at.

librdkafka says the same of a broker whose authority is unknown and of one that is called otherwise,
and nothing of one that speaks TLS alone, so Python's own TLS is asked once more. Used when a
connection has already failed.
"""

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress

from streaming.settings import is_encrypted

CONNECT_TIMEOUT_SECONDS = 2.0
# A broker that misses a certificate says so after the handshake, within milliseconds; one that
# misses none waits for us to speak.
OBJECTION_TIMEOUT_SECONDS = 1.0
# OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
_ANOTHER_NAME = (62, 64)


def find_fault(bootstrap: str, options: Mapping[str, str]) -> str | None:
    """Explain why these options and the brokers that listen do not fit; None where nothing is
    found.

    `options` as in `kafka.options`, secrets resolved.
    """
    try:
        context = _context(options)
    except (OSError, ValueError) as error:
        return (
            "the files in ssl.ca.location, ssl.certificate.location or ssl.key.location "
            f"cannot be used: {error}"
        )
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        speaks = f"{address.strip()} speaks TLS; set security.protocol to SSL or SASL_SSL"
        try:
            _greet(context, host.strip("[]"), int(port))
        except ssl.SSLError as error:
            if is_encrypted(options):
                return _describe(error, address.strip(), "ssl.certificate.location" in options)
            return speaks if "alert" in _reason(error) else None
        except (OSError, ValueError):
            continue
        return None if is_encrypted(options) else speaks
    return None


def _context(options: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.get("ssl.ca.location"))
    if not is_encrypted(options):
        # All that is asked is whether TLS is spoken there.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    context.check_hostname = options.get("ssl.endpoint.identification.algorithm") != "none"
    if "ssl.certificate.location" in options:
        context.load_cert_chain(
            options["ssl.certificate.location"],
            options["ssl.key.location"],
            # Without a word OpenSSL would ask for one at the terminal.
            options.get("ssl.key.password", ""),
        )
    return context


def _greet(context: ssl.SSLContext, host: str, port: int) -> None:
    """Return if both sides are content with each other."""
    with (
        socket.create_connection((host, port), CONNECT_TIMEOUT_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        connection.settimeout(OBJECTION_TIMEOUT_SECONDS)
        with suppress(TimeoutError):
            connection.recv(1)


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


def _describe(error: ssl.SSLError, address: str, has_certificate: bool) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _ANOTHER_NAME:
            return (
                f"the certificate of {address} is for another host name "
                f"({error.verify_message}); connect by a name in the certificate, or set "
                "ssl.endpoint.identification.algorithm to none"
            )
        return (
            f"the certificate of {address} is signed by an authority that is not trusted "
            f"here ({error.verify_message}); set ssl.ca.location to the file with that "
            "authority's certificate"
        )
    reason = _reason(error)
    if "alert" in reason and not has_certificate:
        return (
            f"{address} requires a client certificate ({reason}); set "
            "ssl.certificate.location and ssl.key.location"
        )
    if "alert" in reason:
        return f"{address} rejects the client certificate in ssl.certificate.location ({reason})"
    return (
        f"{address} does not speak TLS ({reason}); check the port, or set security.protocol "
        "without SSL"
    )
