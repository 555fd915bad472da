"""Explains why replicas stand where they do, what would help, and what comes next.

Asks the functions that made the decision, so that both always agree. Imports `state`, `repair` and
the parts below them; no part of the core imports it.
"""

from placement.explain.explainer import (
    Absence,
    Explainer,
    Outlook,
    Presence,
    find_outlooks,
)
from placement.explain.remedies import advise
from placement.explain.trial import Advice

__all__ = [
    "Absence",
    "Advice",
    "Explainer",
    "Outlook",
    "Presence",
    "advise",
    "find_outlooks",
]
