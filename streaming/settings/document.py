"""Reads one YAML settings document and remembers on which line each key stands.

`settings_sources.py` layers the values; the lines are for its error messages. PyYAML alone keeps
the last of two equal keys without a word, which would hide half of a file, so a repeated key is an
error here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from streaming.errors import SettingsInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KeyPath = tuple[str, ...]


@dataclass(frozen=True)
class SettingsDocument:
    """The content of one file: nested values, and the line (from 1) of each key by its path."""

    name: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[KeyPath, int] = field(default_factory=dict)


def read_document(path: Path) -> SettingsDocument:
    """Read `path`; an empty file is an empty document.

    Raises SettingsInvalid when the file cannot be read, is not one YAML mapping with text keys, or
    holds the same key twice.
    """
    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise SettingsInvalid([f"{path}: cannot be read: {reason}"]) from error
    except yaml.YAMLError as error:
        raise SettingsInvalid([f"{path}: {_describe(error)}"]) from error
    try:
        root = loader.get_single_node()
        if root is None:
            return SettingsDocument(str(path))
        if not isinstance(root, yaml.MappingNode):
            raise SettingsInvalid([f"{path}:1: expected a mapping of settings"])
        lines: dict[KeyPath, int] = {}
        repeated = []
        for key_path, line in _keys(root, ()):
            if key_path in lines:
                repeated.append(
                    f"{path}:{line}: {'.'.join(key_path)}: given twice, first on line "
                    f"{lines[key_path]}"
                )
            lines.setdefault(key_path, line)
        if repeated:
            raise SettingsInvalid(repeated)
        return SettingsDocument(str(path), loader.construct_document(root), lines)
    except yaml.YAMLError as error:
        raise SettingsInvalid([f"{path}:{_describe(error)}"]) from error
    finally:
        loader.dispose()


def _keys(node: yaml.MappingNode, above: KeyPath) -> Iterator[tuple[KeyPath, int]]:
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
            raise yaml.constructor.ConstructorError(
                None, None, "a key must be text", key.start_mark
            )
        yield (*above, key.value), line
        if isinstance(value, yaml.MappingNode):
            yield from _keys(value, (*above, key.value))


def _describe(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "not YAML"
    return f"{mark.line + 1}: {problem}" if mark else f" {problem}"
