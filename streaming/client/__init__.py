"""Client library of the reconciler: executors, readers of placements, requests, agents of nodes.

For systems whose replicas are placed; no part of the application imports it. It knows the topics
and neither Spark nor the planner. Imports `brokers`, `errors`.
"""

from streaming.client.carrying import Retries
from streaming.client.executor import Executor
from streaming.client.moves import Move, Replica, ShardAssignment, ShardId
from streaming.client.schedule import Limits
from streaming.client.sender import MessageRefused, NotDelivered
from streaming.client.store import MoveCalledOff, MoveRefused, Progress, ReplicaStore

__all__ = [
    "Executor",
    "Limits",
    "MessageRefused",
    "Move",
    "MoveCalledOff",
    "MoveRefused",
    "NotDelivered",
    "Progress",
    "Replica",
    "ReplicaStore",
    "Retries",
    "ShardAssignment",
    "ShardId",
]
