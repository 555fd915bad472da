"""The published state of a cell in memory, always that of one whole commit.

One thread takes commits in (`follower`), any number of others ask. Each answer comes with the
marker at which it is true; how stale the model is, it says itself.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.cluster import ClusterClient
from schemas.topics import COMMITS, DECISIONS
from streaming.brokers import RecordBytes
from streaming.errors import StreamingError
from streaming.offline import choose_replica, locate_reader
from streaming.read_model.changes import Change, ChangeLog, Listener, Marker
from streaming.read_model.fold import Fold, StateSnapshot, parse_records
from streaming.read_model.shard_pages import ShardPage, ShardQuery, judge_shards, select_shards


def model_of_records(
    cell: str, levels: Sequence[str], records: Iterable[RecordBytes]
) -> "ReadModel":
    """A model of records that are all there is: none follow, and it does not grow stale. Raises
    RecordUnreadable."""
    model, fold = ReadModel(cell, "", levels, clock=lambda: 0.0), Fold()
    fold.apply(parse_records(records, ""))
    model.begin(fold, 0.0)
    return model


class NotReady(StreamingError):
    """The model holds no commit yet: the topics are being read, or nothing was committed."""


@dataclass(frozen=True, slots=True)
class ShardFound:
    """What is known of a shard. `assignment` is None where it has none; `shards`: how many the
    stream has, None where there is no stream of the name."""

    assignment: dict[str, Any] | None
    load: dict[str, Any] | None
    shards: int | None


class ReadModel:
    """The state as of the last whole commit that was taken in."""

    def __init__(
        self,
        cell: str,
        prefix: str,
        levels: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`levels`: the tiers' names until a commit says which the reconciler has; `clock`:
        seconds, which only rise."""
        self.cell, self.prefix = cell, prefix
        self._levels, self._clock = tuple(levels), clock
        self._lock = threading.Lock()
        self._fold = Fold()
        self._marker: Marker | None = None
        self._version = 0
        self._log = ChangeLog(0)
        self._confirmed_at: float | None = None
        self._fault: str | None = None
        self._listeners: list[Listener] = []

    # Taken in by one thread.

    def begin(self, fold: Fold, read_at: float) -> None:
        """Begin with a state that was read from the beginning of the topics, at the clock's
        `read_at`. What was there before is forgotten."""
        with self._lock:
            self._fold = fold
            self._version += 1
            body = fold.latest[COMMITS].get(self.cell)
            self._marker = None if body is None else Marker.of(body)
            self._log = ChangeLog(0 if self._marker is None else self._marker.sequence)
            self._confirmed_at, self._fault = read_at, None

    def commit(self, records: Iterable[RecordBytes]) -> None:
        """Take in the records of whole commits, which become visible together. Raises
        RecordUnreadable, and then nothing of them is visible."""
        parsed = parse_records(records, self.prefix)
        changed = {kind: keys for kind, keys in parsed.changed().items() if keys}
        with self._lock:
            self._fold.apply(parsed)
            body = self._fold.latest[COMMITS].get(self.cell)
            if body is None:
                return
            self._marker = Marker.of(body)
            change = Change.of(self._marker, changed, parsed.alerts)
            if changed:
                self._version += 1
                self._log.append(change)
            listeners = [*self._listeners]
        for listener in listeners:
            listener(change)

    def confirm(self, read_at: float) -> None:
        """Note that the topics held nothing else at the clock's `read_at`."""
        with self._lock:
            self._confirmed_at, self._fault = read_at, None

    def note_fault(self, message: str) -> None:
        """Note why the topics cannot be read at present."""
        with self._lock:
            self._fault = message

    # Asked by all.

    @property
    def stale_seconds(self) -> float | None:
        """Seconds since the model was known to hold all that was committed; None before it was
        read."""
        at = self._confirmed_at
        return None if at is None else max(self._clock() - at, 0.0)

    @property
    def fault(self) -> str | None:
        """Why the topics cannot be read at present, as a sentence; None while they can."""
        return self._fault

    @property
    def version(self) -> int:
        """A number that rises with each commit that changes something besides the marker."""
        return self._version

    @property
    def marker(self) -> Marker:
        """The commit that the model holds. Raises NotReady."""
        marker = self._marker
        if marker is not None:
            return marker
        if self._confirmed_at is None:
            why = f": {self._fault}" if self._fault else ""
            raise NotReady(f"the topics under '{self.prefix}' are being read{why}; try again soon")
        raise NotReady(
            f"no reconciler of cell '{self.cell}' has committed anything under '{self.prefix}'; "
            "start one with: placer run"
        )

    def find_shard(self, stream: str, shard: int) -> tuple[Marker, ShardFound]:
        """Find what is known of a shard. Raises NotReady."""
        marker, (found,) = self.find_shards([(stream, shard)])
        return marker, found

    def find_shards(self, wanted: Iterable[tuple[str, int]]) -> tuple[Marker, list[ShardFound]]:
        """Find shards by stream and number, all at one commit. Raises NotReady."""
        with self._lock:
            fold, marker = self._fold, self.marker
            return marker, [
                ShardFound(
                    fold.shards.body(stream, shard),
                    fold.loads.body(stream, shard),
                    fold.count_asked(stream),
                )
                for stream, shard in wanted
            ]

    def find_epoch(self, stream: str, shard: int) -> int | None:
        """Return the epoch of a shard; None where it has no assignment."""
        with self._lock:
            return self._fold.shards.epoch(stream, shard)

    def choose(
        self, client: ClusterClient, stream: str, shard: int, exact: bool
    ) -> tuple[Marker, ShardFound, str | None, str]:
        """Choose the replica of a shard that a client should read from: its node, None where there
        is none, and why. `exact`: only an equal location counts (KIP-392). Raises NotReady."""
        with self._lock:
            fold, marker = self._fold, self.marker
            found = ShardFound(fold.shards.body(stream, shard), None, fold.count_asked(stream))
            if found.assignment is None:
                return marker, found, None, f"{stream}/{shard} is not placed"
            topology = fold.topology
            who = locate_reader(client, topology)
            replicas = fold.find_reader_nodes(found.assignment["replicas"])
            choice = choose_replica(who, replicas, topology, client.replica_state, exact)
            node = None if choice.node is None else topology.ids[choice.node]
            return marker, found, node, choice.reason

    def take_snapshot(
        self, stream: str | None = None, node: str | None = None, whole: bool = False
    ) -> tuple[Marker, StateSnapshot]:
        """Copy the records of the last commit, with the assignments of one stream, of the shards
        on one node, or of all (`whole`: a kilobyte each), else with none. Raises NotReady."""
        with self._lock:
            fold, marker = self._fold, self.marker
            at = (fold, self.cell, self.prefix, self._levels)
            if whole:
                names = [*fold.latest[DECISIONS]]
                shards = (body for name in names for body in fold.shards.bodies(name))
                loads = (body for name in names for body in fold.loads.bodies(name))
                return marker, StateSnapshot(*at, shards, loads)
            if stream is not None:
                bodies = fold.shards.bodies(stream), fold.loads.bodies(stream)
                return marker, StateSnapshot(*at, *bodies)
            here = {} if node is None else fold.shards.shards_on(node)
            found = (fold.shards.body(name, n) for name, shards in here.items() for n in shards)
            return marker, StateSnapshot(*at, [body for body in found if body is not None])

    def judge_shards(self) -> dict[str, NDArray[np.int8]]:
        """Judge the shards of all streams in force, by stream: places in `RUNGS`."""
        with self._lock:
            return judge_shards(self._fold)

    def count_replicas(self, stream: str) -> tuple[Counter[str], Counter[str]]:
        """Count the replicas of a stream on each node, and those of them that lead."""
        with self._lock:
            return self._fold.shards.count_replicas(stream)

    def select_shards(self, stream: str, judged: NDArray[np.int8], query: ShardQuery) -> ShardPage:
        """Find a page of a stream's shards. `judged`: of the stream, by `judge_shards`."""
        with self._lock:
            return select_shards(self._fold, stream, judged, query)

    def changes_after(self, sequence: int) -> list[Change] | None:
        """List the changes behind a commit; None where they are not known any more. Raises
        NotReady."""
        with self._lock:
            return self._log.changes_after(sequence, self.marker.sequence)

    def count_shards(self) -> int:
        """Count the shards that have an assignment."""
        with self._lock:
            return self._fold.shards.count_shards()

    def listen(self, listener: Listener) -> None:
        """Call `listener` after each commit, in the thread that takes it in."""
        with self._lock:
            self._listeners.append(listener)
