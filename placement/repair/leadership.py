"""Chooses the next leader of a shard whose leader is dead, or may not or should not lead.

The issuer changes the list by it before it copies anything; the queue keeps a shard that wants
another leader due in every batch. The rules say who may lead (`RuleSet.best_leaders`); this module
adds which of them live. `rank_successors` is the order after a death, for one shard here and for
columns of them in the triage.
"""

from typing import Any

from placement.diagnosis import live_slots
from placement.model import RepairMode
from placement.repair.needs import RepairScope
from placement.repair.shard_case import score
from placement.rules import Strength
from placement.state import ClusterState


def rank_successors(may_lead: Any, able: Any, up: Any) -> Any:
    """Rank live replicas as successors of a dead leader, higher is better; the first of equals.

    Only those that are in sync are ranked, as long as there are any.

    - `may_lead`: whether the slot is one that may lead, which weighs most.
    - `able`: whether the node may lead.
    - `up`: whether the node may receive replicas.

    Each is a truth value or a column of them.
    """
    return 4 * may_lead + 2 * able + up


def next_leader(state: ClusterState, scope: RepairScope, shard: int) -> int | None:
    """Return the slot of the replica that has to lead instead of the first one, if there is one.

    The first one is dead, or may not or should not lead. A copy under way never leads.
    """
    nodes, topology = state.current_replicas(shard), state.topology
    live = live_slots(nodes, topology)
    if not live:
        return None
    stream = state.streams.of_shard(shard)
    copies = stream.copies
    if scope.traits(stream).names_leaders:
        copies = scope.rule_set(stream).count_possible_leaders(copies)
    if live[0] == 0:
        found = _better_leader(state, scope, shard, nodes, [s for s in live if s < copies])
        if found is None and copies < len(live) == stream.copies:
            return _exchanged_leader(state, scope, shard, live[copies:])
        return found
    able, up, behind = topology.can_lead, topology.eligible, state.sync.nodes_of(shard)
    live = [slot for slot in live if nodes[slot] not in behind] or live
    ranks = {s: int(rank_successors(s < copies, able[nodes[s]], up[nodes[s]])) for s in live}
    best = max(ranks.values())
    first = [nodes[s] for s, rank in ranks.items() if rank == best]
    # Of equals the one that the policy prefers, so that the lead does not change again.
    return nodes.index(scope.rule_set(stream).best_leaders(first, able, topology)[0])


def _better_leader(
    state: ClusterState, scope: RepairScope, shard: int, nodes: list[int], slots: list[int]
) -> int | None:
    """Find a leader instead of a live one that may not lead, or should not, out of these slots.

    Others should rather lead where the policy prefers their place. Only among nodes that are up,
    and never while a move is under way.
    """
    topology, stream = state.topology, state.streams.of_shard(shard)
    behind = state.sync.nodes_of(shard)
    slots = [slot for slot in slots if nodes[slot] not in behind]
    if shard in state.ledger.by_shard or stream.spec.repair == RepairMode.DEAD_ONLY:
        return None
    if topology.can_lead[nodes[0]] and not scope.traits(stream).names_leaders:
        return None
    up = [nodes[0], *(nodes[slot] for slot in slots if topology.eligible[nodes[slot]])]
    best = scope.rule_set(stream).best_leaders(up, topology.can_lead, topology)
    return None if nodes[0] in best else nodes.index(best[0])


def _exchanged_leader(
    state: ClusterState, scope: RepairScope, shard: int, slots: list[int]
) -> int | None:
    """Find a leader among the copies with a role, in these slots, that the leader changes with.

    A copy with a role leads after all others were lost for a while. Once all are back, the rules
    are kept better with both in each other's slot, and nothing has to be copied for that.
    """
    topology, case = state.topology, scope.needs(shard).case
    if shard in state.ledger.by_shard or case.spec.repair == RepairMode.DEAD_ONLY:
        return None
    fit, behind = topology.can_lead & topology.eligible, state.sync.nodes_of(shard)
    able = [s for s in slots if fit[case.nodes[s]] and case.nodes[s] not in behind]
    if not able:
        return None
    exchanged = {slot: score(case.exchanging(0, slot), scope.judging) for slot in able}
    best = min(able, key=lambda slot: exchanged[slot].key)
    now = score(case, scope.judging)
    better = any(exchanged[best].is_better_than(now, strength) for strength in Strength)
    return best if better else None
