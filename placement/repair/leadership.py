"""Chooses the next leader of a shard whose leader is dead, or may not or should not lead.

The issuer changes the list by it before it copies anything; the queue keeps a shard that wants
another leader due in every batch.
"""

from placement.diagnosis import live_slots
from placement.model import RepairMode
from placement.repair.needs import RepairScope
from placement.state import ClusterState


def next_leader(state: ClusterState, scope: RepairScope, shard: int) -> int | None:
    """Return the slot of the replica that has to lead instead of the first one, if there is one.

    The first one is dead, or may not or should not lead. A copy under way never leads.
    """
    nodes, topology = state.current_replicas(shard), state.topology
    live = live_slots(nodes, topology)
    if not live:
        return None
    stream = state.streams.of_shard(shard)
    aside = scope.traits(stream).role_copies
    plain = [slot for slot in live if slot < stream.copies - aside] or live
    able = [slot for slot in plain if topology.can_lead[nodes[slot]]] or plain
    up = [slot for slot in able if topology.eligible[nodes[slot]]] or able
    if live[0] != 0:
        return up[0]
    return _better_leader(state, scope, shard, nodes, up)


def _better_leader(
    state: ClusterState, scope: RepairScope, shard: int, nodes: list[int], able: list[int]
) -> int | None:
    """Find a leader instead of a live one that may not lead, or should not.

    Others should rather lead where the policy prefers their place. Only among nodes that are up,
    and never while a move is under way.
    """
    topology, stream = state.topology, state.streams.of_shard(shard)
    if shard in state.ledger.by_shard or stream.spec.repair == RepairMode.DEAD_ONLY:
        return None
    able = [slot for slot in able if topology.eligible[nodes[slot]]]
    places = scope.traits(stream).leader_preferences
    if not places and topology.can_lead[nodes[0]]:
        return None

    def rank(slot: int) -> tuple[object, ...]:
        may = bool(topology.can_lead[nodes[slot]])
        return (not may, *(int(rule.leader_rank(topology)[nodes[slot]]) for rule in places))

    best = min(able, key=rank, default=0)
    return best if rank(best) < rank(0) else None
