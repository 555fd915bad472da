"""Decides whose word on a node's location counts: the node's claim, or an authority.

A registration is anybody's word; with an authority a node's claim is compared, told when it differs
and never trusted (Kudu and HDFS map hosts on the master for the same reason). A node that the
authority does not place is registered, and receives nothing.
"""

from dataclasses import dataclass, replace

from placement.model import (
    AlertKind,
    Code,
    LocationResolved,
    NodeAttributes,
    NodeChanged,
    NodeView,
    Reason,
    parse_location,
)
from placement.state import ClusterState

# What is remembered in `state.v1`, by node: what the authority said last.
KIND = "location"
CLAIM = "claim"
INVENTORY = "inventory"


@dataclass(frozen=True, slots=True)
class LocatedNode:
    """Location for a node: the authority's instead of its own, or why there is none.

    With the claim, if it is not what counts.
    """

    attributes: NodeAttributes
    source: str = CLAIM
    claim: str | None = None
    doubt: Reason | None = None


class LocationAuthority:
    """Knows what the configured authority has said."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._name = state.configuration.authority

    @property
    def claims_count(self) -> bool:
        """Whether nodes themselves are the authority."""
        return self._name == CLAIM

    def record_location(self, event: LocationResolved) -> Reason | None:
        """Remember what the authority says of a node, known or not; a reason if it is malformed."""
        if not self.is_source(event):
            self._state.publisher.count("other_authority")
            return None
        location = None if event.location is None else parse_location(event.location)
        if isinstance(location, Reason):
            return location
        body = {"location": event.location, "reason": event.reason}
        self._state.memory.remember(KIND, event.node_id, body)
        return None

    def is_source(self, event: LocationResolved) -> bool:
        """Whether the configured authority speaks."""
        return event.source == self._name

    def forget(self, node_id: str) -> None:
        """The node is gone; an inventory goes on knowing its place."""
        if self._name != INVENTORY:
            self._state.memory.remember(KIND, node_id, None)

    def locate(
        self, event: NodeChanged, before: NodeView | None, wanted: NodeAttributes
    ) -> LocatedNode:
        """The attributes of a node that has said `wanted`, with the place that counts."""
        if self.claims_count:
            return LocatedNode(wanted)
        claim = before.claimed if before is not None else None
        if event.attributes is not None:
            claim = event.attributes.location or None
        elif event.location is not None:
            claim = event.location
        known = self._state.memory.get((KIND, event.node_id))
        place = None if known is None else known.body["location"]
        if place is not None:
            return LocatedNode(replace(wanted, location=place), self._name, claim)
        if before is not None and before.quarantine is None:
            kept = replace(wanted, location=before.attributes.location)
            return LocatedNode(kept, self._name, claim)
        answer = None if known is None else known.body["reason"]
        message = (
            f"{event.node_id} has no location by {self._name}: {answer or 'nothing known yet'}"
        )
        doubt = Reason(Code.LOCATION_UNRESOLVED, message)
        return LocatedNode(replace(wanted, location=""), self._name, claim, doubt)

    def alert_on_difference(self, before: NodeView | None, after: NodeView) -> None:
        """Tell people, once, that a node claims to stand elsewhere than it does."""
        claim, place = after.claimed, after.attributes.location
        if self.claims_count or claim is None or claim == place or after.quarantine is not None:
            return
        if before is not None and (before.claimed, before.attributes.location) == (claim, place):
            return
        message = f"{after.node_id} claims {claim}, by {self._name} it stands in {place}"
        self._state.publisher.alert(
            AlertKind.CLAIM_DIFFERS,
            after.node_id,
            Reason(Code.CLAIM_DIFFERS, message, seen=(place,)),
        )
