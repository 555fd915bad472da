"""Translates journal entries: events and the configuration, written and read back.

An entry holds what the core was given: ordered events, time, whether the source was read to its
end, and, in the first entry of each writer, the configuration. Read back, that gives every record
again (`streaming.replay`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from typing import Any, get_args

import orjson
from pydantic import TypeAdapter, ValidationError

from placement.model import Configuration, Event
from streaming.codec.values import fields_of

_EVENTS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}
_READERS: Mapping[type[Any], TypeAdapter[Any]] = {
    kind: TypeAdapter(kind) for kind in (*_EVENTS.values(), Configuration)
}


def journal_event(each: Event) -> list[Any]:
    """An event as the journal keeps it: its kind and its fields."""
    nested = {
        name: fields_of(value) for name, value in fields_of(each).items() if is_dataclass(value)
    }
    body = fields_of(each) | nested
    return [type(each).__name__, body]


def parse_journal_event(line: Sequence[Any]) -> Event:
    """Read what `journal_event` wrote. Raises ValueError, which says what is wrong with it."""
    kind, body = line
    if kind not in _EVENTS:
        raise ValueError(f"{kind!r} is not an event that this version knows")
    # What is not set was left out.
    unset = {field.name: None for field in fields(_EVENTS[kind]) if field.default is MISSING}
    event: Event = _parse_values(_EVENTS[kind], unset | body)
    return event


def configuration_body(configuration: Configuration) -> dict[str, Any]:
    """Write the configuration as the marker and a writer's first journal entry carry it."""
    return asdict(configuration)


def parse_configuration(body: Mapping[str, Any]) -> Configuration:
    """Read what `configuration_body` wrote. Raises ValueError."""
    configuration: Configuration = _parse_values(Configuration, body)
    return configuration


def _parse_values(kind: type[Any], body: Mapping[str, Any]) -> Any:
    try:
        # As JSON, so that a list is a tuple and a word an enumeration's, and nothing else is bent.
        return _READERS[kind].validate_json(orjson.dumps(body), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{kind.__name__}.{place}: {first['msg']}") from None
