"""Advises what to add so that a stream that was refused can be placed.

Every advice was tried: hypothetical nodes are added to an overlay of the topology, and the stream
is placed again by the same code. Tried are the things that people buy: nodes in a known location, a
whole new domain of some level, larger disks, and the return of nodes that are away.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from placement.explain.room import advise_room, size_nodes
from placement.explain.trial import Additions, Advice, Trial, is_whole
from placement.model import (
    DEPTH_MAX,
    Location,
    NodeAttributes,
    Outcome,
    StreamSpec,
    natural_key,
)
from placement.policy import Policy
from placement.rules import Rule, Strength
from placement.state import ClusterState
from placement.strategies import STRATEGIES
from placement.streams import Answer
from placement.topology import Scope, Topology

# A person acts on the first few.
ADVICE_MAX = 4
# So many nodes are the most that anybody adds for one stream.
_NODES_MAX = 64


@dataclass(frozen=True, slots=True)
class _Shape:
    """Describes one way to add nodes.

    `nodes` makes the nodes for a size from 1 on. `describe` says it, for a size and a number of
    nodes.
    """

    nodes: Callable[[int], Additions]
    describe: Callable[[int, int], str]
    level: str | None = None
    location: str | None = None


def advise(
    state: ClusterState,
    spec: StreamSpec,
    policy: Policy,
    given: tuple[tuple[str, ...], ...] | None = None,
) -> list[Advice]:
    """Find changes after which the stream is placed whole, the fewest nodes first.

    At most ADVICE_MAX changes of the fleet, then what a smaller request would need; empty if
    nothing that was tried helps. The state is unchanged afterwards.
    """
    trial = Trial(state, spec, policy, given)
    refused = trial.try_nothing().reasons
    first = refused[0] if refused else None
    short = (first.need or 1) - (first.have or 0) if first else 1
    less = [*_advise_asking_less(trial, spec)]
    found = [*_advise_returning(trial, state.topology), *advise_room(trial, state, spec, policy)]
    for shape in _shapes(state.topology, policy, bool(first and first.level)):
        size = _find_least_size(trial, shape, max(short, 1))
        if size is not None:
            number, answer = size
            nodes = shape.nodes(number)
            domains = number if shape.level else 0
            tagged = ", ".join(f"{key}={value}" for key, value in _needed_tags(policy))
            message = shape.describe(number, len(nodes)) + (f", tagged {tagged}" if tagged else "")
            message += size_nodes(trial, state, spec, nodes, answer)
            found.append(
                Advice(message, len(nodes), answer.outcome, shape.level, domains, shape.location)
            )
    found.sort(key=lambda a: (a.outcome is not Outcome.PLACED, a.nodes, a.domains > 1))
    return [*found[:ADVICE_MAX], *less]


def _find_least_size(trial: Trial, shape: _Shape, short: int) -> tuple[int, Answer] | None:
    """Find the least size of the shape that lets the stream be placed; None if none was found.

    Begins with the size that adds as many nodes as the reason says are short, doubles it until the
    stream is placed, then searches the interval by halving.
    """
    each = max(len(shape.nodes(1)), 1)
    low, high, best = 0, -(-short // each), None
    while best is None:
        nodes = shape.nodes(high)
        if len(nodes) > max(_NODES_MAX, 2 * short):
            return None
        answer = trial.try_adding(nodes)
        if answer is None:
            return None
        if is_whole(answer):
            best = high, answer
        else:
            low, high = high, high * 2
    middle = high - 1
    while high - low > 1:
        answer = trial.try_adding(shape.nodes(middle))
        if answer is None:
            return best
        if is_whole(answer):
            high, best = middle, (middle, answer)
        else:
            low = middle
        middle = (low + high) // 2
    return best


def _advise_returning(trial: Trial, topology: Topology) -> Iterator[Advice]:
    """Advise the return of one node that is away, or else of all of them."""
    rank = topology.order()
    away = [node for node in topology.index.values() if not topology.eligible[node]]
    away.sort(key=lambda node: int(rank[node]))
    for node in away[:8]:
        answer = trial.try_returning([node])
        if answer is not None and is_whole(answer):
            name = topology.ids[node]
            message = f"bring node {name} ({topology.status(node)}) back into service"
            yield Advice(message, 1, answer.outcome, location=str(topology.locations[node]) or None)
            return
    if len(away) > 1:
        answer = trial.try_returning(away)
        if answer is not None and is_whole(answer):
            names = ", ".join(topology.ids[node] for node in away[:8])
            message = f"bring the {len(away)} nodes that are away ({names}) back into service"
            yield Advice(message, len(away), answer.outcome)


def _advise_asking_less(trial: Trial, spec: StreamSpec) -> Iterator[Advice]:
    """Advise the highest replication factor that fits, else the most shards."""
    for factor in range(spec.replication_factor - 1, 0, -1):
        answer = trial.try_request(replace(spec, replication_factor=factor))
        if answer is not None and is_whole(answer):
            message = f"or ask for less: replication_factor {factor} fits the nodes there are"
            yield Advice(message, 0, answer.outcome)
            return
    low, high = 0, spec.shards
    while high - low > 1:
        middle = (low + high) // 2
        answer = trial.try_request(replace(spec, shards=middle))
        low, high = (middle, high) if is_whole(answer) else (low, middle)
    if low:
        fits = "one shard fits" if low == 1 else f"{low} shards fit"
        yield Advice(f"or ask for less: {fits} the nodes there are", 0, Outcome.PLACED)


def _shapes(topology: Topology, policy: Policy, domains_first: bool) -> Iterator[_Shape]:
    """Yield the shapes to try: nodes in each location, new domains of every level and tag in use.

    Tries are few: the shapes that the reason asks for come first.
    """
    rules = STRATEGIES[policy.strategy].rules(policy, topology)
    tags = _needed_tags(policy)
    leaves = sorted(
        {topology.locations[node] for node in topology.index.values()},
        key=lambda location: natural_key(str(location)),
    )
    nodes = [_more_nodes(location, tags) for location in _largest_locations(leaves, topology)]
    everywhere = [_nodes_everywhere(leaves, tags)] if len(leaves) > 1 else []
    deepest = max((leaf.depth for leaf in leaves), default=1)
    for named in _named_places(policy, rules)[:8]:
        if not any(leaf.is_within(named) for leaf in leaves):
            yield _nodes_within(named, deepest, tags)
    if not domains_first:
        yield from [*everywhere, *nodes]
    for scope in topology.tiers():
        yield from _new_domains(scope, leaves, topology, tags)
    carried = {key for node in topology.index.values() for key, _ in topology.attributes[node].tags}
    scopes = (rule.scope for rule in rules)
    used = {scope.tag for scope in scopes if isinstance(scope, Scope) and scope.tag}
    for key in sorted(carried | used) if leaves else ():
        yield _new_values(key, leaves, tags)
    if domains_first:
        yield from [*nodes, *everywhere]


def _needed_tags(policy: Policy) -> tuple[tuple[str, str], ...]:
    """List the tags that a node needs to be admitted or to count for a required rule."""
    needed = (rule.needed_tags for rule in policy.rules if rule.strength is Strength.REQUIRED)
    return tuple(sorted(dict(chain(policy.nodes.with_tags, *needed)).items()))


def _named_places(policy: Policy, rules: Sequence[Rule]) -> list[Location]:
    """List the locations that the policy names."""
    places = list(policy.nodes.within)
    for rule in rules:
        places += rule.general.places
    return list(dict.fromkeys(place for place in places if place.depth))


def _nodes_within(place: Location, deepest: int, tags: tuple[tuple[str, str], ...]) -> _Shape:
    """Add nodes in a place that the policy names, each in a new domain below it."""
    below = max(deepest - place.depth, 0)

    def nodes(number: int) -> Additions:
        paths = (
            Location((*place.components, *(f"new-{at}" for _ in range(below))))
            for at in range(number)
        )
        return [(f"new-{at}", NodeAttributes(str(p), tags)) for at, p in enumerate(paths)]

    def describe(_number: int, nodes: int) -> str:
        return f"{_format_more_nodes(nodes)} in {place}"

    return _Shape(nodes, describe, location=str(place))


def _largest_locations(leaves: Sequence[Location], topology: Topology) -> list[Location]:
    """List the locations with the most nodes first, at most eight: nobody reads on."""
    locations = [topology.locations[node] for node in topology.index.values()]
    by_size = sorted(leaves, key=lambda location: -locations.count(location))
    return by_size[:8]


def _more_nodes(location: Location, tags: tuple[tuple[str, str], ...]) -> _Shape:
    """Add nodes in one location."""
    place = str(location)

    def nodes(number: int) -> Additions:
        return [(f"new-{at}", NodeAttributes(place, tags)) for at in range(number)]

    def describe(_number: int, nodes: int) -> str:
        return f"{_format_more_nodes(nodes)} in {place or 'no location'}"

    return _Shape(nodes, describe, location=place or None)


def _nodes_everywhere(leaves: Sequence[Location], tags: tuple[tuple[str, str], ...]) -> _Shape:
    """Add the same number of nodes in each location."""

    def nodes(number: int) -> Additions:
        return [
            (f"new-{at}-{each}", NodeAttributes(str(location), tags))
            for at, location in enumerate(leaves)
            for each in range(number)
        ]

    def describe(number: int, _nodes: int) -> str:
        return f"{_format_more_nodes(number)} in each of the {len(leaves)} locations"

    return _Shape(nodes, describe)


def _new_domains(
    scope: Scope, leaves: Sequence[Location], topology: Topology, tags: tuple[tuple[str, str], ...]
) -> Iterator[_Shape]:
    """Add domains of a level under one parent, with a node in each."""
    deepest = max((leaf.depth for leaf in leaves), default=0)
    depth = min(scope.depth or 0, max(deepest, 1))
    named = topology.levels[depth - 1] if depth <= len(topology.levels) else scope.name
    level = named if scope.depth != DEPTH_MAX or depth <= len(topology.levels) else "location"
    parents = sorted({leaf.prefix(depth - 1) for leaf in leaves}, key=lambda p: natural_key(str(p)))
    for parent in parents[:8]:
        if parent.depth < depth - 1:
            continue
        rest = tuple("new" for _ in range(max(deepest, 1) - depth))

        def nodes(
            number: int, parent: Location = parent, rest: tuple[str, ...] = rest
        ) -> Additions:
            paths = (
                Location((*parent.components, f"new-{at}", *rest)[:DEPTH_MAX])
                for at in range(number)
            )
            return [(f"new-{at}", NodeAttributes(str(p), tags)) for at, p in enumerate(paths)]

        def describe(number: int, nodes: int, parent: Location = parent) -> str:
            where = f" in {parent}" if parent.depth else ""
            domains = "one more domain" if number == 1 else f"{number} more domains"
            each = "a node" if nodes == 1 else "a node in each"
            return f"{domains} at level {level}{where}, with {each}"

        yield _Shape(nodes, describe, level, str(parent) or None)


def _new_values(key: str, leaves: Sequence[Location], tags: tuple[tuple[str, str], ...]) -> _Shape:
    """Add nodes with new values of a tag, in one location after the other."""

    def nodes(number: int) -> Additions:
        return [
            (
                f"new-{at}",
                NodeAttributes(
                    str(leaves[at % len(leaves)]),
                    tuple(sorted({**dict(tags), key: f"new-{at}"}.items())),
                ),
            )
            for at in range(number)
        ]

    def describe(number: int, _nodes: int) -> str:
        values = "one more value" if number == 1 else f"{number} more values"
        return f"{values} of tag {key}, with a node each"

    return _Shape(nodes, describe, f"tag:{key}")


def _format_more_nodes(nodes: int) -> str:
    return "one more node" if nodes == 1 else f"{nodes} more nodes"
