"""Brokers and the application in containers, for tests of what only a network of machines can do.

Needs a Docker engine. Without one the tests are skipped and say so; with CONTAINERS=required in the
environment that is a failure, so that a machine meant to run them cannot pass by not doing so.
"""

import gc
import os
import socket
import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self

# Its reaper is one more image to be had; what is started here is stopped here.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")

import docker
import pytest
from docker.errors import DockerException
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from tests.systems.application import READY_TIMEOUT_SECONDS, SETTINGS
from tests.systems.waiting import TIMEOUT_SECONDS, until

ROOT = Path(__file__).resolve().parents[2]
KAFKA_IMAGE = "apache/kafka:4.3.1"
IMAGE = "placement-reconciler:test"
# A container's start takes 4 s, and a few times that on a busy machine.
BROKER_TIMEOUT_SECONDS = 60.0
# Copies of a topic in a cluster of three, and how soon its controller gives up a silent broker.
REPLICATION_FACTOR = 3
SESSION_TIMEOUT_MS = 6_000


def engine_or_skip() -> None:
    """Skip the test where no engine answers, or fail it where one was promised."""
    fault = _engine_fault()
    if fault is None:
        return
    if os.environ.get("CONTAINERS") == "required":
        pytest.fail(f"CONTAINERS=required, but no Docker engine answers: {fault}")
    pytest.skip("no Docker engine answers")


@cache
def _engine_fault() -> str | None:
    """Why no engine answers; asked once."""
    with warnings.catch_warnings():
        # Docker's client leaves the socket of a failed connection to the collector of garbage.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            client = docker.from_env()
            client.ping()
            client.close()
        except DockerException as error:
            fault = str(error)
        else:
            return None
        gc.collect()
    return fault


def build_image() -> str:
    """The application's image of this checkout; seconds when only code has changed."""
    client = docker.from_env()
    try:
        client.images.build(
            path=str(ROOT), dockerfile="deploy/Dockerfile", tag=IMAGE, network_mode="host", rm=True
        )
    finally:
        client.close()
    return IMAGE


class Compose:
    """The repository's compose file, with options as a person gives them, as a project of its own.

    Skips the test where no compose command answers that knows the file's syntax.
    """

    def __init__(self, *options: str) -> None:
        self._options = ("--project-name", "placer-test", *options)
        self._command = next(filter(_composes, (("docker", "compose"), ("docker-compose",))), None)
        if self._command is None:
            pytest.skip("no docker compose of version 2 answers")

    def __call__(self, *words: str) -> str:
        """Run a command; its output. A failure is an error that shows it."""
        assert self._command is not None
        version = {"PLACER_VERSION": IMAGE.rpartition(":")[2]}
        done = subprocess.run(
            [*self._command, *self._options, *words],
            cwd=ROOT, env=os.environ | version, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self("down", "--volumes")


def _composes(command: Sequence[str]) -> bool:
    """Whether a compose command is there and takes the file, which version 1 does not."""
    words = [*command, "--profile", "*", "config", "--quiet"]
    try:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


class Container:
    """One container and what can happen to it."""

    def __init__(self, made: DockerContainer, network: Network) -> None:
        self._made, self._network = made, network

    @property
    def _inner(self) -> Any:
        return self._made.get_wrapped_container()

    @property
    def log(self) -> str:
        """Everything it has printed since it was made."""
        return self._inner.logs().decode(errors="replace")

    @property
    def status(self) -> str:
        """The engine's word: running, paused, exited, restarting."""
        self._inner.reload()
        return self._inner.status

    @property
    def health(self) -> str:
        """What the image's own check says: starting, healthy, unhealthy."""
        self._inner.reload()
        return self._inner.health

    def start(self) -> None:
        self._made.start()

    def start_again(self) -> None:
        """Start what was killed, with the files it had."""
        self._inner.start()

    def kill(self) -> None:
        """kill -9 to all that runs in it."""
        self._inner.kill()

    def terminate(self) -> int:
        """SIGTERM; returns the exit status."""
        self._inner.stop(timeout=60)
        return self._inner.wait()["StatusCode"]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing in it runs, its connections stay open."""
        self._inner.pause()
        try:
            yield
        finally:
            self._inner.unpause()

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """It runs, and reaches nobody."""
        network = self._network._unwrap_network
        network.disconnect(self._inner)
        try:
            yield
        finally:
            network.connect(self._inner, aliases=list(self._made._network_aliases or ()))

    def wait(
        self, condition: Callable[[], object], what: str, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        """Return when the condition holds; a failure shows what the container has printed."""
        try:
            until(condition, what, timeout_seconds)
        except AssertionError as error:
            error.add_note(self.log)
            error.add_note(self.file("/var/lib/placer/spark.log"))
            raise

    def file(self, path: str) -> str:
        """A file in it; empty when there is none, or nothing runs."""
        if self.status != "running":
            return ""
        return self._inner.exec_run(["cat", path], stderr=False).output.decode(errors="replace")

    def remove(self) -> None:
        self._made.stop()


class Kafka:
    """Combined KRaft nodes, one in each of the racks, on a network of their own."""

    def __init__(self, racks: Sequence[str] = ("r1",)) -> None:
        self._stack = ExitStack()
        self.network = self._stack.enter_context(Network())
        ports = [_free_port() for _ in racks]
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        """Addresses for clients on this machine."""
        names = [f"kafka{number}" for number in range(1, len(racks) + 1)]
        self.inside = ",".join(f"{name}:19092" for name in names)
        """Addresses for clients in other containers."""
        self.brokers = [
            self._broker(number, names, rack, port)
            for number, (rack, port) in enumerate(zip(racks, ports, strict=True), start=1)
        ]

    def _broker(self, number: int, names: Sequence[str], rack: str, port: int) -> Container:
        made = DockerContainer(KAFKA_IMAGE)
        for name, value in _broker_settings(number, names, rack, port).items():
            made.with_env(name, value)
        # Its start rewrites these files, and some builds of the image carry them read-only.
        writable = "chmod -R u+w /etc/kafka/docker /opt/kafka/config"
        made.with_command(["bash", "-c", f"{writable}; exec /etc/kafka/docker/run"])
        made.with_network(self.network).with_network_aliases(names[number - 1])
        made.ports["9092/tcp"] = ("127.0.0.1", port)
        broker = Container(made, self.network)
        self._stack.callback(broker.remove)
        return broker

    def __enter__(self) -> Self:
        with ExitStack() as failed:
            failed.callback(self._stack.close)
            for broker in self.brokers:
                broker.start()
            for broker, address in zip(self.brokers, self.bootstrap.split(","), strict=True):
                broker.wait(lambda: _answers(address), address, BROKER_TIMEOUT_SECONDS)  # noqa: B023
            failed.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _broker_settings(number: int, names: Sequence[str], rack: str, port: int) -> dict[str, str]:
    copies = str(min(REPLICATION_FACTOR, len(names)))
    in_sync = "2" if len(names) >= REPLICATION_FACTOR else "1"
    plain = ("HOST", "NETWORK", "CONTROLLER")
    name = names[number - 1]
    voters = [f"{each}@{other}:9093" for each, other in enumerate(names, start=1)]
    return {
        "KAFKA_NODE_ID": str(number),
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_BROKER_RACK": rack,
        "KAFKA_LISTENERS": "HOST://:9092,NETWORK://:19092,CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"HOST://127.0.0.1:{port},NETWORK://{name}:19092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": ",".join(f"{each}:PLAINTEXT" for each in plain),
        "KAFKA_INTER_BROKER_LISTENER_NAME": "NETWORK",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": ",".join(voters),
        "KAFKA_LOG_DIRS": "/var/lib/kafka/data",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
        "KAFKA_BROKER_SESSION_TIMEOUT_MS": str(SESSION_TIMEOUT_MS),
        "KAFKA_REPLICA_LAG_TIME_MAX_MS": str(SESSION_TIMEOUT_MS),
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": copies,
        "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "4",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": copies,
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": in_sync,
        "KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS": "4",
        "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": copies,
        "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": in_sync,
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_HEAP_OPTS": "-Xms256m -Xmx384m",
    }


class ApplicationContainer(Container):
    """`placer run` as its image runs it; what fails is started again, as orchestrators do."""

    def __init__(
        self, image: str, kafka: Kafka, prefix: str, settings: Mapping[str, str] | None = None
    ) -> None:
        made = DockerContainer(image)
        own = {
            "PLACER_KAFKA__BOOTSTRAP_SERVERS": kafka.inside,
            "PLACER_KAFKA__ALLOW_PLAINTEXT": "true",
            "PLACER_TOPICS__PREFIX": prefix,
        }
        for name, value in (SETTINGS | own | dict(settings or {})).items():
            made.with_env(name, value)
        made.with_network(kafka.network).with_network_aliases("reconciler")
        made.tmpfs = {"/tmp": "exec", "/var/lib/placer": "uid=10001,gid=10001,mode=0700"}
        made.with_kwargs(
            init=True,
            read_only=True,
            cap_drop=["ALL"],
            restart_policy={"Name": "on-failure"},
        )
        super().__init__(made, kafka.network)

    @property
    def starts(self) -> int:
        """How often it has become ready."""
        return self.log.count("placer ready")

    def wait_ready(self, starts: int = 1) -> None:
        """Return when it has become ready for the given time."""
        self.wait(lambda: self.starts >= starts, "ready", READY_TIMEOUT_SECONDS)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _answers(address: str) -> bool:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": address, "log_level": 0})
    try:
        return bool(client.list_topics(timeout=1).brokers)
    except KafkaException:
        return False
