"""Relabels nodes with replicas in two phases.

A newly claimed location is pending until its impact is known and small enough, or approved by the
impact's hash.

ScyllaDB ended with immutable racks because changing one was almost certain to lose data or
availability (scylladb#23800). Here the old place stays in force, nothing moves, and what would
happen is published first. A place that is probably a typing error never takes effect by itself.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from placement.model import (
    AlertKind,
    Code,
    Location,
    NodeAttributes,
    NodeView,
    Pending,
    Reason,
    natural_key,
    parse_location,
)
from placement.nodes.admission import Admission
from placement.nodes.location_authority import CLAIM
from placement.nodes.location_checks import find_likely_meant, find_new_domain, find_tier_flaw
from placement.nodes.orders import AdministrativeOrders
from placement.nodes.relocation_forecast import RelocationForecaster, RelocationImpact
from placement.state import ClusterState
from placement.wording import format_count


@dataclass(frozen=True, slots=True)
class LocationDecision:
    """Location of a node after an event: in force, claimed, pending.

    And why the node is not trusted with replicas, if so. `fresh`: what is pending is new; `news`:
    what people should know (kind and subject of an alert, reason).
    """

    attributes: NodeAttributes
    claimed: str | None = None
    pending: Pending | None = None
    quarantine: Reason | None = None
    is_new: bool = False
    alert: tuple[AlertKind, str, Reason] | None = None


class Relocations:
    """Decides what becomes of the locations that nodes claim.

    `enter` takes a node's new view into the state.
    """

    def __init__(
        self,
        state: ClusterState,
        admission: Admission,
        orders: AdministrativeOrders,
        enter: Callable[[NodeView], None],
    ) -> None:
        self._state, self._admission, self._orders = state, admission, orders
        self._enter_view = enter
        self._forecaster = RelocationForecaster(state, orders)
        self._new_pending: dict[str, None] = {}
        self._moved = False

    @property
    def waiting(self) -> int:
        """Nodes whose place is in doubt or not agreed to."""
        return len(self._state.undecided_locations)

    def decide_location(
        self, node_id: str, before: NodeView | None, wanted: NodeAttributes
    ) -> LocationDecision:
        """Decide the location of a node that is to have these attributes."""
        place = parse_location(wanted.location)
        assert isinstance(place, Location), "what is malformed is refused before it gets here"
        flaw = self._find_tier_flaw(place)
        if before is None or not self._is_in_use(before.node_id):
            return self._decide_empty_node(node_id, before, wanted, place, flaw)
        old = before.attributes
        same = wanted.location == old.location and not self._policy_tags_changed(
            old.tags, wanted.tags
        )
        if same or (flaw is None and self._state.configuration.relocate_up_to is None):
            return LocationDecision(wanted)
        kept = replace(wanted, location=old.location, tags=old.tags)
        if flaw is not None:
            alert = None if before.claimed == wanted.location else _refused_alert(node_id, flaw)
            return LocationDecision(kept, wanted.location, alert=alert)
        pending = Pending(wanted.location, wanted.tags, "", self._find_likely_meant(place))
        known = before.pending
        if known is not None and replace(known, impact_hash="") == pending:
            return LocationDecision(kept, wanted.location, known)
        return LocationDecision(kept, wanted.location, pending, is_new=True)

    def record(self, node_id: str, decision: LocationDecision) -> None:
        """Record a decision on a registered node: publish its alert, and queue its impact."""
        if decision.is_new:
            self._new_pending[node_id] = None
        if decision.alert is not None:
            self._state.publisher.alert(*decision.alert)

    def apply_pending(self) -> bool:
        """Compute the impact of each new relocation, and apply those that are small enough.

        Some are small only together (two racks that swap names); those of nodes that hold nothing
        any more apply too. Returns whether a node has moved in this batch.
        """
        nodes = self._state.nodes
        is_new = [n for n in self._new_pending if n in nodes and nodes[n].pending is not None]
        self._new_pending.clear()
        is_new.sort(key=natural_key)
        plain = [name for name in is_new if not self._pending(name).meant]
        if len(plain) > 1 and self._is_within_limit(self._forecaster.impact_of(plain)):
            for name in plain:
                self._apply(name)
            is_new = [name for name in is_new if name not in plain]
        for name in is_new:
            found = self._forecaster.impact_of([name])
            if self._is_within_limit(found) and not self._pending(name).meant:
                self._apply(name)
            else:
                self._publish(name, found)
        for name in sorted(self._state.undecided_locations, key=natural_key):
            pending = nodes[name].pending
            if pending is not None and not pending.meant and not self._is_in_use(name):
                self._apply(name)
        moved, self._moved = self._moved, False
        return moved

    def pending_in(self, nodes: Iterable[str]) -> list[str]:
        """List the nodes with a pending location among these, in natural order."""
        waiting = (
            n
            for n in nodes
            if n in self._state.undecided_locations and self._state.nodes[n].pending
        )
        return sorted(waiting, key=natural_key)

    def forecast(self, nodes: Sequence[str]) -> RelocationImpact:
        """Forecast the impact of the pending relocations of nodes, taken together."""
        return self._forecaster.impact_of(nodes)

    def approve_all(self, nodes: Iterable[str]) -> None:
        """Apply pending relocations whose impact together has just been agreed to."""
        for name in nodes:
            self._apply(name)

    def approve(self, node_id: str, impact_hash: str) -> Reason | None:
        """Apply a pending relocation, or trust a quarantined location, if the approved impact still
        holds.

        Returns a reason if not.
        """
        view = self._state.nodes.get(node_id)
        if view is None:
            return Reason(Code.NODE_UNKNOWN, f"node {node_id} is not known")
        if view.pending is None:
            return why_nothing_pending(node_id)
        found = self._forecaster.impact_of([node_id])
        current = found.impact.hash
        if current != view.pending.impact_hash:
            self._publish(node_id, found)
        if current != impact_hash:
            changed = f"the impact of relocating node {node_id} has changed since it was seen"
            message = f"{changed}: its hash is now {current}, not {impact_hash}"
            return Reason(Code.IMPACT_CHANGED, message)
        self._apply(node_id)
        return None

    def _decide_empty_node(
        self,
        node_id: str,
        before: NodeView | None,
        wanted: NodeAttributes,
        place: Location,
        flaw: Reason | None,
    ) -> LocationDecision:
        """Decide the location of a node without replicas: its own claim, unless in doubt."""
        known = before is not None and before.attributes.location == wanted.location
        if known and before is not None and before.quarantine is None and flaw is None:
            return LocationDecision(wanted)
        if flaw is not None:
            again = known and before is not None and before.quarantine == flaw
            alert = None if again else _refused_alert(node_id, flaw)
            return LocationDecision(wanted, quarantine=flaw, alert=alert)
        meant = self._find_likely_meant(place)
        if meant is None:
            return LocationDecision(wanted, alert=self._new_domain_alert(node_id, place))
        if known and before is not None and before.quarantine is not None:
            return LocationDecision(wanted, None, before.pending, before.quarantine)
        pending = Pending(wanted.location, wanted.tags, "", meant)
        return LocationDecision(
            wanted, None, pending, _typo_reason(node_id, place, meant), is_new=True
        )

    def _apply(self, name: str) -> None:
        """Put the pending location of a node in force."""
        view, pending = self._state.nodes[name], self._pending(name)
        place = parse_location(pending.location)
        assert isinstance(place, Location)
        alert = self._new_domain_alert(name, place)
        if alert is not None:
            self._state.publisher.alert(*alert)
        attributes = replace(view.attributes, location=pending.location, tags=pending.tags)
        self._moved = True
        claimed = None if view.source == CLAIM else view.claimed
        self._enter(
            replace(view, attributes=attributes, claimed=claimed, pending=None, quarantine=None)
        )

    def _enter(self, view: NodeView) -> None:
        """Record a node's view, under the orders that reach its location."""
        ordered = self._orders.state_at(view.node_id, view.attributes.location)
        self._enter_view(replace(view, administrative=ordered))

    def _publish(self, name: str, forecast: RelocationImpact) -> None:
        view, pending, found = self._state.nodes[name], self._pending(name), forecast.impact
        self._enter(replace(view, pending=replace(pending, impact_hash=found.hash)))
        detail = {"location": pending.location, "was": view.attributes.location, **forecast.detail}
        if pending.meant:
            place = parse_location(pending.location)
            assert isinstance(place, Location)
            reason = _typo_reason(name, place, pending.meant)
            self._state.publisher.alert(
                AlertKind.TYPO_SUSPECTED, name, reason, detail | {"meant": pending.meant}
            )
            return
        old = view.attributes
        what = f"from {old.location or '(none)'} to {pending.location or '(none)'}"
        what = "to other tags" if pending.location == old.location else what
        message = (
            f"the change of node {name} {what} waits for approval: it would cause "
            f"{format_count(found.moves, 'move')}, "
            f"make {format_count(len(found.violations_made), 'violation')} "
            f"and heal {len(found.violations_healed)}"
        )
        reason = Reason(Code.RELOCATION_PENDING, message)
        self._state.publisher.alert(AlertKind.RELOCATION_PENDING, name, reason, detail)

    def _pending(self, name: str) -> Pending:
        pending = self._state.nodes[name].pending
        assert pending is not None
        return pending

    def _is_within_limit(self, found: RelocationImpact) -> bool:
        bound = self._state.configuration.relocate_up_to
        return bound is None or len(found.shards) <= bound

    def _find_tier_flaw(self, place: Location) -> Reason | None:
        configuration = self._state.configuration
        levels = configuration.levels if configuration.enforce_levels else ()
        return find_tier_flaw(place, levels, self._state.domain_paths)

    def _find_likely_meant(self, place: Location) -> str | None:
        """Find the known place that a new place is probably a misspelling of."""
        if self._admission.bootstrapping:
            return None
        domain = find_new_domain(place, self._state.domain_paths)
        return None if domain is None else find_likely_meant(domain, self._state.domain_paths)

    def _new_domain_alert(
        self, node_id: str, place: Location
    ) -> tuple[AlertKind, str, Reason] | None:
        """Make the alert that a node is the first one in a place, if it is."""
        domain = find_new_domain(place, self._state.domain_paths)
        if domain is None or self._admission.bootstrapping:
            return None
        reason = Reason(Code.DOMAIN_NEW, f"node {node_id} is the first node in {domain}")
        return AlertKind.NEW_DOMAIN, str(domain), reason

    def _policy_tags_changed(
        self, old: tuple[tuple[str, str], ...], new: tuple[tuple[str, str], ...]
    ) -> bool:
        """Return whether a tag that a stream's policy names differs."""
        keys = {key for key, _ in {*old} ^ {*new}}
        return bool(keys) and any(
            keys & {*_policy_words(stream.spec.policy)} for stream in self._state.streams.values()
        )

    def _is_in_use(self, name: str) -> bool:
        """Return whether the node holds replicas or takes part in an open move."""
        state = self._state
        node = state.topology.index[name]
        return bool(state.table.load(node + 1)[node]) or bool(state.ledger.moves_of_node(node))


def why_nothing_pending(target: str) -> Reason:
    """Return the refusal of an approval for which no relocation waits."""
    return Reason(Code.NOTHING_PENDING, f"no relocation of {target} waits for approval")


def _policy_words(policy: Any) -> Iterator[str]:
    """Yield all names and strings in a policy; of `tag:zone` the key."""
    if isinstance(policy, Mapping):
        for name, value in policy.items():
            yield str(name)
            yield from _policy_words(value)
    elif isinstance(policy, list | tuple):
        for each in policy:
            yield from _policy_words(each)
    elif isinstance(policy, str):
        yield policy.removeprefix("tag:")


def _refused_alert(node_id: str, flaw: Reason) -> tuple[AlertKind, str, Reason]:
    return AlertKind.LOCATION_REFUSED, node_id, flaw


def _typo_reason(node_id: str, place: Location, meant: str) -> Reason:
    message = f"node {node_id} claims {place}, where no other node is; was {meant} meant?"
    return Reason(Code.TYPO_SUSPECTED, message, seen=(meant,))
