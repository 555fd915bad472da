"""An embedded broker: one real Kafka node (KRaft) as a child process, for laptop, demo and tests.

`placer run --embedded`, `placer demo` and the integration tests start it, use `bootstrap_servers`
like those of any cluster and stop it. It listens on loopback only and is not meant for data that
matters: there is one copy of everything.
"""

import base64
import contextlib
import fcntl
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from streaming import jars, java
from streaming.errors import StreamingError

HOST = "127.0.0.1"
# Measured 1.6 s from exec to the first record on two cores; the rest is for a busy machine.
START_TIMEOUT_SECONDS = 60.0
# Formatting a directory takes 0.5-0.9 s.
FORMAT_TIMEOUT_SECONDS = 60.0
# SIGTERM to exit takes 1.4 s; a broker with open clients may wait for them.
STOP_TIMEOUT_SECONDS = 20.0
# A broker whose parent was killed is gone within the time of a stop: worth waiting for.
CLAIM_TIMEOUT_SECONDS = 3.0
CLAIM_POLL_SECONDS = 0.05
# How long one question for metadata waits before the process is looked at again.
ASK_TIMEOUT_SECONDS = 0.25
# Free ports are picked before the broker binds them; another process may be faster, rarely twice.
PORT_ATTEMPTS = 3
# Lines of the log shown in an error: a Kafka start-up failure with its first stack frames.
TAIL_LINES = 15
TAIL_LINE_CHARS = 300

_LOG_NAME = "broker.log"
# 256 MB serves a million records here; C1 only and the serial collector halve the start.
_JAVA_OPTIONS = (
    "-Xms256m",
    "-Xmx256m",
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


class EmbeddedBroker:
    """One Kafka node with broker and controller roles, started and stopped by this process.

    `port` is the clients' port (default: a free one). `data_dir` is kept and used again by the
    next start; without it the data live in a temporary directory that `stop` removes.
    `properties` override or add to the server properties; `log.dirs` and the listeners are ours.
    `protocol` is the clients' (`SASL_PLAINTEXT`), `options` are those of a client that is let in.

    Use it as a context manager, or call `start` and `stop`. On Linux the broker dies with the
    thread that called `start`: call it from one that lives as long as the broker should.
    """

    def __init__(
        self,
        port: int | None = None,
        data_dir: Path | str | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        protocol: str = "PLAINTEXT",
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._wanted_port = port
        self._kept_dir = Path(data_dir).absolute() if data_dir is not None else None
        self._properties = dict(properties or {})
        self._protocol, self._options = protocol, dict(options or {})
        self._port: int | None = None
        self._dir: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients. RuntimeError before `start`."""
        if self._port is None:
            raise RuntimeError("the embedded broker has not been started")
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id of the running broker, None when it does not run."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process is not None and running else None

    @property
    def data_dir(self) -> Path:
        """Where its data, settings and log are. RuntimeError before `start`."""
        if self._dir is None:
            raise RuntimeError("the embedded broker has not been started")
        return self._dir

    def start(self) -> Self:
        """Start and return when clients get an answer. Raises BrokerFailed, JarsUnavailable."""
        if self._process is not None:
            raise RuntimeError("the embedded broker was started already")
        files = jars.ensure("broker")
        runtime = java.find()
        command = [str(runtime.executable), *_JAVA_OPTIONS, "-cp", os.pathsep.join(map(str, files))]
        self._dir = self._kept_dir or Path(tempfile.mkdtemp(prefix="placer-broker-"))
        try:
            self._dir.mkdir(parents=True, exist_ok=True)
            with _locked(self._dir) as lock:
                self._start_in(self._dir, command, lock)
        except BaseException as error:
            directory = self._dir
            self.stop()
            if isinstance(error, OSError):
                raise BrokerFailed(f"The broker cannot use {directory}: {error}") from error
            raise
        return self

    def stop(self) -> None:
        """End the broker cleanly, by force if it does not go; remove a temporary directory."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._kept_dir is None and self._dir is not None:
            shutil.rmtree(self._dir, ignore_errors=True)
        self._port = None
        self._dir = None

    def _start_in(self, directory: Path, command: list[str], lock: IO[str]) -> None:
        """Format the directory if it is new, start the process and wait until it answers."""
        (directory / "log4j2.properties").write_text(_LOG4J2, encoding="utf-8")
        log_path = directory / _LOG_NAME
        for attempt in range(1, PORT_ATTEMPTS + 1):
            client_port, controller_port = _ports(self._wanted_port)
            text = _server_properties(
                client_port, controller_port, self._properties, self._protocol
            )
            (directory / "server.properties").write_text(text, encoding="latin-1")
            with log_path.open("ab") as log:
                log_start = log.tell()
                if not (directory / "data" / "meta.properties").exists():
                    _format(directory, command, log)
                self._process = _launch(directory, command, log, lock)
            failure = _wait_until_ready(self._process, f"{HOST}:{client_port}", self._options)
            if failure is None:
                self._port = client_port
                return
            output = log_path.read_bytes()[log_start:].decode(errors="replace")
            taken = self._process.poll() is not None and "Address already in use" in output
            if not taken or self._wanted_port or attempt == PORT_ATTEMPTS:
                raise BrokerFailed(f"The embedded broker {failure}.{_tail(output)}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[IO[str]]:
    """Claim a data directory. The broker inherits the open file: the claim lasts as long as it."""
    with (directory / "broker.lock").open("a") as file:
        deadline_seconds = time.monotonic() + CLAIM_TIMEOUT_SECONDS
        while not _claimed(file):
            if time.monotonic() > deadline_seconds:
                raise BrokerFailed(
                    f"The data directory {directory} is in use by another embedded broker. "
                    "Stop that one, or name another directory."
                )
            time.sleep(CLAIM_POLL_SECONDS)  # a lock of the system has no wait with a time limit
        yield file


def _claimed(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _ports(wanted: int | None) -> tuple[int, int]:
    """Return (clients' port, controller's port): the wanted one if it is free, else free ones."""
    with socket.socket() as clients, socket.socket() as controller:
        # As Kafka itself: a port that only waits out old connections counts as free.
        clients.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            clients.bind((HOST, wanted or 0))
        except OSError as error:
            raise BrokerFailed(
                f"Port {wanted} on {HOST} is not free ({error.strerror}). "
                "Stop what listens there, or choose another port."
            ) from error
        controller.bind((HOST, 0))
        return clients.getsockname()[1], controller.getsockname()[1]


def _server_properties(
    client_port: int, controller_port: int, own: Mapping[str, str], protocol: str
) -> str:
    """Return server.properties of a single node; `own` overrides all but what `start` relies on."""
    # One node: everything internal has one replica, and few partitions since each is a file set.
    defaults = {
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        # A first consumer need not wait for others to join.
        "group.initial.rebalance.delay.ms": "0",
        # A mistyped topic name must be an error; `placer topics apply` makes the real ones.
        "auto.create.topics.enable": "false",
        "num.network.threads": "2",
        "num.io.threads": "2",
        # The default of 128 MB is half of this heap.
        "log.cleaner.dedupe.buffer.size": "4194304",
    }
    ours = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"CLIENT://{HOST}:{client_port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"CLIENT://{HOST}:{client_port}",
        "listener.security.protocol.map": f"CLIENT:{protocol},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENT",
        "controller.listener.names": "CONTROLLER",
        # Relative to the working directory, so that no path needs escaping.
        "log.dirs": "data",
    }
    merged = {**defaults, **own, **ours}
    return "".join(f"{key}={_escaped(value)}\n" for key, value in merged.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _format(directory: Path, command: list[str], log: IO[bytes]) -> None:
    # 22 characters of URL-safe base64; a leading "-" would be read as an option.
    cluster_id = "p" + base64.urlsafe_b64encode(secrets.token_bytes(16)).decode()[1:22]
    tool = [*command, "kafka.tools.StorageTool", "format", "--ignore-formatted"]
    start = log.tell()
    try:
        subprocess.run(
            [*tool, "-t", cluster_id, "-c", "server.properties"],
            cwd=directory,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=FORMAT_TIMEOUT_SECONDS,
            check=True,
        )
    except subprocess.SubprocessError as error:
        output = (directory / _LOG_NAME).read_bytes()[start:].decode(errors="replace")
        raise BrokerFailed(
            f"The data directory of the embedded broker could not be formatted.{_tail(output)}"
        ) from error


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
