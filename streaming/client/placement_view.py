"""Follows where replicas are, for programs that read or write streams.

A thread reads `assignments.v1`, `decisions.v1` and `topology.v1` to their ends, and then what is
committed; questions are answered from memory.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from placement.model import Location, Reason, parse_location
from placement.replica_selector import Client, select_nearest
from schemas.topics import ASSIGNMENTS, DECISIONS, TOPOLOGY
from streaming.brokers import CommittedReader, Reachability
from streaming.client import metrics
from streaming.client.moves import ShardId, parse_shard_key
from streaming.client.node_table import NodeTable
from streaming.client.shard_table import ShardTable
from streaming.errors import StreamingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.brokers import Record

LOG = logging.getLogger("streaming.client")
# How long the thread waits for records before it looks whether it is to stop.
POLL_SECONDS = 0.1


class EpochAwaited(StreamingError):
    """An epoch has not been published in time; the text names the one that is."""


class LocationMalformed(StreamingError):
    """A location is not of the form `/eu/az1/rack7`."""


class Change(NamedTuple):
    """What has changed of a shard. `epoch` is None, and there are no replicas, where it is gone.
    `adding` and `removing` are set while a move is open: a leader that replicates needs them."""

    shard_id: ShardId
    epoch: int | None
    replicas: tuple[str, ...]
    adding: tuple[str, ...] = ()
    removing: tuple[str, ...] = ()


class Nearest(NamedTuple):
    """The replica to read from, None where none lives, and why."""

    node_id: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class ViewFreshness:
    """Says how fresh the answers are. `is_complete`: everything that was there at the start is
    read. `age_seconds`: since a broker was last known to answer; changes since then are not seen.
    `newest_record_ms`: append time of the newest record, in ms since the epoch, 0 without one."""

    is_complete: bool
    age_seconds: float
    newest_record_ms: int


class PlacementView:
    """Knows the replicas of every shard, the decisions on streams, and the nodes.

    Safe for threads. It follows the topics between `start` and `close`; connections that are lost
    are made again, and meanwhile the last answers stand (`freshness` tells). Raises
    BrokerUnreachable, TopicMissing or AccessRefused when it is made.
    """

    def __init__(
        self, bootstrap: str, prefix: str, options: Mapping[str, str] | None = None
    ) -> None:
        self._reachability = Reachability(bootstrap, LOG.warning)
        self._reader = CommittedReader(
            bootstrap,
            prefix,
            [TOPOLOGY, DECISIONS, ASSIGNMENTS],
            options=options,
            reachability=self._reachability,
        )
        self._changed = threading.Condition()
        self._table, self._nodes = ShardTable(), NodeTable()
        self._decisions: dict[str, dict[str, Any]] = {}
        self._callbacks: list[Callable[[Change], None]] = []
        self._is_complete = False
        self._contact = time.monotonic()
        self._newest_record_ms = 0
        self._closing = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="placement-view", daemon=True)

    def start(self) -> None:
        """Begin to follow; `wait_complete` tells when all that is there is read."""
        self._thread.start()

    def wait_complete(self, timeout_seconds: float) -> bool:
        """Wait until everything that was there at the start is read; returns whether it is. Raises
        what ended the thread."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_complete or self._failure, timeout_seconds)
        self._raise_failure()
        return self._is_complete

    def on_change(self, callback: Callable[[Change], None]) -> None:
        """Call back with each change of a shard from now on, in the view's thread: be quick. What a
        callback raises is logged. One that is given before the start sees all shards."""
        self._callbacks.append(callback)

    def replicas(self, stream: str, shard: int) -> tuple[str, ...]:
        """Return the nodes that hold a shard, leader first; none where it is not known."""
        with self._changed:
            return self._table.replicas(stream, shard)

    def leader(self, stream: str, shard: int) -> str | None:
        """Return the node that leads a shard; None where it is not known."""
        return next(iter(self.replicas(stream, shard)), None)

    def epoch(self, stream: str, shard: int) -> int | None:
        """Return the epoch of a shard's assignment; None where it is not known."""
        with self._changed:
            return self._table.epoch(stream, shard)

    def shards(self, stream: str) -> list[int]:
        """Return the numbers of a stream's shards that are assigned, rising."""
        with self._changed:
            return self._table.shards(stream)

    def decision(self, stream: str) -> Mapping[str, Any] | None:
        """Return the last decision on a stream, as its record has it; None where there is none."""
        with self._changed:
            return self._decisions.get(stream)

    def host(self, node_id: str) -> str | None:
        """Return where a node is reached, as it has registered it; None where it is not known."""
        with self._changed:
            return self._nodes.host(node_id)

    def nearest(
        self,
        stream: str,
        shard: int,
        location: str = "",
        *,
        client: str = "",
        tags: Mapping[str, str] | None = None,
        host: str | None = None,
    ) -> Nearest:
        """Choose the replica to read from, as `placer nearest` does: the one on the client's own
        node, else that with the longest common location, else with most common tags. `client` is
        its node's id, where it stands on one. Raises LocationMalformed."""
        place = parse_location(location)
        if isinstance(place, Reason):
            raise LocationMalformed(place.message)
        assert isinstance(place, Location)
        who = Client(client, place, tuple(sorted((tags or {}).items())), host)
        with self._changed:
            nodes = self._nodes.select(self._table.replicas(stream, shard))
        choice = select_nearest(who, range(len(nodes.ids)), nodes, {})
        node_id = None if choice.node is None else nodes.ids[choice.node]
        return Nearest(node_id, choice.reason)

    def wait_for_epoch(
        self, stream: str, shard: int, epoch: int, timeout_seconds: float
    ) -> tuple[str, ...]:
        """Wait until a shard has this epoch or a higher one; returns its replicas. Raises
        EpochAwaited, and what ended the thread."""

        def is_there() -> bool:
            known = self._table.epoch(stream, shard)
            return self._failure is not None or (known is not None and known >= epoch)

        with self._changed:
            came = self._changed.wait_for(is_there, timeout_seconds)
            known, nodes = self._table.epoch(stream, shard), self._table.replicas(stream, shard)
        self._raise_failure()
        if not came:
            has = "has no assignment" if known is None else f"has epoch {known}"
            raise EpochAwaited(
                f"{stream}/{shard} {has}; {epoch} has not come within {timeout_seconds:g} s: look "
                "at its move with placer explain, or wait longer"
            )
        return nodes

    @property
    def freshness(self) -> ViewFreshness:
        """How fresh the answers are now."""
        age = time.monotonic() - self._contact
        return ViewFreshness(self._is_complete, age, self._newest_record_ms)

    @property
    def size_bytes(self) -> int:
        """Return the size of the columns of shards."""
        with self._changed:
            return self._table.size_bytes

    def close(self) -> None:
        """Stop to follow; the answers stay as they are. Raises what ended the thread."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._reader.close()
        self._raise_failure()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            for record in self._reader.records_to_end():
                if self._closing.is_set():
                    return
                self._take([record])
            with self._changed:
                self._is_complete = True
                self._changed.notify_all()
            while not self._closing.is_set():
                self._take(self._reader.poll(POLL_SECONDS))
                metrics.BROKER_AWAY.labels("view").set(self._reachability.is_away)
                metrics.VIEW_NEWEST_RECORD.set(self._newest_record_ms / 1000)
                if not self._reachability.is_away:
                    self._contact = time.monotonic()
        except BaseException as error:  # noqa: BLE001 - raised in the callers' threads
            LOG.error("the view of placements has stopped: %s", error)
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _take(self, records: list[Record]) -> None:
        changes = []
        with self._changed:
            for record in records:
                change = self._see(record)
                if change is not None:
                    changes.append(change)
            if changes and self._is_complete:
                self._changed.notify_all()
        for change in changes if self._callbacks else ():
            for callback in self._callbacks:
                try:
                    callback(change)
                except Exception:
                    LOG.exception("a callback failed on the change of %s", change.shard_id)

    def _see(self, record: Record) -> Change | None:
        """Take in a record; one that cannot be read is told and left out."""
        self._newest_record_ms = max(self._newest_record_ms, record.timestamp_ms)
        try:
            if record.topic == ASSIGNMENTS:
                return self._see_assignment(parse_shard_key(record.key or ""), record.value)
            if record.topic == DECISIONS and record.value is not None:
                self._decisions[record.key or ""] = record.value
            elif record.topic == DECISIONS:
                self._decisions.pop(record.key or "", None)
            elif record.value is not None:
                self._nodes.put(record.key or "", record.value)
            else:
                self._nodes.drop(record.key or "")
        except (KeyError, ValueError) as error:
            place = f"{record.topic} partition {record.partition} offset {record.offset}"
            LOG.error("the record at %s cannot be read and is left out: %s", place, error)
            metrics.UNREADABLE.labels(record.topic).inc()
        return None

    def _see_assignment(self, shard_id: ShardId, body: dict[str, Any] | None) -> Change | None:
        if body is None:
            return Change(shard_id, None, ()) if self._table.drop(*shard_id) else None
        nodes = body["replicas"]
        if not self._table.put(*shard_id, body["epoch"], nodes):
            return None
        moving = [(*body.get(name, ()),) for name in ("adding", "removing")]
        return Change(shard_id, body["epoch"], (*nodes,), *moving)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
