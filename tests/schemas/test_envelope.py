"""From bytes to messages and refusals: the three forms of an event and the poison corpus."""

import json
import sys

import pytest

from schemas import generate, limits
from schemas.acks import MoveCompleted
from schemas.envelope import (
    Envelope,
    Refusal,
    decode,
    encode_headers,
    has_unknown_fields,
    type_name,
    validate,
)
from schemas.inputs import (
    INPUTS,
    NodeHeartbeat,
    NodeRegistered,
    StreamCreated,
    Tick,
)
from schemas.refusals import RefusalCode
from schemas.topics import BY_NAME, CATALOGUE

BEAT = {"node_id": "node-0x1", "incarnation": "i-1", "sequence": 2}
TOPIC_OF = {message: topic.name for topic in CATALOGUE for message in topic.messages}
CREATED = {"stream": "orders", "sequence": 1, "shards": 2, "replication_factor": 3}


def dumps(**fields):
    return json.dumps(fields).encode()


def bare(message, **fields):
    return dumps(type=message, **fields)


def read(value, key, topic, headers=None):
    """What the shell does with a record."""
    envelope = decode(value, headers)
    return envelope if isinstance(envelope, Refusal) else validate(envelope, key, topic)


# The forms of an event


@pytest.mark.parametrize("type_", ["NodeHeartbeat", "placement.NodeHeartbeat.v1"])
def test_bare_json_is_read(type_):
    value = bare(type_, **BEAT)
    assert decode(value, None) == Envelope("NodeHeartbeat", 1, None, BEAT)
    assert decode(value, []) == Envelope("NodeHeartbeat", 1, None, BEAT)


def test_binary_cloudevents_are_read():
    headers = [
        ("traceparent", b"\xff"),
        ("ce_specversion", b"1.0"),
        ("ce_id", b"e-1"),
        ("ce_source", b"/agent"),
        ("ce_type", b"placement.NodeHeartbeat.v1"),
        ("content-type", b"application/json"),
    ]
    assert decode(dumps(**BEAT), headers) == Envelope("NodeHeartbeat", 1, "e-1", BEAT)


def test_binary_mode_needs_only_the_type():
    assert decode(dumps(**BEAT), [("ce_type", b"NodeHeartbeat")]) == Envelope(
        "NodeHeartbeat", 1, None, BEAT
    )


def test_a_type_field_is_data_in_binary_mode():
    envelope = decode(dumps(type="Nonsense", **BEAT), [("ce_type", b"NodeHeartbeat")])
    assert isinstance(envelope, Envelope)
    assert envelope.message == "NodeHeartbeat"
    assert envelope.data["type"] == "Nonsense"


@pytest.mark.parametrize(
    "content_type",
    [b"application/cloudevents+json", b"Application/CloudEvents+JSON; charset=utf-8"],
)
def test_structured_cloudevents_are_read(content_type):
    value = dumps(
        specversion="1.0", type="placement.NodeHeartbeat.v1", id="e-1", source="/a", data=BEAT
    )
    assert decode(value, [("content-type", content_type)]) == Envelope(
        "NodeHeartbeat", 1, "e-1", BEAT
    )


def test_our_own_headers_are_read_back():
    headers = encode_headers("Tick", cell="main", id="t-1", subject="tick", time_ms=0)
    tick = dumps(partition=0, partitions=4, writer_epoch=1, number=9)
    assert read(tick, b"tick", "nodes.v1", headers) == Tick(
        partition=0, partitions=4, writer_epoch=1, number=9
    )


def test_headers_are_stable_bytes():
    headers = encode_headers(
        "Decision", cell="main", id="ab12", subject="orders", time_ms=1767225600007
    )
    assert headers == [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"ab12"),
        ("ce_source", b"/placement/main"),
        ("ce_type", b"placement.Decision.v1"),
        ("ce_time", b"2026-01-01T00:00:00.007Z"),
        ("ce_subject", b"orders"),
        ("content-type", b"application/json"),
    ]
    assert type_name("Decision") == "placement.Decision.v1"


# Validation


@pytest.mark.parametrize(
    ("message", "fields", "key", "topic", "model"),
    [
        ("NodeHeartbeat", BEAT, b"node-0x1", "nodes.v1", NodeHeartbeat),
        ("NodeRegistered", BEAT, b"node-0x1", "nodes.v1", NodeRegistered),
        ("StreamCreated", CREATED, b"orders", "streams.v1", StreamCreated),
        (
            "MoveCompleted",
            {"stream": "orders", "shard": 7, "move_id": "m"},
            b"orders/7",
            "acks.v1",
            MoveCompleted,
        ),
    ],
)
def test_a_sound_record_becomes_its_model(message, fields, key, topic, model):
    assert read(bare(message, **fields), key, topic) == model.model_validate(fields)


def listed_words():
    """Every field of an input whose schema lists its words at the top, with the words."""
    for name in INPUTS:
        for field, found in generate.json_schema(name)["properties"].items():
            if "enum" in found:
                yield pytest.param(name, field, found["enum"], id=f"{name}.{field}")


@pytest.mark.parametrize(("name", "field", "words"), [*listed_words()])
def test_a_word_that_is_none_of_the_listed_ones_is_refused_with_the_list(name, field, words):
    example = {**generate.examples()[name], field: "nonsense"}
    key = INPUTS[name].model_validate(generate.examples()[name]).record_key().encode()
    refusal = read(bare(name, **example), key, TOPIC_OF[name])
    assert refusal.code is RefusalCode.WRONG_TYPE
    assert f"field '{field}' must be" in refusal.detail
    assert [word for word in words if f"'{word}'" not in refusal.detail] == []


@pytest.mark.parametrize("field", ["quorum", "repair"])
def test_words_of_streams_are_left_to_the_core(field):
    message = read(bare("StreamCreated", **{**CREATED, field: "nonsense"}), b"orders", "streams.v1")
    assert getattr(message, field) == "nonsense"


def test_a_senseless_stream_is_left_to_the_core():
    senseless = {**CREATED, "replication_factor": 0, "shards": -1, "policy": {"strategy": "nope"}}
    message = read(bare("StreamCreated", **senseless), b"orders", "streams.v1")
    assert (message.replication_factor, message.shards) == (0, -1)


REFUSED_FIELDS = [
    ("NodeHeartbeat", {**BEAT, "sequence": "2"}, "field 'sequence' must be an integer, it is '2'"),
    (
        "NodeHeartbeat",
        {**BEAT, "sequence": True},
        "field 'sequence' must be an integer, it is True",
    ),
    ("NodeHeartbeat", {**BEAT, "sequence": 2.0}, "field 'sequence' must be an integer, it is 2.0"),
    ("NodeHeartbeat", {**BEAT, "sequence": -1}, "field 'sequence' must be at least 0, it is -1"),
    (
        "NodeHeartbeat",
        {**BEAT, "sequence": None},
        "field 'sequence' must be an integer, it is None",
    ),
    ("NodeHeartbeat", {"node_id": "n", "sequence": 1}, "field 'incarnation' is missing"),
    ("NodeHeartbeat", {**BEAT, "node_id": 7}, "field 'node_id' must be a string, it is 7"),
    ("NodeHeartbeat", {**BEAT, "node_id": "a b"}, "field 'node_id' must be of the form"),
    ("NodeHeartbeat", {**BEAT, "node_id": "a\n"}, "field 'node_id' must be of the form"),
    ("NodeHeartbeat", {**BEAT, "node_id": ""}, "field 'node_id' must be of the form"),
    ("NodeHeartbeat", {**BEAT, "node_id": "n" * 250}, "field 'node_id' must be of the form"),
    (
        "NodeHeartbeat",
        {},
        "field 'node_id' is missing; also wrong: 'incarnation', 'sequence'",
    ),
    ("NodeRegistered", {**BEAT, "location": "site1"}, "field 'location' must be of the form"),
    ("NodeRegistered", {**BEAT, "location": "/a//b"}, "field 'location' must be of the form"),
    ("NodeRegistered", {**BEAT, "location": "/a/"}, "field 'location' must be of the form"),
    ("NodeRegistered", {**BEAT, "location": "/"}, "field 'location' must be of the form"),
    ("NodeRegistered", {**BEAT, "location": "/a" * 9}, "field 'location' must be of the form"),
    ("NodeRegistered", {**BEAT, "location": "/a/../b"}, "may not be '.' or '..'"),
    ("NodeRegistered", {**BEAT, "location": "/a/."}, "may not be '.' or '..'"),
    ("NodeRegistered", {**BEAT, "weight": 0}, "field 'weight' must be at least 1e-06, it is 0"),
    ("NodeRegistered", {**BEAT, "weight": True}, "field 'weight' must be a number, it is True"),
    ("NodeRegistered", {**BEAT, "capacity": -1}, "field 'capacity' must be at least 0"),
    ("NodeRegistered", {**BEAT, "leader": 1}, "field 'leader' must be true or false, it is 1"),
    ("NodeRegistered", {**BEAT, "tags": ["a"]}, "field 'tags' must be an object"),
    ("NodeRegistered", {**BEAT, "tags": {"a": 1}}, "field 'tags.a' must be a string, it is 1"),
    ("NodeRegistered", {**BEAT, "tags": {"a=b": "c"}}, "field 'tags.a=b' must be of the form"),
    ("NodeRegistered", {**BEAT, "tags": {"a": "b\u202e"}}, "'b\\u202e'"),
    ("NodeRegistered", {**BEAT, "tokens": "ab"}, "field 'tokens' must be an array, it is 'ab'"),
    ("NodeRegistered", {**BEAT, "tokens": [1, "a"]}, "field 'tokens[1]' must be an integer"),
    ("NodeRegistered", {**BEAT, "liveness": "maybe"}, "must be 'heartbeat'"),
    ("NodeLocalityChanged", BEAT, "field 'location' is missing"),
    (
        "StreamCreated",
        {**CREATED, "replication_factor": "3"},
        "field 'replication_factor' must be an integer, it is '3'",
    ),
    ("StreamCreated", {**CREATED, "shards": 2**31}, "field 'shards' must be at most 2147483647"),
    ("StreamCreated", {**CREATED, "policy": "spread"}, "field 'policy' must be an object"),
    ("StreamCreated", {**CREATED, "quorum": 1.5}, "field 'quorum' must be an integer or a string"),
    (
        "StreamCreated",
        {**CREATED, "replicas": [["n1", "n2"], ["n1", 2]]},
        "field 'replicas[1][1]' must be a string, it is 2",
    ),
    ("MoveFailed", {"stream": "orders", "shard": -1}, "field 'shard' must be at least 0"),
    ("Tick", {"partition": 0, "partitions": 1, "number": 1}, "field 'writer_epoch' is missing"),
]


@pytest.mark.parametrize(("message", "fields", "sentence"), REFUSED_FIELDS)
def test_a_refusal_names_the_field(message, fields, sentence):
    topic = next(name for name, topic in BY_NAME.items() if message in topic.messages)
    refusal = read(bare(message, **fields), b"any", topic)
    assert refusal.code == RefusalCode.WRONG_TYPE
    assert sentence in refusal.detail


@pytest.mark.parametrize(
    ("key", "given"),
    [(None, "no key"), (b"node-0x2", "the key 'node-0x2'"), (b"\xff\n", "the key '\\xff\\n'")],
)
def test_a_key_that_differs_is_refused(key, given):
    refusal = read(bare("NodeHeartbeat", **BEAT), key, "nodes.v1")
    assert refusal == Refusal(
        RefusalCode.KEY_MISMATCH, f"the record has {given}; it must be node_id, 'node-0x1'"
    )


@pytest.mark.parametrize(
    ("message", "fields", "topic", "expected"),
    [
        ("StreamCreated", CREATED, "streams.v1", "stream, 'orders'"),
        ("MoveAccepted", {"stream": "orders", "shard": 0}, "acks.v1", "stream/shard, 'orders/0'"),
        (
            "Tick",
            {"partition": 0, "partitions": 1, "writer_epoch": 1, "number": 1},
            "nodes.v1",
            "the tick's, 'tick'",
        ),
    ],
)
def test_every_kind_of_key_is_compared(message, fields, topic, expected):
    refusal = read(bare(message, **fields), b"0", topic)
    assert refusal.code == RefusalCode.KEY_MISMATCH
    assert expected in refusal.detail


@pytest.mark.parametrize("topic", ["streams.v1", "decisions.v1", "no-such-topic\n"])
def test_a_message_on_another_topic_is_refused(topic):
    refusal = read(bare("NodeHeartbeat", **BEAT), b"node-0x1", topic)
    assert refusal.code == RefusalCode.WRONG_TOPIC
    assert "NodeHeartbeat does not belong" in refusal.detail


# The poison corpus: records that must be refused, with the reason

NESTED = b'{"type":"StreamCreated","policy":' + b'{"a":' * 8 + b"1" + b"}" * 9
POISON = {
    "null value": (None, RefusalCode.EMPTY_VALUE),
    "nothing": (b"", RefusalCode.NOT_JSON),
    "no JSON": (b"node-0x1 is up", RefusalCode.NOT_JSON),
    "cut off": (b'{"type": "NodeHeart', RefusalCode.NOT_JSON),
    "two documents": (b"{}{}", RefusalCode.NOT_JSON),
    "registry prefix": (b"\0\0\0\0\1{}", RefusalCode.NOT_JSON),
    "pickle": (b"\x80\x04}\x94.", RefusalCode.NOT_JSON),
    "invalid UTF-8": (b'{"type":"\xff"}', RefusalCode.NOT_JSON),
    "overlong UTF-8": (b'{"type":"\xc0\xaf"}', RefusalCode.NOT_JSON),
    "UTF-16": ('{"type":"NodeHeartbeat"}'.encode("utf-16"), RefusalCode.NOT_JSON),
    "byte order mark": (b'\xef\xbb\xbf{"type":"Tick"}', RefusalCode.NOT_JSON),
    "lone surrogate": (b'{"type":"Tick","x":"\\ud800"}', RefusalCode.NOT_JSON),
    "lone surrogate as a name": (b'{"type":"Tick","\\udfff":1}', RefusalCode.NOT_JSON),
    "raw control character": (b'{"type":"Ti\nck"}', RefusalCode.NOT_JSON),
    "NaN": (b'{"type":"NodeRegistered","weight":NaN}', RefusalCode.NOT_JSON),
    "minus infinity": (b'{"type":"NodeRegistered","weight":-Infinity}', RefusalCode.NOT_JSON),
    "infinite by size": (b'{"weight":1e400}', RefusalCode.NUMBER_OUT_OF_RANGE),
    "65 bits": (b'{"sequence":9223372036854775808}', RefusalCode.NUMBER_OUT_OF_RANGE),
    "minus 65 bits": (b'{"sequence":-9223372036854775809}', RefusalCode.NUMBER_OUT_OF_RANGE),
    "5000 digits": (b'{"sequence":' + b"9" * 5000 + b"}", RefusalCode.NUMBER_OUT_OF_RANGE),
    "list": (b'[{"type":"NodeHeartbeat"}]', RefusalCode.WRONG_TYPE),
    "string": (b'"NodeHeartbeat"', RefusalCode.WRONG_TYPE),
    "null": (b"null", RefusalCode.WRONG_TYPE),
    "repeated field": (b'{"type":"Tick","number":1,"number":2}', RefusalCode.DUPLICATE_FIELD),
    "repeated nested": (b'{"type":"Tick","x":[{"a":1,"a":1}]}', RefusalCode.DUPLICATE_FIELD),
    "repeated by escape": (b'{"type":"Tick","a":1,"\\u0061":1}', RefusalCode.DUPLICATE_FIELD),
    "too deep by one": (NESTED, RefusalCode.TOO_DEEP),
    "ten thousand lists": (b"[" * 10_000 + b"]" * 10_000, RefusalCode.TOO_DEEP),
    "ten thousand objects": (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, RefusalCode.TOO_DEEP),
    "unclosed lists": (b"[" * 60_000, RefusalCode.TOO_DEEP),
    "70 KiB": (b'{"x":"' + b"x" * 70 * 1024 + b'"}', RefusalCode.TOO_LARGE),
    "65 fields": (json.dumps({f"f{n}": n for n in range(65)}), RefusalCode.TOO_MANY_FIELDS),
    "long string": (dumps(type="Tick", x="x" * 1025), RefusalCode.STRING_TOO_LONG),
    "long in bytes": (
        json.dumps({"x": "é" * 513}, ensure_ascii=False),
        RefusalCode.STRING_TOO_LONG,
    ),
    "long name": (dumps(**{"x" * 1025: 1}), RefusalCode.STRING_TOO_LONG),
    "no type": (dumps(**BEAT), RefusalCode.UNKNOWN_TYPE),
    "type a number": (dumps(type=1), RefusalCode.UNKNOWN_TYPE),
    "type null": (dumps(type=None), RefusalCode.UNKNOWN_TYPE),
    "type unknown": (bare("NodeRegistred"), RefusalCode.UNKNOWN_TYPE),
    "type of an output": (bare("Decision"), RefusalCode.UNKNOWN_TYPE),
    "type of another system": (bare("com.example.NodeHeartbeat.v1"), RefusalCode.UNKNOWN_TYPE),
    "type with a newline": (bare("NodeHeartbeat\n"), RefusalCode.UNKNOWN_TYPE),
    "unknown type v2": (bare("placement.Nothing.v2"), RefusalCode.UNKNOWN_TYPE),
    "v2": (bare("placement.NodeRegistered.v2"), RefusalCode.UNKNOWN_VERSION),
    "v0": (bare("placement.NodeRegistered.v0"), RefusalCode.UNKNOWN_VERSION),
}


@pytest.mark.parametrize("name", POISON)
def test_poison_is_refused_with_its_reason(name):
    value, code = POISON[name]
    refusal = decode(value.encode() if isinstance(value, str) else value, None)
    assert isinstance(refusal, Refusal)
    assert refusal.code == code
    assert refusal.detail.isprintable()
    assert 0 < len(refusal.detail) <= limits.DETAIL_LENGTH_MAX


POISON_HEADERS = {
    "type missing": ([("ce_specversion", b"1.0")], RefusalCode.UNKNOWN_TYPE),
    "other CloudEvents": (
        [("ce_specversion", b"2.0"), ("ce_type", b"Tick")],
        RefusalCode.UNKNOWN_VERSION,
    ),
    "type twice": ([("ce_type", b"Tick"), ("ce_type", b"Tick")], RefusalCode.HEADER_MALFORMED),
    "type null": ([("ce_type", None)], RefusalCode.HEADER_MALFORMED),
    "type empty": ([("ce_type", b"")], RefusalCode.HEADER_MALFORMED),
    "type not UTF-8": ([("ce_type", b"\xff")], RefusalCode.HEADER_MALFORMED),
    "id long": ([("ce_type", b"Tick"), ("ce_id", b"x" * 1025)], RefusalCode.HEADER_MALFORMED),
    "version 2": ([("ce_type", b"placement.Tick.v2")], RefusalCode.UNKNOWN_VERSION),
    "headers of 70 KiB": ([("x", b"x" * 70 * 1024)], RefusalCode.TOO_LARGE),
    "structured without data": (
        [("content-type", b"application/cloudevents+json")],
        RefusalCode.WRONG_TYPE,
    ),
}


@pytest.mark.parametrize("name", POISON_HEADERS)
def test_poisoned_headers_are_refused(name):
    headers, code = POISON_HEADERS[name]
    refusal = decode(bare("Tick", number=1), headers)
    assert isinstance(refusal, Refusal)
    assert refusal.code == code


def test_the_limits_themselves_are_still_read():
    eight = b'{"type":"StreamCreated","policy":' + b'{"a":' * 6 + b"[1]" + b"}" * 7
    assert isinstance(decode(eight, None), Envelope)
    fields = {f"f{n}": n for n in range(63)}
    assert isinstance(decode(bare("Tick", **fields), None), Envelope)
    assert isinstance(decode(bare("Tick", x="x" * 1024), None), Envelope)
    extremes = [limits.INTEGER_MAX, limits.INTEGER_MIN]
    assert decode(bare("Tick", x=extremes), None) == Envelope("Tick", 1, None, {"x": extremes})
    padding = limits.RECORD_BYTES_MAX - len(bare("Tick"))
    assert isinstance(decode(bare("Tick") + b" " * padding, None), Envelope)
    refusal = decode(bare("Tick") + b" " * (padding + 1), None)
    assert isinstance(refusal, Refusal)
    assert refusal.code == RefusalCode.TOO_LARGE


def test_depth_does_not_depend_on_the_recursion_limit():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        deep = b'{"a":' * 5_000 + b"1" + b"}" * 5_000
        refusal = decode(deep, None)
        assert isinstance(refusal, Refusal)
        assert refusal.code == RefusalCode.TOO_DEEP
    finally:
        sys.setrecursionlimit(before)


# Fields that nobody knows


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"polcy": {}}, "unknown field 'polcy' of StreamCreated: did you mean 'policy'?"),
        ({"Quorum": 2}, "unknown field 'Quorum' of StreamCreated: did you mean 'quorum'?"),
    ],
)
def test_a_misspelt_field_is_refused(fields, said):
    refusal = read(bare("StreamCreated", **CREATED, **fields), b"orders", "streams.v1")
    assert refusal == Refusal(RefusalCode.UNKNOWN_FIELD, said)


def test_a_misspelt_field_is_named_before_the_one_that_is_missing():
    given = {"shard" if name == "shards" else name: value for name, value in CREATED.items()}
    refusal = read(bare("StreamCreated", **given), b"orders", "streams.v1")
    assert (refusal.code, "did you mean 'shards'?" in refusal.detail) == ("UNKNOWN_FIELD", True)


def test_other_unknown_fields_are_ignored_and_can_be_counted():
    value = bare("StreamCreated", **CREATED, policies=1, trace_id="x", policy={})
    envelope = decode(value, None)
    assert has_unknown_fields(envelope)
    created = validate(envelope, b"orders", "streams.v1")
    assert isinstance(created, StreamCreated)
    assert created.stream == "orders"
    assert not has_unknown_fields(decode(bare("StreamCreated", **CREATED), None))
