"""Says when loads call for moves: a node holds more than fits, or is out of balance.

A node over its capacity is relieved whatever the mode of rebalancing is; evening out begins by
itself in the mode `continuous` only. A search that has found nothing is remembered with the state
that it looked at, so that it is not made again before something has changed.
"""

from typing import NamedTuple

import numpy as np

from placement.diagnosis import over_capacity, unbalanced
from placement.hashing import mix
from placement.model import Rebalance
from placement.state import ClusterState

KIND, TRIED = "rebalance", "tried"
# A search for relief costs tens of milliseconds in a large fleet; while none is found, it is made
# again this often at most, however often loads change.
_RELIEF_PAUSE_MS = 10_000


class LoadNeed(NamedTuple):
    """A need for moves: why, and whether it is only to relieve nodes over their capacity."""

    why: str
    relief: bool


class LoadTrigger:
    """Watches what nodes bear."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def find_need(self) -> LoadNeed | None:
        """Find out whether loads call for moves that no search has failed to find just now."""
        state = self._state
        loads = state.node_loads()
        if loads is None:
            return None
        topology, continuous = state.topology, state.configuration.rebalance is Rebalance.CONTINUOUS
        over = [v for v in over_capacity(topology, loads) if self._may_give(v.domain)]
        outside = continuous and next(unbalanced(topology, loads), None) is not None
        if not over and not outside:
            state.memory.remember(KIND, TRIED, None)
            return None
        tried = state.memory.get((KIND, TRIED))
        if tried is not None and (
            tried.body["seen"] == self._fingerprint() or tried.body["until"] > state.now
        ):
            return None
        why = f"{over[0].domain} holds more than fits" if over else "utilisation is uneven"
        return LoadNeed(why, not outside)

    def _may_give(self, node_id: str | None) -> bool:
        """Return whether replicas are moved off the node for its load; a dead one is repair's."""
        node = self._state.topology.index.get(node_id or "")
        return node is not None and bool(self._state.topology.eligible[node])

    def note_nothing_found(self, relief: bool) -> None:
        """Remember that a search has found no move."""
        state = self._state
        pause_ms = _RELIEF_PAUSE_MS if relief else state.configuration.dwell_ms
        body = {"seen": self._fingerprint(), "until": state.now + pause_ms}
        state.memory.remember(KIND, TRIED, body)

    def _fingerprint(self) -> str:
        """Hash what the nodes that may receive replicas bear, whatever their indexes are."""
        state, topology = self._state, self._state.topology
        borne = state.borne()
        assert borne is not None, "no resource is counted"
        hashes = topology.digests.copy()
        for row in borne.astype(np.uint64):
            hashes = mix(hashes ^ row)
        return f"{int(hashes[topology.eligible].sum(dtype=np.uint64)):016x}"
