"""The fleet as domains: what stands in each, how it is, how full it is.

rows of nodes ──▶ list_children(path) ──▶ tiles of the picture, rows of the table beside it
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placement.model import natural_key
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


def mean_load(rows: Sequence[Row]) -> float:
    """Replicas per weight of all nodes."""
    weight = sum(row["weight"] for row in rows)
    return float(sum(row["replicas"] for row in rows) / weight) if weight else 0.0


def list_children(rows: Sequence[Row], path: str, mean: float | None = None) -> list[Domain]:
    """List what stands directly in a domain, `""` for the whole fleet, in natural order. `rows`:
    of all nodes, as `placer nodes` lists them; `mean`: replicas per weight of the fleet, of the
    rows where it is not given."""
    if mean is None:
        mean = mean_load(rows)
    depth = path.count("/") + 1
    found: dict[tuple[bool, str], list[Row]] = {}
    for row in rows:
        location = row["location"]
        if path and not f"{location}/".startswith(f"{path}/"):
            continue
        if location == path or (path == UNLOCATED and location == UNLOCATED):
            key = (True, row["node"])
        elif location == UNLOCATED:
            key = (False, UNLOCATED)
        else:
            key = (False, "/".join(location.split("/")[: depth + 1]))
        found.setdefault(key, []).append(row)
    ordered = sorted(found, key=lambda key: (key[0], natural_key(key[1])))
    return [_domain(key, found[key], mean) for key in ordered]


# Of the tiles within tiles, so many are worth drawing; with more only the outer ones are.
_INNER_MAX = 400


def list_grandchildren(rows: Sequence[Row], path: str) -> list[tuple[Domain, list[Domain]]]:
    """List what stands directly in a domain, each with what stands directly in it; the latter
    is empty where it would be too much to draw."""
    mean = mean_load(rows)
    children = list_children(rows, path, mean)
    inner: dict[str, list[Domain]] = {}
    for child in children:
        if not child.is_node and sum(map(len, inner.values())) <= _INNER_MAX:
            prefix = f"{child.path}/"
            within = [row for row in rows if f"{row['location']}/".startswith(prefix)]
            inner[child.path] = list_children(within, child.path, mean)
    if sum(map(len, inner.values())) > _INNER_MAX:
        inner = {}
    return [(child, inner.get(child.path, [])) for child in children]


def _domain(key: tuple[bool, str], rows: Sequence[Row], mean: float) -> Domain:
    is_node, path = key
    weight = sum(row["weight"] for row in rows)
    replicas = sum(row["replicas"] for row in rows)
    statuses: dict[str, int] = {}
    for row in rows:
        statuses[row["status"]] = statuses.get(row["status"], 0) + 1
    tones = {TONES.get(word, "") for word in statuses}
    return Domain(
        path=path,
        name=path if is_node else path.rpartition("/")[2],
        is_node=is_node,
        nodes=len(rows),
        up=statuses.get("up", 0),
        replicas=replicas,
        weight=weight,
        load=round(replicas / weight / mean, 3) if weight and mean else None,
        tone=next(tone for tone in _ORDER if tone in tones),
        statuses=dict(sorted(statuses.items())),
    )
