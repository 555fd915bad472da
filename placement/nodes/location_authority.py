"""Decides which source gives a node's location: the node's own claim, or an authority.

Whoever may write to the nodes topic can claim any location. With an authority a node's claim is
only compared: an alert names a difference (Kudu and HDFS map hosts on the master for the same
reason). A node for which the authority has no location is registered, and receives no replicas.
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
    """Attributes of a node with the location in force, or the reason why there is none.

    - `source`: the source of the location; `claim`: the node's own claim, if another source
      decides.
    - `doubt`: why the node has no location yet.
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
        """True if the nodes themselves are the authority for their locations."""
        return self._name == CLAIM

    def record_location(self, event: LocationResolved) -> Reason | None:
        """Remember the authority's answer for a node, known or not.

        Returns a reason if the location is malformed.
        """
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
        """Return whether the event comes from the configured authority."""
        return event.source == self._name

    def forget(self, node_id: str) -> None:
        """Forget a node's location, unless it comes from an inventory."""
        if self._name != INVENTORY:
            self._state.memory.remember(KIND, node_id, None)

    def locate(
        self, event: NodeChanged, before: NodeView | None, wanted: NodeAttributes
    ) -> LocatedNode:
        """Return the attributes of a node with the location in force.

        `wanted`: the attributes that the node registers with.
        """
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
            f"{self._name} has no location for node {event.node_id}: "
            f"{answer or 'it has not answered yet'}"
        )
        doubt = Reason(Code.LOCATION_UNRESOLVED, message)
        return LocatedNode(replace(wanted, location=""), self._name, claim, doubt)

    def alert_on_difference(self, before: NodeView | None, after: NodeView) -> None:
        """Alert once if a node claims another location than the one in force."""
        claim, place = after.claimed, after.attributes.location
        if self.claims_count or claim is None or claim == place or after.quarantine is not None:
            return
        if before is not None and (before.claimed, before.attributes.location) == (claim, place):
            return
        message = f"node {after.node_id} claims location {claim}, {self._name} says {place}"
        self._state.publisher.alert(
            AlertKind.CLAIM_DIFFERS,
            after.node_id,
            Reason(Code.CLAIM_DIFFERS, message, seen=(place,)),
        )
