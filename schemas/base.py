"""Base of all wire models: strictness, the types of ids, locations and times, and error texts.

Models are frozen and strict (no "3" for 3, no true for 1). Unknown fields are ignored, so that
writers may be newer than readers, and can be counted with `unknown_fields`; those that are hardly
anything but a misspelling are refused where messages and files are read (`spelling`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)
from pydantic_core import ErrorDetails

from schemas import limits


class WireModel(BaseModel):
    """Base of everything that is read from or written to a topic or a cluster file."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


class Message(WireModel):
    """Base of the values of records."""

    def record_key(self) -> str:
        """Return the key that the message's record must have on its topic."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its key is")


def _refuse_dot_components(path: str) -> str:
    if re.search(limits.LOCATION_FORBIDDEN, path):
        raise ValueError("a component may not be '.' or '..'")
    return path


Id = Annotated[str, StringConstraints(pattern=limits.ID_PATTERN)]
"""Node id, stream name, incarnation or cell."""

Location = Annotated[
    str,
    StringConstraints(pattern=limits.LOCATION_PATTERN),
    AfterValidator(_refuse_dot_components),
    Field(json_schema_extra={"not": {"pattern": limits.LOCATION_FORBIDDEN}}),
]
"""`/`-separated path, top tier first: 1 to 8 components of `[A-Za-z0-9_.-]` and `%XX`, none `.` or
`..`."""

TimeMs = Annotated[int, Field(ge=0, le=limits.INTEGER_MAX)]
"""Milliseconds since the epoch, UTC."""

Ordinal = Annotated[int, Field(ge=0, le=limits.INTEGER_MAX)]
"""A number that only rises: sequence, epoch, revision."""

Index = Annotated[int, Field(ge=0, le=limits.COUNT_MAX)]
"""A position or a number of things: shard, slot, partition."""

Count = Annotated[int, Field(ge=limits.COUNT_MIN, le=limits.COUNT_MAX)]
"""A number a stream asks for; the core judges whether it makes sense."""

Text = Annotated[str, Field(max_length=limits.STRING_BYTES_MAX)]
Weight = Annotated[float, Field(ge=limits.WEIGHT_MIN, le=limits.WEIGHT_MAX)]
Capacity = Annotated[int, Field(ge=0, le=limits.CAPACITY_MAX)]
Host = Annotated[str, StringConstraints(pattern=limits.HOST_PATTERN)]
TagKey = Annotated[str, StringConstraints(pattern=limits.TAG_KEY_PATTERN)]
TagValue = Annotated[str, StringConstraints(pattern=limits.TAG_VALUE_PATTERN)]
Tags = Annotated[
    dict[TagKey, TagValue],
    Field(max_length=limits.FIELDS_MAX, json_schema_extra={"additionalProperties": False}),
]

_Item = TypeVar("_Item")
Items = Annotated[tuple[_Item, ...], Field(strict=False)]
"""A JSON array. Only the container is lax (list for tuple); its items stay strict."""

Tokens = Items[Annotated[int, Field(ge=limits.INTEGER_MIN, le=limits.INTEGER_MAX)]] | Items[Text]
"""Ring positions: all integers, in numeric order, or all strings, in code-point order."""


def unknown_fields(model: type[BaseModel], data: Mapping[str, Any]) -> list[str]:
    """List the paths in `data` that `model` has no field for, in order.

    Nested ones as `nodes[0].wieght`.
    """
    return sorted(_find_unknown(model, data, ""))


def _find_unknown(model: type[BaseModel], data: Mapping[str, Any], prefix: str) -> Iterator[str]:
    fields = {info.alias or name: info.annotation for name, info in model.model_fields.items()}
    for name, value in data.items():
        if name not in fields:
            if model.model_config.get("extra") != "allow":
                yield f"{prefix}{name}"
        elif isinstance(value, dict | list | tuple) and _has_model(fields[name]):
            for nested, part, place in _nested_models(fields[name], value, f"{prefix}{name}"):
                yield from _find_unknown(nested, part, f"{place}.")


def _nested_models(
    annotation: Any, value: object, place: str
) -> Iterator[tuple[type[BaseModel], Mapping[str, Any], str]]:
    """Yield the models inside a field's type, each with its data and its path."""
    arguments = get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if isinstance(value, Mapping):
            yield annotation, value, place
    elif get_origin(annotation) is tuple and isinstance(value, list | tuple):
        for index, part in enumerate(value):
            if isinstance(part, dict | list | tuple):
                yield from _nested_models(arguments[0], part, f"{place}[{index}]")
    elif get_origin(annotation) is dict and isinstance(value, Mapping):
        for name, part in value.items():
            yield from _nested_models(arguments[1], part, f"{place}.{name}")
    else:
        for argument in filter(_has_model, arguments):
            yield from _nested_models(argument, value, place)


def _has_model(annotation: Any) -> bool:
    """Return whether a field's type contains a model; only models can have unknown fields."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return True
    return any(map(_has_model, get_args(annotation)))


# Of the fields that are wrong besides the first so many are named: a sentence, not a list.
_WRONG_NAMED_MAX = 5

# How pydantic's error types read in a sentence: "field 'x' must be ...".
_EXPECTED = {
    "int_type": "an integer",
    "string_type": "a string",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "finite_number": "a finite number",
    "string_pattern_mismatch": "of the form {pattern}",
    "string_too_long": "at most {max_length} characters long",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "enum": "{expected}",
    "literal_error": "{expected}",
    "value_error": "legal: {error}",
}


# Expressions that nobody wants to read, in words.
_FORMS = {
    limits.LOCATION_PATTERN: "/eu/az1/rack7: 1 to 8 names of [A-Za-z0-9_.-], each after a '/'",
    limits.ID_PATTERN: "[A-Za-z0-9_.-], 1 to 249 characters",
    limits.HOST_PATTERN: "host or host:port, without blanks",
    limits.TAG_VALUE_PATTERN: "1 to 128 printable ASCII characters",
}


def describe(error: ValidationError, data: Any) -> tuple[str, str]:
    """Name the first faulty field of `data` and its fault, then the other faulty fields.

    At most `_WRONG_NAMED_MAX` others are named.

    What was given is cut and escaped, so that no record can write into a log.
    """
    faults = [(_path(fault["loc"], data), fault) for fault in error.errors(include_url=False)]
    field, first = faults[0]
    more = _format_others([path for path in dict.fromkeys(p for p, _ in faults) if path != field])
    if first["type"] == "missing":
        return field, f"field '{field}' is missing{more}"
    # A field that may be one of several types has one fault for each.
    expected = " or ".join(
        dict.fromkeys(_format_expected(f) for path, f in faults if path == field)
    )
    return field, f"field '{field}' must be {expected}, it is {echo(first['input'])}{more}"


def _format_others(fields: Sequence[str]) -> str:
    """Format the end of a sentence that names further wrong fields; empty if there are none."""
    if not fields:
        return ""
    named = ", ".join(f"'{field}'" for field in fields[:_WRONG_NAMED_MAX])
    left = len(fields) - _WRONG_NAMED_MAX
    return f"; also wrong: {named}" + (f" and {left} more" if left > 0 else "")


def echo(value: object) -> str:
    """Quote a value as ASCII without control characters, cut to a length fit for a log."""
    text = ascii(value)
    cut = text[: limits.ECHO_LENGTH_MAX]
    return cut if cut == text else f"{cut}..."


def _format_expected(fault: ErrorDetails) -> str:
    template = _EXPECTED.get(fault["type"])
    if template is None:
        return fault["msg"]
    given = fault.get("ctx", {})
    pattern = str(given.get("pattern"))
    return template.format(**given | {"pattern": _FORMS.get(pattern, pattern)})


def _path(loc: tuple[int | str, ...], data: Any) -> str:
    """Format the parts of pydantic's location that exist in the data, as in `replicas[0][2]`.

    The other parts name branches of a union, except the last one, which may be a missing field.
    """
    path = ""
    for position, part in enumerate(loc):
        inside = isinstance(data, Mapping) and part in data
        if isinstance(part, int) and isinstance(data, Sequence) and not isinstance(data, str):
            path, data = f"{path}[{part}]", data[part]
        elif inside or (isinstance(data, Mapping) and position == len(loc) - 1 and part != "[key]"):
            name = echo(part)[1:-1] if isinstance(part, str) else str(part)
            path, data = (f"{path}.{name}" if path else name), data[part] if inside else None
    return path
