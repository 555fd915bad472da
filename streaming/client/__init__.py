"""Client library of the reconciler: executors, readers of placements, requests, agents of nodes.

For systems whose replicas are placed; no part of the application imports it. It knows the topics
and neither Spark nor the planner, and needs no numpy: it is all of a light installation.
Imports `brokers`, `errors`.
"""

from streaming.client.aio import (
    AsyncExecutor,
    AsyncPlacementView,
    AsyncReplicaStore,
    AsyncRequester,
)
from streaming.client.carrying import Retries
from streaming.client.executor import Executor, ExecutorState
from streaming.client.moves import Move, Replica, ShardAssignment, ShardId
from streaming.client.node_agent import DrainRefused, NodeAgent, NodeIdTaken
from streaming.client.placement_view import (
    Change,
    EpochAwaited,
    LocationMalformed,
    Nearest,
    PlacementView,
    ViewFreshness,
)
from streaming.client.requester import (
    DecisionAwaited,
    Requester,
    RequestOvertaken,
    StreamNotThere,
    StreamThere,
)
from streaming.client.schedule import Limits
from streaming.client.sender import MessageRefused, NotDelivered
from streaming.client.store import MoveCalledOff, MoveRefused, Progress, ReplicaStore

__all__ = [
    "AsyncExecutor",
    "AsyncPlacementView",
    "AsyncReplicaStore",
    "AsyncRequester",
    "Change",
    "DecisionAwaited",
    "DrainRefused",
    "EpochAwaited",
    "Executor",
    "ExecutorState",
    "Limits",
    "LocationMalformed",
    "MessageRefused",
    "Move",
    "MoveCalledOff",
    "MoveRefused",
    "Nearest",
    "NodeAgent",
    "NodeIdTaken",
    "NotDelivered",
    "PlacementView",
    "Progress",
    "Replica",
    "ReplicaStore",
    "RequestOvertaken",
    "Requester",
    "Retries",
    "ShardAssignment",
    "ShardId",
    "StreamNotThere",
    "StreamThere",
    "ViewFreshness",
]
