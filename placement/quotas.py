"""Quotas: how many nodes and places there may be, and how fast new ones may come (rule R4)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quotas:
    """R4's figures. `pending`: nodes whose place is in doubt or not agreed to; `places`: domains of
    all levels. `bootstrap_ms`: for so long after its first node came a fleet may register at any
    rate, and none of its places is news."""

    nodes: int = 10_000
    pending: int = 1_000
    new_nodes_per_minute: int = 1_000
    places: int = 4_096
    bootstrap_ms: int = 600_000
