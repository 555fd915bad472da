"""Holds the moves under way, the back-off after failures, and the cancelled moves to confirm.

Imports `model` and `assignments`.
"""

from placement.moves import backoff, cancellations
from placement.moves.backoff import Backoff
from placement.moves.cancellations import KIND
from placement.moves.ledger import Ledger, OpenMove

__all__ = [
    "KIND",
    "Backoff",
    "Ledger",
    "OpenMove",
    "backoff",
    "cancellations",
]
