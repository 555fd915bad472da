"""Says who gives a copy and which limit forbids a move now, and makes the record of a move."""

from collections import Counter
from collections.abc import Sequence

from placement.assignments import EMPTY
from placement.diagnosis import live_slots
from placement.hashing import stable_id
from placement.model import Code, Move, MoveState, Reason
from placement.repair.actions import RepairAction
from placement.state import ClusterState
from placement.topology import Scope, Topology
from placement.wording import counted

_TOP = Scope(depth=1)

# Two domains between which replicas are copied, None for copies within one.
DomainPair = tuple[int, int] | None


def copy_source(state: ClusterState, nodes: Sequence[int], target: int) -> int:
    """The live replica to copy from: one that limits allow, nearest to the target, then least busy;
    EMPTY if none."""
    if target == EMPTY:
        return EMPTY
    topology = state.topology
    live = [nodes[slot] for slot in live_slots(nodes, topology)]
    if len(live) < 2:
        return live[0] if live else EMPTY
    most = state.configuration.limits.max_copies_from_node
    place, copied, rank = topology.locations, state.ledger.copied, topology.order()
    to, sends = place[target], copied.get
    ranked = [
        (sends(n, 0) >= most, -place[n].common_depth(to), sends(n, 0), int(rank[n]), n)
        for n in live
    ]
    return min(ranked)[-1]


def is_busy(state: ClusterState, node: int) -> bool:
    """Whether the node receives as many replicas as limits allow."""
    return state.ledger.incoming[node] >= state.configuration.limits.max_in_per_node


def gives_all(state: ClusterState, node: int) -> bool:
    """Whether as many replicas are on their way from the node, which lives, as limits allow."""
    if node == EMPTY or state.topology.is_dead(node):
        return False
    return state.ledger.outgoing[node] >= state.configuration.limits.max_out_per_node


def _gives_all(state: ClusterState, node: int) -> Reason:
    """Why no other replica may leave a node. `seen` names the node: its shards wait for it."""
    node_id, most = state.topology.ids[node], state.configuration.limits.max_out_per_node
    message = (
        f"{node_id} has {counted(most, 'move')} away from it already, as many as a node may have"
    )
    return Reason(Code.LIMIT_REACHED, message, 1, 0, "node", (node_id,))


def domain_pair(topology: Topology, source: int, target: int) -> DomainPair:
    """The domains of the top level between which a replica is copied, None within one."""
    if EMPTY in (source, target):
        return None
    domains = topology.domain_of(_TOP)
    ends = sorted((int(domains[source]), int(domains[target])))
    return None if ends[0] == ends[1] else (ends[0], ends[1])


def open_pairs(state: ClusterState) -> Counter[DomainPair]:
    """Open moves between each two domains of the top level."""
    opened = (
        domain_pair(state.topology, o.source, o.added) for o in state.ledger.by_shard.values()
    )
    return Counter(each for each in opened if each is not None)


def limit_exceeded(
    state: ClusterState, removed: int, target: int, source: int, busy: Counter[DomainPair] | None
) -> Reason | None:
    """Which limit of a node, or between two domains (`busy`: open moves, where these are limited),
    the move would exceed."""
    limits, ids, ledger = state.configuration.limits, state.topology.ids, state.ledger
    incoming, copied = ledger.incoming[target], ledger.copied[source]
    if target != EMPTY and incoming >= limits.max_in_per_node:
        message = f"{ids[target]} already receives {counted(incoming, 'replica')}"
        return Reason(Code.LIMIT_REACHED, message, 1, limits.max_in_per_node - incoming)
    if target != EMPTY and gives_all(state, removed):
        return _gives_all(state, removed)
    if source != EMPTY and copied >= limits.max_copies_from_node:
        message = f"{ids[source]} already sends {counted(copied, 'replica')}"
        return Reason(Code.LIMIT_REACHED, message, 1, limits.max_copies_from_node - copied)
    pair = limits.max_per_domain_pair
    crossing = None if busy is None or pair is None else domain_pair(state.topology, source, target)
    if crossing is not None and busy is not None and pair is not None and busy[crossing] >= pair:
        names = " and ".join(state.topology.domain_names(_TOP, crossing))
        copied_now = counted(busy[crossing], "replica is", "replicas are")
        message = f"{copied_now} copied between {names} already"
        return Reason(Code.LIMIT_REACHED, message, 1, pair - busy[crossing])
    most = limits.max_touching_per_node
    for node in () if most is None else (removed, target):
        count = state.ledger.incoming[node] + state.ledger.leaving[node]
        if (
            node != EMPTY
            and most is not None
            and count >= most
            and not state.topology.is_dead(node)
        ):
            return Reason(
                Code.LIMIT_REACHED, f"{ids[node]} has {counted(count, 'move')} already", 1, 0
            )
    return None


def make_move(
    state: ClusterState,
    shard: int,
    nodes: Sequence[int],
    action: RepairAction,
    target: int,
    source: int,
    before: Move | None,
) -> Move:
    """The move for a want; `before` is the one that it supersedes."""
    ids, (name, number) = state.topology.ids, state.streams.key(shard)
    remove = ids[nodes[action.slot]] if nodes[action.slot] != EMPTY else None
    add = ids[target] if target != EMPTY else None
    epoch = state.publisher.next_epoch(shard)
    parts = (name, number, action.slot, remove or "", add or "", epoch)
    return Move(
        move_id=stable_id(state.configuration.cell, *parts),
        kind=action.kind,
        stream=name,
        shard=number,
        slot=action.slot,
        remove=remove,
        add=add,
        expected_epoch=epoch,
        state=MoveState.ISSUED,
        cause=action.cause,
        reason=action.reason,
        deadline=state.now + state.configuration.deadline_ms,
        issued_at=state.now,
        source=ids[source] if source != EMPTY else None,
        supersedes=before.move_id if before else None,
        rate_bytes_per_second=state.configuration.rate_bytes_per_second,
    )


def reissue_move(state: ClusterState, shard: int, before: Move, slot: int, source: int) -> Move:
    """A move of the same nodes at the shard's next epoch; its replica may have changed slots."""
    epoch = state.publisher.next_epoch(shard)
    parts = (before.stream, before.shard, slot, before.remove or "", before.add or "", epoch)
    return before._replace(
        move_id=stable_id(state.configuration.cell, *parts),
        slot=slot,
        expected_epoch=epoch,
        state=MoveState.ISSUED,
        deadline=state.now + state.configuration.deadline_ms,
        issued_at=state.now,
        ended_at=None,
        source=state.topology.ids[source] if source != EMPTY else None,
        supersedes=before.move_id,
    )
