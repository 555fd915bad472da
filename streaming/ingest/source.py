"""Subscribes to the input topics and packs each partition's stretch of a micro-batch.

Packing runs on executors, one Kafka partition a task. It reads the envelope of node records,
heartbeats by the column and the rest one by one, and sends one row per topology shard to the
stateful operator: keyed by node instead, Spark's Python state would cost 0.6 ms per touched node.
Records of the other topics pass through in order, unread. Nothing here raises for any record.
"""

import pickle
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from placement.hashing import digest64
from placement.liveness import (
    Heartbeat,
    Heartbeats,
    PartitionLog,
    Statement,
    Tick,
    Timers,
)
from placement.model import LinksMeasured
from schemas import limits
from schemas.envelope import Refusal, decode, has_unknown_fields, validate
from schemas.inputs import (
    ACTIVE,
    NodeHeartbeat,
    NodeMessage,
    NodeRegistered,
)
from schemas.inputs import Tick as TickMessage
from schemas.refusals import RefusalCode
from schemas.topics import DECIDING_TOPICS, DETECTOR, NODES, full_name
from streaming.codec import OffsetRange, PackedPartition, RawRecord, RefusedRecord, statement
from streaming.ingest.heartbeats import split_heartbeats

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Counts records of which a field was ignored; the rest of them was read.
UNKNOWN_FIELD = "unknown_field"
PACKED_SCHEMA = "topology_shard int, payload binary"
# Each takes `socket.timeout.ms` at most; where no broker says for a minute where partitions end,
# the query ends, and with it the process.
OFFSETS_TRIES_MAX = 6
# A batch of 10,000 heartbeats takes five fetches, each with three answers of the broker, instead of
# twenty with the client's default of 500: asking where a partition ends took 6 % of reading.
POLL_RECORDS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class PackingPlan:
    """Tells executors how to pack records. `resources`: names that a registration may use; of
    none, any."""

    short_names: Mapping[str, str]
    topology_shards: int
    timers: Timers
    resources: frozenset[str] = frozenset()


def make_packing_plan(
    prefix: str, topology_shards: int, timers: Timers, resources: Iterable[str] = ()
) -> PackingPlan:
    """The layout of a subscription with the given topic prefix."""
    names = {full_name(topic, prefix): topic for topic in DECIDING_TOPICS}
    return PackingPlan(names, topology_shards, timers, frozenset(resources))


def subscribe(
    spark: "SparkSession",
    kafka_options: Mapping[str, str],
    positions: Mapping[str, Mapping[int, int]],
    max_offsets_per_trigger: int,
    *,
    fail_on_loss: bool = True,
) -> "DataFrame":
    """The records behind `positions` (full topic name -> partition -> next offset).

    `fail_on_loss`: whether the query ends where records were deleted before it has read them."""
    starting = {
        topic: {str(partition): offset for partition, offset in partitions.items()}
        for topic, partitions in positions.items()
    }
    reader = spark.readStream.format("kafka").options(
        **{f"kafka.{name}": value for name, value in kafka_options.items()},
        **{
            "subscribe": ",".join(positions),
            "startingOffsets": orjson.dumps(starting).decode(),
            "includeHeaders": "true",
            "failOnDataLoss": str(fail_on_loss).lower(),
            "maxOffsetsPerTrigger": str(max_offsets_per_trigger),
            "fetchOffset.numRetries": str(OFFSETS_TRIES_MAX),
            "kafka.isolation.level": "read_committed",
            # A reader asks where its partition begins and ends after each fetch, and the broker
            # answers behind the fetch that the client has sent ahead, which waits so long for
            # records: with the default of 500 ms a batch takes 220 longer, with 10 it takes 6.
            # Spark reads no further than records are known to be, so that nobody asks in vain.
            "kafka.fetch.max.wait.ms": "0",
            # How many records of a fetch are taken; the others are fetched again.
            "kafka.max.poll.records": str(POLL_RECORDS_MAX),
        },
    )
    columns = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    return reader.load().select(*columns)


def pack_stream(records: "DataFrame", packing: PackingPlan) -> "DataFrame":
    """The subscription's records, packed."""
    packed = records.mapInArrow(partial(pack, packing), PACKED_SCHEMA)
    # One state partition needs no shuffle (6 ms of a batch).
    return packed.coalesce(1) if packing.topology_shards == 1 else packed


def shard_of(node_id: str, topology_shards: int) -> int:
    """The topology shard a node belongs to."""
    return digest64(node_id) % topology_shards if topology_shards > 1 else 0


def pack(packing: PackingPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack all Arrow batches of one task, which holds one Kafka partition."""
    gathered = [batch for batch in batches if batch.num_rows]
    if not gathered:
        return
    table = pa.Table.from_batches(gathered).combine_chunks()
    topic = packing.short_names[table["topic"][0].as_py()]
    if topic == NODES:
        rows = _pack_nodes(table, packing)
    elif topic == DETECTOR:
        rows = _pack_reports(table, packing)
    else:
        passed = raw_records(table, topic)
        rows = {0: PackedPartition(stretch=stretch_of(table, topic), passed=passed)}
    payloads = [pickle.dumps(packed, pickle.HIGHEST_PROTOCOL) for packed in rows.values()]
    yield pa.RecordBatch.from_arrays(
        [pa.array(list(rows), pa.int32()), pa.array(payloads, pa.binary())],
        ["topology_shard", "payload"],
    )


def raw_records(table: pa.Table, topic: str) -> list[RawRecord]:
    """The records of one partition of a topic, which is given by its short name."""
    partition = table["partition"][0].as_py()
    columns = (table[name].to_pylist() for name in ("offset", "key", "value"))
    headers = _headers(table["headers"].combine_chunks())
    return [
        RawRecord(topic, partition, offset, when, key, value, each)
        for when, (offset, key, value), each in zip(
            _append_times(table).tolist(), zip(*columns, strict=True), headers, strict=True
        )
    ]


def _append_times(table: pa.Table) -> NDArray[np.int64]:
    """Milliseconds since the epoch, by row."""
    times: NDArray[np.int64] = pc.cast(table["timestamp"], pa.int64()).to_numpy() // 1000
    return times


def _headers(column: pa.Array) -> list[list[tuple[str, bytes | None]]]:
    """Header lists by record; the flat columns cost a fifth of a list of structs."""
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    flat = column.flatten()
    pairs = list(zip(flat.field(0).to_pylist(), flat.field(1).to_pylist(), strict=True))
    ends = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
    lists, start = [], 0
    for length in ends:
        lists.append(pairs[start : start + length])
        start += length
    return lists


def stretch_of(table: pa.Table, topic: str) -> OffsetRange:
    """Which offsets of a partition the records are."""
    offsets = table["offset"]
    return OffsetRange(
        topic,
        table["partition"][0].as_py(),
        offsets[0].as_py(),
        offsets[-1].as_py() + 1,
        int(_append_times(table)[-1]),
    )


def _pack_nodes(table: pa.Table, packing: PackingPlan) -> dict[int, PackedPartition]:
    at = _append_times(table)
    gaps = np.clip(np.diff(at, prepend=at[0]), 0, packing.timers.gap_max_ms)
    elapsed = np.cumsum(gaps, dtype=np.int64)
    mask, plain = split_heartbeats(table, at, elapsed)
    rest = np.flatnonzero(~mask)
    beats: list[Heartbeat] = []
    measured: dict[str, tuple[RawRecord, LinksMeasured]] = {}
    statements: list[Statement] = []
    ticks: list[Tick] = []
    shards = packing.topology_shards
    rows = {shard: PackedPartition() for shard in range(shards)}
    whole = rows[0]
    others = raw_records(table.take(pa.array(rest)), NODES) if len(rest) else []
    for raw, moment in zip(others, elapsed[rest].tolist(), strict=True):
        match _parse_record(raw, moment, whole.ignored, packing.resources):
            case Heartbeat() as beat:
                beats.append(beat)
            case (Heartbeat() as beat, links):
                beats.append(beat)
                measured[beat.node_id] = raw, links
            case Statement() as said:
                statements.append(said)
            case RefusedRecord() as refused:
                whole.refused.append(refused)
            case None:
                continue
            case (tick, writer_epoch, number):
                ticks.append(tick)
                whole.tick = max(whole.tick or (0, 0), (writer_epoch, number))
    # The last ones of each node are enough.
    whole.measured = [*measured.values()]
    heard = plain.merge(Heartbeats.of(beats))
    homes = np.array([shard_of(node_id, shards) for node_id in heard.node_ids], np.int64)
    whole.stretch = stretch_of(table, NODES)
    partition, first, last = whole.stretch.partition, int(at[0]), int(at[-1])
    for shard, row in rows.items():
        mine = heard.select(homes[heard.nodes] == shard) if shards > 1 else heard
        here = [said for said in statements if shard_of(said.node_id, shards) == shard]
        row.log = PartitionLog(partition, first, last, int(elapsed[-1]), mine, here, ticks)
    return rows


def _pack_reports(table: pa.Table, packing: PackingPlan) -> dict[int, PackedPartition]:
    """Reports go where the liveness table of their node is."""
    rows = {0: PackedPartition(stretch=stretch_of(table, DETECTOR))}
    for raw in raw_records(table, DETECTOR):
        said = _parse_record(raw, 0, rows[0].ignored)
        if isinstance(said, Statement):
            shard = shard_of(said.node_id, packing.topology_shards)
            rows.setdefault(shard, PackedPartition()).reports.append((raw.partition, said))
        else:
            assert isinstance(said, RefusedRecord), "the schemas let nothing else in on this topic"
            rows[0].refused.append(said)
    return rows


# What one record of the nodes or detector topic can be.
ParsedRecord = (
    Heartbeat
    | tuple[Heartbeat, LinksMeasured]
    | Statement
    | RefusedRecord
    | tuple[Tick, int, int]
    | None
)


def _parse_record(
    raw: RawRecord, elapsed: int, ignored: Counter[str], resources: frozenset[str] = frozenset()
) -> ParsedRecord:
    """Any record of the nodes or detector topic through the schemas; one with fields that are not
    read is counted. None for what concerns standbys alone."""
    envelope = decode(raw.value, raw.headers)
    if isinstance(envelope, Refusal):
        return RefusedRecord(raw, "decode", envelope.code, envelope.detail)
    message = validate(envelope, raw.key, raw.topic)
    if isinstance(message, Refusal):
        return RefusedRecord(raw, "validate", message.code, message.detail)
    if resources and isinstance(message, NodeRegistered):
        unknown = find_unknown_resource(
            {f"capacities.{name}": name for name in message.capacities or ()}, resources
        )
        if unknown is not None:
            return RefusedRecord(raw, "validate", RefusalCode.RESOURCE_UNKNOWN, unknown)
    if has_unknown_fields(envelope):
        ignored[UNKNOWN_FIELD] += 1
    if isinstance(message, TickMessage):
        if message.role != ACTIVE:
            return None  # A standby says that it is there, to others like it.
        counted = Tick(raw.offset, elapsed, raw.at, message.partitions)
        return counted, message.writer_epoch, message.number
    assert isinstance(message, NodeMessage)
    life = (message.node_id, message.incarnation, message.sequence)
    if isinstance(message, NodeHeartbeat) and not message.stopping:
        beat = Heartbeat(raw.offset, elapsed, raw.at, *life)
        if message.rtt_ms is None:
            return beat
        rtt_ms = tuple(sorted(message.rtt_ms.items()))
        return beat, LinksMeasured(raw.at, message.node_id, rtt_ms)
    return statement(message, raw, elapsed)


def find_unknown_resource(fields: Mapping[str, str], resources: Collection[str]) -> str | None:
    """Write a sentence on the first field whose resource is not configured; None if all are."""
    for place, name in fields.items():
        if name not in resources:
            known = ", ".join(sorted(resources))
            sentence = f"field '{place}' names no configured resource; there are: {known}"
            return sentence[: limits.DETAIL_LENGTH_MAX]
    return None
