"""Simulates nodes over real topics: they register, beat, fall silent and come back.

The demo, the tests and the load tests drive the reconciler with a `Fleet`; the counterpart that
carries its moves out is `streaming.simulator.executor`.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import orjson

from placement.wording import format_count
from schemas.envelope import Headers, encode_headers
from schemas.topics import NODES, full_name
from streaming.brokers import make_producer
from streaming.errors import StreamingError
from streaming.simulator.executor import Executor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from confluent_kafka import KafkaError, Message

    from streaming.brokers import Reachability

__all__ = ["Executor", "Fleet", "FleetNode"]

# Between two looks at who is due: 20,000 beats a second are then 100 at a time.
PACE_SECONDS = 0.005
# Beats travel together for so long; far below any timeout, and a tenth of the requests.
LINGER_MS = 5
# What is still unsent after so long will not be: the broker has gone.
FLUSH_TIMEOUT_SECONDS = 30.0
# How long one look at the client's delivery reports waits.
POLL_SECONDS = 0.05
# A full queue of the client is given so long to drain before a beat is tried again.
QUEUE_FULL_WAIT_SECONDS = 0.01


@dataclass(frozen=True)
class FleetNode:
    """Describes a simulated node as it registers."""

    node_id: str
    location: str
    host: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    weight: float = 1.0
    capacity: int | None = None
    leader: bool = True
    capacities: Mapping[str, int] | None = None


class _NodeProcess:
    """A node's present: which life it is in, how far it has counted, whether it beats."""

    def __init__(self, node: FleetNode) -> None:
        self.node = node
        self.location = node.location
        self.alive = True
        self.begin(uuid.uuid4().hex)

    def begin(self, incarnation: str) -> None:
        """Start a life, which counts its messages anew; everything about a beat but its number is
        worked out once."""
        self.sequence = 0
        self.incarnation = incarnation
        self.key = self.node.node_id.encode()
        body = orjson.dumps({"node_id": self.node.node_id, "incarnation": incarnation})
        self.beat_start = body[:-1] + b',"sequence":'
        self.beat_id = f"{self.node.node_id}:{incarnation}:".encode()
        # A beat carries no time of its own: the broker's append time is what counts.
        self.beat_headers = [
            (name, value)
            for name, value in encode_headers(
                "NodeHeartbeat", cell="fleet", id="-", subject=self.node.node_id, time_ms=0
            )
            if name not in ("ce_id", "ce_time")
        ]

    def beat(self) -> tuple[bytes, list[tuple[str, bytes | None]]]:
        """Value and headers of the next heartbeat."""
        self.sequence += 1
        number = b"%d" % self.sequence
        return (
            self.beat_start + number + b"}",
            [*self.beat_headers, ("ce_id", self.beat_id + number)],
        )


class _Receipt:
    """Notes the delivery of a record, or of the last one of many."""

    def __init__(self) -> None:
        self.delivered = False
        self.error = ""

    def __call__(self, error: KafkaError | None, _: Message) -> None:
        self.delivered = True
        if error is not None:
            self.error = error.str()


class Fleet:
    """Nodes that register at `start` and beat once in `heartbeat_interval_seconds` each.

    One thread sends all heartbeats, spread evenly over the interval; 10,000 nodes at 20,000 beats
    a second are within its reach. All methods may be called from any thread. Raises
    BrokerUnreachable when it is made, StreamingError when records cannot be delivered.
    """

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        nodes: Sequence[FleetNode],
        heartbeat_interval_seconds: float = 1.0,
        *,
        options: Mapping[str, str] | None = None,
        reachability: Reachability | None = None,
    ) -> None:
        if heartbeat_interval_seconds <= 0 or not nodes:
            raise ValueError("a fleet needs nodes and a positive heartbeat interval")
        self._topic = full_name(NODES, prefix)
        self._interval_seconds = heartbeat_interval_seconds
        self._lives = {node.node_id: _NodeProcess(node) for node in nodes}
        if len(self._lives) != len(nodes):
            raise ValueError("every node of a fleet needs an id of its own")
        self._producer = make_producer(bootstrap, options, LINGER_MS, reachability)
        self._reachability = reachability
        # Numbers a node's records and puts them in the queue in one step, so that their order in
        # the log is the order of their sequences.
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fleet-heartbeats", daemon=True)
        self._failure: BaseException | None = None
        self._beats = _Receipt()
        self.heartbeats_sent = 0

    @property
    def node_ids(self) -> list[str]:
        """All nodes, also those that are dead, in the order in which they were given."""
        return list(self._lives)

    @property
    def alive(self) -> list[str]:
        """The nodes that beat."""
        return [node_id for node_id, life in self._lives.items() if life.alive]

    def can_serve(self, node_id: str) -> bool:
        """Return whether a copy can go to the node: a node of this fleet has to beat."""
        life = self._lives.get(node_id)
        return life is None or life.alive

    def location(self, node_id: str) -> str:
        """Where the node stands now."""
        return self._lives[node_id].location

    def start(self) -> None:
        """Register all nodes and begin to beat; returns when the registrations are in the log."""
        receipts = [self._register(life) for life in self._lives.values()]
        self._flush()
        for receipt in receipts:
            self._await(receipt)
        self._thread.start()

    def kill(self, node_id: str) -> None:
        """Silence: the node says nothing any more, not even goodbye."""
        with self._lock:
            self._lives[node_id].alive = False

    def stop(self, node_id: str) -> None:
        """The node's process ends to be started again, and says so with its last heartbeat."""
        life = self._lives[node_id]
        with self._lock:
            life.alive = False
        self._await(self._send(life, "NodeHeartbeat", {"stopping": True}))

    def kill_domain(self, domain: str) -> list[str]:
        """Silence all nodes in the domain (`/z1/r1`); returns those that were alive."""
        inside = [
            node_id
            for node_id in self.alive
            if f"{self._lives[node_id].location}/".startswith(f"{domain.rstrip('/')}/")
        ]
        for node_id in inside:
            self.kill(node_id)
        return inside

    def revive(self, node_id: str, *, same_incarnation: bool = False) -> None:
        """The node is back and registers, as a new incarnation unless it is the old process.

        `same_incarnation` is the end of a network fault: the process never stopped.
        """
        life = self._lives[node_id]
        with self._lock:
            if not same_incarnation:
                life.begin(uuid.uuid4().hex)
            life.alive = True
        self._await(self._register(life))

    def relocate(self, node_id: str, location: str) -> None:
        """The node stands elsewhere from now on, and says so if it is alive."""
        life = self._lives[node_id]
        with self._lock:
            life.location = location
            alive = life.alive
        if alive:
            self._await(self._send(life, "NodeLocalityChanged", {"location": location}))

    def unregister(self, node_id: str) -> None:
        """The node leaves for good, and says so."""
        life = self._lives[node_id]
        with self._lock:
            life.alive = False
        self._await(self._send(life, "NodeUnregistered", {}))

    def join(self, node: FleetNode) -> None:
        """A node comes to the fleet, or one that had left comes back, as a new process."""
        with self._lock:
            life = self._lives.get(node.node_id)
            if life is None:
                # A new dictionary: the beating thread may be going through the old one.
                life = _NodeProcess(node)
                self._lives = {**self._lives, node.node_id: life}
            else:
                life.begin(uuid.uuid4().hex)
            life.location, life.alive = node.location, True
        self._await(self._register(life))

    def close(self) -> None:
        """Stop beating and leave; the nodes fall silent. Raises what went wrong meanwhile."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure
        self._flush()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _register(self, life: _NodeProcess) -> _Receipt:
        node = life.node
        said = {
            "location": life.location,
            "host": node.host,
            "tags": dict(node.tags) or None,
            "weight": node.weight,
            "capacity": node.capacity,
            "leader": node.leader,
            "capacities": None if node.capacities is None else dict(node.capacities),
        }
        return self._send(life, "NodeRegistered", {k: v for k, v in said.items() if v is not None})

    def _send(self, life: _NodeProcess, message: str, fields: Mapping[str, Any]) -> _Receipt:
        node_id = life.node.node_id
        receipt = _Receipt()
        with self._lock:
            life.sequence += 1
            who = {
                "node_id": node_id,
                "incarnation": life.incarnation,
                "sequence": life.sequence,
            }
            headers = encode_headers(
                message,
                cell="fleet",
                id=f"{node_id}:{life.incarnation}:{life.sequence}",
                subject=node_id,
                time_ms=time.time_ns() // 1_000_000,
            )
            self._produce(life.key, orjson.dumps(who | dict(fields)), headers, receipt)
        return receipt

    def _await(self, receipt: _Receipt) -> None:
        """Wait until one record is in the log.

        Not with `flush`, which waits for an empty queue: under a steady fire of beats there is
        never one.
        """
        deadline = time.monotonic() + FLUSH_TIMEOUT_SECONDS
        while not receipt.delivered and time.monotonic() < deadline:
            self._producer.poll(POLL_SECONDS)
        if not receipt.delivered or receipt.error:
            raise StreamingError(
                f"a node's record does not reach the broker: {receipt.error or 'no answer'}"
            )

    def _run(self) -> None:
        try:
            self._beat_until_stopped()
        except BaseException as error:  # noqa: BLE001 - shown by close(), in the caller's thread
            self._failure = error

    def _beat_until_stopped(self) -> None:
        lives: list[_NodeProcess] = []
        started, done = time.monotonic(), 0
        while not self._stopping.wait(PACE_SECONDS):
            if len(lives) != len(self._lives):
                lives, started, done = list(self._lives.values()), time.monotonic(), 0
            due = int((time.monotonic() - started) * len(lives) / self._interval_seconds)
            # After a pause of the machine everyone beats once, not once for each missed interval.
            done = max(done, due - len(lives))
            with self._lock:
                self._beat(lives[number % len(lives)] for number in range(done, due))
            done = due
            self._poll(0)

    def _beat(self, lives: Iterable[_NodeProcess]) -> None:
        for life in lives:
            if life.alive:
                self._produce(life.key, *life.beat(), self._beats)
                self.heartbeats_sent += 1

    def _produce(self, key: bytes, value: bytes, headers: Headers, receipt: _Receipt) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic, value, key, headers=[*headers], on_delivery=receipt
                )
            except BufferError:
                # Waiting here slows the fleet down to what the broker takes.
                self._poll(QUEUE_FULL_WAIT_SECONDS)
            else:
                return

    def _poll(self, seconds: float) -> None:
        self._producer.poll(seconds)
        if self._reachability is not None:
            self._reachability.look(self._producer)

    def _flush(self) -> None:
        unsent = self._producer.flush(FLUSH_TIMEOUT_SECONDS)
        if unsent or self._beats.error:
            reason = self._beats.error or format_count(unsent, "record waits", "records wait")
            raise StreamingError(f"the fleet's records do not reach the broker: {reason}")
