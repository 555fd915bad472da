"""Speaks for a node: registers it, sends its heartbeats, reports loads, round trips and losses.

Runs inside the node's process, or beside it. What it sends is described in schemas/README.md, "A
node's agent".
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
import uuid
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import orjson

from schemas import limits
from schemas.acks import ReplicaLost
from schemas.alerts import AnswerOutcome
from schemas.inputs import (
    NodeHeartbeat,
    NodeLoadReported,
    NodeLocalityChanged,
    NodeMessage,
    NodeRegistered,
    NodeUnregistered,
)
from schemas.requests import Drain
from schemas.topics import ACKS, ANSWERS, NODE_LOADS, NODES, OPERATOR
from streaming.brokers import CommittedReader
from streaming.client.sender import NotDelivered, Sender, make_message
from streaming.errors import AccessRefused, StreamingError
from streaming.signals import StopEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LOG = logging.getLogger("streaming.client")
# A fifth of the shortest sensible `liveness.suspect_after_seconds`, and cheap.
HEARTBEAT_INTERVAL_SECONDS = 1.0
# Room for the other fields of a report of loads, whose ids have 249 characters at most.
REPORT_BYTES_MAX = limits.LOAD_RECORD_BYTES_MAX - 16 * 1024
POLL_SECONDS = 0.2
# With more records that no broker has confirmed a heartbeat is left out: while brokers are away
# they would pile up, and say nothing new when they arrive.
UNCONFIRMED_MAX = 10


class NodeIdTaken(StreamingError):
    """Another process speaks for the node: it holds the lock of the state file."""


class DrainRefused(StreamingError):
    """The node is not drained: the request was refused, or has not ended in time."""


class NodeAgent:
    """Is one life of a node, from `start` to `stop` or `leave`.

    `state_file` keeps the incarnation from one life to the next, so that the next one takes over at
    once, and a lock, so that there is one at a time. Safe for threads. Raises BrokerUnreachable,
    AccessRefused or ConnectionUntrusted when it is made, NodeIdTaken when it starts.
    """

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        node_id: str,
        state_file: Path | str,
        attributes: Mapping[str, Any] | None = None,
        *,
        heartbeat_interval_seconds: float = HEARTBEAT_INTERVAL_SECONDS,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`attributes`: further fields of NodeRegistered, such as `location` and `capacity`."""
        self._bootstrap, self._prefix, self._options = bootstrap, prefix, options
        self.node_id, self.incarnation = node_id, uuid.uuid4().hex
        self._attributes = dict(attributes or {})
        self._path = Path(state_file)
        self._interval_seconds = heartbeat_interval_seconds
        self._sender = Sender(bootstrap, prefix, "node-agent", options)
        # Numbers a record and puts it in the queue in one step: its place in the log is its number.
        self._lock = threading.Lock()
        self._sequence = self._load_sequence = 0
        self._round_trips: Mapping[str, float | None] | None = None
        self._held: IO[bytes] | None = None
        self._stopping = threading.Event()
        self._has_ended = False
        self._thread = threading.Thread(target=self._beat, name=f"node-{node_id}", daemon=True)

    def start(self) -> None:
        """Register, and begin to send heartbeats. Returns when the registration is in the log.
        Raises NodeIdTaken, MessageRefused, AccessRefused, NotDelivered; after the last one it can
        be called again."""
        earlier = self._take_over()
        try:
            self._say(NodeRegistered, {**self._attributes, "replaces": earlier})
            self._sender.flush()
            self._remember()
            self._thread.start()
        except BaseException:
            self._release()
            raise
        LOG.info("node %s is registered as incarnation %s", self.node_id, self.incarnation)

    def stop(self) -> None:
        """End this life; the process comes back. Its next life takes over as soon as it
        registers.

        Raises NotDelivered: the life has ended, and its state file is free; called again, it waits
        again for what is not delivered.
        """
        self._end(NodeHeartbeat, {"stopping": True})

    def leave(self) -> None:
        """Leave for good: what the node holds is replaced at once. Raises NotDelivered, as
        `stop`."""
        self._end(NodeUnregistered, {})

    def drain(self, timeout_seconds: float) -> None:
        """Have all replicas moved off the node, and wait until it is empty; `leave` is then without
        loss. Needs the rights of operators. Raises DrainRefused."""
        with CommittedReader(
            self._bootstrap, self._prefix, [ANSWERS], from_beginning=False, options=self._options
        ) as reader:
            deadline = time.monotonic() + timeout_seconds
            agreed, asked = None, self._ask_drain(None)
            while time.monotonic() < deadline:
                for record in reader.poll(POLL_SECONDS):
                    answer = record.value or {}
                    if answer.get("request_id") != asked:
                        continue
                    impact = answer.get("impact_hash")
                    if answer["outcome"] == AnswerOutcome.DONE:
                        return
                    if answer["outcome"] != AnswerOutcome.REFUSED:
                        continue
                    if impact is None or agreed == impact:
                        raise DrainRefused(f"{self.node_id}: {answer['reason']['message']}")
                    agreed, asked = impact, self._ask_drain(impact)
        raise DrainRefused(
            f"{self.node_id} is not empty after {timeout_seconds:g} s: its moves go on; look at "
            "what blocks them with placer status, and wait longer"
        )

    def serve(self, drain_timeout_seconds: float | None = None) -> None:
        """Run until SIGINT or SIGTERM: the whole main program of an agent beside its node. To be
        called in the main thread.

        With `drain_timeout_seconds` the node is drained then, and leaves once it is empty; where
        that is refused or takes longer, it stops as for a restart and DrainRefused is raised.
        """
        asked = StopEvent()
        asked.set_on_signals()
        with self:
            asked.wait()
            if drain_timeout_seconds is not None:
                self.drain(drain_timeout_seconds)
                self.leave()

    def report_round_trips(self, round_trips_ms: Mapping[str, float | None]) -> None:
        """Report round trips to other locations with the next heartbeat, in ms by location; None
        where nothing answered. Once a minute is plenty."""
        with self._lock:
            self._round_trips = dict(round_trips_ms)

    def report_loads(
        self, shards: Sequence[Mapping[str, Any]], capacities: Mapping[str, int] | None = None
    ) -> None:
        """Report what shards use of the node: `stream`, `shard` and an amount by resource each, in
        as many records as it takes. Raises MessageRefused."""
        for chunk in _chunks(shards):
            with self._lock:
                self._load_sequence += 1
                fields = {
                    "sequence": self._load_sequence,
                    "shards": chunk,
                    "capacities": capacities,
                }
                self._sender.send(NODE_LOADS, make_message(NodeLoadReported, self._who() | fields))

    def report_lost(self, stream: str, shard: int, reason: str, uid: str | None = None) -> None:
        """Report that the node's replica of a shard is gone: another copy is made. Needs the rights
        of executors. Raises MessageRefused."""
        fields = {"stream": stream, "shard": shard, "reason": reason, "uid": uid}
        self._sender.send(ACKS, make_message(ReplicaLost, {**fields, "node_id": self.node_id}))

    def relocate(self, location: str, tags: Mapping[str, str] | None = None) -> None:
        """Report that the node stands elsewhere from now on. Raises MessageRefused."""
        self._say(NodeLocalityChanged, {"location": location, "tags": tags})

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # What the block itself has awaited in vain is not awaited once more.
        if not (self._has_ended and kind is NotDelivered):
            self.stop()

    def _who(self) -> dict[str, Any]:
        return {"node_id": self.node_id, "incarnation": self.incarnation}

    def _say(self, kind: type[NodeMessage], fields: Mapping[str, Any]) -> None:
        with self._lock:
            self._sequence += 1
            message = make_message(kind, {**self._who(), "sequence": self._sequence, **fields})
            identity = f"{self.node_id}:{self.incarnation}:{self._sequence}"
            self._sender.send(NODES, message, identity)

    def _ask_drain(self, impact_hash: str | None) -> str:
        """Ask for a drain; returns the request's id."""
        request_id = uuid.uuid4().hex
        fields = {"target": self.node_id, "request_id": request_id, "reason": "asked by its agent"}
        message = make_message(Drain, {**fields, "expected_impact_hash": impact_hash})
        self._sender.send(OPERATOR, message, request_id)
        self._sender.flush()
        return request_id

    def _beat(self) -> None:
        is_late = False
        while not self._stopping.wait(self._interval_seconds):
            try:
                self._sender.poll()
                was_late, is_late = is_late, self._sender.unconfirmed > UNCONFIRMED_MAX
                if is_late:
                    if not was_late:
                        LOG.warning("no broker confirms what node %s says", self.node_id)
                    continue
                with self._lock:
                    measured, self._round_trips = self._round_trips, None
                self._say(NodeHeartbeat, {"rtt_ms": measured})
            except AccessRefused as error:
                # Told once; stop and leave raise it, too.
                LOG.error("no more heartbeats of %s: %s", self.node_id, error)
                return
            except StreamingError:
                LOG.exception("a heartbeat of %s was not sent", self.node_id)

    def _end(self, kind: type[NodeMessage], fields: Mapping[str, Any]) -> None:
        """Send the last message of this life."""
        self._stopping.set()
        try:
            if self._thread.ident is not None and not self._has_ended:
                self._thread.join()
                self._say(kind, fields)
                self._has_ended = True
            self._sender.flush()
        finally:
            # It says nothing new from now on. What still arrives of it cannot harm a next life.
            self._release()

    def _release(self) -> None:
        """Unlock the state file."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def _take_over(self) -> str | None:
        """Lock the state file; returns the incarnation of the life before this one."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        held = self._path.open("a+b")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            held.close()
            raise NodeIdTaken(
                f"another process holds {self._path} and speaks for node {self.node_id}; end it, "
                "or give this one a node id and a state file of its own"
            ) from error
        held.seek(0)
        try:
            state = orjson.loads(held.read() or b"{}")
        except orjson.JSONDecodeError:
            # A life that ended while it wrote: the next one waits out the silence of the earlier.
            LOG.warning("%s cannot be read and is written anew", self._path)
            state = {}
        if state.get("node_id", self.node_id) != self.node_id:
            held.close()
            raise NodeIdTaken(
                f"{self._path} belongs to node {state['node_id']}, not {self.node_id}; give each "
                "node a state file of its own"
            )
        self._held = held
        found: str | None = state.get("incarnation")
        return found

    def _remember(self) -> None:
        assert self._held is not None
        self._held.truncate(0)
        self._held.write(orjson.dumps(self._who()))
        self._held.flush()
        os.fsync(self._held.fileno())


def _chunks(shards: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Cut a report into parts of which each fits into a record."""
    part: list[Mapping[str, Any]] = []
    size = 0
    for shard in shards:
        needed = len(orjson.dumps(dict(shard))) + 1
        if part and size + needed > REPORT_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(shard)
        size += needed
    if part:
        yield part
