"""The one subscription, and how each partition's stretch of a micro-batch is packed.

Packing runs on executors, one Kafka partition a task. It reads the envelope of node records, keeps
of each node's heartbeats only those that a verdict can depend on, and sends one row per topology
shard to the stateful operator: keyed by node instead, Spark's Python state would cost 0.6 ms per
touched node. Records of the other topics pass through in order, unread. Nothing here raises for
any record.
"""

import pickle
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from placement.choice import digest64
from placement.liveness import Beat, PartitionLog, Statement, Tick, Timers, Told
from schemas import limits
from schemas.envelope import Refusal, decode, type_name, validate
from schemas.inputs import (
    TICK_KEY,
    NodeHeartbeat,
    NodeLocalityChanged,
    NodeMessage,
    NodeRegistered,
    NodeUnregistered,
)
from schemas.inputs import Tick as TickMessage
from schemas.topics import full_name
from streaming.codec import body_hash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NODES = "nodes.v1"
SUBSCRIBED = (NODES, "streams.v1", "acks.v1")
PACKED_SCHEMA = "topology_shard int, payload binary"

_HEARTBEAT = type_name(NodeHeartbeat.__name__).encode()
_TICK = type_name(TickMessage.__name__).encode()
_JSON = b"application/json"
_TICK_FIELDS = set(TickMessage.model_fields)
_TOLD = {
    NodeRegistered: Told.REGISTERED,
    NodeLocalityChanged: Told.LOCALITY_CHANGED,
    NodeUnregistered: Told.UNREGISTERED,
}
# A heartbeat of ids of full length is below this; a longer value takes the careful way.
_FAST_BYTES_MAX = 512
_ID = re.compile(limits.ID_PATTERN)


class Raw(NamedTuple):
    """A record as it was read. `topic` is the short name, `at` the append time in ms."""

    topic: str
    partition: int
    offset: int
    at: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that did not decode or validate."""

    raw: Raw
    stage: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """Which offsets of a partition a batch read; `next_offset` is where the next one starts."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    last_at: int


@dataclass(slots=True)
class Packed:
    """What one partition's stretch means for one topology shard. What is not about single nodes
    travels with shard 0 only."""

    log: PartitionLog | None = None
    stretch: Stretch | None = None
    passed: list[Raw] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    tick: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """How records are packed: what the executors have to know."""

    short_names: Mapping[str, str]
    topology_shards: int
    timers: Timers


def layout(prefix: str, topology_shards: int, timers: Timers) -> Layout:
    """The layout of a subscription with the given topic prefix."""
    names = {full_name(topic, prefix): topic for topic in SUBSCRIBED}
    return Layout(names, topology_shards, timers)


def subscription(
    spark: "SparkSession",
    kafka_options: Mapping[str, str],
    positions: Mapping[str, Mapping[int, int]],
    max_offsets_per_trigger: int,
) -> "DataFrame":
    """The records behind `positions` (full topic name -> partition -> next offset)."""
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
            "failOnDataLoss": "true",
            "maxOffsetsPerTrigger": str(max_offsets_per_trigger),
            "kafka.isolation.level": "read_committed",
            # The client waits this long for more data before it answers; the default of 500 ms
            # alone costs 220 ms of latency (measured).
            "kafka.fetch.max.wait.ms": "10",
        },
    )
    columns = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    return reader.load().select(*columns)


def packed_stream(records: "DataFrame", packing: Layout) -> "DataFrame":
    """The subscription's records, packed."""
    packed = records.mapInArrow(partial(pack, packing), PACKED_SCHEMA)
    # One state partition needs no shuffle (6 ms of a batch).
    return packed.coalesce(1) if packing.topology_shards == 1 else packed


def shard_of(node_id: str, topology_shards: int) -> int:
    """The topology shard a node belongs to."""
    return digest64(node_id) % topology_shards if topology_shards > 1 else 0


def pack(packing: Layout, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack all Arrow batches of one task, which holds one Kafka partition."""
    gathered = [batch for batch in batches if batch.num_rows]
    if not gathered:
        return
    table = pa.Table.from_batches(gathered).combine_chunks()
    records = _raw_records(table, packing)
    if records[0].topic == NODES:
        rows = _pack_nodes(records, packing)
    else:
        rows = {0: Packed(stretch=_stretch(records), passed=records)}
    payloads = [pickle.dumps(packed, pickle.HIGHEST_PROTOCOL) for packed in rows.values()]
    yield pa.RecordBatch.from_arrays(
        [pa.array(list(rows), pa.int32()), pa.array(payloads, pa.binary())],
        ["topology_shard", "payload"],
    )


def _raw_records(table: pa.Table, packing: Layout) -> list[Raw]:
    at = pc.divide(pc.cast(table["timestamp"], pa.int64()), 1000).to_pylist()
    topic = packing.short_names[table["topic"][0].as_py()]
    partition = table["partition"][0].as_py()
    columns = (table[name].to_pylist() for name in ("offset", "key", "value"))
    headers = _headers(table["headers"].combine_chunks())
    return [
        Raw(topic, partition, offset, when, key, value, each)
        for when, (offset, key, value), each in zip(
            at, zip(*columns, strict=True), headers, strict=True
        )
    ]


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


def _stretch(records: list[Raw]) -> Stretch:
    first, last = records[0], records[-1]
    return Stretch(first.topic, first.partition, first.offset, last.offset + 1, last.at)


class _Heartbeats:
    """The heartbeats of one partition that a verdict can depend on.

    Of each life of a node the first and the last are kept, and between them as many that no two
    kept ones are `suspect_after` apart unless the node was silent in between: so whatever tick
    falls between two records finds the same silence, or one too short to matter, as if all were
    there. A statement of the node begins another life, as it is judged by the beats before it.
    """

    def __init__(self, suspect_after_ms: int) -> None:
        self._suspect_after_ms = suspect_after_ms
        self._kept: dict[tuple[str, str, int], list[Beat]] = {}
        self._last: dict[tuple[str, str, int], Beat] = {}
        self._statements: dict[str, int] = {}

    def interrupt(self, node_id: str) -> None:
        """The node's next record is a statement."""
        self._statements[node_id] = self._statements.get(node_id, 0) + 1

    def add(self, beat: Beat) -> None:
        """Take the partition's next heartbeat."""
        life = (beat.node_id, beat.incarnation, self._statements.get(beat.node_id, 0))
        last = self._last.get(life)
        if last is None:
            self._kept[life] = [beat]
        elif beat.sequence <= last.sequence:
            return
        else:
            kept = self._kept[life]
            if beat.elapsed - kept[-1].elapsed >= self._suspect_after_ms and kept[-1] is not last:
                kept.append(last)
        self._last[life] = beat

    def beats(self) -> Iterator[Beat]:
        """What was kept, by life."""
        for life, kept in self._kept.items():
            yield from kept
            if self._last[life] is not kept[-1]:
                yield self._last[life]


def _pack_nodes(records: list[Raw], packing: Layout) -> dict[int, Packed]:
    heartbeats = _Heartbeats(packing.timers.suspect_after_ms)
    statements: list[Statement] = []
    ticks: list[Tick] = []
    shards = packing.topology_shards
    rows = {shard: Packed() for shard in range(shards)}
    whole = rows[0]
    elapsed, before = 0, records[0].at
    for raw in records:
        elapsed += min(max(raw.at - before, 0), packing.timers.gap_max_ms)
        before = raw.at
        parsed = _fast(raw, elapsed) or _careful(raw, elapsed)
        match parsed:
            case Beat():
                heartbeats.add(parsed)
            case Statement():
                heartbeats.interrupt(parsed.node_id)
                statements.append(parsed)
            case Refused():
                whole.refused.append(parsed)
            case (tick, writer_epoch, number):
                ticks.append(tick)
                whole.tick = max(whole.tick or (0, 0), (writer_epoch, number))
    beats_by_shard: dict[int, list[Beat]] = {shard: [] for shard in rows}
    for beat in heartbeats.beats():
        beats_by_shard[shard_of(beat.node_id, shards)].append(beat)
    for shard, row in rows.items():
        told = [said for said in statements if shard_of(said.node_id, shards) == shard]
        row.log = PartitionLog(
            records[0].partition, records[0].at, before, elapsed, beats_by_shard[shard], told, ticks
        )
    whole.stretch = _stretch(records)
    return rows


def _fast(raw: Raw, elapsed: int) -> Beat | tuple[Tick, int, int] | None:
    """A heartbeat or tick in the plain form in which nodes send them; None for everything else.

    It accepts nothing that the careful way would refuse.
    """
    value = raw.value
    if value is None or len(value) > _FAST_BYTES_MAX or raw.key is None:
        return None
    headers = dict(raw.headers)
    kind = headers.get("ce_type")
    if kind not in (_HEARTBEAT, _TICK) or not _plain(headers, raw.headers):
        return None
    try:
        body = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    if kind == _TICK:
        return _fast_tick(raw, elapsed, body)
    if type(body) is not dict or len(body) != 3:
        return None
    node_id, incarnation = body.get("node_id"), body.get("incarnation")
    sequence = body.get("sequence")
    if type(node_id) is not str or type(incarnation) is not str or type(sequence) is not int:
        return None
    if raw.key != node_id.encode() or not 0 <= sequence <= limits.INTEGER_MAX:
        return None
    # Ten quotes are those of three names and two ids: no name stands twice.
    if value.count(b'"') != 10 or not (_ID.fullmatch(node_id) and _ID.fullmatch(incarnation)):
        return None
    return Beat(raw.offset, elapsed, raw.at, node_id, incarnation, sequence)


def _plain(headers: Mapping[str, bytes | None], given: list[tuple[str, bytes | None]]) -> bool:
    """Whether binary mode is meant and no header can be at fault: each once, short, ASCII."""
    contents = headers.values()
    if len(headers) != len(given) or headers.get("ce_specversion") != b"1.0" or not all(contents):
        return False
    whole = b"".join(contents)  # type: ignore[arg-type]  # none is None, all are true
    kind = headers.get("content-type", _JSON)
    return kind == _JSON and whole.isascii() and len(whole) <= limits.STRING_BYTES_MAX


def _fast_tick(raw: Raw, elapsed: int, body: Any) -> tuple[Tick, int, int] | None:
    if type(body) is not dict or set(body) != _TICK_FIELDS or raw.key != TICK_KEY.encode():
        return None
    numbers = body.values()
    if not all(type(number) is int and 0 <= number <= limits.COUNT_MAX for number in numbers):
        return None
    # Eight quotes are those of four names: none stands twice.
    if raw.value is None or raw.value.count(b'"') != 2 * len(_TICK_FIELDS):
        return None
    return Tick(raw.offset, elapsed, raw.at), body["writer_epoch"], body["number"]


def _careful(raw: Raw, elapsed: int) -> Beat | Statement | Refused | tuple[Tick, int, int]:
    """Any record of the nodes topic through the schemas."""
    envelope = decode(raw.value, raw.headers)
    if isinstance(envelope, Refusal):
        return Refused(raw, "decode", envelope.code, envelope.detail)
    message = validate(envelope, raw.key, raw.topic)
    if isinstance(message, Refusal):
        return Refused(raw, "validate", message.code, message.detail)
    if isinstance(message, TickMessage):
        return Tick(raw.offset, elapsed, raw.at), message.writer_epoch, message.number
    assert isinstance(message, NodeMessage)
    life = (message.node_id, message.incarnation, message.sequence)
    if isinstance(message, NodeHeartbeat):
        return Beat(raw.offset, elapsed, raw.at, *life)
    fields = message.model_dump(exclude={"node_id", "incarnation", "sequence"})
    told = _TOLD[type(message)]
    body = {"fields": fields, "raw": raw}
    hashed = body_hash(message.model_dump())
    return Statement(raw.offset, elapsed, raw.at, *life, told, hashed, body)
