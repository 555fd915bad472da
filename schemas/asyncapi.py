"""The AsyncAPI 3.0 document of all topics, derived from the catalogue and the models.

It is written by `schemas.generate` and says nothing that they do not: tools that read AsyncAPI make
documents, clients and mocks from it.
"""

from collections.abc import Mapping
from typing import Any

from schemas.base import WireModel
from schemas.envelope import VERSION, type_name
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


def document(models: Mapping[str, type[WireModel]]) -> dict[str, Any]:
    """The whole document; `models` by message name."""
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
                name: _message(name, topic, models[name])
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


def _message(name: str, topic: Topic, model: type[WireModel]) -> dict[str, Any]:
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
    }


def _dead_letter() -> dict[str, Any]:
    return {
        "name": "DeadLetter",
        "title": "DeadLetter",
        "summary": "A refused record: its own key, its first KiB, and why, in headers that begin "
        "with __placement.errors. In a flood one without key and value stands for many: count, and "
        "offset to offset.last.",
        "contentType": "application/octet-stream",
        "payload": {"description": "The first KiB of the record, whatever it was."},
    }
