"""One controller per kind of event: each carries events out on the state and asks for work.

Streams, moves, nodes, holds, operators' requests with their previews, rebalancing. Imports all of
the core but `liveness` and `explain`; only the reconciler imports it.
"""

from placement.controllers.holds import KIND, HoldEvents
from placement.controllers.moves import MoveEvents
from placement.controllers.nodes import NodeEvents
from placement.controllers.operators import OperatorEvents
from placement.controllers.preview import Preview
from placement.controllers.rebalance import Rebalancing
from placement.controllers.retry_gate import Room
from placement.controllers.streams import StreamEvents

__all__ = [
    "KIND",
    "HoldEvents",
    "MoveEvents",
    "NodeEvents",
    "OperatorEvents",
    "Preview",
    "Rebalancing",
    "Room",
    "StreamEvents",
]
