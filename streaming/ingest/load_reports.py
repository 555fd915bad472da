"""Reads reports of loads on Spark's workers, and packs them by load shard.

A report names a thousand shards, and a thousand nodes send one every half a minute. One in the
plain form is read by a fast parser into columns; any other one goes the careful way through the
schemas. Nothing is taken that the careful way would refuse, and nothing here raises.
"""

import pickle
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa

from placement.load_reports import LoadBands, LoadReport
from schemas import limits
from schemas.envelope import Refusal, decode, has_unknown_fields, type_name, validate
from schemas.inputs import NodeLoadReported
from schemas.refusals import RefusalCode
from schemas.topics import NODE_LOADS
from streaming.codec import OffsetRange, RawRecord, RefusedRecord, report_of_message
from streaming.ingest.source import (
    UNKNOWN_FIELD,
    find_unknown_resource,
    raw_records,
    shard_of,
    stretch_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PACKED_SCHEMA = "load_shard int, payload binary"
# Binary mode, as producers write it: these alone, or with others that say nothing about the value.
_HEADERS = {
    "ce_type": type_name(NodeLoadReported.__name__).encode(),
    "ce_specversion": b"1.0",
    "content-type": b"application/json",
}
_FIELDS = {"node_id", "incarnation", "sequence", "capacities", "shards"}
_NEEDED = _FIELDS - {"capacities"}
# Of a shard; all its other fields are numbers.
_TEXTS = {"stream", "uid"}
# Escapes, and words that are numbers in a column of numbers.
_NOT_PLAIN = (b"\\", b"true", b"false")


@dataclass(frozen=True, slots=True)
class LoadPacking:
    """Tells executors how to pack reports: `resources` are the names that are configured."""

    resources: frozenset[str]
    load_shards: int
    bands: LoadBands


@dataclass(slots=True)
class PackedLoads:
    """Holds one partition's reports of a batch for one load shard, each with its offset."""

    partition: int
    reports: list[tuple[int, LoadReport]] = field(default_factory=list)
    stretch: OffsetRange | None = None
    refused: list[RefusedRecord] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)


def pack_load_stream(records: "DataFrame", packing: LoadPacking) -> "DataFrame":
    """The subscription's reports, packed."""
    packed = records.mapInArrow(partial(pack_loads, packing), PACKED_SCHEMA)
    return packed.coalesce(1) if packing.load_shards == 1 else packed


def pack_loads(packing: LoadPacking, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack all Arrow batches of one task, which holds one Kafka partition."""
    gathered = [batch for batch in batches if batch.num_rows]
    if not gathered:
        return
    table = pa.Table.from_batches(gathered).combine_chunks()
    partition = table["partition"][0].as_py()
    rows = {shard: PackedLoads(partition) for shard in range(packing.load_shards)}
    whole = rows[0]
    whole.stretch = stretch_of(table, NODE_LOADS)
    for raw in raw_records(table, NODE_LOADS):
        found = read_report(raw, packing.resources, whole.ignored)
        if isinstance(found, RefusedRecord):
            whole.refused.append(found)
        else:
            shard = shard_of(found.node_id, packing.load_shards)
            rows[shard].reports.append((raw.offset, found))
    full = {shard: row for shard, row in rows.items() if row.reports or row.stretch}
    payloads = [pickle.dumps(row, pickle.HIGHEST_PROTOCOL) for row in full.values()]
    yield pa.RecordBatch.from_arrays(
        [pa.array(list(full), pa.int32()), pa.array(payloads, pa.binary())],
        ["load_shard", "payload"],
    )


def read_report(
    raw: RawRecord, resources: Collection[str], ignored: Counter[str]
) -> LoadReport | RefusedRecord:
    """Read a record of loads.v1; one with fields that are not read is counted."""
    plain = read_plain(raw)
    if plain is not None and set(plain.resources) | dict(plain.capacities).keys() <= set(resources):
        return plain
    envelope = decode(raw.value, raw.headers, limits.LOAD_RECORD_BYTES_MAX)
    if isinstance(envelope, Refusal):
        return RefusedRecord(raw, "decode", envelope.code, envelope.detail)
    message = validate(envelope, raw.key, raw.topic)
    if isinstance(message, Refusal):
        return RefusedRecord(raw, "validate", message.code, message.detail)
    assert isinstance(message, NodeLoadReported)
    fields = {f"capacities.{name}": name for name in message.capacities or ()} | {
        f"shards[{number}].{name}": name
        for number, each in enumerate(message.shards)
        for name in each.amounts
    }
    unknown = find_unknown_resource(fields, resources)
    if unknown is not None:
        return RefusedRecord(raw, "validate", RefusalCode.RESOURCE_UNKNOWN, unknown)
    if has_unknown_fields(envelope):
        ignored[UNKNOWN_FIELD] += 1
    return report_of_message(message, raw.at)


def read_plain(raw: RawRecord) -> LoadReport | None:
    """Read a report in the plain form: binary mode, no escapes, one set of fields in all shards.

    None for anything else. The fast parser keeps the last of two equal names; their quotes give
    them away, as the number of all quotes is known.
    """
    value = raw.value
    if value is None or raw.key is None or not _has_plain_headers(raw):
        return None
    size = len(value) + sum(len(name) + len(content or b"") for name, content in raw.headers)
    if size > limits.LOAD_RECORD_BYTES_MAX or any(word in value for word in _NOT_PLAIN):
        return None
    try:
        body = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(body, dict) or not _NEEDED <= body.keys() <= _FIELDS:
        return None
    life, capacities = _life_of(body, raw.key), body.get("capacities", {})
    if life is None or not isinstance(capacities, dict) or not isinstance(body["shards"], list):
        return None
    names = _names_of(body["shards"])
    if names is None or not _are_capacities(capacities):
        return None
    strings = 2 + len(body["shards"]) * (2 if "uid" in names else 1)
    fields = len(body) + len(capacities) + len(body["shards"]) * len(names)
    if value.count(b'"') != 2 * (fields + strings):
        return None
    return _columns_of(raw.at, life, body["shards"], names, tuple(sorted(capacities.items())))


def _has_plain_headers(raw: RawRecord) -> bool:
    seen = set()
    for name, content in raw.headers:
        if not content or not content.isascii() or len(content) > limits.STRING_BYTES_MAX:
            return False
        if name in seen or _HEADERS.get(name, content) != content:
            return False
        seen.add(name)
    # They count for the length of a record; a hundred are no plain form.
    return {"ce_type", "ce_specversion"} <= seen and len(seen) <= limits.FIELDS_MAX // 4


def _life_of(body: Mapping[str, Any], key: bytes) -> tuple[str, str, int] | None:
    node_id, incarnation, sequence = body["node_id"], body["incarnation"], body["sequence"]
    for name in (node_id, incarnation):
        if not isinstance(name, str) or not limits.ID.match(name):
            return None
    if type(sequence) is not int or not 0 <= sequence <= limits.INTEGER_MAX:
        return None
    return (node_id, incarnation, sequence) if key == node_id.encode() else None


def _names_of(shards: Sequence[Any]) -> list[str] | None:
    """The fields that all entries have, or None if they differ or are no plain ones."""
    if not shards or not all(type(each) is dict for each in shards):
        return None
    names = shards[0].keys()
    if not {"stream", "shard"} <= names or any(each.keys() != names for each in shards):
        return None
    resources = names - limits.RESOURCE_NAMES_RESERVED
    plain = len(resources) > 0 and all(limits.RESOURCE.match(name) for name in resources)
    return sorted(names) if plain and len(names) <= limits.FIELDS_MAX else None


def _are_capacities(capacities: Mapping[str, Any]) -> bool:
    return len(capacities) <= limits.FIELDS_MAX and all(
        limits.RESOURCE.match(name) and type(of) is int and 0 < of <= limits.AMOUNT_MAX
        for name, of in capacities.items()
    )


def _columns_of(
    at: int,
    life: tuple[str, str, int],
    entries: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    capacities: tuple[tuple[str, int], ...],
) -> LoadReport | None:
    """Make columns of entries, or None if a value is none of its field's."""
    columns = {name: [each[name] for each in entries] for name in names}
    for name, column in columns.items():
        if {*map(type, column)} != {str if name in _TEXTS else int}:
            return None
    uids: dict[str, str | None] = {}
    streams, given = columns["stream"], columns.get("uid", [None] * len(entries))
    for stream, uid in set(zip(streams, given, strict=True)):
        if not limits.ID.match(stream) or stream in uids:
            return None
        if uid is not None and not limits.ID.match(uid):
            return None
        uids[stream] = uid
    ordered = list(dict.fromkeys(streams))
    index = {stream: code for code, stream in enumerate(ordered)}
    codes = np.array([index[stream] for stream in streams], np.int64)
    resources = [name for name in names if name not in limits.RESOURCE_NAMES_RESERVED]
    figures = np.array([columns[name] for name in ("shard", *resources)])
    # A number beyond 64 bits makes another column.
    if figures.dtype != np.int64 or (figures < 0).any() or (figures > limits.AMOUNT_MAX).any():
        return None
    shards, amounts = figures[0], figures[1:]
    if (shards > limits.COUNT_MAX).any():
        return None
    if len(np.unique(codes << 32 | shards)) < len(shards):
        return None
    return LoadReport(
        at,
        *life,
        ordered,
        [uids[stream] for stream in ordered],
        codes,
        shards,
        resources,
        amounts,
        capacities,
    )
