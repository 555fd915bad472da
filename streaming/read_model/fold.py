"""Folds records of the published topics into the last value of each key, shards as columns.

The core of the read model: no clock, thread or broker. Reading JSON and applying it are two steps,
so that only the second one keeps readers waiting.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from placement.model import NodeView, natural_key
from placement.topology import Topology
from schemas.topics import (
    ALERTS,
    ASSIGNMENTS,
    COMMITS,
    DECISIONS,
    MEMORY,
    MOVES,
    SHARD_LOADS,
    TOPOLOGY,
    VIOLATIONS,
    full_name,
)
from streaming import codec
from streaming.brokers import RecordBytes
from streaming.errors import StreamingError
from streaming.live import ALERTS_KEPT, StateRecords
from streaming.read_model.changes import Changed
from streaming.read_model.load_columns import LoadColumns
from streaming.read_model.shard_columns import ShardColumns

Body = Mapping[str, Any]

# By topic what a change of it is called; the marker is no change by itself.
KINDS = {
    DECISIONS: "streams",
    ASSIGNMENTS: "shards",
    TOPOLOGY: "nodes",
    MOVES: "moves",
    VIOLATIONS: "violations",
    MEMORY: "memory",
    SHARD_LOADS: "loads",
    ALERTS: "alerts",
}
_BY_SHARD = (ASSIGNMENTS, SHARD_LOADS)


class RecordUnreadable(StreamingError):
    """A record on our topics is none that this version can read."""


@dataclass(slots=True)
class ParsedRecords:
    """Records that were read and not applied yet: the last value of each key by topic, None for a
    tombstone; alerts all of them; assignments and loads by stream and shard as well."""

    by_key: dict[str, dict[str, Body | None]] = field(default_factory=dict)
    by_shard: dict[str, dict[str, dict[int, Body | None]]] = field(default_factory=dict)
    alerts: list[Body] = field(default_factory=list)
    views: dict[str, NodeView | None] = field(default_factory=dict)

    def changed(self) -> Changed:
        """Name what the records change, by kind."""
        found = {KINDS[topic]: list(keys) for topic, keys in self.by_key.items() if topic in KINDS}
        for topic, streams in self.by_shard.items():
            found[KINDS[topic]] = [f"{name}/{shard}" for name in streams for shard in streams[name]]
        if self.alerts:
            found[KINDS[ALERTS]] = [f"{each['kind']}:{each['subject']}" for each in self.alerts]
        return found


def parse_records(records: Iterable[RecordBytes], prefix: str) -> ParsedRecords:
    """Read records in their order. Raises RecordUnreadable."""
    parsed = ParsedRecords()
    for record in records:
        try:
            _parse_into(parsed, record)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise RecordUnreadable(
                f"{full_name(record.topic, prefix)}-{record.partition} offset {record.offset}: "
                f"this version cannot read the record: {error!r}; see: placer doctor"
            ) from error
    return parsed


def _parse_into(parsed: ParsedRecords, record: RecordBytes) -> None:
    topic, value = record.topic, record.value
    body = None if value is None else orjson.loads(value)
    if topic in _BY_SHARD:
        if body is None:
            stream, _, number = (record.key or b"").decode().rpartition("/")
            shard = int(number)
        else:
            stream, shard = body["stream"], body["shard"]
            _check_columns(topic, body)
        parsed.by_shard.setdefault(topic, {}).setdefault(stream, {})[shard] = body
        return
    if topic == ALERTS:
        if body is not None:
            parsed.alerts.append({"kind": body["kind"], "subject": body["subject"]} | body)
        return
    key = (record.key or b"").decode()
    parsed.by_key.setdefault(topic, {})[key] = body
    if topic == TOPOLOGY:
        parsed.views[key] = None if body is None else codec.parse_node(body)


def _check_columns(topic: str, body: Body) -> None:
    """Raise where a body would not fit its columns: they are changed after all was read. A million
    pass here, hence one expression and no loop for an assignment."""
    shard = body["shard"]
    fits = type(shard) is int and shard >= 0
    if topic == ASSIGNMENTS:
        epoch = body["epoch"]
        fits = (
            fits
            and type(epoch) is int
            and epoch >= 0
            and type(body["decided_at"]) is int
            and type(body["replicas"]) is type(body["adding"]) is type(body["removing"]) is list
        )
    else:
        amounts = body["amounts"].values()
        fits = fits and type(body["at"]) is int and type(body["node_id"]) is str
        fits = fits and all(type(each) is int and each >= 0 for each in amounts)
    if not fits:
        raise ValueError("a number or list is none")


class StateSnapshot(StateRecords):
    """The records of one commit with the shards of one stream or node, or with none of them: the
    input of what `live` answers. Its values are shared with the fold and never changed."""

    def __init__(
        self,
        fold: "Fold",
        cell: str,
        prefix: str,
        levels: Sequence[str],
        assignments: Iterable[Body] = (),
        loads: Iterable[Body] = (),
    ) -> None:
        super().__init__(cell, prefix, levels)
        self.latest |= {topic: dict(values) for topic, values in fold.latest.items()}
        for topic, bodies in ((ASSIGNMENTS, assignments), (SHARD_LOADS, loads)):
            by_key = {f"{each['stream']}/{each['shard']}": dict(each) for each in bodies}
            self.latest[topic] = by_key
        self._views = fold.views
        self._counts = fold.count_replicas()
        self.alerts: list[Body] = list(fold.alerts)

    @property
    def nodes(self) -> list[NodeView]:
        """All known nodes, in the natural order of their ids."""
        return [*self._views]

    def count_replicas(self) -> tuple[Counter[str], Counter[str]]:
        """Count the replicas of all shards on each node, and those of them that lead."""
        return self._counts


class Fold:
    """The last value of each key. `latest`: bodies by topic and key, but for shards; `view_of`:
    nodes by id."""

    def __init__(self) -> None:
        topics = (DECISIONS, TOPOLOGY, MOVES, VIOLATIONS, MEMORY, COMMITS)
        self.latest: dict[str, dict[str, Body]] = {topic: {} for topic in topics}
        self.shards = ShardColumns()
        self.loads = LoadColumns()
        self.alerts: deque[Body] = deque(maxlen=ALERTS_KEPT)
        self.topology = Topology()
        self.view_of: dict[str, NodeView] = {}
        # Made again when somebody asks after a change: the order of nodes, which changes only as
        # they come and go, all nodes in it, replicas on nodes.
        self._order: list[str] | None = None
        self._views: tuple[NodeView, ...] | None = None
        self._counts: tuple[Counter[str], Counter[str]] | None = None

    def apply(self, parsed: ParsedRecords) -> None:
        """Take in what was read."""
        for topic, values in parsed.by_key.items():
            latest = self.latest[topic]
            for key, body in values.items():
                if body is None:
                    latest.pop(key, None)
                else:
                    latest[key] = body
        for node_id, view in parsed.views.items():
            self._take_node(node_id, view)
        if ASSIGNMENTS in parsed.by_shard:
            self.shards.take(parsed.by_shard[ASSIGNMENTS])
            self._counts = None
        if SHARD_LOADS in parsed.by_shard:
            self.loads.take(parsed.by_shard[SHARD_LOADS])
        self.alerts.extend(parsed.alerts)

    def _take_node(self, node_id: str, view: NodeView | None) -> None:
        self._views = None
        if (view is None) == (node_id in self.view_of):
            self._order = None
        if view is not None:
            self.view_of[node_id] = view
            condition = (view.liveness, view.administrative, view.guard)
            self.topology.upsert(node_id, view.attributes, *condition)
        elif node_id in self.view_of:
            del self.view_of[node_id]
            self.topology.forget(node_id)

    @property
    def views(self) -> tuple[NodeView, ...]:
        """All nodes, in the natural order of their ids."""
        if self._views is None:
            if self._order is None:
                self._order = sorted(self.view_of, key=natural_key)
            self._views = tuple(map(self.view_of.__getitem__, self._order))
        return self._views

    def count_replicas(self) -> tuple[Counter[str], Counter[str]]:
        """Count the replicas on each node, and those of them that lead."""
        if self._counts is None:
            self._counts = self.shards.count_replicas()
        return self._counts

    def count_asked(self, stream: str) -> int | None:
        """Return how many shards a stream is to have; None where there is no such stream."""
        decision = self.latest[DECISIONS].get(stream)
        return None if decision is None else int(decision["spec"]["shards"])

    def find_reader_nodes(self, replicas: Iterable[str]) -> list[int]:
        """Number the nodes of replicas as the topology does; those that it does not know are left
        out."""
        index = self.topology.index
        return [index[node] for node in replicas if node in index]
