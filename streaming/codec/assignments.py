"""Assignments as JSON and back, one by one and by the ten thousand.

They are nearly all there is in a large state, and nearly all of them are at rest: no move is under
way, and there are no roles. Those have short ways of their own with the same bytes and the same
values: they are written from parts that a stream's records share, and read by Arrow as columns.
What Arrow might read otherwise than orjson goes the long way, record by record.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import orjson

from placement.model import Assignment, AssignmentColumns
from streaming.codec.values import fields_of

# Fewer are read one by one in the time that importing Arrow takes.
COLUMN_RECORDS_MIN = 10_000
# Arrow parses blocks of so many bytes side by side.
_BLOCK_BYTES = 1 << 20
# Fields that a record at rest has not; only a backslash could spell their names otherwise.
_MOVE_FIELD, _ROLES_FIELD = b'"move_id"', b'"roles"'

_ReadColumns = Callable[[bytes, int], AssignmentColumns | None]


def assignment_value(assignment: Assignment) -> bytes:
    """The body as JSON: its fields that are set."""
    stream, shard, epoch, replicas, adding, removing, move_id, at, roles, uid = assignment
    if adding or removing or move_id is not None or roles is not None:
        return orjson.dumps(fields_of(assignment))
    return make_value_encoder(stream, at, uid)(shard, epoch, replicas)


def make_value_encoder(
    stream: str, at: int, uid: str | None
) -> Callable[[int, int, Sequence[str]], bytes]:
    """Return `assignment_value` for shards of one stream at rest, decided at one time: of their
    number, epoch and replicas.

    It is not orjson that writes them, which takes half the time: its bytes keep the kilobytes that
    they were written into, and a transaction holds a million of them.
    """
    quote = _Quoted().__getitem__
    before = f'{{"stream":{quote(stream)},"shard":'
    of_stream = "" if uid is None else f',"uid":{quote(uid)}'
    behind = f'],"adding":[],"removing":[],"decided_at":{at}{of_stream}}}'

    def encode(shard: int, epoch: int, replicas: Sequence[str]) -> bytes:
        nodes = ",".join(map(quote, replicas))
        return f'{before}{shard},"epoch":{epoch},"replicas":[{nodes}{behind}'.encode()

    return encode


class _Quoted(dict[str, str]):
    """Holds names as JSON; those of nodes are written again and again."""

    def __missing__(self, name: str) -> str:
        quoted = self[name] = orjson.dumps(name).decode()
        return quoted


def parse_assignment(body: Mapping[str, Any]) -> Assignment:
    """Read what `assignment_value` wrote."""
    lists = {name: tuple(body[name]) for name in ("replicas", "adding", "removing")}
    if "roles" in body:
        lists["roles"] = tuple(body["roles"])
    return Assignment(**{"move_id": None, **body, **lists})


class ParsedAssignments(NamedTuple):
    """Holds assignments that were read together."""

    at_rest: tuple[AssignmentColumns, ...]
    busy: list[Assignment]
    """Those with an open move or with roles."""


def parse_assignments(values: Sequence[bytes]) -> ParsedAssignments:
    """Read what `assignment_value` wrote of many assignments.

    Raises KeyError, ValueError, TypeError or AttributeError where one of them is none of ours; that
    one raises the same by itself.
    """
    if len(values) < COLUMN_RECORDS_MIN:
        return _parse_one_by_one(values)
    text, plain = b"\n".join(values), values
    if _MOVE_FIELD in text or _ROLES_FIELD in text:
        plain = [each for each in values if _is_at_rest(each)]
        text = b"\n".join(plain)
    columns = _parse_columns(text, len(plain))
    if columns is None:
        return _parse_one_by_one(values)
    others = [] if plain is values else [each for each in values if not _is_at_rest(each)]
    parsed = _parse_one_by_one(others)
    return ParsedAssignments((columns, *parsed.at_rest), parsed.busy)


def _is_at_rest(value: bytes) -> bool:
    return _MOVE_FIELD not in value and _ROLES_FIELD not in value


def _parse_one_by_one(values: Sequence[bytes]) -> ParsedAssignments:
    rest, busy = [], []
    for body in map(orjson.loads, values):
        if "move_id" in body or "roles" in body or body["adding"] or body["removing"]:
            busy.append(parse_assignment(body))
        else:
            rest.append(body)
    if not rest:
        return ParsedAssignments((), busy)
    columns = AssignmentColumns.of_lists(
        [body["stream"] for body in rest],
        [body["shard"] for body in rest],
        [body["epoch"] for body in rest],
        [body["replicas"] for body in rest],
    )
    return ParsedAssignments((columns,), busy)


def _parse_columns(text: bytes, records: int) -> AssignmentColumns | None:
    """Read lines of records at rest at once; None where Arrow is missing or might not read them as
    orjson does."""
    read = _make_column_reader()
    return None if read is None or not _is_plain(text, records) else read(text, records)


def _is_plain(text: bytes, records: int) -> bool:
    """Tell whether each line is one object, and nothing in it means more than it says.

    Its braces are the first and the last character of a line, and the only control characters are
    the breaks between lines. So nothing stands beside an object: at a `null` there, Arrow crashes.
    """
    import numpy as np

    if b"\\" in text:
        return False
    letters = np.frombuffer(text, np.uint8)
    breaks = np.flatnonzero(letters < ord(" "))
    if len(breaks) != records - 1:
        return False
    begins = np.flatnonzero(letters == ord("{"))
    ends = np.flatnonzero(letters == ord("}"))
    if not np.array_equal(begins, np.append(0, breaks + 1)):
        return False
    if not np.array_equal(ends, np.append(breaks - 1, len(letters) - 1)):
        return False
    try:
        return text.isascii() or bool(text.decode())
    except UnicodeDecodeError:
        return False


@cache
def _make_column_reader() -> _ReadColumns | None:
    """The reader of lines as columns; None where Arrow is not installed."""
    import numpy as np

    try:
        import pyarrow as pa
        import pyarrow.json as pj
    except ImportError:
        return None
    names = pa.list_(pa.string())
    schema = pa.schema(
        {
            "stream": pa.string(),
            "shard": pa.int64(),
            "epoch": pa.int64(),
            "replicas": names,
            "adding": names,
            "removing": names,
            "decided_at": pa.int64(),
            "uid": pa.string(),
        }
    )
    parsing = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    reading = pj.ReadOptions(block_size=_BLOCK_BYTES)
    # Arrow's own pool would keep some 40 MiB of what it has allocated.
    pool = pa.system_memory_pool()
    # Arrow's `to_numpy` would import pandas, which takes 0.4 s and 40 MiB.
    as_numpy: Any = np.from_dlpack

    def read(text: bytes, records: int) -> AssignmentColumns | None:
        try:
            table = pj.read_json(pa.BufferReader(text), reading, parsing, pool)
        except pa.ArrowException:
            return None
        columns = {name: table[name].combine_chunks() for name in schema.names[:6]}
        if len(table) != records or any(column.null_count for column in columns.values()):
            return None
        replicas, nodes = columns["replicas"], columns["replicas"].flatten()
        moving = len(columns["adding"].flatten()) + len(columns["removing"].flatten())
        if moving or nodes.null_count:
            return None
        of_stream, of_node = columns["stream"].dictionary_encode(), nodes.dictionary_encode()
        return AssignmentColumns(
            of_stream.dictionary.to_pylist(),
            as_numpy(of_stream.indices),
            as_numpy(columns["shard"]),
            as_numpy(columns["epoch"]),
            as_numpy(replicas.value_lengths()),
            of_node.dictionary.to_pylist(),
            as_numpy(of_node.indices),
        )

    return read
