"""Leads one shard in one epoch: gathers what earlier leaders have acknowledged, then takes writes.

The reconciler says who leads: the first node of the assignment. The rest is as in Raft, with
epochs for terms: nothing counts without a majority, and what a majority has, the next leader finds.
While a replica moves, a majority of the list before and one of the list after are needed both.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial

from deploy.examples.store.log import ORIGIN, Place
from deploy.examples.store.replica import LocalReplica
from deploy.examples.store.wire import Connection, Refused
from streaming.client import Change

LOG = logging.getLogger("store")
# Followers hear of their leader so often, and with it what is committed.
HEARTBEAT_SECONDS = 0.5
# A follower that does not answer, or has no replica yet, is asked again after so long.
RETRY_SECONDS = 0.2
# A write is given so long to reach a majority; whether it gets there later, nobody knows. Less than
# the client's patience with a connection (wire.py).
WRITE_TIMEOUT_SECONDS = 2.0


class Leadership:
    """The lead of a shard between its start and `close`. Its threads end when another leads."""

    def __init__(
        self,
        node_id: str,
        replica: LocalReplica,
        assignment: Change,
        find_host: Callable[[str], str | None],
    ) -> None:
        assert assignment.epoch is not None
        self.epoch, self._shard_id = assignment.epoch, assignment.shard_id
        self._me, self._replica, self._find_host = node_id, replica, find_host
        now = {*assignment.replicas}
        # The list before a move and the one after it; without a move they are the same.
        self._lists = (now, (now - {*assignment.removing}) | {*assignment.adding})
        self._promised: dict[str, Place] = {}
        self._matched: dict[str, int] = {}
        self._first = 0
        self._closing = threading.Event()
        peers = (self._lists[0] | self._lists[1]) - {node_id}
        for work in (self._lead, *(partial(self._follow, peer) for peer in peers)):
            threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def write(self, key: str | None, value: str | None) -> int:
        """Add a record; returns its number once it is committed. Raises Refused."""
        if not self._first or self._closing.is_set():
            raise Refused("not_leading", "this node does not lead the shard, or not yet")
        replica = self._replica
        place = replica.write(self.epoch, key, value)
        self._count()
        with replica.changed:
            is_there = replica.changed.wait_for(
                lambda: replica.committed >= place.number or self._closing.is_set(),
                WRITE_TIMEOUT_SECONDS,
            )
            # Another leader may have put a record of its own there.
            if not is_there or replica.committed < place.number:
                raise Refused("unconfirmed", "no majority has answered in time")
            if replica.log.place(place.number) != place:
                raise Refused("unconfirmed", "another node leads the shard by now")
        return place.number

    def close(self) -> None:
        """Lead no more; the threads end by themselves."""
        self._closing.set()
        with self._replica.changed:
            self._replica.changed.notify_all()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Refused as refused:
            # A later epoch is known here, or the replica is gone: the next assignment says more.
            LOG.info("the lead of %s in epoch %d ends: %s", self._shard_id, self.epoch, refused)
            self.close()

    def _lead(self) -> None:
        """Promise, hear from a majority, take over what it knows, and begin."""
        replica = self._replica
        while not self._closing.is_set():
            self._note_promise(self._me, replica.promise(self.epoch))
            with replica.changed:
                replica.changed.wait_for(
                    lambda: self._closing.is_set() or self._is_majority(self._promised, old=True)
                )
            try:
                self._adopt()
            except (OSError, Refused) as error:
                LOG.warning("what a majority knows could not be fetched: %s", error)
                self._closing.wait(RETRY_SECONDS)
                continue
            if not self._closing.is_set():
                # In one step: whoever waits for the first record looks when the lock is free.
                with replica.changed:
                    self._first = replica.write(self.epoch, None, None).number
                LOG.info("leads %s in epoch %d", self._shard_id, self.epoch)
                self._count()
            return

    def _adopt(self) -> None:
        """Fetch what is missing here of the log that knows most: the one with the latest epoch at
        its end, or the longest of these. All that was acknowledged is in it."""
        replica = self._replica
        with replica.changed:
            best = max(self._promised, key=lambda node: _rank(self._promised[node]))
            goal, after = self._promised[best], replica.log.last
            if _rank(goal) <= _rank(after):
                return
            # Should it fail, its follower's thread asks for the promise again.
            del self._promised[best]
        with closing(self._connect(best)) as connection:
            while not self._closing.is_set() and _rank(replica.log.last) < _rank(goal):
                try:
                    lines = connection.call("read", **self._about(after=after))["lines"]
                except Refused as refused:
                    if refused.code != "differs" or after.number <= replica.committed:
                        raise
                    after = replica.log.place(replica.committed) or ORIGIN
                    continue
                if not lines:
                    raise Refused("differs", f"{best} has lost what it had")
                replica.accept(self.epoch, after, lines, 0)
                after = replica.log.place(after.number + len(lines)) or ORIGIN

    def _follow(self, peer: str) -> None:
        """Keep one follower up to date."""
        while not self._closing.is_set():
            try:
                with closing(self._connect(peer)) as connection:
                    if self._is_unasked(peer):
                        answer = connection.call("promise", **self._about(epoch=self.epoch))
                        self._note_promise(peer, Place(*answer["last"]))
                    self._send_to(peer, connection)
            except OSError as error:
                LOG.debug("%s does not answer: %s", peer, error)
            except Refused as refused:
                if refused.code == "fenced":
                    raise
            self._closing.wait(RETRY_SECONDS)

    def _send_to(self, peer: str, connection: Connection) -> None:
        replica = self._replica
        self._matched.pop(peer, None)
        with replica.changed:
            replica.changed.wait_for(
                lambda: self._first or self._closing.is_set() or self._is_unasked(peer)
            )
        after, told = replica.log.last, -1
        while self._first and not self._closing.is_set():
            with replica.changed:
                if (replica.log.last, replica.committed) == (after, told):
                    replica.changed.wait(HEARTBEAT_SECONDS)
                lines, committed = replica.read(after), replica.committed
            try:
                fields = self._about(after=after, epoch=self.epoch)
                connection.call("accept", lines=lines, committed=committed, **fields)
            except Refused as refused:
                if refused.code != "differs":
                    raise
                after = replica.log.place(min(refused.number, replica.log.last.number)) or ORIGIN
                continue
            after, told = replica.log.place(after.number + len(lines)) or ORIGIN, committed
            self._matched[peer] = after.number
            self._count()

    def _is_unasked(self, peer: str) -> bool:
        """Return whether a promise is wanted still; a copy that comes has none to give."""
        return not self._first and peer in self._lists[0] and peer not in self._promised

    def _note_promise(self, node_id: str, last: Place) -> None:
        with self._replica.changed:
            self._promised[node_id] = last
            self._replica.changed.notify_all()

    def _count(self) -> None:
        """Commit what is on enough nodes. A record of an earlier leader counts only with one of
        this epoch behind it."""
        with self._replica.changed:
            matched = {**self._matched, self._me: self._replica.log.last.number}
            for number in sorted({*matched.values()}, reverse=True):
                have = [node for node, up_to in matched.items() if up_to >= number]
                if number >= self._first > 0 and self._is_majority(have):
                    self._replica.commit(number)
                    return

    def _is_majority(self, nodes: Iterable[str], *, old: bool = False) -> bool:
        """Return whether these are a majority of both lists, or of the old one alone."""
        there = {*nodes}
        lists = self._lists[:1] if old else self._lists
        return all(2 * len(there & each) > len(each) for each in lists)

    def _about(self, **fields: object) -> dict[str, object]:
        stream, shard = self._shard_id
        return {"stream": stream, "shard": shard, **fields}

    def _connect(self, node_id: str) -> Connection:
        host = self._find_host(node_id)
        if host is None:
            raise ConnectionError(f"{node_id} has no address")
        return Connection(host)


def _rank(place: Place) -> tuple[int, int]:
    """Order ends of logs by what they know: the later epoch, then the higher number."""
    return place.epoch, place.number
