"""The offline tool's reading and answering: cluster files in, one answer per document out.

It needs neither Kafka nor Spark nor Java: the same reconciler that the stream feeds is fed from a
file. Answers are plain values in the form of design section 10; the command line prints them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from placement.model import Assignment, Decision, Outcome
from placement.reconcile import Reconciler
from placement.state import Configuration
from schemas.cluster import Cluster, DocumentError, RefusedStream, parse_cluster
from streaming import codec

# The C loader reads ten times faster; the wheels of PyYAML bring it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# A stream that does not have what it asked for.
UNANSWERED = (Outcome.REJECTED, Outcome.WAITING, Outcome.PARTIAL)


@dataclass(frozen=True, slots=True)
class DocumentFault:
    """A document that cannot be understood: the sentence, its line from 1, and the field."""

    message: str
    line: int | None
    field: str | None

    def body(self) -> dict[str, Any]:
        """The answer's `error` object."""
        return {"message": self.message, "line": self.line, "field": self.field}


@dataclass(frozen=True, slots=True)
class Placed:
    """A cluster and what was decided for its streams, in the document's order."""

    cluster: Cluster
    decisions: tuple[Decision | RefusedStream, ...]
    assignments: Mapping[tuple[str, int], Assignment]

    def replicas(self, decision: Decision) -> list[list[str]]:
        """Node ids by shard, leader first; what was given, where nothing was placed."""
        spec = decision.spec
        shards = (self.assignments.get((spec.stream, shard)) for shard in range(spec.shards))
        found = [list(assignment.replicas) for assignment in shards if assignment]
        return found or self._given(spec.stream)

    def body(self) -> dict[str, Any]:
        """The answer of `place`."""
        name = {} if self.cluster.name is None else {"name": self.cluster.name}
        return name | {"decisions": [self._answer(decision) for decision in self.decisions]}

    def _given(self, stream: str) -> list[list[str]]:
        asked = next((s for s in self.cluster.streams if s.stream == stream), None)
        given = None if asked is None or isinstance(asked, RefusedStream) else asked.replicas
        return [list(nodes) for nodes in given or ()]

    def _answer(self, decision: Decision | RefusedStream) -> dict[str, Any]:
        if isinstance(decision, RefusedStream):
            reason = {"code": "STREAM_MALFORMED", "band": "config", "message": decision.message}
            return {
                "stream": decision.stream,
                "outcome": Outcome.REJECTED,
                "replicas": [],
                "policy": None,
                "reasons": [reason | {"field": decision.field}],
                "warnings": [],
            }
        policies = decision.spec.placement_policies
        return {
            "stream": decision.stream,
            "outcome": decision.outcome,
            "replicas": self.replicas(decision),
            "policy": decision.spec.policy if policies is None else policies,
            "reasons": [codec.reason_body(reason) for reason in decision.reasons],
            "warnings": [codec.reason_body(warning) for warning in decision.warnings],
        }


def documents(text: str) -> Iterator[tuple[yaml.Node | None, int] | DocumentFault]:
    """Every document of a YAML or JSON text, or of newline-delimited JSON, with its first line.

    A document that is not well-formed ends a YAML text; a line of NDJSON is only its own fault.
    """
    lines = text.splitlines()
    filled = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    ndjson = len(filled) > 1 and all(line.lstrip().startswith("{") for _, line in filled)
    pieces = filled if ndjson else [(1, text)]
    for first, piece in pieces:
        try:
            for node in yaml.compose_all(piece, Loader=_Loader):
                yield node, first - 1
        except yaml.MarkedYAMLError as error:
            # The mark of a text that ends too soon stands behind its last line.
            below = min(error.problem_mark.line if error.problem_mark else 0, piece.count("\n"))
            yield DocumentFault(f"not YAML: {error.problem}", first + below, None)
        except (yaml.YAMLError, RecursionError) as error:
            yield DocumentFault(f"not YAML: {error}", first, None)


def place(text: str) -> Iterator[Placed | DocumentFault]:
    """Place the streams of every document in `text`."""
    for document in documents(text):
        yield document if isinstance(document, DocumentFault) else _place(*document)


def _place(node: yaml.Node | None, offset: int) -> Placed | DocumentFault:
    try:
        value = None if node is None else _construct(node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + offset + 1 if error.problem_mark else None
        return DocumentFault(f"not YAML: {error.problem}", line, None)
    cluster = parse_cluster(value)
    if isinstance(cluster, DocumentError):
        return DocumentFault(cluster.message, _line(node, cluster.field, offset), cluster.field)
    reconciler = Reconciler(Configuration(levels=cluster.levels))
    nodes, streams = codec.cluster_events(cluster)
    reconciler.apply(nodes, 0)
    ready = reconciler.apply(streams, 0)
    decisions = tuple(
        stream if isinstance(stream, RefusedStream) else ready.decisions[stream.stream]
        for stream in cluster.streams
    )
    return Placed(cluster, decisions, ready.assignments)


def _construct(node: yaml.Node) -> Any:
    loader = _Loader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _line(node: yaml.Node | None, field: str | None, offset: int) -> int | None:
    """Line of the field called `nodes[3].location`, or of the last part of its path there is."""
    if node is None:
        return None
    for part in (field or "").replace("[", ".[").split("."):
        below = _below(node, part)
        if below is None:
            break
        node = below
    return node.start_mark.line + offset + 1


def _below(node: yaml.Node, part: str) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and part.startswith("["):
        index = part.strip("[]")
        return node.value[int(index)] if index.isdecimal() else None
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == part), None)
    return None
