"""Fills the settings model: flags over `PLACER_…` environment over a YAML file over defaults.

The command line calls `load_settings` once per command. A setting is replaced as a whole by a
stronger source, also when its value is a mapping: half of one policy mixed with half of another is
nobody's policy. What is wrong is said in one line per mistake that names where it stands.
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError
from pydantic_settings import EnvSettingsSource

from streaming.errors import SettingsInvalid
from streaming.settings.document import KeyPath, SettingsDocument, read_document
from streaming.settings.sections import ResourceSettings, Section
from streaming.settings.settings import ENV_DELIMITER, ENV_PREFIX, Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic_core import ErrorDetails

ENV_CONFIG = "PLACER_CONFIG"

# pydantic's words and ours for the same thing.
PHRASES = (
    ("Value error, ", ""),
    ("Input should be ", "expected "),
    ("Input should ", "expected to "),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    ("greater than", "more than"),
    ("a valid integer", "a whole number"),
    ("valid ", ""),
)


def load_settings(
    config: Path | None = None, flags: Mapping[str, object] | None = None
) -> Settings:
    """The settings in force: `flags` over environment over the file `config` over defaults.

    `flags` maps dotted names (`"liveness.dead_after_seconds"`) to values; a None is a flag that
    was not given. Without `config` the file named by PLACER_CONFIG is read, if any.

    Raises SettingsInvalid with a line for each mistake, naming where it stands.
    """
    if config is None and os.environ.get(ENV_CONFIG):
        config = Path(os.environ[ENV_CONFIG])
    document = read_document(config) if config else SettingsDocument()
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    problems = list(_unknown_variables())
    values = _layer(document.values, EnvSettingsSource(Settings)())
    values = _layer(values, _nest(given))
    try:
        settings = Settings(**values)
    except ValidationError as error:
        problems += [_describe(mistake, given, document) for mistake in error.errors()]
        raise SettingsInvalid(problems) from error
    if problems:
        raise SettingsInvalid(problems)
    return settings


def _sections() -> dict[str, type[BaseModel]]:
    annotations = {name: field.annotation for name, field in Settings.model_fields.items()}
    return {
        name: annotation
        for name, annotation in annotations.items()
        if isinstance(annotation, type) and issubclass(annotation, Section)
    }


def _layer(weaker: Mapping[str, Any], stronger: Mapping[str, Any]) -> dict[str, Any]:
    layered = dict(weaker)
    for name, value in stronger.items():
        below = layered.get(name)
        if name in _sections() and isinstance(below, dict) and isinstance(value, dict):
            layered[name] = {**below, **value}
        else:
            layered[name] = value
    # A section with nothing but comments beneath its name is null in YAML.
    return {name: {} if v is None and name in _sections() else v for name, v in layered.items()}


def _nest(flags: Mapping[str, object]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in flags.items():
        section, _, field_name = name.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[field_name] = value
    return nested


def _unknown_variables() -> Iterable[str]:
    """Variables with our delimiter that name no section.

    Others with our prefix are left alone: Kubernetes sets PLACER_PORT and PLACER_SERVICE_HOST for
    a service called placer.
    """
    for name in sorted(os.environ):
        path = name.upper().removeprefix(ENV_PREFIX).lower().split(ENV_DELIMITER)
        if name.upper().startswith(ENV_PREFIX) and len(path) > 1 and path[0] not in _sections():
            yield f"environment {name}: unknown setting{_suggestion(path[0], _sections())}"


def _describe(
    mistake: ErrorDetails, flags: Mapping[str, object], document: SettingsDocument
) -> str:
    """`FILE:LINE: setting: what was expected, got …` for one error of pydantic."""
    path: KeyPath = tuple(str(part) for part in mistake["loc"])
    origin = f"{_origin(path, flags, document)}: {'.'.join(path)}: "
    if mistake["type"] == "extra_forbidden":
        return f"{origin}unknown setting{_suggestion(path[-1], _siblings(path))}"
    if mistake["type"] in ("model_type", "dict_type"):
        return f"{origin}expected a mapping"
    message = re.split(", unable to parse|, got ", mistake["msg"])[0]
    for theirs, ours in PHRASES:
        message = message.replace(theirs, ours)
    value = mistake["input"]
    # Among options any value may be a secret that was put in the wrong place.
    if isinstance(value, str | int | float) and "options" not in path:
        message += f", got {value!r}"
    return origin + message


def _siblings(path: KeyPath) -> Iterable[str]:
    """Names that the setting at `path` could have had."""
    if path[0] == "resources":
        return ResourceSettings.model_fields
    return _sections().get(path[0], Settings).model_fields


def _origin(path: KeyPath, flags: Mapping[str, object], document: SettingsDocument) -> str:
    """Where the value at `path` was given."""
    above = [path[:depth] for depth in range(len(path), 0, -1)]
    variables = {name.upper(): name for name in os.environ}
    for part in above:
        if ".".join(part) in flags:
            return "command line"
    for part in above:
        variable = variables.get(ENV_PREFIX + ENV_DELIMITER.join(part).upper())
        if variable:
            return f"environment {variable}"
    # A section alone is no origin: the value may be a default within it.
    for part in above if path[0] not in _sections() else above[:-1] or above:
        if part in document.lines:
            return f"{document.name}:{document.lines[part]}"
    return "default"


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name.lower(), list(known), n=1)
    return f", did you mean {close[0]}?" if close else ""
