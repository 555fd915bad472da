"""Reads and writes recordings: records of topics in a file, one JSON object a line, lossless.

    {"recording": 1, "prefix": ..., "cell": ..., "settings": ..., "partitions": ...}
    {"part": "state", "topic": ..., ...}     the snapshot it begins with, if it does
    {"part": "log", "topic": ..., ...}       inputs, journal and outputs, as they came
    {"end": 1, "sequence": ..., "positions": ...}

A snapshot is a recording with no log. Bytes that are UTF-8 stand as text, others as base64, so that
the file can be read and searched.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from schemas.topics import COMMITS
from streaming.brokers import Record
from streaming.errors import StreamingError
from streaming.recovery import Snapshot

VERSION = 1
STATE, LOG = "state", "log"


class RecordingUnreadable(StreamingError):
    """The file is no recording, or only part of one; the message names the line."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class RecordingHead:
    """Describes the recorded system. `settings`: those that matter when its inputs are run
    again."""

    prefix: str
    cell: str
    partitions: Mapping[str, int]
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole recording. `sequence`: the last commit all of whose records it holds."""

    head: RecordingHead
    snapshot: Snapshot | None
    records: list[Record]
    sequence: int

    def of(self, *topics: str) -> list[Record]:
        """The log's records of some topics, in the order of each partition."""
        return [record for record in self.records if record.topic in topics]


def head_line(head: RecordingHead) -> bytes:
    """The first line."""
    body = {"recording": VERSION, "prefix": head.prefix, "cell": head.cell}
    return _line(body | {"partitions": dict(head.partitions), "settings": dict(head.settings)})


def record_line(part: str, record: Record) -> bytes:
    """A record's line."""
    return _line(
        {
            "part": part,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": _encode_bytes(record.raw_key),
            "value": _encode_bytes(record.raw),
            "headers": [[name, _encode_bytes(content)] for name, content in record.raw_headers],
        }
    )


def end_line(sequence: int, positions: Mapping[str, Mapping[int, int]]) -> bytes:
    """The last line. `positions`: where the snapshot of the recording's beginning ended."""
    places = {
        topic: {str(p): offset for p, offset in each.items()} for topic, each in positions.items()
    }
    return _line({"end": VERSION, "sequence": sequence, "positions": places})


def snapshot_lines(head: RecordingHead, snapshot: Snapshot) -> Iterator[bytes]:
    """A snapshot as a file's lines."""
    yield head_line(head)
    for record in snapshot.records:
        yield record_line(STATE, record)
    yield end_line(snapshot.sequence, snapshot.positions)


def read_recording(path: Path) -> Recording:
    """Read a file. Raises RecordingUnreadable."""
    state: list[Record] = []
    log: list[Record] = []
    head: RecordingHead | None = None
    number = 0
    try:
        with path.open("rb") as lines:
            for line in lines:
                number += 1
                body = orjson.loads(line)
                if head is None:
                    head = _head(body)
                elif "end" in body:
                    return _make_recording(head, state, log, body)
                else:
                    (state if body["part"] == STATE else log).append(_record(body))
    except OSError as error:
        raise RecordingUnreadable(f"{path} cannot be read: {error.strerror}") from error
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        fault = f"{type(error).__name__}: {error}"
        raise RecordingUnreadable(
            f"{path} line {number} is not a line of a recording: {fault}"
        ) from error
    raise RecordingUnreadable(
        f"{path} ends after line {number} without its last line: the file was cut off"
    )


def _head(body: Mapping[str, Any]) -> RecordingHead:
    if body["recording"] != VERSION:
        raise ValueError(
            f"version {body['recording']} of recordings cannot be read, only {VERSION}"
        )
    return RecordingHead(body["prefix"], body["cell"], body["partitions"], body["settings"])


def _make_recording(
    head: RecordingHead, state: list[Record], log: list[Record], end: Mapping[str, Any]
) -> Recording:
    positions = {
        topic: {int(p): offset for p, offset in each.items()}
        for topic, each in end["positions"].items()
    }
    snapshot = None
    if state:
        (marker,) = [r.value for r in state if (r.topic, r.key) == (COMMITS, head.cell)]
        snapshot = Snapshot(marker or {}, tuple(state), positions)
    return Recording(head, snapshot, log, end["sequence"])


def _record(body: Mapping[str, Any]) -> Record:
    key, value = _decode_bytes(body["key"]), _decode_bytes(body["value"])
    headers = tuple((name, _decode_bytes(content)) for name, content in body["headers"])
    return Record.of(
        body["topic"], body["partition"], body["offset"], body["timestamp"], key, value, headers
    )


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Write a file as a whole: under its name stands all of it or what was there before."""
    scratch = path.with_name(path.name + ".part")
    try:
        with scratch.open("wb") as file:
            file.writelines(lines)
        scratch.replace(path)
    except OSError as error:
        raise RecordingUnreadable(f"{path} cannot be written: {error.strerror}") from error
    finally:
        scratch.unlink(missing_ok=True)


def _line(body: Mapping[str, Any]) -> bytes:
    return orjson.dumps(body) + b"\n"


def _encode_bytes(content: bytes | None) -> str | dict[str, str] | None:
    if content is None:
        return None
    with suppress(UnicodeDecodeError):
        return content.decode()
    return {"base64": base64.b64encode(content).decode()}


def _decode_bytes(content: str | Mapping[str, str] | None) -> bytes | None:
    if content is None or isinstance(content, str):
        return None if content is None else content.encode()
    return base64.b64decode(content["base64"], validate=True)
