"""Holds every move that is not finished, and for a while those that are.

A move is a lease. It carries the epoch that its own issue published. It ends by an acknowledgement,
by its deadline, or because nodes or streams changed; a later acknowledgement changes nothing. Ended
moves stay for `retention`, so that a repeated acknowledgement is recognised.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY
from placement.model import Move, MoveKind, MoveState, Reason


@dataclass(slots=True)
class OpenMove:
    """Holds a move under way.

    Shard, nodes and copy source are indexes (EMPTY: none). `leader`: the node that is to lead, of a
    move that adds and removes nothing.
    """

    move: Move
    shard: int
    removed: int
    added: int
    source: int
    leader: int = EMPTY

    @property
    def is_hand_over(self) -> bool:
        """True if the shard's order changes with it, and none of its replicas."""
        return self.move.kind is MoveKind.LEADER

    def put_source_back(self, nodes: list[int] | NDArray[np.int64]) -> None:
        """Replace the target by the source among a shard's planned nodes, in place."""
        if not self.is_hand_over:
            nodes[self.move.slot] = self.removed


class Ledger:
    """Holds open moves by shard and node, and ended ones in the order of their ends."""

    def __init__(self) -> None:
        self.known: dict[str, Move] = {}
        self.by_shard: dict[int, OpenMove] = {}
        # Open moves by node: towards it, away from it to another, that copy from it, and all that
        # take its replica away, with another made elsewhere or not.
        self.incoming: Counter[int] = Counter()
        self.outgoing: Counter[int] = Counter()
        self.copied: Counter[int] = Counter()
        self.leaving: Counter[int] = Counter()
        self._ended: deque[str] = deque()
        self._by_node: defaultdict[int, set[int]] = defaultdict(set)
        # Deadline, move and shard; a move that has ended or was renewed is passed over when its
        # time comes.
        self._deadlines: list[tuple[int, str, int]] = []

    def open(self, opened: OpenMove) -> None:
        """Record an issued move; the shard must have no open move."""
        self.count(opened.removed, opened.added, opened.source, 1)
        self.open_counted(opened)

    def open_counted(self, opened: OpenMove) -> None:
        """Record an issued move that `count` has counted; the shard must have no open move."""
        assert opened.shard not in self.by_shard, "one open move per shard"
        self.known[opened.move.move_id] = opened.move
        self.by_shard[opened.shard] = opened
        for node in (opened.added, opened.removed, opened.leader):
            self._by_node[node].add(opened.shard)
        heappush(self._deadlines, (opened.move.deadline, opened.move.move_id, opened.shard))

    def accept(self, shard: int) -> Move:
        """Record that the executor has taken the shard's open move over."""
        opened = self.by_shard[shard]
        opened.move = opened.move._replace(state=MoveState.ACCEPTED)
        self.known[opened.move.move_id] = opened.move
        return opened.move

    def renew(self, shard: int, renewed: Move) -> None:
        """Replace the shard's open move by the same one with a later deadline."""
        opened = self.by_shard[shard]
        assert renewed.move_id == opened.move.move_id, "another move is none that was renewed"
        opened.move = self.known[renewed.move_id] = renewed
        heappush(self._deadlines, (renewed.deadline, renewed.move_id, shard))

    def close(
        self, shard: int, state: MoveState, at: int, reason: Reason | None = None
    ) -> OpenMove:
        """End the shard's open move in a final state."""
        opened = self.by_shard.pop(shard)
        self.count(opened.removed, opened.added, opened.source, -1)
        for node in (opened.added, opened.removed, opened.leader):
            self._by_node[node].discard(shard)
        reason = opened.move.reason if reason is None else reason
        opened.move = opened.move._replace(state=state, ended_at=at, reason=reason)
        self.keep(opened.move)
        return opened

    def count(self, removed: int, added: int, source: int, by: int) -> None:
        """Count a move between nodes as open (1), or not any more (-1)."""
        self.incoming[added] += by
        self.outgoing[removed] += by * (added != EMPTY)
        self.copied[source] += by
        self.leaving[removed] += by

    def counts(self) -> "Ledger":
        """Return a ledger of the same counts, without the moves, to try more of them on."""
        made = Ledger()
        for mine, its in zip(self._counters(), made._counters(), strict=True):
            its.update(mine)
        return made

    def _counters(self) -> tuple[Counter[int], ...]:
        return self.incoming, self.outgoing, self.copied, self.leaving

    def keep(self, move: Move) -> None:
        """Remember an ended move until it is dropped."""
        if move.move_id not in self.known or self.known[move.move_id].state.is_open:
            self._ended.append(move.move_id)
        self.known[move.move_id] = move

    def refers_to(self, node: int) -> bool:
        """Return whether an open move adds to, removes from or copies from the node."""
        counts = (self.incoming, self.copied, self.leaving)
        return any(count[node] for count in counts) or bool(self._by_node.get(node))

    def moves_of_node(self, node: int) -> list[OpenMove]:
        """List the open moves that add to, remove from or hand over to the node, by shard names."""
        shards = self._by_node.get(node, ())
        return _sort_by_shard(self.by_shard[shard] for shard in shards)

    def expired_moves(self, now: int) -> list[OpenMove]:
        """List the open moves past their deadline; the caller closes them."""
        found: list[OpenMove] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, move_id, shard = heappop(self._deadlines)
            opened = self.by_shard.get(shard)
            due = opened is not None and opened.move.deadline <= now
            if opened is not None and due and opened.move.move_id == move_id:
                found.append(opened)
        return _sort_by_shard(found)

    def drop_ended(self, before: int) -> Iterator[Move]:
        """Forget, and yield, moves that ended before the given time."""
        dropped: list[Move] = []
        while self._ended:
            move = self.known[self._ended[0]]
            if move.ended_at is None or move.ended_at >= before:
                break
            self._ended.popleft()
            del self.known[move.move_id]
            dropped.append(move)
        yield from sorted(dropped, key=lambda move: move.move_id)


def _sort_by_shard(found: Iterable[OpenMove]) -> list[OpenMove]:
    return sorted(found, key=lambda opened: (opened.move.stream, opened.move.shard))
