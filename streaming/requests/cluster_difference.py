"""Computes the requests of `placer apply`, which make the streams in force those of a file.

Both sides are put as specs with their defaults filled in, by the core's own code, and are compared
field by field. Replicas that a file lists count for new streams only: they are where an existing
placement stands, not what is asked for.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placement.model import Decision, Outcome, StreamSpec
from schemas.cluster import ClusterStream
from streaming.requests.streams import (
    SPEC_FIELDS,
    StreamMessage,
    StreamRequests,
    spec_field,
    spec_fields,
)


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """Names a field that differs from the wanted value; `field` of a policy names its key:
    `policy.within`."""

    field: str
    now: Any
    wanted: Any


@dataclass(frozen=True, slots=True)
class StreamChange:
    """Holds the request for one stream: `create`, `alter` or `drop` with its message, or `keep`
    where it is as wanted. `decision` is the last one on it."""

    action: str
    stream: str
    message: StreamMessage | None = None
    decision: Decision | None = None
    differences: tuple[FieldDifference, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        listed = [{"field": d.field, "now": d.now, "wanted": d.wanted} for d in self.differences]
        return {"stream": self.stream, "action": self.action, "differences": listed}


def diff_streams(
    known: StreamRequests, wanted: Sequence[ClusterStream], prune: bool
) -> list[StreamChange]:
    """Find the changes that make the streams in force those of the file. Others are dropped with
    `prune` and left alone without. Drops come first, as they make room. Raises RecordRefused,
    StreamThere, StreamNotThere."""
    named = {stream.stream for stream in wanted}
    found = [
        StreamChange("drop", name, known.make_drop(name), known.find(name))
        for name in (known.decisions if prune else ())
        if name not in named and known.find(name) is not None
    ]
    order = {"alter": 0, "create": 1, "keep": 2}
    asked = [_change(known, stream) for stream in wanted]
    return [*found, *sorted(asked, key=lambda change: order[change.action])]


def _change(known: StreamRequests, stream: ClusterStream) -> StreamChange:
    name = stream.stream
    fields = {field: getattr(stream, field) for field in SPEC_FIELDS}
    decision = known.find(name)
    if decision is None or decision.outcome is Outcome.REJECTED:
        message = known.make_create(name, {**fields, "replicas": stream.replicas})
        return StreamChange("create", name, message, decision, _creation(known.spec_of(message)))
    altered = known.make_respecify(name, fields)
    found = tuple(_differences(decision.spec, known.spec_of(altered)))
    if not found:
        return StreamChange("keep", name, None, decision)
    return StreamChange("alter", name, altered, decision, found)


def _creation(spec: StreamSpec) -> tuple[FieldDifference, ...]:
    return tuple(FieldDifference(name, None, value) for name, value in spec_fields(spec).items())


def _differences(now: StreamSpec, wanted: StreamSpec) -> Iterator[FieldDifference]:
    for field in SPEC_FIELDS:
        before, after = spec_field(now, field), spec_field(wanted, field)
        if before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            for key in [*before, *(key for key in after if key not in before)]:
                if before.get(key) != after.get(key):
                    yield FieldDifference(f"{field}.{key}", before.get(key), after.get(key))
        else:
            yield FieldDifference(field, before, after)
