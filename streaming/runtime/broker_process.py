"""Claims, formats, starts and ends one Kafka process on a directory of its own.

The embedded broker is one; where it listens and what it is told is up to whoever starts it.
"""

import base64
import contextlib
import fcntl
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from streaming.errors import StreamingError
from streaming.runtime.jars import ensure_jars
from streaming.runtime.java import find_java

# Measured 1.6 s from exec to the first record on two cores; the rest is for a busy machine.
START_TIMEOUT_SECONDS = 60.0
# Formatting a directory takes 0.5-0.9 s.
FORMAT_TIMEOUT_SECONDS = 60.0
# SIGTERM to exit takes 1.4 s; a broker with open clients may wait for them.
STOP_TIMEOUT_SECONDS = 20.0
# A broker whose parent was killed is gone within the time of a stop, which is five times as long on
# a busy machine: worth waiting for.
CLAIM_TIMEOUT_SECONDS = 8.0
CLAIM_POLL_SECONDS = 0.05
# How long one question for metadata waits before the process is looked at again.
ASK_TIMEOUT_SECONDS = 0.25
# Lines of the log shown in an error: a Kafka start-up failure with its first stack frames.
TAIL_LINES = 15
TAIL_LINE_CHARS = 300

# In the broker's directory, where it also works: a relative name needs no escaping.
DATA = "data"
_LOG_NAME = "broker.log"
# What the JVM unpacks, such as native libraries; it leaves some of it behind.
_TEMPORARY = "tmp"
# 256 MB serves a million records here; C1 only and the serial collector halve the start. An idle
# broker of a large young generation writes to all of it, and bit by bit to all of a large old one:
# they start small and grow by need.
_JAVA_OPTIONS = (
    "-Xms32m",
    "-Xmx256m",
    "-XX:MaxNewSize=8m",
    "-XX:MinHeapFreeRatio=10",
    "-XX:MaxHeapFreeRatio=30",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Dlog4j2.configurationFile=log4j2.properties",
)
_LOG4J2 = """\
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
"""

# Runs in the child between fork and exec, as its own small program because code between the two is
# unsafe in a process with threads: ask Linux to end the broker when its parent dies
# (PR_SET_PDEATHSIG = 1), and leave if the parent died before that was set. SIGTERM, because after
# SIGKILL the next start on the directory waits 9 s for the dead broker's session to run out.
_LAUNCH = """\
import ctypes, os, signal, sys
parent, *command = sys.argv[1:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(parent):
    sys.exit("the parent has gone")
os.execv(command[0], command)
"""


class BrokerFailed(StreamingError):
    """The embedded broker could not be started; the message says why, with the end of its log."""


class BrokerProcess:
    """A Kafka node in a directory that is kept, one process at a time.

    On Linux the process dies with the thread that called `launch`.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        """Process id while it runs, None otherwise."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process is not None and running else None

    @property
    def output(self) -> str:
        """Return its log since it was launched."""
        log = self.directory / _LOG_NAME
        return log.read_bytes()[self._log_start :].decode(errors="replace")

    def launch(self, properties: Mapping[str, str], cluster_id: str | None = None) -> None:
        """Start it and return at once. A directory that is new belongs to the cluster of this id
        from then on. Raises BrokerFailed, JarsUnavailable, JavaUnavailable, OSError."""
        files = ensure_jars("broker")
        temporary = self.directory / _TEMPORARY
        java_command = [str(find_java().executable), *_JAVA_OPTIONS]
        java_command.append(f"-Djava.io.tmpdir={temporary}")
        command = [*java_command, "-cp", os.pathsep.join(map(str, files))]
        self.directory.mkdir(parents=True, exist_ok=True)
        with _lock_directory(self.directory) as lock:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            (self.directory / "log4j2.properties").write_text(_LOG4J2, encoding="utf-8")
            lines = [f"{name}={_escape(value)}\n" for name, value in properties.items()]
            (self.directory / "server.properties").write_text("".join(lines), encoding="latin-1")
            with (self.directory / _LOG_NAME).open("ab") as log:
                self._log_start = log.tell()
                if not (self.directory / DATA / "meta.properties").exists():
                    self._format(command, cluster_id or new_cluster_id(), log)
                self._process = _launch(self.directory, command, log, lock)

    def wait_answering(self, address: str, options: Mapping[str, str]) -> str | None:
        """Return None once clients get metadata with a live broker, else what went wrong."""
        assert self._process is not None, "it has been launched"
        return _wait_until_ready(self._process, address, options)

    def failure(self, why: str) -> BrokerFailed:
        """The error that says so, with the end of the log."""
        return BrokerFailed(f"The embedded broker {why}.{_tail(self.output)}")

    def stop(self) -> None:
        """End it cleanly, by force if it does not go."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End it at once: its data are as after a loss of power."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            shutil.rmtree(self.directory / _TEMPORARY, ignore_errors=True)

    def _format(self, command: list[str], cluster_id: str, log: IO[bytes]) -> None:
        tool = [*command, "kafka.tools.StorageTool", "format", "--ignore-formatted"]
        try:
            subprocess.run(
                [*tool, "-t", cluster_id, "-c", "server.properties"],
                cwd=self.directory,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=FORMAT_TIMEOUT_SECONDS,
                check=True,
            )
        except subprocess.SubprocessError as error:
            raise BrokerFailed(
                "The data directory of the embedded broker could not be formatted."
                + _tail(self.output)
            ) from error


def new_cluster_id() -> str:
    """The name of a cluster: 22 characters of URL-safe base64. One that began with "-" would be
    read as an option."""
    return "p" + base64.urlsafe_b64encode(secrets.token_bytes(16)).decode()[1:22]


@contextlib.contextmanager
def _lock_directory(directory: Path) -> Iterator[IO[str]]:
    """Claim a data directory. The broker inherits the open file: the claim lasts as long as it."""
    with (directory / "broker.lock").open("a") as file:
        deadline_seconds = time.monotonic() + CLAIM_TIMEOUT_SECONDS
        while not _claim(file):
            if time.monotonic() > deadline_seconds:
                raise BrokerFailed(
                    f"The data directory {directory} is in use by another embedded broker. "
                    "Stop that one, or name another directory."
                )
            time.sleep(CLAIM_POLL_SECONDS)  # a lock of the system has no wait with a time limit
        yield file


def _claim(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _launch(
    directory: Path, command: list[str], log: IO[bytes], lock: IO[str]
) -> subprocess.Popen[bytes]:
    """Start the broker in a session of its own: Ctrl-C in the terminal is for us, not for it."""
    launch = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid())]
    return subprocess.Popen(
        [*launch, *command, "kafka.Kafka", "server.properties"],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=(lock.fileno(),),
    )


def _wait_until_ready(
    process: subprocess.Popen[bytes], bootstrap_servers: str, options: Mapping[str, str]
) -> str | None:
    """Return None once a client gets metadata with a live broker, else what went wrong."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient(
        {
            **options,
            "bootstrap.servers": bootstrap_servers,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,  # refused connections are what we wait out
        }
    )
    answer = "no broker in the metadata"
    deadline_seconds = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline_seconds:
        if process.poll() is not None:
            return f"ended with code {process.returncode} while starting"
        try:
            if client.list_topics(timeout=ASK_TIMEOUT_SECONDS).brokers:
                return None
        except KafkaException as error:
            answer = error.args[0].str()
    return f"did not answer within {START_TIMEOUT_SECONDS:.0f} s ({answer})"


def _tail(output: str) -> str:
    lines = [line[:TAIL_LINE_CHARS] for line in output.strip().splitlines()[-TAIL_LINES:]]
    return " End of its log:\n" + "\n".join(lines) if lines else " It logged nothing."
