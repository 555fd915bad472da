"""Previews a request: the shards it touches, what forbids it, and the hash that consent names.

The command's dry run and the stream ask the same function: a destructive request is carried out
only with the hash of its impact at that time. The hash covers the nodes of the target,
their shards and the specs of these, and nothing else of the fleet.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from placement.controllers.holds import FLEET, HoldController
from placement.controllers.loads import LoadController
from placement.controllers.rebalance import RebalanceController
from placement.diagnosis import (
    AffectedShard,
    draining_nodes,
    exposed_shards,
    exposure_reason,
    nodes_in_maintenance,
)
from placement.hashing import stable_id
from placement.model import (
    Action,
    Code,
    Guard,
    Liveness,
    MoveKind,
    OperatorAsked,
    Reason,
    RepairMode,
    StreamSpec,
)
from placement.nodes import AdministrativeOrders, Relocations, why_nothing_pending
from placement.planning import ShardState, Touched, compute_impact
from placement.state import ClusterState
from placement.wording import format_count

# These take replicas off nodes, or let repair take up what a hold has kept from it.
_DESTRUCTIVE = (Action.DRAIN, Action.OVERRIDE_HOLD, Action.APPROVE_RELOCATION)
# So many copies are harmless whatever was meant: half of what limits allow at once as shipped.
_COPIES_UNSEEN_MAX = 100
_ENDS = {
    Action.UNDRAIN: (Action.DRAIN, Action.MAINTENANCE),
    Action.UNCORDON: (Action.CORDON,),
}
# Requests for one node, not for a domain.
_OF_ONE_NODE = (Action.FORGET, Action.RELEASE)
_STANDS = (Action.DRAIN, Action.MAINTENANCE, Action.CORDON)


@dataclass(frozen=True, slots=True)
class RelocationSummary:
    """Counts the nodes that would stand in `location` instead of `was`.

    Both are equal where only tags differ. `meant`: the known location of which the new one is
    probably a misspelling.
    """

    was: str
    location: str
    meant: str | None
    nodes: int

    def __str__(self) -> str:
        count = format_count(self.nodes, "node")
        if self.meant is not None:
            return f"{self.location}: {count}; was {self.meant} meant?"
        what = "other tags" if self.was == self.location else self.location or "(none)"
        return f"{self.was or '(none)'} -> {what}: {count}"


@dataclass(frozen=True, slots=True)
class Preview:
    """Holds the impact of a request: nodes by index, shards by stream and number.

    - `refusal`: why the request is refused, even with the right hash.
    - `hash`: to be sent with the request where it is `destructive`.
    - `relocated`: the locations that an approval would put in force.
    """

    nodes: tuple[int, ...] = ()
    shards: tuple[tuple[str, int], ...] = ()
    touched: Touched | None = None
    hash: str = ""
    destructive: bool = False
    refusal: Reason | None = None
    relocated: tuple[RelocationSummary, ...] = ()

    def refusal_for(self, expected: str | None) -> Reason | None:
        """Return why the request is refused to an operator who has seen the impact of hash
        `expected`."""
        if self.refusal is not None:
            return self.refusal
        if expected is None and self.destructive:
            how = "look at it with a dry run, and repeat the request with its hash"
            message = f"the impact ({self}) has not been seen: {how}"
            return Reason(Code.IMPACT_UNSEEN, message)
        if expected is not None and expected != self.hash:
            message = (
                f"the impact has changed since it was seen: it is now {self}, hash {self.hash}"
            )
            return Reason(Code.IMPACT_CHANGED, message)
        return None

    def __str__(self) -> str:
        streams = len({stream for stream, _ in self.shards})
        parts = ((len(self.nodes), "node"), (len(self.shards), "shard"), (streams, "stream"))
        return ", ".join(format_count(count, word) for count, word in parts)


def preview(
    state: ClusterState,
    orders: AdministrativeOrders,
    holds: HoldController,
    rebalancing: RebalanceController,
    relocations: Relocations,
    loads: LoadController,
    asked: OperatorAsked,
) -> Preview:
    """Compute the impact of a request, and what forbids it, without carrying it out."""
    if asked.action is Action.CONFIRM_LOAD:
        return Preview(refusal=loads.why_not_suspected(asked.target))
    if asked.action is Action.REBALANCE:
        return _preview_rebalance(state, rebalancing, asked)
    why_not = _WITHOUT_IMPACT.get(asked.action)
    if why_not is not None:
        return Preview(refusal=why_not(state, asked.target))
    if asked.action is Action.APPROVE_RELOCATION:
        nodes = orders.nodes(asked.target)
        if nodes is None:
            return Preview(refusal=_why_unknown(asked.target))
        return _preview_relocation(state, relocations, asked, nodes)
    if asked.action is Action.OVERRIDE_HOLD:
        nodes = holds.nodes(asked.target)
        if nodes is None:
            known = ", ".join(holds.active_names()) or "none"
            message = f"there is no repair hold '{asked.target}'; holds in force: {known}"
            return Preview(refusal=Reason(Code.NOTHING_TO_DO, message))
    else:
        nodes = _find_nodes(orders, asked)
        if nodes is None:
            return Preview(refusal=_why_unknown(asked.target))
    if asked.action in _OF_ONE_NODE:
        refusal = _why_not_one_node(state, asked)
    else:
        refusal = _why_contradicted(orders, asked) or _why_unsafe(state, asked, nodes)
    return _preview_impact(state, asked, nodes, refusal)


def _find_nodes(orders: AdministrativeOrders, asked: OperatorAsked) -> list[int] | None:
    """List the nodes of a request's target; None for one that is not known.

    An order stands when all its nodes have left: whoever ends it need not wait for one.
    """
    nodes = orders.nodes(asked.target)
    ends_order = asked.action in _ENDS and asked.target in orders.by_target
    return [] if nodes is None and ends_order else nodes


def _preview_impact(
    state: ClusterState, asked: OperatorAsked, nodes: list[int], refusal: Reason | None
) -> Preview:
    """Preview a request about nodes: the shards that they hold, with the hash of all of it."""
    affected = [*affected_shards(state, nodes)]
    shards = tuple((each.spec.stream, each.shard) for each in affected)
    found = compute_impact(
        (),
        state.topology,
        lambda name: _spec(state, name),
        lambda name, number: _shard(state, name, number),
        nodes=[state.topology.ids[node] for node in nodes],
        shards=shards,
    )
    return Preview(
        tuple(nodes),
        shards,
        found.touched,
        stable_id(asked.action, asked.target, found.hash),
        asked.action in _DESTRUCTIVE,
        refusal,
    )


def _spec(state: ClusterState, name: str) -> StreamSpec:
    return state.streams[name].spec


def _shard(state: ClusterState, name: str, number: int) -> ShardState:
    shard, ids = state.streams[name].shards[number], state.topology.ids
    opened = state.ledger.by_shard.get(shard)
    move = opened.move if opened else None
    under_way = None if move is None else f"{move.kind} {move.remove or ''} {move.add or ''}"
    replicas = tuple(ids[node] for node in state.current_replicas(shard) if node >= 0)
    return ShardState(replicas, under_way=under_way)


def _preview_rebalance(
    state: ClusterState, rebalancing: RebalanceController, asked: OperatorAsked
) -> Preview:
    """Plan the rebalance as it would be made now; its hash is that of its moves."""
    if asked.target != FLEET:
        message = f"a rebalance is of the whole fleet: the target must be '{FLEET}'"
        return Preview(refusal=Reason(Code.REQUEST_MALFORMED, message))
    proposal, ids = rebalancing.plan(), state.topology.ids
    moves = proposal.plan.moves
    if not moves:
        return Preview(refusal=Reason(Code.NOTHING_TO_DO, proposal.why_nothing))
    keys = [state.streams.key(move.shard) for move in moves]
    move_lines = [
        f"{stream}/{number} {move.kind} {ids[move.remove]} {ids[move.add]}"
        for (stream, number), move in zip(keys, moves, strict=True)
    ]
    copies = sum(move.kind is not MoveKind.LEADER for move in moves)
    nodes = {node for move in moves for node in (move.remove, move.add)}
    rank = state.topology.order()
    return Preview(
        tuple(sorted(nodes, key=lambda node: int(rank[node]))),
        tuple(dict.fromkeys(keys)),
        None,
        stable_id(asked.action, *move_lines),
        copies > _COPIES_UNSEEN_MAX,
    )


def _preview_relocation(
    state: ClusterState, relocations: Relocations, asked: OperatorAsked, nodes: list[int]
) -> Preview:
    """Preview the relocations that wait in the target.

    The relocation of one node waits with the hash of its impact; whoever applies it checks that the
    hash is still right. Those of a domain are computed together, as they are now.
    """
    topology = state.topology
    names = relocations.pending_in(topology.ids[node] for node in nodes)
    if not names:
        return Preview(refusal=why_nothing_pending(asked.target))
    places = Counter[tuple[str, str, str | None]]()
    for name in names:
        pending = state.nodes[name].pending
        assert pending is not None
        places[state.nodes[name].attributes.location, pending.location, pending.meant] += 1
    if asked.target.startswith("/"):
        agreed = relocations.forecast(names).impact.hash
    else:
        published = state.nodes[asked.target].pending
        assert published is not None
        agreed = asked.expected_hash or published.impact_hash
    concerned = [topology.index[name] for name in names]
    affected = tuple((each.spec.stream, each.shard) for each in affected_shards(state, concerned))
    relocated = tuple(RelocationSummary(*place, count) for place, count in places.items())
    return Preview(tuple(concerned), affected, None, agreed, True, relocated=relocated)


def _why_unknown(target: str) -> Reason:
    """Return why the target is unknown: no such node, or no node in such a domain."""
    if target.startswith("/"):
        return Reason(Code.DOMAIN_UNKNOWN, f"no node stands in '{target}'")
    return Reason(Code.NODE_UNKNOWN, f"node '{target}' is not known; a domain begins with '/'")


def _why_other_cell(state: ClusterState, target: str) -> Reason | None:
    """Return why the handover is not for this cell, or None."""
    cell = state.configuration.cell
    if target == cell:
        return None
    return Reason(Code.REQUEST_MALFORMED, f"this is cell '{cell}', the request names '{target}'")


def _why_contradicted(orders: AdministrativeOrders, asked: OperatorAsked) -> Reason | None:
    """Return what the orders in force have against the request, or None."""
    standing = orders.by_target.get(asked.target)
    if asked.action in _STANDS:
        if asked.action is Action.MAINTENANCE and not asked.ttl_ms:
            return Reason(
                Code.REQUEST_MALFORMED, "maintenance needs ttl_seconds, after which it ends"
            )
        if standing is not None and standing.action is not asked.action:
            message = f"{asked.target} is already under '{standing.action}': end that first"
            return Reason(Code.REQUEST_CONTRADICTED, message)
    ends = _ENDS.get(asked.action)
    if ends is not None and (standing is None or standing.action not in ends):
        around = orders.by_target.values()
        over = [each for each in around if asked.target.startswith(f"{each.target}/")]
        what = f"; '{over[0].action}' is in force for {over[0].target}" if over else ""
        message = f"no {' or '.join(ends)} is in force for {asked.target}{what}"
        return Reason(Code.NOTHING_TO_DO, message)
    return None


def _why_unsafe(state: ClusterState, asked: OperatorAsked, nodes: Collection[int]) -> Reason | None:
    """Return the refusal that names the shards that would lose their quorum or their last copy."""
    topology = state.topology
    if asked.action is Action.MAINTENANCE:
        away = {*nodes, *nodes_in_maintenance(topology)}
        found = exposed_shards(topology, affected_shards(state, nodes), away)
        return exposure_reason(found, f"with {asked.target} in maintenance")
    if asked.action is Action.DRAIN:
        away = {*nodes, *draining_nodes(topology)}
        stuck = _stuck_shards(state, affected_shards(state, nodes), away)
        found = exposed_shards(topology, stuck, away)
        return exposure_reason(found, f"with {asked.target} drained and gone")
    return None


def _stuck_shards(
    state: ClusterState, affected: Iterable[AffectedShard], away: Collection[int]
) -> list[AffectedShard]:
    """List the shards whose copies have nowhere to go: their policy admits no other node that is
    left."""
    topology = state.topology
    open_to = topology.eligible.copy()
    open_to[[*away]] = False
    found = []
    for each in affected:
        admits = each.policy.nodes
        left = open_to if admits.everything else open_to & admits.mask(topology)
        taken = sum(bool(left[node]) for node in {*each.nodes} if node >= 0)
        if each.spec.repair == RepairMode.DEAD_ONLY or int(left.sum()) == taken:
            found.append(each)
    return found


def _why_not_one_node(state: ClusterState, asked: OperatorAsked) -> Reason | None:
    """Return why a node cannot be forgotten, or its hold-down not be ended."""
    if asked.target.startswith("/"):
        message = f"'{asked.target}' is a domain: name one node"
        return Reason(Code.REQUEST_MALFORMED, message)
    if asked.action is Action.RELEASE:
        return _why_not_held_down(state, asked.target)
    return _why_still_needed(state, asked.target)


def _why_not_held_down(state: ClusterState, name: str) -> Reason | None:
    """Return why there is no hold-down to end, or None."""
    view = state.nodes[name]
    flapping = view.hold_down is not None and view.hold_down.active
    if flapping or view.guard is Guard.HELD_DOWN:
        return None
    doubt = ""
    if view.quarantine is not None:
        doubt = (
            f"; it is quarantined ({view.quarantine.message}): correct its location or approve it"
        )
    return Reason(Code.NOTHING_TO_DO, f"node {name} is not held down{doubt}")


def _why_still_needed(state: ClusterState, name: str) -> Reason | None:
    """Return why a node cannot be forgotten yet, or None.

    Copies would be lost with it, or its next heartbeat would come from an unknown node.
    """
    topology = state.topology
    node = topology.index[name]
    replicas = int(state.table.load(topology.size)[node])
    if replicas:
        held = format_count(replicas, "replica")
        message = f"node {name} still holds {held}: drain it, or wait for repair"
        return Reason(Code.REQUEST_CONTRADICTED, message)
    moves = len(state.ledger.moves_of_node(node))
    if moves:
        message = (
            f"node {name} takes part in {format_count(moves, 'open move')}: wait until none is open"
        )
        return Reason(Code.REQUEST_CONTRADICTED, message)
    dead = topology.liveness[node] is Liveness.DEAD
    if dead or topology.is_draining(node):
        return None
    how = "drain it first, or stop it and wait until it is dead"
    message = f"node {name} is {topology.status(node)}: {how}"
    return Reason(Code.REQUEST_CONTRADICTED, message)


def _why_not_cancellable(state: ClusterState, move_id: str) -> Reason | None:
    """Return why a move cannot be cancelled, or None.

    Its replica stays on its source, which therefore has to be up.
    """
    move = state.ledger.known.get(move_id)
    if move is None or not move.state.is_open:
        message = f"no move '{move_id}' is open" + (f": its state is {move.state}" if move else "")
        return Reason(Code.NOTHING_TO_DO, message)
    node = None if move.remove is None else state.topology.index[move.remove]
    if node is not None and state.topology.liveness[node] != "up":
        status = state.topology.status(node)
        message = f"the replica would stay on node {move.remove}, which is {status}"
        return Reason(Code.REQUEST_CONTRADICTED, message)
    return None


# Requests that touch no shard, each with the function that says what forbids it.
_WITHOUT_IMPACT = {
    Action.CANCEL_MOVE: _why_not_cancellable,
    Action.HANDOVER: _why_other_cell,
}


def affected_shards(state: ClusterState, nodes: Collection[int]) -> Iterator[AffectedShard]:
    """List the shards with a whole copy on any of the nodes, given by index.

    The work is in proportion to these. A copy under way is none yet, one that is to go still is.
    """
    found = {shard for node in nodes for shard in state.table.shards_on(node)}
    found |= {shard for shard, each in state.ledger.by_shard.items() if each.removed in nodes}
    for shard in sorted(found, key=state.streams.key):
        stream = state.streams.of_shard(shard)
        assert stream.policy is not None
        number = state.table.number_of(shard)
        nodes, behind = state.current_replicas(shard), state.sync.nodes_of(shard)
        yield AffectedShard(stream.spec, stream.policy, number, nodes, behind)
