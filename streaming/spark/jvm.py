"""Starts Spark's JVM directly, and connects to it.

Spark's own script first starts another JVM to ask it for the command, and exports SPARK_HOME, with
which Spark makes each Python process that is not forked from our daemon compile PySpark from an
archive: half a second for the one, another at the start of each query for the other.
"""

import hashlib
import os
import shlex
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from streaming.errors import StreamingError
from streaming.runtime import Java, cache_dir

# What Spark's launcher adds for every Java (`JavaModuleOptions` of Spark 4.2, and SparkSubmit's own
# option); tests hold it to the launcher.
_PACKAGES_OPENED = (
    *("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util", "util.concurrent"),
    "util.concurrent.atomic",
)
LAUNCHER_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _PACKAGES_OPENED),
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.cs=ALL-UNNAMED",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
    "--add-opens=java.base/sun.util.calendar=ALL-UNNAMED",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
# Directories of settings that Spark reads from the class path, by environment variable.
_CONF_DIRS = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
# A JVM on a busy machine has taken 15 s to answer.
START_TIMEOUT_SECONDS = 120.0
_LOOK_SECONDS = 0.02


class JvmFailed(StreamingError):
    """Spark's JVM has not come up."""


class SparkJvm:
    """The JVM of a Spark session, from its first moment on."""

    def __init__(
        self,
        java: Java,
        conf: Mapping[str, str],
        log: Path,
        archive_options: Sequence[str],
        directory: Path | None = None,
    ) -> None:
        """Start it, and do not wait. `conf`: Spark's settings; `log` takes what it prints;
        `archive_options`: what Java is to do with a class archive; `directory`: where it works,
        this process's own if None."""
        self._log = log
        self._directory = Path(tempfile.mkdtemp(prefix="placer-gateway-"))
        self._answer = self._directory / "port"
        command = make_command(java, conf, archive_options)
        environment = os.environ | {
            "JAVA_HOME": str(java.home),
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._answer),
        }
        with log.open("ab") as output:
            # A session of its own: Ctrl-C in a terminal must not end it before the batch ended. It
            # ends by itself when the pipe to it closes.
            self.process = subprocess.Popen(
                command,
                env=environment,
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def connect(self) -> Any:
        """Wait until it answers; returns PySpark's gateway to it. Raises JvmFailed."""
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        try:
            while not self._answer.is_file():
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise JvmFailed(f"the JVM of Spark did not start; it printed: {self._tail()}")
                time.sleep(_LOOK_SECONDS)
            answer = self._answer.read_bytes()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
        port, length = struct.unpack(">ii", answer[:8])
        return _join_gateway(port, answer[8 : 8 + length].decode(), self.process)

    def kill(self) -> None:
        """End it, whatever it does."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-5:]
        return " | ".join(lines) or "nothing"


def _join_gateway(port: int, secret: str, process: subprocess.Popen[bytes]) -> Any:
    """PySpark's gateway to a JVM that runs already."""
    from pyspark.java_gateway import launch_gateway

    known = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(known)
    try:
        gateway = launch_gateway()
    finally:
        for name in known:
            del os.environ[name]
    gateway.proc = process
    return gateway


def spark_home() -> Path:
    """Where Spark's jars are: `SPARK_HOME`, else the installed PySpark."""
    chosen = os.environ.get("SPARK_HOME")
    if chosen:
        return Path(chosen)
    found = find_spec("pyspark")
    assert found is not None, "it is required"
    assert found.origin is not None, "it is a package"
    return Path(found.origin).parent


def make_command(
    java: Java, conf: Mapping[str, str], archive_options: Sequence[str] = ()
) -> list[str]:
    """The command that Spark's launcher would make."""
    options = [
        *shlex.split(conf.get("spark.driver.defaultJavaOptions", "")),
        *shlex.split(conf.get("spark.driver.extraJavaOptions", "")),
    ]
    settings = [word for pair in conf.items() for word in ("--conf", "=".join(pair))]
    return [
        str(java.home / "bin" / "java"),
        *("-cp", os.pathsep.join(make_class_path(conf))),
        f"-Xmx{conf['spark.driver.memory']}",
        *options,
        *LAUNCHER_OPTIONS,
        *archive_options,
        "org.apache.spark.deploy.SparkSubmit",
        *settings,
        "pyspark-shell",
    ]


def make_class_path(conf: Mapping[str, str]) -> list[str]:
    """Ours before Spark's, each jar by name: a class archive knows them in their order."""
    home = spark_home()
    first = [each for each in conf.get("spark.driver.extraClassPath", "").split(os.pathsep) if each]
    directories = [os.environ[name] for name in _CONF_DIRS if os.environ.get(name)]
    if "SPARK_CONF_DIR" not in os.environ and (home / "conf").is_dir():
        directories.insert(0, str(home / "conf"))
    return [*first, *directories, *map(str, sorted((home / "jars").glob("*.jar")))]


def class_archive(java: Java, class_path: Sequence[str]) -> Path:
    """Where the archive of the JVM's classes lies, for this Java and these jars.

    With it a start reads and checks no class: 3 s less of 10 on two cores. It need not be there.
    """
    digest = hashlib.sha256(f"{java.executable.resolve()} {java.version}".encode())
    for place in class_path:
        path = Path(place)
        if path.is_file():
            found = path.stat()
            digest.update(f"{place} {found.st_size} {int(found.st_mtime)}".encode())
    return cache_dir() / "classes" / f"{digest.hexdigest()[:16]}.jsa"


def use_archive(archive: Path) -> list[str]:
    """Options that use an archive if it is there; Java passes over one that does not fit."""
    if not archive.exists():
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off"]
