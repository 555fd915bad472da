"""The AsyncAPI 3.0 document of all topics, derived from the catalogue and the models.

It is written by `schemas.generate` and says nothing that they do not: tools that read AsyncAPI make
documents, clients and mocks from it.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from schemas.base import Message, WireModel
from schemas.envelope import VERSION, encode_headers, type_name
from schemas.topics import CATALOGUE, DEAD_LETTERS, Topic, full_name

_DRAFT = "application/schema+json;version=draft-2020-12"
_BINDING_VERSION = "0.5.0"
_HEADERS = {
    "type": "object",
    "description": "CloudEvents 1.0, Kafka's binary mode.",
    "required": ["ce_specversion", "ce_type", "ce_id", "ce_source"],
    "properties": {
        "ce_specversion": {"const": "1.0"},
        "ce_type": {"type": "string"},
        "ce_id": {"type": "string", "description": "A hash of content: equal ids, equal bodies."},
        "ce_source": {"type": "string"},
        "ce_subject": {"type": "string", "description": "The record's key."},
        "ce_time": {"type": "string", "format": "date-time"},
        "content-type": {"const": "application/json"},
    },
}


def document(
    models: Mapping[str, type[WireModel]], examples: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    """Compose the whole AsyncAPI document from `models` and `examples` (one payload each) by
    message name."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Placement reconciler",
            "version": f"{VERSION}.0.0",
            "description": "Topics of the streaming placement reconciler. Names begin with a "
            "prefix that can be set; shown is the default.",
        },
        "defaultContentType": "application/json",
        "channels": {topic.name: _channel(topic) for topic in CATALOGUE},
        "operations": {_operation_name(topic): _operation(topic) for topic in CATALOGUE},
        "components": {
            "messages": {
                name: _message(name, topic, models[name], examples[name])
                for topic in CATALOGUE
                for name in topic.messages
            }
            | {"DeadLetter": _dead_letter()}
        },
    }


def _names(topic: Topic) -> tuple[str, ...]:
    return ("DeadLetter",) if topic.name == DEAD_LETTERS else topic.messages


def _channel(topic: Topic) -> dict[str, Any]:
    settings: dict[str, Any] = {"cleanup.policy": [topic.cleanup]}
    if "retention.ms" in topic.configs:
        settings["retention.ms"] = int(topic.configs["retention.ms"])
    if "delete.retention.ms" in topic.configs:
        settings["delete.retention.ms"] = int(topic.configs["delete.retention.ms"])
    settings["max.message.bytes"] = int(topic.configs.get("max.message.bytes", 1_048_588))
    return {
        "address": full_name(topic),
        "description": topic.description,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in _names(topic)},
        "bindings": {
            "kafka": {
                "topic": full_name(topic),
                "partitions": topic.partitions,
                "topicConfiguration": settings,
                "bindingVersion": _BINDING_VERSION,
            }
        },
    }


def _operation_name(topic: Topic) -> str:
    verb = "read" if topic.direction == "in" else "write"
    return f"{verb}-{topic.name.removesuffix('.v1')}"


def _operation(topic: Topic) -> dict[str, Any]:
    channel = f"#/channels/{topic.name}"
    return {
        "action": "receive" if topic.direction == "in" else "send",
        "channel": {"$ref": channel},
        "summary": topic.description,
        "messages": [{"$ref": f"{channel}/messages/{name}"} for name in _names(topic)],
    }


def _message(
    name: str, topic: Topic, model: type[WireModel], example: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": type_name(name),
        "title": name,
        "summary": " ".join((model.__doc__ or "").split()),
        "contentType": "application/json",
        "headers": _HEADERS,
        "payload": {"schemaFormat": _DRAFT, "schema": {"$ref": f"json/{name}.schema.json"}},
        "bindings": {
            "kafka": {
                "key": {"type": "string", "description": topic.key},
                "bindingVersion": _BINDING_VERSION,
            }
        },
        "examples": [{"headers": _example_headers(name, model, example), "payload": example}],
    }


# The time of the examples: 2026-01-01, 00:00 UTC.
_EXAMPLE_MS = 1_767_225_600_000


def _example_headers(
    name: str, model: type[WireModel], example: dict[str, Any]
) -> dict[str, str | None]:
    message = model.model_validate(example)
    assert isinstance(message, Message)
    key = message.record_key()
    identity = sha256(f"{name} {key}".encode()).hexdigest()[:32]
    headers = encode_headers(name, cell="main", id=identity, subject=key, time_ms=_EXAMPLE_MS)
    return {header: text.decode() if text else None for header, text in headers}


def _dead_letter() -> dict[str, Any]:
    return {
        "name": "DeadLetter",
        "title": "DeadLetter",
        "summary": "A refused record: its own key, its first KiB, and why, in headers that begin "
        "with __placement.errors. In a flood one without key and value stands for many: count, and "
        "offset to offset.last.",
        "contentType": "application/octet-stream",
        "headers": {
            "type": "object",
            "description": "The record's own headers, if they are no longer than 1 KiB, and these.",
            "properties": {
                f"{_ERRORS}{name}": {"type": "string", "description": text}
                for name, text in _LETTER_HEADERS.items()
            },
        },
        "payload": {"description": "The first KiB of the record, whatever it was."},
        "examples": [
            {
                "headers": {
                    f"{_ERRORS}{name}": text
                    for name, text in (
                        ("topic", "placement.streams.v1"),
                        ("partition", "0"),
                        ("offset", "12"),
                        ("timestamp", str(_EXAMPLE_MS)),
                        ("stage", "validate"),
                        ("reason", "WRONG_TYPE"),
                        ("message", "field 'shards' must be an integer, it is 'three'"),
                        ("value.sha256", sha256(_REFUSED.encode()).hexdigest()),
                        ("value.bytes", str(len(_REFUSED))),
                        ("headers.bytes", "0"),
                    )
                },
                "payload": _REFUSED,
            }
        ],
    }


_ERRORS = "__placement.errors."
_REFUSED = '{"type":"StreamCreated","stream":"orders","sequence":1,"shards":"three"}'
_LETTER_HEADERS = {
    "topic": "Topic of the refused record.",
    "partition": "Its partition.",
    "offset": "Its offset; in a summary that of the first.",
    "offset.last": "In a summary: the offset of the last record that it stands for.",
    "count": "In a summary: how many records it stands for.",
    "timestamp": "When the broker appended it, in ms since the epoch, UTC.",
    "stage": "Where it was refused: `decode`, `validate`, `order` or `apply`.",
    "reason": "Code of the refusal: see the tables of refusals and reasons.",
    "message": "The refusal in a sentence.",
    "value.sha256": "SHA-256 of the whole value, in hexadecimal.",
    "value.bytes": "Length of the whole value in bytes.",
    "headers.bytes": "Length of all its headers in bytes.",
}
