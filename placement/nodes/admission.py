"""Admits new nodes within the quotas.

Whoever may write to the nodes topic can make up ids. What is over a quota is refused with a reason
and told at most once a minute; the nodes that are there are not touched. When the fleet is full, a
node that is dead and holds nothing makes room for a new one.
"""

from collections.abc import Callable

from placement.model import AlertKind, Code, Liveness, Location, Reason, natural_key
from placement.nodes.location_checks import find_new_domain
from placement.state import ClusterState
from placement.wording import format_count

# What is remembered in `state.v1`: when the first node came, how many came in the last minute that
# any came, and when people were told last.
KIND = "fleet"
_SINCE, _MINUTE, _ALERTED = "since", "minute", "quota"
_MINUTE_MS = 60_000


class Admission:
    """Counts the nodes that come. `forget` drops a node that is gone."""

    def __init__(self, state: ClusterState, forget: Callable[[str], None]) -> None:
        self._state, self._forget = state, forget
        self._spare: list[str] | None = None

    def begin(self) -> None:
        """Begin a batch: nodes may have died or become empty since the last one."""
        self._spare = None

    @property
    def bootstrapping(self) -> bool:
        """True while the fleet registers for the first time."""
        state = self._state
        since = state.memory.get((KIND, _SINCE))
        if since is None:
            return not state.nodes
        return state.now < int(since.body["at"]) + state.configuration.quotas.bootstrap_ms

    def admit(self, location: Location, pending: int | None) -> Reason | None:
        """Count a new node in, or return the reason why it is refused.

        `pending`: number of other nodes whose location is in doubt; None if this node's is not.
        """
        reason = self._why_refused(location, pending)
        if reason is not None:
            self._alert(reason)
            return reason
        state = self._state
        if not state.nodes and (KIND, _SINCE) not in state.memory:
            state.memory.remember(KIND, _SINCE, {"at": state.now})
        if not self.bootstrapping:
            body = {"minute": self._minute(), "nodes": self._count_new_nodes() + 1}
            state.memory.remember(KIND, _MINUTE, body)
        return None

    def _why_refused(self, location: Location, pending: int | None) -> Reason | None:
        state, quotas = self._state, self._state.configuration.quotas
        if not self.bootstrapping and self._count_new_nodes() >= quotas.new_nodes_per_minute:
            most = quotas.new_nodes_per_minute
            return _quota_reason(f"{most} nodes have registered within this minute", most)
        if pending is not None and pending >= quotas.pending:
            located = format_count(pending, "node has", "nodes have")
            what = f"{located} a location in doubt or not approved"
            return _quota_reason(what, quotas.pending)
        if (
            len(state.domain_paths) >= quotas.places
            and find_new_domain(location, state.domain_paths) is not None
        ):
            return _quota_reason(f"{len(state.domain_paths)} domains are known", quotas.places)
        if len(state.nodes) >= quotas.nodes and not self._make_room():
            return _quota_reason(f"{len(state.nodes)} nodes are registered", quotas.nodes)
        return None

    def _minute(self) -> int:
        return self._state.now // _MINUTE_MS

    def _count_new_nodes(self) -> int:
        """Count the nodes that have come within this minute."""
        known = self._state.memory.get((KIND, _MINUTE))
        current = known is not None and known.body["minute"] == self._minute()
        return int(known.body["nodes"]) if known is not None and current else 0

    def _make_room(self) -> bool:
        """Forget the node that has been dead for longest, of those that hold nothing."""
        state = self._state
        if self._spare is None:
            load = state.table.load(state.topology.size)
            dead = (v for v in state.nodes.values() if v.liveness is Liveness.DEAD)
            empty = [
                view
                for view in dead
                if not load[state.topology.index[view.node_id]]
                and not state.ledger.moves_of_node(state.topology.index[view.node_id])
            ]
            empty.sort(key=lambda view: (-view.since, natural_key(view.node_id)))
            self._spare = [view.node_id for view in empty]
        while self._spare:
            name = self._spare.pop()
            if name in state.nodes and state.nodes[name].liveness is Liveness.DEAD:
                self._forget(name)
                return True
        return False

    def _alert(self, reason: Reason) -> None:
        state = self._state
        alerted = state.memory.get((KIND, _ALERTED))
        if alerted is None or state.now >= int(alerted.body["at"]) + _MINUTE_MS:
            state.memory.remember(KIND, _ALERTED, {"at": state.now})
            state.publisher.alert(AlertKind.QUOTA, "nodes", reason)


def _quota_reason(what: str, most: int) -> Reason:
    return Reason(
        Code.QUOTA_EXCEEDED, f"no further node is admitted: {what}, the limit is {most}", most, most
    )
