"""Counts the bytes that open moves copy: by node, between domains, and in all; with their limits.

A copy that is larger than a limit goes alone: it is issued where nothing else is under way.
"""

from collections import Counter
from copy import copy

from placement.assignments import EMPTY
from placement.model import Code, Reason
from placement.state import ClusterState
from placement.topology import Scope
from placement.wording import format_wait

_TOP = Scope(depth=1)

_Pair = tuple[int, int]


class BytesInFlight:
    """Holds the bytes of open moves, counted once and then what `count` adds."""

    def __init__(self, state: ClusterState, empty: bool = False) -> None:
        """Count the open moves of the state; `empty`: none."""
        self._state = state
        self._total = 0
        self.nodes: Counter[int] = Counter()
        self.pairs: Counter[_Pair] = Counter()
        for opened in () if empty else state.ledger.by_shard.values():
            self.count(opened.source, opened.added, opened.move.bytes or 0)

    def fork(self) -> "BytesInFlight":
        """Copy the counts, to try more moves on."""
        made = copy(self)
        made.nodes, made.pairs = self.nodes.copy(), self.pairs.copy()
        return made

    def count(self, source: int, target: int, size: int) -> None:
        """Count the bytes of a copy that has begun, or take those of an ended one out (< 0)."""
        if target == EMPTY or not size:
            return
        self._total += size
        for node in (source, target):
            self.nodes[node] += size
        pair = self._domain_pair(source, target)
        if pair is not None:
            self.pairs[pair] += size

    def limit_exceeded(self, source: int, target: int, size: int) -> Reason | None:
        """Return the limit that a copy of `size` bytes would exceed, if any."""
        if target == EMPTY or not size:
            return None
        limits, topology = self._state.configuration.limits, self._state.topology
        if _exceeds(self._total, size, limits.max_bytes_open):
            return _reason("in all", self._total, limits.max_bytes_open)
        for node in (source, target):
            if node != EMPTY and _exceeds(self.nodes[node], size, limits.max_bytes_per_node):
                where = f"from or to node {topology.ids[node]}"
                return _reason(where, self.nodes[node], limits.max_bytes_per_node)
        pair = self._domain_pair(source, target)
        most = limits.max_bytes_per_domain_pair
        if pair is None or not _exceeds(self.pairs[pair], size, most):
            return None
        names = " and ".join(topology.domain_names(_TOP, pair))
        return _reason(f"between {names}", self.pairs[pair], most)

    def _domain_pair(self, source: int, target: int) -> _Pair | None:
        """Find the top-level domains between which a replica is copied; None within one."""
        if EMPTY in (source, target):
            return None
        domains = self._state.topology.domain_of(_TOP)
        one, other = sorted((int(domains[source]), int(domains[target])))
        return None if one == other else (one, other)


def _exceeds(now: int, more: int, most: int | None) -> bool:
    return most is not None and now > 0 and now + more > most


def _reason(where: str, now: int, most: int | None) -> Reason:
    message = format_wait(f"moves under way copy {now} of {most} bytes {where}")
    return Reason(Code.LIMIT_REACHED, message, most, now)
