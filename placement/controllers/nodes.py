"""Carries out events of nodes: their condition and place, and the end of those that leave."""

from collections.abc import Sequence
from dataclasses import replace

from placement.controllers.holds import HoldController
from placement.controllers.moves import MoveController
from placement.controllers.retry_gate import RetryGate
from placement.model import (
    DEPTH_MAX,
    AdministrativeState,
    AlertKind,
    Code,
    FlapHistory,
    Guard,
    Liveness,
    Lives,
    Location,
    LocationResolved,
    NodeAttributes,
    NodeChanged,
    NodeView,
    Reason,
    Reporting,
    parse_location,
)
from placement.nodes import (
    AdministrativeOrders,
    Admission,
    LocationAuthority,
    LocationDecision,
    Relocations,
)
from placement.repair import RepairPlanner
from placement.state import ClusterState
from placement.topology import Scope, Topology


class NodeController:
    """Keeps the topology, and has looked at whatever a change of it touches."""

    def __init__(
        self,
        state: ClusterState,
        repair: RepairPlanner,
        retry_gate: RetryGate,
        moves: MoveController,
        holds: HoldController,
        orders: AdministrativeOrders,
    ) -> None:
        self._state, self._repair = state, repair
        self._retry_gate, self._moves, self._holds = retry_gate, moves, holds
        self._orders = orders
        self._leaving: set[str] = set()
        self._admission = Admission(state, self._forget)
        self._authority = LocationAuthority(state)
        self._relocations = Relocations(
            state, self._admission, self._move, self._administrative_state
        )

    def begin(self) -> None:
        """A batch begins: indexes of nodes that are gone and that nothing names are free."""
        self._admission.begin()
        state = self._state
        for node in sorted(state.topology.forgotten):
            if not state.table.load(node + 1)[node] and not state.ledger.refers_to(node):
                state.topology.release(node)

    def resume(self) -> None:
        """Go on where the nodes of a restored state say that things stand."""
        views = self._state.nodes.values()
        gone = (view for view in views if view.liveness is Liveness.UNREGISTERED)
        self._leaving.update(view.node_id for view in gone)
        self._relocations.resume()

    def apply_change(self, event: NodeChanged) -> Reason | None:
        """Record a node's new condition, or say why it is not taken in; a sign of life of one that
        is not known is counted."""
        return self._change(event, event.attributes is not None or event.location is not None)

    def _change(self, event: NodeChanged, placed: bool) -> Reason | None:
        """`placed`: where the node stands may have changed with it."""
        state = self._state
        before = state.nodes.get(event.node_id)
        if before is None and event.attributes is None:
            if event.location is not None:
                message = f"{event.node_id}: it has not registered since it was forgotten"
                return Reason(Code.NODE_UNKNOWN, message)
            state.publisher.count("unknown_node")
            return None
        decision, source = self._decide_location(event, before, placed)
        if before is None:
            place = parse_location(decision.attributes.location)
            assert isinstance(place, Location)
            doubtful = None if decision.quarantine is None else self._relocations.waiting
            reason = self._admission.admit(place, doubtful)
            if reason is not None:
                return reason
        self._relocations.record(event.node_id, decision)
        ordered = event.administrative
        if ordered is None:
            ordered = self._administrative_state(event.node_id, decision.attributes)
        flaps = _flaps_after(event, before)
        changed = before is None or before.liveness is not event.liveness
        view = NodeView(
            node_id=event.node_id,
            incarnation=event.incarnation,
            sequence=event.sequence,
            body_hash=event.body_hash or (before.body_hash if before else ""),
            revision=before.revision if before else 0,
            attributes=decision.attributes,
            liveness=event.liveness,
            since=event.at if changed or before is None else before.since,
            administrative=ordered,
            guard=_guard_after(event, before),
            transitions=flaps.transitions,
            hold_down=flaps.hold,
            reporting=event.reporting or (before.reporting if before else Reporting()),
            claimed=decision.claimed,
            pending=decision.pending,
            quarantine=decision.quarantine,
            source=source,
            lives=event.lives or (before.lives if before else Lives()),
        )
        self._alert_on_conflict(before, view)
        self._authority.alert_on_difference(before, view)
        if flaps.held and (before is None or not _flaps(before).held):
            self._alert_on_hold_down(event.node_id, flaps)
        self._enter(view)
        return None

    def apply_location(self, event: LocationResolved) -> Reason | None:
        """Take note of what the authority says, and let it count for a node that is there."""
        reason = self._authority.record_location(event)
        view = self._state.nodes.get(event.node_id)
        if reason is not None or view is None or not self._authority.is_source(event):
            return reason
        life = (view.node_id, view.incarnation, view.sequence)
        return self._change(NodeChanged(event.at, *life, view.liveness), True)

    def _decide_location(
        self, event: NodeChanged, before: NodeView | None, placed: bool
    ) -> tuple[LocationDecision, str]:
        """Where the node stands after the event, and who says so."""
        if before is not None and not placed:
            same = LocationDecision(
                before.attributes, before.claimed, before.pending, before.quarantine
            )
            return same, before.source
        located = self._authority.locate(event, before, _attributes_after(event, before))
        if located.doubt is not None:
            doubt = LocationDecision(located.attributes, located.claim, None, located.doubt)
            return doubt, located.source
        decision = self._relocations.decide_location(event.node_id, before, located.attributes)
        if not self._authority.claims_count:
            decision = replace(decision, claimed=located.claim)
        return decision, located.source

    def apply_pending(self) -> bool:
        """What is pending takes effect if little comes of it; whether a node has moved."""
        return self._relocations.apply_pending()

    @property
    def relocations(self) -> Relocations:
        """The places that nodes newly claim."""
        return self._relocations

    def _enter(self, view: NodeView) -> None:
        """Take a node's view into topology and records, and look at what it touches."""
        state = self._state
        guard = view.guard
        if view.quarantine is not None:
            guard = Guard.QUARANTINED
        elif view.hold_down is not None and view.hold_down.active:
            guard = Guard.HELD_DOWN
        elif view.node_id in state.nodes and state.nodes[view.node_id].quarantine is not None:
            guard = Guard.NONE
        view = replace(view, guard=guard, revision=view.revision + 1)
        use = _placement_traits(state.topology, view.node_id)
        node = state.upsert_node(view)
        self._relocations.observe(view)
        self._holds.observe(node)
        self._repair.enqueue(state.table.shards_on(node))
        self._moves.review(node)
        now = _placement_traits(state.topology, view.node_id)
        if now != use:
            self._repair.reprioritize_waiting()
            self._retry_gate.note_change(
                node, use is not None and now is not None and now[0] != use[0]
            )
        if view.liveness is Liveness.UNREGISTERED:
            self._leaving.add(view.node_id)

    def forget(self, name: str) -> None:
        """Drop a node that holds nothing, because an operator says that it is gone for good."""
        self._forget(name)

    def release(self, name: str) -> None:
        """End the hold-down of a node that has flapped."""
        view = self._state.nodes[name]
        flaps = _flaps(view)
        self.apply_change(
            NodeChanged(
                self._state.now,
                view.node_id,
                view.incarnation,
                view.sequence,
                view.liveness,
                guard=Guard.NONE,
                flaps=flaps.released() if flaps.held else None,
            )
        )

    def _forget(self, name: str) -> None:
        """Drop a node that holds nothing."""
        state = self._state
        node = state.topology.index[name]
        state.topology.set_condition(
            node, Liveness.UNREGISTERED, state.topology.administrative[node], Guard.NONE
        )
        self._holds.observe(node)
        self._relocations.observe(None, name)
        self._authority.forget(name)
        state.forget_node(name)

    def _move(self, view: NodeView) -> None:
        """A place that was pending takes effect."""
        ordered = self._administrative_state(view.node_id, view.attributes)
        self._enter(replace(view, administrative=ordered))

    def _administrative_state(self, node_id: str, now: NodeAttributes) -> AdministrativeState:
        """What operators have ordered for the node where it now stands; a place that it claims
        and that is pending is none."""
        before = self._state.nodes.get(node_id)
        standing = before.administrative if before else AdministrativeState.NONE
        was = before.attributes.location if before else None
        return self._orders.state_after_relocation(node_id, was, now.location, standing)

    def _alert_on_conflict(self, before: NodeView | None, view: NodeView) -> None:
        """Tell people, once, of a second process that uses a node's id."""
        refused = view.lives.refused
        known = before.lives.refused if before is not None else None
        if refused is None or (known is not None and known.since == refused.since):
            return
        detail = {"holder": view.incarnation, "refused": refused.incarnation}
        self._state.publisher.alert(
            AlertKind.INCARNATION_CONFLICT, view.node_id, refused.reason, detail
        )

    def _alert_on_hold_down(self, node_id: str, flaps: FlapHistory) -> None:
        hold = flaps.hold
        assert hold is not None
        seconds = (hold.until - hold.since) // 1000
        turns = len(flaps.transitions)
        message = f"{node_id} came and went {turns} times, it receives nothing for {seconds} s"
        detail = {"since": hold.since, "until": hold.until}
        self._state.publisher.alert(
            AlertKind.HELD_DOWN, node_id, Reason(Code.NODE_FLAPPING, message), detail
        )

    def scopes(self, changed: Sequence[NodeChanged]) -> tuple[Scope, ...]:
        """What domains may come or go with these events: of every level, and of the nodes' tags."""
        if not changed:
            return ()
        known = [self._state.nodes.get(event.node_id) for event in changed]
        tags = [view.attributes.tags for view in known if view is not None]
        tags += [event.attributes.tags for event in changed if event.attributes is not None]
        tags += [event.tags for event in changed if event.tags is not None]
        keys = sorted({key for each in tags for key, _ in each})
        return (*(Scope(depth=depth) for depth in range(1, DEPTH_MAX + 1)), *map(_tag_scope, keys))

    def retire(self) -> None:
        """Drop unregistered nodes that hold nothing any more."""
        state = self._state
        for name in sorted(self._leaving):
            node = state.topology.index[name]
            if state.topology.liveness[node] is not Liveness.UNREGISTERED:
                self._leaving.discard(name)
            elif not state.table.load(node + 1)[node] and not state.ledger.moves_of_node(node):
                self._leaving.discard(name)
                self._forget(name)


def _flaps(before: NodeView | None) -> FlapHistory:
    return FlapHistory() if before is None else FlapHistory(before.transitions, before.hold_down)


def _flaps_after(event: NodeChanged, before: NodeView | None) -> FlapHistory:
    """The node's flaps after the event. The liveness table does not hear of a hold-down that an
    operator has ended: as long as it tells of the same one, that stays ended."""
    known = _flaps(before)
    reported = event.flaps
    if reported is None:
        return known
    if (
        reported.hold is None
        or known.hold is None
        or known.held
        or reported.hold.since != known.hold.since
    ):
        return reported
    return reported.released()


def _guard_after(event: NodeChanged, before: NodeView | None) -> Guard:
    """What the event itself says of trust: a word of it, or that the node flaps no more."""
    if event.guard is not None:
        return event.guard
    if before is None or (event.flaps is not None and before.guard is Guard.HELD_DOWN):
        return Guard.NONE
    return before.guard


def _placement_traits(topology: Topology, node_id: str) -> tuple[object, ...] | None:
    """What placement asks of a node: its attributes, and for what it counts."""
    node = topology.index.get(node_id)
    if node is None:
        return None
    counts = (topology.eligible, topology.counts_for_rules, topology.fenced)
    attributes = replace(topology.attributes[node], host=None)
    return attributes, topology.is_dead(node), *(bool(each[node]) for each in counts)


def _tag_scope(key: str) -> Scope:
    return Scope(tag=key)


def _attributes_after(event: NodeChanged, before: NodeView | None) -> NodeAttributes:
    """Attributes after the event: a registration's own, else the known ones, relocated if told."""
    if event.attributes is not None:
        return event.attributes
    assert before is not None
    attributes = before.attributes
    if event.location is not None:
        attributes = replace(attributes, location=event.location)
    if event.tags is not None:
        attributes = replace(attributes, tags=event.tags)
    return attributes
