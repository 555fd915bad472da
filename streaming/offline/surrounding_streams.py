"""The streams beside the one that `explain` is asked about: they are counted, or placed as well."""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from placement.assignments import EMPTY
from placement.model import Decision, Outcome, Reason, StreamCreated
from placement.policy import Policy
from placement.state import ClusterState
from placement.streams import spec_of
from streaming.offline.documents import Document
from streaming.offline.loads import known_loads
from streaming.offline.place import PlaceResult, decide_stream, enter_decision


class SurroundingStreams:
    """The streams of a document that are not asked about.

    Those that have all their replicas are only counted, all at once, before something is placed
    beside them. `placed`: where the others stand, if that is known.
    """

    def __init__(self, document: Document, state: ClusterState, placed: PlaceResult | None) -> None:
        self._state, self._placed = state, placed
        self._known = known_loads(document.cluster)
        self._rows: list[list[int]] = []
        self._shards: list[int] = []

    def take(self, event: StreamCreated) -> Decision:
        """Count the stream as it is, or place what it lacks."""
        state = self._state
        policy = state.streams.compile(event.placement_policies, event.policy)
        index, given = state.topology.index, event.replicas or ()
        rows = [[index.get(node, EMPTY) for node in nodes] for nodes in given]
        if (
            isinstance(policy, Reason)
            or len(rows) != event.shards
            or not _is_complete(rows, policy, event)
        ):
            self.enter_rows()
            return self.place(event)
        spec = spec_of(state, event)
        parts = (event.body_hash, policy.strategy, event.shards, 0, (), (), state.now)
        decision = Decision(event.stream, event.sequence, 1, Outcome.PLACED, spec, *parts)
        self._shards += state.allocate_slots(state.upsert_stream(decision, policy), rows)
        self._rows += rows
        state.loads.learn(self._known.get(event.stream, ()))
        return decision

    def place(self, event: StreamCreated) -> Decision:
        """Decide the stream, or take the decision that is known."""
        if self._placed is None:
            return decide_stream(self._state, event, self._known.get(event.stream, ()))
        known = self._placed.state
        stream = known.streams[event.stream]
        rows = [known.table.nodes(shard) for shard in stream.shards]
        loads = self._known.get(event.stream, ())
        enter_decision(self._state, stream.decision, stream.policy, rows or None, loads)
        return stream.decision

    def enter_rows(self) -> None:
        """Enter what was taken into the table."""
        if self._rows:
            counts = np.fromiter(map(len, self._rows), np.int64, len(self._rows))
            nodes = np.fromiter(chain.from_iterable(self._rows), np.int64, int(counts.sum()))
            self._state.load_replicas(np.asarray(self._shards, np.int64), counts, nodes)
            self._rows, self._shards = [], []


def _is_complete(rows: Sequence[Sequence[int]], policy: Policy, event: StreamCreated) -> bool:
    """Return whether every shard has as many different, known nodes as the stream asks for."""
    copies = policy.copies(event.replication_factor)
    return all(len(row) >= copies and EMPTY not in row and len({*row}) == len(row) for row in rows)
