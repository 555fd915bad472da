"""Says when loads call for moves: a node holds more than fits, or is out of balance.

A node over its capacity is relieved whatever the mode of rebalancing is; evening out begins by
itself in the mode `continuous` only. A search that has found nothing is remembered with the state
that it looked at, so that it is not made again before something has changed.
"""

from typing import NamedTuple

import numpy as np

from placement.diagnosis import unbalanced
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
        # A dead node's replicas are repair's.
        over = {each.node for each in loads.overloads() if topology.eligible[each.node]}
        outside = continuous and next(unbalanced(topology, loads), None) is not None
        if not over and not outside:
            state.memory.remember(KIND, TRIED, None)
            return None
        tried = state.memory.get((KIND, TRIED))
        if tried is not None and (
            tried.body["seen"] == self._fingerprint() or tried.body["until"] > state.now
        ):
            return None
        if not over:
            return LoadNeed("utilisation is uneven", relief=False)
        first = min(over, key=topology.order().__getitem__)
        return LoadNeed(f"{topology.ids[first]} holds more than fits", not outside)

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
