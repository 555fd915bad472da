"""NodeLifecycle, the stateful operator that judges which nodes are alive.

A row-based `transformWithState` keyed by topology shard. Its state is one value, the shard's
liveness table; the pure `placement.liveness` does the work, this class only carries it. Everything
that is not about a node's condition passes through. It uses no timer and no watermark: silence is
judged at tick records.
"""

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from placement.liveness import Clock, LivenessTable, Timers, Verdict
from placement.model import LinksMeasured, LoadsReported, NodeView
from streaming.codec import OffsetRange, PackedPartition, RawRecord, RefusedRecord
from streaming.ingest.source import raw_records, shard_of, stretch_of

STATE_SCHEMA = "topology_shard int, table binary"
OUTPUT_SCHEMA = "payload binary"

# The worker process outlives batches, so that its decoded tables save reading and parsing the
# state; a table is trusted only if its hash equals the one in the state.
_TABLES: dict[int, tuple[bytes, LivenessTable]] = {}


@dataclass(slots=True)
class ShardOutput:
    """Holds one topology shard's output of a batch. `verdicts` are on records of the nodes and
    detector topics, by partition; `ignored` counts records that changed nothing, by reason; `loads`
    are of another operator, each with partition and offset of its report; the rest is passed
    through."""

    verdicts: list[tuple[int, Verdict]] = field(default_factory=list)
    reported: list[tuple[int, Verdict]] = field(default_factory=list)
    clocks: dict[int, Clock] = field(default_factory=dict)
    stretches: list[OffsetRange] = field(default_factory=list)
    passed: list[RawRecord] = field(default_factory=list)
    refused: list[RefusedRecord] = field(default_factory=list)
    measured: list[tuple[RawRecord, LinksMeasured]] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    tick: tuple[int, int] | None = None
    loads: list[tuple[int, int, LoadsReported]] = field(default_factory=list)
    repeated: list[LoadsReported] = field(default_factory=list)


class NodeLifecycle(StatefulProcessor):
    """Carries the liveness tables from batch to batch."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: the table, and its hash by itself so that a look at it is cheap."""
        self._table = handle.getValueState("table", "table binary")
        self._hash = handle.getValueState("hash", "hash binary")

    def handleInitialState(self, key: Any, initialState: Row, timerValues: Any) -> None:  # noqa: N802, N803
        """Take the table that the recovery rebuilt from the topics."""
        del key, timerValues
        self._put(bytes(initialState.table))

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterable[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Apply the packed rows of a batch, partition by partition."""
        del timerValues
        shard = key[0]
        packed = [pickle.loads(row.payload) for row in rows]
        logs = sorted((p.log for p in packed if p.log), key=lambda log: log.partition)
        reports = [each for p in packed for each in p.reports]
        reports.sort(key=lambda each: (each[1].at, each[0], each[1].offset))
        output = ShardOutput()
        if logs or reports:
            table = self._get(shard)
            for log in logs:
                verdicts = table.apply(log)
                output.verdicts += [(log.partition, verdict) for verdict in verdicts]
            for partition, report in reports:
                output.reported += [(partition, verdict) for verdict in table.report(report)]
            output.clocks, output.ignored = table.clocks, table.take_ignored()
            _TABLES[shard] = (self._put(table.to_bytes()), table)
        for each in packed:
            _pass_through(each, output)
        yield Row(payload=pickle.dumps(output, pickle.HIGHEST_PROTOCOL))

    def close(self) -> None:
        """Do nothing: the operator holds no resource."""

    def _get(self, shard: int) -> LivenessTable:
        stored = self._hash.get()
        # Taken out until its batch is done: if that fails midway, nobody goes on from there.
        cached = _TABLES.pop(shard, None)
        if stored is None:
            return LivenessTable(self._timers)
        if cached is not None and cached[0] == bytes(stored[0]):
            return cached[1]
        blob = self._table.get()
        assert blob is not None
        return LivenessTable.from_bytes(bytes(blob[0]), self._timers)

    def _put(self, blob: bytes) -> bytes:
        digest = blake2b(blob, digest_size=16).digest()
        self._table.update((blob,))
        self._hash.update((digest,))
        return digest


def initial_liveness_tables(
    nodes: Sequence[NodeView], clocks: Mapping[int, Clock], timers: Timers, topology_shards: int
) -> list[tuple[int, bytes]]:
    """The operator's initial state: one serialised liveness table per topology shard."""
    tables = []
    for shard in range(topology_shards):
        mine = (view for view in nodes if shard_of(view.node_id, topology_shards) == shard)
        table = LivenessTable(timers)
        table.restore(mine, clocks)
        tables.append((shard, table.to_bytes()))
    return tables


def pass_records(records: pa.Table, short_names: Mapping[str, str]) -> ShardOutput:
    """Pass the subscription's records on as they are, for a query without an operator."""
    output = ShardOutput()
    rows: dict[tuple[str, int], list[int]] = {}
    places = zip(records["topic"].to_pylist(), records["partition"].to_pylist(), strict=True)
    for row, place in enumerate(places):
        rows.setdefault(place, []).append(row)
    for (name, _), found in rows.items():
        table, topic = records.take(pa.array(found)), short_names[name]
        output.stretches.append(stretch_of(table, topic))
        output.passed += raw_records(table, topic)
    return output


def _pass_through(packed: PackedPartition, output: ShardOutput) -> None:
    if packed.stretch:
        output.stretches.append(packed.stretch)
    output.passed += packed.passed
    output.refused += packed.refused
    output.measured += packed.measured
    output.ignored += packed.ignored
    if packed.tick:
        output.tick = max(output.tick or (0, 0), packed.tick)
