"""What happens to a node's data when the reconciler's moves say so: the part of an executor that is
the store's own.

A copy has two parts: its bulk comes from the source that the move names, in checked blocks, resumed
where it was cut off; then the leader sends what is missing, as to any follower.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing

from deploy.examples.store.replica import LocalReplica, LocalReplicas, Shard
from deploy.examples.store.wire import Connection, Refused
from streaming.client import Move, MoveRefused, Progress, Replica, ReplicaStore

LOG = logging.getLogger("store")
POLL_SECONDS = 0.1
# A leader that has a majority shows it within a second; a removal is tried again a few times.
LEADER_TIMEOUT_SECONDS = 10.0


class NodeReplicas(ReplicaStore):
    """The replicas of one node, for its `Executor`. `touched` is called with a shard whose replica
    was made or completed, `leaving` before one is deleted; `lost` are shards whose replica was here
    once: an empty one in its place would forget what it has acknowledged."""

    def __init__(
        self,
        node_id: str,
        replicas: LocalReplicas,
        find_host: Callable[[str], str | None],
        touched: Callable[[Shard], None],
        leaving: Callable[[Shard], None],
    ) -> None:
        self._me, self._replicas, self._find_host = node_id, replicas, find_host
        self._touched, self._leaving = touched, leaving
        self.lost: set[Shard] = set()

    def list_replicas(self) -> Iterator[Replica]:
        for shard, _ in self._replicas.list():
            yield Replica(*shard, self._me)

    def holds(self, replica: Replica) -> bool:
        held = self._replicas.get(replica.shard_id)
        return held is not None and held.is_complete

    def create(self, replica: Replica) -> None:
        if replica.shard_id in self.lost:
            raise MoveRefused(f"the replica was here and is gone from the disk of {self._me}")
        self._replicas.make(replica.shard_id, complete=True)
        self._touched(replica.shard_id)

    def copy(self, move: Move, progress: Progress) -> None:
        if move.source is None:
            raise MoveRefused("no live replica is left to copy from; bring a node of it back")
        replica = self._replicas.make(move.shard_id, complete=False)
        if replica.is_complete:
            replica.begin_copy()
        if not replica.follows:
            self._fetch(replica, move, progress)
            replica.follow()
        # All that was acknowledged before the move's epoch is here once its leader has committed a
        # record of it here; what it acknowledges later needs a majority of the new list as well.
        while replica.committed_epoch < move.expected_epoch:
            progress(replica.log.size_bytes)
            progress.wait(POLL_SECONDS)
        replica.complete()
        LOG.info("copied %s: %d records", move.shard_id, replica.log.last.number)
        self._touched(move.shard_id)

    def remove(self, move: Move) -> None:
        """Wait until the leader has a majority of the list without this replica as well."""
        replica = self._replicas.get(move.shard_id)
        if replica is None:
            return
        with replica.changed:
            if not replica.changed.wait_for(
                lambda: replica.committed_epoch >= move.expected_epoch, LEADER_TIMEOUT_SECONDS
            ):
                raise TimeoutError(f"the leader of {move.shard_id} has not shown a majority")

    def promote(self, move: Move) -> None:
        """Nothing: the assignment that follows names the leader."""

    def delete(self, replica: Replica) -> None:
        self._leaving(replica.shard_id)
        self._replicas.delete(replica.shard_id)

    def _fetch(self, replica: LocalReplica, move: Move, progress: Progress) -> None:
        """Copy the bulk from the move's source, behind what an earlier try has copied."""
        assert move.source is not None
        host = self._find_host(move.source)
        if host is None:
            raise ConnectionError(f"the source {move.source} has no address")
        about = {"stream": move.stream, "shard": move.shard}
        with closing(Connection(host)) as source:
            LOG.info("copies %s from record %d on", move.shard_id, replica.log.last.number + 1)
            while True:
                after = replica.log.last
                try:
                    answer = source.call("read", after=after, **about)
                except Refused as refused:
                    if refused.code != "differs" or not after.number:
                        raise
                    LOG.info("copies %s anew: the source's log is another", move.shard_id)
                    replica.begin_copy(anew=True)
                    continue
                if not answer["lines"]:
                    return
                replica.take(answer["lines"])
                progress(replica.log.size_bytes, answer["size_bytes"])
                if move.rate_bytes_per_second:
                    copied = sum(map(len, answer["lines"]))
                    progress.wait(copied / move.rate_bytes_per_second)
