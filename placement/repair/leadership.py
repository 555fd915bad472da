"""Chooses the next leader of a shard whose leader is dead, or may not or should not lead."""

from placement.diagnosis import live_slots
from placement.repair.actions import ActionFinder
from placement.rules import RuleSet
from placement.state import ClusterState


def next_leader(state: ClusterState, actions: ActionFinder, shard: int) -> int | None:
    """Slot of the replica that has to lead instead of a dead node, or of one that may not or
    should not lead, if there is one. A copy under way never leads."""
    nodes, topology = state.current_replicas(shard), state.topology
    live = live_slots(nodes, topology)
    if not live:
        return None
    stream = state.streams.of_shard(shard)
    rules = actions.rules(stream)
    aside = RuleSet(rules).role_copies
    plain = [slot for slot in live if slot < stream.copies - aside] or live
    able = [slot for slot in plain if topology.can_lead[nodes[slot]]] or plain
    up = [slot for slot in able if topology.eligible[nodes[slot]]] or able
    if live[0] != 0:
        return up[0]
    return _better_leader(state, actions, shard, nodes, up)


def _better_leader(
    state: ClusterState, actions: ActionFinder, shard: int, nodes: list[int], able: list[int]
) -> int | None:
    """Who leads instead of a live leader that may not, or that stands where others should
    rather lead; only among nodes that are up, and never while a move is under way."""
    topology, stream = state.topology, state.streams.of_shard(shard)
    if shard in state.ledger.by_shard or actions.repairs_dead_only(stream):
        return None
    able = [slot for slot in able if topology.eligible[nodes[slot]]]
    places = RuleSet(actions.rules(stream)).leader_preferences

    def rank(slot: int) -> tuple[object, ...]:
        may = bool(topology.can_lead[nodes[slot]])
        return (not may, *(int(rule.leader_rank(topology)[nodes[slot]]) for rule in places))

    best = min(able, key=rank, default=0)
    return best if rank(best) < rank(0) else None
