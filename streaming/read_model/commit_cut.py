"""Finds offsets at which the topics hold whole commits and nothing of a later one.

A transaction becomes visible partition by partition, and no record says to which commit it belongs.
But where the end that readers of committed records see is the end of the log in every partition at
one moment, no transaction is open in any: each one is whole before these offsets, or behind them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient

from schemas.topics import full_name
from streaming.brokers import connect, present_partitions, read_end_offsets
from streaming.errors import BrokerUnreachable

Place = tuple[str, int]
"""Short name of a topic, and a partition."""


class CommitCuts:
    """Asks the brokers for cuts. Raises BrokerUnreachable and TopicMissing when it is made."""

    def __init__(
        self, bootstrap: str, prefix: str, topics: Sequence[str], options: Mapping[str, str]
    ) -> None:
        self._bootstrap, self._options = bootstrap, options
        self._admin: Any = None
        self._names = {full_name(topic, prefix): topic for topic in topics}
        self._places = [
            TopicPartition(name, partition)
            for name in self._names
            for partition in present_partitions(self._connected(), name)
        ]

    def find(self) -> dict[Place, int] | None:
        """Return the next offset behind the last whole commit, by partition; None while a
        transaction is open. Raises BrokerUnreachable, ConnectionUntrusted, AccessRefused."""
        admin = self._connected()
        # In this order: ends only rise, so that equal ones were all ends at the moment between.
        try:
            committed = read_end_offsets(admin, self._places, IsolationLevel.READ_COMMITTED)
            written = read_end_offsets(admin, self._places, IsolationLevel.READ_UNCOMMITTED)
        except BrokerUnreachable:
            # It would go on asking a leader that has failed for up to 15 minutes; the next client
            # finds out anew who leads a partition.
            self._admin = None
            raise
        if committed != written:
            return None
        return {(self._names[name], partition): end for (name, partition), end in written.items()}

    def _connected(self) -> Any:
        if self._admin is None:
            self._admin = connect(AdminClient, self._bootstrap, {}, self._options)
        return self._admin
