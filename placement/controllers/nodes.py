"""Carries out events of nodes: what is known of a node after each.

Whether a new node is admitted, where it stands and what operators have ordered for it is decided in
`placement.nodes`; `NodeRegistry` enters the result.
"""

from collections.abc import Sequence
from dataclasses import replace

from placement.controllers.node_registry import NodeRegistry
from placement.model import (
    DEPTH_MAX,
    AlertKind,
    Code,
    FlapHistory,
    Guard,
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
from placement.state import ClusterState
from placement.topology import Scope


class NodeController:
    """Makes of events of a node what is known of it."""

    def __init__(
        self,
        state: ClusterState,
        registry: NodeRegistry,
        admission: Admission,
        authority: LocationAuthority,
        relocations: Relocations,
        orders: AdministrativeOrders,
    ) -> None:
        self._state, self._registry, self._admission = state, registry, admission
        self._authority, self._relocations, self._orders = authority, relocations, orders

    def begin(self) -> None:
        """Begin a batch."""
        self._admission.begin()
        self._registry.release_indexes()

    def apply_change(self, event: NodeChanged) -> Reason | None:
        """Record a node's new condition, or return why the node is not admitted.

        A sign of life of a node that is not known is counted.
        """
        return self._change(event, event.attributes is not None or event.location is not None)

    def _change(self, event: NodeChanged, placed: bool) -> Reason | None:
        """Record what is known of a node after an event.

        `placed`: where the node stands may have changed with it.
        """
        state = self._state
        before = state.nodes.get(event.node_id)
        if before is None and event.attributes is None:
            if event.location is not None:
                message = f"node {event.node_id} has not registered since it was forgotten"
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
            ordered = self._orders.state_at(event.node_id, decision.attributes.location)
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
        if flaps.is_held_down and (before is None or not _flaps(before).is_held_down):
            self._alert_on_hold_down(event.node_id, flaps)
        self._registry.enter(view)
        return None

    def apply_location(self, event: LocationResolved) -> Reason | None:
        """Record a location that an authority resolved, and let it count for a known node."""
        reason = self._authority.record_location(event)
        view = self._state.nodes.get(event.node_id)
        if reason is not None or view is None or not self._authority.is_source(event):
            return reason
        life = (view.node_id, view.incarnation, view.sequence)
        return self._change(NodeChanged(event.at, *life, view.liveness), True)

    def _decide_location(
        self, event: NodeChanged, before: NodeView | None, placed: bool
    ) -> tuple[LocationDecision, str]:
        """Decide the node's location after the event, and whose word it rests on."""
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
        """Apply pending locations of little impact; returns whether a node has moved."""
        return self._relocations.apply_pending()

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
                flaps=flaps.with_release() if flaps.is_held_down else None,
            )
        )

    def _alert_on_conflict(self, before: NodeView | None, view: NodeView) -> None:
        """Alert operators once if a second process uses a node's id."""
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
        turned = f"node {node_id} went down or came back {turns} times"
        message = f"{turned}: it receives no new replicas for {seconds} s"
        detail = {"since": hold.since, "until": hold.until}
        self._state.publisher.alert(
            AlertKind.HELD_DOWN, node_id, Reason(Code.NODE_FLAPPING, message), detail
        )

    def scopes(self, changed: Sequence[NodeChanged]) -> tuple[Scope, ...]:
        """List the scopes whose domains may come or go with these events.

        They are those of every level, and of the tags that the nodes have or get.
        """
        if not changed:
            return ()
        known = [self._state.nodes.get(event.node_id) for event in changed]
        tags = [view.attributes.tags for view in known if view is not None]
        tags += [event.attributes.tags for event in changed if event.attributes is not None]
        tags += [event.tags for event in changed if event.tags is not None]
        keys = sorted({key for each in tags for key, _ in each})
        return (*(Scope(depth=depth) for depth in range(1, DEPTH_MAX + 1)), *map(_tag_scope, keys))


def _flaps(before: NodeView | None) -> FlapHistory:
    return FlapHistory() if before is None else FlapHistory(before.transitions, before.hold_down)


def _flaps_after(event: NodeChanged, before: NodeView | None) -> FlapHistory:
    """Compute the node's flaps after the event.

    The liveness table does not hear of a hold-down that an operator has ended: as long as the table
    reports the same hold-down, it stays ended.
    """
    known = _flaps(before)
    reported = event.flaps
    if reported is None:
        return known
    if (
        reported.hold is None
        or known.hold is None
        or known.is_held_down
        or reported.hold.since != known.hold.since
    ):
        return reported
    return reported.with_release()


def _guard_after(event: NodeChanged, before: NodeView | None) -> Guard:
    """Compute the guard that the event itself leads to.

    It is the event's own where it has one; a node that was held down and flaps no more has none.
    """
    if event.guard is not None:
        return event.guard
    if before is None or (event.flaps is not None and before.guard is Guard.HELD_DOWN):
        return Guard.NONE
    return before.guard


def _tag_scope(key: str) -> Scope:
    return Scope(tag=key)


def _attributes_after(event: NodeChanged, before: NodeView | None) -> NodeAttributes:
    """Compute the attributes after the event.

    They are a registration's own, else those that are known, with the location and tags that the
    event gives.
    """
    if event.attributes is not None:
        return event.attributes
    assert before is not None
    attributes = before.attributes
    if event.location is not None:
        attributes = replace(attributes, location=event.location)
    if event.tags is not None:
        attributes = replace(attributes, tags=event.tags)
    return attributes
