"""The fleet as domains: what stands in each, how it is, how full it is.

rows of nodes ──▶ Fleet: nodes by place ──▶ list_children(path) ──▶ tiles, rows of the table beside
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placement.model import natural_key
from streaming.console.derived import CommitState
from streaming.console.elements import TONES

Row = Mapping[str, Any]

UNLOCATED = "(unlocated)"
# Worst first: a domain is drawn like the worst of its nodes.
_ORDER = ("bad", "warn", "info", "", "good")
# From the mean on, how far a domain's replicas per weight may be off, and its word.
_LOADS = ((0.8, "low"), (0.95, "below"), (1.05, "even"), (1.2, "above"))


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain or a node. `path`: of a domain its location, of a node its id; `load`: replicas per
    weight, as a ratio to the fleet's mean; `tone`: of the worst of its nodes."""

    path: str
    name: str
    is_node: bool
    nodes: int
    up: int
    replicas: int
    weight: float
    load: float | None
    tone: str
    statuses: Mapping[str, int]

    @property
    def load_word(self) -> str:
        """How full it is beside the mean, as a word."""
        if self.load is None:
            return "none"
        return next((word for bound, word in _LOADS if self.load < bound), "high")


@dataclass(frozen=True, slots=True)
class Place:
    """The nodes that stand at one location, and their sums."""

    nodes: Sequence[Row]
    replicas: int
    weight: float
    statuses: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Fleet:
    """The places where nodes stand, by location. `mean`: replicas per weight of all of them;
    `location_of`: by node."""

    places: Mapping[str, Place]
    mean: float
    location_of: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Spread:
    """The replicas of a stream in a top domain."""

    path: str
    replicas: int


def tally_fleet(state: CommitState) -> Fleet:
    """The fleet of a commit."""
    return fleet_of(state.list_rows("nodes"))


def fleet_of(rows: Sequence[Row]) -> Fleet:
    """Sum up nodes by place. `rows`: of all nodes, as `placer nodes` lists them."""
    at: dict[str, list[Row]] = {}
    for row in rows:
        at.setdefault(row["location"], []).append(row)
    places = {location: _place(found) for location, found in at.items()}
    weight = sum(place.weight for place in places.values())
    replicas = sum(place.replicas for place in places.values())
    mean = float(replicas / weight) if weight else 0.0
    return Fleet(places, mean, {row["node"]: row["location"] for row in rows})


def _place(rows: Sequence[Row]) -> Place:
    return Place(
        rows,
        sum(row["replicas"] for row in rows),
        sum(row["weight"] for row in rows),
        Counter(row["status"] for row in rows),
    )


def list_children(fleet: Fleet, path: str) -> list[Domain]:
    """List what stands directly in a domain, `""` for the whole fleet, in natural order."""
    depth = path.count("/") + 1
    found: dict[tuple[bool, str], list[Place]] = {}
    for location, place in fleet.places.items():
        if path and not f"{location}/".startswith(f"{path}/"):
            continue
        if location == path:
            found |= {(True, row["node"]): [_place([row])] for row in place.nodes}
        else:
            found.setdefault((False, _child_of(location, depth)), []).append(place)
    ordered = sorted(found, key=lambda key: (key[0], natural_key(key[1])))
    return [_domain(key, found[key], fleet.mean) for key in ordered]


def _child_of(location: str, depth: int) -> str:
    """The domain that many levels down in which a location is."""
    return location if location == UNLOCATED else "/".join(location.split("/")[: depth + 1])


def list_spread(fleet: Fleet, held: Mapping[str, int]) -> list[Spread]:
    """The replicas in each of the top domains, in natural order. `held`: by node."""
    found = dict.fromkeys((_child_of(location, 1) for location in fleet.places), 0)
    for node, replicas in held.items():
        top = _child_of(fleet.location_of.get(node, UNLOCATED), 1)
        found[top] = found.get(top, 0) + replicas
    return [Spread(path, found[path]) for path in sorted(found, key=natural_key)]


# Of the tiles within tiles, so many are worth drawing; with more only the outer ones are.
_INNER_MAX = 400


def list_grandchildren(fleet: Fleet, path: str) -> list[tuple[Domain, list[Domain]]]:
    """List what stands directly in a domain, each with what stands directly in it; the latter
    is empty where it would be too much to draw."""
    children = list_children(fleet, path)
    inner: dict[str, list[Domain]] = {}
    for child in children:
        if not child.is_node and sum(map(len, inner.values())) <= _INNER_MAX:
            inner[child.path] = list_children(fleet, child.path)
    if sum(map(len, inner.values())) > _INNER_MAX:
        inner = {}
    return [(child, inner.get(child.path, [])) for child in children]


def _domain(key: tuple[bool, str], places: Sequence[Place], mean: float) -> Domain:
    is_node, path = key
    weight = sum(place.weight for place in places)
    replicas = sum(place.replicas for place in places)
    statuses: Counter[str] = Counter()
    for place in places:
        statuses.update(place.statuses)
    tones = {TONES.get(word, "") for word in statuses}
    return Domain(
        path=path,
        name=path if is_node else path.rpartition("/")[2],
        is_node=is_node,
        nodes=statuses.total(),
        up=statuses["up"],
        replicas=replicas,
        weight=weight,
        load=round(replicas / weight / mean, 3) if weight and mean else None,
        tone=next(tone for tone in _ORDER if tone in tones),
        statuses=dict(sorted(statuses.items())),
    )
