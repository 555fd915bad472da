"""Runs an embedded broker, a real Kafka node (KRaft), as a child process.

`placer run --embedded`, `placer demo` and the integration tests start it, use `bootstrap_servers`
like those of any cluster and stop it. It listens on loopback only and is not meant for data that
matters: there is one copy of everything.
"""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from streaming.runtime.broker_process import DATA, BrokerFailed, BrokerProcess
from streaming.runtime.directories import Scratch

HOST = "127.0.0.1"
# Free ports are picked before the broker binds them; another process may be faster, rarely twice.
PORT_ATTEMPTS = 3
# What a node of a small cluster does not need the defaults of a large one for.
SMALL = {
    # Each partition is a set of files.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
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


def replication_properties(count: int, in_sync_min: int) -> dict[str, str]:
    """The properties that say how many copies of Kafka's own topics there are."""
    return {
        "offsets.topic.replication.factor": str(count),
        "transaction.state.log.replication.factor": str(count),
        "transaction.state.log.min.isr": str(in_sync_min),
        "share.coordinator.state.topic.replication.factor": str(count),
        "share.coordinator.state.topic.min.isr": str(in_sync_min),
    }


class EmbeddedBroker:
    """Starts and stops one Kafka node with broker and controller roles.

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
        self._process: BrokerProcess | None = None
        self._scratch: Scratch | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients. RuntimeError before `start`."""
        if self._port is None:
            raise RuntimeError("the embedded broker has not been started")
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id of the running broker, None when it does not run."""
        return None if self._process is None else self._process.pid

    @property
    def data_dir(self) -> Path:
        """Where its data, settings and log are. RuntimeError before `start`."""
        if self._process is None:
            raise RuntimeError("the embedded broker has not been started")
        return self._process.directory

    def start(self) -> Self:
        """Start and return when clients get an answer. Raises BrokerFailed, JarsUnavailable."""
        if self._process is not None:
            raise RuntimeError("the embedded broker was started already")
        if self._kept_dir is None:
            self._scratch = Scratch("broker")
        directory = self._kept_dir if self._scratch is None else self._scratch.path
        assert directory is not None, "a directory is kept, or it is scratch"
        self._process = BrokerProcess(directory)
        try:
            self._start(self._process)
        except BaseException as error:
            self.stop()
            if isinstance(error, OSError):
                raise BrokerFailed(f"The broker cannot use {directory}: {error}") from error
            raise
        return self

    def stop(self) -> None:
        """End the broker. It ends cleanly if its data are kept, and by force if that takes too
        long; otherwise at once, and its directory is removed."""
        process, self._process = self._process, None
        scratch, self._scratch = self._scratch, None
        if process is not None and scratch is None:
            process.stop()
        elif process is not None and scratch is not None:
            process.kill()
            scratch.remove()
        self._port = None

    def _start(self, process: BrokerProcess) -> None:
        for attempt in range(1, PORT_ATTEMPTS + 1):
            port, controller_port = _ports(self._wanted_port)
            process.launch(self._server_properties(port, controller_port))
            failure = process.wait_answering(f"{HOST}:{port}", self._options)
            if failure is None:
                self._port = port
                return
            taken = process.pid is None and "Address already in use" in process.output
            if not taken or self._wanted_port or attempt == PORT_ATTEMPTS:
                raise process.failure(failure)

    def _server_properties(self, port: int, controller_port: int) -> dict[str, str]:
        ours = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{controller_port}",
            "listeners": f"CLIENT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"CLIENT://{HOST}:{port}",
            "listener.security.protocol.map": f"CLIENT:{self._protocol},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "CLIENT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": DATA,
        }
        return SMALL | replication_properties(1, 1) | self._properties | ours

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


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
