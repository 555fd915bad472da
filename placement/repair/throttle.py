"""Says which limit forbids a move now, for repair and for rebalancing.

Limits of a node are judged against the ledger, limits between two domains of the top level against
the copies that open moves make between them. The planner asks before it looks for actions whether
the fleet has room, the issuer before it writes a move whether its nodes have.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from placement.allocator import View
from placement.assignments import EMPTY
from placement.diagnosis import live_slots
from placement.model import UNLIMITED, Code, Reason
from placement.moves import Ledger
from placement.repair.bytes_in_flight import BytesInFlight
from placement.state import ClusterState
from placement.topology import Scope
from placement.wording import format_wait

_TOP = Scope(depth=1)


def _waiting(node_id: str, have: int, most: int, what: str) -> str:
    """Describe a node's limit that a shard waits for: its present moves and their maximum."""
    return format_wait(f"node {node_id} already has {have} of {most} {what}")


class Copy(NamedTuple):
    """A replica to move: its shard, the node that gives it up and the one that gets it."""

    shard: int
    removed: int
    target: int


def copy_source(state: ClusterState, shard: int, nodes: Sequence[int], target: int) -> int:
    """Choose the live replica to copy from: in sync, allowed by limits, nearest, least busy.

    Nearest to the target; EMPTY if there is none. `nodes`: those of the shard, by slot.
    """
    if target == EMPTY:
        return EMPTY
    return nearest_source(
        state, shard, [nodes[slot] for slot in live_slots(nodes, state.topology)], target
    )


def nearest_source(state: ClusterState, shard: int, live: list[int], target: int) -> int:
    """Choose as `copy_source` does among the nodes of a shard that live, for a target."""
    behind = state.sync.nodes_of(shard)
    if behind:
        live = [node for node in live if node not in behind] or live
    if len(live) < 2:
        return live[0] if live else EMPTY
    most, topology = state.configuration.limits.max_copies_from_node, state.topology
    place, copied = topology.locations, state.ledger.copied.get
    to = place[target]
    best, first = None, live
    for node in live:
        copies = copied(node, 0)
        rank = (copies >= most, -place[node].common_depth(to), copies)
        if best is None or rank < best:
            best, first = rank, [node]
        elif rank == best:
            first.append(node)
    return first[0] if len(first) == 1 else min(first, key=topology.order().item)


class Throttle:
    """The limits on open moves, against a ledger: the state's own, or one to try moves on.

    It counts the copies between domains once and then what `count` adds: whoever opens or closes a
    move counts it here as long as the throttle lives, which is at most one run.
    """

    def __init__(self, state: ClusterState, ledger: Ledger | None = None) -> None:
        self._state = state
        self._ledger = state.ledger if ledger is None else ledger
        self._pairs: Counter[tuple[int, int]] | None = None
        self._bytes: BytesInFlight | None = None

    def has_batch_room(self, issued: int) -> bool:
        """Return whether this batch may issue one more move after `issued` moves."""
        return issued < self._state.configuration.limits.max_per_batch

    def has_room(self, issued: int) -> bool:
        """Return whether the limits of the whole fleet allow one more move in this batch."""
        return self.room(issued) > 0

    def room(self, issued: int) -> int:
        """Count the moves that the limits of the whole fleet still allow in this batch."""
        limits = self._state.configuration.limits
        left = min(limits.max_per_batch - issued, limits.max_open - len(self._ledger.by_shard))
        return max(left, 0)

    def why_fleet_full(self) -> Reason:
        """Return the limits of the whole fleet that a shard waits for.

        Both of them, whichever is reached: shards wait by the thousand, and are published again
        when their reason changes.
        """
        limits = self._state.configuration.limits
        bounds = ((limits.max_open, "open at once"), (limits.max_per_batch, "issued in a batch"))
        most = " and ".join(f"{most} {word}" for most, word in bounds if most < UNLIMITED)
        message = f"moves are limited to {most}" if most else "the next run of repair moves it"
        return Reason(Code.LIMIT_REACHED, format_wait(message))

    def why_nodes_full(self) -> Reason:
        """Return the limit that keeps every node from receiving one more replica."""
        most = self._state.configuration.limits.max_in_per_node
        message = f"every node that accepts replicas already has {most} of {most} incoming moves"
        return Reason(Code.LIMIT_REACHED, format_wait(message))

    def has_room_for(self, copies: Sequence[Copy]) -> bool:
        """Return whether limits allow all of these copies, which belong together."""
        limits, opened = self._state.configuration.limits, len(self._ledger.by_shard)
        if len(copies) > limits.max_per_batch or opened + len(copies) > limits.max_open:
            return False
        trial = Throttle(self._state, self._ledger.counts())
        trial._pairs = self._open_pairs().copy()
        trial._bytes = self._open_bytes().fork() if self._counts_bytes else None
        for shard, removed, target in copies:
            source = copy_source(self._state, shard, self._state.table.nodes(shard), target)
            size = self._state.bytes_of(shard) or 0
            if trial.limit_exceeded(removed, target, source, size):
                return False
            trial._ledger.count(removed, target, source, 1)
            trial.count(source, target, 1, size)
        return True

    def all_receive_enough(self, view: View) -> bool:
        """Return whether there are nodes and limits keep each from receiving one more replica."""
        topology = self._state.topology
        open_nodes = topology.derive("eligible nodes", topology.eligible.sum, True)
        if view.busy_nodes < open_nodes or not open_nodes:
            return False
        return not (topology.eligible & ~view.busy).any()

    def receives_enough(self, node: int, size: int = 0) -> bool:
        """Return whether a node receives as many replicas as limits allow, or so many bytes that a
        copy of `size` does not fit."""
        if self._ledger.incoming[node] >= self._state.configuration.limits.max_in_per_node:
            return True
        most = self._state.configuration.limits.max_bytes_per_node
        return most is not None and self._open_bytes().nodes[node] + max(size, 1) > most

    def gives_enough(self, node: int) -> bool:
        """Return whether a live node sends as many replicas as limits allow."""
        if node == EMPTY or self._state.topology.is_dead(node):
            return False
        return self._ledger.outgoing[node] >= self._state.configuration.limits.max_out_per_node

    def limit_exceeded(
        self, removed: int, target: int, source: int, size: int = 0
    ) -> Reason | None:
        """Return the limit of a node, or between two domains, that a move would exceed, if any.

        `removed`: the node that gives its replica up; `target`: the one that gets it; `source`: the
        one it is copied from; each EMPTY where there is none. `size`: bytes to be copied.
        """
        if self._counts_bytes:
            found = self._open_bytes().limit_exceeded(source, target, size)
            if found is not None:
                return found
        if target != EMPTY:
            found = self._node_limit_exceeded(removed, target)
            if found is not None:
                return found
        limits, ids = self._state.configuration.limits, self._state.topology.ids
        copied = self._ledger.copied[source]
        if source != EMPTY and copied >= limits.max_copies_from_node:
            most = limits.max_copies_from_node
            message = _waiting(ids[source], copied, most, "outgoing copies")
            return Reason(Code.LIMIT_REACHED, message, 1, most - copied)
        return self._pair_limit_exceeded(source, target) or self._touching_limit_exceeded(
            removed, target
        )

    def count(self, source: int, target: int, by: int, size: int = 0) -> None:
        """Count a copy of `size` bytes that has begun (1) or that has ended (-1)."""
        if self._bytes is not None:
            self._bytes.count(source, target, by * size)
        pair = self._domain_pair(source, target)
        if pair is not None and self._pairs is not None:
            self._pairs[pair] += by

    def _node_limit_exceeded(self, removed: int, target: int) -> Reason | None:
        """Return the reason if the target receives, or the other node gives, too many.

        The second names its node in `seen`: the shard waits for that node.
        """
        limits, ids = self._state.configuration.limits, self._state.topology.ids
        incoming = self._ledger.incoming[target]
        if incoming >= limits.max_in_per_node:
            most = limits.max_in_per_node
            message = _waiting(ids[target], incoming, most, "incoming moves")
            return Reason(Code.LIMIT_REACHED, message, 1, most - incoming)
        if not self.gives_enough(removed):
            return None
        most = limits.max_out_per_node
        message = _waiting(ids[removed], self._ledger.outgoing[removed], most, "outgoing moves")
        return Reason(Code.LIMIT_REACHED, message, 1, 0, "node", (ids[removed],))

    def _pair_limit_exceeded(self, source: int, target: int) -> Reason | None:
        """Return the reason if too many copies run between the two domains."""
        most = self._state.configuration.limits.max_per_domain_pair
        pair = None if most is None else self._domain_pair(source, target)
        if most is None or pair is None:
            return None
        copied = self._open_pairs()[pair]
        if copied < most:
            return None
        names = " and ".join(self._state.topology.domain_names(_TOP, pair))
        message = format_wait(f"{copied} of {most} copies between {names} are under way")
        return Reason(Code.LIMIT_REACHED, message, 1, most - copied)

    def _touching_limit_exceeded(self, removed: int, target: int) -> Reason | None:
        """Return the reason if a node has too many moves towards and away from it."""
        most, topology = (
            self._state.configuration.limits.max_touching_per_node,
            self._state.topology,
        )
        if most is None:
            return None
        for node in (removed, target):
            count = self._ledger.incoming[node] + self._ledger.leaving[node]
            if node != EMPTY and count >= most and not topology.is_dead(node):
                message = _waiting(topology.ids[node], count, most, "incoming and outgoing moves")
                return Reason(Code.LIMIT_REACHED, message, 1, 0)
        return None

    def _domain_pair(self, source: int, target: int) -> tuple[int, int] | None:
        """Find the top-level domains between which a replica is copied.

        None within one, or where no limit is set.
        """
        if EMPTY in (source, target):
            return None
        if self._state.configuration.limits.max_per_domain_pair is None:
            return None
        domains = self._state.topology.domain_of(_TOP)
        ends = sorted((int(domains[source]), int(domains[target])))
        return None if ends[0] == ends[1] else (ends[0], ends[1])

    @cached_property
    def _counts_bytes(self) -> bool:
        limits = self._state.configuration.limits
        bounds = limits.max_bytes_open, limits.max_bytes_per_node, limits.max_bytes_per_domain_pair
        return any(bound is not None for bound in bounds)

    def _open_bytes(self) -> BytesInFlight:
        """Count the bytes of the open moves."""
        if self._bytes is None:
            # A ledger to try moves on begins without any.
            empty = self._ledger is not self._state.ledger
            self._bytes = BytesInFlight(self._state, empty)
        return self._bytes

    def _open_pairs(self) -> Counter[tuple[int, int]]:
        """Count the open copies between each two domains of the top level."""
        if self._pairs is None:
            opened = self._ledger.by_shard.values()
            pairs = (self._domain_pair(each.source, each.added) for each in opened)
            self._pairs = Counter(pair for pair in pairs if pair is not None)
        return self._pairs
