"""Defines the types of settings and how text of YAML or variables is read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
)
from pydantic_core.core_schema import CoreSchema, no_info_after_validator_function

from schemas import limits

# A value under such a name is a secret: it never stands in a file, a variable or an output.
SECRET_KEY = re.compile(r"secret|password|token|access.?key|jaas", re.IGNORECASE)
SECRET_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/.+")
SECRET_MASK = "***"

# What names its file system, and not only a path.
URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")

# Exactly-once output and recovery from the topics rest on these; another value would break both
# without a sign.
KAFKA_OPTIONS_FIXED = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.idempotence",
        "group.id",
        "isolation.level",
        "partitioner",
        "transactional.id",
    }
)

# Traffic that leaves this machine is encrypted, unless a setting allows plain text.
LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[?::1\]?):\d+", re.IGNORECASE)

# A day: longer waits are a typing mistake in the unit (ms for s) rather than a wish.
DURATION_SECONDS_MAX = 86_400.0
# The silence clock of a partition advances by at most 3 s per record: with slower ticks it
# would fall behind and every verdict would come late.
TICK_INTERVAL_SECONDS_MAX = 3.0


def mapping_of_text(value: object) -> object:
    """A mapping as it came from YAML, or written as JSON in an environment variable."""
    if not isinstance(value, str):
        return value
    try:
        parsed = yaml.safe_load(value)
    except yaml.YAMLError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError('expected a mapping, in an environment variable as JSON: {"key": "value"}')
    return parsed


def path_or_uri(value: object) -> object:
    """A path of this machine as a Path; a URI, which names its file system, as text."""
    return Path(value) if isinstance(value, str) and not URI.match(value) else value


def accept_false(value: object) -> object:
    """YAML 1.1 reads a bare `off` as false."""
    return "off" if value is False else value


def accept_none(value: object) -> object:
    """Read the word `none` as YAML's null."""
    return None if value == "none" else value


def _texts_of_scalars(value: object) -> object:
    """Option values as text: YAML reads `true` and `5000` as other types, clients take text."""
    parsed = mapping_of_text(value)
    if not isinstance(parsed, dict):
        return parsed
    return {str(key): _text_of_scalar(option) for key, option in parsed.items()}


def _text_of_scalar(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def names_of_list(value: object) -> object:
    """A list, or names separated by commas as an environment variable gives them."""
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


class _Matching:
    """Text that fits `pattern` as a whole; `expected` says it in words, for the error message."""

    def __init__(self, pattern: str, expected: str) -> None:
        self._pattern, self._expected = pattern, expected

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "pattern": f"^(?:{self._pattern})$"}

    def _check(self, value: str) -> str:
        if not re.fullmatch(self._pattern, value):
            raise ValueError(f"expected {self._expected}")
        return value


Name = Annotated[str, _Matching(limits.ID_PATTERN, "1 to 249 letters, digits, '_', '.' or '-'")]
Addresses = Annotated[
    str,
    _Matching(r"[^\s,]+:\d{1,5}(,[^\s,]+:\d{1,5})*", "host:port, several separated by commas"),
]
TopicPrefix = Annotated[
    str,
    _Matching(
        limits.TOPIC_PREFIX_PATTERN, "words of letters, digits and '-', each with a '.' behind it"
    ),
    Field(max_length=128),
]
MemorySize = Annotated[str, _Matching(r"[1-9]\d*[kmgKMG]", "a number and a unit, e.g. 512m or 2g")]
DurationSeconds = Annotated[float, Field(gt=0, le=DURATION_SECONDS_MAX, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Options = Annotated[dict[str, str], BeforeValidator(_texts_of_scalars)]
