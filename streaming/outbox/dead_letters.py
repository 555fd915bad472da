"""Makes the dead letter of a record that cannot be applied.

Key and headers are the record's own, the value its first KiB; what was wrong and where it came
from stand in headers named like those of Kafka Streams' dead letters (KIP-1034) under our prefix.
In a flood most records are told of by a summary alone, so that poison does not starve the good.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256

from placement.wording import format_count
from schemas.topics import DEAD_LETTERS
from streaming.codec import OutRecord, RawRecord, RefusedRecord

LETTER_HEADER_PREFIX = "__placement.errors."
# Enough to recognise a record; all of it would let a poison stream double the broker's load.
LETTER_VALUE_BYTES_MAX = 1024
HEADER_BYTES_MAX = 1024
# Ten times what a wrong release of a client makes of its own records; a few MB a second at most.
LETTERS_PER_SECOND = 1_000


class DeadLetterWriter:
    """Writes the letters of refused records: at most `per_second` for each reason and second of
    append time. What is left out is told of by a summary for each partition and reason.

    Seconds are those of the input, so that a flood costs the same read as it comes or afterwards.
    """

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._second = 0
        self._written = Counter[str]()

    def make_letters(
        self, refused: Iterable[RefusedRecord]
    ) -> tuple[list[OutRecord], Counter[str]]:
        """The letters, then the summaries; and how many records are left out, by reason."""
        letters: list[OutRecord] = []
        left_out: dict[tuple[str, int, str, str], list[RefusedRecord]] = {}
        for each in refused:
            if self._has_room(each):
                letters.append(make_letter(each.raw, each.stage, each.code, each.detail))
            else:
                place = (each.raw.topic, each.raw.partition, each.stage, each.code)
                left_out.setdefault(place, []).append(each)
        letters += [_summary(each) for _, each in sorted(left_out.items())]
        return letters, Counter(each.code for many in left_out.values() for each in many)

    def _has_room(self, refused: RefusedRecord) -> bool:
        second = refused.raw.at // 1000
        if second > self._second:
            self._second = second
            self._written.clear()
        self._written[refused.code] += 1
        return self._written[refused.code] <= self._per_second


def headers_bytes(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """Bytes of names and contents."""
    return sum(len(name) + len(content or b"") for name, content in headers)


def make_letter(raw: RawRecord, stage: str, code: str, detail: str) -> OutRecord:
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
        "headers.bytes": str(headers_bytes(raw.headers)),
    }
    errors = _headers(provenance)
    size = headers_bytes(raw.headers)
    kept = raw.headers if size <= HEADER_BYTES_MAX else []
    key = None if raw.key is None else raw.key[:LETTER_VALUE_BYTES_MAX]
    first = None if raw.value is None else value[:LETTER_VALUE_BYTES_MAX]
    return OutRecord(DEAD_LETTERS, key, first, [*kept, *errors])


def _summary(refused: Sequence[RefusedRecord]) -> OutRecord:
    """Make one letter for many records of a partition that were refused for one reason. It counts
    `count` of them from `offset` to `offset.last`."""
    offsets = [each.raw.offset for each in refused]
    first = min(refused, key=lambda each: each.raw.offset)
    many = format_count(len(offsets), "record has", "records have")
    provenance = {
        "topic": first.raw.topic,
        "partition": str(first.raw.partition),
        "offset": str(first.raw.offset),
        "offset.last": str(max(offsets)),
        "count": str(len(offsets)),
        "timestamp": str(first.raw.at),
        "stage": first.stage,
        "reason": first.code,
        "message": f"{many} no dead letter of their own; first: {first.detail}",
    }
    return OutRecord(DEAD_LETTERS, None, None, _headers(provenance))


def _headers(provenance: dict[str, str]) -> list[tuple[str, bytes | None]]:
    return [(LETTER_HEADER_PREFIX + name, text.encode()) for name, text in provenance.items()]
