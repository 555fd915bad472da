"""Records of the nodes topic that are not quite heartbeats, one by one and at random."""

from typing import Any

import orjson
from hypothesis import strategies as st

from schemas.inputs import TICK_KEY
from streaming.codec import RawRecord
from tests.builders.kafka_rows import LIFE, TICK, bare, binary_headers, raw, tick


def beat(**changes: Any) -> RawRecord:
    return raw("NodeHeartbeat", "n1", LIFE)._replace(**changes)


def with_headers(*changes: tuple[str, bytes | None]) -> list[tuple[str, bytes | None]]:
    return binary_headers("NodeHeartbeat") + list(changes)


def json(**changes: Any) -> bytes:
    return orjson.dumps(LIFE | changes)


UNUSUAL = {
    "id ends with a newline": beat(key=b"n1\n", value=json(node_id="n1\n")),
    "incarnation ends with a newline": beat(value=json(incarnation="a\n")),
    "empty id": beat(key=b"", value=json(node_id="")),
    "id too long": beat(key=b"n" * 129, value=json(node_id="n" * 129)),
    "another key": beat(key=b"n2"),
    "no key": beat(key=None),
    "no value": beat(value=None),
    "sequence below zero": beat(value=json(sequence=-1)),
    "sequence of 64 bits unsigned": beat(value=json(sequence=2**64 - 1)),
    "sequence true": beat(value=json(sequence=True)),
    "sequence as text": beat(value=json(sequence="7")),
    "sequence with a fraction": beat(value=json(sequence=7.0)),
    "one field more": beat(value=json(more=1)),
    "one field less": beat(value=b'{"node_id":"n1","incarnation":"a"}'),
    "a field twice": beat(value=b'{"node_id":"n1","incarnation":"a","sequence":7,"sequence":8}'),
    "a field twice, as a number": beat(value=b'{"node_id":1,"node_id":"n1","incarnation":"a"}'),
    "escaped names": beat(value=b'{"node\\u005fid":"n1","incarnation":"a","sequence":7}'),
    "a list": beat(value=b'["node_id","incarnation","sequence","n1","a"]'),
    "byte order mark": beat(value=b"\xef\xbb\xbf" + json()),
    "half a surrogate pair": beat(value=b'{"node_id":"\\ud800","incarnation":"a","sequence":7}'),
    "control character": beat(value=b'{"node_id":"n\x01","incarnation":"a","sequence":7}'),
    "not JSON behind it": beat(value=json() + b"}"),
    "white space around": beat(value=b" " + json() + b"\n"),
    "type twice": beat(headers=with_headers(("ce_type", b"placement.Tick.v1"))),
    "version twice": beat(headers=with_headers(("ce_specversion", b"0.3"))),
    "an empty attribute": beat(headers=with_headers(("ce_extra", b""))),
    "a null attribute": beat(headers=with_headers(("ce_extra", None))),
    "an attribute that is no UTF-8": beat(headers=with_headers(("ce_extra", b"\xff"))),
    "an attribute too long": beat(headers=with_headers(("ce_extra", b"x" * 1025))),
    "headers beyond the limit": beat(headers=with_headers(("own", b"x" * 70_000))),
    "structured mode": beat(
        headers=[
            ("ce_type", b"placement.NodeHeartbeat.v1"),
            ("ce_specversion", b"1.0"),
            ("content-type", b"application/cloudevents+json"),
        ]
    ),
    "a foreign header": beat(headers=with_headers(("trace", b"\xff"), ("trace", None))),
    "no version": beat(headers=[("ce_type", b"placement.NodeHeartbeat.v1")]),
    "bare JSON": bare("NodeHeartbeat", "n1", LIFE),
    "a number twice": raw("Tick", TICK_KEY, TICK)._replace(
        value=b'{"partition":0,"partition":1,"partitions":1,"writer_epoch":3,"number":4}'
    ),
    "partition of 40 bits": raw("Tick", TICK_KEY, TICK | {"partition": 2**40}),
    "number of 64 bits unsigned": raw("Tick", TICK_KEY, TICK | {"number": 2**64 - 1}),
    "number below zero": raw("Tick", TICK_KEY, TICK | {"number": -1}),
    "number true": raw("Tick", TICK_KEY, TICK | {"number": True}),
    "a node's key": raw("Tick", "n1", TICK),
    "a tick with one field more": raw("Tick", TICK_KEY, TICK | {"more": 1}),
}


FRAGMENTS = (
    b'"',
    b"\\",
    b"n1",
    b"\n",
    b"\x00",
    b"\xff",
    b"{",
    b"}",
    b"[",
    b",",
    b":",
    b"7",
    b"-",
    b"1e400",
    b"NaN",
    b"null",
    b'"sequence":8,',
    b" ",
    b"\xc3\xa9",
    b"\\ud800",
    b"9" * 30,
)


@st.composite
def damaged(draw: st.DrawFn) -> RawRecord:
    """A heartbeat or tick with pieces of its value, key or headers replaced."""
    record = draw(st.sampled_from([beat(), tick(0, 0), bare("NodeHeartbeat", "n1", LIFE)]))
    value = record.value or b""
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(value)))
        end = min(len(value), start + draw(st.integers(0, 4)))
        value = value[:start] + draw(st.sampled_from(FRAGMENTS)) + value[end:]
    headers = list(record.headers)
    if draw(st.booleans()):
        names = st.sampled_from(["ce_type", "ce_specversion", "ce_id", "content-type", "x", ""])
        content = (
            st.none()
            | st.binary(max_size=5)
            | st.sampled_from([b"1.0", b"placement.Tick.v1", b"application/cloudevents+json"])
        )
        place = draw(st.integers(0, len(headers)))
        headers[place : place + draw(st.integers(0, 1))] = [(draw(names), draw(content))]
    key = draw(st.sampled_from([record.key, record.key, None, b"n1", b"\xff"]))
    return record._replace(value=value, headers=headers, key=key)
