"""Computes the impact of a plan, and the hash by which an operator approves it.

The hash covers the moves and the state of everything that they touch: it changes when either does,
and with nothing else in the fleet. (Cruise Control's two-step verification approves a request
whatever the cluster has become meanwhile.) A saved plan keeps that state itself, and can say what
has changed.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from placement.hashing import stable_id
from placement.model import StreamSpec, Violation, natural_key
from placement.planning.plan import PlannedMove
from placement.topology import Topology

# What a plan rests on of one thing, by field, as JSON has it.
Fields = Mapping[str, Any]

# A node that the topology does not know.
_UNKNOWN: Fields = {"status": "unregistered"}


@dataclass(frozen=True, slots=True)
class ShardState:
    """Holds a shard as a plan finds it.

    `replicas`: node ids, leader first. `epoch`: 0 where there is none. `under_way`: an open move in
    words.
    """

    replicas: tuple[str, ...]
    epoch: int = 0
    under_way: str | None = None


@dataclass(frozen=True, slots=True)
class Touched:
    """Holds what moves rest on, by name (`stream/shard` for a shard), as JSON has it.

    `nodes`: those that hold, give or take replicas of the shards. `streams`: the specs of the
    shards' streams.
    """

    nodes: Mapping[str, Fields]
    shards: Mapping[str, Fields]
    streams: Mapping[str, Fields]


@dataclass(frozen=True, slots=True)
class StateDifference:
    """Names one difference between two states; `field` is None where a node, shard or stream came
    or went."""

    kind: str
    name: str
    field: str | None
    was: Any
    now: Any

    def __str__(self) -> str:
        if self.field is None:
            return f"{self.kind} {self.name} " + ("is gone" if self.now is None else "is new")
        was, now = (json.dumps(each, ensure_ascii=False) for each in (self.was, self.now))
        return f"{self.kind} {self.name}: {self.field} was {was}, is {now}"


@dataclass(frozen=True, slots=True)
class Impact:
    """Holds what a plan does.

    - `hash`: 32 hexadecimal digits over the moves and `touched`.
    - `copies`: how many of the moves copy a replica.
    - `violations_made`, `violations_healed`: the violations that it makes and heals.
    """

    hash: str
    moves: int
    copies: int
    shards: tuple[tuple[str, int], ...]
    streams: tuple[str, ...]
    violations_made: tuple[Violation, ...]
    violations_healed: tuple[Violation, ...]
    touched: Touched


def compute_impact(
    moves: Sequence[PlannedMove],
    topology: Topology,
    spec_of: Callable[[str], StreamSpec | None],
    shard_of: Callable[[str, int], ShardState],
    *,
    load: Sequence[int] = (),
    nodes: Iterable[str] = (),
    shards: Iterable[tuple[str, int]] = (),
    before: Iterable[Violation] = (),
    after: Iterable[Violation] = (),
) -> Impact:
    """Compute the impact of moves on the fleet as it stands.

    - `topology`: the one that was planned with, the requested change (a node drained, relocated)
      included.
    - `spec_of`, `shard_of`: a dropped stream has no spec, and its shards have no replicas.
    - `load`: replicas by node index, for nodes with a capacity.
    - `nodes`, `shards`: what the request touches besides the moves, such as the node to be drained.
    - `before`, `after`: the violations without the plan, and once it is carried out.

    The hash does not depend on the order of the moves, nor on their causes.
    """
    concerned = {(move.stream, move.shard) for move in moves} | {*shards}
    ordered = sorted(concerned, key=lambda each: (natural_key(each[0]), each))
    states = {key: shard_of(*key) for key in ordered}
    named = {*nodes, *(node for state in states.values() for node in state.replicas)}
    named |= {node for move in moves for node in (move.remove, move.add, move.leader) if node}
    streams = tuple(dict.fromkeys(stream for stream, _ in ordered))
    touched = Touched(
        {name: _node(topology, name, load) for name in sorted(named, key=natural_key)},
        {f"{name}/{shard}": _shard(state) for (name, shard), state in states.items()},
        {name: _stream(spec) for name in streams if (spec := spec_of(name)) is not None},
    )
    there, left = ({_identity(v): v for v in found} for found in (before, after))
    return Impact(
        hash=impact_hash(moves, touched),
        moves=len(moves),
        copies=sum(move.add is not None for move in moves),
        shards=tuple(ordered),
        streams=streams,
        violations_made=_only_in(left, there),
        violations_healed=_only_in(there, left),
        touched=touched,
    )


def impact_hash(moves: Iterable[PlannedMove], touched: Touched) -> str:
    """Hash the moves and what they rest on; equal input gives an equal hash on every machine."""
    ways = sorted(
        [m.stream, m.shard, m.kind, m.remove or "", m.add or "", m.leader or ""] for m in moves
    )
    parts = {each.name: getattr(touched, each.name) for each in fields(touched)}
    return stable_id(json.dumps([ways, parts], sort_keys=True, default=str))


def find_differences(before: Touched, after: Touched) -> tuple[StateDifference, ...]:
    """List the differences between two states: nodes, shards, then streams, in natural order."""
    kinds = (
        ("node", before.nodes, after.nodes),
        ("shard", before.shards, after.shards),
        ("stream", before.streams, after.streams),
    )
    return tuple(change for kind in kinds for change in _compare(*kind))


def _compare(
    kind: str, before: Mapping[str, Fields], after: Mapping[str, Fields]
) -> list[StateDifference]:
    found = []
    for name in sorted({*before, *after}, key=natural_key):
        was, now = before.get(name), after.get(name)
        if was is None or now is None:
            found.append(StateDifference(kind, name, None, was, now))
            continue
        names = sorted({*was, *now})
        found += [
            StateDifference(kind, name, field, was.get(field), now.get(field))
            for field in names
            if was.get(field) != now.get(field)
        ]
    return found


def _node(topology: Topology, name: str, load: Sequence[int]) -> Fields:
    """Describe a node as a move from or to it sees it; its load only where it has a capacity."""
    node = topology.index.get(name)
    if node is None:
        return _UNKNOWN
    own = topology.attributes[node]
    found: dict[str, Any] = {
        "status": topology.status(node),
        "location": own.location,
        "tags": dict(own.tags),
        "weight": own.weight,
        "leader": own.leader,
    }
    if own.capacity is not None:
        found |= {"capacity": own.capacity, "replicas": int(load[node]) if len(load) else 0}
    if own.capacities is not None:
        found["capacities"] = dict(own.capacities)
    if own.tokens is not None:
        found["tokens"] = list(own.tokens)
    return found


def _shard(state: ShardState) -> Fields:
    found: dict[str, Any] = {"replicas": list(state.replicas)}
    if state.epoch:
        found["epoch"] = state.epoch
    if state.under_way is not None:
        found["under_way"] = state.under_way
    return found


def _stream(spec: StreamSpec) -> Fields:
    asked = {each.name: getattr(spec, each.name) for each in fields(spec) if each.name != "stream"}
    # As JSON has it, so that what was saved and read again is equal.
    plain: Fields = json.loads(json.dumps(asked, default=str))
    return {name: value for name, value in plain.items() if value is not None}


# What a violation is known by: its stream, shard, rule and domain.
_Identity = tuple[str | None, int | None, str, str | None]


def identity_body(violation: Violation) -> dict[str, Any]:
    """Return the fields that identify a violation, as JSON has them."""
    return dict(zip(("stream", "shard", "rule", "domain"), _identity(violation), strict=True))


def _identity(violation: Violation) -> _Identity:
    return violation.stream, violation.shard, violation.rule, violation.domain


def _only_in(
    these: Mapping[_Identity, Violation], others: Mapping[_Identity, Violation]
) -> tuple[Violation, ...]:
    """List the violations of one side that the other has not, in natural order."""

    def order(identity: _Identity) -> tuple[Any, ...]:
        stream, shard, rule, domain = identity
        return natural_key(stream or ""), shard is None, shard or 0, rule, domain or ""

    return tuple(these[each] for each in sorted(these.keys() - others.keys(), key=order))
