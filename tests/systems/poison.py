"""Records that no reader should choke on, each with the reason that its dead letter gives.

All are requests for the stream `p`, or what is left of one. They are the list of the security notes
and what tests elsewhere have found.
"""

from typing import Any

import orjson

from schemas.envelope import encode_headers, type_name
from schemas.refusals import RefusalCode

Headers = list[tuple[str, bytes | None]]
REQUEST = {"stream": "p", "sequence": 1, "shards": 1, "replication_factor": 1}
HEADERS: Headers = [*encode_headers("StreamCreated", cell="t", id="1", subject="p", time_ms=0)]
# Beside the value a client's record has a few bytes; the broker's limit is a MiB.
NEARLY_A_MIB = 990_000


def request(**changes: Any) -> bytes:
    return orjson.dumps(REQUEST | changes)


def sequence(text: bytes) -> bytes:
    """The request with this text in the place of its sequence."""
    return request(sequence=0).replace(b'"sequence":0', b'"sequence":' + text)


def of_type(name: bytes) -> Headers:
    return [(key, name if key == "ce_type" else value) for key, value in HEADERS]


POISON: dict[str, tuple[bytes | None, bytes | None, Headers, RefusalCode]] = {
    "invalid UTF-8": (b"p", request().replace(b"p", b"\xff"), HEADERS, RefusalCode.NOT_JSON),
    "ten thousand deep": (
        b"p",
        b'{"policy":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001,
        HEADERS,
        RefusalCode.TOO_DEEP,
    ),
    "NaN": (b"p", sequence(b"NaN"), HEADERS, RefusalCode.NOT_JSON),
    "1e400": (b"p", sequence(b"1e400"), HEADERS, RefusalCode.NUMBER_OUT_OF_RANGE),
    "5,000 digits": (b"p", sequence(b"9" * 5_000), HEADERS, RefusalCode.NUMBER_OUT_OF_RANGE),
    "a MiB": (b"p", request(more="x" * NEARLY_A_MIB), HEADERS, RefusalCode.TOO_LARGE),
    "no key": (None, request(), HEADERS, RefusalCode.KEY_MISMATCH),
    "another key": (b"q", request(), HEADERS, RefusalCode.KEY_MISMATCH),
    "no value": (b"p", None, HEADERS, RefusalCode.EMPTY_VALUE),
    "an empty value": (b"p", b"", HEADERS, RefusalCode.NOT_JSON),
    "a lone surrogate": (
        b"p", request().replace(b'"p"', b'"\\ud800"'), HEADERS, RefusalCode.NOT_JSON,
    ),
    "text for a number": (b"p", request(shards="3"), HEADERS, RefusalCode.WRONG_TYPE),
    "fields missing": (b"p", b'{"stream":"p"}', HEADERS, RefusalCode.WRONG_TYPE),
    "a list": (b"p", b"[1,2]", HEADERS, RefusalCode.WRONG_TYPE),
    "another version": (
        b"p", request(), of_type(b"placement.StreamCreated.v2"), RefusalCode.UNKNOWN_VERSION,
    ),
    "an unknown type": (
        b"p", request(), of_type(b"placement.Earthquake.v1"), RefusalCode.UNKNOWN_TYPE,
    ),
    "no type": (b"p", request(), [], RefusalCode.UNKNOWN_TYPE),
    "a node's message": (
        b"n",
        b'{"node_id":"n","incarnation":"a","sequence":1}',
        of_type(type_name("NodeHeartbeat").encode()),
        RefusalCode.WRONG_TOPIC,
    ),
    "a header that is no UTF-8": (
        b"p", request(), [*HEADERS, ("ce_x", b"\xff")], RefusalCode.HEADER_MALFORMED,
    ),
}  # fmt: skip
