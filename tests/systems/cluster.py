"""Kafka nodes of one's own, each in a rack of its own, which can be killed and started again.

Each node is a real process with broker and controller roles; what there are several of is kept in
three copies, of which two have to be there. With `proxied` every node has a second listener for
clients, which are told to come to it through a `Proxy`. The last `idle` nodes are not started.
"""

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import psutil

from streaming.runtime.broker import HOST, SMALL, replication_properties
from streaming.runtime.broker_process import DATA, BrokerProcess, new_cluster_id
from tests.systems.proxy import Proxy

RACKS = ("r1", "r2", "r3")
# Copies of every topic in a cluster of three, and how many of them a write asks for.
REPLICATION_FACTOR, IN_SYNC_MIN = 3, 2
# A node that was killed is let in again when its session has run out, and its copies leave those
# in sync then; the defaults of 9 s and 30 s only wait.
QUICK = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1500",
}


class Node:
    """One of the cluster's nodes, on ports and in a directory that stay its own."""

    def __init__(self, directory: Path, properties: dict[str, str], address: str) -> None:
        self.directory, self.address, self.properties = directory, address, properties
        self._process = BrokerProcess(directory)

    def launch(self, cluster_id: str | None = None) -> None:
        """Start it; it answers when enough of the others do."""
        self._process.launch(self.properties, cluster_id)

    def wait_answering(self) -> None:
        """Return when clients get an answer from it."""
        failure = self._process.wait_answering(self.address, {})
        if failure is not None:
            raise self._process.failure(failure)

    @property
    def process(self) -> psutil.Process:
        """The running process."""
        assert self._process.pid is not None, self._process.output
        return psutil.Process(self._process.pid)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._process.kill()

    def stop(self) -> None:
        """End it cleanly if it runs."""
        self._process.stop()


class Cluster:
    """Nodes in racks; `bootstrap` are their addresses, `proxied` those through the proxies."""

    def __init__(
        self, scratch: Path, racks: Sequence[str] = RACKS, *, proxied: bool = False, idle: int = 0
    ):
        self._stack, self._idle = ExitStack(), idle
        self._cluster_id = new_cluster_id()
        ports = free_ports(3 * len(racks))
        clients, controllers = ports[: len(racks)], ports[len(racks) : 2 * len(racks)]
        voters = ",".join(f"{n}@{HOST}:{port}" for n, port in enumerate(controllers, start=1))
        behind = ports[2 * len(racks) :] if proxied else []
        self.proxies = [self._stack.enter_context(Proxy(HOST, port)) for port in behind]
        self.bootstrap = ",".join(f"{HOST}:{port}" for port in clients)
        self.proxied = ",".join(f"{HOST}:{proxy.port}" for proxy in self.proxies)
        self.nodes = []
        for number, rack in enumerate(racks, start=1):
            listeners = {"CLIENT": clients[number - 1], "CONTROLLER": controllers[number - 1]}
            advertised = {"CLIENT": clients[number - 1]}
            if proxied:
                listeners["PROXIED"] = behind[number - 1]
                advertised["PROXIED"] = self.proxies[number - 1].port
            properties = _properties(number, rack, listeners, advertised, len(racks))
            properties["controller.quorum.voters"] = voters
            address = f"{HOST}:{clients[number - 1]}"
            self.nodes.append(Node(scratch / f"node-{number}", properties, address))

    def __enter__(self) -> Self:
        with ExitStack() as failed:
            failed.callback(self._stack.close)
            started = self.nodes[: len(self.nodes) - self._idle]
            # The last ones would wait for a quorum; nobody reads their data.
            for node in self.nodes:
                self._stack.callback(node.kill)
            for node in started:
                node.launch(self._cluster_id)
            for node in started:
                node.wait_answering()
            failed.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, node: Node) -> None:
        """Start a node that was idle until now."""
        node.launch(self._cluster_id)
        node.wait_answering()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, all different."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]


def _properties(
    number: int, rack: str, listeners: dict[str, int], advertised: dict[str, int], nodes: int
) -> dict[str, str]:
    kept = (REPLICATION_FACTOR, IN_SYNC_MIN) if nodes >= REPLICATION_FACTOR else (1, 1)
    return (
        SMALL
        | replication_properties(*kept)
        | QUICK
        | {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "broker.rack": rack,
            "min.insync.replicas": str(kept[1]),
            "listeners": _written(listeners),
            "advertised.listeners": _written(advertised),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
            "inter.broker.listener.name": "CLIENT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": DATA,
        }
    )


def _written(listeners: dict[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items())
