"""Records as Spark's Kafka source hands them to the packing: made by hand, in Arrow batches."""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson
import pyarrow as pa

from schemas.envelope import encode_headers, type_name
from schemas.inputs import TICK_KEY
from streaming.codec import PackedPartition, RawRecord
from streaming.ingest.source import PackingPlan, pack

PREFIX = "placement."
# The columns that the subscription selects, in the types of Spark's Kafka source.
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)

LIFE = {"node_id": "n1", "incarnation": "a", "sequence": 7}
TICK = {"partition": 0, "partitions": 1, "writer_epoch": 3, "number": 4}


def binary_headers(message: str) -> list[tuple[str, bytes | None]]:
    """The headers of a message in CloudEvents' binary mode."""
    return [*encode_headers(message, cell="test", id="1", subject="s", time_ms=0)]


def raw(
    message: str,
    key: str,
    body: dict[str, Any],
    offset: int = 0,
    at: int = 0,
    topic: str = "nodes.v1",
    partition: int = 0,
) -> RawRecord:
    """A record in the form in which the fleet sends it."""
    value = orjson.dumps(body)
    return RawRecord(topic, partition, offset, at, key.encode(), value, binary_headers(message))


def bare(message: str, key: str, body: dict[str, Any], **place: Any) -> RawRecord:
    """The same message as bare JSON with a type."""
    said = raw(message, key, {"type": type_name(message), **body}, **place)
    return said._replace(headers=[])


def tick(offset: int, at: int, number: int = 4, writer_epoch: int = 3) -> RawRecord:
    """A tick of the application."""
    body = TICK | {"number": number, "writer_epoch": writer_epoch}
    return raw("Tick", TICK_KEY, body, offset, at)


def registered(
    node_id: str, sequence: int, incarnation: str = "a", location: str = "/z1", **place: Any
) -> RawRecord:
    """A node's registration."""
    life = {"node_id": node_id, "incarnation": incarnation, "sequence": sequence}
    return raw("NodeRegistered", node_id, life | {"location": location}, **place)


def heartbeat(node_id: str, sequence: int, incarnation: str = "a", **place: Any) -> RawRecord:
    """A node's heartbeat."""
    life = {"node_id": node_id, "incarnation": incarnation, "sequence": sequence}
    return raw("NodeHeartbeat", node_id, life, **place)


def steady(node_id: str, length: int) -> list[RawRecord]:
    """A node that registers and beats every 400 ms."""
    beats = (heartbeat(node_id, n + 1, offset=n, at=n * 400) for n in range(1, length))
    return [registered(node_id, 1), *beats]


def arrow(records: Sequence[RawRecord], null_headers: bool = False) -> pa.RecordBatch:
    """Records of one partition as an Arrow batch; Spark writes no headers as null."""
    rows = [
        {
            "topic": PREFIX + record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.at * 1000,
            "key": record.key,
            "value": record.value,
            "headers": [{"key": name, "value": content} for name, content in record.headers]
            if record.headers or not null_headers
            else None,
        }
        for record in records
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def packed(packing: PackingPlan, batches: Iterable[pa.RecordBatch]) -> dict[int, PackedPartition]:
    """What one task makes of its Arrow batches, by topology shard."""
    return {
        row["topology_shard"]: pickle.loads(row["payload"])
        for batch in pack(packing, iter(batches))
        for row in batch.to_pylist()
    }


def cuts(records: Sequence[RawRecord], lengths: Iterable[int]) -> Iterator[Sequence[RawRecord]]:
    """The records in stretches of the given lengths, the last one taking what is left."""
    start = 0
    for length in lengths:
        if start + length >= len(records):
            break
        yield records[start : start + length]
        start += length
    yield records[start:]
