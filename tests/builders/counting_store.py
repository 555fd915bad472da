"""A store in memory that notes each copy, which ends when the test says so."""

import threading

from streaming.client import Move, Progress, Replica, ReplicaStore


class CountingStore(ReplicaStore):
    """`copies` are the moves whose copy was begun, `held` what is complete."""

    def __init__(self) -> None:
        self.held: set[Replica] = set()
        self.copies: list[str] = []
        self.may_end = threading.Event()

    def holds(self, replica: Replica) -> bool:
        return replica in self.held

    def copy(self, move: Move, progress: Progress) -> None:
        self.copies.append(move.move_id)
        while not self.may_end.is_set():
            progress.wait(0.05)
            progress.check()
        self.held.add(Replica(move.stream, move.shard, move.add))

    def delete(self, replica: Replica) -> None:
        self.held.discard(replica)
