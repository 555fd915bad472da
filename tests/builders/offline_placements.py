"""A cluster in a few words, and what `place` answers for its streams: the core alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from placement.model import (
    Configuration,
    Decision,
    Liveness,
    NodeAttributes,
    NodeChanged,
    StreamCreated,
)
from placement.reconciler import Reconciler

Answers = dict[str, tuple[Decision, list[list[str]]]]


def node(node_id: str, location: str = "", **given: Any) -> NodeChanged:
    """A node; `status`, `weight`, `capacity`, `leader` and any tags by keyword."""
    status = given.pop("status", Liveness.UP)
    known = {key: given.pop(key) for key in ("weight", "capacity", "leader") if key in given}
    tags = tuple(sorted((key, str(value)) for key, value in given.items()))
    attributes = NodeAttributes(location, tags, **known)
    return NodeChanged(0, node_id, "i", 0, status, attributes)


def stream(
    name: str,
    factor: int,
    policy: Mapping[str, Any],
    shards: int = 1,
    replicas: Sequence[Sequence[str]] | None = None,
) -> StreamCreated:
    """A stream, with what it brings."""
    given = None if replicas is None else tuple(map(tuple, replicas))
    return StreamCreated(0, name, 0, shards, factor, policy=policy, replicas=given)


def place(
    nodes: Sequence[NodeChanged], streams: Sequence[StreamCreated], levels: Sequence[str] = ()
) -> Answers:
    """The decision and the published lists of every stream."""
    reconciler = Reconciler(Configuration(levels=tuple(levels)))
    reconciler.apply(nodes, 0)
    ready = reconciler.apply(streams, 0)
    answers: Answers = {}
    for name, decision in ready.decisions.items():
        shards = range(decision.spec.shards)
        published = (ready.assignments.get((name, shard)) for shard in shards)
        answers[name] = decision, [list(each.replicas) if each else [] for each in published]
    return answers


def place_one(nodes: Sequence[NodeChanged], asked: StreamCreated, **settings: Any) -> Any:
    """(outcome, lists, decision) of one stream."""
    [(decision, replicas)] = place(nodes, [asked], **settings).values()
    return decision.outcome.value, replicas, decision
