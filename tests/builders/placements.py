"""Fleets and questions in a few words, answered by the core, for the strategies' tests."""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from placement.model import (
    AdministrativeState,
    Configuration,
    Decision,
    Liveness,
    NodeAttributes,
    NodeChanged,
    StreamCreated,
)
from placement.reconciler import Reconciler

CONDITIONS: dict[str, dict[str, Any]] = {
    "up": {"liveness": Liveness.UP},
    "suspect": {"liveness": Liveness.SUSPECT},
    "dead": {"liveness": Liveness.DEAD},
    "draining": {"liveness": Liveness.UP, "administrative": AdministrativeState.DRAINING},
}

# The outcome of a stream that cannot be placed in full, by its `on_infeasible`.
ON_INFEASIBLE = [
    ("reject", "rejected"),
    ("wait", "waiting"),
    ("partial", "partial"),
    ("degrade", "degraded"),
]


class Answer(NamedTuple):
    """What was decided for a stream."""

    outcome: str
    replicas: list[list[str]]
    decision: Decision

    @property
    def codes(self) -> list[str]:
        return [str(reason.code) for reason in self.decision.reasons]

    @property
    def warned(self) -> list[str]:
        return [str(warning.code) for warning in self.decision.warnings]


def node(
    node_id: str,
    location: str = "",
    tokens: Iterable[int | str] | None = None,
    status: str = "up",
    tags: Mapping[str, str] | None = None,
    **more: Any,
) -> NodeChanged:
    """A node as it registers."""
    attributes = NodeAttributes(
        location,
        tuple(sorted((tags or {}).items())),
        tokens=None if tokens is None else tuple(tokens),  # type: ignore[arg-type]
        **more,
    )
    condition = CONDITIONS[status]
    return NodeChanged(0, node_id, "i", 0, attributes=attributes, **condition)


def tagged_node(node_id: str, location: str = "", status: str = "up", **given: Any) -> NodeChanged:
    """A node; `weight`, `capacity`, `leader` and any tags by keyword."""
    known = {key: given.pop(key) for key in ("weight", "capacity", "leader") if key in given}
    tags = {key: str(value) for key, value in given.items()}
    return node(node_id, location, status=status, tags=tags, **known)


def stream(
    policy: Mapping[str, Any],
    factor: int = 3,
    shards: int = 1,
    name: str = "s",
    tokens: Sequence[int | str] | None = None,
    replicas: Sequence[Sequence[str]] | None = None,
) -> StreamCreated:
    """A stream that asks for placement."""
    return StreamCreated(
        0,
        name,
        0,
        shards,
        factor,
        policy=policy,
        shard_tokens=None if tokens is None else tuple(tokens),  # type: ignore[arg-type]
        replicas=None if replicas is None else tuple(map(tuple, replicas)),
    )


def ask(
    nodes: Iterable[NodeChanged], *streams: StreamCreated, levels: Sequence[str] = ()
) -> dict[str, Answer]:
    """The answer for every stream, placed in their order on a fresh fleet."""
    core = Reconciler(Configuration(levels=tuple(levels)))
    core.apply(list(nodes), 0)
    ready = core.apply(streams, 0)
    answers = {}
    for name, decision in ready.decisions.items():
        shards = (ready.assignments.get((name, n)) for n in range(decision.spec.shards))
        lists = [list(shard.replicas) if shard else [] for shard in shards]
        answers[name] = Answer(decision.outcome.value, lists, decision)
    return answers


def ask_one(
    nodes: Iterable[NodeChanged], policy: Mapping[str, Any], *, levels: Any = (), **more: Any
) -> Answer:
    """The answer for one stream."""
    return ask_stream(nodes, stream(policy, **more), levels=levels)


def ask_stream(
    nodes: Iterable[NodeChanged], asked: StreamCreated, *, levels: Sequence[str] = ()
) -> Answer:
    """The answer for one stream, as it is given."""
    return ask(nodes, asked, levels=levels)[asked.stream]


def random_nodes(rng: random.Random, most: int = 14) -> list[NodeChanged]:
    """Uneven racks, mixed depth, some nodes not usable, some weighted or small."""
    places = ["/a/z1/r1", "/a/z1/r2", "/a/z2/r1", "/b/z1/r1", "/b/z1", "/c", "/c/z1/r1", "/b/z2/r9"]
    return [
        node(
            f"n{number}",
            rng.choice(places),
            status=rng.choice(["up"] * 6 + ["dead", "draining", "suspect"]),
            weight=rng.choice([1.0, 1.0, 0.5, 3.0]),
            capacity=rng.choice([None, None, None, 2]),
            leader=rng.random() < 0.9,
        )
        for number in range(rng.randint(1, most))
    ]


def usable(nodes: Iterable[NodeChanged]) -> dict[str, str]:
    """Location by id of the nodes that may receive replicas."""
    return {
        each.node_id: each.attributes.location
        for each in nodes
        if each.liveness is Liveness.UP
        and each.administrative is not AdministrativeState.DRAINING
        and each.attributes is not None
    }
