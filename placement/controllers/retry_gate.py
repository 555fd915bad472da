"""Says which waiting streams are worth another try.

A stream that found no node is tried again when, and only when, the nodes that may receive replicas
or their capacity have changed; a story counts the attempts.
"""

from placement.policy import Policy
from placement.repair import RepairPlanner
from placement.state import ClusterState
from placement.topology import Topology


class RetryGate:
    """Collects the nodes that have changed since waiting streams were tried last."""

    def __init__(self, state: ClusterState, repair: RepairPlanner) -> None:
        self._state, self._repair = state, repair
        self._changed: set[int] = set()
        self._moved = False

    def note_change(self, node: int, moved: bool) -> None:
        """Note a node that placement may see in another way than before.

        It may receive replicas now or no more, or its domains count now or no more; `moved`: its
        location, tags or size are others.
        """
        self._repair.retry_unfixable()
        self._changed.add(node)
        self._moved |= moved

    def note_freed_node(self, node: int) -> None:
        """Note that a replica has left a node that lives."""
        self._repair.retry_unfixable()
        topology = self._state.topology
        if topology.capacity[node] >= 0 or topology.attributes[node].capacities:
            self._changed.add(node)

    def may_help(self, policy: Policy) -> bool:
        """Return whether a stream of this policy may find a node that it did not find before."""
        topology = self._state.topology
        return self._moved or any(_is_admitted(policy, topology, node) for node in self._changed)

    def reset(self) -> None:
        """Forget what has changed: every waiting stream has been tried."""
        self._changed.clear()
        self._moved = False

    def __bool__(self) -> bool:
        return bool(self._changed)


def _is_admitted(policy: Policy, topology: Topology, node: int) -> bool:
    """Return whether the policy admits the node."""
    return policy.nodes.everything or policy.nodes.passes(topology, node)
