"""Compares a cluster's topics and access rights with the catalogue, and makes topics agree.

Used by the start, by `placer topics` and by `placer doctor`. Imports `brokers`, `settings`,
`errors`.
"""

from streaming.administration.authorization import find_missing_rights
from streaming.administration.topics import (
    TopicChange,
    apply_topics,
    connect_admin,
    count_partitions,
    diff_topics,
)

__all__ = [
    "TopicChange",
    "apply_topics",
    "connect_admin",
    "count_partitions",
    "diff_topics",
    "find_missing_rights",
]
