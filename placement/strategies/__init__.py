"""Placement strategies, one module per placement system, registered by name.

Strategies are chosen by `STRATEGIES`; users bring theirs by path (`enable`). Imports `allocator`
and what it stands on.
"""

from placement.strategies.registry import STRATEGIES, defer_to, enable

__all__ = [
    "STRATEGIES",
    "defer_to",
    "enable",
]
