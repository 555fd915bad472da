"""Enters nodes into the state and drops them, and has looked at whatever that touches.

Everything that changes what is known of a node ends here: its own events, a location that an
operator agreed to, a place that is made for another node.
"""

from dataclasses import replace

from placement.controllers.holds import HoldController
from placement.controllers.moves import MoveController
from placement.controllers.retry_gate import RetryGate
from placement.model import Guard, Liveness, NodeView
from placement.nodes import LocationAuthority
from placement.repair import RepairPlanner
from placement.state import ClusterState
from placement.topology import Topology


class NodeRegistry:
    """Writes the views of nodes; forgets those that have left once they hold nothing."""

    def __init__(
        self,
        state: ClusterState,
        repair: RepairPlanner,
        retry_gate: RetryGate,
        moves: MoveController,
        holds: HoldController,
        authority: LocationAuthority,
    ) -> None:
        self._state, self._repair = state, repair
        self._retry_gate, self._moves, self._holds = retry_gate, moves, holds
        self._authority = authority
        # Nodes that have unregistered and are there until they hold nothing.
        self._leaving: set[str] = set()

    def resume(self) -> None:
        """Continue with the nodes of a restored state that are leaving."""
        views = self._state.nodes.values()
        gone = (view for view in views if view.liveness is Liveness.UNREGISTERED)
        self._leaving.update(view.node_id for view in gone)

    def release_indexes(self) -> None:
        """Free the indexes of nodes that are gone and have no references left."""
        state = self._state
        for node in sorted(state.topology.forgotten):
            if not state.table.load(node + 1)[node] and not state.ledger.refers_to(node):
                state.topology.release(node)

    def enter(self, view: NodeView) -> None:
        """Record a node's present state and derive its guard.

        Its shards are looked at, and its open moves reviewed; where placement may see another node
        in it, waiting streams and repairs are tried again.
        """
        state = self._state
        guard = view.guard
        if view.quarantine is not None:
            guard = Guard.QUARANTINED
        elif view.hold_down is not None and view.hold_down.active:
            guard = Guard.HELD_DOWN
        elif view.node_id in state.nodes and state.nodes[view.node_id].quarantine is not None:
            guard = Guard.NONE
        view = replace(view, guard=guard, revision=view.revision + 1)
        before = _placement_traits(state.topology, view.node_id)
        node = state.upsert_node(view)
        self._holds.observe(node)
        self._repair.enqueue(state.table.shards_on(node))
        self._moves.review(node)
        now = _placement_traits(state.topology, view.node_id)
        if now != before:
            moved = before is not None and now is not None and now[0] != before[0]
            self._repair.reprioritize_waiting()
            self._retry_gate.note_change(node, moved)
        if view.liveness is Liveness.UNREGISTERED:
            self._leaving.add(view.node_id)

    def forget(self, name: str) -> None:
        """Forget a node that holds nothing."""
        state = self._state
        node = state.topology.index[name]
        self._leaving.discard(name)
        state.topology.set_condition(
            node, Liveness.UNREGISTERED, state.topology.administrative[node], Guard.NONE
        )
        self._holds.observe(node)
        self._authority.forget(name)
        state.forget_node(name)

    def retire(self) -> None:
        """Forget the unregistered nodes that hold nothing any more."""
        state = self._state
        for name in sorted(self._leaving):
            node = state.topology.index[name]
            if state.topology.liveness[node] is not Liveness.UNREGISTERED:
                self._leaving.discard(name)
            elif not state.table.load(node + 1)[node] and not state.ledger.moves_of_node(node):
                self.forget(name)


def _placement_traits(topology: Topology, node_id: str) -> tuple[object, ...] | None:
    """Read what placement sees of a node: its attributes, and for what it counts."""
    node = topology.index.get(node_id)
    if node is None:
        return None
    counts = (topology.eligible, topology.counts_for_rules, topology.fenced)
    attributes = replace(topology.attributes[node], host=None)
    return attributes, topology.is_dead(node), *(bool(each[node]) for each in counts)
