"""Carries out each kind of event on the state, by a controller of its own.

Streams, moves, observations of replicas, nodes, holds, operators' requests with their previews,
rebalancing. Imports all of the core but `liveness` and `explain`; only the reconciler imports it.
"""

from placement.controllers.holds import KIND, HoldController
from placement.controllers.loads import LoadController
from placement.controllers.moves import MoveController
from placement.controllers.node_registry import NodeRegistry
from placement.controllers.nodes import NodeController
from placement.controllers.observations import ObservationController
from placement.controllers.operators import OperatorController
from placement.controllers.preview import Preview
from placement.controllers.rebalance import RebalanceController
from placement.controllers.retry_gate import RetryGate
from placement.controllers.streams import StreamController

__all__ = [
    "KIND",
    "HoldController",
    "LoadController",
    "MoveController",
    "NodeController",
    "NodeRegistry",
    "ObservationController",
    "OperatorController",
    "Preview",
    "RebalanceController",
    "RetryGate",
    "StreamController",
]
