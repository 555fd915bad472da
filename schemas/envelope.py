"""From the bytes of a Kafka record to an input message, or to a refusal that says why not.

Reads CloudEvents 1.0 in binary mode (`ce_*` headers), in structured mode, and bare JSON with a
`type` field, so that a console producer is enough to try it. Nothing here raises for any bytes:
one record that did would stop the query at every restart. Heartbeats, where speed
counts, take a shorter way in the shell.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from schemas import limits
from schemas.acks import MoveMessage
from schemas.base import describe, echo
from schemas.inputs import INPUTS, InputMessage, NodeMessage, Tick
from schemas.parsing import Refusal, RefusedError, parse_object
from schemas.refusals import RefusalCode
from schemas.spelling import find_meant_field
from schemas.topics import BY_NAME

__all__ = [
    "TYPE_HEADER",
    "Envelope",
    "Refusal",
    "decode",
    "encode_headers",
    "has_unknown_fields",
    "make_header_encoder",
    "type_name",
    "validate",
]

Headers = Sequence[tuple[str, bytes | None]]

TYPE_PREFIX = "placement."
# The only version of every message there is; another one is refused, not guessed at.
VERSION = 1
CONTENT_TYPE = "content-type"
TYPE_HEADER = "ce_type"
# Of a tombstone in `violations.v1` that was not written because the shard was healed: `dropped`.
OUTCOME_HEADER = "ce_outcome"
_STRUCTURED = "application/cloudevents+json"
_TYPE = re.compile(r"placement\.([A-Za-z]+)\.v([0-9]{1,9})")
_SHORT_TYPE = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Envelope:
    """A record whose JSON is sound and whose message is known. `data` is not validated yet."""

    message: str
    version: int
    id: str | None
    data: dict[str, Any]


def type_name(message: str) -> str:
    """Return the CloudEvents type of a message: `placement.NodeRegistered.v1`."""
    return f"{TYPE_PREFIX}{message}.v{VERSION}"


def decode(
    value: bytes | None, headers: Headers | None, bytes_max: int = limits.RECORD_BYTES_MAX
) -> Envelope | Refusal:
    """Read a record's value and headers; `schemas.limits` bounds them."""
    try:
        return _decode(value, headers or (), bytes_max)
    except RefusedError as refused:
        return refused.refusal
    except RecursionError:
        return Refusal(RefusalCode.TOO_DEEP, f"more than {limits.DEPTH_MAX} nested levels")
    except Exception as error:  # noqa: BLE001 - a parser's surprise is the record's fault
        detail = f"the value cannot be read as JSON: {echo(str(error))}"
        return Refusal(RefusalCode.NOT_JSON, detail)


def validate(envelope: Envelope, key: bytes | None, topic: str) -> InputMessage | Refusal:
    """Check the message against its topic's short name (`nodes.v1`), its model and the key."""
    carried = BY_NAME[topic].messages if topic in BY_NAME else ()
    if envelope.message not in carried:
        detail = f"{envelope.message} does not belong on topic {echo(topic)}"
        return Refusal(RefusalCode.WRONG_TOPIC, detail)
    misspelt = _find_misspelt(envelope)
    if misspelt is not None:
        return misspelt
    try:
        message = INPUTS[envelope.message].model_validate(envelope.data)
    except ValidationError as error:
        _, sentence = describe(error, envelope.data)
        return Refusal(RefusalCode.WRONG_TYPE, sentence[: limits.DETAIL_LENGTH_MAX])
    expected = message.record_key()
    if key == expected.encode():
        return message
    given = "no key" if key is None else f"the key {echo(key)[1:]}"
    detail = f"the record has {given}; it must be {_key_field(message)}, '{expected}'"
    return Refusal(RefusalCode.KEY_MISMATCH, detail[: limits.DETAIL_LENGTH_MAX])


def has_unknown_fields(envelope: Envelope) -> bool:
    """Return whether a message has fields that this version does not know and ignores."""
    return not INPUTS[envelope.message].model_fields.keys() >= envelope.data.keys()


def _find_misspelt(envelope: Envelope) -> Refusal | None:
    """Find the first unknown field whose name is nearly that of a missing one.

    To ignore it would carry out another request than was meant.
    """
    if not has_unknown_fields(envelope):
        return None
    fields = INPUTS[envelope.message].model_fields
    absent = [name for name in fields if name not in envelope.data]
    for name in envelope.data:
        meant = None if name in fields else find_meant_field(name, absent)
        if meant is not None:
            said = f"unknown field {echo(name)} of {envelope.message}: did you mean '{meant}'?"
            return Refusal(RefusalCode.UNKNOWN_FIELD, said)
    return None


def encode_headers(
    message: str,
    *,
    cell: str,
    id: str,  # noqa: A002 - the attribute's name in CloudEvents
    subject: str,
    time_ms: int,
) -> list[tuple[str, bytes | None]]:
    """Encode the headers of an output record, in CloudEvents binary mode.

    `subject` is the record's key; `time_ms` the core's time, never a clock's. Equal arguments give
    equal bytes.
    """
    return make_header_encoder(message, cell, time_ms)(id.encode(), subject.encode())


# A transaction writes up to a million records of a few kinds with one time; a few dozen times are
# in use at once.
@lru_cache(maxsize=256)
def make_header_encoder(
    message: str, cell: str, time_ms: int
) -> Callable[[bytes, bytes], list[tuple[str, bytes | None]]]:
    """Return `encode_headers` for records of one kind and time, of their `id` and `subject`."""
    version = ("ce_specversion", b"1.0")
    source = ("ce_source", f"/placement/{cell}".encode())
    kind = (TYPE_HEADER, type_name(message).encode())
    time = ("ce_time", _rfc3339(time_ms))
    content = (CONTENT_TYPE, b"application/json")

    def encode(identity: bytes, subject: bytes) -> list[tuple[str, bytes | None]]:
        mine, about = ("ce_id", identity), ("ce_subject", subject)
        return [version, mine, source, kind, time, about, content]

    return encode


def _rfc3339(time_ms: int) -> bytes:
    seconds, milliseconds = divmod(time_ms, 1000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{milliseconds:03d}Z".encode()


def _decode(value: bytes | None, headers: Headers, bytes_max: int) -> Envelope | Refusal:
    if value is None:
        return Refusal(RefusalCode.EMPTY_VALUE, "the record has no value")
    size = len(value) + sum(len(name) + len(content or b"") for name, content in headers)
    if size > bytes_max:
        detail = f"the record has {size} bytes, at most {bytes_max} are read"
        return Refusal(RefusalCode.TOO_LARGE, detail)
    attributes = _attributes(headers)
    body = parse_object(value)
    if attributes.get(CONTENT_TYPE, "").lower().startswith(_STRUCTURED):
        return _open(body, body.get("specversion"), body.get("type"), body.get("id"), "data")
    if TYPE_HEADER in attributes or "ce_specversion" in attributes:
        version, identifier = attributes.get("ce_specversion"), attributes.get("ce_id")
        return _open(body, version, attributes.get(TYPE_HEADER), identifier, None)
    envelope = _open(body, None, body.get("type"), None, None)
    envelope.data.pop("type")
    return envelope


def _open(
    body: dict[str, Any], specversion: object, type_: object, id_: object, inner: str | None
) -> Envelope:
    if specversion not in (None, "1.0"):
        raise RefusedError(
            RefusalCode.UNKNOWN_VERSION, f"CloudEvents {echo(specversion)} is not read, 1.0 is"
        )
    message, version = _message(type_)
    data = body if inner is None else body.get(inner)
    if not isinstance(data, dict):
        raise RefusedError(RefusalCode.WRONG_TYPE, f"field '{inner}' must be an object")
    return Envelope(message, version, id_ if isinstance(id_, str) else None, data)


def _message(type_: object) -> tuple[str, int]:
    if not isinstance(type_, str):
        given = "missing" if type_ is None else f"{echo(type_)}, not a string"
        raise RefusedError(RefusalCode.UNKNOWN_TYPE, f"the type is {given}")
    full = _TYPE.fullmatch(type_)
    if full is None and not _SHORT_TYPE.fullmatch(type_):
        raise RefusedError(RefusalCode.UNKNOWN_TYPE, f"{echo(type_)} is not the type of a message")
    message, version = (full[1], int(full[2])) if full else (type_, VERSION)
    if message not in INPUTS:
        raise RefusedError(RefusalCode.UNKNOWN_TYPE, f"{echo(message)} is not an input message")
    if version != VERSION:
        detail = f"{message} is read in version {VERSION}, not {version}"
        raise RefusedError(RefusalCode.UNKNOWN_VERSION, detail)
    return message, version


def _attributes(headers: Headers) -> dict[str, str]:
    """Decode the headers that describe the event; other headers are ignored."""
    found: dict[str, str] = {}
    for name, content in headers:
        if name != CONTENT_TYPE and not name.startswith("ce_"):
            continue
        if name in found or not content or len(content) > limits.STRING_BYTES_MAX:
            fault = "repeated" if name in found else "empty or too long"
            raise RefusedError(RefusalCode.HEADER_MALFORMED, f"header {echo(name)} is {fault}")
        try:
            found[name] = content.decode()
        except UnicodeDecodeError:
            detail = f"header {echo(name)} is not UTF-8"
            raise RefusedError(RefusalCode.HEADER_MALFORMED, detail) from None
    return found


def _key_field(message: InputMessage) -> str:
    if isinstance(message, NodeMessage):
        return "node_id"
    if isinstance(message, Tick):
        return "the tick's"
    return "stream/shard" if isinstance(message, MoveMessage) else "stream"
