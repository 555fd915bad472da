"""Dead letters: what becomes of a record that cannot be applied.

Key and headers are the record's own, the value its first KiB; what was wrong and where it came
from stand in headers named like those of Kafka Streams' dead letters (KIP-1034) under our prefix.
"""

from collections.abc import Iterable
from hashlib import sha256

from schemas.topics import DEAD_LETTERS
from streaming.record_codec import OutRecord
from streaming.source import Raw

HEADER_PREFIX = "__placement.errors."
# Enough to recognise a record; all of it would let a poison stream double the broker's load.
VALUE_BYTES_MAX = 1024
HEADER_BYTES_MAX = 1024


def reason_of(letter: OutRecord) -> str:
    """The reason code of a dead letter."""
    found = dict(letter.headers)[f"{HEADER_PREFIX}reason"]
    return "" if found is None else found.decode()


def size_of(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """Bytes of names and contents."""
    return sum(len(name) + len(content or b"") for name, content in headers)


def dead_letter(raw: Raw, stage: str, code: str, detail: str) -> OutRecord:
    """The dead letter of `raw`. `stage`: decode, validate, order or apply; `code` is stable."""
    value = raw.value or b""
    provenance = {
        "topic": raw.topic,
        "partition": str(raw.partition),
        "offset": str(raw.offset),
        "timestamp": str(raw.at),
        "stage": stage,
        "reason": code,
        "message": detail,
        "value.sha256": sha256(value).hexdigest(),
        "value.bytes": str(len(value)),
        "headers.bytes": str(size_of(raw.headers)),
    }
    errors = [(HEADER_PREFIX + name, text.encode()) for name, text in provenance.items()]
    size = size_of(raw.headers)
    kept = raw.headers if size <= HEADER_BYTES_MAX else []
    key = None if raw.key is None else raw.key[:VALUE_BYTES_MAX]
    first = None if raw.value is None else value[:VALUE_BYTES_MAX]
    return OutRecord(DEAD_LETTERS, key, first, [*kept, *errors])
