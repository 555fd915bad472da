"""Moves under way: the ledger that limits count in, backoff after failures, moves called off.

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
