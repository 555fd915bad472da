"""Reads cluster files: one document after another, each understood or a fault with its line.

YAML, JSON and JSON lines; with the C loader where there is one. Where one document is wrong, the
others are read all the same.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import orjson
import yaml

from schemas.base import unknown_fields
from schemas.cluster import Cluster, ClusterFile, DocumentError, parse_cluster
from streaming.offline.cluster_file import EXPONENT

# The C loader reads ten times faster; the wheels of PyYAML bring it.
_Loader: Any = type("_Loader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", EXPONENT, list("-+0123456789"))
# JSON's escape of a character beyond 16 bits, which YAML does not have.
_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)(\\u[dD][89abAB]..\\u[dD][c-fC-F]..)")

# Where a YAML document begins; no other line may begin so, in a quoted text neither.
_DOCUMENT = re.compile(r"---(\s|$)")
# What may stand before it: comments and directives.
_PREFACE = re.compile(r"\s*(#.*|%.*)?")
# Bytes that are not UTF-8, as Python's "surrogateescape" reads them.
_NOT_UTF8 = re.compile("[\udc80-\udcff]")

Parse = Callable[[object], Cluster | DocumentError]
"""What understands the value of a document."""


@dataclass(frozen=True, slots=True)
class DocumentFault:
    """A document that cannot be understood: the sentence, its line from 1, and the field."""

    message: str
    line: int | None
    field: str | None

    def body(self) -> dict[str, Any]:
        """The answer's `error` object."""
        return {"message": self.message, "line": self.line, "field": self.field}


class SourceText:
    """The text of a document: where in the file its fields stand. A tree of YAML nodes takes a
    hundred times as long as the values alone, so that one is made when somebody asks for it."""

    def __init__(self, root: Callable[[], yaml.Node | None], offset: int) -> None:
        self._make, self._offset = root, offset

    @cached_property
    def _root(self) -> yaml.Node | None:
        return self._make()

    def line(self, field: str | None) -> int | None:
        """Find the line of the field `nodes[3].location`, or of the last part of its path that
        exists. None for an empty document."""
        node = self._root
        if node is None:
            return None
        for part in (field or "").replace("[", ".[").split("."):
            below = _child(node, part)
            if below is None:
                break
            node = below
        return int(node.start_mark.line) + self._offset + 1


@dataclass(frozen=True, slots=True)
class Document:
    """A document that was understood. `written` knows where its fields stand, if it was read from
    a text; `ignored` are its fields that nobody reads; `value`: all of it as it was given."""

    cluster: Cluster
    written: SourceText | None = field(default=None, compare=False)
    ignored: tuple[str, ...] = ()
    value: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def line(self, field: str) -> int | None:
        """The line of a field, such as `streams[2]`."""
        return self.written.line(field) if self.written else None


def parse_documents(text: str, parse: Parse = parse_cluster) -> Iterator[Document | DocumentFault]:
    """Every document of a YAML or JSON text, or of newline-delimited JSON, understood or not.

    A document that is not well-formed is only its own fault. Bytes that are no text come as
    "surrogateescape" reads them. `parse`: `parse_streams` where documents may leave out the nodes.
    """
    for first, piece in _pieces(text):
        wrong = _NOT_UTF8.search(piece)
        if wrong:
            line = first + piece.count("\n", 0, wrong.start())
            yield DocumentFault("not UTF-8, nor any other text", line, None)
            continue
        value = _json(piece)
        if value is not None:
            root = partial(_compose, piece)
            yield _parse_value(value, SourceText(root, first - 1), parse)
        else:
            yield from _yaml(piece, first, parse)


def _yaml(piece: str, first: int, parse: Parse) -> Iterator[Document | DocumentFault]:
    """The documents of a text in YAML that begins on the line `first`."""
    try:
        for node in yaml.compose_all(_PAIR.sub(_join_surrogates, piece), Loader=_Loader):
            yield _read_document(node, first - 1, parse)
    except yaml.MarkedYAMLError as error:
        # The mark of a text that ends too soon stands behind its last line.
        below = min(error.problem_mark.line if error.problem_mark else 0, piece.count("\n"))
        yield DocumentFault(f"not YAML: {error.problem}", first + below, None)
    except (yaml.YAMLError, RecursionError) as error:
        yield DocumentFault(f"not YAML: {error}", first, None)


def _json(piece: str) -> dict[str, Any] | None:
    """Parse a JSON object at once. None for other text, and for an object with a fault that YAML's
    reader can locate: a repeated key, a bad number."""
    if not piece.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(
            piece, object_pairs_hook=_refuse_repeated_keys, parse_constant=_refuse_repeated_keys
        )
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_repeated_keys(pairs: list[tuple[str, Any]] | str) -> dict[str, Any]:
    """A JSON object of which no key is given twice. Raises ValueError, also for a constant that
    only JavaScript has."""
    values = {} if isinstance(pairs, str) else dict(pairs)
    if len(values) < len(pairs):
        raise ValueError
    return values


def _compose(piece: str) -> yaml.Node | None:
    """The tree of a text's first document; None for JSON that is no YAML, such as with tabs."""
    try:
        return next(yaml.compose_all(_PAIR.sub(_join_surrogates, piece), Loader=_Loader), None)
    except (yaml.YAMLError, RecursionError):
        return None


def _pieces(text: str) -> Sequence[tuple[int, str]]:
    """The texts of the documents, each with its first line."""
    lines = text.split("\n")
    filled = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if _is_ndjson(text, [line for _, line in filled]):
        return filled
    begins = [0, *(n for n, line in enumerate(lines) if n and _DOCUMENT.match(line))]
    if len(begins) > 1 and all(_PREFACE.fullmatch(line) for line in lines[: begins[1]]):
        del begins[1]
    ends = [*begins[1:], len(lines)]
    return [(n + 1, "\n".join(lines[n:end])) for n, end in zip(begins, ends, strict=True)]


def _is_ndjson(text: str, lines: Sequence[str]) -> bool:
    """Return whether every line is a document, or was meant to be one."""
    if len(lines) < 2 or any(map(_DOCUMENT.match, lines)):
        return False
    objects = [line for line in lines if line.startswith("{")]
    meant = len(objects) == len(lines) or any("nodes" in _object(line) for line in objects)
    return meant and not _object(text)


def _join_surrogates(pair: re.Match[str]) -> str:
    high, low = int(pair[2][2:6], 16), int(pair[2][8:12], 16)
    return pair[1] + chr(0x10000 + ((high - 0xD800) << 10) + low - 0xDC00)


def _object(text: str) -> dict[str, Any]:
    """The JSON object that the text is; empty if it is none."""
    try:
        value = orjson.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _read_document(node: yaml.Node | None, offset: int, parse: Parse) -> Document | DocumentFault:
    # Before merge keys are resolved, which writes keys twice.
    repeated = _repeated_key(node, "", set())
    if repeated:
        name, at = repeated
        return DocumentFault(f"field '{name}' is given twice", at + offset + 1, name)
    try:
        value: Any = None if node is None else _construct(node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + offset + 1 if error.problem_mark else None
        return DocumentFault(f"not YAML: {error.problem}", line, None)
    return _parse_value(value, SourceText(lambda: node, offset), parse)


def _parse_value(value: Any, written: SourceText, parse: Parse) -> Document | DocumentFault:
    cluster = parse(value)
    if isinstance(cluster, DocumentError):
        return DocumentFault(cluster.message, written.line(cluster.field), cluster.field)
    return Document(cluster, written, tuple(unknown_fields(ClusterFile, value)), value)


def _construct(node: yaml.Node) -> Any:
    loader = _Loader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _repeated_key(node: yaml.Node | None, path: str, seen: set[int]) -> tuple[str, int] | None:
    """Find the first key that a mapping has twice, by its path, and its line from 0. YAML's readers
    would silently take the last."""
    if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
        return None
    seen.add(id(node))
    found, keys = None, set()
    if isinstance(node, yaml.SequenceNode):
        items = ((below, f"{path}[{n}]") for n, below in enumerate(node.value))
        return next(filter(None, (_repeated_key(below, name, seen) for below, name in items)), None)
    for key, below in node.value:
        name = f"{path}.{key.value}" if path else str(key.value)
        if key.value in keys and isinstance(key, yaml.ScalarNode):
            return name, key.start_mark.line
        if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
            keys.add(key.value)
        found = found or _repeated_key(below, name, seen)
    return found


def _child(node: yaml.Node, part: str) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and part.startswith("["):
        index = part.strip("[]")
        return node.value[int(index)] if index.isdecimal() else None
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == part), None)
    return None
