"""Placement strategies, one module per placement system, registered by name."""

from collections.abc import Mapping

from placement.strategies.affinity import AffinityStrategy
from placement.strategies.base import Strategy
from placement.strategies.spread import SpreadStrategy

STRATEGIES: Mapping[str, Strategy] = {
    "affinity": AffinityStrategy(),
    "spread": SpreadStrategy(),
}
