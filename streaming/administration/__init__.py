"""Compares a cluster's topics and access rights with the catalogue, and makes topics agree.

Used by the start, by `placer topics` and by `placer doctor`. Imports `brokers`, `settings`,
`errors`.
"""

from streaming.administration.authorization import missing_rights
from streaming.administration.topics import (
    Change,
    apply_topics,
    connected_admin,
    diff_topics,
    partition_counts,
)

__all__ = [
    "Change",
    "apply_topics",
    "connected_admin",
    "diff_topics",
    "missing_rights",
    "partition_counts",
]
