"""Keeps the published state of a cell in memory, at one whole commit, and says what changes.

For those who ask often: a lookup costs microseconds, a million shards some hundred MiB. Imports
`live`, `offline`, `brokers`, `codec` and what they stand on; it writes nothing.
"""

from streaming.read_model.changes import Change, Marker
from streaming.read_model.fold import StateSnapshot
from streaming.read_model.follower import ModelFollower
from streaming.read_model.read_model import NotReady, ReadModel, ShardFound, model_of_records
from streaming.read_model.shard_pages import RUNGS, ShardPage, ShardQuery

__all__ = [
    "RUNGS",
    "Change",
    "Marker",
    "ModelFollower",
    "NotReady",
    "ReadModel",
    "ShardFound",
    "ShardPage",
    "ShardQuery",
    "StateSnapshot",
    "model_of_records",
]
