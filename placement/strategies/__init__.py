"""Placement strategies, one module per placement system, registered by name."""

from collections.abc import Mapping

from placement.strategies.affinity import AffinityStrategy
from placement.strategies.base import Strategy
from placement.strategies.spread import SpreadStrategy

_ALL: tuple[Strategy, ...] = (AffinityStrategy(), SpreadStrategy())

STRATEGIES: Mapping[str, Strategy] = {
    name: strategy for strategy in _ALL for name in (strategy.name, *strategy.aliases)
}
"""Every strategy by its name and by each of its aliases."""
