"""Explains why replicas stand where they do, what would help, and what comes next.

Asks the functions that decided, so that an explanation cannot differ from what was done. Imports
`state`, `repair` and what they stand on; nobody in the core imports it.
"""

from placement.explain.explainer import (
    Absence,
    Explainer,
    Outlook,
    Presence,
    find_outlooks,
)
from placement.explain.remedies import Advice, advise

__all__ = [
    "Absence",
    "Advice",
    "Explainer",
    "Outlook",
    "Presence",
    "advise",
    "find_outlooks",
]
