"""Places a refused stream again in a changed fleet, to find out what would help.

A trial changes an overlay of the topology and asks the code that decides; the state stays as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from placement.model import Liveness, NodeAttributes, Outcome, StreamSpec
from placement.policy import Policy
from placement.state import ClusterState
from placement.streams import Answer, place
from placement.topology import Topology

# Work for one stream's advice: placements tried, fewer the larger fleet and stream are.
_TRIES_MAX = 200
_TRIES_MIN = 24
_WORK_MAX = 4_000_000

Additions = list[tuple[str, NodeAttributes]]
"""Ids and attributes of nodes that are added."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Holds a change of the fleet, or of the request, after which the stream can be placed.

    - `nodes`: how many nodes are added or come back; 0 where the request is changed.
    - `level`, `domains`: where new domains are added, their level and number.
    - `location`: where the nodes stand, if that is one place.
    - `resource`, `amount`: how much more of a resource nodes are given.
    """

    message: str
    nodes: int
    outcome: Outcome
    level: str | None = None
    domains: int = 0
    location: str | None = None
    resource: str | None = None
    amount: int | None = None


class Trial:
    """Places the stream again in overlays of the fleet, as often as the work of a trial allows.

    Each trial returns None once `left` is used up.
    """

    def __init__(
        self,
        state: ClusterState,
        spec: StreamSpec,
        policy: Policy,
        given: tuple[tuple[str, ...], ...] | None,
    ) -> None:
        self._state, self._spec, self._policy, self._given = state, spec, policy, given
        work = max(len(state.topology.index) * spec.shards * spec.replication_factor, 1)
        self.left = min(max(_WORK_MAX // work, _TRIES_MIN), _TRIES_MAX)

    def try_nothing(self) -> Answer:
        """Place the stream in the fleet as it is; this is no trial that counts."""
        return place(self._state, self._spec, self._policy, self._given)

    def try_adding(self, nodes: Additions) -> Answer | None:
        """Place the stream with these nodes added, up."""
        if self.left <= 0:
            return None
        self.left -= 1
        fleet = self._state.topology.overlay()
        for name, attributes in nodes:
            fleet.upsert(name, attributes, Liveness.UP)
        return self._place(fleet)

    def try_returning(self, nodes: Sequence[int]) -> Answer | None:
        """Place the stream with these known nodes up."""
        if self.left <= 0:
            return None
        self.left -= 1
        fleet = self._state.topology.overlay()
        for node in nodes:
            fleet.upsert(fleet.ids[node], fleet.attributes[node], Liveness.UP)
        return self._place(fleet)

    def try_enlarging(self, nodes: Sequence[int], resource: str, more: int) -> Answer | None:
        """Place the stream with so much more of a resource on each of these known nodes."""
        if self.left <= 0:
            return None
        self.left -= 1
        fleet = self._state.topology.overlay()
        for node in nodes:
            known = fleet.attributes[node]
            has = dict(known.capacities or ())
            has[resource] += more
            larger = replace(known, capacities=tuple(sorted(has.items())))
            fleet.upsert(fleet.ids[node], larger, Liveness.UP)
        return self._place(fleet)

    def try_request(self, spec: StreamSpec) -> Answer | None:
        """Place the stream by another spec in the fleet as it is."""
        if self.left <= 0:
            return None
        self.left -= 1
        return place(self._state, spec, self._policy, self._given)

    def _place(self, fleet: Topology) -> Answer:
        state = self._state.with_topology(fleet)
        return place(state, self._spec, self._policy, self._given)


def is_whole(answer: Answer | None) -> bool:
    """Return whether the answer places all replicas."""
    return answer is not None and answer.outcome in (Outcome.PLACED, Outcome.DEGRADED)
