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


def list_children(rows: Sequence[Row], path: str) -> list[Domain]:
    """List what stands directly in a domain, `""` for the whole fleet, in natural order. `rows`:
    of all nodes, as `placer nodes` lists them."""
    total_weight = sum(row["weight"] for row in rows)
    mean = sum(row["replicas"] for row in rows) / total_weight if total_weight else 0.0
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
